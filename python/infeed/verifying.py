"""Whether a pipeline gives again what it gave: replays, compared step by step."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from infeed import _check, _core
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["Difference", "Verified", "verify"]

_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Difference:
    """The first step that is not the same.

    Attributes:
        epoch: Its epoch, from 0.
        step: Its place in the epoch, from 0.
        positions: First position of the epoch that its rows fill, and one past the
            last.
        other_records: Whether other records came; if not, their bytes differ.
        expected: The digest that was recorded, or that of the second replay.
        found: The digest that came.
        position: Where two replays ran beside each other, the first position that
            differs.
        field: The field whose bytes differ there.
        records: Number and name of the record there in each replay; None for padding.
        text: All of this in one sentence.
    """

    epoch: int
    step: int
    positions: tuple[int, int]
    other_records: bool
    expected: str
    found: str
    text: str
    position: int | None = None
    field: str | None = None
    records: tuple[tuple[int, str] | None, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Verified:
    """What a replay came to.

    Attributes:
        epoch: Epoch of its first step.
        step: Place of that step in the epoch.
        steps: Steps that were the same, or were made where there was nothing to compare
            with.
        wanted: Steps that were asked for: more where one differs, or ``progress`` said
            stop.
        digest: Digest of those steps.
        difference: The first step that was not the same.
    """

    epoch: int
    step: int
    steps: int
    wanted: int
    digest: str
    difference: Difference | None

    @property
    def same(self) -> bool:
        """Whether all steps that were asked for were the same."""
        return self.difference is None and self.steps == self.wanted


def verify(
    pipeline: Pipeline,
    state: Mapping[str, Any] | None = None,
    *,
    against: _Path | Sequence[_Path] = (),
    steps: int | None = None,
    write: _Path | None = None,
    digest: Literal["ids", "pixels"] = "ids",
    on_error: Literal["stop", "substitute", "skip"] = "stop",
    workers: int | Literal["auto"] = "auto",
    progress: bool | Callable[[int, int], bool | None] = False,
) -> Verified:
    """Replays steps and names the first one that differs from what it is held against.

    That is what ``open(digest_file=...)`` wrote in a run, here or on another machine;
    or, without ``against`` and ``write``, a second replay with one worker, which shows
    whether the pipeline is a function of its seed.

    Args:
        pipeline: What to replay.
        state: Where to begin. None: at the first step recorded, or at the very first.
        against: The file of one rank, whose rows are replayed, or those of all ranks,
            which are replayed in one process.
        steps: Steps at most. None: all that are recorded, or the rest of the epoch.
        write: File to which the digests of the replay are written.
        digest: What is written covers; see `Pipeline.open`. A replay held against files
            covers what they do, and one against a second replay the bytes.
        on_error: What becomes of bad records, where no file says it.
        workers: Of the replay.
        progress: Called a few times a second with the steps that are done and wanted;
            False stops. True: a line on the standard error.

    Raises:
        ConfigError: State or files are of another run; the message names what differs.
        OpenError: A file cannot be read.
        InfeedError: What stopped the replay.
    """
    if not isinstance(pipeline, Pipeline):
        raise _check.refusal("verify", "pipeline", "an infeed.Pipeline", pipeline)
    if state is not None and not isinstance(state, Mapping):
        raise ConfigError("verify: give the state that state_dict() returned")
    if steps is not None:
        steps = _check.integer("verify", "steps", steps, low=1)
    if workers != "auto":
        workers = _check.integer("verify", "workers", workers, low=1)
    files = [against] if isinstance(against, str | os.PathLike) else list(against)
    report = _line if progress is True else progress or None
    epoch, step, same, wanted, found, different = _core.verify(
        pipeline._json(),
        pipeline._handles(),
        None if state is None else json.dumps(dict(state)),
        [os.fspath(path) for path in files],
        steps,
        None if write is None else os.fspath(write),
        twice=write is None,
        digest=_check.choice("verify", "digest", digest, ("ids", "pixels")),
        on_error=_check.choice(
            "verify", "on_error", on_error, ("stop", "substitute", "skip")
        ),
        workers=None if workers == "auto" else workers,
        progress=report,
    )
    if progress is True:
        print(file=sys.stderr)
    difference = None if different is None else _difference(*different)
    return Verified(epoch, step, same, wanted, found, difference)


def _difference(*parts: Any) -> Difference:
    *known, row = parts
    difference = Difference(*known)
    if row is None:
        return difference
    position, field, records = row
    return replace(difference, position=position, field=field, records=tuple(records))


def _line(done: int, wanted: int) -> None:
    """Writes how far it is over the line that said so before."""
    print(f"\r{done}/{wanted} steps", end="\x1b[K", file=sys.stderr, flush=True)
