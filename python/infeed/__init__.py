"""Keeps accelerators fed: reads, decodes, transforms and batches training data.

The names here are those of every program. What belongs to one job is in its module:
`errors`, `explain`, `feeders`, `packing`, `prefetching`, `runs`, `watching` and others.
"""

from infeed import (
    adopting,
    errors,
    explain,
    feeders,
    kinds,
    packing,
    prefetching,
    preview,
    remote,
    runs,
    seeding,
    sources,
    stats,
    trainers,
    transforms,
    watching,
)
from infeed._core import __version__
from infeed._options import Cache
from infeed.adopting import adopt
from infeed.batch import Batch
from infeed.errors import InfeedError
from infeed.loader import Loader
from infeed.packing import pack
from infeed.pipeline import Pipeline
from infeed.prefetching import prefetch
from infeed.trainers import install, uninstall
from infeed.watching import watch

__all__ = [
    "Batch",
    "Cache",
    "InfeedError",
    "Loader",
    "Pipeline",
    "__version__",
    "adopt",
    "adopting",
    "errors",
    "explain",
    "feeders",
    "install",
    "kinds",
    "pack",
    "packing",
    "prefetch",
    "prefetching",
    "preview",
    "remote",
    "runs",
    "seeding",
    "sources",
    "stats",
    "trainers",
    "transforms",
    "uninstall",
    "watch",
    "watching",
]
