"""Statistics of random transforms: what their comparison finds in which draws."""

import numpy as np
import pytest
from conftest import LONG_TESTS

from infeed.adopting.statistics import FieldStatistics

SAMPLES = 24


def sizes(rng, draws: int, crops: bool) -> list[list[np.ndarray]]:
    """Returns images of random sizes by draw and sample: enlarged, and then cropped."""
    found = []
    for _ in range(draws):
        grown = 100 * rng.uniform(1, 4, SAMPLES)
        cropped = grown * np.where(
            rng.random(SAMPLES) < 6 / 7, rng.uniform(0.3, 1, SAMPLES), 1
        )
        sides = cropped if crops else grown
        found.append([np.zeros((int(side), 8, 3), np.uint8) for side in sides])
    return found


def differences(theirs, ours, is_image: bool = True) -> list[str]:
    statistics = FieldStatistics("field", is_image, theirs[:4])
    return statistics.differences(
        [statistics.of(draw) for draw in theirs], [statistics.of(draw) for draw in ours]
    )


@pytest.mark.parametrize("draws", [4, 32])
def test_equal_distributions_are_not_reported(draws):
    found = []
    for seed in range(40 if LONG_TESTS else 8):
        rng = np.random.default_rng(seed)
        found += differences(sizes(rng, draws, True), sizes(rng, draws, True))
        boxes = rng.normal(50, 20, (2, draws, SAMPLES, 3, 4))
        theirs, ours = ([list(draw) for draw in part] for part in boxes)
        found += differences(theirs, ours, is_image=False)

    # Seeds are fixed. Of 400 comparisons at 4 and 4.5 deviations, none is expected.
    assert found == []


def test_a_small_shift_of_random_values_is_found_with_more_draws():
    rng = np.random.default_rng(0)
    spread = 40 * rng.uniform(1, 4, SAMPLES)
    values = rng.standard_t(3, (2, 32, SAMPLES)) * spread / 4 + 4 * spread
    values[1] += spread / 8
    draws = [[list(row[:, None, None]) for row in part] for part in values]

    few, many = (
        differences(*(part[:count] for part in draws), is_image=False)
        for count in (4, 32)
    )

    assert few == []
    assert any("of all pairs of draws" in problem for problem in many), many


def test_another_spread_around_the_same_centre_is_found():
    rng = np.random.default_rng(0)
    one, other = rng.normal(100, 10, (16, SAMPLES)), rng.normal(100, 25, (16, SAMPLES))
    draws = [[list(row[:, None, None]) for row in part] for part in (one, other)]

    found = differences(*draws, is_image=False)

    assert any("further from its median" in problem for problem in found), found
