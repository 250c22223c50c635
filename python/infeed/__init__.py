"""Keeps accelerators fed: reads, decodes, transforms and batches training data."""

from infeed import sources, stats, transforms
from infeed._core import __version__
from infeed._options import Cache
from infeed.adopting import Adoption, Equivalence, adopt, compare_samples
from infeed.batch import Batch
from infeed.certifying import CertifiedLoop, RunDifference, certify, compare_runs
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
from infeed.seeding import seed_draws
from infeed.watching import Watch, WatchReport, measure_throughput, watch

__all__ = [
    "Adoption",
    "BadRecord",
    "Batch",
    "BatchInfo",
    "BudgetError",
    "Cache",
    "CertifiedLoop",
    "ClosedError",
    "Column",
    "ConfigError",
    "DamagedError",
    "DecodeError",
    "DeviceError",
    "Equivalence",
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
    "RunDifference",
    "ShapeError",
    "ThreadError",
    "TooManyBadRecordsError",
    "TransformError",
    "Watch",
    "WatchReport",
    "WriteError",
    "__version__",
    "adopt",
    "cache",
    "certify",
    "compare_runs",
    "compare_samples",
    "measure_throughput",
    "overlap",
    "pack",
    "prefetch",
    "seed_draws",
    "sources",
    "stats",
    "transforms",
    "watch",
]
