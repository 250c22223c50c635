"""Objects of Python: tables that speak Arrow, and anything with items."""

import json
import os
from dataclasses import dataclass
from typing import Any

from infeed import _check, _core
from infeed._fields import Field, Fields, fields_from, fields_table
from infeed.sources.base import Source
from infeed.sources.tables import files_code


class _Object(Source):
    """A source that the engine makes of an object, once, when it is first needed."""

    name: str
    _made: _core.Given | None

    def _make(self) -> _core.Given:
        raise NotImplementedError

    def _given(self) -> _core.Given:
        given = self._made
        if given is None:
            given = self._make()
            object.__setattr__(self, "_made", given)
        return given

    def _buffers(self) -> list[Any]:
        return [self._given()]

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        return {"kind": "given", "handle": first, "name": self.name}

    def __getstate__(self) -> dict[str, Any]:
        """The object alone: what the engine made of it stays in this process."""
        return self.__dict__ | {"_made": None}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Arrow(_Object):
    """Rows of Arrow IPC files, or of any table in memory that speaks Arrow.

    ``Arrow("cache/*.arrow")`` reads files and streams, such as the caches of Hugging
    Face's ``datasets``: mapped where they are on this machine and not compressed, else
    a record batch at a time, which is then what shuffling goes by. ``Arrow(table)``
    takes an object with ``__arrow_c_stream__`` (a table of PyArrow, a data frame of
    Polars, a relation of DuckDB, ...) or a ``datasets.Dataset`` without format and
    selection, and shares its memory. A stream is read to its end when the pipeline
    is opened first.

    What a column is follows from its type and first value, as in `Parquet`.

    Args:
        data: Paths, patterns or URLs; or the object.
        fields: Names of the columns that are read; or by name of the field the column
            it is taken from, or a `Field`. None: all that can be a field.

    Raises:
        ConfigError: ``data`` is no table. When opened: a column is not there or cannot
            be what is asked, or the object gives no table; its own exception is the
            cause.
        OpenError: When opened: a file cannot be read, or is none.
    """

    files: tuple[str, ...]
    data: Any
    fields: tuple[tuple[str, Field], ...]
    name: str
    _made: _core.Given | None

    def __init__(self, data: Any, fields: Fields | None = None):
        files: tuple[str, ...] = ()
        named = [data] if isinstance(data, str | os.PathLike) else data
        if isinstance(named, list | tuple) and named:
            files = tuple(_check.path(self, "data", path) for path in named)
        table = None if files else _hugging_face(data)
        if not files and table is None and not hasattr(data, "__arrow_c_stream__"):
            expected = "paths, or an object with __arrow_c_stream__; try sources.Items"
            raise _check.refusal(self, "data", expected, type(data).__name__)
        object.__setattr__(self, "files", files)
        source = table if table is not None else data
        object.__setattr__(self, "data", None if files else source)
        object.__setattr__(self, "fields", fields_from(self, fields))
        object.__setattr__(self, "name", f"the {type(data).__name__}")
        object.__setattr__(self, "_made", None)

    def __eq__(self, other: object) -> bool:
        """Equal settings over the same files or the very same object."""
        if not isinstance(other, Arrow):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (self.files, id(self.data), self.fields)

    def __repr__(self) -> str:
        if self.files:
            return files_code("Arrow", self.files, self.fields)
        return f"sources.Arrow(<{type(self.data).__name__}>)"

    def _make(self) -> _core.Given:
        return _core.table(self.data, self.name, _fields_json(self.fields))

    def _buffers(self) -> list[Any]:
        return [] if self.files else super()._buffers()

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        if not self.files:
            return super()._to_dict(first)
        table: dict[str, Any] = {"kind": "arrow", "files": list(self.files)}
        return table | fields_table(self.fields)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Items(_Object):
    """Items of a Python object: a ``torch.utils.data.Dataset``, a list, any sequence.

    ``__getitem__`` is called on the engine's I/O threads, under the interpreter's lock,
    so items come one at a time as far as they do not release it; `Loader.stats` and
    `Loader.explain` tell what that costs. A ``datasets.Dataset`` without format,
    transform and selection, whose images are in it, is read as `Arrow` instead, without
    Python.

    An item is a dictionary, or a tuple: ``image`` and ``label`` (or ``mask``, if the
    second is pixels). What a field is follows from item 0, and all others must be like
    it: arrays and tensors of one shape, numbers, str, bytes (images, if they begin as
    one), lists of numbers (ragged, or tensors where a `Field` says so or has a shape),
    images of Pillow, which may differ in size and need ``.decode()``. An exception
    makes a bad record, with what was raised as the reason.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``.
        fields: Names of the fields that are taken; or by name of the field the entry it
            is taken from, or a `Field`; for tuples of other things, the names in their
            order. None: all.

    Raises:
        ConfigError: ``dataset`` has no items. When opened: item 0 cannot be had, with
            its own exception as the cause, or a value of it cannot be a field.
    """

    dataset: Any
    fields: tuple[tuple[str, Field], ...]
    name: str
    _made: _core.Given | None

    def __init__(self, dataset: Any, fields: Fields | None = None):
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                expected = f"an object with {method}"
                raise _check.refusal(self, "dataset", expected, type(dataset).__name__)
        object.__setattr__(self, "dataset", dataset)
        object.__setattr__(self, "fields", fields_from(self, fields))
        object.__setattr__(self, "name", f"the {type(dataset).__name__}")
        object.__setattr__(self, "_made", None)

    def __eq__(self, other: object) -> bool:
        """Equal settings over the very same object."""
        if not isinstance(other, Items):
            return NotImplemented
        return self.dataset is other.dataset and self.fields == other.fields

    def __hash__(self) -> int:
        return hash((id(self.dataset), self.fields))

    def __repr__(self) -> str:
        return f"sources.Items(<{type(self.dataset).__name__}>)"

    def _make(self) -> _core.Given:
        fields = _fields_json(self.fields)
        table = _hugging_face(self.dataset)
        if table is not None and _holds_images(table):
            return _core.table(table, self.name, fields)
        return _core.items(self.dataset, self.name, fields)


def _fields_json(fields: tuple[tuple[str, Field], ...]) -> str:
    return json.dumps(fields_table(fields).get("fields", []))


def _hugging_face(data: Any) -> Any:
    """The table behind a `datasets.Dataset` that gives out its rows as they are."""
    if not type(data).__module__.startswith("datasets."):
        return None
    columns = getattr(data, "_format_columns", ())
    plain = (
        getattr(data, "_indices", True) is None
        and getattr(data, "_format_type", True) is None
        # A format may leave columns out and be of no type.
        and (columns is None or set(columns) == set(data.column_names))
    )
    return getattr(getattr(data, "data", None), "table", None) if plain else None


def _holds_images(table: Any) -> bool:
    """Whether no image of a table is only the path of a file."""
    for column in table.columns:
        names = [field.name for field in column.type] if _is_struct(column.type) else []
        if "bytes" in names and any(
            chunk.field("bytes").null_count for chunk in column.chunks
        ):
            return False
    return True


def _is_struct(kind: Any) -> bool:
    return str(kind).startswith("struct<")
