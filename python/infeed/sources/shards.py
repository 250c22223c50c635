"""Shards: files that hold many records each, one behind the other."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infeed import _check, _code
from infeed._fields import Field, Fields, fields_code, fields_from, fields_table
from infeed.sources.base import Source


@dataclass(frozen=True, init=False, repr=False)
class _Shards(Source):
    """Files that hold many records each, and the fields to take of them."""

    shards: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
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

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
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
        fields: Fields | None = None,
    ):
        object.__setattr__(self, "path", _check.path(self, "path", path))
        object.__setattr__(self, "fields", fields_from(self, fields))

    def __repr__(self) -> str:
        return f"sources.MDS({_code.value(self.path)}{fields_code(self.fields)})"

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        return {"kind": "mds", "path": self.path} | fields_table(self.fields)
