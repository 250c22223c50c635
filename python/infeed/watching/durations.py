"""Sums and quantiles of many durations in little memory."""

import math
import random

_KEPT = 4096


class Durations:
    """Sum, number and quantiles of durations in seconds.

    Quantiles come from a uniform sample of at most 4096. Source: reservoir sampling,
    algorithm R (Vitter, 1985).
    """

    __slots__ = ("_kept", "_random", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self._kept: list[float] = []
        self._random = random.Random(0)

    def add(self, seconds: float) -> None:
        """Adds a duration."""
        self.count += 1
        self.total_s += seconds
        if len(self._kept) < _KEPT:
            self._kept.append(seconds)
        elif (place := int(self._random.random() * self.count)) < _KEPT:
            self._kept[place] = seconds

    @property
    def mean_s(self) -> float:
        """Mean; 0 without durations."""
        return self.total_s / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Returns the duration that `share` of all do not exceed; 0 without any."""
        kept = sorted(self._kept)
        if not kept:
            return 0.0
        place = share * (len(kept) - 1)
        low = math.floor(place)
        high = min(low + 1, len(kept) - 1)
        return kept[low] + (kept[high] - kept[low]) * (place - low)

    def middle(self) -> tuple[float, float]:
        """Returns the mean without the extreme 5 % on each side, and its error.

        Unlike the median it includes events that a part of the durations has, such as
        a lock that one in three waits for. Unlike the mean it ignores outliers.
        """
        kept = sorted(self._kept)
        cut = len(kept) // 20
        kept = kept[cut : len(kept) - cut]
        if len(kept) < 2:
            return (kept[0] if kept else 0.0), math.inf
        mean = math.fsum(kept) / len(kept)
        squares = math.fsum((each - mean) ** 2 for each in kept) / (len(kept) - 1)
        return mean, math.sqrt(squares / len(kept))
