"""Reads the compared samples of a pipeline, and prints the progress of a comparison."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from infeed._closing import ClosedAtExit
from infeed.adopting.samples import Sample, row_of
from infeed.errors import ConfigError
from infeed.loader import Loader
from infeed.pipeline import Pipeline

# Time without a result after which progress is printed, and between two prints.
_QUIET_S = 5.0
_PRINT_S = 2.0


def batch_records(records: Pipeline, size: int, **options: Any) -> Pipeline:
    """Returns the pipeline in batches; images of different sizes are padded."""
    if records._batch.pad:
        return records.batch(size, pad=True, **options)
    try:
        return records.batch(size, **options)
    except ConfigError:
        return records.batch(size, pad=True, **options)


def count_records(records: Pipeline) -> int:
    """Returns the number of records of a pipeline without batches."""
    with batch_records(records, 1).open(workers=1) as loader:
        return loader.records


class RecordDraws(ClosedAtExit):
    """Some records of a pipeline without batches, as each epoch draws them.

    Args:
        records: The pipeline.
        count: Number of its records.
        rows: Numbers of the records.
    """

    def __init__(self, records: Pipeline, count: int, rows: Sequence[int]) -> None:
        # A loader reads ahead. A selection of the rows has no other record to read.
        selections = records._filters, records._split, records._take, records._weights
        self._is_selected = not any(selections)
        if self._is_selected:
            records = records.weights(np.bincount(rows, minlength=count) > 0)
        self._rows = rows
        # The loader reads ahead into this epoch.
        self._next_epoch = 0
        self._loader: Loader = batch_records(records, 1).open(workers=1)

    def of(self, epoch: int) -> list[Sample]:
        """Returns the samples of an epoch, in the order of the rows."""
        if not self._is_selected:
            return [self._at(epoch, row) for row in self._rows]
        if epoch != self._next_epoch:
            self._loader.seek(epoch, 0)
        self._next_epoch = epoch + 1
        samples = dict(
            zip(sorted({*self._rows}), map(sample_of, self._loader), strict=True)
        )
        return [samples[row] for row in self._rows]

    def _at(self, epoch: int, row: int) -> Sample:
        self._loader.seek(epoch, row)
        return sample_of(next(iter(self._loader)))

    def close(self) -> None:
        """Closes the loader."""
        self._loader.close()


def sample_of(batch: Any) -> Sample:
    """Returns the only sample of a batch."""
    read = {name: row_of(column) for name, column in batch.items()}
    return {name: item for name, item in read.items() if item is not None}


class ProgressLine:
    """One line on the standard error with the progress of work over 5 s.

    A terminal shows the latest line, and a file has all of them.
    """

    def __init__(self) -> None:
        self._printed_at = time.perf_counter() + _QUIET_S - _PRINT_S
        self._is_shown = False

    def show(self, text: str) -> None:
        """Prints the text, unless another one was printed just now."""
        now = time.perf_counter()
        if now - self._printed_at < _PRINT_S:
            return
        self._printed_at, self._is_shown = now, True
        is_terminal = sys.stderr.isatty()
        print(
            f"\r{text}\x1b[K" if is_terminal else text,
            end="" if is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Removes the line from a terminal."""
        if self._is_shown and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
