"""Keeps accelerators fed: reads, decodes, transforms and batches training data."""

from infeed import sources, stats, transforms
from infeed._core import __version__
from infeed.batch import Batch
from infeed.errors import (
    BudgetError,
    ClosedError,
    ConfigError,
    DamagedError,
    DecodeError,
    DeviceError,
    ForkedError,
    FunctionError,
    InfeedError,
    InterruptedPackError,
    IteratorError,
    LoaderError,
    OpenError,
    OutOfMemoryError,
    PanickedError,
    ProcessError,
    ReadError,
    RecordTooLargeError,
    ShapeError,
    ThreadError,
    TooManyBadRecordsError,
    TransformError,
    WriteError,
)
from infeed.explanation import Explanation
from infeed.feeders import Feeders
from infeed.loader import BadRecord, BatchInfo, Loader
from infeed.packing import Fidelity, PackProgress, PackResult, pack
from infeed.pipeline import Column, Pipeline
from infeed.prefetching import Overlap, Prefetch, overlap, prefetch
from infeed.preview import Preview
from infeed.remote import cache
from infeed.watching import Watch, WatchReport, measure_throughput, watch

__all__ = [
    "BadRecord",
    "Batch",
    "BatchInfo",
    "BudgetError",
    "ClosedError",
    "Column",
    "ConfigError",
    "DamagedError",
    "DecodeError",
    "DeviceError",
    "Explanation",
    "Feeders",
    "Fidelity",
    "ForkedError",
    "FunctionError",
    "InfeedError",
    "InterruptedPackError",
    "IteratorError",
    "Loader",
    "LoaderError",
    "OpenError",
    "OutOfMemoryError",
    "Overlap",
    "PackProgress",
    "PackResult",
    "PanickedError",
    "Pipeline",
    "Prefetch",
    "Preview",
    "ProcessError",
    "ReadError",
    "RecordTooLargeError",
    "ShapeError",
    "ThreadError",
    "TooManyBadRecordsError",
    "TransformError",
    "Watch",
    "WatchReport",
    "WriteError",
    "__version__",
    "cache",
    "measure_throughput",
    "overlap",
    "pack",
    "prefetch",
    "sources",
    "stats",
    "transforms",
    "watch",
]
