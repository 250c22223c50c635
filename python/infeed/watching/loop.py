"""`watch` itself: an iterator between a loader and its loop that measures times.

Its cost per step was measured on two cores of an EPYC (Zen 4) with Python 3.11; see
`docs/reference/watch.md`.
"""

import atexit
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from infeed import _check
from infeed.errors import LoaderError
from infeed.pipeline import Pipeline
from infeed.watching import loaders
from infeed.watching.batch_sizes import BatchSizes, batch_sizes
from infeed.watching.dataset_calls import DatasetCalls, measure_calls
from infeed.watching.durations import Durations
from infeed.watching.figures import (
    Ceiling,
    DurationSummary,
    Figures,
    LockShares,
    ProcessorLoad,
    Throughput,
)
from infeed.watching.processor import ProcessTree, usable_cores
from infeed.watching.recording import WatchRecording
from infeed.watching.report import WatchReport, measurements
from infeed.watching.sampler import ALONE, STEP, WAIT, LockSampler, lock_exists
from infeed.watching.throughput import (
    SECONDS,
    BatchImages,
    images_of,
    measure_throughput,
    pipeline_over,
)

# Seconds that a loader gets to fill its queues before the step counts as alone, and the
# seconds between two measurements of its processor use.
SETTLE_S = 5.0
SPAN_S = 0.25
# Share of the loop's time from which on the loader is the limit, so that the calls of
# its dataset are measured.
_LIMIT = 0.05
# Cores below which only the loop's thread is active. Children's times are counted in
# hundredths of a second, so one count per measurement must not matter.
IDLE = 0.05


def watch(
    loader: Iterable[Any],
    *,
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    pipeline: Pipeline | None = None,
    batch_size: int | Callable[[Any], int] | None = None,
    batches: int | None = None,
    ceiling: int = 0,
    sync: Callable[[], object] | None = None,
    lock: bool = True,
    record: str | os.PathLike[str] | None = None,
) -> "Watch":
    """Watches a loop over any loader: its waiting time, and changes that would help.

        watch = infeed.watch(loader)
        for batch in watch:
            step(batch)
        print(watch.report())

    The loader may be a PyTorch DataLoader, a Keras PyDataset (run with its workers, as
    ``model.fit`` does), a tf.data dataset, a pipeline or loader of infeed, or any
    iterable. Without ``batches`` and ``ceiling``, the loop sees the same batches,
    exceptions and length as without the watch. Measurements of several epochs add up.

    A step is the time from taking a batch to asking for the next one. If a device
    computes asynchronously, steps look too short; pass its synchronizing function as
    ``sync``, such as ``torch.cuda.synchronize``.

    Args:
        loader: The loader.
        files: Folder that the loader reads, or its two folders (images, masks). The
            report then includes the throughput of infeed over them.
        pipeline: Pipeline that does the loader's work, in place of ``files``.
        batch_size: Samples per batch, or a function that counts them. None: the batch
            size of a DataLoader, with the length of its sampler; for other loaders the
            first dimension of the batch's arrays, if it is the same for all of them.
        batches: Number of batches after which each epoch ends.
        ceiling: Number of times to repeat the last batch of the first epoch, to measure
            the step with the loader at rest. **The loop trains on it each time**;
            `Watch.ceiling` measures outside the loop.
        sync: Function to call at the end of each step.
        lock: Whether a thread requests the interpreter's lock a hundred times per
            second, to measure how busy the lock and the processor are.
        record: File for a recording of the loop, for ``infeed explain FILE``. It has
            the verdict and the waiting over time, and no data and no paths. The watch
            writes it every 10 seconds and at its end.

    Raises:
        ConfigError: An argument is invalid.
        WriteError: The file of ``record`` cannot be written.
    """
    return Watch(
        loader,
        files=files,
        pipeline=pipeline,
        batch_size=batch_size,
        batches=batches,
        ceiling=ceiling,
        sync=sync,
        lock=lock,
        record=record,
    )


# Watches with a recording that is not complete.
_recorded: "weakref.WeakSet[Watch]" = weakref.WeakSet()


@atexit.register
def _complete_recordings() -> None:
    """Writes the last state of each recording when the program ends."""
    for watch in list(_recorded):
        watch._complete_recording()


class Watch:
    """A loader that is watched; `watch` returns one. It is a context manager.

    It holds the last batch until the next one, or until `close`.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        files: Any,
        pipeline: Pipeline | None,
        batch_size: int | Callable[[Any], int] | None,
        batches: int | None,
        ceiling: int,
        sync: Callable[[], object] | None,
        lock: bool,
        record: str | os.PathLike[str] | None,
    ):
        if batch_size is not None and not callable(batch_size):
            batch_size = _check.integer("watch", "batch_size", batch_size, low=1)
        if batches is not None:
            batches = _check.integer("watch", "batches", batches, low=1)
        if sync is not None and not callable(sync):
            raise _check.error("watch", "sync", "a function", sync)
        if pipeline is not None and not isinstance(pipeline, Pipeline):
            raise _check.error("watch", "pipeline", "an infeed.Pipeline", pipeline)
        if pipeline is not None and files is not None:
            raise _check.error("watch", "files", "left out with pipeline", files)
        self._loader = loader
        self._files = files
        self._pipeline = pipeline
        self._batch_size = batch_size
        self._most = batches
        self._repeats = _check.integer("watch", "ceiling", ceiling)
        self._sync = sync
        self._sampler = LockSampler() if _check.flag("watch", "lock", lock) else None
        self._running_epoch: weakref.ref[_WatchedEpoch] | None = None
        self._last: list[Any] = []
        self._images: BatchImages | None = None
        self._wait, self._step = Durations(), Durations()
        self._first_s: float | None = None
        self._seam_s = 0.0
        # Time of the loader at the end of an epoch; counted if another one begins.
        self._ending_s = 0.0
        self._batches = self._samples = self._epochs = self._ended = 0
        self._counted = True
        self._cpu_wait_s = self._cpu_step_s = 0.0
        self._alone: Ceiling | None = None
        self._throughput: Throughput | None = None
        self._calls: DatasetCalls | None = None
        self._measured_calls = False
        if self._sampler is not None:
            # A watch that is dropped in the middle of an epoch must not leave a thread.
            weakref.finalize(self, self._sampler.stop)
        self._recording: WatchRecording | None = None
        if record is not None:
            path = _check.path("watch", "record", record)
            self._recording = WatchRecording(path, _name(loader))
            _recorded.add(self)

    def __iter__(self) -> Iterator[Any]:
        """Begins an epoch of the loader."""
        self._end()
        epoch = _WatchedEpoch(self)
        self._running_epoch = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        """Returns the loader's length; an error of its `len` is passed on."""
        length = len(self._loader)  # type: ignore[arg-type]
        return length if self._most is None else min(length, self._most)

    def __getattr__(self, name: str) -> Any:
        """Returns other attributes of the loader, such as `set_epoch`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def ceiling(self, step: Callable[[Any], object], batches: int = 50) -> Ceiling:
        """Measures the step alone, on the last batch, which is in memory.

        During this the loader fills its queues and comes to rest; then the measurement
        begins. Call it after the loop, or after ``break``. A step that trains does so
        on that batch each time; if this matters, use a copy of the model.

        Args:
            step: The loop's work on a batch. It must not write to the batch.
            batches: Number of steps to measure.

        Raises:
            LoaderError: No batch was taken yet, or the watch is closed.
        """
        batches = _check.integer("ceiling", "batches", batches, low=2)
        if not self._last:
            raise LoaderError("ceiling: no batch was taken yet; iterate first")
        batch = self._last[0]
        epoch = None if self._running_epoch is None else self._running_epoch()
        if epoch is not None:
            epoch.pause()
        ceiling = self._begin_ceiling(batches)
        self._phase(ALONE)
        try:
            while not ceiling.done:
                begun = time.perf_counter()
                step(batch)
                if self._sync is not None:
                    self._sync()
                ceiling.add(time.perf_counter() - begun)
        finally:
            self._stop_sampling()
        self._alone = ceiling.alone()
        return self._alone

    def report(self, seconds: float = SECONDS) -> WatchReport:
        """Returns the report so far; it can be called at any time.

        With ``files`` or ``pipeline``, the first call after a batch was taken runs
        infeed over them. If a DataLoader of PyTorch limits the loop, the first call
        also reads up to 24 samples of its dataset in another process, for up to 2 s, to
        find the slow step, and the Python code that `adopt` would call.

        Args:
            seconds: Duration of infeed's run.

        Raises:
            ConfigError: No pipeline follows from ``files``; set ``pipeline``.
            InfeedError: The pipeline failed.
        """
        if self._throughput is None and self._batches:
            self._throughput = self._pipeline_throughput(seconds)
        figures = self._figures()
        lost = max(figures.waiting, figures.interference)
        if not self._measured_calls and lost >= _LIMIT:
            self._measured_calls = True
            self._calls = measure_calls(self._loader)
        return WatchReport(self._figures())

    def close(self) -> None:
        """Ends the current epoch and the recording, and releases the last batch."""
        self._end()
        self._complete_recording()
        # A report can follow, and predicts the rate of infeed for such images.
        self._images = self._images_of_batch()
        self._last.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def __del__(self) -> None:
        # After an error in the constructor there is no recording.
        if hasattr(self, "_recording"):
            self._complete_recording()

    def __repr__(self) -> str:
        return (
            f"<infeed.watching.Watch of {_name(self._loader)}, {self._batches} batches>"
        )

    def _end(self) -> None:
        running = None if self._running_epoch is None else self._running_epoch()
        if running is not None:
            running.end()
        self._running_epoch = None

    def _record(self, *, closed: bool = False, ends_epoch: bool = False) -> None:
        """Adds the counters so far to the recording, and writes it when due."""
        recording = self._recording
        if recording is None:
            return
        begun = time.perf_counter()
        waited_s = self._wait.total_s + self._seam_s
        samples = self._samples if self._counted else 0
        is_due = recording.add(self._batches, int(samples), waited_s, self._ended)
        if is_due or closed or (ends_epoch and recording.may_write()):
            found = measurements(self._figures()) if self._batches else None
            recording.write(found, begun, closed=closed)

    def _complete_recording(self) -> None:
        """Writes the last state of the recording, and ends it."""
        if self._recording is None:
            return
        self._record(closed=True)
        self._recording = None
        _recorded.discard(self)

    def _begin_ceiling(self, batches: int) -> "_CeilingRun":
        """Starts the sampler for the ceiling, after reading the load of others."""
        rate_in_loop = None
        self._stop_sampling()
        if self._sampler is not None:
            processor = self._processor()
            rate_in_loop = processor.threads + processor.children
            self._sampler.start(adds_up=False)
        return _CeilingRun(batches, rate_in_loop)

    def _stop_sampling(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def _phase(self, name: str) -> None:
        if self._sampler is not None:
            self._sampler.begin(name)

    def _sizes(self) -> BatchSizes:
        """Returns the function that counts the samples of an epoch's batches."""
        given = self._batch_size
        if callable(given):
            return lambda number, batch: given(batch)
        if given is not None:
            return lambda number, batch: given
        return batch_sizes(self._loader)

    def _count_batch(self, batch: Any, count: int | None) -> None:
        """Counts a batch and its samples."""
        self._last[:] = [batch]
        self._batches += 1
        if count is None:
            self._counted = False
        else:
            self._samples += count

    def _pipeline_throughput(self, seconds: float) -> Throughput | None:
        if self._pipeline is not None:
            return measure_throughput(self._pipeline, seconds)
        if self._files is None:
            return None
        pipeline, notes = pipeline_over(self._files, self._images_of_batch())
        throughput = measure_throughput(pipeline, seconds)
        return Throughput(**{**vars(throughput), "notes": notes})

    def _images_of_batch(self) -> BatchImages | None:
        return images_of(self._last[0]) if self._last else self._images

    def _figures(self) -> Figures:
        sampler = self._sampler
        return Figures(
            loader=_name(self._loader),
            batches=self._batches,
            samples=self._samples if self._counted and self._samples else None,
            epochs=self._epochs,
            first_batch_s=self._first_s,
            seam_s=self._seam_s,
            wait=_times(self._wait),
            step=_times(self._step),
            alone=self._alone,
            lock=_lock(sampler),
            processor=self._processor(),
            throughput=self._throughput,
            calls=self._calls,
            sampler_s=sampler.cost_s if sampler is not None else 0.0,
            asynchronous=self._sync is None and loaders.runs_on_device(),
        )

    def _processor(self) -> ProcessorLoad:
        wait_s = self._wait.total_s + self._seam_s
        step_s = self._step.total_s
        spent_s = self._cpu_wait_s + self._cpu_step_s
        loop = spent_s / max(wait_s + step_s, 1e-9)
        threads = python = children = machine = 0.0
        if self._sampler is not None and (span := self._sampler.spent).at_s > 0:
            threads = max(0.0, span.own_s / span.at_s - loop)
            python = span.python_s / span.at_s
            children = span.children_s / span.at_s
            machine = span.machine_s / span.at_s
        return ProcessorLoad(
            usable=usable_cores(),
            loop=loop,
            loop_waiting=self._cpu_wait_s / max(wait_s, 1e-9),
            loop_stepping=self._cpu_step_s / max(step_s, 1e-9),
            threads=threads,
            python=min(python, threads),
            children=children,
            machine=machine,
            sampled=self._sampler is not None and self._sampler.spent.at_s > 0,
        )


class _WatchedEpoch:
    """Iterator over one epoch that measures times."""

    def __init__(self, watch: Watch):
        self._watch = watch
        self._requested_at = time.perf_counter()
        self._cpu_at_request = time.thread_time()
        self._given_at: float | None = None
        self._given_cpu = 0.0
        self._taken = 0
        self._ended = self._sampled = False
        self._ceiling: _CeilingRun | None = None
        watch._phase(WAIT)
        watch._epochs += 1
        self._sizes = watch._sizes()
        # Loaders fork their processes here, so the sampler's thread must not run yet.
        self._iterator = loaders.iterator(watch._loader)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        watch = self._watch
        if self._ended:
            raise StopIteration
        if self._given_at is not None:
            self._end_step()
        elif self._taken:
            self._requested_at, self._cpu_at_request = (
                time.perf_counter(),
                time.thread_time(),
            )
        if self._ceiling is not None:
            return self._again()
        if self._taken == watch._most:
            return self._finish()
        watch._phase(WAIT)
        try:
            batch = next(self._iterator)
        except StopIteration:
            watch._ending_s = time.perf_counter() - self._requested_at
            return self._finish()
        except BaseException as error:
            # The epoch may continue: some iterators work after an error.
            self.pause()
            if watch._recording is not None:
                watch._recording.add_error(error)
                watch._record(ends_epoch=True)
            raise
        self._count_batch(batch)
        return batch

    def end(self) -> None:
        """Ends the epoch and the sampling; measurements stay."""
        if self._ended:
            return
        self.pause()
        self._ended = True
        self._watch._ended += 1
        self._watch._record(ends_epoch=True)
        # Runs a generator's `finally` now, as without a watch.
        del self._iterator

    def pause(self) -> None:
        """Stops the clock and the sampling until the next batch."""
        self._given_at = None
        self._sampled = False
        self._watch._stop_sampling()

    def __del__(self) -> None:
        # After an error in `iter(loader)` there is no iterator.
        if hasattr(self, "_iterator"):
            self.end()

    def _end_step(self) -> None:
        """Ends the step: the loop asks for the next batch."""
        watch = self._watch
        if watch._sync is not None:
            watch._sync()
        assert self._given_at is not None
        self._requested_at, self._cpu_at_request = (
            time.perf_counter(),
            time.thread_time(),
        )
        step_s = self._requested_at - self._given_at
        self._given_at = None
        if self._ceiling is not None:
            self._ceiling.add(step_s)
            return
        watch._step.add(step_s)
        watch._cpu_step_s += self._cpu_at_request - self._given_cpu

    def _count_batch(self, batch: Any) -> None:
        """Counts a batch that arrived. The step begins when this returns."""
        watch = self._watch
        wait_s = time.perf_counter() - self._requested_at
        cpu = time.thread_time()
        if watch._first_s is None:
            watch._first_s = wait_s
        else:
            watch._cpu_wait_s += cpu - self._cpu_at_request
            if self._taken == 0:
                watch._seam_s += watch._ending_s + wait_s
                watch._ending_s = 0.0
            else:
                watch._wait.add(wait_s)
        watch._count_batch(batch, self._sizes(self._taken, batch))
        self._taken += 1
        recording = watch._recording
        if recording is not None and time.perf_counter() >= recording.due_at:
            watch._record()
        if not self._sampled and watch._sampler is not None:
            self._sampled = True
            watch._sampler.loop = threading.get_ident()
            watch._sampler.start()
        self._give(STEP)

    def _give(self, phase: str) -> None:
        self._watch._phase(phase)
        self._given_at, self._given_cpu = time.perf_counter(), time.thread_time()

    def _finish(self) -> Any:
        """Ends the epoch, or begins the ceiling."""
        watch = self._watch
        if watch._repeats and watch._alone is None and watch._last:
            self._ceiling = watch._begin_ceiling(watch._repeats)
            # The loop trains on each repeated batch, so it gets none while waiting.
            self._ceiling.wait()
            return self._again()
        self.end()
        raise StopIteration

    def _again(self) -> Any:
        """Returns the last batch again, for the ceiling."""
        watch = self._watch
        assert self._ceiling is not None
        if self._ceiling.done:
            watch._alone = self._ceiling.alone()
            self.end()
            raise StopIteration
        self._give(ALONE)
        return watch._last[0]


class _CeilingRun:
    """Steps on one batch: until the loader is at rest, then those that are measured.

    Loaders work until their queues are full. A loader is at rest if only the loop's
    thread uses the processor. If the step has its own threads, it is at rest when the
    processor use has fallen well below that of the loop and falls no more.
    """

    def __init__(self, wanted: int, rate_in_loop: float | None):
        self.done = False
        self._wanted = wanted
        self._rate_in_loop = rate_in_loop
        self._steps = Durations()
        self._tree = ProcessTree()
        self._begun = self._span_at = time.perf_counter()
        self._span_spent = self._others()
        self._rate: float | None = None
        self._settled_s: float | None = None
        self._at_rest = False

    def add(self, step_s: float) -> None:
        """Adds a step."""
        if self._settled_s is None:
            self._settle()
            return
        self._steps.add(step_s)
        self.done = self._steps.count >= self._wanted

    def wait(self) -> None:
        """Sleeps until the loader is at rest."""
        while self._settled_s is None:
            time.sleep(SPAN_S / 10)
            self._settle()

    def alone(self) -> Ceiling:
        """Returns the measurement."""
        return Ceiling(
            step=_times(self._steps),
            settle_s=self._settled_s or 0.0,
            at_rest=self._at_rest,
        )

    def _settle(self) -> None:
        now = time.perf_counter()
        if now - self._span_at >= SPAN_S:
            spent = self._others()
            rate = (spent - self._span_spent) / (now - self._span_at)
            self._at_rest = self._rests(rate)
            self._rate, self._span_at, self._span_spent = rate, now, spent
        if self._at_rest or now - self._begun >= SETTLE_S:
            self._settled_s = now - self._begun

    def _rests(self, rate: float) -> bool:
        if rate < IDLE:
            return True
        if self._rate_in_loop is None or self._rate is None:
            return False
        return rate < 0.7 * self._rate_in_loop and rate > 0.8 * self._rate

    def _others(self) -> float:
        """Returns the processor seconds of all other threads."""
        spent = self._tree.read()
        return spent.own_s + spent.children_s - time.thread_time()


def _lock(sampler: LockSampler | None) -> LockShares | None:
    if sampler is None or not lock_exists():
        return None
    requests = sampler.requests
    stepping = requests[STEP]
    return LockShares(
        requests[WAIT].share,
        stepping.share,
        requests[ALONE].share,
        stepping.waited_s / stepping.requests if stepping.requests else 0.0,
    )


def _times(durations: Durations) -> DurationSummary:
    middle_s, error_s = durations.middle()
    return DurationSummary(
        durations.count,
        durations.total_s,
        durations.mean_s,
        durations.quantile(0.5),
        durations.quantile(0.99),
        middle_s,
        # JSON has no infinity.
        error_s if math.isfinite(error_s) else 0.0,
    )


def _name(loader: Any) -> str:
    kind = type(loader)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
