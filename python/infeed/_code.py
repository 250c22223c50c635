"""Formats settings as Python code."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any

WIDTH = 88
INDENT = "    "
# Consecutive numbers up to this many are listed one by one.
_LISTED = 8

NO_NAMES: Mapping[Any, str] = MappingProxyType({})


def value(item: Any, names: Mapping[Any, str] = NO_NAMES) -> str:
    """Formats a value as source code; a value with a name becomes its name."""
    if item in names:
        return names[item]
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False)
    if isinstance(item, tuple):
        if len(item) > _LISTED and _is_range(item):
            return f"tuple(range({item[0]}, {item[-1] + 1}))"
        inner = ", ".join(map(value, item))
        return f"({inner},)" if len(item) == 1 else f"({inner})"
    return repr(item)


def _is_range(items: tuple[Any, ...]) -> bool:
    """Whether items are consecutive integers."""
    first = items[0]
    return isinstance(first, int) and items == tuple(range(first, first + len(items)))


def call(name: str, settings: Any, names: Mapping[Any, str] = NO_NAMES) -> str:
    """Formats a dataclass as a call, without arguments that have their default."""
    parts: list[str] = []
    for field in fields(settings):
        item = getattr(settings, field.name)
        if item == field.default:
            continue
        sequence = isinstance(item, tuple) and field.name != "size"
        first = field.name == "field" and not parts
        positional = first or (field.default is MISSING and not sequence)
        prefix = "" if positional else f"{field.name}="
        parts.append(prefix + value(item, names))
    return f"{name}({', '.join(parts)})"


def method(name: str, arguments: list[str]) -> str:
    """Formats a method call, one argument per line if it does not fit into one line."""
    line = f".{name}({', '.join(arguments)})"
    if len(line) <= WIDTH - len(INDENT):
        return line
    inner = "".join(f"{INDENT * 2}{argument},\n" for argument in arguments)
    return f".{name}(\n{inner}{INDENT})"
