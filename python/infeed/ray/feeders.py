"""Feeders that Ray places, starts, watches and restarts."""

import atexit
import contextlib
import logging
import math
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import ray

from infeed import _check, _core
from infeed._closing import ClosedAtExit
from infeed.errors import ConfigError
from infeed.feeders import FeederGroup
from infeed.ray._feeder import Feeder

__all__ = ["Feeders"]

_log = logging.getLogger("infeed.ray")

# Longest wait at the end of a loader for the thread that calls Ray, in seconds.
_ENDING_S = 5.0

# Ray namespace in which all jobs of a cluster find feeders.
_NAMESPACE = "infeed"

# Longest wait for an actor's answer, in seconds, and so the interval of checks.
_TICK_S = 0.2

# Pauses before an actor that did not answer is called again: the first, the longest.
_REST_S, _LONGEST_REST_S = 0.2, 5.0

# Seconds without an answer after which a feeder counts as not placed.
_PLACEMENT_TIMEOUT_S = 15.0


class Feeders(ClosedAtExit, FeederGroup):
    """CPU nodes of a Ray cluster that make batches, for ``Pipeline.open(workers=...)``.

    As with `infeed.feeders.Feeders`, batches do not depend on the machine that makes
    them, and no batch is lost with a node. Ray places the feeders on its nodes, starts
    them, and restarts feeders whose node or process was lost. The training loop never
    waits for Ray: the cores of this machine make batches that no feeder made in time.

        feeders = infeed.ray.Feeders(num=8, cpus=4, local="help")
        with pipeline.open(workers=feeders) as loader:
            for batch in loader:
                ...

    The feeders start when a pipeline is opened, and end with the last loader that uses
    them. Several trainers can share feeders that another process has started:

        with infeed.ray.Feeders(num=8, cpus=4) as feeders:
            TorchTrainer(train, train_loop_config={"feeders": feeders}, ...).fit()

    where ``train`` opens its rank with ``workers=config["feeders"]``. Feeders with a
    ``name`` stay until `close`, even after their script ends. A restarted script finds
    them again.

    If Ray is not initialized, this initializes it. The nodes need the same version of
    infeed, and the data under the same paths or URLs. Functions of ``.python`` must be
    in modules that the actors can import, such as those in the ``working_dir`` of Ray's
    ``runtime_env``. Pipelines are sent through Ray, and batches over infeed's own
    connections, between the addresses by which Ray knows its nodes. They are
    encrypted. Each feeder has a token, passed on through Ray, and rejects connections
    without it.

    Args:
        num: Number of feeders.
        cpus: CPUs that each feeder requests from Ray, and its number of threads, at
            least one.
        name: Name of feeders that outlive the process that started them.
        local: As in `infeed.feeders.Feeders`.
        workers: As in `infeed.feeders.Feeders`.
        deadline: As in `infeed.feeders.Feeders`.
        memory: Memory budget of each feeder in bytes, or text such as ``"2GiB"``, which
            is requested from Ray too. None: the need of its batches.
        resources: Further resources that each feeder requests from Ray, such as
            ``{"infeed": 1}``.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        num: int,
        cpus: float = 1,
        *,
        name: str | None = None,
        local: Literal["help", "fallback"] = "help",
        workers: int | None = None,
        deadline: float = 1.0,
        memory: int | str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(local, workers, deadline)
        self.num = _check.integer(self, "num", num, low=1)
        self.cpus = _positive(self, "cpus", cpus)
        if name is not None and (not isinstance(name, str) or not name):
            raise _check.error(self, "name", "a text", name)
        self.name = name
        self.memory = None if memory is None else _check.size_bytes(memory, "Feeders")
        self.resources = {
            resource: _positive(self, f"resources[{resource!r}]", amount)
            for resource, amount in (resources or {}).items()
        }
        # Part of the actors' names; a new one for each start.
        self._run = name or ""
        # Whether `close` ends them, and not the last loader.
        self._kept = name is not None
        self._begun_elsewhere = False
        self._actors: list[Any] | None = None
        self._loaders = 0
        # Number of times that this process ended them.
        self._ends = 0
        # Reentrant, because a loader may be collected and call `_left` under the lock.
        self._lock = threading.RLock()

    def start(self) -> Self:
        """Starts them now, to run until `close`. Does not wait for them."""
        with self._lock:
            self._start()
            self._kept = True
        return self

    def close(self) -> None:
        """Ends them, even if another process started them. Loaders continue without."""
        with self._lock:
            if self.name is not None and not ray.is_initialized():
                ray.init()
            self._end()
            self._kept = self.name is not None

    def __enter__(self) -> Self:
        return self.start()

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Feeders({self.num}, cpus={self.cpus:g}{named}, local={self.local!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._kept:
            raise ConfigError(
                "Feeders: only started feeders can be sent to other processes; use "
                '"with infeed.ray.Feeders(...) as feeders:", or set a name'
            )
        state = self.__dict__.copy()
        # The other process looks up the actors by name.
        for own in _own():
            del state[own]
        return _restore, (state,)

    def _check_data(self, in_memory: bool) -> None:
        if in_memory:
            raise ConfigError(
                "Feeders: the source or its weights are in the memory of this process, "
                "which feeders cannot read; use files, or open without feeders"
            )

    def _hosts(self) -> _core.Hosts:
        return _core.Hosts(self.num)

    def _begin(self, description: str, hosts: _core.Hosts) -> Callable[[], None]:
        with self._lock:
            # Counted first, so that the end of another loader does not end them.
            self._loaders += 1
            try:
                self._start()
                return _FeederMonitor(self, description, hosts).end
            except BaseException:
                self._release()
                raise

    def _release(self) -> None:
        """Called when a loader has ended."""
        with self._lock:
            self._loaders -= 1
            if self._loaders == 0 and not self._kept:
                self._end()

    def _start(self) -> None:
        if not ray.is_initialized():
            ray.init()
        if self._begun_elsewhere or self._actors is not None:
            return
        options: dict[str, Any] = {
            "num_cpus": self.cpus,
            "memory": self.memory,
            "resources": self.resources or None,
            "namespace": _NAMESPACE,
            "max_restarts": -1,
            "scheduling_strategy": "SPREAD",
        }
        if self.name is None:
            self._run = secrets.token_hex(4)
        else:
            options |= {"lifetime": "detached", "get_if_exists": True}
        actor, threads = ray.remote(Feeder), max(1, int(self.cpus))
        self._actors = [
            actor.options(name=self._actor_name(number), **options).remote(
                number, threads, self.memory
            )
            for number in range(self.num)
        ]

    def _actor(self, number: int) -> Any:
        """Returns the actor with a number.

        Raises:
            ValueError: There is no actor with its name.
        """
        actors = self._actors
        if actors is not None:
            return actors[number]
        return ray.get_actor(self._actor_name(number), namespace=_NAMESPACE)

    def _actor_name(self, number: int) -> str:
        return f"infeed feeder {self._run}/{number}"

    def _end(self) -> None:
        self._ends += 1
        # After Ray has ended, only named feeders still run.
        for number in range(self.num if ray.is_initialized() else 0):
            # The actor may have ended already.
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                ray.kill(self._actor(number))
        self._actors = None

    def _resources(self) -> dict[str, float]:
        """Returns the resources of each feeder, by Ray's names."""
        memory = {} if self.memory is None else {"memory": float(self.memory)}
        return {"CPU": self.cpus, **memory, **self.resources}


def _restore(state: dict[str, Any]) -> Feeders:
    """Returns feeders that another process started, and ends."""
    feeders = Feeders.__new__(Feeders)
    feeders.__dict__.update(state | _own(), _begun_elsewhere=state["name"] is None)
    return feeders


def _own() -> dict[str, Any]:
    """Returns the initial values of attributes that each process has for itself."""
    return {"_actors": None, "_loaders": 0, "_ends": 0, "_lock": threading.RLock()}


def _positive(owner: object, name: str, value: Any) -> float:
    found = _check.number(owner, name, value, 0)
    if not found:
        raise _check.error(owner, name, "a number over 0", value)
    return found


_monitors: "weakref.WeakSet[_FeederMonitor]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends the monitor threads before Ray ends."""
    for watch in list(_monitors):
        watch.end()


class _FeederMonitor:
    """Keeps one loader's list of feeder addresses up to date.

    Its thread calls each actor again and again. An actor answers at once with a new
    address, and after a while with a known one. Ray raises an error at once for an
    actor that was lost. No other thread waits for this one.
    """

    def __init__(self, feeders: Feeders, description: str, hosts: _core.Hosts):
        self._feeders = feeders
        self._what = (description, os.getcwd())
        self._hosts = hosts
        self._known: dict[int, str] = {}
        # Time of the next call for actors without a call in progress, and last pauses.
        self._due = dict.fromkeys(range(feeders.num), 0.0)
        self._rests = dict.fromkeys(range(feeders.num), _REST_S)
        self._reported: dict[int, str] = {}
        self._calls: dict[Any, int] = {}
        self._placement_check = _PlacementCheck(feeders)
        self._ends = feeders._ends
        self._over = threading.Event()
        self._ending = threading.RLock()
        self._pid = os.getpid()
        _monitors.add(self)
        self._thread = threading.Thread(
            target=self._run, name="infeed-ray", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Ends the thread, and the feeders if no other loader uses them. May be called
        again."""
        with self._ending:
            # In a forked child, thread and feeders belong to the parent.
            if self._over.is_set() or os.getpid() != self._pid:
                return
            self._over.set()
        # A loader may be collected in that thread, or while that thread waits for this.
        if threading.current_thread() is not self._thread:
            self._thread.join(_ENDING_S)
        self._feeders._release()

    def _run(self) -> None:
        reason = None
        # A call after the end of Ray would initialize it again.
        while ray.is_initialized() and not self._over.is_set():
            if self._has_ended():
                for number in range(self._feeders.num):
                    self._hosts.set(number, "")
                return
            try:
                self._poll()
            except Exception as error:
                # The loader works without feeders, and Ray may recover.
                if reason != (reason := _reason(error)) and not self._over.is_set():
                    _log.warning("cannot watch the feeders: %s", reason)
                self._over.wait(_LONGEST_REST_S)

    def _poll(self) -> None:
        """Calls the actors that are due, and waits a moment for answers."""
        now = time.monotonic()
        for number in [n for n, due in self._due.items() if due <= now]:
            del self._due[number]
            self._call_actor(number)
        self._placement_check.warn_if_unplaced(self._waiting())
        if not self._calls:
            self._over.wait(_TICK_S)
            return
        ready, _ = ray.wait(list(self._calls), timeout=_TICK_S)
        for call in ready:
            self._hear(self._calls.pop(call), call)

    def _has_ended(self) -> bool:
        """Whether this process ended the feeders, which is not a failure."""
        return self._feeders._ends != self._ends

    def _waiting(self) -> int:
        """Returns the number of feeders without any answer so far."""
        return self._feeders.num - len(self._known.keys() | self._reported.keys())

    def _call_actor(self, number: int) -> None:
        try:
            actor = self._feeders._actor(number)
            call = actor.serve.remote(*self._what, self._known.get(number))
        except (ValueError, ray.exceptions.RayError) as error:
            self._schedule_retry(number, error)
        else:
            self._calls[call] = number

    def _hear(self, number: int, call: Any) -> None:
        try:
            address, token, node = ray.get(call)
        except Exception as error:
            self._schedule_retry(number, error)
            return
        self._hosts.set(number, address, token, node)
        self._known[number] = address
        self._reported.pop(number, None)
        self._due[number], self._rests[number] = 0.0, _REST_S

    def _schedule_retry(self, number: int, error: Exception) -> None:
        """Schedules the next call of an actor after a pause."""
        if self._has_ended():
            return
        rest = self._rests[number]
        self._rests[number] = min(2 * rest, _LONGEST_REST_S)
        self._due[number] = time.monotonic() + rest
        self._known.pop(number, None)
        if isinstance(error, ray.exceptions.ActorDiedError):
            self._hosts.set(number, "")
        # If Ray cannot reach an actor, its connection to the loader may still work. If
        # that is lost too, the loader has logged it, and Ray restarts the actor.
        lost = isinstance(error, ray.exceptions.ActorUnavailableError)
        why = "Ray cannot reach it" if lost else _reason(error)
        if self._reported.get(number) != why and not self._over.is_set():
            self._reported[number] = why
            _log.log(
                logging.INFO if lost else logging.WARNING,
                "feeder %d of %d: %s; trying again",
                number,
                self._feeders.num,
                why,
            )


def _reason(error: Exception) -> str:
    """Returns a Ray error as one line."""
    # The exception of the actor, without Ray's wrapper.
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        error = cause
    lines = [line.strip() for line in f"{error}".splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # For an actor that cannot start, Ray's message ends with the exception.
    begins = getattr(error, "actor_init_failed", False)
    return f"it cannot start: {lines[-1]}" if begins else lines[0]


class _PlacementCheck:
    """Warns once if Ray cannot place all feeders."""

    def __init__(self, feeders: Feeders):
        self._feeders = feeders
        self._until = time.monotonic() + _PLACEMENT_TIMEOUT_S
        self._first = self._over = False

    def warn_if_unplaced(self, waiting: int) -> None:
        """Checks the cluster at first, and once more after a while."""
        if self._over or (waiting == 0 and self._first):
            self._over = True
            return
        late = time.monotonic() > self._until
        if self._first and not late:
            return
        self._first, self._over = True, late
        requested, num = self._feeders._resources(), self._feeders.num
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(_fits(requested, node) for node in nodes)
        each = ", ".join(_amount(*of) for of in requested.items())
        free = ray.available_resources()
        there = ", ".join(
            f"{_amount(name, sum(node.get(name, 0) for node in nodes))} "
            f"({free.get(name, 0):g} free)"
            for name in requested
        )
        if room < num:
            problem = f"{num} feeders of {each} each were requested, and the cluster "
            problem += f"has room for {room}"
        elif late:
            problem = f"{waiting} of {num} feeders of {each} each have not started"
        else:
            return
        self._over = True
        _log.warning(
            "%s: the cluster's %d nodes have %s; the run continues with the feeders "
            "that start",
            problem,
            len(nodes),
            there,
        )


def _fits(requested: Mapping[str, float], node: Mapping[str, float]) -> int:
    """Returns the number of feeders that fit on an empty node."""
    return min(math.floor(node.get(name, 0) / requested[name]) for name in requested)


def _amount(name: str, amount: float) -> str:
    if name == "CPU":
        return "1 CPU" if amount == 1 else f"{amount:g} CPUs"
    if name == "memory":
        return f"{amount / 2**30:.3g} GiB of memory"
    return f"{amount:g} {name}"
