"""Tables in files: Parquet and archives of NumPy."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infeed import _check, _code
from infeed._fields import Field, Fields, fields_code, fields_from, fields_table
from infeed.sources.base import Source


def files_code(
    kind: str, files: tuple[str, ...], fields: tuple[tuple[str, Field], ...]
) -> str:
    """The code that names files and fields."""
    named = _code.value(files[0] if len(files) == 1 else files)
    return f"sources.{kind}({named}{fields_code(fields)})"


@dataclass(frozen=True, init=False, repr=False)
class _Files(Source):
    """Files of one format, whose columns are the fields."""

    files: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
    ):
        named = [files] if isinstance(files, str | os.PathLike) else list(files)
        if not named:
            raise _check.refusal(self, "files", "at least one path or pattern", files)
        checked = tuple(_check.path(self, "files", path) for path in named)
        object.__setattr__(self, "files", checked)
        object.__setattr__(self, "fields", fields_from(self, fields))

    def __repr__(self) -> str:
        return files_code(type(self).__name__, self.files, self.fields)

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        table: dict[str, Any] = {"kind": kind, "files": list(self.files)}
        return table | fields_table(self.fields)


@dataclass(frozen=True, init=False, repr=False)
class Parquet(_Files):
    """Rows of Parquet files.

    A row group is read and decoded whole, only the columns that are fields, and is what
    shuffling goes by: row groups are permuted, and rows within a window of them. What a
    column is follows from its type, its first value and what ``datasets`` of Hugging
    Face wrote beside it: bytes, or ``{bytes, path}``, that begin as an image does are
    encoded images (masks, in a column named so), text is text, numbers are scalars
    (``label`` as int64), lists of fixed length are tensors or pixels, other lists are
    ragged.

    Args:
        files: Paths, patterns such as ``"train-*.parquet"``, or URLs.
        fields: Names of the columns that are read; or by name of the field the column
            it is taken from, or a `Field`. None: all that can be a
            field.

    Raises:
        ConfigError: When opened: a column is not there or cannot be what is asked.
        OpenError: When opened: a file cannot be read, or is none.
    """


@dataclass(frozen=True, init=False, repr=False)
class Npz(_Files):
    """Arrays of ``.npz`` files, each with some records of every array.

    Files of ``np.savez`` on this machine are mapped; of ``np.savez_compressed``, a file
    is read whole and is what shuffling goes by. A ``.npy`` is mapped by `Memory`, from
    ``np.load(path, mmap_mode="r")``.

    Args:
        files: Paths, patterns such as ``"batch-*.npz"``, or URLs.
        fields: Names of the arrays that are read; or by name of the field the array it
            is taken from, or a `Field`. None: all.

    Raises:
        ConfigError: When opened: an array is not there, or lengths differ.
        OpenError: When opened: a file cannot be read, or is none.
    """
