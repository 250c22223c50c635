"""Prints settings as the Python that makes them."""

import json
from dataclasses import MISSING, fields
from typing import Any

WIDTH = 88
INDENT = "    "


def value(item: Any) -> str:
    """A setting as source code."""
    from infeed import transforms

    if item == transforms.IMAGENET_MEAN:
        return "T.IMAGENET_MEAN"
    if item == transforms.IMAGENET_STD:
        return "T.IMAGENET_STD"
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False)
    if isinstance(item, tuple):
        inner = ", ".join(value(part) for part in item)
        return f"({inner},)" if len(item) == 1 else f"({inner})"
    return repr(item)


def call(name: str, settings: Any) -> str:
    """A dataclass as the call that makes it, without what is left at its default."""
    parts = []
    for field in fields(settings):
        item = getattr(settings, field.name)
        if field.default is MISSING:
            keyword = isinstance(item, tuple) and field.name in ("mean", "std")
            prefix = f"{field.name}=" if keyword else ""
            parts.append(prefix + value(item))
        elif item != field.default:
            prefix = "" if field.name == "field" and not parts else f"{field.name}="
            parts.append(prefix + value(item))
    return f"{name}({', '.join(parts)})"


def method(name: str, arguments: list[str]) -> str:
    """A call in a chain, one argument a line where it would not fit one line."""
    line = f".{name}({', '.join(arguments)})"
    if len(line) <= WIDTH - len(INDENT):
        return line
    inner = "".join(f"{INDENT * 2}{argument},\n" for argument in arguments)
    return f".{name}(\n{inner}{INDENT})"
