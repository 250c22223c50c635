"""Checks of arguments. Each error names the owner, the argument and the fix.

They run when a transform or source is made, so the traceback shows the line with the
mistake. The engine checks the rules that depend on other parts of a pipeline.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from infeed import _core
from infeed.errors import ConfigError

# Maximum number of characters of a value in a message.
_SHOWN = 500


def error(owner: object, name: str, expected: str, value: object) -> ConfigError:
    """Returns the error for an argument `name` of `owner` with a wrong value."""
    label = owner if isinstance(owner, str) else type(owner).__name__
    return ConfigError(f"{label}: {name} must be {expected}, got {display(value)}")


def display(value: object) -> str:
    """Returns a value as messages show it: cut, without control characters."""
    try:
        text = repr(value)
    # A value that cannot be shown is not the problem that the message is about.
    except Exception:
        return f"a {type(value).__name__}"
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:_SHOWN])
    return text if len(text) < _SHOWN else f"{text}..."


def state(owner: str, value: object) -> dict[str, Any]:
    """Returns a state as the plain data that JSON holds.

    Raises:
        ConfigError: It is no mapping, or holds other data.
    """
    if not isinstance(value, Mapping):
        raise error(owner, "state", "the result of state_dict()", value)
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(value)))
    # Values of another type, integers of too many digits, and data without an end.
    except (TypeError, ValueError, RecursionError) as problem:
        raise ConfigError(
            f"{owner}: state must be the result of state_dict(), and JSON cannot hold "
            f"it: {type(problem).__name__}: {display(str(problem))}"
        ) from None
    return found


def convert(
    owner: object,
    name: str,
    value: Any,
    kind: Any,
    low: int | None = 0,
    expected: str | None = None,
) -> Any:
    """Returns `value` as the annotated type `kind`.

    NumPy numbers become Python numbers, and lists and arrays become tuples.

    Args:
        owner: The object or function that has the argument.
        name: Name of the argument.
        value: Value of the argument.
        kind: bool, int, float, str, a Literal, a dataclass, a tuple or a union of
            these.
        low: Lowest allowed integer; None: no limit.
        expected: Description of the type for the message. None: derived from `kind`.

    Raises:
        ConfigError: The value has another type.
    """
    try:
        return _convert_value(value, kind, low)
    # OverflowError: an integer beyond all floats.
    except (TypeError, ValueError, OverflowError):
        raise error(owner, name, expected or _describe(kind, low), value) from None


def version(owner: object, deterministic: Any, number: Any) -> int | None:
    """Returns the version of results that never change; None: they may change.

    Raises:
        ConfigError: Only one of the two arguments is given.
    """
    is_fixed = convert(owner, "deterministic", deterministic, bool)
    found: int | None = convert(owner, "version", number, int | None)
    if is_fixed and found is None:
        raise error(owner, "version", "a number with deterministic=True", None)
    if found is not None and not is_fixed:
        raise error(owner, "deterministic", "True with a version", deterministic)
    return found


def _convert_value(value: Any, kind: Any, low: int | None) -> Any:
    """Returns `value` as `kind`; raises TypeError or ValueError if it is not one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _convert_to_first(value, arguments, low)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
    elif origin is tuple:
        items = [*_items_of(value)]
        if arguments[-1] is Ellipsis:
            return tuple(_convert_value(item, arguments[0], low) for item in items)
        return tuple(
            _convert_value(item, each, low)
            for item, each in zip(items, arguments, strict=True)
        )
    elif kind is NoneType:
        if value is None:
            return None
    elif kind is bool:
        if isinstance(value, bool):
            return value
    elif kind is str:
        text = os.fspath(value)
        if isinstance(text, str) and text:
            return text
    elif isinstance(value, bool):
        pass
    elif kind is int and isinstance(value, Integral):
        number = int(value)
        if low is None or number >= low:
            return number
    elif kind is float and isinstance(value, Real) and math.isfinite(value):
        return int(value) if isinstance(value, Integral) else float(value)
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(value, kind):
        return value
    raise TypeError


def _convert_to_first(value: Any, kinds: Sequence[Any], low: int | None) -> Any:
    for kind in kinds:
        try:
            return _convert_value(value, kind, low)
        except (TypeError, ValueError):
            continue
    raise TypeError


def _items_of(value: Any) -> Any:
    if isinstance(value, str | bytes | dict):
        raise TypeError
    return iter(value)


def _describe(kind: Any, low: int | None) -> str:
    """Describes a type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(_quote, arguments))}"
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"a list, each item {_describe(arguments[0], low)}"
    if origin is tuple:
        return f"a list of {len(arguments)} items, each {_describe(arguments[0], low)}"
    if arguments:
        named = [_describe(each, low) for each in arguments if each is not NoneType]
        return ", or ".join(named)
    if kind is int:
        has_low = low is not None and low >= 0
        return f"an integer of at least {low}" if has_low else "an integer"
    return {bool: "True or False", float: "a finite number"}.get(kind, "a text")


def _quote(text: object) -> str:
    return f'"{text}"'


def integer(owner: object, name: str, value: Any, low: int = 0) -> int:
    """Returns `value` as an int of at least `low`."""
    number: int = convert(owner, name, value, int, low)
    return number


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
        raise error(owner, name, expected, value)
    return int(value) if isinstance(value, Integral) else float(value)


def numbers(
    owner: object, name: str, value: Any, low: float = -math.inf
) -> tuple[int | float, ...]:
    """Returns `value`, a list of numbers, as a tuple."""
    expected = "a list of numbers"
    try:
        items = [*_items_of(value)]
    except TypeError:
        raise error(owner, name, expected, value) from None
    if not items:
        raise error(owner, name, expected, value)
    return tuple(number(owner, name, item, low) for item in items)


def choice(owner: object, name: str, value: Any, allowed: Sequence[str]) -> str:
    """Returns `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        expected = f"one of {', '.join(map(_quote, allowed))}"
        raise error(owner, name, expected, value)
    return value


def flag(owner: object, name: str, value: Any) -> bool:
    """Returns `value` if it is a bool."""
    if not isinstance(value, bool):
        raise error(owner, name, "True or False", value)
    return value


def path(owner: object, name: str, value: Any) -> str:
    """Returns a path as text."""
    try:
        text = os.fspath(value)
    except TypeError:
        raise error(owner, name, "a path", value) from None
    if not isinstance(text, str) or not text:
        raise error(owner, name, "a path", value)
    return text


def local_folder(owner: object, name: str, value: Any) -> str:
    """Returns the absolute path of a folder, which may not be a URL."""
    folder = path(owner, name, value)
    if "://" in folder:
        raise error(owner, name, "a local folder, not a URL", value)
    # An absolute path stays valid if the program changes its current folder.
    return os.path.abspath(folder)


def field(owner: object, name: str, value: Any) -> str:
    """Returns the name of a field."""
    if not isinstance(value, str) or not value:
        raise error(owner, name, "the name of a field", value)
    return value


def size_bytes(size: int | str, owner: str = "open", name: str = "memory") -> int:
    """Returns a size in bytes.

    Args:
        size: A number of bytes, or text with a unit. ``G``, ``GiB`` are 2**30 bytes,
            ``GB`` is 10**9 bytes; likewise for K, M and T.
        owner: The function that has the argument.
        name: Name of the argument.

    Raises:
        ConfigError: The text is not a size, or the size is 0.
    """
    if not isinstance(size, str):
        return integer(owner, name, size, low=1)
    try:
        parsed = _core.parse_bytes(size)
    except ValueError:
        parsed = 0
    if not parsed:
        raise error(owner, name, 'a size such as "2GiB", "500MB" or 4096', size)
    return parsed


def decoder(owner: str, decode: str | float) -> str:
    """Returns the ``decode`` option in the engine's notation."""
    if isinstance(decode, str) and decode in ("auto", "cpu", "gpu"):
        return decode
    if isinstance(decode, float) and 0 < decode < 1:
        return repr(float(decode))
    expected = '"auto", "cpu", "gpu", or the GPU\'s share as a number between 0 and 1'
    raise error(owner, "decode", expected, decode)


def device_names(devices: Any) -> None:
    """Checks that `devices` is a list of names.

    Raises:
        ConfigError: It is another type, or the list is empty.
    """
    is_list = isinstance(devices, Sequence) and not isinstance(devices, str)
    if is_list and devices and all(isinstance(name, str) for name in devices):
        return
    expected = 'a list of names such as ["cuda:0", "cuda:1"]'
    raise error("open", "devices", expected, devices)
