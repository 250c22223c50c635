"""The thread that runs an iterable ahead of one loop, and the queue between them."""

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from infeed.errors import ClosedError, ForkedError

__all__ = [
    "ItemConverter",
    "PrefetchCounts",
    "PrefetchIterator",
    "PrefetchThread",
    "at_work",
]

# Seconds that the interpreter's exit waits for items that are being made. A thread that
# still runs then stops at an arbitrary point.
_AT_EXIT_S = 2.0

# All objects that may have a thread.
at_work: "weakref.WeakSet[PrefetchThread]" = weakref.WeakSet()


class PrefetchCounts:
    """Counters of a loop and its thread. Only one of the two writes each number."""

    def __init__(self) -> None:
        self.items = 0
        self.waited_s = self.first_s = self.made_s = self.idle_s = 0.0

    def __add__(self, other: "PrefetchCounts") -> "PrefetchCounts":
        total = PrefetchCounts()
        for name in vars(total):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


class EndMarker:
    """Marks the end of the items in the queue."""


class RaisedError:
    """An exception in the queue, at the position of its item."""

    def __init__(self, error: BaseException):
        self.error = error


class ItemConverter(Protocol):
    """Converts items between the iterable and the loop."""

    def convert(self, item: Any) -> Any:
        """Returns the loop's value for an item. Runs in the thread."""

    def finish(self) -> None:
        """Completes work that `convert` started. The loop may already have the item."""

    def deliver(self, item: Any) -> None:
        """Marks the item as in use by the loop. Runs in the loop's thread."""


class PrefetchThread:
    """The thread of one loop, and the queue between them.

    The thread refers to this object and not to its `PrefetchIterator`. So when a loop
    is left, its iterator is dropped, and that stops the thread. ``_room`` is the number
    of items that may still be started: an item uses room until the loop takes it.
    """

    def __init__(
        self,
        iterable: Any,
        source: Iterator[Any],
        batches: int,
        mover: ItemConverter | None,
        state_of: Callable[[], Any],
        name: str = "infeed-prefetch",
    ):
        self.counts = PrefetchCounts()
        self.iterable = iterable
        self.mover = mover
        # States with the last item that the loop took, and the last item made.
        self.state = self.reached = state_of()
        self._state_of = state_of
        self._source: Iterator[Any] | None = source
        self._room = batches
        self._ready: deque[Any] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        # Whether Ctrl-C ended the loop's last wait. A notebook keeps its iterator.
        self.interrupted = False
        # After an error, the thread continues only if the loop asks for more.
        self._paused = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        at_work.add(self)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the loop has ended."""
        return self._stopped

    @property
    def runs(self) -> bool:
        """Whether its thread runs in this process."""
        return os.getpid() == self._pid and self._thread.is_alive()

    def take(self) -> Any:
        """Returns the next entry of the queue. Blocks; signals can interrupt it."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "this prefetch runs in the parent of this process, before the fork; "
                "iterate again in this process"
            )
        with self._changed:
            if self._paused and not self._ready:
                self._paused = False
                self._changed.notify_all()
            while not self._ready:
                if self._stopped:
                    raise ClosedError("the prefetch is closed; iterate again")
                self._changed.wait()
            self._room += 1
            self._changed.notify_all()
            entry, state = self._ready.popleft()
            if not isinstance(entry, RaisedError):
                self.state = state
            return entry

    def stop(self) -> None:
        """Makes the thread end after its current item. Does not wait."""
        if os.getpid() != self._pid:
            # A forked child has no such thread, and the lock may be held for ever.
            return
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the thread has ended."""
        if self.runs and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        over = False
        try:
            while not over and self._wait_for_room():
                begun = time.perf_counter()
                entry, state = self._make()
                self.counts.made_s += time.perf_counter() - begun
                over = entry is EndMarker
                self._put(entry, state)
                # The loop may release the item long before the next one is made.
                del entry
                if self.mover is not None:
                    self.mover.finish()
        finally:
            # Runs a generator's `finally` in the thread that ran the generator.
            close = getattr(self._source, "close", None)
            self._source = None
            if callable(close):
                close()

    def _wait_for_room(self) -> bool:
        """Waits until another item may be made; False if the loop has ended."""
        begun = time.perf_counter()
        with self._changed:
            while not self._stopped and (self._paused or self._room == 0):
                self._changed.wait()
            self._room -= 1
            self.counts.idle_s += time.perf_counter() - begun
            return not self._stopped

    def _make(self) -> tuple[Any, Any]:
        """Returns the next item or its exception, and the state after it."""
        assert self._source is not None
        try:
            item = next(self._source, EndMarker)
            if self.mover is not None and item is not EndMarker:
                item = self.mover.convert(item)
            self.reached = self._state_of()
            return item, self.reached
        except BaseException as error:
            # The iterable may have advanced although it failed.
            with contextlib.suppress(Exception):
                self.reached = self._state_of()
            return RaisedError(error), None

    def _put(self, entry: Any, state: Any) -> None:
        with self._changed:
            if not self._stopped:
                self._paused = isinstance(entry, RaisedError)
                self._ready.append((entry, state))
                self._changed.notify_all()


class PrefetchIterator:
    """Iterator of the loop. Dropping it ends the thread."""

    def __init__(self, run: PrefetchThread):
        self._run = run
        self._begun = self._ended = False
        weakref.finalize(self, run.stop).atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        run, counts = self._run, self._run.counts
        requested_at = time.perf_counter()
        run.interrupted = False
        try:
            entry = run.take()
        except Exception:
            raise
        except BaseException:
            run.interrupted = True
            raise
        waited_s = time.perf_counter() - requested_at
        counts.waited_s += waited_s
        if not self._begun:
            counts.first_s, self._begun = waited_s, True
        if entry is EndMarker:
            self._ended = True
            run.stop()
            run.join()
            raise StopIteration
        if isinstance(entry, RaisedError):
            try:
                raise entry.error
            finally:
                # The error's traceback holds this frame, which would hold the error.
                del entry
        counts.items += 1
        if run.mover is not None:
            run.mover.deliver(entry)
        return entry


@atexit.register
def _stop_all() -> None:
    """Ends all threads before the interpreter does."""
    runs = [run for run in at_work if run.runs]
    for run in runs:
        run.stop()
    until = time.monotonic() + _AT_EXIT_S
    for run in runs:
        run.join(max(0.0, until - time.monotonic()))
