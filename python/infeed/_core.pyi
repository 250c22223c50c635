"""The compiled engine. It is internal; the public names are those of `infeed`.

Descriptions are passed as JSON. ``handles`` are the objects that a description refers
to by number: uint8 arrays of memory sources, `PythonSource` objects and functions.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np

from infeed.stats import LoaderStats

__all__ = [
    "ORDER",
    "SLOTS",
    "Array",
    "Batch",
    "DeviceArray",
    "Explanation",
    "Feeder",
    "Function",
    "Hosts",
    "Loader",
    "PackParts",
    "PythonSource",
    "RowKeys",
    "RunRecord",
    "RunWriter",
    "Verdict",
    "WatchRecorder",
    "__version__",
    "check",
    "check_transform",
    "cuda_ordinal",
    "decode_image",
    "describe",
    "device_selftest",
    "encode_lossless",
    "folder_files",
    "gpus",
    "image_size",
    "items",
    "load",
    "main",
    "order",
    "pack",
    "parse_bytes",
    "plan",
    "preview",
    "read_file",
    "restore_lossless",
    "save",
    "set_cache",
    "table",
    "watch_verdict",
]
__version__: str
ORDER: str
SLOTS: int

@final
class Array:
    """A column of a batch, or a field of a sample, on the CPU.

    NumPy arrays and DLPack tensors made from it share its memory. The engine reuses the
    memory only after the last of them is dropped.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, rows first."""

    @property
    def dtype(self) -> str:
        """Type of the elements, such as ``"float32"``."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface; bfloat16 elements are two bytes of type void."""

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Returns a DLPack capsule over the same memory.

        Raises:
            BufferError: The caller asks for another device, or for a copy.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns ``(1, 0)``: the CPU."""

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
        """Number of the batch's epoch."""

    @property
    def step(self) -> int:
        """Number of the step in its epoch."""

    def column(
        self, name: str
    ) -> Array | DeviceArray | tuple[Array, Array] | list[bytes] | list[str]:
        """Returns a field of all samples; a ragged one as values and offsets.

        Raises:
            KeyError: The batch has no such field.
        """

    def record_stream(self, stream: object) -> None:
        """Marks the batch as in use by a stream.

        Raises:
            TypeError: The batch is on the CPU, or the argument is not a stream.
        """

    def records(self) -> list[tuple[int, str]]:
        """Returns number and name of each row's record."""

@final
class DeviceArray:
    """A column of a batch on a device.

    The engine reuses its memory only after it, and all tensors made from it, are
    dropped.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, rows first."""

    @property
    def dtype(self) -> str:
        """Type of the elements, such as ``"float32"``."""

    @property
    def device(self) -> str:
        """Name of the device, such as ``"cuda:0"``."""

    def synchronize(self) -> None:
        """Waits until the copy to the device is complete."""

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Returns a DLPack capsule over the memory, or a copy for a simulated device.

        Raises:
            BufferError: The caller asks for another device, for a copy, or names an
                invalid stream.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns ``(2, n)`` for GPU ``n``, or ``(1, 0)`` for a simulated device."""

@final
class Explanation:
    """The limit of a run, with its evidence."""

    def json(self) -> str:
        """Returns one JSON object."""

    def text(self, width: int) -> str:
        """Returns text for a terminal of `width` columns, without colour."""

    def html(self) -> str:
        """Returns a self-contained page."""

    def trace(self) -> str:
        """Returns the timeline as Chrome trace events."""

@final
class WatchRecorder:
    """Writes the recording of a watched loop.

    Raises:
        WriteError: The file cannot be written.
    """

    def __new__(
        cls, path: str, loader: str, versions: dict[str, str]
    ) -> WatchRecorder: ...
    def add(self, batches: int, samples: int, waited_s: float, epochs: int) -> None:
        """Adds the counters of the loop up to now."""

    def add_error(self, kind: str) -> None:
        """Counts an error that the loader raised, by its type."""

    def write(self, measurements: str | None, closed: bool) -> None:
        """Writes the file, with the verdict on measurements as JSON.

        Raises:
            ValueError: The text is not JSON of such measurements.
            WriteError: The file cannot be written.
        """

@final
class Verdict:
    """The limit of a loop, in words and numbers."""

    @property
    def limit(self) -> str:
        """The limit.

        For a watched loop: the ``step``; the ``loader``; ``python``, the interpreter's
        lock; or ``interference``, a loader that slows the step.
        """

    @property
    def rate(self) -> float:
        """Rate with this limit, in samples/s, or batches/s if samples are unknown."""

    @property
    def next_limit(self) -> str | None:
        """Limit without this one; None if nothing else was found."""

    @property
    def next_rate(self) -> float | None:
        """Rate with the next limit."""

    @property
    def tie(self) -> bool:
        """Whether the limits are too close to distinguish."""

    @property
    def claim(self) -> str:
        """The verdict in one line."""

    @property
    def evidence(self) -> list[str]:
        """Measurements, one per line."""

    @property
    def capacity(self) -> list[str]:
        """The arithmetic, one per line."""

    @property
    def advice(self) -> list[str]:
        """Changes to try, one per line."""

    @property
    def not_worth(self) -> list[str]:
        """Changes without a gain, with the reason, one per line."""

    def json(self) -> str:
        """Returns one JSON object with these names as keys."""

    def text(self, width: int) -> str:
        """Returns text for a terminal of `width` columns, without colour."""

@final
class Function:
    """A function that a description refers to, by number or by name.

    ``adapter`` is an `infeed._functions.FunctionAdapter`; ``batch`` is True for a
    function on batches.
    """

    def __new__(cls, name: str, adapter: object, batch: bool) -> Function: ...

@final
class Loader:
    """A running pipeline.

    Raises:
        InfeedError: As in `infeed.Pipeline.open`.
    """

    def __new__(
        cls,
        description: str,
        handles: Sequence[np.ndarray],
        *,
        workers: int | None,
        memory: int | None,
        cache: tuple[int | None, str | None, int] | None,
        rank: int,
        world_size: int,
        on_error: str,
        max_bad: int | None,
        io_threads: int | None,
        timeline_s: float | None,
        stall_s: float | None,
        digest: str,
        devices: Sequence[str] | None,
        placement: str,
        decode: str,
        slots: int,
        feeders: tuple[Hosts, bool, float, bool | None] | None,
        epoch_records: int | None,
    ) -> Loader: ...
    def next_parts(self, streams: Sequence[object | None]) -> list[Batch] | None:
        """Returns the next batch, or its part on each device; None at the epoch's end.

        It waits without the interpreter's lock, and checks for signals every 100 ms.
        ``streams`` are the consumer's streams, one for each device.
        """

    def next_into(
        self,
        tensors: Sequence[Sequence[tuple[str, object]]],
        streams: Sequence[object | None],
    ) -> tuple[int, int, int]:
        """Copies fields of the next batch; returns its epoch, step and samples.

        Args:
            tensors: Tensors by field, for each device.
            streams: Stream of each device.

        Raises:
            ConfigError: A tensor does not match its field, tensors for a device are
                missing, or batches differ in size.
        """

    def end_epoch(self) -> None:
        """Ends the current epoch."""

    def begin_epoch(self, epoch: int, step: int, records: Sequence[int]) -> None: ...
    def seek(self, epoch: int, step: int) -> None:
        """Moves to a step of an epoch.

        Raises:
            ConfigError: The epoch has no such step.
        """

    @property
    def steps(self) -> int:
        """Number of batches per epoch."""

    @property
    def records(self) -> int:
        """Number of records in the source."""

    @property
    def epoch(self) -> int:
        """Epoch of the next batch."""

    @property
    def closed(self) -> bool:
        """Whether the loader is closed."""

    def stats(self) -> LoaderStats:
        """Returns the counters since the loader was opened."""

    def bad_records(self) -> list[tuple[int, str, str]]:
        """Returns number, name and reason of each bad record."""

    def state(self) -> str:
        """Returns the state of the run as JSON."""

    def restore(self, state: str, strict: bool) -> list[str]:
        """Resumes a run; returns a warning for each difference if not `strict`.

        Raises:
            ConfigError: The text is not a state, or the state of another run.
        """

    def digest(self) -> str:
        """Returns the digest of all delivered rows."""

    def step_digest(self) -> str:
        """Returns the digest of the last delivered step."""

    def serve_metrics(self, address: str, name: str) -> str:
        """Serves Prometheus metrics; returns the address with the chosen port."""

    def explain(self, name: str) -> Explanation:
        """Returns the limit that the counters show."""

    def record(self, path: str, paths: bool, versions: dict[str, str]) -> None:
        """Records the loop in a file until the loader is closed.

        Raises:
            ClosedError: The loader is closed.
            WriteError: The file cannot be written.
        """

    def close(self, timeout: float | None = None) -> bool:
        """Ends all threads and waits for them; returns whether they have ended.

        Args:
            timeout: Longest wait in seconds; None for no limit.
        """

@final
class PackParts:
    """A dataset whose shards several processes write.

    One process creates it with ``begin=True``, and the others with False. Pipeline,
    options and errors are those of `pack`.
    """

    def __new__(
        cls, description: str, out: str, options: str, begin: bool
    ) -> PackParts: ...
    def json(self) -> str:
        """Returns the number of records, the size of shards, the complete shards and
        the pipeline as JSON.
        """

    def weigh(self, begin: int, end: int) -> list[int | None]:
        """Returns the size of each record of a range in bytes; None for a bad one."""

    def ends(self, weights: Sequence[int | None]) -> list[int]:
        """Returns the ends of shards, for sizes of records from a shard's start on."""

    def shard(self, number: int, begin: int, end: int) -> str:
        """Writes one shard; returns its description as JSON."""

@final
class Hosts:
    """Addresses of a loader's feeders, which may change while the loader runs."""

    def __new__(cls, count: int) -> Hosts: ...
    def set(
        self, number: int, host: str, token: str | None = None, node: str = ""
    ) -> None:
        """Sets the address of a feeder; ``""`` removes it.

        Raises:
            ConfigError: The number is out of range, or the token is too short.
        """

@final
class Feeder:
    """Makes batches of a pipeline for the loaders that connect to its address."""

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
        """Address as ``host:port``, with the chosen port."""

    def stats(self) -> dict[str, Any] | None:
        """Returns its counters, None after `close`; passes on log messages."""

    def close(self) -> None:
        """Ends all connections."""

def folder_files(root: str) -> list[str]:
    """Returns the image files below a folder, in the order of its records."""

def check(description: str) -> None:
    """Checks a description without reading its data.

    Raises:
        ConfigError: The message names the part and the fix.
    """

def check_transform(transform: str) -> None:
    """Checks the parameters of a transform.

    Raises:
        ValueError: A parameter is invalid.
    """

def parse_bytes(text: str) -> int:
    """Parses a size in bytes, such as ``"2GiB"``.

    Raises:
        ValueError: The text is not a size.
    """

def describe(
    description: str, handles: Sequence[np.ndarray]
) -> list[tuple[str, str, str | None, list[int | None] | None]]:
    """Returns name, kind, dtype and row shape of each column of a batch."""

def gpus() -> str:
    """Returns the GPUs that this process may use, or the reason for none, as JSON."""

def cuda_ordinal(name: str) -> int | None:
    """Returns the ordinal of the GPU that a name means; None for a simulated device.

    Raises:
        ConfigError: The name is not that of a device.
    """

def device_selftest(
    device: str,
    seconds: float,
    libraries: Sequence[str | PathLike[str]] = ...,
    groups: Sequence[str] | None = None,
    found: Callable[[str], object] | None = None,
) -> str:
    """Checks and measures a device; returns the findings as JSON.

    Searches for NVIDIA's libraries in the folders ``libraries`` first. ``groups`` is a
    subset of ``"kernels"``, ``"rates"``, ``"stress"``, ``"ordering"`` and ``"jpegs"``;
    None: all. ``found`` is called with each finding as JSON as soon as it is known.
    """

def order(
    records: int, seed: int | None, epoch: int, begin: int, end: int
) -> list[int]:
    """Returns the records at positions ``begin`` to ``end`` of an epoch.

    Raises:
        ValueError: A position is not below the number of records.
    """

def plan(
    description: str,
    handles: Sequence[np.ndarray],
    on_device: tuple[str, str] | None,
) -> str:
    """Returns the plan as text, with placement and decoder for batches on a device."""

def preview(
    description: str, handles: Sequence[np.ndarray], position: int, epoch: int
) -> tuple[
    tuple[int, str],
    list[
        tuple[
            str,
            str,
            list[tuple[str, Any]],
            tuple[list[list[float]], list[list[float]], Array | None],
        ]
    ],
]:
    """Runs one sample through all stages on the calling thread.

    Returns:
        Number and name of the record; name, draws, fields of each stage, and its shapes
        in pixels of its images: left, top, right, bottom of boxes; x and y of points;
        the object of each pixel.
    """

def save(description: str, path: str) -> None:
    """Writes a description to a TOML file."""

def load(path: str) -> str:
    """Reads a description from a file, or from the folder of a packed dataset."""

def set_cache(folder: str | None, bytes: int) -> None:
    """Sets the folder of the disk cache; None uses the environment variables."""

def pack(
    description: str,
    handles: Sequence[np.ndarray[Any, np.dtype[np.uint8]]],
    out: str,
    options: str,
    progress: Callable[[int, int, int, int, int, int], bool | None] | None,
) -> str:
    """Packs a dataset; returns the result as JSON.

    ``progress`` receives records done, total, reused and bad, and bytes in and out.
    """

def watch_verdict(measurements: str) -> Verdict:
    """Returns the verdict of a watched loop from its measurements as JSON.

    Raises:
        ValueError: The text is not JSON of such measurements.
    """

def read_file(path: str | PathLike[str]) -> bytes:
    """Reads a regular file.

    Raises:
        OpenError: The file cannot be read, or is a named pipe or a device, which could
            block for ever.
    """

def main(argv: Sequence[str]) -> int:
    """Runs the `infeed` command and returns its exit status."""

@final
class PythonSource:
    """A source made from a Python object."""

    @property
    def records(self) -> int:
        """Number of records."""

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""

@final
class RowKeys:
    """The keys of a step's rows, by which runs are compared."""

    @staticmethod
    def of_ids(ids: list[str]) -> RowKeys:
        """Returns the ids of samples."""

    @staticmethod
    def of_fields(
        fields: list[tuple[str, int, np.ndarray] | tuple[str, list[bytes]]],
    ) -> RowKeys:
        """Returns hashes of the contents of fields.

        A field is its name, its number of rows and its bytes as a uint8 array; or its
        name and the bytes of each row.

        Raises:
            ConfigError: There is no field, or fields have different numbers of rows.
        """

    @staticmethod
    def of_batch(batch: Batch) -> RowKeys | None:
        """Returns hashes of the contents of a batch; None if it is on a device."""

@final
class RunWriter:
    """A run record that is being written.

    With ``continues``, steps are added to a record that exists, without an unfinished
    last line.

    Raises:
        ConfigError: The file is not a run record.
        OSError: The file cannot be read or written.
    """

    def __new__(cls, path: str | PathLike[str], continues: bool) -> RunWriter: ...
    def write(self, step: int, keys: RowKeys) -> None:
        """Adds a step.

        Raises:
            WriteError: The file cannot be written.
        """

@final
class RunRecord:
    """A recorded run in memory; an empty one, or one from a file."""

    def __new__(cls) -> RunRecord: ...
    @staticmethod
    def read(path: str | PathLike[str]) -> RunRecord:
        """Reads a file.

        Raises:
            ConfigError: The file is not a run record.
            OpenError: The file cannot be read.
        """

    @property
    def last_step(self) -> int | None:
        """Number of the last step; None if there is none."""

    def add(self, step: int, keys: RowKeys) -> None:
        """Adds a step. One that is not after the last one replaces all from it on.

        Raises:
            ConfigError: The keys are of another kind than those before.
        """

    def compare(
        self, found: RunRecord, common: bool, goes_on: bool
    ) -> (
        tuple[
            int,
            int | None,
            tuple[str | None, str | None],
            tuple[int, int, int],
            str,
        ]
        | None
    ):
        """Returns the first difference, or None.

        It is step, row, expected and found sample, the numbers of lost, doubled and
        moved samples, and the text. With ``common``, only steps of both runs are
        compared. With ``goes_on``, the found run may have more steps at its end.

        Raises:
            ConfigError: The runs have no step in common, or keys of different kinds.
        """

def table(
    object: object, name: str, fields: str, rows: object | None = None
) -> PythonSource:
    """Makes a source of an object with ``__arrow_c_stream__``; ``fields`` is JSON.

    ``rows`` is another such object. Its first column has the numbers of the rows.
    """

def items(
    object: object,
    name: str,
    fields: str,
    version: str | None = None,
    threads: int = 1,
    draw: Callable[[int, tuple[int, int]], Any] | None = None,
) -> PythonSource:
    """Makes a source of an object with ``__len__`` and ``__getitem__``.

    Up to ``threads`` threads call it at a time. ``draw`` returns an item that depends
    on random draws, given its number and their key.
    """

def decode_image(
    data: bytes, mode: str, orient: bool, max_pixels: int
) -> tuple[bytearray, tuple[int, int, int], int]:
    """Decodes an image; returns bytes, [height, width, channels], bytes of a sample."""

def image_size(data: bytes, orient: bool, max_pixels: int) -> tuple[int, int]:
    """Returns height and width of an image, from its header."""

def encode_lossless(data: bytes) -> tuple[bytes, bool]:
    """Encodes a file; returns the record and whether it restores the bytes."""

def restore_lossless(data: bytes) -> tuple[bytes, bool]:
    """Restores a file; returns it and whether its bytes are those of the original."""
