"""The thread that runs an iterable ahead of one loop, and what passes between them."""

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

__all__ = ["Counts", "Items", "Moving", "Run", "at_work"]

# How long the end of the interpreter waits for items that are being made: a thread that
# still runs then is stopped at any place.
_AT_EXIT_S = 2.0

# Whatever may have a thread.
at_work: "weakref.WeakSet[Run]" = weakref.WeakSet()


class Counts:
    """What a loop and its thread counted; each number has one writer."""

    def __init__(self) -> None:
        self.items = 0
        self.waited_s = self.first_s = self.made_s = self.idle_s = 0.0

    def __add__(self, other: "Counts") -> "Counts":
        total = Counts()
        for name in vars(total):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


class End:
    """Stands in the queue after the last item."""


class Failure:
    """Stands in the queue in the place of an item."""

    def __init__(self, error: BaseException):
        self.error = error


class Moving(Protocol):
    """What is done with an item on its way from the iterable to the loop."""

    def moved(self, item: Any) -> Any:
        """What the loop is given for an item. In the thread."""

    def settled(self) -> None:
        """Ends what `moved` has begun, while the loop may have the item already."""

    def hand_over(self, item: Any) -> None:
        """Says who works on the item from now on. In the loop's thread."""


class Run:
    """The thread of one loop, and what passes between the two.

    The thread holds this and not `Items`, so that a loop that is left drops `Items`,
    which stops the thread. ``_room`` is how many items may still be made: an item
    has its room from before it is made until it is taken.
    """

    def __init__(
        self,
        iterable: Any,
        source: Iterator[Any],
        batches: int,
        mover: Moving | None,
        state_of: Callable[[], Any],
        name: str = "infeed-prefetch",
    ):
        self.counts = Counts()
        self.iterable = iterable
        self.mover = mover
        # Beside the item that the loop took last, and the one that was made last.
        self.state = self.reached = state_of()
        self._state_of = state_of
        self._source: Iterator[Any] | None = source
        self._room = batches
        self._ready: deque[Any] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        # After an error the iterable is asked again only if the loop does so too.
        self._paused = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        at_work.add(self)
        self._thread.start()

    @property
    def left(self) -> bool:
        """Whether no loop wants more of it."""
        return self._stopped

    @property
    def runs(self) -> bool:
        """Whether it has a thread in this process."""
        return os.getpid() == self._pid and self._thread.is_alive()

    def take(self) -> Any:
        """The next entry of the queue. Blocks, and can be interrupted."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "this prefetch runs in another process, of which this one is a fork; "
                "iterate it anew here"
            )
        with self._changed:
            if self._paused and not self._ready:
                self._paused = False
                self._changed.notify_all()
            while not self._ready:
                if self._stopped:
                    raise ClosedError("the prefetch was closed; iterate it anew")
                self._changed.wait()
            self._room += 1
            self._changed.notify_all()
            entry, state = self._ready.popleft()
            if not isinstance(entry, Failure):
                self.state = state
            return entry

    def stop(self) -> None:
        """Has the thread end after the item that it is making. Does not wait."""
        if os.getpid() != self._pid:
            # The child has no such thread, and the lock may be held for ever.
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
            while not over and self._admitted():
                begun = time.perf_counter()
                entry, state = self._make()
                self.counts.made_s += time.perf_counter() - begun
                over = entry is End
                self._put(entry, state)
                # The loop may be done with it long before the next is made.
                del entry
                if self.mover is not None:
                    self.mover.settled()
        finally:
            # A generator runs its `finally` here, in the thread that ran it.
            close = getattr(self._source, "close", None)
            self._source = None
            if callable(close):
                close()

    def _admitted(self) -> bool:
        """Waits until one more item may be made; False when none is wanted."""
        begun = time.perf_counter()
        with self._changed:
            while not self._stopped and (self._paused or self._room == 0):
                self._changed.wait()
            self._room -= 1
            self.counts.idle_s += time.perf_counter() - begun
            return not self._stopped

    def _make(self) -> tuple[Any, Any]:
        """The next item, or what stands in its place; and the state after it."""
        assert self._source is not None
        try:
            item = next(self._source, End)
            if self.mover is not None and item is not End:
                item = self.mover.moved(item)
            self.reached = self._state_of()
            return item, self.reached
        except BaseException as error:
            # What fails may have moved the iterable nevertheless.
            with contextlib.suppress(Exception):
                self.reached = self._state_of()
            return Failure(error), None

    def _put(self, entry: Any, state: Any) -> None:
        with self._changed:
            if not self._stopped:
                self._paused = isinstance(entry, Failure)
                self._ready.append((entry, state))
                self._changed.notify_all()


class Items:
    """What the loop iterates; dropping it ends the run."""

    def __init__(self, run: Run):
        self._run = run
        self._begun = self._ended = False
        weakref.finalize(self, run.stop).atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        run, counts = self._run, self._run.counts
        asked = time.perf_counter()
        entry = run.take()
        waited_s = time.perf_counter() - asked
        counts.waited_s += waited_s
        if not self._begun:
            counts.first_s, self._begun = waited_s, True
        if entry is End:
            self._ended = True
            run.stop()
            run.join()
            raise StopIteration
        if isinstance(entry, Failure):
            try:
                raise entry.error
            finally:
                # The error's traceback holds this frame, which would hold the error.
                del entry
        counts.items += 1
        if run.mover is not None:
            run.mover.hand_over(entry)
        return entry


@atexit.register
def _stop_all() -> None:
    """Lets threads end by themselves before the interpreter goes."""
    runs = [run for run in at_work if run.runs]
    for run in runs:
        run.stop()
    until = time.monotonic() + _AT_EXIT_S
    for run in runs:
        run.join(max(0.0, until - time.monotonic()))
