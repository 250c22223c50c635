"""Keeps accelerators fed: reads, decodes, transforms and batches training data."""

from infeed import sources, transforms
from infeed._core import __version__
from infeed.ahead import Overlap, Prefetch, overlap, prefetch
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
    TooManyBadError,
    TransformError,
    WriteError,
)
from infeed.explanation import Explanation
from infeed.feeders import Feeders
from infeed.loader import BadRecord, Filled, Loader, add_digests
from infeed.packing import Fidelity, Packed, PackProgress, pack
from infeed.pipeline import Column, Pipeline
from infeed.preview import Preview
from infeed.remote import cache
from infeed.verifying import Difference, Verified, verify
from infeed.watching import Watch, WatchReport, watch, what_infeed_reaches

__all__ = [
    "BadRecord",
    "Batch",
    "BudgetError",
    "ClosedError",
    "Column",
    "ConfigError",
    "DamagedError",
    "DecodeError",
    "DeviceError",
    "Difference",
    "Explanation",
    "Feeders",
    "Fidelity",
    "Filled",
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
    "Packed",
    "PanickedError",
    "Pipeline",
    "Prefetch",
    "Preview",
    "ProcessError",
    "ReadError",
    "RecordTooLargeError",
    "ShapeError",
    "ThreadError",
    "TooManyBadError",
    "TransformError",
    "Verified",
    "Watch",
    "WatchReport",
    "WriteError",
    "__version__",
    "add_digests",
    "cache",
    "overlap",
    "pack",
    "prefetch",
    "sources",
    "transforms",
    "verify",
    "watch",
    "what_infeed_reaches",
]
