"""The base class of all sources."""

from dataclasses import dataclass, fields
from typing import Any

from infeed import _code


@dataclass(frozen=True)
class Source:
    """Base class of all sources. Sources with equal settings are equal."""

    def __repr__(self) -> str:
        return _code.call(f"sources.{type(self).__name__}", self)

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        """Returns the description; numbers of buffers begin at `first`."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": type(self).__name__.lower(), **settings}

    def _buffers(self) -> list[Any]:
        """Returns the buffers that the description refers to by number."""
        return []
