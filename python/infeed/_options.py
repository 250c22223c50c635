"""Options of the methods of a pipeline, and columns of its batches."""

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, Self, get_type_hints

from infeed import _check, _code
from infeed.errors import ConfigError

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

_MODES = ("rgb", "gray", "rgba", "stored", "stored16")
_RAGGED = ("offsets", "pad")
_TAILS = ("keep", "drop", "pad", "wrap")


@dataclass(frozen=True)
class Column:
    """One column of a batch.

    Attributes:
        kind: ``"array"``, ``"bytes"``, ``"text"`` or ``"ragged"``.
        dtype: Type of the elements; None for bytes and text.
        shape: Shape in a full batch, rows first. A side that differs between batches is
            None. For lists of boxes or other rows, the shape of all rows together.
            The whole shape is None for bytes, text and lists of numbers.
    """

    kind: str
    dtype: str | None
    shape: tuple[int | None, ...] | None

    @classmethod
    def of_row(
        cls,
        kind: str,
        dtype: str | None,
        rows: int | None,
        shape: Sequence[int | None] | None,
    ) -> Self:
        """Returns the column for a row, or the item of a list, of this shape."""
        if shape is None:
            return cls(kind, dtype, None)
        return cls(kind, dtype, (None if kind == "ragged" else rows, *shape))


@dataclass(frozen=True)
class Cache:
    """The cache of decoded records, for ``open(cache=...)``.

        cache = infeed.Cache(memory="64GiB", disk="/nvme/cache", limit="1TiB")
        with pipeline.open(cache=cache) as loader:
            ...

    Attributes:
        memory: Most memory: bytes, a text such as ``"64GiB"``, or ``"auto"`` for half
            of the free memory. None: records are kept on the disk only.
        disk: Folder that keeps decoded records for later runs, created if missing.
            Datasets and processes may share it, also with `infeed.cache`. None: no
            folder.
        limit: Most bytes of everything in the folder.

    Raises:
        ConfigError: A value is not a size or a path, or there is neither memory nor
            disk.
    """

    memory: int | str | None = "auto"
    disk: str | os.PathLike[str] | None = None
    limit: int | str = "32GiB"

    def __post_init__(self) -> None:
        if self.memory is None and self.disk is None:
            raise ConfigError("Cache: set memory, disk, or both")
        self._core()

    @classmethod
    def of(
        cls, cache: "int | str | Cache | None"
    ) -> tuple[int | None, str | None, int] | None:
        """Returns the ``cache`` of `open` as the engine takes it."""
        if cache is None:
            return None
        if not isinstance(cache, Cache):
            return (_cache_bytes("open", "cache", cache), None, 0)
        return cache._core()

    def _core(self) -> tuple[int | None, str | None, int]:
        # An absolute path stays valid if the program changes its current folder.
        folder = self.disk
        if folder is not None:
            folder = os.path.abspath(_check.path("Cache", "disk", folder))
        memory = self.memory
        return (
            None if memory is None else _cache_bytes("Cache", "memory", memory),
            folder,
            _check.size_bytes(self.limit, "Cache", "limit"),
        )


def _cache_bytes(owner: str, name: str, limit: int | str) -> int:
    """Returns the bytes of a limit; 0 for ``"auto"``."""
    return 0 if limit == "auto" else _check.size_bytes(limit, owner, name)


@dataclass(frozen=True)
class DecodeOptions:
    """Options of `Pipeline.decode`."""

    orient: bool = False
    verify: bool = True
    dct_scale: bool = False
    max_pixels: int | None = None
    modes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("orient", "verify", "dct_scale"):
            _check.flag("decode", name, getattr(self, name))
        if self.max_pixels is not None:
            _check.integer("decode", "max_pixels", self.max_pixels, low=1)
        for field, mode in self.modes:
            _check.choice("decode", field, mode, _MODES)


@dataclass(frozen=True)
class BoxesOptions:
    """Options of `Pipeline.boxes`."""

    field: str
    format: BoxFormat = "xyxy"
    normalized: bool = False
    oriented: bool = False
    columns: tuple[str, ...] = ()
    min_size: float = 1.0
    min_area: float = 1.0
    min_visibility: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = _check.typed("boxes", name, getattr(self, name), kind)
            object.__setattr__(self, name, value)

    def code(self) -> str:
        """Returns the call of the method that sets these options."""
        given = [
            (f, getattr(self, f.name)) for f in fields(self) if f.default is not MISSING
        ]
        settings = [
            f"{f.name}={_code.value(item)}" for f, item in given if item != f.default
        ]
        return _code.method("boxes", [_code.value(self.field), *settings])


@dataclass(frozen=True)
class BatchOptions:
    """Options of `Pipeline.batch`: exactly one of `size` and `per_rank`."""

    size: int | None = None
    per_rank: int | None = None
    drop_last: bool = False
    pad: bool = False
    ragged: str | None = None
    tail: str | None = None

    def __post_init__(self) -> None:
        if (self.size is None) == (self.per_rank is None):
            raise _check.error(
                "batch", "size", "set, or per_rank, and not both", self.size
            )
        for name in ("size", "per_rank"):
            if getattr(self, name) is not None:
                _check.integer("batch", name, getattr(self, name), low=1)
        for name in ("drop_last", "pad"):
            _check.flag("batch", name, getattr(self, name))
        if self.ragged is not None:
            _check.choice("batch", "ragged", self.ragged, _RAGGED)
        if self.tail is not None:
            _check.choice("batch", "tail", self.tail, _TAILS)


SINGLE = BatchOptions(size=1)


def set_values(settings: Any) -> dict[str, Any]:
    """Returns the settings of a dataclass that are not None."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {name: item for name, item in values.items() if item is not None}
