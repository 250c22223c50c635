"""The engine, compiled. All in here is internal; the public names are `infeed`'s.

Descriptions cross as JSON, once; ``handles`` are the uint8 arrays that a description of
a memory source refers to by number, `Given` sources, and functions.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np

__all__ = [
    "ORDER",
    "SLOTS",
    "Array",
    "Batch",
    "DeviceArray",
    "Explanation",
    "Feeder",
    "Function",
    "Given",
    "Hosts",
    "Loader",
    "PackParts",
    "__version__",
    "add_digests",
    "cards",
    "check",
    "describe",
    "device_selftest",
    "items",
    "json_from_toml",
    "load",
    "main",
    "order",
    "pack",
    "plan",
    "preview",
    "set_cache",
    "table",
    "toml_from_json",
    "verify",
]
__version__: str
ORDER: str
SLOTS: int

@final
class Array:
    """A column of a batch, or one field of a sample, on the CPU.

    Shares its memory with whatever is made from it; the memory is used again only when
    the last of them is dropped.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    @property
    def dtype(self) -> str:
        """Type of the elements, such as ``"float32"``."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For NumPy; bfloat16 appears as two bytes without meaning."""

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule over the same memory.

        Raises:
            BufferError: Another device or a copy is asked for.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """``(1, 0)``: the CPU."""

@final
class Batch:
    """The samples of one step."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields, in order."""

    @property
    def rows(self) -> int:
        """Number of samples."""

    @property
    def epoch(self) -> int:
        """Number of its epoch."""

    @property
    def step(self) -> int:
        """Its place in the epoch."""

    def column(
        self, name: str
    ) -> Array | DeviceArray | tuple[Array, Array] | list[bytes] | list[str]:
        """A field of all samples; ragged ones as values and offsets.

        Raises:
            KeyError: There is no such field.
        """

    def record_stream(self, stream: object) -> None:
        """Says that a stream uses the batch.

        Raises:
            TypeError: The batch is on the CPU, or it is no stream.
        """

    def records(self) -> list[tuple[int, str]]:
        """Number and name of the record behind each row."""

@final
class DeviceArray:
    """A column of a batch on a device.

    As long as it, or what was made from it, is held, its memory is not written again.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    @property
    def dtype(self) -> str:
        """Type of the elements, such as ``"float32"``."""

    @property
    def device(self) -> str:
        """Where it is, such as ``"cuda:0"``."""

    def synchronize(self) -> None:
        """Waits until its bytes are there."""

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule over the same memory; a copy, of a simulated device.

        Raises:
            BufferError: Another device or a copy is asked for, or no such stream.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """``(2, n)``: card ``n``. ``(1, 0)``, the CPU, where it is simulated."""

@final
class Explanation:
    """What limits a run."""

    def json(self) -> str:
        """One JSON object."""

    def text(self, width: int) -> str:
        """For a terminal of so many columns, without colour."""

    def html(self) -> str:
        """A page that needs nothing else."""

    def trace(self) -> str:
        """The timeline as Chrome trace events."""

@final
class Function:
    """A function that a description refers to, by number or by name.

    ``adapter`` is an `infeed._functions.Adapter`; ``batch`` says whether it takes
    batches.
    """

    def __new__(cls, name: str, adapter: object, batch: bool) -> Function: ...

@final
class Loader:
    """A running pipeline.

    Raises:
        InfeedError: As `infeed.Pipeline.open` says.
    """

    def __new__(
        cls,
        description: str,
        handles: Sequence[np.ndarray],
        *,
        workers: int | None,
        memory: int | None,
        rank: int,
        world_size: int,
        on_error: str,
        max_bad: int | None,
        io_threads: int | None,
        timeline_s: float | None,
        stall_s: float | None,
        digest: str,
        digest_file: str | None,
        devices: Sequence[str] | None,
        placement: str,
        decode: str,
        slots: int,
        feeders: tuple[Hosts, bool, float] | None,
    ) -> Loader: ...
    def next(self, stream: object | None = None) -> Batch | None:
        """The next batch, or None once at the end of each epoch.

        Waits without the interpreter, and checks for signals every 100 ms. The stream
        is the one that the consumer works in, where batches go to a card.
        """

    def next_parts(self, streams: Sequence[object | None]) -> list[Batch] | None:
        """As `next`, from each device its part of the batch."""

    def next_into(
        self,
        tensors: Sequence[Sequence[tuple[str, object]]],
        streams: Sequence[object | None],
    ) -> tuple[int, int, int]:
        """Copies fields of the next batch into tensors; its epoch, step and samples.

        Args:
            tensors: For each device, by field.
            streams: For each device.

        Raises:
            ConfigError: A tensor does not fit, there are none for a device, or batches
                are not all of one size.
        """

    def end_epoch(self) -> None:
        """Leaves out the rest of the epoch that runs."""

    def seek(self, epoch: int, step: int) -> None:
        """Goes on at a step of an epoch.

        Raises:
            ConfigError: The epoch has no such step.
        """

    @property
    def steps(self) -> int:
        """Batches an epoch."""

    @property
    def records(self) -> int:
        """Records of the source."""

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    def stats(self) -> dict[str, Any]:
        """What was counted since it was opened."""

    def quarantine(self) -> list[tuple[int, str, str]]:
        """Number, name and reason of each bad record."""

    def state(self) -> str:
        """Where the run is, as JSON."""

    def restore(self, state: str, strict: bool) -> list[str]:
        """Goes on where a run was.

        Raises:
            ConfigError: The state is of another run, or no state.
        """

    def digest(self) -> str:
        """The digest of all that was delivered."""

    def step_digest(self) -> str:
        """The digest of the last step delivered."""

    def serve_metrics(self, address: str, name: str) -> str:
        """Answers Prometheus at an address; gives it with the port that was taken."""

    def explain(self, name: str) -> Explanation:
        """What its counters say about the limit."""

    def close(self) -> None:
        """Ends and joins all threads."""

@final
class PackParts:
    """A dataset whose shards many processes write.

    Begun once by the process that asks others, joined by those. Pipeline and options
    are those of `pack`, and so are the errors.
    """

    def __new__(
        cls, description: str, out: str, options: str, begin: bool
    ) -> PackParts: ...
    def json(self) -> str:
        """Places there are, shards that are done, the pipeline for other processes."""

    def weigh(self, begin: int, end: int) -> list[int | None]:
        """Bytes that the records at some places take; None of a bad one."""

    def ends(self, weights: Sequence[int | None]) -> list[int]:
        """Where shards end, of records of these weights from a shard's first on."""

    def shard(self, number: int, begin: int, end: int) -> str:
        """Writes one shard, and gives what is in it as JSON."""

@final
class Hosts:
    """Where the feeders of a loader listen, which may change while it runs."""

    def __new__(cls, count: int) -> Hosts: ...
    def set(
        self, number: int, host: str, token: str | None = None, node: str = ""
    ) -> None:
        """Tells where one listens from now on; at ``""``: nowhere.

        Raises:
            ConfigError: There is none of this number, or the token is too short.
        """

@final
class Feeder:
    """Makes batches of a pipeline for the trainers that connect to its address."""

    def __new__(
        cls,
        description: str,
        handles: Sequence[Any],
        listen: str,
        token: str | None,
        workers: int | None,
        memory: int | None,
    ) -> Feeder: ...
    @property
    def address(self) -> str:
        """``host:port``, with the port that was taken."""

    def stats(self) -> dict[str, Any] | None:
        """What it did so far; None once it was closed. Hands over what was logged."""

    def close(self) -> None:
        """Ends all connections."""

def check(description: str) -> None:
    """Refuses a description that cannot work, without touching its data.

    Raises:
        ConfigError: The message names the part and the mend.
    """

def describe(
    description: str, handles: Sequence[np.ndarray]
) -> list[tuple[str, str, str | None, list[int | None] | None]]:
    """What a batch holds: name, kind, dtype and shape of one row, by field."""

def cards() -> str:
    """The cards that this process may use, or why there are none, as JSON."""

def device_selftest(
    device: str,
    seconds: float,
    libraries: Sequence[str | PathLike[str]] = ...,
    groups: Sequence[str] | None = None,
    found: Callable[[str], object] | None = None,
) -> str:
    """Checks and measures a device; returns the findings as JSON.

    Looks for NVIDIA's libraries in the folders ``libraries`` first. ``groups`` are some
    of ``"kernels"``, ``"rates"``, ``"stress"``, ``"ordering"`` and ``"jpegs"``; None:
    all. ``found`` is called with each finding as JSON as soon as it is known.
    """

def order(
    records: int, seed: int | None, epoch: int, begin: int, end: int
) -> list[int]:
    """The records at positions ``begin`` to ``end`` of an epoch.

    Raises:
        ValueError: They are not positions of so many records.
    """

def plan(
    description: str,
    handles: Sequence[np.ndarray],
    on_device: tuple[str, str] | None,
) -> str:
    """The plan, a few lines a field; placement and decode for batches on a device."""

def preview(
    description: str, handles: Sequence[np.ndarray], position: int, epoch: int
) -> tuple[tuple[int, str], list[tuple[str, str, list[tuple[str, Any]]]]]:
    """Runs one sample through all stages on the calling thread.

    Returns:
        Number and name of the record; name, draws and fields of each stage.
    """

def toml_from_json(description: str) -> str:
    """A description as TOML."""

def json_from_toml(text: str) -> str:
    """A description from TOML, checked."""

def load(path: str) -> str:
    """A description from a file, or from the folder of a packed dataset."""

def set_cache(folder: str | None, bytes: int) -> None:
    """Keeps what is read from buckets in a folder; None goes by the environment."""

def pack(
    description: str,
    handles: Sequence[np.ndarray[Any, np.dtype[np.uint8]]],
    out: str,
    options: str,
    progress: Callable[[int, int, int, int, int, int], bool | None] | None,
) -> str:
    """Packs; gives what was written as JSON.

    ``progress`` is given records done, wanted, reused and bad, bytes in and out.
    """

def add_digests(digests: Sequence[str]) -> str:
    """Digests of ranks or steps, added up."""

def verify(
    description: str,
    handles: Sequence[np.ndarray],
    state: str | None,
    against: Sequence[str],
    steps: int | None,
    write: str | None,
    *,
    twice: bool,
    digest: str,
    on_error: str,
    workers: int | None,
    progress: Callable[[int, int], bool | None] | None,
) -> tuple[int, int, int, int, str, tuple[Any, ...] | None]:
    """Replays steps and compares them.

    Returns:
        First epoch and step, steps that were the same, steps wanted, their digest; and
        of a step that differs epoch, step, positions, whether its records are others,
        the digests expected and found, all of it in words, and if known position,
        field and records of the first row that differs.
    """

def main(argv: Sequence[str]) -> int:
    """Runs the `infeed` command and returns its exit status."""

@final
class Given:
    """A source that was made of a Python object."""

    @property
    def records(self) -> int:
        """Number of records."""

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""

def table(object: object, name: str, fields: str) -> Given:
    """The rows of an object with ``__arrow_c_stream__``; ``fields`` is JSON."""

def items(object: object, name: str, fields: str) -> Given:
    """The items of an object with ``__len__`` and ``__getitem__``."""
