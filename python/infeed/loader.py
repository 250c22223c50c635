"""A running pipeline: its epochs of batches, its counters and its end."""

import atexit
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

from infeed import _check, _core
from infeed._closing import ClosedAtExit
from infeed._versions import versions
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, ForkedError, IteratorError
from infeed.explain import Explanation
from infeed.stats import LoaderStats

__all__ = ["BadRecord", "BatchInfo", "Loader"]

_log = logging.getLogger("infeed")


_open: "weakref.WeakSet[Loader]" = weakref.WeakSet()

# Loaders whose threads still ran when the wait of `close` ended.
_abandoned: list[_core.Loader] = []

# Wait at exit for the threads of an abandoned loader, in seconds.
_LAST_WAIT_S = 1.0


@atexit.register
def _close_all() -> None:
    """Ends all threads while the interpreter still works, for those that call it.

    A thread that is still inside a Python function would take the interpreter's lock
    again while the interpreter is taken down, which aborts the process. The process
    then ends here.
    """
    status = 1
    try:
        for loader in list(_open):
            if loader._core not in _abandoned:
                loader._core.close()
        if all(core.close(_LAST_WAIT_S) for core in _abandoned):
            return
    except KeyboardInterrupt:
        status = 130
    # Another Ctrl-C must not interrupt the end. Only the main thread can ignore it.
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        status = 130
    _log.warning("the process ends while %s", _running())
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _running() -> str:
    """Names the functions in which threads that Python did not start are now."""
    # Python makes a dummy for a foreign thread that asks for its name.
    dummy = threading._DummyThread
    threads = [it for it in threading.enumerate() if not isinstance(it, dummy)]
    own = {thread.ident for thread in threads}
    foreign = (it for ident, it in sys._current_frames().items() if ident not in own)
    calls = {text for frame in foreign if (text := _user_call(frame))}
    return " and ".join(sorted(calls)) or "threads of a loader still run"


def _user_call(frame: FrameType | None) -> str:
    """Describes the outermost call on a stack that is not in this package."""
    text = ""
    while frame is not None:
        code = frame.f_code
        if Path(code.co_filename).parent != Path(__file__).parent:
            text = f"{code.co_name}() still runs at {code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return text


@dataclass(frozen=True)
class BadRecord:
    """A record that was skipped or substituted.

    Attributes:
        index: Number of the record in the source, from 0.
        name: Path of the record, or another name that identifies it.
        reason: Reason why it is bad.
    """

    index: int
    name: str
    reason: str


class BatchInfo(NamedTuple):
    """The batch that `Loader.next_into` copied.

    Attributes:
        epoch: Number of the epoch, from 0.
        step: Number of the step in the epoch, from 0.
        samples: Rows that hold a record, without rows of padding.
    """

    epoch: int
    step: int
    samples: int


class Loader(ClosedAtExit):
    """A running pipeline: worker threads, and the batches that they prepare.

    `Pipeline.open` returns one. It is a context manager, and each ``for`` loop over it
    is one epoch:

        with pipeline.open(workers=8) as loader:
            for epoch in range(90):
                for images, labels in loader:
                    ...

    At the end of an epoch the workers already prepare the next one. ``break`` ends the
    epoch. ``len(loader)`` is the number of steps per epoch.

    The threads end with `close`, at the end of ``with``, or when the loader is dropped.
    """

    def __init__(
        self,
        core: _core.Loader,
        parts: int = 0,
        ended: Callable[[], None] | None = None,
    ):
        self._core = core
        # Called once, when the loader is closed or dropped.
        self._ended = None if ended is None else weakref.finalize(self, ended)
        # Number of devices that each receive a part of a batch; 0: a single device.
        self._parts = parts
        _open.add(self)
        self._running_epoch: weakref.ref[_EpochIterator] | None = None
        # Returns the consumer's current stream, one for each device, so that the device
        # can measure its waiting time there. Adapters set it.
        self._stream: Callable[[], Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch.

        Several threads may share the iterator. Each batch goes to one of them.

        Returns:
            Iterator over `Batch` objects. With ``devices``, each item is a tuple with
            the part of each device, in the order of ``devices``.

        Raises:
            IteratorError: Another loop is in the middle of an epoch.
            ClosedError: The loader is closed.
        """
        if self.closed:
            raise ClosedError("the loader is closed; open the pipeline again")
        running = self._last_epoch()
        if running is not None and not running.ended:
            raise IteratorError(
                "another loop iterates over the loader; end that loop, or open the "
                "pipeline once for each loop"
            )
        epoch = _EpochIterator(self._core, self._stream, self._parts)
        self._running_epoch = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        return self._core.steps

    @property
    def epoch(self) -> int:
        """Number of the current epoch, or of the next one between epochs, from 0."""
        return self._core.epoch

    @property
    def records(self) -> int:
        """Number of records in the source."""
        return self._core.records

    @property
    def bad_records(self) -> list[BadRecord]:
        """Records that were skipped or substituted so far, each once."""
        return [BadRecord(*entry) for entry in self._core.bad_records()]

    def digest(self) -> str:
        """Returns the digest of the run: a hash of everything that was delivered.

        It is a sum over rows of hashes of epoch, position and record. With
        ``open(digest="pixels")`` a second number, after a hyphen, covers the delivered
        bytes. The digest does not depend on the number of workers. With several ranks
        it covers the rows of this rank. An epoch that begins again counts once.

        After `load_state_dict` the digest includes the batches before the state, if the
        state was taken in a run of a single rank.
        """
        return self._core.digest()

    def step_digest(self) -> str:
        """Returns the digest of the last delivered batch alone."""
        return self._core.step_digest()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the run: a small dictionary that JSON can hold.

        It counts delivered batches, and not those in preparation. It is the same on all
        ranks except for ``bad``: epoch, position and number of each bad record that
        this rank found. ``max_bad`` counts on from these; they do not change batches.
        So all ranks may load the state of one rank.
        """
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resumes a run: the next ``for`` loop delivers the rest of its epoch.

        Records before the state are not read again. The number of workers and of ranks
        may differ from that of the first run. A running loop ends.

        Args:
            state: Result of `state_dict`.
            strict: Whether a state of another run raises an error. If False, the loader
                continues at the same position in its order, and logs a warning for
                each difference and its effect.

        Raises:
            ConfigError: The state belongs to another dataset, description, seed or
                batch; the message names the differences. Or it is no state.
            ClosedError: The loader is closed.
        """
        plain = _check.state("load_state_dict", state)
        for note in self._core.restore(json.dumps(plain), strict):
            _log.warning("load_state_dict: %s", note)
        self._end_loop()

    def seek(self, epoch: int, step: int = 0) -> None:
        """Makes the next ``for`` loop begin at a step of an epoch. A running loop ends.

        Records before that step are not read. Bad records found so far stay listed and
        are counted once.

        Raises:
            ConfigError: The epoch has no such step.
            ClosedError: The loader is closed.
        """
        for name, value in (("epoch", epoch), ("step", step)):
            if _check.integer("seek", name, value) >= 2**64:
                raise _check.error("seek", name, "below 2**64", value)
        self._core.seek(int(epoch), int(step))
        self._end_loop()

    def begin_epoch(self, epoch: int, records: Sequence[int], step: int = 0) -> None:
        """Makes the next ``for`` loop deliver these records, in this order.

        Only for a loader that was opened with ``epoch_records``:

            loader = pipeline.batch(32).open(epoch_records=len(sampler))
            for epoch in range(90):
                loader.begin_epoch(epoch, list(sampler))
                for batch in loader:
                    ...

        Random draws of transforms belong to the epoch and the position in it. Threads
        read ahead until the end of the epoch. A running loop ends.

        Args:
            epoch: Number of the epoch, below 2**32.
            records: Number of the record at each position of the whole epoch.
            step: Step at which the loop begins; records before it are not read.

        Raises:
            ConfigError: The number of records is not ``epoch_records``, a record is not
                in the source, the epoch has no such step, or the loader has its own
                order.
            ClosedError: The loader is closed.
        """
        if _check.integer("begin_epoch", "epoch", epoch) >= 2**32:
            raise _check.error("begin_epoch", "epoch", "below 2**32", epoch)
        step = _check.integer("begin_epoch", "step", step)
        numbers = _check.convert("begin_epoch", "records", records, tuple[int, ...])
        self._end_loop()
        self._core.begin_epoch(int(epoch), step, numbers)

    def next_into(
        self,
        tensors: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        stream: Any = None,
    ) -> "BatchInfo":
        """Copies fields of the next batch into tensors at fixed addresses.

        Use it where the input must stay at one address, such as in a captured CUDA
        graph or with ``torch.compile(mode="reduce-overhead")``:

            static = {"image": torch.empty(shape, device="cuda"), "label": labels}
            for _ in range(len(loader)):
                loader.next_into(static)
                graph.replay()

        The device copies, in the stream's order, and the host does not wait. The engine
        can reuse the batch's own memory at once. The call after the last step begins
        the next epoch. Fields without a tensor are not copied.

        Args:
            tensors: Tensor for each field, by name: row-major, with the field's type
                and shape (rows first), on the loader's device (for ``"sim"``: on the
                CPU). Any writable object with ``__dlpack__`` or
                ``__cuda_array_interface__`` works. With ``devices``, a list of such
                mappings, one for each device, with the rows of that device's part.
            stream: Stream of the copies and of the work that uses the tensors: a
                ``torch.cuda.Stream``, a CuPy stream or a stream handle; with
                ``devices``, a list of streams. None: the default stream.
                `infeed.torch` uses the current stream.

        Returns:
            Epoch and step of the batch, and the number of its rows that hold a record.

        Raises:
            ConfigError: A tensor does not match its field (the message has the call
                that makes one), a field stays on the host, batches differ in size, the
                number of tensors or streams is wrong, or batches are on the host. No
                batch is lost.
            IteratorError: A ``for`` loop is in the middle of an epoch.
        """
        running = self._last_epoch()
        if running is not None and running.has_begun:
            raise IteratorError(
                "a loop iterates over the loader; end that loop before next_into"
            )
        each = self._for_each("tensors", tensors, "a mapping from fields to tensors")
        for of in each:
            if not isinstance(of, Mapping):
                raise _check.error(
                    "next_into", "tensors", "a mapping from fields to tensors", of
                )
        if stream is None and self._stream is not None:
            stream = self._stream()
        if stream is None:
            streams = [None] * len(each)
        else:
            streams = self._for_each("stream", stream, "a stream")
        named = [list(of.items()) for of in each]
        filled = BatchInfo(*self._core.next_into(named, streams))
        if filled.step + 1 == len(self):
            # A loop over `len(loader)` steps does not ask for the end of the epoch.
            self._core.end_epoch()
        return filled

    def _for_each(self, name: str, given: Any, one: str) -> list[Any]:
        """Returns the values for each device, as a list.

        Raises:
            ConfigError: The number of values is not that of the devices.
        """
        if not self._parts:
            return [given]
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        if is_list and len(given) == self._parts:
            return list(given)
        got = f"a list of {len(given)}" if is_list else type(given).__name__
        raise ConfigError(
            f"next_into: {name} must be a list with {one} for each of the "
            f"{self._parts} devices, got {got}"
        )

    def _last_epoch(self) -> "_EpochIterator | None":
        """Returns the last loop's iterator. Ends its epoch if it was interrupted.

        After Ctrl-C a notebook keeps the traceback, and with it the iterator.
        """
        running = None if self._running_epoch is None else self._running_epoch()
        if running is not None and running.has_begun and running.interrupted:
            running.ended = True
            self._core.end_epoch()
        return running

    def _end_loop(self) -> None:
        """Marks the running loop as ended; the engine has ended its epoch already."""
        running = None if self._running_epoch is None else self._running_epoch()
        if running is not None:
            running.ended = True

    def stats(self) -> LoaderStats:
        """Returns the counters of all stages since the loader was opened.

        Any thread may call it while the loader runs. `infeed.stats.LoaderStats`
        describes each entry.

        Raises:
            ClosedError: The loader is closed.
        """
        return self._core.stats()

    def explain(self, name: str = "loader") -> Explanation:
        """Reports the limit of this loop, from the counters so far.

        It does not change or slow the loop. ``infeed explain`` in the shell also
        measures the gain of each remedy.

        Args:
            name: Name of the loader in reports.

        Raises:
            ConfigError: No batch was delivered yet.
            ClosedError: The loader is closed.
        """
        return Explanation(self._core.explain(name))

    def serve_metrics(
        self, port: int = 0, host: str = "127.0.0.1", name: str = "loader"
    ) -> str:
        """Serves Prometheus metrics at ``http://HOST:PORT/metrics`` until `close`.

        Args:
            port: Port; 0 chooses a free one.
            host: Address to listen at; ``"0.0.0.0"`` also serves other machines.
            name: Value of the label ``loader``.

        Returns:
            The address as ``HOST:PORT``.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        return self._core.serve_metrics(f"{host}:{port}", name)

    def record(self, path: str | os.PathLike[str], *, paths: bool = False) -> None:
        """Records this loop in a file until `close`, for ``infeed explain FILE``.

        The file shows what the loop waited for, also over time, on any machine. It has
        counters, events, the plan, versions and the machine. It has no data, no names
        of records or classes, and no names of hosts or users. The plan contains names
        of fields and of your functions.

        A thread reads the counters about once per second and writes the file every 10
        seconds. The file stays below 256 KiB. A killed process leaves the last state.

        Args:
            path: File to write; an existing one is replaced.
            paths: Whether the file also has the description of the pipeline with its
                paths, examples of bad records with their names, and addresses of
                feeders.

        Raises:
            WriteError: The file cannot be written.
            ClosedError: The loader is closed.
        """
        text = _check.path("record", "path", path)
        self._core.record(text, _check.flag("record", "paths", paths), versions())

    @property
    def closed(self) -> bool:
        """Whether the loader is closed."""
        return self._core.closed

    def close(self, timeout: float | None = None) -> None:
        """Ends all threads and waits for them. Batches that are held stay valid.

        A thread ends once it has finished its current record. If a function of yours
        never returns, `close` waits until Ctrl-C or until `timeout`. Then it logs a
        warning that names the function, and leaves the thread behind. If the thread
        still runs when the process ends, the exit status is 1, or 130 after Ctrl-C.

        Args:
            timeout: Longest wait in seconds; None waits until all threads have ended.

        Raises:
            ConfigError: `timeout` is negative or not a number.
        """
        if timeout is not None:
            timeout = _check.number("close", "timeout", timeout, low=0)
        has_ended = False
        try:
            has_ended = self._core.close(timeout)
        finally:
            if not has_ended:
                if self._core not in _abandoned:
                    _abandoned.append(self._core)
                _log.warning("the loader is closed, but %s", _running())
            if self._ended is not None:
                self._ended()

    def __repr__(self) -> str:
        if self.closed:
            return "<infeed.Loader, closed>"
        return f"<infeed.Loader, epoch {self.epoch}, {len(self)} steps an epoch>"


class _EpochIterator:
    """Iterator over one epoch. Dropping it in the middle ends the epoch.

    Several threads may share it; each batch goes to one of them.
    """

    def __init__(
        self, core: _core.Loader, stream: Callable[[], Any] | None, parts: int
    ):
        self._core = core
        self._stream = stream
        self._parts = parts
        self._started = False
        self.ended = False
        # Whether Ctrl-C ended the last wait for a batch. The epoch goes on until
        # another loop begins, so that a state has the position in it.
        self.interrupted = False
        # Held while a batch is taken. Without it, a thread that waits while another one
        # receives the end takes the first batch of the next epoch.
        self._lock = threading.Lock()

    def __iter__(self) -> Self:
        return self

    @property
    def has_begun(self) -> bool:
        """Whether it is in the middle of its epoch."""
        return self._started and not self.ended

    def __next__(self) -> Batch | tuple[Batch, ...]:
        with self._lock:
            if self.ended:
                raise StopIteration
            self._started, self.interrupted = True, False
            try:
                parts = self._core.next_parts(self._streams())
            except Exception:
                self.ended = True
                raise
            except BaseException:
                self.interrupted = True
                raise
            if parts is None:
                self.ended = True
                raise StopIteration
        if not self._parts:
            return Batch(parts[0])
        return tuple(Batch(part) for part in parts)

    def _streams(self) -> list[object]:
        if self._stream is None:
            return []
        return list(self._stream()) if self._parts else [self._stream()]

    def __del__(self) -> None:
        # A forked child has no epoch to end, and no caller to raise an error to.
        with contextlib.suppress(ClosedError, ForkedError):
            if self.has_begun and not self._core.closed:
                self._core.end_epoch()
