"""Sources: where records come from.

Frozen and plain: nothing is listed or read until the pipeline is opened. `Memory` is
the exception, since its arrays are there already.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from infeed import _check, _code
from infeed._columns import Column, column
from infeed._fields import Field, Kind, fields_code, fields_from, fields_table

__all__ = [
    "MDS",
    "Field",
    "Folder",
    "Memory",
    "Pairs",
    "Source",
    "TFRecord",
    "WebDataset",
]


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


@dataclass(frozen=True, init=False, repr=False)
class _Shards(Source):
    """Files that hold many records each, and the fields to take of them."""

    shards: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Mapping[str, str | Field | None] | None = None,
    ):
        names = [shards] if isinstance(shards, str | os.PathLike) else list(shards)
        if not names:
            raise _check.refusal(
                self, "shards", "a path or pattern, or several", shards
            )
        paths = tuple(_check.path(self, "shards", name) for name in names)
        object.__setattr__(self, "shards", paths)
        object.__setattr__(self, "fields", fields_from(self, fields))

    def __repr__(self) -> str:
        many = list(self.shards)
        shards = _code.value(many[0]) if len(many) == 1 else f"{many!r}"
        return f"sources.{type(self).__name__}({shards}{fields_code(self.fields)})"

    def _to_dict(self) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        table: dict[str, Any] = {"kind": kind, "shards": list(self.shards)}
        return table | fields_table(self.fields)


class WebDataset(_Shards):
    """Tar shards as the ``webdataset`` package writes them.

    Consecutive files of equal stem are one record; what follows the first dot of a base
    name, in lower case, says which field a file is. A shard is indexed when it is first
    opened; an index beside it (``wds2idx`` writes one) is used instead.

    Args:
        shards: A path or pattern such as ``"train-{0000..0146}.tar"``, or several.
        fields: By name of the field the extension it is taken from, several by ``;``
            (``{"image": "jpg;png", "label": "cls"}``), or a `Field`; ``"__key__"`` is
            the stem. Without it, what the first record holds: a single image is
            ``image``, ``cls`` is ``label``, an image in ``mask.png`` or ``seg.png`` is
            ``mask``, and the others are called by their extensions.

    Raises:
        ConfigError: When opened: a pattern matches nothing, or there are no records.
        OpenError: When opened: a shard is none or was cut; the message has the byte.
    """


class TFRecord(_Shards):
    """TFRecord shards of ``tf.train.Example``, plain or in gzip or zlib.

    Checksums are verified. Lists of floats and integers become tensors, those of bytes
    must have one value.

    Args:
        shards: A path or pattern such as ``"train-*-of-01024"``, or several.
        fields: By name of the field the feature it is taken from, several by ``;``, or
            a `Field`. ``None`` stands for the field's own name, and for the usual ones
            of ``image``, ``label`` and ``mask`` (``image/encoded``,
            ``image/class/label``). Without it, all features that the first records
            have alike.

    Raises:
        ConfigError: When opened: a pattern matches nothing, or there are no records.
        OpenError: When opened: a shard is none or was cut, or a feature is not there;
            the message names those that are.
    """


@dataclass(frozen=True, init=False, repr=False)
class MDS(Source):
    """A folder of MDS shards, as MosaicML Streaming writes them, raw, zstd or gz.

    Columns that are pickled are refused: reading them would run code that lies in the
    data.

    Args:
        path: The folder or URL that holds ``index.json``.
        fields: By name of the field the column it is taken from, or a `Field`;
            ``None`` for the field's own name. Without it, all columns.

    Raises:
        ConfigError: When opened: a column is not there or cannot be read.
        OpenError: When opened: a shard is missing or was cut.
    """

    path: str
    fields: tuple[tuple[str, Field], ...]

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Mapping[str, str | Field | None] | None = None,
    ):
        object.__setattr__(self, "path", _check.path(self, "path", path))
        object.__setattr__(self, "fields", fields_from(self, fields))

    def __repr__(self) -> str:
        return f"sources.MDS({_code.value(self.path)}{fields_code(self.fields)})"

    def _to_dict(self) -> dict[str, Any]:
        return {"kind": "mds", "path": self.path} | fields_table(self.fields)


def from_dict(table: dict[str, Any]) -> Source:
    """Makes the source that a description names."""
    settings = dict(table)
    kind = settings.pop("kind")
    if kind == "memory":
        columns = (Column.from_dict(field) for field in settings["fields"])
        return Memory._from_columns(tuple(columns))
    kinds: dict[str, type[Source]] = {
        "folder": Folder,
        "pairs": Pairs,
        "webdataset": WebDataset,
        "tfrecord": TFRecord,
        "mds": MDS,
    }
    if "fields" in settings:
        settings["fields"] = Field._from_tables(settings["fields"])
    return kinds[kind](**settings)
