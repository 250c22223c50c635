"""Python objects as sources: Arrow tables, and sequences of items."""

import json
import os
from dataclasses import dataclass
from typing import Any

from infeed import _check, _core
from infeed._fields import Field, Fields, fields_from, fields_table, links_table
from infeed._functions import item_by_key
from infeed._identity import location
from infeed.errors import ConfigError
from infeed.seeding import SeededSamples
from infeed.sources.base import Source
from infeed.sources.tables import files_code


class _Object(Source):
    """Base class of sources that the engine makes from an object on first use."""

    name: str
    _made: _core.PythonSource | None

    def _make(self) -> _core.PythonSource:
        raise NotImplementedError

    def _core_source(self) -> _core.PythonSource:
        given = self._made
        if given is None:
            given = self._make()
            object.__setattr__(self, "_made", given)
        return given

    def _buffers(self) -> list[Any]:
        return [self._core_source()]

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        return {"kind": "object", "handle": first, "name": self.name}

    def __getstate__(self) -> dict[str, Any]:
        """Returns the object alone; the engine's source stays in this process."""
        return self.__dict__ | {"_made": None}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Arrow(_Object):
    """Rows of Arrow IPC files, or of a table in memory.

    ``Arrow("cache/*.arrow")`` reads Arrow files and streams, such as the caches of
    Hugging Face ``datasets``. Uncompressed local files are mapped. Other files are read
    one record batch at a time, and shuffling permutes those batches.
    ``Arrow(table)`` shares the memory of an object with ``__arrow_c_stream__`` (a
    PyArrow table, a Polars data frame, a DuckDB relation, ...), or of a
    ``datasets.Dataset`` without format, which may be mapped, filtered, selected or
    shuffled. A stream is read to its end when the pipeline is first opened.

    The kind of a column follows from its type and first value, as in `Parquet`.

    Args:
        data: Paths, patterns or URLs; or the object.
        fields: Names of the columns to read; or the column, or a `Field`, by field
            name. None: all columns that can be a field.
        follow_links: As in `WebDataset`, for paths.

    Raises:
        ConfigError: ``data`` is not a table. Raised when the pipeline is opened: a
            column is missing or has another kind, or the object returns no table; its
            exception is the cause.
        OpenError: Raised when the pipeline is opened: a file cannot be read, or is not
            an Arrow file.
    """

    files: tuple[str, ...]
    data: Any
    rows: Any
    fields: tuple[tuple[str, Field], ...]
    follow_links: bool
    name: str
    _made: _core.PythonSource | None

    def __init__(
        self, data: Any, fields: Fields | None = None, follow_links: bool = True
    ):
        _check.flag(self, "follow_links", follow_links)
        object.__setattr__(self, "follow_links", follow_links)
        files: tuple[str, ...] = ()
        named = [data] if isinstance(data, str | os.PathLike) else data
        if isinstance(named, list | tuple) and named:
            files = tuple(_check.path(self, "data", path) for path in named)
        if not files:
            _check_hugging_face(self, "data", data)
        found = None if files else _hugging_face(data)
        if not files and found is None and not hasattr(data, "__arrow_c_stream__"):
            expected = "paths, or an object with __arrow_c_stream__; try sources.Items"
            raise _check.error(self, "data", expected, type(data).__name__)
        object.__setattr__(self, "files", files)
        table, rows = found or (None if files else data, None)
        object.__setattr__(self, "data", table)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "fields", fields_from(self, fields))
        object.__setattr__(self, "name", f"the {type(data).__name__}")
        object.__setattr__(self, "_made", None)

    def __eq__(self, other: object) -> bool:
        """Whether settings are equal, over the same files or the same object."""
        if not isinstance(other, Arrow):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (
            self.files,
            id(self.data),
            id(self.rows),
            self.fields,
            self.follow_links,
        )

    def __repr__(self) -> str:
        if self.files:
            return files_code("Arrow", self.files, self.fields, self.follow_links)
        return f"sources.Arrow(<{type(self.data).__name__}>)"

    def _make(self) -> _core.PythonSource:
        fields = _fields_json(self.fields)
        return _core.table(self.data, self.name, fields, self.rows)

    def _buffers(self) -> list[Any]:
        return [] if self.files else super()._buffers()

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        if not self.files:
            return super()._to_dict(first)
        table: dict[str, Any] = {"kind": "arrow", "files": list(self.files)}
        return table | fields_table(self.fields) | links_table(self.follow_links)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Items(_Object):
    """Items of a Python object: a ``torch.utils.data.Dataset``, a list, any sequence.

    The engine's I/O threads call ``__getitem__``, one at a time unless ``threads`` is
    set, because a dataset may keep an open file. `Loader.stats` and `Loader.explain`
    report the cost. A ``datasets.Dataset`` without format and transform that contains
    its images is read like `Arrow`, without Python.

    An item is a dictionary, or a tuple of ``image`` and ``label`` (or ``mask``, if the
    second value has pixels). Item 0 determines the kinds of fields, and all other items
    must match: arrays and tensors of one shape, numbers, str, bytes (an image if they
    start like an image file), lists of numbers (ragged, or tensors if a `Field` sets
    the kind or shape), and Pillow images, which may differ in size and need
    ``.decode()``. An item that raises an exception is a bad record with that reason.

    A parameter ``rng`` of ``__getitem__`` after the number receives a NumPy generator
    that depends on the seed, the epoch and the position, as that of `Pipeline.python`.
    `infeed.seeding.seed_draws` does the same for a dataset without such a parameter.

    Args:
        dataset: Object with ``__len__`` and ``__getitem__``.
        fields: Names of the fields to take; or the entry, or a `Field`, by field name.
            For other tuples: the field names in order. None: all.
        deterministic: Whether each item is always the same, so that a cache may keep
            it. Needs ``version``.
        version: Version of the items, from 0. Change it when the items change. Objects
            of one class with the same number of items, the same first item and the same
            version share their items in a cache.
        threads: Number of threads that may call ``__getitem__`` at a time. Set it for a
            dataset that is thread-safe and waits, for example for a network, and open
            the loader with as many ``io_threads``.

    Raises:
        ConfigError: ``dataset`` has no items. Raised when the pipeline is opened: item
            0 raises an exception, which is the cause, or a value cannot be a field.
    """

    dataset: Any
    fields: tuple[tuple[str, Field], ...]
    name: str
    version: int | None
    threads: int
    _made: _core.PythonSource | None

    def __init__(
        self,
        dataset: Any,
        fields: Fields | None = None,
        *,
        deterministic: bool = False,
        version: int | None = None,
        threads: int = 1,
    ):
        threads = _check.integer(self, "threads", threads, low=1)
        object.__setattr__(self, "threads", threads)
        version = _check.version(self, deterministic, version)
        if version is not None and item_by_key(dataset) is not None:
            raise ConfigError(
                "Items: __getitem__ draws random numbers, so items are not "
                "deterministic; remove its parameter rng, or leave deterministic out"
            )
        object.__setattr__(self, "version", version)
        _check_hugging_face(self, "dataset", dataset)
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                expected = f"an object with {method}"
                raise _check.error(self, "dataset", expected, type(dataset).__name__)
        object.__setattr__(self, "dataset", dataset)
        object.__setattr__(self, "fields", fields_from(self, fields))
        object.__setattr__(self, "name", f"the {self._class_name()}")
        object.__setattr__(self, "_made", None)

    def _class_name(self) -> str:
        is_seeded = isinstance(self.dataset, SeededSamples)
        return type(self.dataset.dataset if is_seeded else self.dataset).__name__

    def __eq__(self, other: object) -> bool:
        """Whether settings are equal, over the same object."""
        if not isinstance(other, Items):
            return NotImplemented
        settings = (self.fields, self.version, self.threads)
        return self.dataset is other.dataset and settings == (
            other.fields,
            other.version,
            other.threads,
        )

    def __hash__(self) -> int:
        return hash((id(self.dataset), self.fields, self.version, self.threads))

    def __repr__(self) -> str:
        name = f"<{self._class_name()}>"
        is_seeded = isinstance(self.dataset, SeededSamples)
        if is_seeded:
            name = f"infeed.seeding.seed_draws({name})"
        return f"sources.Items({name})"

    def _make(self) -> _core.PythonSource:
        fields = _fields_json(self.fields)
        if (found := self._table()) is not None:
            return _core.table(found[0], self.name, fields, found[1])
        settings = (self.name, fields, self._identity(), self.threads)
        return _core.items(self.dataset, *settings, item_by_key(self.dataset))

    def _table(self) -> tuple[Any, Any] | None:
        """Returns a table that is read without Python, and the numbers of its rows."""
        found = _hugging_face(self.dataset)
        return found if found is not None and _holds_images(found[0]) else None

    def _identity(self) -> str | None:
        """Returns class and version of items that never change."""
        if self.version is None:
            return None
        owner = type(self.dataset)
        name = location(owner.__module__, owner.__qualname__, owner)
        name = name or f"{owner.__module__}:{owner.__qualname__}"
        return f"{name} {self.version}"


def _fields_json(fields: tuple[tuple[str, Field], ...]) -> str:
    return json.dumps(fields_table(fields).get("fields", []))


def _is_hugging_face(data: Any) -> bool:
    return type(data).__module__.startswith("datasets.")


def _check_hugging_face(source: Source, name: str, data: Any) -> None:
    """Raises for a streamed dataset, and for a dictionary of splits."""
    if not _is_hugging_face(data):
        return
    if isinstance(data, dict):
        splits = ", ".join(repr(split) for split in data)
        expected = f"one split of {splits}: {name}[{next(iter(data), 'train')!r}]"
        raise _check.error(source, name, expected, type(data).__name__)
    if not hasattr(data, "__len__"):
        expected = (
            "a dataset with records by number: load it with streaming=False, name its "
            "files (sources.Parquet('hf://datasets/OWNER/NAME/*.parquet')), or store "
            "the stream with datasets.Dataset.from_generator(lambda: (yield from "
            f"{name}))"
        )
        raise _check.error(source, name, expected, type(data).__name__)


def _hugging_face(data: Any) -> tuple[Any, Any] | None:
    """Returns the table of a `datasets.Dataset` without format, and its row numbers.

    The numbers are those of a selected, filtered or shuffled dataset; None: all rows.
    """
    if not _is_hugging_face(data):
        return None
    columns = getattr(data, "_format_columns", ())
    indices = getattr(data, "_indices", True)
    rows = None if indices is None else getattr(indices, "table", None)
    plain = (
        (indices is None or rows is not None)
        and getattr(data, "_format_type", True) is None
        # A format may leave out columns and convert types.
        and (columns is None or set(columns) == set(data.column_names))
    )
    table = getattr(getattr(data, "data", None), "table", None) if plain else None
    return None if table is None else (table, rows)


def _holds_images(table: Any) -> bool:
    """Whether all images of a table are stored in it, and not as file paths."""
    for column in table.columns:
        names = [field.name for field in column.type] if _is_struct(column.type) else []
        if "bytes" in names and any(
            chunk.field("bytes").null_count for chunk in column.chunks
        ):
            return False
    return True


def _is_struct(kind: Any) -> bool:
    return str(kind).startswith("struct<")
