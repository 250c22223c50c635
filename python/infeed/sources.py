"""Sources: where records come from.

Frozen and plain: nothing is listed or read until the pipeline is opened. `Memory` is
the exception, since its arrays are there already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from infeed import _check, _code
from infeed._columns import Column, column

__all__ = ["Folder", "Memory", "Pairs", "Source"]


@dataclass(frozen=True)
class Source:
    """What all sources have in common: they are settings, equal if those are."""

    def __repr__(self) -> str:
        return _code.call(f"sources.{type(self).__name__}", self)

    def _to_dict(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": type(self).__name__.lower(), **settings}

    def _buffers(self) -> list[Any]:
        """Bytes that the description refers to by their place in this list."""
        return []


@dataclass(frozen=True, repr=False)
class Folder(Source):
    """Image files below a folder, with labels if there are any.

    Fields are ``image`` and, with labels, ``label``: an int64 scalar.

    Args:
        path: The folder.
        labels: ``"auto"``: the class is the folder directly below ``path``, numbered in
            sorted order as torchvision's ``ImageFolder`` does; without such folders
            there are no labels. ``"none"``: no labels. Else the path of a CSV file
            with the columns ``path,label``, whose rows are the records.

    Raises:
        ConfigError: When opened: there are no images, or a class has none.
        OpenError: When opened: the folder cannot be listed.
    """

    path: str
    labels: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _check.path(self, "path", self.path))
        object.__setattr__(self, "labels", _check.path(self, "labels", self.labels))


@dataclass(frozen=True, repr=False)
class Pairs(Source):
    """Images and masks in two folders, paired by equal name without extension.

    Fields are ``image`` and ``mask``.

    Args:
        image: The folder of images.
        mask: The folder of masks.

    Raises:
        ConfigError: When opened: a file has no partner; the message names it.
        OpenError: When opened: a folder cannot be listed.
    """

    image: str
    mask: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", _check.path(self, "image", self.image))
        object.__setattr__(self, "mask", _check.path(self, "mask", self.mask))

    def __repr__(self) -> str:
        image, mask = _code.value(self.image), _code.value(self.mask)
        return f"sources.Pairs(image={image}, mask={mask})"


Kind = Literal["image", "mask", "tensor", "bytes", "text", "ragged"]


@dataclass(frozen=True, init=False, repr=False)
class Memory(Source):
    """Arrays and lists that are in memory already, one element a record, by field name.

    What a field is follows from what it is given, unless ``kinds`` says it:

    - uint8 ``[N, H, W, C]`` with 1, 3 or 4 channels: images. A field named ``image``
      may be ``[N, H, W]``, gray.
    - uint8 or uint16 ``[N, H, W]`` in a field named ``mask``: masks.
    - any other array of numbers: tensors ``[N, ...]`` or scalars ``[N]``.
    - a list of bytes: encoded images in a field named ``image`` or ``mask``, else
      bytes.
    - a list of str: text.
    - a list of one-dimensional arrays of unequal length, or ``(values, offsets)``:
      ragged.

    Arrays are used where they lie; do not write to them while a loader is open. An
    array from ``np.load(path, mmap_mode="r")`` is mapped by the engine itself. Arrays
    that are not contiguous, or not in the machine's byte order, are copied once, with a
    warning; lists are copied into one buffer.

    Args:
        kinds: Kinds by field name, where they are not to be guessed.
        **fields: Arrays or lists by field name, all of equal length.

    Raises:
        ConfigError: Lengths differ, or a field cannot be what it should; the message
            names the fields.
    """

    columns: tuple[Column, ...]

    def __init__(self, *, kinds: Mapping[str, Kind] | None = None, **fields: Any):
        kinds = dict(kinds or {})
        for name in kinds:
            if name not in fields:
                raise _check.refusal(self, "kinds", "about fields that are given", name)
        if not fields:
            raise _check.refusal(self, "fields", "given, such as image=array", {})
        columns = tuple(
            column(name, data, kinds.get(name)) for name, data in fields.items()
        )
        first = columns[0]
        for other in columns[1:]:
            if other.records != first.records:
                raise _check.refusal(
                    self,
                    other.name,
                    f"as long as {first.name} ({first.records} records)",
                    other.records,
                )
        object.__setattr__(self, "columns", columns)

    def __repr__(self) -> str:
        inner = ", ".join(f"{c.name}=<{c.summary()}>" for c in self.columns)
        return f"sources.Memory({inner})"

    def _to_dict(self) -> dict[str, Any]:
        handles = iter(range(len(self._buffers())))
        described = [column.to_dict(handles) for column in self.columns]
        return {"kind": "memory", "fields": described}

    def _buffers(self) -> list[Any]:
        return [buffer for column in self.columns for buffer in column.buffers()]

    @classmethod
    def _from_columns(cls, columns: tuple[Column, ...]) -> "Memory":
        memory = cls.__new__(cls)
        object.__setattr__(memory, "columns", columns)
        return memory


def from_dict(table: dict[str, Any]) -> Source:
    """Makes the source that a description names."""
    settings = dict(table)
    kind = settings.pop("kind")
    if kind == "memory":
        columns = (Column.from_dict(field) for field in settings["fields"])
        return Memory._from_columns(tuple(columns))
    return Folder(**settings) if kind == "folder" else Pairs(**settings)
