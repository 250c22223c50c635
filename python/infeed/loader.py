"""A running pipeline: epochs of batches, what it counted, and its end."""

import atexit
import json
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from infeed import _check, _core
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, IteratorError
from infeed.explanation import Explanation

__all__ = ["BadRecord", "Filled", "Loader", "add_digests"]

_log = logging.getLogger("infeed")


_open: "weakref.WeakSet[Loader]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends threads while there still is an interpreter for those that call into it."""
    for loader in list(_open):
        loader._core.close()


@dataclass(frozen=True)
class BadRecord:
    """One record that was skipped or substituted.

    Attributes:
        index: Its number in the source, from 0.
        name: The file, or where else to look it up.
        reason: What is wrong with it.
    """

    index: int
    name: str
    reason: str


class Filled(NamedTuple):
    """Which batch tensors were filled with.

    Attributes:
        epoch: From 0.
        step: In the epoch, from 0.
        samples: Rows that hold a record: all but those of padding.
    """

    epoch: int
    step: int
    samples: int


class Loader:
    """Threads that prepare batches, and the memory they use.

    Made by `Pipeline.open`. A context manager; each ``for`` over it is one epoch::

        with pipeline.open(workers=8) as loader:
            for epoch in range(90):
                for images, labels in loader:
                    ...

    Preparation runs on across the seam between epochs. Leaving a loop with ``break``
    ends that epoch. ``len(loader)`` is the number of steps an epoch.

    Its threads end with `close`, at the end of ``with``, or when it is dropped.
    """

    def __init__(
        self,
        core: _core.Loader,
        parts: int = 0,
        ended: Callable[[], None] | None = None,
    ):
        self._core = core
        # What is to be done once, when this was closed or is gone.
        self._ended = None if ended is None else weakref.finalize(self, ended)
        # How many devices get a part of each batch; 0: batches are not cut.
        self._parts = parts
        _open.add(self)
        self._running: weakref.ref[_Epoch] | None = None
        # Gives the stream that the consumer works in when it asks for a batch, so that
        # what the device waits can be measured there; of several devices, one each.
        # Adapters know it.
        self._stream: Callable[[], Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch.

        Returns:
            Its batches, each a `Batch`; where ``devices`` were named, a tuple of the
            parts that they have, in their order.

        Raises:
            IteratorError: Another iterator is in the middle of an epoch.
            ClosedError: The loader was closed.
        """
        if self.closed:
            raise ClosedError("the loader is closed; open the pipeline again")
        running = None if self._running is None else self._running()
        if running is not None and not running.ended:
            raise IteratorError(
                "the loader is being iterated already; end that loop, or open the "
                "pipeline once for each"
            )
        epoch = _Epoch(self._core, self._stream, self._parts)
        self._running = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        return self._core.steps

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or else of the next one, from 0."""
        return self._core.epoch

    @property
    def records(self) -> int:
        """Number of records in the source."""
        return self._core.records

    @property
    def quarantine(self) -> list[BadRecord]:
        """The records that were skipped or substituted so far, each once."""
        return [BadRecord(*entry) for entry in self._core.quarantine()]

    def digest(self) -> str:
        """A digest of all that was delivered: a certificate to compare runs by.

        It is a sum over rows of hashes of epoch, position and record, and with
        ``open(digest="pixels")`` of the delivered bytes too, after a hyphen. The same
        for any number of workers. Those of the ranks of a run add up, with
        `infeed.add_digests`, to that of one process. An epoch that is begun again, as
        adapters do after a look at a batch, counts once.

        What was delivered before a state that was loaded counts as well, if the state
        has it. Those of several ranks have none, being equal on all ranks: put
        ``state["digest"] = infeed.add_digests(digests)`` there, and rank 0 of the
        resumed run counts it.
        """
        return self._core.digest()

    def step_digest(self) -> str:
        """The digest of the last batch that was delivered, on its own."""
        return self._core.step_digest()

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: a small dictionary that JSON can hold.

        It counts the batches that were delivered, not those under way. It is equal on
        all ranks, but for ``bad``: epoch, position and number of the bad records that
        this rank met, each once. They are what ``max_bad`` counts on from, and change
        no batch: where every rank goes on from the state of one, only what the others
        met is not counted on.
        """
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Goes on where a run was: the next ``for`` delivers the rest of its epoch.

        Nothing that was consumed is read again. The number of workers and of ranks may
        be another. A loop that runs ends.

        Args:
            state: What `state_dict` gave.
            strict: Refuse a state of another run. If False, the loader goes on at the
                same place of its own order, and logs a warning that says what differs
                and what that means.

        Raises:
            ConfigError: The state is of another dataset, description, seed or batch;
                the message names what differs.
            ClosedError: The loader was closed.
        """
        if not isinstance(state, Mapping):
            raise ConfigError("load_state_dict: give what state_dict() returned")
        for note in self._core.restore(json.dumps(dict(state)), strict):
            _log.warning("load_state_dict: %s", note)
        self._end_loop()

    def seek(self, epoch: int, step: int = 0) -> None:
        """Makes the next ``for`` begin at a step of an epoch. A loop that runs ends.

        Nothing before that place is read. Bad records that were met stay listed, and
        are not counted again.

        Raises:
            ConfigError: The epoch has no such step.
            ClosedError: The loader was closed.
        """
        for name, value in (("epoch", epoch), ("step", step)):
            if _check.integer("seek", name, value) >= 2**64:
                raise _check.refusal("seek", name, "below 2**64", value)
        self._core.seek(int(epoch), int(step))
        self._end_loop()

    def next_into(
        self,
        tensors: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        stream: Any = None,
    ) -> "Filled":
        """Copies fields of the next batch into tensors, at addresses that stay.

        For what must find its input where it was: a captured CUDA graph,
        ``torch.compile(mode="reduce-overhead")``::

            static = {"image": torch.empty(shape, device="cuda"), "label": labels}
            for _ in range(len(loader)):
                loader.next_into(static)
                graph.replay()

        The copies are made on the device, in the stream, behind what is there; the host
        does not wait for them. The batch's own memory is free at once. After the last
        step the next epoch begins. Fields that are not named are not copied.

        Args:
            tensors: By field, row-major, of the field's type and shape with rows first,
                on the device that batches are delivered on (of ``"sim"``: on the CPU).
                Anything with ``__dlpack__`` or ``__cuda_array_interface__`` that may be
                written to. Where ``devices`` were named, a list of those: for each
                device tensors that are there, with the rows of its part.
            stream: In which the copies are made and the tensors used: such as
                ``torch.cuda.Stream``, a stream of CuPy, or a handle; of several devices
                a list of one each. None: the default stream; `infeed.torch` takes the
                current one.

        Returns:
            Which batch it is, and how many of its rows hold a record.

        Raises:
            ConfigError: A tensor does not fit its field, or is elsewhere, with the call
                that makes one that does; a field stays on the host; batches are not
                all of one size; there are not tensors for each device; or batches are
                delivered on the host. No batch is lost.
            IteratorError: A ``for`` is in the middle of an epoch.
        """
        running = None if self._running is None else self._running()
        if running is not None and running.begun:
            raise IteratorError(
                "the loader is being iterated; end that loop before next_into"
            )
        each = self._for_each("tensors", tensors, "a tensor for each field, by name")
        for of in each:
            if not isinstance(of, Mapping):
                raise _check.refusal(
                    "next_into", "tensors", "a tensor for each field, by name", of
                )
        if stream is None and self._stream is not None:
            stream = self._stream()
        if stream is None:
            streams = [None] * len(each)
        else:
            streams = self._for_each("stream", stream, "a stream")
        named = [list(of.items()) for of in each]
        filled = Filled(*self._core.next_into(named, streams))
        if filled.step + 1 == len(self):
            # Whoever counts steps does not ask once more: the epoch is over now.
            self._core.end_epoch()
        return filled

    def _for_each(self, name: str, given: Any, one: str) -> list[Any]:
        """What is given for each device: of one it is not in a list.

        Raises:
            ConfigError: It is not for each of them.
        """
        if not self._parts:
            return [given]
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        if is_list and len(given) == self._parts:
            return list(given)
        got = f"{len(given)} of them" if is_list else type(given).__name__
        raise ConfigError(
            f"next_into: {name} must be a list of one for each of the {self._parts} "
            f"devices, each {one}, got {got}"
        )

    def _end_loop(self) -> None:
        """Ends the loop that runs without a word to the engine, which moved on."""
        running = None if self._running is None else self._running()
        if running is not None:
            running.ended = True

    def stats(self) -> dict[str, Any]:
        """What every stage counted since the loader was opened.

        May be called from any thread while the loader runs.

        Returns:
            A dictionary of ``batches``, ``samples``, ``bad`` records, each once,
            ``wait_s`` that the consumer waited, ``first_batch_s`` from opening,
            ``elapsed_s``, batches that are ``ready`` and ``held``, ``unknown_pixels``
            of no class, ``warnings`` of decoders, ``workers`` that work now,
            ``io_threads``, ``budget_bytes``; ``tuned``, with ``workers="auto"``:
            ``cores`` to count on, the ``most`` workers there may be, whether it has
            ``settled`` and a line of ``text`` that says why, else None; ``python``, for
            items of a Python object: ``items``, ``wait_s`` for the interpreter's lock
            and ``inside_s`` in Python, else None; ``device``, where batches go to one:
            its ``name``, ``batches`` sent, ``transfers`` and ``bytes`` copied to it,
            ``jpegs`` that it decoded,
            ``slots`` there are, ``overflow`` of them made because batches were kept,
            ``gap_s`` that its clock saw it wait for ``gap_batches`` of them whose
            stream was known, ``late_s`` that ``late_batches`` of others were waited for
            by whoever had them, and ``placement``: the ``name`` of who makes rows
            larger now, whether that has ``settled``, a line of ``text`` that says why,
            ``step_s`` that a step took when that was found, and ``others`` that were
            tried, by name how many times as long their steps take, else None;
            ``storage``, what all reads of this process from buckets and web servers
            took: ``requests``, ``retries`` and ``hedges`` among them, ``hedges_won``,
            ``bytes`` that came, and ``cache_hits``, ``cache_misses`` and
            ``cache_damaged`` of pieces kept on the disk; ``feeders``, of each its
            ``host`` and ``node``, where they are
            known, whether it is ``connected``,
            ``batches`` and ``bytes`` that it made, ``wait_s`` from asking to having
            them, ``receiving_s`` in which bytes came, ``cpu_s`` of processor time that
            took here, batches ``redone`` elsewhere, ``declined`` or ``corrupt``, how
            often it was ``lost`` or ``refused`` this run, and its last ``problem``;
            ``devices``, a list of the same as ``device`` for each where there are
            several, of which that then has the sums and the longest gaps; and
            ``stages``, a list of ``name``,
            ``samples``, ``bytes_in``, ``bytes_out``, and in seconds summed over threads
            ``wall_s``, ``cpu_s`` and ``wait_s``.

        Raises:
            ClosedError: The loader was closed.
        """
        return self._core.stats()

    def explain(self, name: str = "loader") -> Explanation:
        """Tells what limits this loop, from what was counted so far.

        Disturbs nothing and tries nothing: ``infeed explain`` in the shell also tells
        what each remedy would gain.

        Args:
            name: What to call it in reports.

        Raises:
            ConfigError: No batch was delivered yet.
            ClosedError: The loader was closed.
        """
        return Explanation(self._core.explain(name))

    def serve_metrics(
        self, port: int = 0, host: str = "127.0.0.1", name: str = "loader"
    ) -> str:
        """Answers Prometheus at ``http://HOST:PORT/metrics`` until the loader closes.

        Args:
            port: 0 takes one that is free.
            host: ``"0.0.0.0"`` answers other machines too.
            name: The value of the label ``loader``.

        Returns:
            The address, ``HOST:PORT``.

        Raises:
            OSError: The address is taken or not this machine's.
        """
        return self._core.serve_metrics(f"{host}:{port}", name)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def close(self) -> None:
        """Ends all threads and waits for them. Batches that are held stay valid."""
        self._core.close()
        if self._ended is not None:
            self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<infeed.Loader, closed>"
        return f"<infeed.Loader, epoch {self.epoch}, {len(self)} steps an epoch>"


def add_digests(digests: Iterable[str]) -> str:
    """Adds up digests: of the ranks of a run, or of steps.

    Args:
        digests: What `Loader.digest` or `Loader.step_digest` gave. Bytes are covered
            if they are in all of them.

    Raises:
        ConfigError: One is no digest.
    """
    return _core.add_digests(list(digests))


class _Epoch:
    """Iterator over one epoch; dropping it midway ends the epoch."""

    def __init__(
        self, core: _core.Loader, stream: Callable[[], Any] | None, parts: int
    ):
        self._core = core
        self._stream = stream
        self._parts = parts
        self._started = False
        self.ended = False

    def __iter__(self) -> Self:
        return self

    @property
    def begun(self) -> bool:
        """Whether it is in the middle of its epoch."""
        return self._started and not self.ended

    def __next__(self) -> Batch | tuple[Batch, ...]:
        if self.ended:
            raise StopIteration
        self._started = True
        try:
            parts = self._core.next_parts(self._streams())
        except Exception:
            self.ended = True
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
        if self.begun and not self._core.closed:
            self._core.end_epoch()
