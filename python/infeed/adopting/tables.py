"""Reads tables of `datasets`, also with the function of `with_transform`."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infeed import _code, sources
from infeed.adopting.adopted_dataset import AdoptedDataset, library_of, native_dataset
from infeed.adopting.image_observer import UntracedError
from infeed.adopting.samples import is_picture
from infeed.adopting.steps import Finding, translate
from infeed.adopting.traced_functions import calls_same, trace_rows
from infeed.pipeline import Pipeline

# Rows with which a function is called, and values of other columns that are tried.
_ROWS = 4
_MOST_VALUES = 256


class TableColumns:
    """The rows of a table with some of their columns.

    Args:
        table: The table.
        names: Names of the columns.
    """

    def __init__(self, table: Any, names: tuple[str, ...]) -> None:
        self.table, self.names = table, names

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self.table[number]
        return {name: row[name] for name in self.names}


def read_table(dataset: Any) -> AdoptedDataset | str:
    """Reads a `datasets.Dataset` without a format, or with a function of its rows."""
    if library_of(dataset) != "datasets":
        return ""
    if getattr(dataset, "_format_type", None) is None:
        return _plain_table(dataset)
    function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
    if function is None:
        return _python_reason(f"the format {dataset._format_type} is called")
    called = getattr(function, "__name__", type(function).__name__)
    try:
        return _traced_table(dataset, function)
    except UntracedError as error:
        return _python_reason(f"{called} is called", f"{error}")


def _plain_table(dataset: Any) -> AdoptedDataset:
    name = type(dataset).__name__
    source = sources.Items(dataset)
    code = "sources.Items(dataset)"
    return AdoptedDataset(
        dataset,
        decode_images(source, dataset[0] if len(dataset) else None),
        (Finding(name, code, "its tables are read without Python"),),
        "dict",
        names={repr(source): (code, f"dataset: the {name} of the adopted loader")},
        variables={"dataset": dataset},
    )


def _traced_table(dataset: Any, function: Any) -> AdoptedDataset:
    """Reads a table with a function that only calls transforms with its images.

    Raises:
        UntracedError: The function does more.
    """
    columns = getattr(dataset, "_format_columns", None)
    if columns is not None and set(columns) != set(dataset.column_names):
        raise UntracedError("it receives some of the columns only")
    plain = dataset.with_format(None)
    if not len(plain):
        raise UntracedError("the table has no row")
    rows, values = plain[:_ROWS], _values(plain)
    found = trace_rows(function, rows, values)
    texts = [*map(repr, found.steps)]

    def check() -> bool:
        try:
            again = trace_rows(function, rows, values)
        except UntracedError:
            return False
        same = calls_same(found.steps, again.steps, texts)
        return same and replace(again, steps=found.steps) == found

    steps = translate(list(found.steps))
    steps.checks.append(check)
    if steps.rest:
        step = next(one for one in steps.findings if one.became is None)
        raise UntracedError(f"of {step.part}: {step.reason}")
    name, called = type(dataset).__name__, getattr(function, "__name__", "")
    fields = {found.result: found.image, **found.kept}
    source = table_source(plain, fields)
    entries = ", ".join(
        f"{_code.value(field)}: {_code.value(column)}"
        for field, column in fields.items()
    )
    code = f"table_source(dataset, {{{entries}}})"
    finding = Finding(name, code, f"{called or 'its function'} only calls transforms")
    mode: dict[str, Any] = {found.result: "gray"} if found.mode == "gray" else {}
    return native_dataset(
        TableColumns(dataset, tuple(fields)),
        source,
        finding,
        steps,
        batch_type="dict",
        names={
            repr(source): (code, f"dataset: the {name} of the adopted loader"),
        },
        variables={"dataset": dataset},
        **mode,
    )


def _values(table: Any) -> dict[str, list[Any]]:
    """Returns values of the columns of integers: all classes, or those of some rows."""
    found = {}
    for name, feature in table.features.items():
        if classes := getattr(feature, "num_classes", None):
            found[name] = [*range(min(classes, _MOST_VALUES))]
        elif str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
            found[name] = table.select_columns([name])[:_MOST_VALUES][name]
    return found


def table_source(dataset: Any, fields: Mapping[str, str]) -> sources.Source:
    """Returns columns of a `datasets.Dataset`, whatever its format is, as a source.

    Images are read without Python, from the table or from local files.

    Args:
        dataset: The table.
        fields: Name of the column by field name.
    """
    table = dataset.with_format(None)
    library = importlib.import_module("datasets")
    values: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for name, column in fields.items():
        feature = table.features[column]
        if isinstance(feature, library.Image):
            stored = table.cast_column(column, library.Image(decode=False))[column]
            paths = [one["path"] for one in stored]
            if any(one["bytes"] is not None for one in stored):
                return sources.Items(table, fields=dict(fields))
            if any(path is None or "://" in path for path in paths):
                return sources.Items(table, fields=dict(fields))
            values[name], kinds[name] = paths, "image"
        else:
            values[name] = table[column][:]
    return sources.Memory(kinds=kinds, **values)


def _python_reason(called: str, why: str = "") -> str:
    """Returns the reason why the rows of a `datasets.Dataset` are made in Python."""
    why = f", because {why}" if why else ""
    return (
        f"{called} with its rows{why}; sources.Items(dataset.with_format(None)) reads "
        "tables of images without Python, for .transform(...)"
    )


def decode_images(source: sources.Source, first: Any) -> Pipeline:
    """Returns a pipeline that decodes images if a sample has Pillow images."""
    parts = first.values() if isinstance(first, Mapping) else first
    records = Pipeline(source)
    if isinstance(first, tuple | list | Mapping) and any(map(is_picture, parts)):
        return records.decode()
    return records
