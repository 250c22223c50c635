"""Compares the samples of a dataset with those of a pipeline.

Samples of a chain without random steps are compared value by value. If two reads of a
sample of the dataset differ, its chain is random, and means and standard deviations of
channels are compared: the mean over samples of the difference, in units of its standard
error, and the differences of single samples, in units of the spread of their draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed import _check
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

# Reads of each sample if the chain is random.
_DRAWS = 4
# A mean difference of more standard errors than this is one that chance does not
# explain: once in 16 000 comparisons of normal values.
_ERRORS = 4.0
# Differences of means below this share of the values' range do not count: resizing
# rounds, and libraries round in other places.
_ROUNDING = 1 / 255

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Equivalence:
    """Result of comparing samples.

    Attributes:
        samples: Number of compared samples.
        is_random: Whether the dataset's transforms are random.
        largest: Largest difference of two values, in units of the values. NaN if the
            chain is random.
        differing: Share of the values that differ; NaN if the chain is random.
        problems: Differences, in words. Empty if the samples are equivalent.
        pictures: The samples with the largest differences: number, theirs, ours.
    """

    samples: int
    is_random: bool
    largest: float
    differing: float
    problems: tuple[str, ...]
    pictures: tuple[tuple[int, _Array, _Array], ...]

    @property
    def is_equivalent(self) -> bool:
        """Whether no difference was found."""
        return not self.problems

    def __str__(self) -> str:
        if self.problems:
            return f"{self.samples} samples differ: " + "; ".join(self.problems)
        if self.is_random:
            return (
                f"{self.samples} samples: equal labels, shapes and types; random "
                "transforms have equal means and spreads"
            )
        if not self.largest:
            return f"{self.samples} samples: equal in every value"
        return (
            f"{self.samples} samples: equal labels, shapes and types; values differ by "
            f"at most {self.largest:.3g}, {self.differing:.2%} of them"
        )


def compare_samples(dataset: Any, records: Pipeline, samples: int = 64) -> Equivalence:
    """Compares samples of a dataset with those of a pipeline without batches.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``, whose samples are a
            tuple of image and label.
        records: A pipeline with a record for each sample of the dataset, in its order.
        samples: Number of samples, spread over the dataset.

    Raises:
        ConfigError: A sample of the dataset is no tuple of image and label.
        InfeedError: As in a loop over the pipeline.
    """
    samples = _check.integer("compare_samples", "samples", samples, low=1)
    count = len(dataset)
    with records.batch(1).open() as loader:
        if loader.records != count:
            problem = f"the dataset has {count} samples, the pipeline {loader.records}"
            return Equivalence(0, False, np.nan, np.nan, (problem,), ())
    samples = min(samples, count)
    numbers = np.unique(np.linspace(0, count - 1, samples).astype(int))
    theirs = [_sample(dataset, int(n)) for n in numbers]
    again = [_sample(dataset, int(n)) for n in numbers[:8]]
    is_random = any(
        one[0].shape != other[0].shape or not np.array_equal(one[0], other[0])
        for one, other in zip(theirs, again, strict=False)
    )
    draws = _DRAWS if is_random else 1
    ours = _read(records, numbers, draws)
    problems = _labels(numbers, theirs, ours)
    problems += _kinds([image for image, _ in theirs], ours)
    if problems:
        return Equivalence(len(numbers), is_random, np.nan, np.nan, problems, ())
    if is_random:
        more = [
            [_sample(dataset, int(n))[0] for n in numbers] for _ in range(draws - 1)
        ]
        images = [[image for image, _ in theirs], *more]
        found = _distributions(images, [[image for image, _ in draw] for draw in ours])
        pictures = _pictures(numbers, theirs, ours[0], range(2)) if found else ()
        return Equivalence(len(numbers), True, np.nan, np.nan, found, pictures)
    return _values(numbers, theirs, ours[0])


_Sample = tuple[_Array, Any]


def _sample(dataset: Any, number: int) -> _Sample:
    item = dataset[number]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ConfigError(
            "adopt: samples of image and label are compared; "
            f"{type(dataset).__name__}[{number}] is a {type(item).__name__}"
        )
    image, label = item
    array = np.asarray(image)
    return array, label.item() if hasattr(label, "item") else label


def _read(records: Pipeline, numbers: _Array, draws: int) -> list[list[_Sample]]:
    """Returns the samples with these numbers, `draws` times."""
    found: list[list[_Sample]] = []
    with records.batch(1).open(workers=1) as loader:
        for epoch in range(draws):
            drawn: list[_Sample] = []
            for number in numbers:
                loader.seek(epoch, int(number))
                batch = next(iter(loader))
                image, label = (batch[name] for name in batch.keys()[:2])
                drawn.append((np.array(image[0]), np.asarray(label[0]).item()))
            found.append(drawn)
    return found


def _labels(
    numbers: _Array, theirs: Sequence[_Sample], ours: Sequence[Sequence[_Sample]]
) -> tuple[str, ...]:
    wrong = [
        f"sample {number} has label {one} instead of {expected}"
        for number, (_, expected), (_, one) in zip(
            numbers, theirs, ours[0], strict=True
        )
        if expected != one
    ]
    return (*wrong[:1], *([f"{len(wrong)} labels differ"] if len(wrong) > 1 else []))


def _kinds(
    theirs: Sequence[_Array], ours: Sequence[Sequence[_Sample]]
) -> tuple[str, ...]:
    expected, (image, _) = theirs[0], ours[0][0]
    problems = []
    if expected.ndim != image.ndim or (
        len({one.shape for one in theirs}) == 1 and expected.shape != image.shape
    ):
        problems.append(f"images have shape {image.shape} instead of {expected.shape}")
    if expected.dtype != image.dtype:
        problems.append(f"values are {image.dtype} instead of {expected.dtype}")
    return tuple(problems)


def _values(
    numbers: _Array, theirs: Sequence[_Sample], ours: Sequence[_Sample]
) -> Equivalence:
    problems = []
    largest, differing, total = [], 0, 0
    for number, (expected, _), (image, _) in zip(numbers, theirs, ours, strict=True):
        if expected.shape != image.shape:
            text = (
                f"sample {number} has shape {image.shape} instead of {expected.shape}"
            )
            problems.append(text)
            continue
        apart = np.abs(expected.astype(np.float64) - image.astype(np.float64))
        largest.append(float(apart.max(initial=0)))
        differing += int((apart > 0).sum())
        total += apart.size
    most = max(largest, default=np.nan)
    limit = 1.5 * _level([image for image, _ in theirs])
    worst = np.argsort(largest)[::-1][:4]
    if most > limit:
        text = f"values differ by up to {most:.3g}; rounding explains {limit:.3g}"
        problems.append(text)
    pictures = _pictures(numbers, theirs, ours, worst) if problems else ()
    share = differing / max(total, 1)
    return Equivalence(len(numbers), False, most, share, tuple(problems[:4]), pictures)


def _level(images: Sequence[_Array]) -> float:
    """Returns one level of 8 bits in the units of the values."""
    if images[0].dtype == np.uint8:
        return 1.0
    low = min(float(image.min()) for image in images)
    high = max(float(image.max()) for image in images)
    return (high - low) * _ROUNDING


def _distributions(
    theirs: Sequence[Sequence[_Array]], ours: Sequence[Sequence[_Array]]
) -> tuple[str, ...]:
    """Compares means and standard deviations of channels, over samples and in each."""
    problems = []
    level = _level([image for draw in theirs for image in draw])
    for name, statistic in (("mean", np.mean), ("standard deviation", np.std)):
        # By draw, sample and channel.
        one, other = (
            np.array(
                [[_channels(image, statistic) for image in draw] for draw in draws]
            )
            for draws in (theirs, ours)
        )
        apart = other.mean(axis=0) - one.mean(axis=0)
        for channel in range(apart.shape[1]):
            of_channel = apart[:, channel]
            value = of_channel.mean()
            if abs(value) > _chance(of_channel) + level:
                problems.append(
                    f"the {name} of channel {channel} differs by {value:.3g}, of which "
                    f"chance explains {_chance(of_channel):.2g}"
                )
                continue
            drawn = one[..., channel].var(0, ddof=1) + other[..., channel].var(
                0, ddof=1
            )
            expected = drawn.mean() / len(one) + level**2
            ratios = of_channel**2 / expected
            if ratios.mean() > 1 + max(1.0, _chance(ratios)):
                problems.append(
                    f"the {name} of channel {channel} of single samples differs by "
                    f"{np.sqrt((of_channel**2).mean()):.3g}, of which the random "
                    f"transforms explain {np.sqrt(expected):.2g}"
                )
    return tuple(problems)


def _chance(values: _Array) -> float:
    """Returns the distance of a mean from its expectation that chance explains."""
    if len(values) < 2:
        return float("inf")
    return float(_ERRORS * values.std(ddof=1) / np.sqrt(len(values)))


def _channels(image: _Array, statistic: Any) -> _Array:
    """Returns a statistic of each channel. Channels are the shortest axis."""
    if image.ndim < 3:
        return np.array([statistic(image)])
    axis = int(np.argmin(image.shape))
    others = tuple(n for n in range(image.ndim) if n != axis)
    return np.asarray(statistic(image.astype(np.float64), axis=others))


def _pictures(
    numbers: _Array,
    theirs: Sequence[_Sample],
    ours: Sequence[_Sample],
    worst: Sequence[int] | range | _Array,
) -> tuple[tuple[int, _Array, _Array], ...]:
    return tuple(
        (int(numbers[at]), theirs[at][0], ours[at][0]) for at in worst if at < len(ours)
    )
