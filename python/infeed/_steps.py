"""One epoch as an adapter's loop sees it: its batches converted, at once or ahead.

`Steps` converts a batch when the loop asks for it. `Ahead` has a thread that takes the
next batch and converts it while the step works on this one; what the loader counts as
delivered is then one ahead of the loop, so a state is kept beside each batch.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from infeed._running import Items, Moving, Run
from infeed.errors import ClosedError, IteratorError
from infeed.loader import Loader

__all__ = ["Ahead", "Steps"]

_LEFT_OUT = (
    "another loop over this loader has begun, or its state was loaded; make one loader "
    "for each loop"
)


class Steps:
    """One epoch: the loader's batches, each converted.

    It begins when the first one is asked for: frameworks load a state after ``iter``.
    """

    def __init__(self, loader: Loader, convert: Callable[[Any], Any]):
        # Held while a batch is taken: another thread that ends this loop waits for it,
        # else the batch might be one of what comes after.
        self.lock = threading.RLock()
        self._loader = loader
        self._convert = convert
        self._batches: Iterator[Any] | None = None
        self._over = self._left_out = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self.lock:
            return self._convert(self._taken())

    def _taken(self) -> Any:
        if self._left_out:
            raise IteratorError(_LEFT_OUT)
        if self._over:
            raise StopIteration
        if self._batches is None:
            self._batches = iter(self._loader)
        try:
            batch = next(self._batches)
        except StopIteration:
            self._finish()
            raise
        # Of several devices, each has a part of the same step.
        part = batch[0] if isinstance(batch, tuple) else batch
        if part.step + 1 == len(self._loader):
            # Whoever counts steps does not ask once more: the epoch is over now.
            self._finish()
        return batch

    @property
    def begun(self) -> bool:
        """Whether it is in the middle of an epoch."""
        return self._batches is not None

    def end(self) -> None:
        """Leaves out what is left of the epoch."""
        with self.lock:
            if not self._over:
                self._left_out = True
                self._finish()

    close = end

    def _finish(self) -> None:
        self._over = True
        # Dropping the loader's iterator ends its epoch.
        self._batches = None


class Ahead:
    """One epoch, whose batches a thread takes and converts one ahead of the loop.

    Like `Steps`, it begins when the first batch is asked for, and the thread ends with
    the epoch, with `end`, or when this is dropped, which leaves out the rest of the
    epoch. The thread holds the `Run`, and its `Steps`, and never this.

    Args:
        loader: Whose next epoch it is.
        mover: Makes of a batch what the loop is given, and whether it is the last one.
        place: Where the run of the thread is put, for whoever moves the loader.
    """

    def __init__(self, loader: Loader, mover: Moving, place: list[Run]):
        self._steps = Steps(loader, lambda batch: batch)
        # Of the thread, while it takes a batch. Whoever waits for one does not hold it.
        self.lock = self._steps.lock
        self._loader = loader
        self._mover = mover
        self._place = place
        self._run: Run | None = None
        self._items: Items | None = None
        self._over = self._left_out = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._left_out:
            raise IteratorError(_LEFT_OUT)
        if self._over:
            raise StopIteration
        items = self._items or self._started()
        try:
            item, last = next(items)
        except StopIteration:
            self._finish()
            raise
        except ClosedError:
            if self._left_out:
                raise IteratorError(_LEFT_OUT) from None
            raise ClosedError("the loader is closed; make another one") from None
        if last:
            self._finish()
        return item

    def _started(self) -> Items:
        steps, state_of = self._steps, self._loader.state_dict
        run = Run(steps, steps, 1, self._mover, state_of, name="infeed-copy")
        self._run = run
        self._place[:] = [run]
        self._items = Items(run)
        return self._items

    @property
    def begun(self) -> bool:
        """Whether it is in the middle of an epoch."""
        return self._items is not None

    def end(self) -> None:
        """Leaves out what is left of the epoch, after the batch that is being taken."""
        if not self._over:
            self._left_out = True
            self._finish()
            self._steps.end()

    def _finish(self) -> None:
        self._over = True
        if self._run is not None:
            self._run.stop()
        self._items = None
