"""The dictionaries that `Loader.stats` and `Prefetch.stats` return.

Times are in seconds and sizes in bytes. Counters start at 0 when the loader is opened.
"""

from typing import TypedDict

__all__ = [
    "CacheStats",
    "DeviceStats",
    "FeederStats",
    "LoaderStats",
    "PlacementStats",
    "PrefetchStats",
    "PythonStats",
    "StageStats",
    "StorageStats",
    "TuningStats",
]


class StageStats(TypedDict):
    """Work of one stage, with times summed over its threads."""

    name: str
    """Name of the stage, such as ``"read"`` or ``"decode"``."""
    samples: int
    """Samples that left the stage."""
    wall_s: float
    """Time inside the stage."""
    cpu_s: float
    """Processor time of the stage."""
    wait_s: float
    """Time that the stage's threads waited for work."""
    bytes_in: int
    """Bytes that entered the stage."""
    bytes_out: int
    """Bytes that left the stage."""


class TuningStats(TypedDict):
    """State of the tuning of ``workers="auto"``."""

    cores: int
    """Cores that the loader may use."""
    most: int
    """Highest number of workers that tuning may choose."""
    settled: bool
    """Whether the number of workers is final."""
    text: str
    """Reason for the number of workers, in one line."""


class PythonStats(TypedDict):
    """Calls of ``__getitem__`` of a Python object (`sources.Items`)."""

    items: int
    """Items fetched."""
    wait_s: float
    """Time that I/O threads waited for the interpreter's lock."""
    inside_s: float
    """Time inside ``__getitem__``."""


class StorageStats(TypedDict):
    """Reads of this process from object storage and web servers."""

    requests: int
    """Requests sent, including retries and hedges."""
    retries: int
    """Requests repeated after an error."""
    hedges: int
    """Second requests sent because the first one was slow."""
    hedges_won: int
    """Hedges that were answered before the first request."""
    bytes: int
    """Bytes received."""
    cache_hits: int
    """Pieces read from the disk cache."""
    cache_misses: int
    """Pieces that the disk cache did not have."""
    cache_damaged: int
    """Pieces whose checksum in the disk cache was wrong."""


class DiskCacheStats(TypedDict):
    """The folder of the cache of decoded records."""

    hits: int
    """Records read from the folder. They count as hits of the cache."""
    damaged: int
    """Records whose file was damaged. They were decoded again."""
    limit_bytes: int
    """Most bytes of everything in the folder."""
    full: bool
    """Whether a record did not fit, or could not be written."""


class CacheStats(TypedDict):
    """The cache of decoded records, ``open(cache=...)``."""

    hits: int
    """Samples that this loader made of cached records."""
    misses: int
    """Samples for which this loader decoded the record."""
    records: int
    """Records in memory, of all processes that share the cache."""
    used_bytes: int
    """Bytes of memory in use, of all processes that share the cache."""
    limit_bytes: int
    """Most bytes of memory; 0 without memory."""
    full: bool
    """Whether a record did not fit."""
    disk: DiskCacheStats | None
    """The folder of the cache; None without ``infeed.Cache(disk=...)``."""


class PlacementStats(TypedDict):
    """Placement of the transforms that expand rows."""

    name: str
    """Current placement: ``"host"``, ``"device"`` or ``"device-resize"``."""
    settled: bool
    """Whether the placement is final."""
    text: str
    """Reason for the placement, in one line."""
    step_s: float | None
    """Time of a step when the placement was chosen; None if it was not measured."""
    others: dict[str, float]
    """Other placements that were tried: their step time divided by the current one."""


class DeviceStats(TypedDict):
    """Batches on one device, or the sums over all devices of a loader."""

    name: str
    """Name of the device, such as ``"cuda:0"``; names are joined with ``", "``."""
    batches: int
    """Batches delivered on the device."""
    transfers: int
    """Copies to the device."""
    bytes: int
    """Bytes copied to the device."""
    jpegs: int
    """JPEGs that the device decoded."""
    slots: int
    """Batch slots on the device."""
    overflow: int
    """Slots added because the program held batches."""
    unpinned_bytes: int
    """Host memory for batches that the driver could not pin. Copies from it are slower;
    the logger ``infeed.device`` gives the reason."""
    gap_s: float
    """Time that the device waited for batches, measured by its own clock."""
    gap_batches: int
    """Batches for which ``gap_s`` was measured: those with a known stream."""
    late_s: float
    """Time that consumers without a known stream waited for batches."""
    late_batches: int
    """Batches for which ``late_s`` was measured."""
    placement: PlacementStats
    """Placement of the transforms."""


class FeederStats(TypedDict):
    """Work of one feeder for this loader."""

    host: str | None
    """Address of the feeder; None until it is known."""
    node: str | None
    """Node ID in Ray; None without Ray."""
    connected: bool
    """Whether the loader is connected to the feeder."""
    batches: int
    """Batches received."""
    bytes: int
    """Bytes received."""
    wait_s: float
    """Time from requests to complete batches."""
    receiving_s: float
    """Time in which bytes arrived."""
    cpu_s: float
    """Processor time of this machine for receiving."""
    redone: int
    """Batches that were made elsewhere because the feeder was late or lost."""
    declined: int
    """Batches that the feeder could not make."""
    corrupt: int
    """Batches that arrived with a wrong checksum."""
    lost: int
    """Number of times that the connection was lost."""
    refused: int
    """Number of times that the feeder rejected the connection."""
    problem: str | None
    """Last problem with the feeder; None if there was none."""


class LoaderStats(TypedDict):
    """Counters of a loader since it was opened; the result of `Loader.stats`."""

    batches: int
    """Batches delivered."""
    samples: int
    """Samples delivered."""
    bad: int
    """Bad records found, each counted once."""
    wait_s: float
    """Time that the consumer waited for batches."""
    first_batch_s: float | None
    """Time from opening to the first batch; None before it."""
    elapsed_s: float
    """Time since the loader was opened."""
    ready: int
    """Batches that wait for the consumer."""
    held: int
    """Delivered batches that the program still holds."""
    unknown_pixels: int
    """Accepted mask pixels of no class."""
    warnings: int
    """Warnings of image decoders."""
    workers: int
    """Current number of worker threads."""
    io_threads: int
    """Number of I/O threads."""
    budget_bytes: int
    """Memory budget."""
    tuned: TuningStats | None
    """Tuning of the number of workers; None unless ``workers="auto"``."""
    stages: list[StageStats]
    """Work of each stage, in the order of the data flow."""
    storage: StorageStats
    """Reads from object storage and web servers."""
    cache: CacheStats | None
    """The cache of decoded records; None without ``cache``."""
    feeders: list[FeederStats]
    """Work of each feeder; empty without feeders."""
    python: PythonStats | None
    """Calls of a Python source; None for other sources."""
    device: DeviceStats | None
    """Sums over all devices, with the longest gaps; None for batches on the host."""
    devices: list[DeviceStats]
    """Each device; empty for batches on the host."""


class PrefetchStats(TypedDict):
    """Counters of all loops over a `Prefetch`; the result of `Prefetch.stats`."""

    items: int
    """Items that loops took."""
    waited_s: float
    """Time that loops waited for items."""
    first_s: float
    """Part of ``waited_s`` for the first item of each loop."""
    made_s: float
    """Time that threads spent in the iterable and on copies to the device."""
    idle_s: float
    """Time that threads paused because enough items were ready."""
