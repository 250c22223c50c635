"""Selection of records in a description, and groups of records for batches."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from infeed import _check, _code
from infeed._columns import MemoryColumn, column
from infeed.errors import ConfigError

# Name or number of a class.
Class = str | int

# Argument of `Pipeline.weights`.
WeightsLike = Literal["balanced"] | Mapping[Class, float] | Sequence[float] | np.ndarray

_CLASS = "the name or number of a class, or a list of them"
_PATTERN = 'a pattern such as "*.jpg", or a list of them'


@dataclass(frozen=True)
class Filter:
    """Conditions on records. A record must meet all that are set."""

    label: tuple[Class, ...] = ()
    not_label: tuple[Class, ...] = ()
    name: tuple[str, ...] = ()
    not_name: tuple[str, ...] = ()
    shard: tuple[str, ...] = ()
    not_shard: tuple[str, ...] = ()

    @classmethod
    def of(cls, **given: Any) -> "Filter":
        """Returns the filter for checked arguments; None sets no condition."""
        conditions: dict[str, tuple[Any, ...]] = {}
        for name, value in given.items():
            if value is None:
                continue
            is_class = name.endswith("label")
            several = isinstance(value, list | tuple | set | frozenset | np.ndarray)
            # Sets have no order, so the description sorts them.
            items = sorted(value, key=str) if isinstance(value, set) else value
            one = _class if is_class else _pattern
            checked = tuple(one(name, item) for item in (items if several else [value]))
            if not checked:
                expected = _CLASS if is_class else _PATTERN
                raise _check.error("filter", name, expected, value)
            conditions[name] = checked
        if not conditions:
            expected = "set, or name, shard, not_label, not_name or not_shard"
            raise _check.error("filter", "label", expected, None)
        return cls(**conditions)

    def to_dict(self) -> dict[str, Any]:
        """Returns the table of the description."""
        given = {f.name: list(getattr(self, f.name)) for f in fields(self)}
        return {name: items for name, items in given.items() if items}

    def code(self) -> str:
        """Formats the method call that makes it."""
        given = [
            f"{name}={_code.value(items[0] if len(items) == 1 else tuple(items))}"
            for name, items in self.to_dict().items()
        ]
        return _code.method("filter", given)


@dataclass(frozen=True)
class Split:
    """One part of a split."""

    shares: tuple[float, ...]
    part: int
    seed: int = 0

    def __post_init__(self) -> None:
        shares = _check.numbers("split", "shares", self.shares, low=0)
        total = sum(shares)
        if not all(shares) or not math.isclose(total, 1.0, rel_tol=0, abs_tol=1e-6):
            expected = "positive numbers with the sum 1; add the share of the rest"
            raise _check.error("split", "shares", expected, self.shares)
        object.__setattr__(self, "shares", tuple(map(float, shares)))
        object.__setattr__(self, "seed", seed("split", self.seed))
        if _check.integer("split", "part", self.part) >= len(shares):
            raise _check.error("split", "part", f"below {len(shares)}", self.part)

    def to_dict(self) -> dict[str, Any]:
        """Returns the table of the description."""
        return {"shares": list(self.shares), "part": self.part, "seed": self.seed}

    def code(self) -> str:
        """Formats the method call and the index of this part."""
        shares = _code.value(self.shares)
        return f"{_code.method('split', [shares, f'seed={self.seed}'])}[{self.part}]"


@dataclass(frozen=True)
class Weights:
    """Weights of records: balanced, by class, or by record."""

    balanced: bool = False
    classes: tuple[tuple[Class, float], ...] = ()
    records: MemoryColumn | None = None
    epoch: int | None = None

    @classmethod
    def of(cls, weights: Any, epoch: int | None) -> "Weights":
        """Returns the weights for checked arguments."""
        if epoch is not None:
            epoch = _check.integer("weights", "epoch", epoch, low=1)
        if isinstance(weights, str) and weights == "balanced":
            return cls(balanced=True, epoch=epoch)
        if isinstance(weights, Mapping) and weights:
            classes = tuple(
                (_class("weights", label, owner="weights"), _weight(label, weight))
                for label, weight in weights.items()
            )
            return cls(classes=classes, epoch=epoch)
        return cls(records=_by_record(weights), epoch=epoch)

    def buffers(self) -> list[np.ndarray]:
        """Returns the arrays in memory that the description refers to."""
        return [] if self.records is None else self.records.buffers()

    def to_dict(self, first: int) -> dict[str, Any]:
        """Returns the table of the description; `first` numbers its array."""
        table: dict[str, Any] = {}
        if self.epoch is not None:
            table["epoch"] = self.epoch
        if self.balanced:
            table["balanced"] = True
        if self.classes:
            table["classes"] = [
                {"label": label, "weight": weight} for label, weight in self.classes
            ]
        if self.records is not None:
            table["records"] = self.records.to_dict(iter([first]))
        return table

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "Weights":
        """Returns the weights that a saved description has."""
        records = table.get("records")
        return cls(
            balanced=table.get("balanced", False),
            classes=tuple(
                (entry["label"], entry["weight"]) for entry in table.get("classes", ())
            ),
            records=None if records is None else MemoryColumn.from_dict(records),
            epoch=table.get("epoch"),
        )

    def code(self) -> str:
        """Formats the method call that makes it."""
        shown = '"balanced"'
        if self.classes:
            pairs = (f"{_code.value(label)}: {w!r}" for label, w in self.classes)
            shown = f"{{{', '.join(pairs)}}}"
        elif self.records is not None:
            shown = f"<{self.records.summary()}>"
        epoch = [] if self.epoch is None else [f"epoch={self.epoch}"]
        return _code.method("weights", [shown, *epoch])


@dataclass(frozen=True, repr=False, init=False, kw_only=True)
class RecordSelection:
    """The methods of a pipeline that select records and set when each comes.

    Records are filtered first, then split, then taken. The rest is weighted, repeated,
    shuffled and sorted into batches of one group.
    """

    _filters: tuple[Filter, ...] = ()
    _split: Split | None = None
    _take: int | None = None
    _weights: Weights | None = None
    _repeat: int | None = None
    _batch_groups: MemoryColumn | None = None
    _batch_lengths: MemoryColumn | None = None

    def filter(
        self,
        *,
        label: Class | Sequence[Class] | None = None,
        name: str | Sequence[str] | None = None,
        shard: str | Sequence[str] | None = None,
        not_label: Class | Sequence[Class] | None = None,
        not_name: str | Sequence[str] | None = None,
        not_shard: str | Sequence[str] | None = None,
    ) -> Self:
        """Keeps the records that meet all conditions.

        Conditions use only facts that the source knows without reading a record. A
        condition with several classes or patterns needs one that matches. A second
        filter applies to the result of the first. Records keep their numbers and names.

        Patterns consist of ``*``, ``?`` and ``[...]``. A pattern without a slash
        applies to the last part of a name, such as ``"*.jpg"``. A pattern with a slash
        applies to the whole name below the root of the dataset, such as ``"cat/*.jpg"``
        or ``"**/left/*"``.

        Args:
            label: Classes to keep, by name or number.
            name: Patterns of record names to keep.
            shard: Patterns of names to keep: of the shard, or of the file of a table.
            not_label: Classes to leave out.
            not_name: Patterns of record names to leave out.
            not_shard: Patterns of shard names to leave out.

        Raises:
            ConfigError: There is no condition, or the records are split or taken
                already. Raised when the pipeline is opened: the source does not know
                what a condition needs, or no record is left.
        """
        if self._split is not None or self._take is not None:
            # Parts of all records, each filtered, could share records.
            raise ConfigError(
                "filter: records are filtered before split and take; call .filter "
                "before .split and .take"
            )
        conditions = Filter.of(
            label=label,
            not_label=not_label,
            name=name,
            not_name=not_name,
            shard=shard,
            not_shard=not_shard,
        )
        return self._with(_filters=(*self._filters, conditions))

    def split(self, shares: Sequence[float], *, seed: int = 0) -> tuple[Self, ...]:
        """Splits the records into disjoint parts, one pipeline per part.

            train, val = pipeline.split((0.9, 0.1))

        The part of a record is a function of its number, the number of records and
        ``seed``. Order, epoch and ranks do not change it. Each part has its share of
        the records, rounded down or up, and the parts together have all records.

        Args:
            shares: Share of each part, with the sum 1.
            seed: Seed of the split.

        Raises:
            ConfigError: The sum of the shares is not 1, or the records are split or
                taken already. Raised when the pipeline is opened: a part has no record.
        """
        if self._split is not None:
            raise ConfigError(
                "split: the records are split already; pass all shares at once, such "
                "as (0.8, 0.1, 0.1)"
            )
        if self._take is not None:
            raise ConfigError(
                "split: records are split before take; call .split before .take"
            )
        if isinstance(shares, str) or not isinstance(shares, Iterable):
            expected = "shares of the parts, such as (0.9, 0.1)"
            raise _check.error("split", "shares", expected, shares)
        given = tuple(shares)
        parts = [Split(given, part, seed) for part in range(max(len(given), 1))]
        return tuple(self._with(_split=part) for part in parts)

    def take(self, records: int) -> Self:
        """Keeps the first records, in the order of the source.

        For a random choice use ``.split((0.01, 0.99))[0]``.

        Args:
            records: Highest number of records.
        """
        records = _check.integer("take", "records", records, low=1)
        known = self._take if self._take is not None else records
        return self._with(_take=min(known, records))

    def weights(self, weights: WeightsLike, *, epoch: int | None = None) -> Self:
        """Samples records by weight, with exact counts.

        The counts are not random: in an epoch of N samples a record comes as often as
        its share of N, rounded down or up. Over 2, 4, 8, ... epochs it comes as often
        as its share of all their samples. Weight 0 leaves a record out.

        Args:
            weights: Weight of the records of each class, ``{"cat": 2.0}``, with 1 for
                other classes; ``"balanced"``, which samples all classes equally often;
                or an array with one number per record of the source, selected or not.
                A pipeline file can only name an array that is mapped from a file
                (``np.load(path, mmap_mode="r")``).
            epoch: Samples per epoch. None: the number of records with a weight above 0.

        Raises:
            ConfigError: ``weights`` has another type. Raised when the pipeline is
                opened: a weight is negative or not finite, all weights are 0, or the
                source knows no labels.
        """
        return self._with(_weights=Weights.of(weights, epoch))

    def repeat(self, passes: int) -> Self:
        """Makes one epoch of several passes, each with its own order.

        Args:
            passes: Passes per epoch. Pass ``k`` of epoch ``e`` has the order of epoch
                ``e * passes + k`` without `repeat`.
        """
        return self._with(_repeat=_check.integer("repeat", "passes", passes, low=1))

    def batch_groups(self, groups: Sequence[int] | np.ndarray) -> Self:
        """Makes batches of records of one group, such as a shape or a range of lengths.

            ratios = np.array([width / height for width, height in sizes])
            pipeline = pipeline.batch_groups(np.digitize(ratios, [0.75, 1.0, 1.33]))

        The records of each group keep their shuffled order. A group's next batch comes
        when its records fill one. The records that fill no batch come last in the
        epoch, group after group, in batches that may have several groups: no record is
        lost or repeated. The order is a function of the seed, the groups and the batch
        size, and all ranks have the same group in a step.

        Each epoch begins with a pass over the numbers of the groups: about 0.1 s for a
        million records, and 4 bytes of memory for each.

        Args:
            groups: One number per record of the source, selected or not. A pipeline
                file can only name an int64 array that is mapped from a file
                (``np.load(path, mmap_mode="r")``).

        Raises:
            ConfigError: ``groups`` are no integers. Raised when the pipeline is opened:
                their number differs from that of the records, the batch has no size
                over all ranks, or records are shuffled in windows.
        """
        return self._with(_batch_groups=_integers("batch_groups", "groups", groups))

    def _with(self, **changes: Any) -> Self:
        """Returns a copy with other settings."""
        raise NotImplementedError

    def _memory_arrays(self) -> list[np.ndarray]:
        """Returns the arrays in memory that the selection refers to."""
        held = [self._weights, self._batch_groups, self._batch_lengths]
        return [buffer for of in held if of is not None for buffer in of.buffers()]

    def _selection_code(self) -> list[str]:
        """Formats the method calls that make the selection."""
        steps = [conditions.code() for conditions in self._filters]
        if self._split is not None:
            steps.append(self._split.code())
        if self._take is not None:
            steps.append(f".take({self._take})")
        if self._weights is not None:
            steps.append(self._weights.code())
        if self._repeat is not None:
            steps.append(f".repeat({self._repeat})")
        if self._batch_groups is not None:
            steps.append(f".batch_groups(<{self._batch_groups.summary()}>)")
        return steps

    def _selection_to_dict(self, first: int) -> dict[str, Any]:
        """Returns the tables of the selection; `first` numbers its arrays."""
        tables: dict[str, Any] = {}
        if self._filters:
            tables["filter"] = [conditions.to_dict() for conditions in self._filters]
        if self._split is not None:
            tables["split"] = self._split.to_dict()
        if self._take is not None:
            tables["take"] = self._take
        if self._weights is not None:
            tables["weights"] = self._weights.to_dict(first)
            first += len(self._weights.buffers())
        if self._repeat is not None:
            tables["repeat"] = self._repeat
        if self._batch_groups is not None:
            tables["batch_groups"] = self._batch_groups.to_dict(iter([first]))
            first += len(self._batch_groups.buffers())
        if self._batch_lengths is not None:
            tables["batch_lengths"] = self._batch_lengths.to_dict(iter([first]))
        return tables

    def _selected_by(self, description: dict[str, Any]) -> Self:
        """Returns a copy with the selection of a description."""
        new = self
        for conditions in description.get("filter", []):
            new = new.filter(**conditions)
        if (split := description.get("split")) is not None:
            new = new._with(_split=Split(**split))
        if (records := description.get("take")) is not None:
            new = new.take(records)
        if (weights := description.get("weights")) is not None:
            new = new._with(_weights=Weights.from_dict(weights))
        if (passes := description.get("repeat")) is not None:
            new = new.repeat(passes)
        if (groups := description.get("batch_groups")) is not None:
            new = new._with(_batch_groups=MemoryColumn.from_dict(groups))
        if (lengths := description.get("batch_lengths")) is not None:
            new = new._with(_batch_lengths=MemoryColumn.from_dict(lengths))
        return new


def seed(owner: str, value: Any) -> int:
    """Returns `value` if it is an integer below 2**64."""
    if _check.integer(owner, "seed", value) >= 2**64:
        raise _check.error(owner, "seed", "below 2**64", value)
    return int(value)


def _class(name: str, value: Any, owner: str = "filter") -> Class:
    if isinstance(value, str):
        return value
    # Some datasets use negative labels.
    return _check.integer(owner, name, value, low=-(2**63))


def _pattern(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _check.error("filter", name, _PATTERN, value)
    return value


def _weight(label: Class, value: Any) -> float:
    return float(_check.number("weights", f"weight of {label!r}", value, low=0))


def _by_record(weights: Any) -> MemoryColumn:
    expected = '"balanced", a mapping by class, or one number per record'
    if isinstance(weights, str | bytes | Mapping):
        raise _check.error("weights", "weights", expected, weights)
    try:
        # A mapped array must stay one, so that a file can describe it.
        array = weights if isinstance(weights, np.ndarray) else np.asarray(weights)
        if array.dtype.name not in ("float32", "float64"):
            array = np.asarray(array, np.float64)
    except (TypeError, ValueError):
        raise _check.error("weights", "weights", expected, weights) from None
    if array.ndim != 1 or array.size == 0:
        found = f"an array of shape {array.shape}"
        raise _check.error("weights", "weights", expected, found)
    return column("weights", array, "tensor")


def lengths_of_records(lengths: Any) -> MemoryColumn:
    """Returns the lengths of records for batches with `max_tokens`."""
    return _integers("batch", "lengths", lengths)


def _integers(owner: str, name: str, numbers: Any) -> MemoryColumn:
    expected = "one integer per record"
    try:
        # A mapped array must stay one, so that a file can describe it.
        array = numbers if isinstance(numbers, np.ndarray) else np.asarray(numbers)
    except (TypeError, ValueError):
        raise _check.error(owner, name, expected, numbers) from None
    if array.dtype.kind not in "iub" or array.ndim != 1 or array.size == 0:
        found = f"an array of {array.dtype} and shape {array.shape}"
        raise _check.error(owner, name, expected, found)
    if array.dtype != np.int64:
        array = array.astype(np.int64)
    return column(f"batch_{name}", array, "tensor")
