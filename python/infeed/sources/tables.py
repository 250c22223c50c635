"""Tables in files: Parquet, and NumPy archives."""

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


def files_code(
    kind: str,
    files: tuple[str, ...],
    fields: tuple[tuple[str, Field], ...],
    follow_links: bool,
) -> str:
    """Formats files, fields and links as the arguments of a call."""
    named = _code.value(files[0] if len(files) == 1 else files)
    return f"sources.{kind}({named}{fields_code(fields)}{links_code(follow_links)})"


@dataclass(frozen=True, init=False, repr=False)
class _Files(Source):
    """Base class: files of one format, whose columns are the fields."""

    files: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]
    follow_links: bool

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
        follow_links: bool = True,
    ):
        named = [files] if isinstance(files, str | os.PathLike) else list(files)
        if not named:
            raise _check.error(self, "files", "at least one path or pattern", files)
        checked = tuple(_check.path(self, "files", path) for path in named)
        object.__setattr__(self, "files", checked)
        object.__setattr__(self, "fields", fields_from(self, fields))
        _check.flag(self, "follow_links", follow_links)
        object.__setattr__(self, "follow_links", follow_links)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return files_code(kind, self.files, self.fields, self.follow_links)

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        table: dict[str, Any] = {"kind": kind, "files": list(self.files)}
        return table | fields_table(self.fields) | links_table(self.follow_links)


@dataclass(frozen=True, init=False, repr=False)
class Parquet(_Files):
    """Rows of Parquet files.

    A row group is read and decoded as a whole, but only the columns that are fields.
    Shuffling permutes row groups, and rows within a window of row groups. The kind of a
    column follows from its type, its first value and the metadata of Hugging Face
    ``datasets``. Bytes, or ``{bytes, path}``, that start like an image file are encoded
    images (masks in a column with that name). Text is text, numbers are scalars
    (``label`` as int64), lists of fixed length are tensors or pixels, and other lists
    are ragged.

    Args:
        files: Paths, patterns such as ``"train-*.parquet"``, or URLs.
        fields: Names of the columns to read; or the column, or a `Field`, by field
            name. None: all columns that can be a field.
        follow_links: As in `WebDataset`.

    Raises:
        ConfigError: Raised when the pipeline is opened: a column is missing or has
            another kind.
        OpenError: Raised when the pipeline is opened: a file cannot be read, or is not
            a Parquet file.
    """


@dataclass(frozen=True, init=False, repr=False)
class Npz(_Files):
    """Arrays of ``.npz`` files, each with some records of every array.

    Local files of ``np.savez`` are mapped. A file of ``np.savez_compressed`` is read as
    a whole, and shuffling permutes those files. To map a ``.npy`` file use `Memory`
    with ``np.load(path, mmap_mode="r")``.

    Args:
        files: Paths, patterns such as ``"batch-*.npz"``, or URLs.
        fields: Names of the arrays to read; or the array, or a `Field`, by field name.
            None: all.
        follow_links: As in `WebDataset`.

    Raises:
        ConfigError: Raised when the pipeline is opened: an array is missing, or lengths
            differ.
        OpenError: Raised when the pipeline is opened: a file cannot be read, or is not
            an NPZ file.
    """
