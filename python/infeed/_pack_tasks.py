"""Division of `pack` into tasks for several machines.

The sizes of records, in order, determine the ends of shards. Tasks measure the sizes of
ranges of records in any order. When a range connects to the sizes known so far, its
shards are cut off and given to free workers, before more ranges are measured. A
`PackWorkers` object runs the tasks on some cluster.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infeed import _core
from infeed.errors import ConfigError

__all__ = ["PackTotals", "PackWorkers", "distribute"]

# Records per measuring task: enough to be worth opening a dataset, and few enough to
# give each worker some.
_MIN_RECORDS, _MAX_RECORDS = 64, 4096


class PackWorkers(Protocol):
    """Workers of a cluster. The results of `weigh` and `shard` identify tasks."""

    def weigh(self, begin: int, end: int) -> Any:
        """Starts a task that measures the sizes of records."""

    def shard(self, number: int, begin: int, end: int) -> Any:
        """Starts a task that writes a shard."""

    def poll(self, tasks: Sequence[Any]) -> list[Any]:
        """Returns the tasks that have ended, after waiting a moment for one."""

    def result(self, task: Any) -> Any:
        """Returns the result of a task that has ended.

        Raises:
            Exception: The exception that the task raised.
        """


@dataclass
class PackTotals:
    """Sums over the complete shards; `records` does not include bad ones."""

    places: int
    records: int = 0
    bad: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    unchanged: int = 0
    # Records of shards that earlier calls wrote, including bad ones.
    reused: int = 0

    def add(self, shard: dict[str, int]) -> None:
        """Adds a shard."""
        for name in ("records", "bad", "bytes_in", "bytes_out"):
            setattr(self, name, getattr(self, name) + shard[name])
        self.unchanged += shard.get("unchanged", 0)


@dataclass
class _MissingShards:
    """A range of records without shards, from the beginning of a shard on."""

    begin: int
    end: int
    number: int
    # Number of the existing shard after the range; None at the end of the dataset.
    then: int | None
    # First record that no task measures yet.
    next: int = field(init=False)
    # Sizes from `begin` on, and sizes of ranges that do not connect to them yet.
    weights: list[int | None] = field(default_factory=list)
    early: dict[int, list[int | None]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.next = self.begin

    def add_weights(self, begin: int, weights: list[int | None]) -> None:
        """Adds the sizes of a range."""
        self.early[begin] = weights
        while (run := self.early.pop(self.begin + len(self.weights), None)) is not None:
            self.weights += run
            self.bytes += sum(weight or 0 for weight in run)

    def cut(
        self, ends: Callable[[list[int | None]], list[int]]
    ) -> list[tuple[int, int, int]]:
        """Removes the shards whose ends are known: number, begin and end.

        Raises:
            ConfigError: Their number does not lead to the existing shard after them.
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
                f"pack: {self.number} shards come before record {self.end}, and the "
                f"folder has {self.then}; the source has changed since packing began, "
                "so remove the folder and pack again"
            )
        return shards


def distribute(
    parts: _core.PackParts,
    workers: PackWorkers,
    jobs: int,
    max_bad: int | None,
    report: Callable[[PackTotals], bool],
) -> PackTotals:
    """Lets workers write all missing shards.

    It ends early if more than `max_bad` records are bad. The call that completes the
    dataset then finds the same records and raises the error.

    Args:
        parts: The dataset, begun.
        workers: Workers of the cluster.
        jobs: Number of tasks at a time.
        max_bad: Number of bad records that may be left out.
        report: Function that receives the sums now and then; it returns False to stop.

    Raises:
        Exception: The exception that a task raised.
    """
    begun = json.loads(parts.json())
    total: int = begun["places"]
    # Size below which no shard ends; 0 if the number of rows ends it.
    shard_bytes: int = begun["shard_bytes"]
    totals = PackTotals(total)
    gaps = _gaps(total, begun["shards"], totals)
    run = max(_MIN_RECORDS, min(_MAX_RECORDS, total // (8 * jobs)))
    shards: deque[tuple[int, int, int]] = deque()
    tasks: dict[Any, _MissingShards | None] = {}
    begins: dict[Any, int] = {}
    bad = totals.bad
    while report(totals):
        while len(tasks) < jobs:
            if shards:
                tasks[workers.shard(*shards.popleft())] = None
                continue
            gap = next((gap for gap in gaps if gap.next < gap.end), None)
            if gap is None:
                break
            begin, gap.next = gap.next, min(gap.next + run, gap.end)
            task = workers.weigh(begin, gap.next)
            tasks[task], begins[task] = gap, begin
        if not tasks:
            break
        for task in workers.poll(list(tasks)):
            gap, result = tasks.pop(task), workers.result(task)
            if gap is None:
                totals.add(json.loads(result))
                continue
            bad += sum(weight is None for weight in result)
            gap.add_weights(begins.pop(task), result)
            is_whole = gap.begin + len(gap.weights) == gap.end
            # Cutting after every range would read all sizes once per range.
            if is_whole or gap.bytes > shard_bytes:
                shards += gap.cut(parts.ends)
        if max_bad is not None and bad > max_bad:
            break
    return totals


def _gaps(
    total: int, shards: list[dict[str, Any]], totals: PackTotals
) -> list[_MissingShards]:
    """Returns the missing ranges, and adds the existing shards to `totals`."""
    gaps, place, number = [], 0, 0
    for shard in sorted(shards, key=lambda shard: int(shard["number"])):
        begin, end = shard["begin"], shard["end"]
        ahead = (begin - place, shard["number"] - number)
        # A shard that does not fit in between is written again.
        if end > total or (ahead != (0, 0) and min(ahead) <= 0):
            continue
        if begin > place:
            gaps.append(_MissingShards(place, begin, number, shard["number"]))
        place, number = end, shard["number"] + 1
        totals.add(shard)
        totals.reused += shard["records"] + shard["bad"]
    if place < total:
        gaps.append(_MissingShards(place, total, number, None))
    return gaps
