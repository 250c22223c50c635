"""Which records come how often, as described: filter, split, weights."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from infeed import _check, _code
from infeed._columns import Column, column
from infeed.errors import ConfigError

# A class by name or number.
Class = str | int

# What `Pipeline.weights` takes.
WeightsLike = Literal["balanced"] | Mapping[Class, float] | Sequence[float] | np.ndarray

_CLASS = "the name or number of a class, or a list of them"
_PATTERN = 'a pattern such as "*.jpg", or a list of them'


@dataclass(frozen=True)
class Filter:
    """Conditions that a record must meet, all that are set."""

    label: tuple[Class, ...] = ()
    not_label: tuple[Class, ...] = ()
    name: tuple[str, ...] = ()
    not_name: tuple[str, ...] = ()
    shard: tuple[str, ...] = ()
    not_shard: tuple[str, ...] = ()

    @classmethod
    def of(cls, **given: Any) -> "Filter":
        """Checks what was given; None is no condition."""
        conditions: dict[str, tuple[Any, ...]] = {}
        for name, value in given.items():
            if value is None:
                continue
            is_class = name.endswith("label")
            several = isinstance(value, list | tuple | set | frozenset | np.ndarray)
            # The order of a set is no setting.
            items = sorted(value, key=str) if isinstance(value, set) else value
            one = _class if is_class else _pattern
            checked = tuple(one(name, item) for item in (items if several else [value]))
            if not checked:
                expected = _CLASS if is_class else _PATTERN
                raise _check.refusal("filter", name, expected, value)
            conditions[name] = checked
        if not conditions:
            expected = "given, or name, shard or one of their negations"
            raise _check.refusal("filter", "label", expected, None)
        return cls(**conditions)

    def to_dict(self) -> dict[str, Any]:
        """The table of a description."""
        given = {f.name: list(getattr(self, f.name)) for f in fields(self)}
        return {name: items for name, items in given.items() if items}

    def code(self) -> str:
        """The call that makes it."""
        given = [
            f"{name}={_code.value(items[0] if len(items) == 1 else tuple(items))}"
            for name, items in self.to_dict().items()
        ]
        return _code.method("filter", given)


@dataclass(frozen=True)
class Split:
    """One part of several."""

    shares: tuple[float, ...]
    part: int
    seed: int = 0

    def __post_init__(self) -> None:
        shares = _check.numbers("split", "shares", self.shares, low=0)
        total = sum(shares)
        if not all(shares) or not math.isclose(total, 1.0, rel_tol=0, abs_tol=1e-6):
            expected = "over zero and 1 together, what is left over being a part, too"
            raise _check.refusal("split", "shares", expected, self.shares)
        object.__setattr__(self, "shares", tuple(map(float, shares)))
        object.__setattr__(self, "seed", seed("split", self.seed))
        if _check.integer("split", "part", self.part) >= len(shares):
            raise _check.refusal("split", "part", f"below {len(shares)}", self.part)

    def to_dict(self) -> dict[str, Any]:
        """The table of a description."""
        return {"shares": list(self.shares), "part": self.part, "seed": self.seed}

    def code(self) -> str:
        """The call that makes it, and which of its results it is."""
        shares = _code.value(self.shares)
        return f"{_code.method('split', [shares, f'seed={self.seed}'])}[{self.part}]"


@dataclass(frozen=True)
class Weights:
    """How often records come: one of balanced, by class, by record."""

    balanced: bool = False
    classes: tuple[tuple[Class, float], ...] = ()
    records: Column | None = None
    epoch: int | None = None

    @classmethod
    def of(cls, weights: Any, epoch: int | None) -> "Weights":
        """Checks what was given."""
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
        """What the description refers to in memory."""
        return [] if self.records is None else self.records.buffers()

    def to_dict(self, first: int) -> dict[str, Any]:
        """The table of a description; its array in memory has the number `first`."""
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
        """What a saved description says."""
        records = table.get("records")
        return cls(
            balanced=table.get("balanced", False),
            classes=tuple(
                (entry["label"], entry["weight"]) for entry in table.get("classes", ())
            ),
            records=None if records is None else Column.from_dict(records),
            epoch=table.get("epoch"),
        )

    def code(self) -> str:
        """The call that makes it."""
        shown = '"balanced"'
        if self.classes:
            pairs = (f"{_code.value(label)}: {w!r}" for label, w in self.classes)
            shown = f"{{{', '.join(pairs)}}}"
        elif self.records is not None:
            shown = f"<{self.records.summary()}>"
        epoch = [] if self.epoch is None else [f"epoch={self.epoch}"]
        return _code.method("weights", [shown, *epoch])


class Selecting:
    """The part of a pipeline that says which records come how often.

    Records are filtered, then split, then taken; what is left comes by weights, in so
    many passes, shuffled.
    """

    _filters: tuple[Filter, ...]
    _split: Split | None
    _take: int | None
    _weights: Weights | None
    _repeat: int | None

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
        """Keeps the records for which every condition given holds.

        Conditions are on what the source knows without reading a record. Of several
        classes or patterns one is enough. Another filter keeps some of what this one
        keeps. What numbers and names records have, stays.

        Patterns are of ``*``, ``?`` and ``[...]``. One without a slash is for the last
        part of a name, ``"*.jpg"``; one with a slash for the whole, below the root of
        the dataset, ``"cat/*.jpg"`` or ``"**/left/*"``.

        Args:
            label: Classes by name or number.
            name: Patterns of which one fits the record's name.
            shard: Patterns of which one fits the name of the shard, or file of a table,
                that the record is in.
            not_label: Classes that are left out.
            not_name: Patterns of names that are left out.
            not_shard: Patterns of shards that are left out.

        Raises:
            ConfigError: No condition; or the records are split or taken already. When
                opened: the source does not know what is asked for, or no record is
                left.
        """
        if self._split is not None or self._take is not None:
            # Parts that were made of all records would have some in common.
            raise ConfigError(
                "filter: records are filtered before they are split and taken; call "
                ".filter before .split and .take"
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
        """Divides the records: one pipeline a share, without a record in common.

        ::

            train, val = pipeline.split((0.9, 0.1))

        Which part a record is in is a function of its number, of how many there are,
        and of ``seed``; order, epoch and ranks do not enter. Parts have their share of
        the records, rounded down or up, and together all.

        Args:
            shares: The share of each part, together 1.
            seed: Another integer divides otherwise.

        Raises:
            ConfigError: Shares are not 1 together; or the records are split or taken
                already. When opened: a part has no record.
        """
        if self._split is not None:
            raise ConfigError(
                "split: the records are split already; give all shares at once, such "
                "as (0.8, 0.1, 0.1)"
            )
        if self._take is not None:
            raise ConfigError(
                "split: records are split before they are taken; call .split before "
                ".take"
            )
        if isinstance(shares, str) or not isinstance(shares, Iterable):
            expected = "the shares of the parts, such as (0.9, 0.1)"
            raise _check.refusal("split", "shares", expected, shares)
        given = tuple(shares)
        parts = [Split(given, part, seed) for part in range(max(len(given), 1))]
        return tuple(self._with(_split=part) for part in parts)

    def take(self, records: int) -> Self:
        """Keeps the first records, in the source's own order, of what is left.

        For some at random use ``.split((0.01, 0.99))[0]``.

        Args:
            records: How many, at most.
        """
        records = _check.integer("take", "records", records, low=1)
        known = self._take if self._take is not None else records
        return self._with(_take=min(known, records))

    def weights(self, weights: WeightsLike, *, epoch: int | None = None) -> Self:
        """Lets records come by weight, in exact numbers.

        Nothing is left to chance: in an epoch of N samples each record comes as often
        as its share of N says, rounded down or up, and over 2, 4, 8, ... epochs as
        often as its share of all of those. Weight 0 leaves a record out.

        Args:
            weights: By class, the weight of each of its records, ``{"cat": 2.0}``, 1
                for those that are not named; ``"balanced"``, each class as often as
                another; or an array of one number for each record of the source,
                whether it is selected or not. An array is of this process, unless it is
                mapped from a file (``np.load(path, mmap_mode="r")``).
            epoch: Samples of an epoch. None: as many as there are records of a weight
                over 0.

        Raises:
            ConfigError: ``weights`` is none of these. When opened: a weight is negative
                or not finite, all are 0, or the source knows no labels.
        """
        return self._with(_weights=Weights.of(weights, epoch))

    def repeat(self, passes: int) -> Self:
        """Makes one epoch of several passes, each in an order of its own.

        Args:
            passes: How many; pass ``k`` of epoch ``e`` is epoch ``e * passes + k`` of
                the pipeline without it.
        """
        return self._with(_repeat=_check.integer("repeat", "passes", passes, low=1))

    def _with(self, **changes: Any) -> Self:
        """The same with other settings."""
        raise NotImplementedError

    def _held(self) -> list[np.ndarray]:
        """What the selection refers to in memory."""
        return [] if self._weights is None else self._weights.buffers()

    def _selection_code(self) -> list[str]:
        """The calls that make it."""
        steps = [conditions.code() for conditions in self._filters]
        if self._split is not None:
            steps.append(self._split.code())
        if self._take is not None:
            steps.append(f".take({self._take})")
        if self._weights is not None:
            steps.append(self._weights.code())
        if self._repeat is not None:
            steps.append(f".repeat({self._repeat})")
        return steps

    def _selection_to_dict(self, first: int) -> dict[str, Any]:
        """Its tables; an array in memory has the number `first`."""
        tables: dict[str, Any] = {}
        if self._filters:
            tables["filter"] = [conditions.to_dict() for conditions in self._filters]
        if self._split is not None:
            tables["split"] = self._split.to_dict()
        if self._take is not None:
            tables["take"] = self._take
        if self._weights is not None:
            tables["weights"] = self._weights.to_dict(first)
        if self._repeat is not None:
            tables["repeat"] = self._repeat
        return tables

    def _selected_by(self, description: dict[str, Any]) -> Self:
        """The same with the selection of a description."""
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
        return new


def seed(owner: str, value: Any) -> int:
    """Returns `value` if the engine can count so far."""
    if _check.integer(owner, "seed", value) >= 2**64:
        raise _check.refusal(owner, "seed", "below 2**64", value)
    return int(value)


def _class(name: str, value: Any, owner: str = "filter") -> Class:
    if isinstance(value, str):
        return value
    # Labels of others' data sets may be negative.
    return _check.integer(owner, name, value, low=-(2**63))


def _pattern(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _check.refusal("filter", name, _PATTERN, value)
    return value


def _weight(label: Class, value: Any) -> float:
    return float(_check.number("weights", f"weight of {label!r}", value, low=0))


def _by_record(weights: Any) -> Column:
    expected = '"balanced", a mapping by class, or one number a record'
    if isinstance(weights, str | bytes | Mapping):
        raise _check.refusal("weights", "weights", expected, weights)
    try:
        # A mapped array stays one.
        array = weights if isinstance(weights, np.ndarray) else np.asarray(weights)
        if array.dtype.name not in ("float32", "float64"):
            array = np.asarray(array, np.float64)
    except (TypeError, ValueError):
        raise _check.refusal("weights", "weights", expected, weights) from None
    if array.ndim != 1 or array.size == 0:
        found = f"an array of shape {array.shape}"
        raise _check.refusal("weights", "weights", expected, found)
    return column("weights", array, "tensor")
