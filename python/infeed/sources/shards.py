"""Shards: files with many records each."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infeed import _check, _code
from infeed._fields import (
    Field,
    Fields,
    fields_code,
    fields_from,
    fields_table,
    links_code,
    links_table,
)
from infeed.sources.base import Source


@dataclass(frozen=True, init=False, repr=False)
class _Shards(Source):
    """Base class: files with many records each, and the fields to take from them."""

    shards: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]
    follow_links: bool

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
        follow_links: bool = True,
    ):
        names = [shards] if isinstance(shards, str | os.PathLike) else list(shards)
        if not names:
            raise _check.error(self, "shards", "a path or pattern, or several", shards)
        paths = tuple(_check.path(self, "shards", name) for name in names)
        object.__setattr__(self, "shards", paths)
        object.__setattr__(self, "fields", fields_from(self, fields))
        _check.flag(self, "follow_links", follow_links)
        object.__setattr__(self, "follow_links", follow_links)

    def __repr__(self) -> str:
        many = list(self.shards)
        shards = _code.value(many[0]) if len(many) == 1 else f"{many!r}"
        settings = fields_code(self.fields) + links_code(self.follow_links)
        return f"sources.{type(self).__name__}({shards}{settings})"

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        table: dict[str, Any] = {"kind": kind, "shards": list(self.shards)}
        return table | fields_table(self.fields) | links_table(self.follow_links)


class WebDataset(_Shards):
    """Tar shards in the format of the ``webdataset`` package.

    Consecutive files with equal stem are one record. The part of a base name after its
    first dot, in lower case, identifies the field. A shard is indexed when it is first
    opened. If there is an index file next to it, as ``wds2idx`` writes, that is used.

    Args:
        shards: Path or pattern, such as ``"train-{0000..0146}.tar"``, or several.
        fields: Extension by field name, alternatives separated by ``;``
            (``{"image": "jpg;png", "label": "cls"}``), or a `Field`. ``"__key__"`` is
            the stem. None: the files of the first records, which must have the same
            fields. A single image becomes ``image``, ``cls`` becomes ``label``, an
            image in ``mask.png`` or ``seg.png`` becomes ``mask``, and others have their
            extension as name.
        follow_links: Whether a pattern matches shards through symbolic links. A path
            without wildcards is always followed.

    Raises:
        ConfigError: Raised when the pipeline is opened: a pattern matches nothing, or
            there are no records.
        OpenError: Raised when the pipeline is opened: a file is not a tar shard or is
            truncated, the files of a record are not next to each other, a field is a
            link, or only some of the first records have a field; the message has the
            byte or the name, and the fix.
    """


class TFRecord(_Shards):
    """TFRecord shards of ``tf.train.Example``, plain or compressed with gzip or zlib.

    Checksums are verified. Lists of floats and integers become tensors. Lists of bytes
    must have one value.

    Args:
        shards: Path or pattern, such as ``"train-*-of-01024"``, or several.
        fields: Feature by field name, alternatives separated by ``;``, or a `Field`.
            A value of None stands for the field's own name, and for the usual features
            of ``image``, ``label`` and ``mask`` (``image/encoded``,
            ``image/class/label``). None: all features of the first records, which must
            have the same features.
        follow_links: As in `WebDataset`.

    Raises:
        ConfigError: Raised when the pipeline is opened: a pattern matches nothing, or
            there are no records.
        OpenError: Raised when the pipeline is opened: a file is not a TFRecord shard or
            is truncated, a feature is missing, or only some of the first records have
            it; the message names the existing ones.
    """


@dataclass(frozen=True, init=False, repr=False)
class MDS(Source):
    """A folder of MDS shards in the format of MosaicML Streaming: raw, zstd or gz.

    Pickled columns are left out, because reading them could run code in the data.

    Args:
        path: Folder or URL that has ``index.json``.
        fields: Column by field name, or a `Field`; a value of None stands for the
            field's own name. None: all columns.
        follow_links: Whether files of the folder may be symbolic links.

    Raises:
        ConfigError: Raised when the pipeline is opened: a column is missing or cannot
            be read.
        OpenError: Raised when the pipeline is opened: a shard is missing or truncated.
    """

    path: str
    fields: tuple[tuple[str, Field], ...]
    follow_links: bool

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Fields | None = None,
        follow_links: bool = True,
    ):
        object.__setattr__(self, "path", _check.path(self, "path", path))
        object.__setattr__(self, "fields", fields_from(self, fields))
        _check.flag(self, "follow_links", follow_links)
        object.__setattr__(self, "follow_links", follow_links)

    def __repr__(self) -> str:
        settings = fields_code(self.fields) + links_code(self.follow_links)
        return f"sources.MDS({_code.value(self.path)}{settings})"

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        table: dict[str, Any] = {"kind": "mds", "path": self.path}
        return table | fields_table(self.fields) | links_table(self.follow_links)
