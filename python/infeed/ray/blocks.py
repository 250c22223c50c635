"""The blocks of a dataset of Ray Data, written to an Arrow file in their order."""

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

# Rows of a record batch: what is mapped and checked at a time.
_ROWS = 256


def _tables(dataset: "ray.data.Dataset") -> Iterator[pa.Table]:
    """The blocks, one at a time, in their order."""
    options = dataset.context.execution_options
    was, options.preserve_order = options.preserve_order, True
    try:
        yield from dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=1
        )
    finally:
        options.preserve_order = was


def write(path: Path, dataset: "ray.data.Dataset") -> None:
    """Runs a dataset and writes what it gives; one block is in memory at a time.

    Raises:
        ConfigError: It has no rows, or a column is nothing that a file can hold.
        OSError: The disk refused.
    """
    writer = None
    with contextlib.ExitStack() as opened:
        for nth, table in enumerate(_tables(dataset)):
            if table.num_rows == 0:
                continue
            names = table.column_names
            columns = [_plain(n, table.column(n)) for n in names]
            plain = pa.table(columns, names=names)
            if writer is None:
                schema = plain.schema
                writer = opened.enter_context(pa.ipc.new_file(str(path), schema))
            if plain.schema != schema:
                plain = _alike(nth, plain, schema)
            for batch in plain.to_batches(max_chunksize=_ROWS):
                writer.write_batch(batch)
    if writer is None:
        raise ConfigError("source: the dataset has no rows")


def _alike(nth: int, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the columns of those before it."""
    for field in schema:
        at = table.schema.get_field_index(field.name)
        kinds = (field.type, table.schema.types[at]) if at >= 0 else ()
        shapes = {tuple(k.shape) for k in kinds if _is_tensor(k)}
        if len(shapes) > 1:
            raise _of_several_shapes(field.name)
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException) as error:
        raise ConfigError(
            f"source: block {nth} has other columns than those before it "
            f"({table.schema.to_string(show_schema_metadata=False)!r}); make them "
            "alike in the dataset"
        ) from error


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in types of Arrow's own."""
    kind = column.type
    if isinstance(kind, extensions.ArrowVariableShapedTensorType):
        raise _of_several_shapes(name)
    if isinstance(kind, extensions.ArrowTensorType | extensions.ArrowTensorTypeV2):
        shape = tuple(kind.shape)
        chunks = [_tensor(chunk, shape) for chunk in column.chunks]
        return pa.chunked_array(chunks)
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if isinstance(kind, pa.ExtensionType) and not _is_tensor(kind):
        raise ConfigError(
            f"source: `{name}` holds objects of Python ({kind.extension_name}), which "
            "no file can; make them numbers, text or bytes in the dataset"
        )
    return column


def _is_tensor(kind: Any) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType)


def _of_several_shapes(name: str) -> ConfigError:
    return ConfigError(
        f"source: `{name}` holds tensors of several shapes; give them one in the "
        "dataset, or keep images encoded and let the pipeline decode them"
    )


def _tensor(chunk: Any, shape: tuple[int, ...]) -> pa.Array:
    flat = chunk.storage.flatten()
    kind = pa.fixed_shape_tensor(flat.type, shape)
    if len(flat) != len(chunk) * math.prod(shape):
        raise ConfigError(f"source: tensors of shape {shape} have other numbers")
    storage = pa.FixedSizeListArray.from_arrays(flat, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)
