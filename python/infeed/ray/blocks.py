"""Writes the blocks of a Ray Data dataset to an Arrow file, in order."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import ray
from ray.data import extensions

from infeed.errors import ConfigError

__all__ = ["write"]

# Rows of a record batch, which is the unit of mapping and checking.
_ROWS = 256


def _tables(dataset: "ray.data.Dataset") -> Iterator[pa.Table]:
    """Yields the blocks one at a time, in order."""
    options = dataset.context.execution_options
    was, options.preserve_order = options.preserve_order, True
    try:
        yield from dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=1
        )
    finally:
        options.preserve_order = was


def write(path: Path, dataset: "ray.data.Dataset") -> None:
    """Runs a dataset and writes its blocks, with one block in memory at a time.

    Raises:
        ConfigError: The dataset has no rows, or an Arrow file cannot hold a column.
        OSError: The file cannot be written.
    """
    writer = None
    with contextlib.ExitStack() as opened:
        for number, table in enumerate(_tables(dataset)):
            if table.num_rows == 0:
                continue
            names = table.column_names
            columns = [_plain(n, table.column(n)) for n in names]
            plain = pa.table(columns, names=names)
            if writer is None:
                schema = plain.schema
                writer = opened.enter_context(pa.ipc.new_file(str(path), schema))
            if plain.schema != schema:
                plain = _with_schema(number, plain, schema)
            for batch in plain.to_batches(max_chunksize=_ROWS):
                writer.write_batch(batch)
    if writer is None:
        raise ConfigError("source: the dataset has no rows; check its filters")


def _with_schema(number: int, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Converts a table to the columns of the tables before it."""
    for field in schema:
        at = table.schema.get_field_index(field.name)
        kinds = (field.type, table.schema.types[at]) if at >= 0 else ()
        shapes = {tuple(k.shape) for k in kinds if _is_tensor(k)}
        if len(shapes) > 1:
            raise _shape_error(field.name)
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException) as error:
        raise ConfigError(
            f"source: block {number} has other columns than the blocks before it "
            f"({table.schema.to_string(show_schema_metadata=False)!r}); give all "
            "blocks the same columns in the dataset"
        ) from error


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts a column to Arrow's own types."""
    kind = column.type
    if isinstance(kind, extensions.ArrowVariableShapedTensorType):
        raise _shape_error(name)
    if isinstance(kind, extensions.ArrowTensorType | extensions.ArrowTensorTypeV2):
        shape = tuple(kind.shape)
        chunks = [_tensor(chunk, shape) for chunk in column.chunks]
        return pa.chunked_array(chunks)
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if isinstance(kind, pa.ExtensionType) and not _is_tensor(kind):
        raise ConfigError(
            f"source: `{name}` has Python objects ({kind.extension_name}), which an "
            "Arrow file cannot hold; convert them to numbers, text or bytes"
        )
    return column


def _is_tensor(kind: Any) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType)


def _shape_error(name: str) -> ConfigError:
    return ConfigError(
        f"source: `{name}` has tensors of several shapes; give them one shape in the "
        "dataset, or keep images encoded and let the pipeline decode them"
    )


def _tensor(chunk: Any, shape: tuple[int, ...]) -> pa.Array:
    flat = chunk.storage.flatten()
    kind = pa.fixed_shape_tensor(flat.type, shape)
    if len(flat) != len(chunk) * math.prod(shape):
        raise ConfigError(
            f"source: the values of a tensor do not fit its shape {shape}; write the "
            "dataset again"
        )
    storage = pa.FixedSizeListArray.from_arrays(flat, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)
