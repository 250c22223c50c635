"""Feeders: processes on other machines that make batches for a training loop."""

from collections.abc import Callable, Sequence
from typing import Literal

from infeed import _check, _core
from infeed.errors import ConfigError

__all__ = ["FeederGroup", "Feeders"]

_LOCAL = ("help", "fallback")


class FeederGroup:
    """Base class of the feeders that `Pipeline.open` accepts.

    `Feeders` and `infeed.ray.Feeders` extend it.
    """

    local: Literal["help", "fallback"]
    workers: int | None
    deadline: float
    encrypt: bool | None

    def __init__(
        self,
        local: Literal["help", "fallback"],
        workers: int | None,
        deadline: float,
        encrypt: bool | None = None,
    ):
        if workers is not None:
            workers = _check.integer(self, "workers", workers, low=1)
        self.workers = workers
        _check.choice(self, "local", local, _LOCAL)
        self.local = local
        self.deadline = float(_check.number(self, "deadline", deadline, 0.01))
        if encrypt is not None:
            encrypt = _check.flag(self, "encrypt", encrypt)
        self.encrypt = encrypt

    def _check_data(self, in_memory: bool) -> None:
        """Checks that feeders can read the pipeline's data, as far as this is known.

        Raises:
            ConfigError: The data is in the memory of this process.
        """

    def _hosts(self) -> _core.Hosts:
        """Returns the feeders' addresses for one loader."""
        raise NotImplementedError

    def _begin(self, description: str, hosts: _core.Hosts) -> Callable[[], None] | None:
        """Starts to update the addresses; returns the function that ends this."""
        return None


class Feeders(FeederGroup):
    """Machines that run ``infeed feed``, for ``Pipeline.open(workers=...)``.

    Feeders do not change batches: order, bits, states, digests and bad records are
    those of a run without feeders. If a feeder is lost or late, the loader makes its
    batches elsewhere, and asks the feeder again when it is back.

    Feeders also run functions of ``.python``. They import them by module and name, and
    the loader rejects a feeder whose modules differ. Functions of ``.python_batch`` run
    in this process.

    A feeder that knows the token and has other data, another description or another
    version makes ``open`` raise `ConfigError`. A wrong token does not: any process
    could send that answer. It is a warning in the ``infeed`` logger, and the cores of
    this machine make the batches.

    On a Ray cluster, `infeed.ray.Feeders` places and starts the feeders.

    Example:
        On the other machines, with the pipeline file of this run, start ``infeed feed
        pipeline.toml --listen 10.0.0.7:7077 --token-file token``; here:

            feeders = infeed.feeders.Feeders(["10.0.0.7:7077"], token=token)
            loader = pipeline.open(workers=feeders)

    Args:
        hosts: Addresses of the feeders, ``"host:port"``.
        token: Secret that the feeders and this process share. None: feeders on this
            machine that were started without a token.
        local: Work of this machine's cores. ``"help"``: they make batches too, and each
            free worker takes the next one. ``"fallback"``: they make only batches that
            feeders cannot make or did not make in time.
        workers: Threads on this machine. None: the cores that this process may use.
        deadline: Seconds after which the loader asks for a batch elsewhere. If five
            times the feeder's usual time is longer, that time counts.
        encrypt: Whether connections are encrypted (TLS 1.3). None: all except those
            over a loopback address. Feeders accept unencrypted connections from other
            machines with ``infeed feed --encrypt never`` only.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        token: str | None = None,
        local: Literal["help", "fallback"] = "help",
        workers: int | None = None,
        deadline: float = 1.0,
        encrypt: bool | None = None,
    ) -> None:
        if isinstance(hosts, str) or not all(isinstance(h, str) for h in hosts):
            raise _check.error(self, "hosts", 'a list such as ["10.0.0.7:7077"]', hosts)
        if not hosts:
            raise ConfigError("Feeders: hosts is empty; give at least one host:port")
        for host in hosts:
            name, _, port = host.rpartition(":")
            if not name or not port.isdecimal():
                expected = 'all "host:port", such as "10.0.0.7:7077"'
                raise _check.error(self, "hosts", expected, host)
        if token is not None and not isinstance(token, str):
            raise ConfigError("Feeders: token must be a text of at least 16 characters")
        super().__init__(local, workers, deadline, encrypt)
        self.hosts = tuple(hosts)
        self.token = token

    def _hosts(self) -> _core.Hosts:
        hosts = _core.Hosts(len(self.hosts))
        for number, host in enumerate(self.hosts):
            hosts.set(number, host, self.token)
        return hosts

    def __repr__(self) -> str:
        # The token is a secret, and a repr may end up in a log.
        return f"Feeders({list(self.hosts)}, local={self.local!r})"
