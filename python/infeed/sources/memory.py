"""Arrays and lists in memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed import _check
from infeed._columns import MemoryColumn, column
from infeed._fields import Kind
from infeed.sources.base import Source


@dataclass(frozen=True, init=False, repr=False)
class Memory(Source):
    """Arrays and lists in memory by field name, with one element per record.

        Memory(image=paths, label=labels, kinds={"image": "image"})  # image files

    The data determines the kind of a field, unless ``kinds`` sets it:

    - uint8 ``[N, H, W, C]`` with 1, 3 or 4 channels: images. A field named ``image``
      may be ``[N, H, W]``, grey.
    - uint8 or uint16 ``[N, H, W]`` in a field named ``mask``: masks.
    - any other array of numbers: tensors ``[N, ...]`` or scalars ``[N]``.
    - a list of bytes: encoded images in a field named ``image`` or ``mask``, else
      bytes.
    - a list of str: text. With the kind ``"image"`` or ``"mask"`` in ``kinds``, paths
      or URLs of image files, which are read with their records.
    - a list of arrays ``[n]`` or ``[n, k]`` of unequal length, or ``(values,
      offsets)``: ragged, as flat lists of numbers.

    Arrays are not copied; do not write to them while a loader is open. The engine
    itself maps an array from ``np.load(path, mmap_mode="r")``. Arrays that are not
    contiguous, or not in native byte order, are copied once with a warning. Lists are
    copied into one buffer.

    Args:
        kinds: Kind by field name, where the data does not determine it.
        **fields: Array or list by field name, all of equal length.

    Raises:
        ConfigError: Lengths differ, or a field cannot have its kind; the message names
            the fields.
    """

    columns: tuple[MemoryColumn, ...]

    def __init__(self, *, kinds: Mapping[str, Kind] | None = None, **fields: Any):
        kinds = dict(kinds or {})
        for name in kinds:
            if name not in fields:
                raise _check.error(self, "kinds", "a mapping of existing fields", name)
        if not fields:
            raise _check.error(self, "fields", "set, such as image=array", {})
        columns = tuple(
            column(name, data, kinds.get(name)) for name, data in fields.items()
        )
        first = columns[0]
        for other in columns[1:]:
            if other.records != first.records:
                raise _check.error(
                    self,
                    other.name,
                    f"as long as {first.name} ({first.records} records)",
                    other.records,
                )
        object.__setattr__(self, "columns", columns)

    def __repr__(self) -> str:
        inner = ", ".join(f"{c.name}=<{c.summary()}>" for c in self.columns)
        return f"sources.Memory({inner})"

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        handles = iter(range(first, first + len(self._buffers())))
        described = [column.to_dict(handles) for column in self.columns]
        return {"kind": "memory", "fields": described}

    def _buffers(self) -> list[Any]:
        return [buffer for column in self.columns for buffer in column.buffers()]

    @classmethod
    def _from_columns(cls, columns: tuple[MemoryColumn, ...]) -> "Memory":
        memory = cls.__new__(cls)
        object.__setattr__(memory, "columns", columns)
        return memory
