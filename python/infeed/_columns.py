"""Fields of `sources.Memory`: the kind of an array or list, and its bytes.

The engine receives a table for each column, and the bytes of all columns as a flat list
of uint8 arrays ("handles"), to which the tables refer by number:

    name, kind, dtype, shape, handle                  array in memory
    name, kind, dtype, shape, path, offset, records   array mapped from a file
    name, kind, dtype, handle, offsets                ragged
    name, kind, handle, offsets                       encoded image, bytes, text
    name, kind, handle, offsets, files                image files: their paths

``shape`` is that of one record: three dimensions for an image, two for a mask.
``offset`` is in bytes. ``offsets`` is the handle of records + 1 ascending uint64: the
position in ``handle`` at which each record begins, in elements.
"""

import logging
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from infeed.errors import ConfigError

_log = logging.getLogger("infeed")

_DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
)

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, eq=False)
class MemoryColumn:
    """One field of all records."""

    name: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    path: str | None = None
    offset: int = 0
    values: np.ndarray | None = field(default=None, repr=False)
    offsets: np.ndarray | None = field(default=None, repr=False)
    files: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether settings are equal, over the same file or the same array."""
        if not isinstance(other, MemoryColumn):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        address = None
        if self.values is not None:
            address = (self.values.ctypes.data, self.values.nbytes)
        settings = (self.name, self.kind, self.dtype, self.shape, self.files)
        return (*settings, self.path, self.offset, address)

    @property
    def records(self) -> int:
        """Number of records."""
        if self.offsets is not None:
            return len(self.offsets) - 1
        return self.shape[0] if self.shape else 0

    def summary(self) -> str:
        """Describes it in a message: ``uint8 [20000, 224, 224, 3] in train.npy``."""
        text = f"{self.records} {self.kind}{' files' if self.files else ''}"
        if self.shape is not None:
            text = f"{self.dtype} {list(self.shape)}"
        return text if self.path is None else f"{text} in {self.path}"

    def buffers(self) -> list[np.ndarray]:
        """Returns its bytes, in the order in which `to_dict` numbers them."""
        held = (self.values, self.offsets)
        return [_as_bytes(array) for array in held if array is not None]

    def to_dict(self, handles: Iterator[int]) -> dict[str, Any]:
        """Returns its table, with numbers from the iterator."""
        table: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.dtype is not None:
            table["dtype"] = self.dtype
        if self.shape is not None:
            table["shape"] = list(self.shape[1:])
        if self.path is not None:
            table |= {"path": self.path, "offset": self.offset, "records": self.records}
        if self.values is not None:
            table["handle"] = next(handles)
        if self.offsets is not None:
            table["offsets"] = next(handles)
        if self.files:
            table["files"] = True
        return table

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "MemoryColumn":
        """Returns the column of a saved description: an array in a file.

        Raises:
            ConfigError: The table does not describe one.
        """
        for needed in ("dtype", "path", "records"):
            if table.get(needed) is None:
                expected = f"must have `{needed}`, because a file has no buffers"
                raise _wrong(table["name"], expected, "none")
        return cls(
            name=table["name"],
            kind=table["kind"],
            dtype=table["dtype"],
            shape=(table["records"], *table.get("shape", ())),
            path=table["path"],
            offset=table.get("offset", 0),
        )


def column(name: str, data: Any, kind: str | None) -> MemoryColumn:
    """Returns the column for `data`, with its bytes.

    Raises:
        ConfigError: `data` cannot be a field, or does not have the kind `kind`.
    """
    if isinstance(data, np.ndarray):
        return _array(name, data, kind)
    if isinstance(data, tuple) and len(data) == 2:
        values, offsets = data
        if isinstance(values, np.ndarray) and isinstance(offsets, np.ndarray):
            return _ragged_column(name, values, offsets)
    if not isinstance(data, list | tuple):
        raise _wrong(name, "must be a NumPy array or a list", type(data).__name__)
    if not data:
        raise _wrong(name, "must not be empty", data)
    if all(isinstance(item, bytes | bytearray | memoryview) for item in data):
        guess = name if name in ("image", "mask") else "bytes"
        return _join_bytes(name, kind or guess, ("image", "mask", "bytes"), data)
    if kind in ("image", "mask") and all(
        isinstance(item, str | os.PathLike) for item in data
    ):
        paths = [os.fsencode(item) for item in data]
        return replace(_join_bytes(name, kind, (kind,), paths), files=True)
    if all(isinstance(item, str) for item in data):
        encoded = [item.encode() for item in data]
        return _join_bytes(name, kind or "text", ("text",), encoded)
    if all(isinstance(item, np.ndarray) for item in data):
        if kind == "ragged" or len({item.shape for item in data}) > 1:
            return _ragged_list(name, data)
        return _array(name, np.stack(data), kind)
    try:
        array = np.asarray(data)
    except ValueError:
        return _ragged_list(name, data)
    return _array(name, array, kind)


def _array(name: str, array: np.ndarray, kind: str | None) -> MemoryColumn:
    if array.ndim == 0:
        raise _wrong(name, "must have one element per record", "a scalar")
    if array.dtype.name not in _DTYPES:
        options = ", ".join(_DTYPES)
        raise _wrong(name, f"must hold numbers ({options})", array.dtype.name)
    kind = kind or _guess(name, array)
    shape = _shape(name, array, kind)
    path, offset = _file_of(array)
    if path is None and not (array.flags.c_contiguous and array.dtype.isnative):
        _log.warning(
            "%s: copied once (%d MB), because it is not contiguous in native byte "
            "order; np.ascontiguousarray avoids the second copy",
            name,
            array.nbytes // 1_000_000,
        )
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return MemoryColumn(
        name=name,
        kind=kind,
        dtype=array.dtype.name,
        shape=shape,
        path=path,
        offset=offset,
        values=array if path is None else None,
    )


def _guess(name: str, array: np.ndarray) -> str:
    """Returns the default kind of an array."""
    small = array.dtype in (np.uint8, np.uint16)
    if name == "mask" and small and array.ndim == 3:
        return "mask"
    if array.dtype == np.uint8:
        if array.ndim == 4 and array.shape[3] in _CHANNELS:
            return "mask" if name == "mask" else "image"
        if array.ndim == 3 and name == "image":
            return "image"
    return "tensor"


def _shape(name: str, array: np.ndarray, kind: str) -> tuple[int, ...]:
    """Returns the shape of an array of this kind for the engine."""
    if kind == "tensor":
        return array.shape
    if kind not in ("image", "mask"):
        raise _wrong(name, f'of kind "{kind}" must be a list', "an array")
    deep = array.dtype in (np.uint8, np.uint16)
    gray = array.ndim == 3
    if not deep or not (gray or (array.ndim == 4 and array.shape[3] in _CHANNELS)):
        raise _wrong(
            name,
            f'of kind "{kind}" must be uint8 or uint16 [N, H, W] or [N, H, W, C]',
            f"{array.dtype.name} {list(array.shape)}",
        )
    return (*array.shape, 1) if gray and kind == "image" else array.shape


def _file_of(array: np.ndarray) -> tuple[str | None, int]:
    """Returns the file of a mapped array, and the offset of the array in it.

    A slice of a `np.memmap` has the offset of the whole array, so the offset is
    computed from addresses. Arrays with mode "c" may differ from their file.
    """
    mapping = getattr(array, "_mmap", None)
    path = getattr(array, "filename", None)
    plain = array.flags.c_contiguous and array.dtype.isnative
    mode = getattr(array, "mode", None)
    offset = getattr(array, "offset", None)
    if mapping is None or path is None or offset is None or not plain or mode == "c":
        return None, 0
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    base = np.frombuffer(mapping, np.uint8).ctypes.data
    return str(path), start + array.ctypes.data - base


def _join_bytes(
    name: str, kind: str, allowed: tuple[str, ...], items: Sequence[Any]
) -> MemoryColumn:
    """Copies byte strings of any length into one buffer."""
    if kind not in allowed:
        raise _wrong(
            name, f'of kind "{kind}" must be an array', "a list of byte strings"
        )
    offsets = np.zeros(len(items) + 1, np.uint64)
    np.cumsum([memoryview(item).nbytes for item in items], out=offsets[1:])
    values = np.frombuffer(b"".join(items), np.uint8)
    return MemoryColumn(name=name, kind=kind, values=values, offsets=offsets)


def _ragged_list(name: str, items: Any) -> MemoryColumn:
    """Copies arrays of any length into one, with their rows one after another."""
    arrays = [np.asarray(item) for item in items]
    row = arrays[0].shape[1:]
    for array in arrays:
        lists = array.ndim in (1, 2) and array.shape[1:] == row
        if not lists or array.dtype.name not in _DTYPES:
            raise _wrong(
                name,
                "must have items [n], or [n, k] with one k, if lengths differ",
                f"{array.dtype.name} {list(array.shape)}",
            )
    offsets = np.zeros(len(arrays) + 1, np.uint64)
    np.cumsum([array.size for array in arrays], out=offsets[1:])
    return _ragged_column(name, np.concatenate(arrays).reshape(-1), offsets)


def _ragged_column(name: str, values: np.ndarray, offsets: np.ndarray) -> MemoryColumn:
    if values.ndim != 1 or values.dtype.name not in _DTYPES:
        found = f"{values.dtype.name} {list(values.shape)}"
        raise _wrong(name, "must have one-dimensional values of numbers", found)
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise _wrong(name, "must have integer offsets, one more than records", offsets)
    if (
        offsets[0] < 0
        or (offsets[1:] < offsets[:-1]).any()
        or offsets[-1] > len(values)
    ):
        raise _wrong(
            name, f"must have offsets that ascend from 0 to {len(values)}", offsets
        )
    return MemoryColumn(
        name=name,
        kind="ragged",
        dtype=values.dtype.name,
        values=np.ascontiguousarray(values, values.dtype.newbyteorder("=")),
        offsets=np.ascontiguousarray(offsets, np.uint64),
    )


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """Returns the memory of a contiguous array as uint8, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _wrong(name: str, expected: str, found: object) -> ConfigError:
    return ConfigError(f"Memory: {name} {expected}, got {found}")
