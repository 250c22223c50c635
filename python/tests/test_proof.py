"""Statistics of random transforms: p-values, and what is found in which draws."""

import numpy as np
import pytest
from conftest import LONG_TESTS

from infeed.adopting.statistics import Comparison, FieldStatistics

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


def compare(theirs, ours, is_image: bool = True) -> list[Comparison]:
    statistics = FieldStatistics("field", is_image, theirs[:4])
    return statistics.compare(
        [statistics.of(draw) for draw in theirs], [statistics.of(draw) for draw in ours]
    )


def differences(theirs, ours, is_image: bool = True) -> list[str]:
    """Returns the differences that a comparison of two loaders reports."""
    found = compare(theirs, ours, is_image)
    return [one.difference for one in found if one.p_value * 10 < 1e-5]


def rows_of(values: np.ndarray) -> list[list[np.ndarray]]:
    """Returns each value [draw, sample] as a list of one row."""
    return [list(row[:, None, None]) for row in values]


@pytest.mark.parametrize("draws", [4, 32])
def test_equal_distributions_are_not_reported(draws):
    found = []
    for seed in range(40 if LONG_TESTS else 8):
        rng = np.random.default_rng(seed)
        found += differences(sizes(rng, draws, True), sizes(rng, draws, True))
        boxes = rng.normal(50, 20, (2, draws, SAMPLES, 3, 4))
        theirs, ours = ([list(draw) for draw in part] for part in boxes)
        found += differences(theirs, ours, is_image=False)

    assert found == []


@pytest.mark.parametrize("least", [0, 2])
def test_lists_of_keypoints_may_have_no_row(least):
    """Lists that have several rows in the first draws of the dataset are no masks."""
    rng = np.random.default_rng(0)

    def points(low, dimensions):
        shape = (17 * 3,) if dimensions == 2 else (17, 3)
        return [
            [
                rng.uniform(0, 9, (rng.integers(low, 6), *shape)).astype("f4")
                for _ in range(SAMPLES)
            ]
            for _ in range(8)
        ]

    theirs, ours = points(2, 2), points(least, 3)
    statistics = compare(theirs, ours, is_image=False)

    assert statistics[0].title == "number of field"
    assert np.isfinite([one.p_value for one in statistics]).all()
    assert bool(differences(theirs, ours, is_image=False)) == (least == 0)


# Values of a draw of n samples, from a generator, by the name of the distribution.
DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
    "rare": lambda rng, n: rng.random(n) < 0.05,
    "half of the samples": lambda rng, n: (np.arange(n) < n / 2) * rng.normal(9, 5, n),
}


@pytest.mark.parametrize("samples", [1, 3, 12])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_p_value_is_as_rare_as_it_says(name, samples):
    """Few samples, samples of different spreads, and many equal values included."""
    rng = np.random.default_rng(0)
    spreads = np.exp(rng.normal(0, 1.5, samples))
    count = 5000 if LONG_TESTS else 500

    def draw() -> list[list[np.ndarray]]:
        values = [DISTRIBUTIONS[name](rng, samples) for _ in range(4)]
        return rows_of(np.array(values) * spreads)

    # Differences within a level of 255 do not count.
    found = [
        one.p_value
        for _ in range(count)
        for one in compare(draw(), draw(), is_image=False)
        if one.title.startswith("mean")
    ]

    # Three standard errors above the expected number.
    for limit in (0.1, 0.01):
        most = count * limit + 3 * np.sqrt(count * limit)
        assert sum(p_value < limit for p_value in found) <= most


@pytest.mark.parametrize("samples", [4, 12, 24])
def test_exchanged_samples_are_found_in_the_first_draws(samples):
    """Their mean over all samples is equal."""
    rng = np.random.default_rng(0)
    theirs, ours = np.arange(samples) * 50 + rng.normal(0, 5, (2, 4, samples))

    found = differences(rows_of(theirs), rows_of(ours[:, ::-1]), is_image=False)

    assert any("of single samples differs" in one for one in found) == (samples > 4)


def test_a_small_shift_of_random_values_is_found_with_more_draws():
    rng = np.random.default_rng(0)
    spread = 40 * rng.uniform(1, 4, SAMPLES)
    values = rng.standard_t(3, (2, 32, SAMPLES)) * spread / 4 + 4 * spread
    values[1] += spread / 8
    theirs, ours = map(rows_of, values)

    few, many = (
        differences(theirs[:count], ours[:count], is_image=False) for count in (4, 32)
    )

    assert few == []
    assert any("of all pairs of draws" in problem for problem in many), many


def test_another_spread_around_the_same_centre_is_found():
    rng = np.random.default_rng(0)
    one, other = rng.normal(100, 10, (16, SAMPLES)), rng.normal(100, 25, (16, SAMPLES))

    found = differences(rows_of(one), rows_of(other), is_image=False)

    assert any("further from its median" in problem for problem in found), found


def test_other_sizes_of_boxes_around_the_same_centres_are_found():
    rng = np.random.default_rng(0)
    centres = rng.uniform(100, 500, (2, 4, SAMPLES, 3, 2))
    half = np.array([10, 11]).reshape(2, 1, 1, 1, 1)
    boxes = np.concatenate([centres - half, centres + half], -1)
    theirs, ours = ([list(draw) for draw in part] for part in boxes)

    found = differences(theirs, ours, is_image=False)

    assert any("column 2 minus column 0" in problem for problem in found), found


def test_statistics_name_the_columns_of_a_list():
    rng = np.random.default_rng(0)

    def titles(columns: int) -> list[str]:
        # A list without rows is no mask.
        rows = (0, 5, 3)
        theirs, ours = (
            [[rng.normal(size=(count, columns)) for count in rows] for _ in range(4)]
            for _ in range(2)
        )
        return [one.title for one in compare(theirs, ours, is_image=False)]

    assert titles(2) == [
        "number of field",
        "mean of column 0 of field",
        "mean of column 1 of field",
    ]
    assert titles(6)[-1] == "mean of column 5 of field"
    assert titles(4)[-1] == "mean of column 3 minus column 1 of field"
