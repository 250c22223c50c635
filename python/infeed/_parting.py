"""One dataset packed by many: who weighs which records, and who writes which shard.

Where shards end follows from what records weigh, in order. Runs of records are weighed
in any order; as soon as a run connects to what is known, shards are cut off and given
to whoever is free, before more is weighed. Knows no engine of clusters: a `Crew` does
the work somewhere.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infeed import _core
from infeed.errors import ConfigError

__all__ = ["Crew", "Sums", "distribute"]

# Records that are weighed as one task: enough to open a dataset for, and few enough
# that all of a crew have some.
_FEWEST, _MOST = 64, 4096


class Crew(Protocol):
    """Those who work. Tasks are told apart by what begins them gives."""

    def weigh(self, begin: int, end: int) -> Any:
        """Begins to weigh the records at some places."""

    def shard(self, number: int, begin: int, end: int) -> Any:
        """Begins to write a shard."""

    def ended(self, tasks: Sequence[Any]) -> list[Any]:
        """Those that have ended; waits a moment for one."""

    def result(self, task: Any) -> Any:
        """What a task that has ended gave.

        Raises:
            Exception: What it raised.
        """


@dataclass
class Sums:
    """What is done so far; `records` without those that are bad."""

    places: int
    records: int = 0
    bad: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    unmarked: int = 0
    # Records, bad ones too, of shards that were there before.
    reused: int = 0

    def add(self, shard: dict[str, int]) -> None:
        """Adds a shard."""
        for name in ("records", "bad", "bytes_in", "bytes_out"):
            setattr(self, name, getattr(self, name) + shard[name])
        self.unmarked += shard.get("unmarked", 0)


@dataclass
class _Gap:
    """Places of which no shard is there, from the beginning of one on."""

    begin: int
    end: int
    number: int
    # Number of the shard behind it. None: it is the end of the dataset.
    then: int | None
    # Next place that nobody weighs yet.
    next: int = field(init=False)
    # Of the places from `begin` on, and of runs that do not connect to them yet.
    weights: list[int | None] = field(default_factory=list)
    early: dict[int, list[int | None]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.next = self.begin

    def weighed(self, begin: int, weights: list[int | None]) -> None:
        """Takes the weights of a run."""
        self.early[begin] = weights
        while (run := self.early.pop(self.begin + len(self.weights), None)) is not None:
            self.weights += run
            self.bytes += sum(weight or 0 for weight in run)

    def cut(
        self, ends: Callable[[list[int | None]], list[int]]
    ) -> list[tuple[int, int, int]]:
        """Takes off the shards whose ends are known: number, begin and end.

        Raises:
            ConfigError: They do not lead to the shard behind.
        """
        is_whole = self.begin + len(self.weights) == self.end
        cuts = ends(self.weights)
        if is_whole and any(weight is not None for weight in self.weights):
            cuts.append(len(self.weights))
        shards, begin = [], 0
        for end in cuts:
            shards.append((self.number, self.begin + begin, self.begin + end))
            self.number, begin = self.number + 1, end
        self.begin += begin
        del self.weights[:begin]
        self.bytes = sum(weight or 0 for weight in self.weights)
        if is_whole and self.then is not None and self.number != self.then:
            raise ConfigError(
                f"pack: {self.number} shards come before place {self.end}, and there "
                f"are {self.then} in the folder; the source has changed since it was "
                "begun, so remove the folder and pack anew"
            )
        return shards


def distribute(
    parts: _core.PackParts,
    crew: Crew,
    jobs: int,
    shard_bytes: int,
    max_bad: int | None,
    told: Callable[[Sums], bool],
) -> Sums:
    """Has a crew write all shards that are not there yet.

    Ends early where more records are bad than may be: who finishes the dataset meets
    the one that is too many, and says so.

    Args:
        parts: What was begun.
        crew: Who works.
        jobs: Tasks at a time.
        shard_bytes: Weight before which no shard ends; 0 where it ends by its rows.
        max_bad: Bad records that may be left out.
        told: Called now and then with what is done; False stops.

    Raises:
        Exception: What a task raised.
    """
    begun = json.loads(parts.json())
    total: int = begun["places"]
    sums = Sums(total)
    gaps = _gaps(total, begun["shards"], sums)
    run = max(_FEWEST, min(_MOST, total // (8 * jobs)))
    shards: deque[tuple[int, int, int]] = deque()
    tasks: dict[Any, _Gap | None] = {}
    begins: dict[Any, int] = {}
    met = sums.bad
    while told(sums):
        while len(tasks) < jobs:
            if shards:
                tasks[crew.shard(*shards.popleft())] = None
                continue
            gap = next((gap for gap in gaps if gap.next < gap.end), None)
            if gap is None:
                break
            begin, gap.next = gap.next, min(gap.next + run, gap.end)
            task = crew.weigh(begin, gap.next)
            tasks[task], begins[task] = gap, begin
        if not tasks:
            break
        for task in crew.ended(list(tasks)):
            gap, result = tasks.pop(task), crew.result(task)
            if gap is None:
                sums.add(json.loads(result))
                continue
            met += sum(weight is None for weight in result)
            gap.weighed(begins.pop(task), result)
            is_whole = gap.begin + len(gap.weights) == gap.end
            # A look at all weights each time would be as many looks as there are runs.
            if is_whole or gap.bytes > shard_bytes:
                shards += gap.cut(parts.ends)
        if max_bad is not None and met > max_bad:
            break
    return sums


def _gaps(total: int, shards: list[dict[str, Any]], sums: Sums) -> list[_Gap]:
    """What is missing between the shards that are there, which are summed up."""
    gaps, place, number = [], 0, 0
    for shard in sorted(shards, key=lambda shard: int(shard["number"])):
        begin, end = shard["begin"], shard["end"]
        ahead = (begin - place, shard["number"] - number)
        # One that cannot be at its place is written anew.
        if end > total or (ahead != (0, 0) and min(ahead) <= 0):
            continue
        if begin > place:
            gaps.append(_Gap(place, begin, number, shard["number"]))
        place, number = end, shard["number"] + 1
        sums.add(shard)
        sums.reused += shard["records"] + shard["bad"]
    if place < total:
        gaps.append(_Gap(place, total, number, None))
    return gaps
