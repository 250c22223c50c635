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
from types import TracebackType
from typing import Any, Literal, Self

import ray

from infeed import _check, _core
from infeed.errors import ConfigError
from infeed.feeders import Feeding
from infeed.ray._feeder import Feeder

__all__ = ["Feeders"]

_log = logging.getLogger("infeed.ray")

# How long the end of a loader waits for the thread that asks Ray, at most.
_ENDING_S = 5.0

# Where all jobs of a cluster look for feeders.
_NAMESPACE = "infeed"

# How long one look at the actors waits for one that answers, and so the end for a look.
_TICK_S = 0.2

# Rests before an actor that did not answer is asked again: the first, and the longest.
_REST_S, _LONGEST_REST_S = 0.2, 5.0

# After so long without an answer a feeder counts as not placed.
_PLACING_S = 15.0


class Feeders(Feeding):
    """CPU nodes of a Ray cluster that make batches, for ``Pipeline.open(workers=...)``.

    As `infeed.Feeders`: who makes a batch is not seen in it, and a node that is lost
    costs no batch. Ray places the feeders over its nodes, starts them, and starts those
    anew elsewhere whose node or process was lost. The training loop never waits for
    Ray: this machine's cores make what no feeder has made in time.

    ::

        feeders = infeed.ray.Feeders(num=8, cpus=4, local="help")
        with pipeline.open(workers=feeders) as loader:
            for batch in loader:
                ...

    They begin when a pipeline is opened, and end with the last loader that they feed.
    Several trainers share feeders that somebody else began::

        with infeed.ray.Feeders(num=8, cpus=4) as feeders:
            TorchTrainer(train, train_loop_config={"feeders": feeders}, ...).fit()

    where ``train`` opens its rank with ``workers=config["feeders"]``. Feeders with a
    ``name`` stay until `close`, whatever ends before: a script that is started again
    finds them.

    Ray is used as it was initialized, or initializes itself. infeed must be installed
    on its nodes, in the same version, and the data lie there under the same paths or
    URLs; functions of ``.python`` must be in modules that the actors can import, such
    as those of the ``working_dir`` of Ray's ``runtime_env``. Pipelines go to the
    feeders through Ray; batches come over infeed's own connections, from the addresses
    by which Ray knows its nodes. Nothing of these is encrypted; whoever asks there
    needs a token that is made for each feeder and learned through Ray.

    Args:
        num: How many.
        cpus: What each asks of Ray, and how many threads it has, at least one.
        name: Of feeders that outlive the process that began them.
        local: As of `infeed.Feeders`.
        workers: As of `infeed.Feeders`.
        deadline: As of `infeed.Feeders`.
        memory: Budget of each for batches and their making, in bytes or as ``"2GiB"``,
            which is asked of Ray too. None: what its batches need.
        resources: What else each asks of Ray, such as ``{"infeed": 1}``.

    Raises:
        ConfigError: An argument is wrong.
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
            raise _check.refusal(self, "name", "a text", name)
        self.name = name
        self.memory = None if memory is None else _check.size_bytes(memory, "Feeders")
        self.resources = {
            resource: _positive(self, f"resources[{resource!r}]", amount)
            for resource, amount in (resources or {}).items()
        }
        # What tells their actors from others; another one each time they begin.
        self._run = name or ""
        # Whether somebody else than a loader ends them.
        self._kept = name is not None
        self._begun_elsewhere = False
        self._actors: list[Any] | None = None
        self._loaders = 0
        # How often they were ended here.
        self._ends = 0
        # A loader may be collected, and say that it left, wherever this is held.
        self._lock = threading.RLock()

    def start(self) -> Self:
        """Asks Ray for them now; they stay until `close`. Does not wait for them."""
        with self._lock:
            self._start()
            self._kept = True
        return self

    def close(self) -> None:
        """Ends them, whoever began them. Loaders that they feed go on without."""
        with self._lock:
            if self.name is not None and not ray.is_initialized():
                ray.init()
            self._end()
            self._kept = self.name is not None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Feeders({self.num}, cpus={self.cpus:g}{named}, local={self.local!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._kept:
            raise ConfigError(
                "Feeders: what is sent to other processes must have been started by "
                'this one, which ends it: "with infeed.ray.Feeders(...) as feeders:"; '
                "or give it a name"
            )
        state = self.__dict__.copy()
        # Whoever gets these looks the actors up by their names.
        for own in _own():
            del state[own]
        return _restored, (state,)

    def _check_data(self, in_memory: bool) -> None:
        if in_memory:
            raise ConfigError(
                "Feeders: the source or its weights lie in the memory of this process, "
                "which no feeder sees; use files, or open without feeders"
            )

    def _hosts(self) -> _core.Hosts:
        return _core.Hosts(self.num)

    def _begin(self, description: str, hosts: _core.Hosts) -> Callable[[], None]:
        with self._lock:
            # Before they begin, so that no other loader's end is theirs.
            self._loaders += 1
            try:
                self._start()
                return _Watch(self, description, hosts).end
            except BaseException:
                self._left()
                raise

    def _left(self) -> None:
        """A loader has ended."""
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
        """The actor of a number.

        Raises:
            ValueError: There is none of its name.
        """
        actors = self._actors
        if actors is not None:
            return actors[number]
        return ray.get_actor(self._actor_name(number), namespace=_NAMESPACE)

    def _actor_name(self, number: int) -> str:
        return f"infeed feeder {self._run}/{number}"

    def _end(self) -> None:
        self._ends += 1
        # With Ray, all but named ones have ended.
        for number in range(self.num if ray.is_initialized() else 0):
            # One that is not there needs no end.
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                ray.kill(self._actor(number))
        self._actors = None

    def _asked(self) -> dict[str, float]:
        """What each asks of Ray, by the names of Ray."""
        memory = {} if self.memory is None else {"memory": float(self.memory)}
        return {"CPU": self.cpus, **memory, **self.resources}


def _restored(state: dict[str, Any]) -> Feeders:
    """Feeders that another process began, and ends."""
    feeders = Feeders.__new__(Feeders)
    feeders.__dict__.update(state | _own(), _begun_elsewhere=state["name"] is None)
    return feeders


def _own() -> dict[str, Any]:
    """What each process has of its own of feeders, at first."""
    return {"_actors": None, "_loaders": 0, "_ends": 0, "_lock": threading.RLock()}


def _positive(owner: object, name: str, value: Any) -> float:
    found = _check.number(owner, name, value, 0)
    if not found:
        raise _check.refusal(owner, name, "a number over 0", value)
    return found


_watches: "weakref.WeakSet[_Watch]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends the threads that ask Ray before Ray itself ends, which is older."""
    for watch in list(_watches):
        watch.end()


class _Watch:
    """Tells one loader where its feeders are.

    A thread of its own asks each actor where it feeds the pipeline, again and again;
    an answer that is known comes late, and an error at once where Ray knows that the
    actor is gone. Nobody waits for this thread.
    """

    def __init__(self, feeders: Feeders, description: str, hosts: _core.Hosts):
        self._feeders = feeders
        self._what = (description, os.getcwd())
        self._hosts = hosts
        self._known: dict[int, str] = {}
        # When to ask those that are asked nothing, and how long they rested.
        self._due = dict.fromkeys(range(feeders.num), 0.0)
        self._rests = dict.fromkeys(range(feeders.num), _REST_S)
        self._told: dict[int, str] = {}
        self._calls: dict[Any, int] = {}
        self._placing = _Placing(feeders)
        self._ends = feeders._ends
        self._over = threading.Event()
        self._ending = threading.RLock()
        self._pid = os.getpid()
        _watches.add(self)
        self._thread = threading.Thread(
            target=self._run, name="infeed-ray", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Ends the thread, and the feeders if nobody else needs them. May be called
        again."""
        with self._ending:
            # In a fork, thread and feeders are the parent's.
            if self._over.is_set() or os.getpid() != self._pid:
                return
            self._over.set()
        # A loader may be collected in that very thread, or where that waits for this.
        if threading.current_thread() is not self._thread:
            self._thread.join(_ENDING_S)
        self._feeders._left()

    def _run(self) -> None:
        told = None
        # Ray would begin anew for whoever calls it after its end.
        while ray.is_initialized() and not self._over.is_set():
            if self._ended():
                for number in range(self._feeders.num):
                    self._hosts.set(number, "")
                return
            try:
                self._look()
            except Exception as error:
                # The run needs none of this; Ray may be back.
                if told != (told := _reason(error)) and not self._over.is_set():
                    _log.warning("feeders cannot be watched: %s", told)
                self._over.wait(_LONGEST_REST_S)

    def _look(self) -> None:
        """Asks those that are to be asked, and hears who answers for a moment."""
        now = time.monotonic()
        for number in [n for n, due in self._due.items() if due <= now]:
            del self._due[number]
            self._ask(number)
        self._placing.look(self._waiting())
        if not self._calls:
            self._over.wait(_TICK_S)
            return
        ready, _ = ray.wait(list(self._calls), timeout=_TICK_S)
        for call in ready:
            self._hear(self._calls.pop(call), call)

    def _ended(self) -> bool:
        """Whether this process ended the feeders, which is nobody's failure."""
        return self._feeders._ends != self._ends

    def _waiting(self) -> int:
        """How many have not said a word so far."""
        return self._feeders.num - len(self._known.keys() | self._told.keys())

    def _ask(self, number: int) -> None:
        try:
            actor = self._feeders._actor(number)
            call = actor.where.remote(*self._what, self._known.get(number))
        except (ValueError, ray.exceptions.RayError) as error:
            self._failed(number, error)
        else:
            self._calls[call] = number

    def _hear(self, number: int, call: Any) -> None:
        try:
            address, token, node = ray.get(call)
        except Exception as error:
            self._failed(number, error)
            return
        self._hosts.set(number, address, token, node)
        self._known[number] = address
        self._told.pop(number, None)
        self._due[number], self._rests[number] = 0.0, _REST_S

    def _failed(self, number: int, error: Exception) -> None:
        """Asks again after a rest."""
        if self._ended():
            return
        rest = self._rests[number]
        self._rests[number] = min(2 * rest, _LONGEST_REST_S)
        self._due[number] = time.monotonic() + rest
        self._known.pop(number, None)
        if isinstance(error, ray.exceptions.ActorDiedError):
            self._hosts.set(number, "")
        # Of one that is only out of Ray's reach the connection knows more. Where that
        # is lost, it is told already, and Ray is at work.
        lost = isinstance(error, ray.exceptions.ActorUnavailableError)
        why = "Ray does not reach it" if lost else _reason(error)
        if self._told.get(number) != why and not self._over.is_set():
            self._told[number] = why
            _log.log(
                logging.INFO if lost else logging.WARNING,
                "feeder %d of %d: %s; it is asked again",
                number,
                self._feeders.num,
                why,
            )


def _reason(error: Exception) -> str:
    """One line of what Ray raised."""
    # What was raised there, without Ray's wrapping.
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        error = cause
    lines = [line.strip() for line in f"{error}".splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Ray ends with what was raised where an actor begins.
    begins = getattr(error, "actor_init_failed", False)
    return f"it cannot begin: {lines[-1]}" if begins else lines[0]


class _Placing:
    """Says once that feeders find no place."""

    def __init__(self, feeders: Feeders):
        self._feeders = feeders
        self._until = time.monotonic() + _PLACING_S
        self._first = self._over = False

    def look(self, waiting: int) -> None:
        """Looks at the cluster at first, and once more after a while."""
        if self._over or (waiting == 0 and self._first):
            self._over = True
            return
        late = time.monotonic() > self._until
        if self._first and not late:
            return
        self._first, self._over = True, late
        asked, num = self._feeders._asked(), self._feeders.num
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(_fits(asked, node) for node in nodes)
        each = ", ".join(_amount(*of) for of in asked.items())
        free = ray.available_resources()
        there = ", ".join(
            f"{_amount(name, sum(node.get(name, 0) for node in nodes))} "
            f"({free.get(name, 0):g} free)"
            for name in asked
        )
        if room < num:
            what = f"{num} feeders of {each} each were asked of Ray, which has room "
            what += f"for {room}"
        elif late:
            what = f"{waiting} of {num} feeders of {each} each have not begun"
        else:
            return
        self._over = True
        _log.warning(
            "%s: on %d nodes there are %s; the run goes on, and uses those that come",
            what,
            len(nodes),
            there,
        )


def _fits(asked: Mapping[str, float], node: Mapping[str, float]) -> int:
    """How many who ask for this fit on an empty node."""
    return min(math.floor(node.get(name, 0) / asked[name]) for name in asked)


def _amount(name: str, amount: float) -> str:
    if name == "CPU":
        return "1 CPU" if amount == 1 else f"{amount:g} CPUs"
    if name == "memory":
        return f"{amount / 2**30:.3g} GiB of memory"
    return f"{amount:g} {name}"
