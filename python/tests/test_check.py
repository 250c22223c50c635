"""Checks of arguments: sizes with units, and types."""

from typing import Literal

import numpy as np
import pytest

from infeed import _check
from infeed.errors import ConfigError


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("2G", 2 << 30),
        ("2GiB", 2 << 30),
        ("2GB", 2 * 10**9),
        ("500 mb", 500 * 10**6),
        ("1.5M", 3 << 19),
        ("1K", 1024),
        ("1T", 1 << 40),
    ],
)
def test_a_size_without_b_is_a_power_of_1024(size, expected):
    assert _check.size_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "much", "-1", "0", "2 gigs", "1e9", 0, True, 2.5])
def test_a_wrong_size_raises_with_the_argument(size):
    with pytest.raises(ConfigError, match="open: memory must be"):
        _check.size_bytes(size)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.int64(3), int, 3),
        (np.float32(0.5), float, 0.5),
        (2, float, 2),
        ([1, 2], tuple[int, int], (1, 2)),
        (np.array([1.0, 2.0]), tuple[float, ...], (1.0, 2.0)),
        (None, int | None, None),
        ((1, 2), int | tuple[int, int], (1, 2)),
        ("a", Literal["a", "b"], "a"),
        ("a", Literal["a"] | tuple[int, int], "a"),
    ],
)
def test_values_are_converted_to_their_type(value, kind, expected):
    found = _check.convert("f", "x", value, kind)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (True, int, "f: x must be an integer of at least 0, got True"),
        (-1, int, "f: x must be an integer of at least 0, got -1"),
        (1, bool, "f: x must be True or False, got 1"),
        (float("inf"), float, "f: x must be a finite number, got inf"),
        ((1,), tuple[int, int], "f: x must be a list of 2 items"),
        ("ab", tuple[int, ...], "f: x must be a list, each item an integer"),
        ("c", Literal["a", "b"], 'f: x must be one of "a", "b", got'),
        ("", str, "f: x must be a text, got"),
        (
            1.5,
            int | tuple[int, int],
            "f: x must be an integer of at least 0, or a list",
        ),
    ],
)
def test_values_of_another_type_raise(value, kind, message):
    with pytest.raises(ConfigError) as caught:
        _check.convert("f", "x", value, kind)

    assert str(caught.value).startswith(message)
