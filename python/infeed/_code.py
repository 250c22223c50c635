"""Prints settings as the Python that makes them."""

import json
from dataclasses import MISSING, fields
from typing import Any


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
            parts.append(f"{field.name}={value(item)}")
    return f"{name}({', '.join(parts)})"
