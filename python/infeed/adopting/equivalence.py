"""Compares the samples of a dataset with those of a pipeline.

A field that two reads of the dataset give alike is compared value by value: images
within rounding, all others exactly. If reads differ, the field is random, and its
statistics are compared: the mean over samples, single samples, and the ranks of the
draws of each sample, for their centre and for their spread. Their p-values are
corrected for the number of tests.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from infeed import _check
from infeed.adopting.record_draws import ProgressLine, RecordDraws, count_records
from infeed.adopting.samples import (
    Array,
    Sample,
    has_object_masks,
    has_pixels,
    read_sample,
    same_samples,
)
from infeed.adopting.statistics import Comparison, FieldStatistics, level_of
from infeed.pipeline import Pipeline

# Reads of each sample if the chain is random: after the first few, only a chain without
# differences is read on, until the second number or one of these times is reached.
_DRAWS = 4
_MOST_DRAWS = 32
_LIMITS_S = (10.0, 30.0)
# Probability below which chance does not explain a difference: one of 100 000 pairs of
# equal loaders is reported.
_CHANCE = 1e-5
# The statistics are tested after the first draws, and at the end.
_TEST_ROUNDS = 2
# Samples that are read twice to find out whether the chain is random.
_REPEATED = 8
# Shares of a level of 8 bits: below the first, floats were rounded; above the second,
# values of 8 bits differ.
_ROUNDING = 1e-3
_HALF = 0.5
# Share of the pixels of masks that may have a value that no neighbour has.
_UNEXPLAINED = 1e-3


@dataclass(frozen=True)
class Equivalence:
    """Result of comparing samples.

    Attributes:
        samples: Number of compared samples.
        is_random: Whether the dataset's transforms are random.
        largest: Largest difference of two values of images, in units of the values. NaN
            if the chain is random.
        differing: Share of the values of images that differ by more than half a level
            of 8 bits; NaN if the chain is random.
        level: One level of 8 bits in the units of the values of images.
        comparisons: Statistics of the random fields on both sides, the p-values
            corrected for the number of all tests.
        problems: Differences, in words. Empty if the samples are equivalent.
        pictures: The samples with the largest differences: number, theirs, ours.
        fields: Names of the compared fields, as the pipeline has them.
        notes: Differences that libraries' rounding of positions explains, in words.
        draws: Reads of each sample; 1 if the chain is not random.
    """

    samples: int
    is_random: bool
    largest: float
    differing: float
    problems: tuple[str, ...]
    pictures: tuple[tuple[int, Array, Array], ...]
    fields: tuple[str, ...] = ("image", "label")
    notes: tuple[str, ...] = ()
    draws: int = 1
    level: float = 1.0
    comparisons: tuple[Comparison, ...] = ()

    @property
    def is_equivalent(self) -> bool:
        """Whether no difference was found."""
        return not self.problems

    def __str__(self) -> str:
        return "; ".join([self._summary(), *self.notes])

    def statistics(self) -> str:
        """Returns a table of the statistics of random fields, one line for each."""
        rows = [("statistic", "theirs", "infeed", "p")]
        rows += [
            (one.title, f"{one.theirs:.4g}", f"{one.ours:.4g}", f"{one.p_value:.2g}")
            for one in self.comparisons
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([title.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
            for title, *numbers in (rows if self.comparisons else [])
        )

    def _summary(self) -> str:
        if self.problems and not self.samples:
            return "samples were not compared: " + "; ".join(self.problems)
        if self.problems:
            return f"{self.samples} samples differ: " + "; ".join(self.problems)
        others = ", ".join(self._others())
        if self.is_random:
            return (
                f"{self.samples} samples: equal {others}shapes and types; random "
                f"transforms have equal means and spreads in {self.draws} draws"
                f"{self._chance()}"
            )
        if not self.largest and not self.notes:
            return f"{self.samples} samples: equal in every value"
        return (
            f"{self.samples} samples: equal {others}shapes and types; {self._values()}"
        )

    def _chance(self) -> str:
        """Describes how likely the differences of the statistics are."""
        if not self.comparisons:
            return ""
        least = min(one.p_value for one in self.comparisons)
        return f" (p = {least:.2g} over {len(self.comparisons)} statistics)"

    def _values(self) -> str:
        """Describes the differences of values in levels, whatever their units are."""
        if self.largest <= _ROUNDING * self.level:
            return "values differ by rounding of floats only"
        levels = self.largest / (self.level or 1.0)
        largest = f"{levels:.1f}".removesuffix(".0")
        unit = "level" if largest == "1" else "levels"
        text = f"values differ by at most {largest} {unit} of 255"
        if not self.differing:
            return text
        return f"{text}, {self.differing:.2%} of them by more than half a level"

    def _others(self) -> list[str]:
        plural = {"label": "labels", "mask": "masks"}
        return [plural.get(name, name) for name in self.fields[1:]] + [""]


def compare_samples(dataset: Any, records: Pipeline, samples: int = 64) -> Equivalence:
    """Compares samples of a dataset with those of a pipeline without batches.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``, whose samples are a
            tuple of image and target, a dictionary, or an image. A target is a number,
            a mask, or a dictionary of arrays such as ``boxes`` and ``labels``.
        records: A pipeline with a record for each sample of the dataset, in its order.
        samples: Number of samples, spread over the dataset.

    Raises:
        InfeedError: As in a loop over the pipeline.
    """
    samples = _check.integer("compare_samples", "samples", samples, low=1)
    return compare(dataset, records, samples)


def compare(
    dataset: Any,
    records: Pipeline,
    samples: int,
    chosen: Array | None = None,
    order: Array | None = None,
    *,
    limits_s: tuple[float, float] | None = _LIMITS_S,
) -> Equivalence:
    """Compares samples as `compare_samples`.

    Args:
        dataset: The dataset.
        records: The pipeline.
        samples: Number of samples.
        chosen: Numbers of the samples to choose from; None: all.
        order: Number of each sample's record in the pipeline; None: the same number.
        limits_s: Limits of the time of the draws in seconds: of processors, and
            elapsed. None: no limits.
    """
    limit = None if limits_s is None else _TimeLimit(*limits_s)
    progress = ProgressLine()
    try:
        return _compared_samples(
            dataset, records, samples, (chosen, order), limit, progress
        )
    finally:
        progress.end()


class _TimeLimit:
    """Limits of the time since it was made: of processors, and elapsed."""

    def __init__(self, processor_s: float, elapsed_s: float) -> None:
        self._limits_s = processor_s, elapsed_s
        self._begun = time.process_time(), time.perf_counter()

    def allows(self, factor: float) -> bool:
        """Whether this multiple of the time that has passed is within the limits."""
        processor_s = time.process_time() - self._begun[0]
        elapsed_s = time.perf_counter() - self._begun[1]
        limits = self._limits_s
        return processor_s * factor < limits[0] and elapsed_s * factor < limits[1]


def _compared_samples(
    dataset: Any,
    records: Pipeline,
    samples: int,
    selection: tuple[Array | None, Array | None],
    limit: _TimeLimit | None,
    progress: ProgressLine,
) -> Equivalence:
    chosen, order = selection
    count, found = len(dataset), count_records(records)
    if found != count:
        problem = f"the dataset has {count} samples, the pipeline {found}"
        return Equivalence(0, False, np.nan, np.nan, (problem,), ())
    chosen = np.arange(count) if chosen is None else np.asarray(chosen)
    most = min(samples, len(chosen))
    spread = np.unique(np.linspace(0, len(chosen) - 1, most).astype(int))
    numbers = [int(number) for number in chosen[spread]]
    if hasattr(dataset, "mix_among"):
        # The pipeline's epochs have these samples only.
        dataset.mix_among(numbers)

    def read(numbers: Sequence[int], draw: int) -> list[Sample]:
        """Reads samples of the dataset, and shows how many are read."""
        found = []
        for at, number in enumerate(numbers):
            progress.show(
                f"comparing samples: draw {draw + 1}, sample {at + 1} of {len(numbers)}"
            )
            found.append(read_sample(dataset, number))
        return found

    first = read(numbers, 0)
    if not all(first):
        problem = f"{type(dataset).__name__} has samples without numbers to compare"
        return Equivalence(0, False, np.nan, np.nan, (problem,), ())
    is_random = not all(map(same_samples, first, read(numbers[:_REPEATED], 0)))
    rows = numbers if order is None else [int(order[number]) for number in numbers]
    with RecordDraws(records, count, rows) as ours:
        return _compare_draws(
            numbers,
            lambda at: (read(numbers, at) if at else first, ours.of(at)),
            limit,
            is_random=is_random,
        )


def _compare_draws(
    numbers: list[int],
    draw: Callable[[int], tuple[list[Sample], list[Sample]]],
    limit: _TimeLimit | None,
    *,
    is_random: bool,
) -> Equivalence:
    """Compares draws of the samples with these numbers until the limit.

    Args:
        numbers: Numbers of the samples.
        draw: Returns both sides' samples of a draw.
        limit: Limit of the time.
        is_random: Whether draws differ.
    """
    theirs, ours = zip(*map(draw, range(_DRAWS if is_random else 1)), strict=True)
    found, fields = _compare(numbers, theirs, ours, is_random)
    drawn = [_DrawnField(one) for one in fields if one.is_random and not _kind(one)]
    if not drawn:
        return found
    count = len(theirs)
    found = _with_statistics(found, drawn, count)
    while not found.problems and count < _MOST_DRAWS:
        if limit is not None and not limit.allows((count + 1) / count):
            break
        pair = draw(count)
        added = [field.add(*pair) for field in drawn]
        if not all(added):
            break
        count += 1
    return _with_statistics(found, drawn, count) if count > len(theirs) else found


def _with_statistics(
    found: Equivalence, drawn: Sequence["_DrawnField"], count: int
) -> Equivalence:
    """Returns the result with the statistics of random fields in a number of draws."""
    by_field = [one.compare() for one in drawn]
    tests = _TEST_ROUNDS * sum(map(len, by_field))
    problems, pictures, comparisons = list(found.problems), found.pictures, []
    for one, statistics in zip(drawn, by_field, strict=True):
        corrected = [
            replace(each, p_value=min(1.0, each.p_value * tests)) for each in statistics
        ]
        comparisons += corrected
        differing = [each for each in corrected if each.p_value < _CHANCE]
        problems += [
            f"{each.difference} (p = {each.p_value:.1g})" for each in differing
        ]
        if differing:
            pictures = pictures or _pictures(one.field, range(2))
    return replace(
        found,
        problems=tuple(problems[:6]),
        pictures=pictures,
        draws=count,
        comparisons=tuple(comparisons),
    )


@dataclass(frozen=True)
class _Field:
    """A field of the compared samples: arrays by draw and sample.

    Attributes:
        name: Its name in the pipeline.
        key: Its name in the dataset.
        is_image: Whether it is the image.
        numbers: Numbers of the samples that have it.
        positions: Positions of these samples in the draws.
        theirs: Arrays of the dataset.
        ours: Arrays of the pipeline.
    """

    name: str
    key: str
    is_image: bool
    numbers: list[int]
    positions: list[int]
    theirs: list[list[Array]]
    ours: list[list[Array]]

    @property
    def is_random(self) -> bool:
        """Whether draws differ. Rare draws, as of boxes, may occur in ours only."""
        if self.is_image or any(map(has_pixels, self.theirs[0])):
            return _differs(self.theirs)
        return _differs(self.theirs) or _differs(self.ours)


def _differs(draws: Sequence[Sequence[Array]]) -> bool:
    first, *others = draws
    return not all(
        np.array_equal(one, other)
        for draw in others
        for one, other in zip(first, draw, strict=True)
    )


class _DrawnField:
    """A random field, and its statistics in all draws. Their arrays are not kept."""

    def __init__(self, field: _Field) -> None:
        self.field = field
        self._statistics = FieldStatistics(field.name, field.is_image, field.theirs)
        self._theirs = [self._statistics.of(draw) for draw in field.theirs]
        self._ours = [self._statistics.of(draw) for draw in field.ours]

    def add(self, theirs: Sequence[Sample], ours: Sequence[Sample]) -> bool:
        """Adds a draw; returns whether all samples have the field."""
        field = self.field
        one = [theirs[at].get(field.key) for at in field.positions]
        other = [ours[at].get(field.name) for at in field.positions]
        if any(array is None for array in (*one, *other)):
            return False
        self._theirs.append(self._statistics.of([a for a in one if a is not None]))
        self._ours.append(self._statistics.of([a for a in other if a is not None]))
        return True

    def compare(self) -> list[Comparison]:
        """Compares the statistics of all draws."""
        # By column: arrays [draw, sample, value].
        theirs, ours = (
            [np.array(column) for column in zip(*draws, strict=True)]
            for draws in (self._theirs, self._ours)
        )
        found = self._statistics.compare(self._theirs, self._ours)
        if all((column == column[0]).all() for column in theirs):
            changed = np.any(
                [
                    (one != other).any(axis=2)
                    for one, other in zip(theirs, ours, strict=True)
                ],
                axis=0,
            )
            count = int(changed.sum())
            # Each change is as likely on either side if the distributions are equal.
            one_sided = Comparison(
                f"share of changed {self.field.name}",
                0.0,
                float(changed.mean()),
                0.5**count,
                f"{self.field.name} is the same in all draws of the dataset, and the "
                f"pipeline changes it in {count} of {changed.size}",
            )
            found = [one_sided, *found]
        return found


@dataclass
class _Difference:
    """Differences of a field, and the samples in which they are largest."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    largest: float = np.nan
    share: float = np.nan
    worst: Sequence[int] = ()
    level: float = 1.0


def _compare(
    numbers: list[int],
    theirs: Sequence[list[Sample]],
    ours: Sequence[list[Sample]],
    is_random: bool,
) -> tuple[Equivalence, list[_Field]]:
    """Returns the result of comparing some draws, and the compared fields."""
    pairs, problems = _pairs(theirs[0], ours[0][0])
    largest = share = np.nan
    level = 1.0
    notes: list[str] = []
    pictures: tuple[tuple[int, Array, Array], ...] = ()
    fields = [
        _field(name, own, at == 0, numbers, theirs, ours)
        for at, (name, own) in enumerate(pairs)
    ]
    for at, one in enumerate(fields):
        found = _difference(one)
        problems += found.problems
        notes += found.notes
        if at == 0:
            largest, share, level = found.largest, found.share, found.level
        if found.problems and not pictures:
            pictures = _pictures(one, found.worst)
    compared = Equivalence(
        len(numbers),
        is_random,
        largest,
        share,
        tuple(problems[:6]),
        pictures,
        tuple(own for _, own in pairs),
        tuple(notes),
        len(theirs),
        level,
    )
    return compared, fields


def _pairs(
    theirs: Sequence[Sample], ours: Sample
) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the names of each field in both, and the fields that ours lack."""
    names = list(dict.fromkeys(name for sample in theirs for name in sample))
    if not set(names) <= set(ours) and len(names) == len(ours):
        return list(zip(names, ours, strict=True)), []
    missing = [name for name in names if name not in ours]
    problems = [f"the pipeline has no field {name}" for name in missing]
    return [(name, name) for name in names if name in ours], problems


def _field(
    name: str,
    own: str,
    is_image: bool,
    numbers: list[int],
    theirs: Sequence[list[Sample]],
    ours: Sequence[list[Sample]],
) -> _Field:
    """Returns a field of those samples that have it."""
    with_it = [
        at for at in range(len(numbers)) if all(name in draw[at] for draw in theirs)
    ]
    return _Field(
        own,
        name,
        is_image,
        [numbers[at] for at in with_it],
        with_it,
        [[draw[at][name] for at in with_it] for draw in theirs],
        [[draw[at][own] for at in with_it] for draw in ours],
    )


def _difference(field: _Field) -> _Difference:
    if problem := _kind(field):
        return _Difference([problem], worst=range(2))
    if field.is_random:
        return _Difference()
    if all(array.ndim == 0 for array in field.theirs[0]):
        return _Difference(_labels(field))
    return _values(field)


def _kind(field: _Field) -> str:
    """Returns the difference of dimensions and type; empty if there is none."""
    expected, found = field.theirs[0][0], field.ours[0][0]
    if field.is_image:
        shapes = {one.shape for draw in field.theirs for one in draw}
        if expected.ndim != found.ndim or (
            len(shapes) == 1 and expected.shape != found.shape
        ):
            return f"images have shape {found.shape} instead of {expected.shape}"
        if expected.dtype != found.dtype:
            return f"values are {found.dtype} instead of {expected.dtype}"
    elif has_pixels(np.squeeze(expected)) and expected.dtype != found.dtype:
        return f"{field.name} is {found.dtype} instead of {expected.dtype}"
    return ""


def _labels(field: _Field) -> list[str]:
    values = zip(field.numbers, field.theirs[0], field.ours[0], strict=True)
    wrong = [
        f"sample {number} has {field.name} {one.tolist()} instead of {expected}"
        for number, expected, one in values
        if one.ndim or expected != one
    ]
    return wrong[:1] + ([f"{len(wrong)} labels differ"] if len(wrong) > 1 else [])


def _values(field: _Field) -> _Difference:
    found = _Difference()
    of_field = "" if field.is_image else f"{field.name} of "
    largest, differing, total, explained = [], 0, 0, 0
    found.level = level = level_of(field.theirs[0]) if field.is_image else 0.0
    for number, expected, own in zip(
        field.numbers, field.theirs[0], field.ours[0], strict=True
    ):
        if not field.is_image:
            # Some libraries give masks an axis for a single channel.
            # A list of rows is flat if it is not declared as boxes.
            expected, own = np.squeeze(expected), np.squeeze(own)
            own = own.reshape(expected.shape) if own.size == expected.size else own
        if expected.shape != own.shape:
            found.problems.append(
                f"{of_field}sample {number} has shape {own.shape} instead of "
                f"{expected.shape}"
            )
            largest.append(np.inf)
            continue
        apart = np.abs(expected.astype(np.float64) - own.astype(np.float64))
        # Sums of floats round in another order, and a value of 8 bits by a level.
        differs = apart > _HALF * level
        if not field.is_image and _is_mask(expected):
            neighbours = differs & _is_of_neighbour(expected, own)
            explained += int(neighbours.sum())
            apart[neighbours] = 0
        largest.append(float(apart.max(initial=0)))
        differing += int(differs.sum())
        total += apart.size
    found.largest = max((one for one in largest if np.isfinite(one)), default=np.nan)
    found.share = differing / max(total, 1)
    found.worst = [int(at) for at in np.argsort(largest)[::-1][:4]]
    limit = _limit(field)
    left = (differing - explained) / max(total, 1)
    if found.largest > limit and (not explained or left > _UNEXPLAINED):
        of_field = "" if field.is_image else f"of {field.name} "
        unit, name = (level, " levels of 255") if level else (1.0, "")
        found.problems.append(
            f"values {of_field}differ by up to {found.largest / unit:.3g}{name}; "
            f"rounding explains {limit / unit:.3g}"
        )
    elif explained:
        found.notes.append(
            f"{found.share:.2%} of {field.name} has the value of a neighbouring pixel"
        )
    found.problems = found.problems[:4]
    return found


def _is_mask(array: Array) -> bool:
    is_mask = array.ndim == 2 and array.dtype.kind in "iu" and has_pixels(array)
    return is_mask or has_object_masks([array])


def _is_of_neighbour(expected: Array, own: Array) -> Array:
    """Returns for each pixel of masks whether one next to it has its value.

    Libraries round positions in other ways when they resize masks to the nearest pixel.
    """
    height, width = expected.shape[-2:]
    sides = [(0, 0)] * (expected.ndim - 2) + [(1, 1)] * 2
    padded = np.pad(expected, sides, mode="edge")
    found = np.zeros(expected.shape, bool)
    for down in range(3):
        for right in range(3):
            found |= padded[..., down : down + height, right : right + width] == own
    return found


def _limit(field: _Field) -> float:
    """Returns the largest difference of values that rounding explains."""
    if field.is_image:
        return 1.5 * level_of(field.theirs[0])
    if field.theirs[0][0].dtype.kind == "f":
        largest = max(float(np.abs(one).max(initial=0)) for one in field.theirs[0])
        return 1e-4 * max(largest, 1.0)
    return 0.0


def _pictures(
    field: _Field, worst: Sequence[int]
) -> tuple[tuple[int, Array, Array], ...]:
    return tuple(
        (field.numbers[at], field.theirs[0][at], field.ours[0][at])
        for at in worst
        if at < len(field.numbers) and has_pixels(np.squeeze(field.theirs[0][at]))
    )
