"""Compares the statistics of random fields."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from infeed.adopting.samples import Array, has_pixels

# A mean difference of more standard errors than this is one that chance does not
# explain: once in 16 000 comparisons of normal values.
_ERRORS = 4.0
# Differences of means below this share of the values' range do not count: resizing
# rounds, and libraries round in other places.
_ROUNDING = 1 / 255

# A sum of ranks further from its expectation than this number of standard deviations
# does not come from equal distributions: once in 150 000 comparisons.
_DEVIATIONS = 4.5

_SIDES = ("height", "width")

# Arrays of a field by draw and sample.
_Draws = Sequence[Sequence[Array]]


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

    def differences(
        self, theirs: Sequence[list[Array]], ours: Sequence[list[Array]]
    ) -> list[str]:
        """Compares the draws of the dataset with those of the pipeline.

        Args:
            theirs: Results of `of` for the dataset.
            ours: Results of `of` for the pipeline.

        Returns:
            The differences in words.
        """
        problems = []
        for at, (titles, _, levels) in enumerate(self._statistics):
            # By draw, sample and column.
            one, other = (
                np.array([draw[at] for draw in draws]) for draws in (theirs, ours)
            )
            for column in range(one.shape[2]):
                problem = _difference(
                    titles(column), one[..., column], other[..., column], levels(column)
                )
                problems += [problem] if problem else []
        return problems


def _difference(title: str, one: Array, other: Array, level: float) -> str:
    """Returns the difference of one statistic in words; empty if there is none.

    Args:
        title: Name of the statistic.
        one: Values of the dataset by draw and sample.
        other: Values of the pipeline by draw and sample.
        level: Difference that does not count.
    """
    apart = other.mean(axis=0) - one.mean(axis=0)
    drawn = one.var(axis=0, ddof=1) + other.var(axis=0, ddof=1)
    expected = float(drawn.mean()) / len(one) + level**2
    return _differs(title, apart, expected, level) or _ranks_differ(
        title, one, other, level
    )


def _differs(title: str, apart: Array, expected: float, level: float) -> str:
    """Returns the difference of one statistic in words; empty if there is none.

    Args:
        title: Name of the statistic.
        apart: Difference of each sample.
        expected: Square of the difference that the random draws explain.
        level: Difference that does not count.
    """
    value = apart.mean()
    if abs(value) > _chance(apart) + level:
        return (
            f"the {title} differs by {value:.3g}, of which chance explains "
            f"{_chance(apart):.2g}"
        )
    ratios = apart**2 / max(expected, 1e-12)
    if ratios.mean() > 1 + max(1.0, _chance(ratios)):
        return (
            f"the {title} of single samples differs by "
            f"{np.sqrt((apart**2).mean()):.3g}, of which the random transforms explain "
            f"{np.sqrt(expected):.2g}"
        )
    return ""


def _ranks_differ(title: str, one: Array, other: Array, level: float) -> str:
    """Compares the ranks of draws within each sample; arguments as of `_difference`.

    Samples differ more from each other than draws of a sample do, and ranks do not
    depend on the largest values. So a difference shows with fewer draws than in the
    means.
    """
    share = _share_above(one, other, level)
    if share is not None:
        return (
            f"the {title} is larger in {share:.0%} of all pairs of draws, not in 50 %"
        )
    centre = np.median(np.concatenate([one, other]), axis=0)
    share = _share_above(np.abs(one - centre), np.abs(other - centre), level)
    if share is not None:
        return (
            f"the {title} is further from its median in {share:.0%} of all pairs of "
            "draws, not in 50 %"
        )
    return ""


def _share_above(one: Array, other: Array, level: float) -> float | None:
    """Returns the share of pairs in which the other value is larger.

    None if it is as large as equal distributions explain: the test of Wilcoxon, Mann
    and Whitney, summed over samples.

    Args:
        one: Values by draw and sample.
        other: Values by draw and sample.
        level: Difference that does not count.
    """
    for sign in (1, -1):
        moved = other - sign * level
        above = (moved[:, None] > one) + 0.5 * (moved[:, None] == one)
        pairs = above.shape[0] * above.shape[1]
        apart = float(above.sum()) - pairs * one.shape[1] / 2
        variance = pairs * _rank_variance(np.concatenate([one, moved]))
        if sign * apart > _DEVIATIONS * np.sqrt(variance) > 0:
            return float(above.mean())
    return None


def _rank_variance(values: Array) -> float:
    """Returns the variance of a rank sum per pair, summed over samples; ties count."""
    count = len(values)
    total = 0.0
    for column in values.T:
        ties = np.unique(column, return_counts=True)[1].astype(float)
        total += count + 1 - float((ties**3 - ties).sum()) / (count * (count - 1))
    return total / 12


# Title of a column, statistic of an array, and the level of a column.
_Statistic = tuple[
    Callable[[int], str], Callable[[Array], Array], Callable[[int], float]
]


def _statistics(name: str, is_image: bool, theirs: _Draws) -> list[_Statistic]:
    """Returns the statistics of a field."""
    arrays = [array for draw in theirs for array in draw]
    level = level_of(arrays)
    if is_image or all(has_pixels(np.squeeze(array)) for array in arrays):
        moments = [
            _moment(name, is_image, title, statistic, level)
            for title, statistic in (("mean", np.mean), ("standard deviation", np.std))
        ]
        # Libraries round sides in other ways.
        sides: _Statistic = (_SIDES.__getitem__, _sides, lambda column: 1.0)
        return [sides, *moments] if is_image else moments

    def title_of(column: int) -> str:
        return (
            f"mean of column {column - 1} of {name}" if column else f"number of {name}"
        )

    # A list of rows is flat in a pipeline that does not declare it as boxes.
    columns = max((array.shape[1] for array in arrays if array.ndim == 2), default=1)

    def means(array: Array) -> Array:
        is_flat = array.ndim == 1 and not array.size % columns
        return _column_means(array.reshape(-1, columns) if is_flat else array)

    # Numbers of rows have no rounding.
    return [(title_of, means, lambda column: level if column else 1e-3)]


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


def _chance(values: Array) -> float:
    """Returns the distance of a mean from its expectation that chance explains."""
    if len(values) < 2:
        return float("inf")
    return float(_ERRORS * values.std(ddof=1) / np.sqrt(len(values)))


def _column_means(array: Array) -> Array:
    """Returns the number of rows, and the mean of each column; 0 without rows."""
    if not array.size:
        return np.zeros(1 + (array.shape[1] if array.ndim > 1 else 1))
    rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    return np.array([len(rows), *rows.mean(axis=0)])


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
