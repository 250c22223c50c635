"""Other machines that make batches beside a trainer's own cores."""

from collections.abc import Callable, Sequence
from typing import Literal

from infeed import _check, _core
from infeed.errors import ConfigError

__all__ = ["Feeders", "Feeding"]

_LOCAL = ("help", "fallback")


class Feeding:
    """What `Pipeline.open` asks of those who feed it, whoever places and starts them.

    Made by `Feeders`, or by `infeed.ray.Feeders`.
    """

    local: Literal["help", "fallback"]
    workers: int | None
    deadline: float

    def __init__(
        self,
        local: Literal["help", "fallback"],
        workers: int | None,
        deadline: float,
    ):
        if workers is not None:
            workers = _check.integer(self, "workers", workers, low=1)
        self.workers = workers
        _check.choice(self, "local", local, _LOCAL)
        self.local = local
        self.deadline = float(_check.number(self, "deadline", deadline, 0.01))

    def _check_data(self, in_memory: bool) -> None:
        """Refuses a pipeline whose data they cannot see, where that is known here.

        Raises:
            ConfigError: It lies in the memory of this process.
        """

    def _hosts(self) -> _core.Hosts:
        """Where they are, for one loader."""
        raise NotImplementedError

    def _begin(self, description: str, hosts: _core.Hosts) -> Callable[[], None] | None:
        """Keeps hosts up to date from now on; gives what ends that."""
        return None


class Feeders(Feeding):
    """Machines that run ``infeed feed``, for ``Pipeline.open(workers=...)``.

    Who makes a batch is not seen in it: order and bits, states, digests and bad records
    are those of a run without feeders. A feeder that is lost or late costs no batch,
    and one that comes back is asked again.

    Functions of ``.python`` run there too: a feeder imports them by module and name,
    and is refused if its modules are others. Those of ``.python_batch`` are called
    here.

    On a Ray cluster, `infeed.ray.Feeders` places and starts them.

    Example:
        On other machines ``infeed feed pipeline.toml --listen 10.0.0.7:7077
        --token-file token``, with the pipeline file of this run; here::

            feeders = infeed.Feeders(["10.0.0.7:7077"], token=token)
            loader = pipeline.open(workers=feeders)

    Args:
        hosts: Where they listen: ``"host:port"``.
        token: What they and this trainer know; None for feeders without one, on this
            machine.
        local: What the cores of this machine do: ``"help"`` makes batches too, whoever
            is free takes the next; ``"fallback"`` makes what feeders cannot make or
            have not made in time, and everything while there is none.
        workers: Threads of this machine. None: the cores that this process may use.
        deadline: After so many seconds a batch is asked for elsewhere, or after five
            times what the feeder usually takes, if that is more.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        token: str | None = None,
        local: Literal["help", "fallback"] = "help",
        workers: int | None = None,
        deadline: float = 1.0,
    ) -> None:
        if isinstance(hosts, str) or not all(isinstance(h, str) for h in hosts):
            raise _check.refusal(
                self, "hosts", 'a list such as ["10.0.0.7:7077"]', hosts
            )
        if not hosts:
            raise ConfigError("Feeders: hosts is empty; give at least one host:port")
        for host in hosts:
            name, _, port = host.rpartition(":")
            if not name or not port.isdecimal():
                expected = 'all "host:port", such as "10.0.0.7:7077"'
                raise _check.refusal(self, "hosts", expected, host)
        if token is not None and not isinstance(token, str):
            raise ConfigError("Feeders: token must be a text of 16 characters or more")
        super().__init__(local, workers, deadline)
        self.hosts = tuple(hosts)
        self.token = token

    def _hosts(self) -> _core.Hosts:
        hosts = _core.Hosts(len(self.hosts))
        for number, host in enumerate(self.hosts):
            hosts.set(number, host, self.token)
        return hosts

    def __repr__(self) -> str:
        # A token belongs in no log.
        return f"Feeders({list(self.hosts)}, local={self.local!r})"
