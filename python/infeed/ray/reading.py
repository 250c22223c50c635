"""A pipeline or source as a Ray Data datasource: each task reads a range of batches."""

import functools
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray
from ray.data import Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from infeed import _check, sources
from infeed.batch import Batch
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["InfeedDatasource", "table_from"]

# Highest number of rows per batch for a source. A task reads a few batches beyond its
# range, so it should have many small ones.
_ROWS = 64
_BATCHES = 32

# Names of the columns that identify a row's record.
_IDS = ("record", "name")


class InfeedDatasource(Datasource):
    """A pipeline or source as Ray Data reads it; see `infeed.ray.read`."""

    def __init__(
        self,
        source: Pipeline | sources.Source,
        *,
        on_error: Literal["stop", "substitute", "skip"] = "stop",
        ids: bool = False,
        cpus: float = 1,
    ):
        super().__init__()
        if not isinstance(source, Pipeline | sources.Source):
            expected = "a pipeline or a source"
            raise _check.error("read", "source", expected, type(source).__name__)
        if not isinstance(cpus, int | float) or isinstance(cpus, bool) or cpus <= 0:
            raise _check.error("read", "cpus", "a number over 0", cpus)
        policies = ("stop", "substitute", "skip")
        _check.choice("read", "on_error", on_error, policies)
        self._on_error: Literal["stop", "substitute", "skip"] = on_error
        self._ids = _check.flag("read", "ids", ids)
        self._workers = max(1, int(cpus))
        pipeline = source if isinstance(source, Pipeline) else Pipeline(source)
        self._pipeline = _with_whole_paths(pipeline)
        batch = pipeline._batch
        if batch.max_tokens is not None:
            expected = "a pipeline without max_tokens, since blocks have any rows"
            raise _check.error("read", "source", expected, "max_tokens")
        rows = batch.size or batch.per_rank or 1
        # Functions on batches need the pipeline's own batches.
        self._is_batched = rows > 1 or bool(pipeline._python)
        self._read_first_rows()

    def estimate_inmemory_data_size(self) -> int | None:
        """Returns the size of all blocks in bytes, estimated from the first rows."""
        size: int = math.ceil(self._row_bytes * self._records)
        return size

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        """Returns the tasks that read ranges of batches, in order."""
        pipeline, rows, steps = self._pipeline, self._rows, self._steps
        if not self._is_batched:
            fewest = self._records // (max(1, parallelism) * _BATCHES)
            rows = max(1, min(_ROWS, fewest))
            steps = math.ceil(self._records / rows)
            pipeline = pipeline.batch(rows)
        kept = ray.put(pipeline)
        count = max(1, min(parallelism, steps))
        cuts = [steps * nth // count for nth in range(count + 1)]
        tasks = []
        for begin, end in itertools.pairwise(cuts):
            last = min(end * rows, self._records)
            exact = not self._is_batched and self._on_error != "skip"
            number = max(0, last - begin * rows)
            metadata = BlockMetadata(
                num_rows=number if exact else None,
                size_bytes=math.ceil(number * self._row_bytes),
                input_files=None,
                exec_stats=None,
            )
            settings = (self._on_error, self._workers, self._ids)
            task = functools.partial(_read, kept, begin, end, *settings)
            limit = {"per_task_row_limit": per_task_row_limit}
            given = limit if per_task_row_limit is not None else {}
            tasks.append(ReadTask(task, metadata, schema=self._schema, **given))
        return tasks

    def _read_first_rows(self) -> None:
        """Reads the number of records, and the first rows."""
        pipeline = self._pipeline if self._is_batched else self._pipeline.batch(4)
        for name, column in pipeline.shapes.items():
            if column.shape is not None and None in column.shape[1:]:
                raise ConfigError(
                    f"read: the shape of `{name}` differs between rows, which Arrow "
                    "tensors do not support; resize or crop it, or leave out .decode()"
                )
            if self._ids and name in _IDS:
                raise ConfigError(
                    f"read: the field `{name}` has the name of an ids column; leave "
                    "ids out"
                )
        with pipeline.open(workers=1, on_error=self._on_error) as loader:
            self._records, self._steps = loader.records, len(loader)
            first = table_from(next(iter(loader)), self._ids)
        self._rows = math.ceil(self._records / max(1, self._steps))
        self._schema = first.schema
        self._row_bytes = first.nbytes / max(1, first.num_rows)


def _read(
    kept: Any, begin: int, end: int, on_error: Any, workers: int, ids: bool
) -> Iterator[pa.Table]:
    """Yields the batches of a range as tables."""
    pipeline: Pipeline = ray.get(kept)
    with pipeline.open(workers=workers, on_error=on_error) as loader:
        loader.seek(0, begin)
        for batch in loader:
            # A step whose records were all skipped delivers no batch, so the end of
            # the range is found by step number.
            if batch.step >= end:
                return
            yield table_from(batch, ids)
            if batch.step == end - 1:
                return


def table_from(batch: Batch, ids: bool = False) -> pa.Table:
    """Returns a batch as a table, without rows of padding.

    Raises:
        ConfigError: A field has a type that Arrow does not have.
    """
    records = batch.records
    columns = {name: _column(name, column) for name, column in batch.items()}
    if ids:
        numbers = pa.array([number for number, _ in records], pa.int64())
        names = pa.array([name for _, name in records], pa.string())
        columns |= dict(zip(_IDS, (numbers, names), strict=True))
    # Rows of padding are at the end.
    filled = sum(number >= 0 for number, _ in records)
    return pa.table(columns).slice(0, filled)


def _column(name: str, column: Any) -> pa.Array:
    if isinstance(column, tuple):
        values, offsets = column
        items = _column(name, values)
        if len(offsets) and offsets[-1] >= 2**31:
            wide = pa.array(offsets.astype(np.int64))
            return pa.LargeListArray.from_arrays(wide, items)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items)
    if isinstance(column, list):
        is_text = bool(column) and isinstance(column[0], str)
        return pa.array(column, pa.string() if is_text else pa.binary())
    if column.dtype.kind == "V":
        raise ConfigError(
            f"read: `{name}` is bfloat16, which Arrow does not have; use float16 or "
            "float32"
        )
    if column.ndim == 1:
        return pa.array(column)
    # Not copied: the table holds the batch.
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    kind = pa.fixed_shape_tensor(flat.type, column.shape[1:])
    storage = pa.FixedSizeListArray.from_arrays(flat, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)


def _with_whole_paths(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with absolute paths, because tasks run in other folders."""
    description = pipeline.source._to_dict()
    if pipeline.source._buffers():
        return pipeline
    return pipeline._with(source=sources.from_dict(_whole(description)))


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    def whole(path: Any) -> Any:
        if isinstance(path, list):
            return [whole(one) for one in path]
        return path if "://" in str(path) else os.path.abspath(path)

    table = dict(table)
    if table["kind"] == "mix":
        table["parts"] = [
            part | {"source": _whole(part["source"])} for part in table["parts"]
        ]
        return table
    for key in ("path", "image", "mask", "shards", "files"):
        if table.get(key) is not None:
            table[key] = whole(table[key])
    if table.get("labels") not in (None, "auto", "none"):
        table["labels"] = whole(table["labels"])
    return table
