"""Other machines that make batches beside a trainer's own cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infeed import _check
from infeed.errors import ConfigError

__all__ = ["Feeders"]

_LOCAL = ("help", "fallback")


@dataclass(frozen=True, init=False, repr=False)
class Feeders:
    """Machines that run ``infeed feed``, for ``Pipeline.open(workers=...)``.

    Who makes a batch is not seen in it: order and bits, states, digests and bad records
    are those of a run without feeders. A feeder that is lost or late costs no batch,
    and one that comes back is asked again.

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

    hosts: tuple[str, ...]
    token: str | None
    local: Literal["help", "fallback"]
    workers: int | None
    deadline: float

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
        if token is not None and not isinstance(token, str):
            raise ConfigError("Feeders: token must be a text of 16 characters or more")
        if workers is not None:
            workers = _check.integer(self, "workers", workers, low=1)
        # What is frozen is set once.
        setting = object.__setattr__
        setting(self, "hosts", tuple(hosts))
        setting(self, "token", token)
        setting(self, "local", _check.choice(self, "local", local, _LOCAL))
        setting(self, "workers", workers)
        setting(
            self, "deadline", float(_check.number(self, "deadline", deadline, 0.01))
        )

    def __repr__(self) -> str:
        # A token belongs in no log.
        return f"Feeders({list(self.hosts)}, local={self.local!r})"
