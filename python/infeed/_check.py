"""What a parameter may be: checks that name the owner, the parameter and the mend.

They run when a transform or source is made, so that a mistake shows on the line that
made it. What depends on other parts of a pipeline is checked by the engine.
"""

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from infeed.errors import ConfigError


def refusal(owner: object, name: str, expected: str, value: object) -> ConfigError:
    """The error that says what `name` of `owner` must be and what it was."""
    label = owner if isinstance(owner, str) else type(owner).__name__
    return ConfigError(f"{label}: {name} must be {expected}, got {value!r}")


def integer(owner: object, name: str, value: Any, low: int = 0) -> int:
    """Returns `value` as an int of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        expected = f"an integer of at least {low}" if low >= 0 else "an integer"
        raise refusal(owner, name, expected, value)
    return int(value)


def number(
    owner: object,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
) -> int | float:
    """Returns `value` as a finite Python number in `low..=high`."""
    plain = isinstance(value, Real) and not isinstance(value, bool)
    if not plain or not math.isfinite(value) or not low <= value <= high:
        expected = "a number"
        if high != math.inf:
            expected += f" from {low:g} to {high:g}"
        elif low != -math.inf:
            expected += f" of at least {low:g}"
        raise refusal(owner, name, expected, value)
    return int(value) if isinstance(value, Integral) else float(value)


def numbers(
    owner: object, name: str, value: Any, low: float = -math.inf
) -> tuple[int | float, ...]:
    """Returns `value`, a number or a list of one a channel, as a tuple."""
    if isinstance(value, Real):
        return (number(owner, name, value, low),)
    items = _items(owner, name, value, "a number or a list of one number a channel")
    if not items:
        raise refusal(owner, name, "a number or a list of one number a channel", value)
    return tuple(number(owner, name, item, low) for item in items)


def fill(owner: object, name: str, value: Any) -> int | float | tuple[int | float, ...]:
    """Returns `value`, a number or a list of one a channel, as it was meant."""
    if isinstance(value, Real):
        return number(owner, name, value)
    return numbers(owner, name, value)


def interval(
    owner: object, name: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Returns `value` as (low, high), ascending and within `low..=high`."""
    items = _items(owner, name, value, "a pair (low, high)")
    if len(items) != 2:
        raise refusal(owner, name, "a pair (low, high)", value)
    first = number(owner, name, items[0], low, high)
    second = number(owner, name, items[1], low, high)
    if first > second:
        raise refusal(owner, name, "a pair (low, high) in ascending order", value)
    return (float(first), float(second))


def pair(
    owner: object, name: str, value: Any, expected: str, low: int = 0
) -> tuple[int, int]:
    """Returns `value` as two integers of at least `low`."""
    items = _items(owner, name, value, expected)
    if len(items) != 2:
        raise refusal(owner, name, expected, value)
    first, second = (integer(owner, name, item, low) for item in items)
    return (first, second)


def sides(owner: object, name: str, value: Any) -> int | tuple[int, int]:
    """Returns a size: an int, or (height, width)."""
    if isinstance(value, Integral):
        return integer(owner, name, value, low=1)
    return pair(owner, name, value, "an integer or (height, width)", low=1)


def margins(owner: object, name: str, value: Any) -> int | tuple[int, ...]:
    """Returns a padding: an int, (x, y) or (left, top, right, bottom)."""
    if isinstance(value, Integral):
        return integer(owner, name, value)
    expected = "an integer, (x, y) or (left, top, right, bottom)"
    items = _items(owner, name, value, expected)
    if len(items) not in (2, 4):
        raise refusal(owner, name, expected, value)
    return tuple(integer(owner, name, item) for item in items)


def stored_values(owner: object, name: str, value: Any) -> tuple[int, ...]:
    """Returns `value` as distinct numbers that a mask can store."""
    expected = "the stored value of each class, such as (0, 255), none twice"
    items = _items(owner, name, value, expected)
    numbers = tuple(integer(owner, name, item) for item in items)
    if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= 2**16:
        raise refusal(owner, name, expected, value)
    return numbers


def choice(owner: object, name: str, value: Any, allowed: Sequence[str]) -> str:
    """Returns `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        options = ", ".join(f'"{option}"' for option in allowed)
        raise refusal(owner, name, f"one of {options}", value)
    return value


def flag(owner: object, name: str, value: Any) -> bool:
    """Returns `value` if it is a bool."""
    if not isinstance(value, bool):
        raise refusal(owner, name, "True or False", value)
    return value


def path(owner: object, name: str, value: Any) -> str:
    """Returns a path as text."""
    try:
        text = os.fspath(value)
    except TypeError:
        raise refusal(owner, name, "a path", value) from None
    if not isinstance(text, str) or not text:
        raise refusal(owner, name, "a path", value)
    return text


def field(owner: object, name: str, value: Any) -> str:
    """Returns the name of a field."""
    if not isinstance(value, str) or not value:
        raise refusal(owner, name, "the name of a field", value)
    return value


def size_bytes(memory: int | str, part: str = "open", name: str = "memory") -> int:
    """Bytes from a number or a text such as ``"2GiB"`` or ``"500 MB"``."""
    if not isinstance(memory, str):
        return integer(part, name, memory, low=1)
    text = memory.strip().lower().removesuffix("b")
    factor = 1
    for power, prefix in enumerate("kmgt", start=1):
        if text.endswith(f"{prefix}i"):
            factor, text = 1024**power, text[:-2]
        elif text.endswith(prefix):
            factor, text = 1000**power, text[:-1]
    try:
        size = int(float(text) * factor)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        expected = 'bytes, or a text such as "2GiB"'
        raise refusal(part, name, expected, memory)
    return size


def decoding(owner: str, decode: str | float) -> str:
    """Returns the ``decode`` option as the engine reads it."""
    ways = ("auto", "cpu", "gpu")
    if isinstance(decode, str) and decode in ways:
        return decode
    if isinstance(decode, float) and 0 < decode < 1:
        return repr(float(decode))
    known = '"auto", "cpu", "gpu" or the GPU\'s share, a number between 0 and 1'
    raise refusal(owner, "decode", known, decode)


def device_names(devices: Any) -> None:
    """Checks that `devices` is a list of names.

    Raises:
        ConfigError: It is not, or it is empty.
    """
    is_list = isinstance(devices, Sequence) and not isinstance(devices, str)
    if is_list and devices and all(isinstance(name, str) for name in devices):
        return
    names = 'a list of names such as ["cuda:0", "cuda:1"]'
    raise refusal("open", "devices", names, devices)


def _items(owner: object, name: str, value: Any, expected: str) -> list[Any]:
    """Elements of a list, tuple or one-dimensional array."""
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise refusal(owner, name, expected, value)
    return list(value)
