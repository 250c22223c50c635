"""Compares the statistics of random fields, with p-values.

Both sides draw each sample several times. If the distributions are equal, the draws of
a sample can be exchanged between the sides, whatever these distributions are. The
tests compare a difference with the differences that such exchanges give (a permutation
test within each sample). Their sums over samples are normal, with tails that are
lighter, so the p-values hold for few samples too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.adopting.samples import Array, has_object_masks, has_pixels

# Differences of means below this share of the values' range do not count: resizing
# rounds, and libraries round in other places.
_ROUNDING = 1 / 255

_SIDES = ("height", "width")
# Statistics of the masks of objects.
_OF_OBJECTS = (
    "number of {}",
    "mean share of the image of {}",
    "mean row of the centre of {}",
    "mean column of the centre of {}",
)
# Differences of these that do not count. Numbers have no rounding. Resized to the
# nearest pixel, masks of torchvision are half a pixel lower and further right.
_OBJECT_LEVELS = (1e-3, _ROUNDING, 0.75, 0.75)
_BOX_COLUMNS = 4

# Arrays of a field by draw and sample.
_Draws = Sequence[Sequence[Array]]


@dataclass(frozen=True)
class Comparison:
    """One statistic of a random field on both sides.

    Attributes:
        title: Name of the statistic.
        theirs: Its mean over draws and samples in the dataset.
        ours: Its mean in the pipeline.
        p_value: Probability of a difference as large as the found one between equal
            distributions, corrected for the number of tests of this statistic.
        difference: The largest difference, in words.
    """

    title: str
    theirs: float
    ours: float
    p_value: float
    difference: str


def level_of(images: Sequence[Array]) -> float:
    """Returns one level of 8 bits in the units of the values."""
    if images[0].dtype == np.uint8:
        return 1.0
    filled = [image for image in images if image.size]
    low = min((float(image.min()) for image in filled), default=0.0)
    high = max((float(image.max()) for image in filled), default=0.0)
    return (high - low) * _ROUNDING


class FieldStatistics:
    """Statistics of a random field: those of each array, and how two datasets differ.

    Args:
        name: Name of the field.
        is_image: Whether it is the image, whose channels are compared.
        arrays: Arrays of the dataset by draw and sample, for the units of the values.
    """

    def __init__(self, name: str, is_image: bool, arrays: _Draws) -> None:
        self._statistics = _statistics(name, is_image, arrays)

    def of(self, draw: Sequence[Array]) -> list[Array]:
        """Returns the statistics of one draw: arrays [sample, column]."""
        return [
            np.array([statistic(array) for array in draw])
            for _, statistic, _ in self._statistics
        ]

    def compare(
        self, theirs: Sequence[list[Array]], ours: Sequence[list[Array]]
    ) -> list[Comparison]:
        """Compares the draws of the dataset with those of the pipeline.

        Args:
            theirs: Results of `of` for the dataset.
            ours: Results of `of` for the pipeline.
        """
        found = []
        for at, (titles, _, levels) in enumerate(self._statistics):
            # By draw, sample and column.
            one, other = (
                np.array([draw[at] for draw in draws]) for draws in (theirs, ours)
            )
            found += [
                _compare(
                    titles(column), one[..., column], other[..., column], levels(column)
                )
                for column in range(one.shape[2])
            ]
        return found


def _compare(title: str, one: Array, other: Array, level: float) -> Comparison:
    """Compares one statistic.

    Args:
        title: Name of the statistic.
        one: Values of the dataset by draw and sample.
        other: Values of the pipeline by draw and sample.
        level: Difference that does not count.
    """
    centre = np.median(np.concatenate([one, other]), axis=0)
    tests = [
        _compare_means(title, one, other, level),
        _compare_samples(title, one, other, level),
        # Samples differ more from each other than draws of a sample do, and ranks do
        # not depend on the largest values. So a difference shows with fewer draws.
        _compare_ranks(f"the {title} is larger", one, other, level),
        _compare_ranks(
            f"the {title} is further from its median",
            np.abs(one - centre),
            np.abs(other - centre),
            level,
        ),
    ]
    p_value, difference = min(tests)
    return Comparison(
        title,
        float(one.mean()) if one.size else math.nan,
        float(other.mean()) if other.size else math.nan,
        min(1.0, p_value * len(tests)),
        difference,
    )


def _compare_means(
    title: str, one: Array, other: Array, level: float
) -> tuple[float, str]:
    """Tests the mean over samples: its p-value, and the difference in words."""
    apart = other.mean(axis=0) - one.mean(axis=0)
    value = float(apart.mean()) if apart.size else 0.0
    moved = other - math.copysign(level, value)
    left = max(abs(value) - level, 0.0) * apart.size
    deviation = math.sqrt(float(_exchanged_variance(one, moved).sum()))
    return _two_sided(left, deviation), f"the {title} differs by {value:.3g}"


def _compare_samples(
    title: str, one: Array, other: Array, level: float
) -> tuple[float, str]:
    """Tests the difference of each sample: the p-value, and the difference in words.

    The mean of all samples hides samples that were exchanged.
    """
    apart = other.mean(axis=0) - one.mean(axis=0)
    variance = _exchanged_variance(one, other - np.copysign(level, apart))
    left = np.maximum(np.abs(apart) - level, 0)
    is_drawn = variance > 0
    ratios = left[is_drawn] ** 2 / variance[is_drawn]
    found, expected = (
        math.sqrt(float(squares.mean())) if squares.size else 0.0
        for squares in (apart**2, variance)
    )
    text = (
        f"the {title} of single samples differs by {found:.3g}, of which the random "
        f"transforms explain {expected:.2g}"
    )
    return _chi_square_above(float(ratios.sum()), len(ratios)), text


def _compare_ranks(
    title: str, one: Array, other: Array, level: float
) -> tuple[float, str]:
    """Tests the ranks of the draws of each sample: the p-value, and a text.

    It is the test of Wilcoxon, Mann and Whitney, summed over samples (van Elteren).
    """
    tests = []
    for sign in (1, -1):
        moved = other - sign * level
        above = (moved[:, None] > one) + 0.5 * (moved[:, None] == one)
        pairs = above.shape[0] * above.shape[1]
        apart = sign * (float(above.sum()) - pairs * one.shape[1] / 2)
        variance = pairs * _rank_variance(np.concatenate([one, moved]))
        share = float(above.mean()) if above.size else 0.5
        tests.append((_two_sided(max(apart, 0.0), math.sqrt(variance)), share))
    p_value, share = min(tests)
    return p_value, f"{title} in {share:.0%} of all pairs of draws, not in 50 %"


def _exchanged_variance(one: Array, other: Array) -> Array:
    """Returns the variance of each sample's difference of means if draws are exchanged.

    Args:
        one: Values by draw and sample.
        other: As many values.
    """
    variance = np.concatenate([one, other]).var(axis=0, ddof=1)
    return np.asarray(variance * (2 / len(one)))


def _rank_variance(values: Array) -> float:
    """Returns the variance of a rank sum per pair, summed over samples; ties count."""
    count = len(values)
    total = 0.0
    for column in values.T:
        ties = np.unique(column, return_counts=True)[1].astype(float)
        total += count + 1 - float((ties**3 - ties).sum()) / (count * (count - 1))
    return total / 12


def _two_sided(apart: float, deviation: float) -> float:
    """Returns the probability that a normal value is at least this far from zero."""
    if not apart:
        return 1.0
    return math.erfc(apart / deviation / math.sqrt(2)) if deviation else 0.0


def _chi_square_above(value: float, degrees: int) -> float:
    """Returns the probability that a chi-square value is at least this large.

    The sum for whole degrees of freedom: Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    if not degrees or not value:
        return 1.0
    half, odd = value / 2, degrees % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    for at in range(degrees // 2):
        power = at + odd / 2
        total += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
    return min(total, 1.0)


# Title of a column, statistic of an array, and the level of a column.
_Statistic = tuple[
    Callable[[int], str], Callable[[Array], Array], Callable[[int], float]
]


def _statistics(name: str, is_image: bool, theirs: _Draws) -> list[_Statistic]:
    """Returns the statistics of a field."""
    arrays = [array for draw in theirs for array in draw]
    level = level_of(arrays)
    if not is_image and has_object_masks(arrays):
        titles = [text.format(name) for text in _OF_OBJECTS]
        return [(titles.__getitem__, _objects, _OBJECT_LEVELS.__getitem__)]
    is_mask = not _are_lists(arrays) and all(
        has_pixels(np.squeeze(array)) for array in arrays
    )
    if is_image or is_mask:
        moments = [
            _moment(name, is_image, title, statistic, level)
            for title, statistic in (("mean", np.mean), ("standard deviation", np.std))
        ]
        # Libraries round sides in other ways.
        sides: _Statistic = (_SIDES.__getitem__, _sides, lambda column: 1.0)
        return [sides, *moments] if is_image else moments

    # A list of rows is flat in a pipeline that does not declare it as boxes.
    columns = max((array.shape[1] for array in arrays if array.ndim == 2), default=1)

    def title_of(column: int) -> str:
        if not column:
            return f"number of {name}"
        column -= 1
        if column < columns:
            return f"mean of column {column} of {name}"
        low = column - columns
        return f"mean of column {low + 2} minus column {low} of {name}"

    def means(array: Array) -> Array:
        is_flat = array.ndim == 1 and not array.size % columns
        return _column_means(array.reshape(-1, columns) if is_flat else array)

    # Numbers of rows have no rounding.
    return [(title_of, means, lambda column: level if column else 1e-3)]


def _are_lists(arrays: Sequence[Array]) -> bool:
    """Whether arrays are lists of rows, such as keypoints, that differ in length.

    A draw may have no row, and so no mean.
    """
    is_float = all(array.dtype.kind == "f" and array.ndim > 1 for array in arrays)
    rows = {array.shape[1:] for array in arrays}
    return is_float and len(rows) == 1 and len({len(array) for array in arrays}) > 1


def _moment(
    name: str, is_image: bool, title: str, statistic: Any, level: float
) -> _Statistic:
    """Returns a statistic of the channels of an image, or of a whole mask."""
    of = "channel {}" if is_image else name
    return (
        lambda column: f"{title} of {of.format(column)}",
        lambda array: _channels(array, statistic, is_image),
        lambda column: level,
    )


def _column_means(array: Array) -> Array:
    """Returns the number of rows, and the mean of each column; 0 without rows.

    Four columns may be corners of boxes: their distances follow, which are the sizes.
    """
    if array.size:
        rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
        count, means = len(rows), rows.mean(axis=0, dtype=np.float64)
    else:
        count, means = 0, np.zeros(math.prod(array.shape[1:]))
    sizes = means[2:] - means[:2] if len(means) == _BOX_COLUMNS else means[:0]
    return np.concatenate([[count], means, sizes])


def _objects(masks: Array) -> Array:
    """Returns the number of masks, and the means of their areas and centres.

    Areas are shares of the image, and centres are pixels; 0 without masks.
    """
    if masks.ndim < 2:
        # Another kind of array, whose number of rows differs.
        return np.array([len(masks), 0, 0, 0]) if masks.ndim else np.zeros(4)
    masks = masks.reshape(-1, *masks.shape[-2:])
    count, height, width = masks.shape
    weights = (masks != 0).astype(np.float64)
    areas = weights.sum(axis=(1, 2))
    rows = (weights.sum(axis=2) @ np.arange(height)) / np.maximum(areas, 1)
    columns = (weights.sum(axis=1) @ np.arange(width)) / np.maximum(areas, 1)
    shares = areas / (height * width)
    means = [float(one.mean()) if count else 0.0 for one in (shares, rows, columns)]
    return np.array([count, *means])


def _sides(image: Array) -> Array:
    """Returns height and width of an image, whose channels are the shortest axis."""
    axis = int(np.argmin(image.shape)) if image.ndim == 3 else -1
    sides = [side for n, side in enumerate(image.shape) if n != axis]
    return np.array(sides[:2] + [0] * (2 - len(sides)), np.float64)


def _channels(image: Array, statistic: Any, is_image: bool) -> Array:
    """Returns a statistic of each channel. Channels are the shortest axis."""
    if image.ndim < 3 or not is_image:
        return np.array([statistic(image)])
    axis = int(np.argmin(image.shape))
    others = tuple(n for n in range(image.ndim) if n != axis)
    return np.asarray(statistic(image.astype(np.float64), axis=others))
