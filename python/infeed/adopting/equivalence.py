"""Compares the samples of a dataset with those of a pipeline.

A field that two reads of the dataset give alike is compared value by value: images
within rounding, all others exactly. If reads differ, the field is random, and its
statistics are compared: the mean over samples of the difference, in units of its
standard error, and the differences of single samples, in units of the spread of their
draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed import _check
from infeed.adopting.samples import Array, Sample, has_pixels, read_sample, row_of
from infeed.adopting.statistics import differing_distributions, level_of
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

# Reads of each sample if the chain is random.
_DRAWS = 4
# Samples that are read twice to find out whether the chain is random.
_REPEATED = 8
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
        differing: Share of the values of images that differ; NaN if the chain is
            random.
        problems: Differences, in words. Empty if the samples are equivalent.
        pictures: The samples with the largest differences: number, theirs, ours.
        fields: Names of the compared fields, as the pipeline has them.
        notes: Differences that libraries' rounding of positions explains, in words.
    """

    samples: int
    is_random: bool
    largest: float
    differing: float
    problems: tuple[str, ...]
    pictures: tuple[tuple[int, Array, Array], ...]
    fields: tuple[str, ...] = ("image", "label")
    notes: tuple[str, ...] = ()

    @property
    def is_equivalent(self) -> bool:
        """Whether no difference was found."""
        return not self.problems

    def __str__(self) -> str:
        return "; ".join([self._summary(), *self.notes])

    def _summary(self) -> str:
        if self.problems:
            return f"{self.samples} samples differ: " + "; ".join(self.problems)
        others = ", ".join(self._others())
        if self.is_random:
            return (
                f"{self.samples} samples: equal {others}shapes and types; random "
                "transforms have equal means and spreads"
            )
        if not self.largest and not self.notes:
            return f"{self.samples} samples: equal in every value"
        return (
            f"{self.samples} samples: equal {others}shapes and types; values differ by "
            f"at most {self.largest:.3g}, {self.differing:.2%} of them"
        )

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
) -> Equivalence:
    """Compares samples as `compare_samples`.

    Args:
        dataset: The dataset.
        records: The pipeline.
        samples: Number of samples.
        chosen: Numbers of the samples to choose from; None: all.
        order: Number of each sample's record in the pipeline; None: the same number.
    """
    count = len(dataset)
    with grouped(records, 1).open() as loader:
        if loader.records != count:
            problem = f"the dataset has {count} samples, the pipeline {loader.records}"
            return Equivalence(0, False, np.nan, np.nan, (problem,), ())
    chosen = np.arange(count) if chosen is None else np.asarray(chosen)
    most = min(samples, len(chosen))
    spread = np.unique(np.linspace(0, len(chosen) - 1, most).astype(int))
    numbers = [int(number) for number in chosen[spread]]
    first = [read_sample(dataset, number) for number in numbers]
    if not all(first):
        problem = f"{type(dataset).__name__} has samples without numbers to compare"
        return Equivalence(0, False, np.nan, np.nan, (problem,), ())
    again = [read_sample(dataset, number) for number in numbers[:_REPEATED]]
    is_random = not all(map(_same, first, again))
    theirs = [first]
    for _ in range(_DRAWS - 1 if is_random else 0):
        theirs.append([read_sample(dataset, number) for number in numbers])
    rows = numbers if order is None else [int(order[number]) for number in numbers]
    return _compared(numbers, theirs, _read(records, rows, len(theirs)), is_random)


def grouped(records: Pipeline, size: int, **options: Any) -> Pipeline:
    """Returns the pipeline in batches; images of different sizes are padded."""
    try:
        return records.batch(size, **options)
    except ConfigError:
        return records.batch(size, pad=True, **options)


def _same(one: Sample, other: Sample) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )


def _read(records: Pipeline, rows: Sequence[int], draws: int) -> list[list[Sample]]:
    """Returns the samples of these records, `draws` times."""
    found: list[list[Sample]] = []
    with grouped(records, 1).open(workers=1) as loader:
        for epoch in range(draws):
            drawn: list[Sample] = []
            for row in rows:
                loader.seek(epoch, row)
                columns = next(iter(loader)).items()
                read = {name: row_of(column) for name, column in columns}
                drawn.append({n: item for n, item in read.items() if item is not None})
            found.append(drawn)
    return found


@dataclass(frozen=True)
class _Field:
    """A field of the compared samples: arrays by draw and sample."""

    name: str
    is_image: bool
    numbers: list[int]
    theirs: list[list[Array]]
    ours: list[list[Array]]

    @property
    def is_random(self) -> bool:
        first, *others = self.theirs
        return not all(
            np.array_equal(one, other)
            for draw in others
            for one, other in zip(first, draw, strict=True)
        )


@dataclass
class _Difference:
    """Differences of a field, and the samples in which they are largest."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    largest: float = np.nan
    share: float = np.nan
    worst: Sequence[int] = ()


def _compared(
    numbers: list[int],
    theirs: list[list[Sample]],
    ours: list[list[Sample]],
    is_random: bool,
) -> Equivalence:
    pairs, problems = _pairs(theirs[0], ours[0][0])
    largest = share = np.nan
    notes: list[str] = []
    pictures: tuple[tuple[int, Array, Array], ...] = ()
    for at, (name, own) in enumerate(pairs):
        one = _field(name, own, at == 0, numbers, theirs, ours)
        found = _difference(one)
        problems += found.problems
        notes += found.notes
        if at == 0:
            largest, share = found.largest, found.share
        if found.problems and not pictures:
            pictures = _pictures(one, found.worst)
    return Equivalence(
        len(numbers),
        is_random,
        largest,
        share,
        tuple(problems[:6]),
        pictures,
        tuple(own for _, own in pairs),
        tuple(notes),
    )


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
    theirs: list[list[Sample]],
    ours: list[list[Sample]],
) -> _Field:
    """Returns a field of those samples that have it."""
    with_it = [
        at for at in range(len(numbers)) if all(name in draw[at] for draw in theirs)
    ]
    return _Field(
        own,
        is_image,
        [numbers[at] for at in with_it],
        [[draw[at][name] for at in with_it] for draw in theirs],
        [[draw[at][own] for at in with_it] for draw in ours],
    )


def _difference(field: _Field) -> _Difference:
    if problem := _kind(field):
        return _Difference([problem], worst=range(2))
    if field.is_random:
        problems = differing_distributions(
            field.name, field.is_image, field.theirs, field.ours
        )
        return _Difference(problems, worst=range(2))
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
        differs = apart > 0
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
        found.problems.append(
            f"values {of_field}differ by up to {found.largest:.3g}; rounding explains "
            f"{limit:.3g}"
        )
    elif explained:
        found.notes.append(
            f"{found.share:.2%} of {field.name} has the value of a neighbouring pixel"
        )
    found.problems = found.problems[:4]
    return found


def _is_mask(array: Array) -> bool:
    return array.ndim == 2 and array.dtype.kind in "iu" and has_pixels(array)


def _is_of_neighbour(expected: Array, own: Array) -> Array:
    """Returns for each pixel of a mask whether one next to it has its value.

    Libraries round positions in other ways when they resize masks to the nearest pixel.
    """
    height, width = expected.shape
    padded = np.pad(expected, 1, mode="edge")
    found = np.zeros(expected.shape, bool)
    for down in range(3):
        for right in range(3):
            found |= padded[down : down + height, right : right + width] == own
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
