"""What all sources have in common."""

from dataclasses import dataclass, fields
from typing import Any

from infeed import _code


@dataclass(frozen=True)
class Source:
    """What all sources have in common: they are settings, equal if those are."""

    def __repr__(self) -> str:
        return _code.call(f"sources.{type(self).__name__}", self)

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        """The description; what it refers to in memory is numbered from `first`."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": type(self).__name__.lower(), **settings}

    def _buffers(self) -> list[Any]:
        """What the description refers to by its place in this list."""
        return []
