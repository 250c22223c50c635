"""Any iterable, run ahead of the loop in a thread of its own.

The smallest way in: nothing of infeed's engine is used. What is gained is what the
iterable and the step can do at once, which for a generator that computes in Python is
little: both need Python's lock.
"""

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from infeed import _check
from infeed._moving import Mover
from infeed.errors import ClosedError, ForkedError
from infeed.watching import loaders

__all__ = ["Overlap", "Prefetch", "overlap", "prefetch"]

# How long the end of the interpreter waits for items that are being made: a thread that
# still runs then is stopped at any place.
_AT_EXIT_S = 2.0


def prefetch(
    iterable: Iterable[Any], batches: int = 2, device: Any = None
) -> "Prefetch":
    """Runs an iterable ahead of the loop that consumes it, in a thread.

    ::

        for batch in infeed.prefetch(loader, device="cuda"):
            step(batch)

    The iterable may be a generator, a PyTorch DataLoader, a Keras PyDataset, a tf.data
    dataset or anything else. Its items come in order, and its exceptions at their
    place among them; it is asked for nothing while ``batches`` items wait.

    Args:
        iterable: What to iterate. Each ``for`` over the result iterates it once more.
        batches: How many items may be ready, or being made, before the loop asks.
        device: Where the thread moves PyTorch's tensors, found in dicts, lists and
            tuples. None: leaves all items as they are.

    Raises:
        ConfigError: An argument is not one of the above, or ``device`` was named and
            PyTorch was not imported.
    """
    return Prefetch(iterable, batches, device)


def overlap(
    items: Iterable[Any],
    load: Callable[[Any], Any],
    step: Callable[[Any], Any],
) -> "Overlap":
    """Loads the next item in a thread while the step works on this one.

    ::

        for loss in infeed.overlap(paths, load, train_step):
            ...

    Gives ``step(load(item))`` for each item, in order. ``step`` runs in the thread that
    iterates, ``load`` in another, one item ahead and no more. What either raises comes
    out in the place of its item, and the loop may go on after it.

    Args:
        items: What to load; iterated in the thread.
        load: Makes the argument of ``step`` from an item.
        step: What is done with it.

    Raises:
        ConfigError: ``load`` or ``step`` is no function.
    """
    return Overlap(items, load, step)


class Prefetch:
    """An iterable that runs ahead; made by `prefetch`. A context manager.

    Each ``for`` has a thread of its own, which ends with the items, when the loop is
    left, or with `close`. ``len`` is the iterable's.
    """

    def __init__(self, iterable: Iterable[Any], batches: int, device: Any):
        self._iterable = iterable
        self._batches = _check.integer("prefetch", "batches", batches, low=1)
        self._mover = None if device is None else Mover(device)
        self._runs: list[_Run] = []
        self._counted = _Counts()

    def __iter__(self) -> Iterator[Any]:
        """Begins to run the iterable; what its ``iter`` raises comes at once."""
        # Here and not in the thread: loaders fork their workers now.
        source = loaders.iterator(self._iterable)
        mover = None if self._mover is None else self._mover.begun()
        run = _Run(source, self._batches, mover)
        for over in [run for run in self._runs if not run.runs]:
            self._counted = self._counted + over.counts
            self._runs.remove(over)
        self._runs.append(run)
        return _Items(run)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    @property
    def waited_seconds(self) -> float:
        """Seconds that loops waited for items so far, first items included."""
        return self._total().waited_s

    def stats(self) -> dict[str, Any]:
        """What was counted, over all loops so far.

        Returns:
            A dictionary of ``items`` taken; ``waited_s`` that loops waited for them, of
            which ``first_s`` for the first ones; ``made_s`` that threads spent in the
            iterable and on moving; ``idle_s`` that they had as many ready as they may.
        """
        return dict(vars(self._total()))

    def close(self) -> None:
        """Ends all loops over it, and waits for the items that are being made."""
        for run in self._runs:
            run.stop()
        for run in self._runs:
            run.join()

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
        kind = type(self._iterable).__qualname__
        return f"<infeed.{type(self).__name__} of {kind}, {self._total().items} items>"

    def _total(self) -> "_Counts":
        return sum((run.counts for run in self._runs), start=self._counted)


class Overlap(Prefetch):
    """Items loaded one ahead of their step; made by `overlap`. A context manager.

    Iterating gives the results of the step. Counts as `Prefetch` does: ``waited_s`` is
    what loading took longer than the step beside it.
    """

    def __init__(
        self,
        items: Iterable[Any],
        load: Callable[[Any], Any],
        step: Callable[[Any], Any],
    ):
        for name, function in (("load", load), ("step", step)):
            if not callable(function):
                raise _check.refusal("overlap", name, "a function", function)
        super().__init__(_Loaded(items, load), batches=1, device=None)
        self._step = step

    def __iter__(self) -> Iterator[Any]:
        """Begins to load."""
        return map(_no_end("step", self._step), super().__iter__())


class _Loaded:
    """Items and what loads them, which can be iterated more than once."""

    def __init__(self, items: Iterable[Any], load: Callable[[Any], Any]):
        self._items, self._load = items, load

    def __iter__(self) -> Iterator[Any]:
        return map(_no_end("load", self._load), loaders.iterator(self._items))

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def _no_end(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, whose StopIteration is an error and not the end of the items."""

    def called(item: Any) -> Any:
        try:
            return function(item)
        except StopIteration as error:
            raise RuntimeError(f"overlap: {name} raised StopIteration") from error

    return called


class _Counts:
    """What a loop and its thread counted; each number has one writer."""

    def __init__(self) -> None:
        self.items = 0
        self.waited_s = self.first_s = self.made_s = self.idle_s = 0.0

    def __add__(self, other: "_Counts") -> "_Counts":
        total = _Counts()
        for name in vars(total):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


class _End:
    """Stands in the queue after the last item."""


class _Failure:
    """Stands in the queue in the place of an item."""

    def __init__(self, error: BaseException):
        self.error = error


class _Run:
    """The thread of one loop, and what passes between the two.

    The thread holds this and not `_Items`, so that a loop that is left drops `_Items`,
    which stops the thread. ``_room`` is how many items may still be made: an item
    has its room from before it is made until it is taken.
    """

    def __init__(self, source: Iterator[Any], batches: int, mover: Mover | None):
        self.counts = _Counts()
        self.mover = mover
        self._source: Iterator[Any] | None = source
        self._room = batches
        self._ready: deque[Any] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        # After an error the iterable is asked again only if the loop does so too.
        self._paused = False
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=self._work, name="infeed-prefetch", daemon=True
        )
        _at_work.add(self)
        self._thread.start()

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
            return self._ready.popleft()

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
                entry = self._make()
                self.counts.made_s += time.perf_counter() - begun
                over = entry is _End
                self._put(entry)
                # The loop may be done with it long before the next is made.
                del entry
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

    def _make(self) -> Any:
        assert self._source is not None
        try:
            item = next(self._source)
        except StopIteration:
            return _End
        except BaseException as error:
            return _Failure(error)
        try:
            return item if self.mover is None else self.mover.moved(item)
        except BaseException as error:
            return _Failure(error)

    def _put(self, entry: Any) -> None:
        with self._changed:
            if not self._stopped:
                self._paused = isinstance(entry, _Failure)
                self._ready.append(entry)
                self._changed.notify_all()


class _Items:
    """What the loop iterates; dropping it ends the run."""

    def __init__(self, run: _Run):
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
        if entry is _End:
            self._ended = True
            run.join()
            raise StopIteration
        if isinstance(entry, _Failure):
            try:
                raise entry.error
            finally:
                # The error's traceback holds this frame, which would hold the error.
                del entry
        counts.items += 1
        if run.mover is not None:
            run.mover.hand_over(entry)
        return entry


_at_work: "weakref.WeakSet[_Run]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Lets threads end by themselves before the interpreter goes."""
    runs = [run for run in _at_work if run.runs]
    for run in runs:
        run.stop()
    until = time.monotonic() + _AT_EXIT_S
    for run in runs:
        run.join(max(0.0, until - time.monotonic()))
