"""One epoch of an adapter: batches converted on request, or ahead of the loop.

`ConvertedEpoch` converts a batch when the loop asks for it. `PrefetchedEpoch` has a
thread that takes and converts the next batch during the step. The loader then counts
one batch more than the loop took, so each batch is kept together with a state.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from infeed._prefetch_thread import ItemConverter, PrefetchIterator, PrefetchThread
from infeed.errors import ClosedError, IteratorError
from infeed.loader import Loader

__all__ = ["ConvertedEpoch", "PrefetchedEpoch"]

_LEFT_OUT = (
    "another loop over this loader has begun, or a state was loaded; make one loader "
    "for each loop"
)


class ConvertedEpoch:
    """One epoch: the loader's batches, each converted.

    It begins with the first batch, because frameworks load a state after ``iter``.
    """

    def __init__(self, loader: Loader, convert: Callable[[Any], Any]):
        # Held while a batch is taken. A thread that ends this loop waits for it, so
        # that the loop does not take a batch of the next epoch.
        self.lock = threading.RLock()
        self._loader = loader
        self._convert = convert
        self._batches: Iterator[Any] | None = None
        self._over = self._left_out = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self.lock:
            return self._convert(self._take())

    def _take(self) -> Any:
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
        # With several devices, all parts have the same step.
        part = batch[0] if isinstance(batch, tuple) else batch
        if part.step + 1 == len(self._loader):
            # A loop over `len(loader)` steps does not ask for the end of the epoch.
            self._finish()
        return batch

    @property
    def has_begun(self) -> bool:
        """Whether it is in the middle of an epoch."""
        return self._batches is not None

    def end(self) -> None:
        """Ends the epoch early."""
        with self.lock:
            if not self._over:
                self._left_out = True
                self._finish()

    close = end

    def _finish(self) -> None:
        self._over = True
        # Dropping the loader's iterator ends its epoch.
        self._batches = None


class PrefetchedEpoch:
    """One epoch whose batches a thread takes and converts, one ahead of the loop.

    Like `ConvertedEpoch`, it begins with the first batch. The thread ends with the
    epoch, with `end`, or when this object is dropped, which ends the epoch early. It
    refers to its `PrefetchThread` and `ConvertedEpoch`, and never to this object.

    Args:
        loader: Loader of the epoch.
        mover: Converter that returns the loop's value for a batch, and whether it is
            the last one.
        place: List that receives the thread, for code that moves the loader.
    """

    def __init__(
        self, loader: Loader, mover: ItemConverter, place: list[PrefetchThread]
    ):
        self._steps = ConvertedEpoch(loader, lambda batch: batch)
        # The thread holds it while it takes a batch, and not while the loop waits.
        self.lock = self._steps.lock
        self._loader = loader
        self._mover = mover
        self._place = place
        self._run: PrefetchThread | None = None
        self._items: PrefetchIterator | None = None
        self._over = self._left_out = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._left_out:
            raise IteratorError(_LEFT_OUT)
        if self._over:
            raise StopIteration
        items = self._items or self._start()
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

    def _start(self) -> PrefetchIterator:
        steps, state_of = self._steps, self._loader.state_dict
        run = PrefetchThread(steps, steps, 1, self._mover, state_of, name="infeed-copy")
        self._run = run
        self._place[:] = [run]
        self._items = PrefetchIterator(run)
        return self._items

    @property
    def has_begun(self) -> bool:
        """Whether it is in the middle of an epoch."""
        return self._items is not None

    def end(self) -> None:
        """Ends the epoch early, after the batch that is being taken."""
        if not self._over:
            self._left_out = True
            self._finish()
            self._steps.end()

    def _finish(self) -> None:
        self._over = True
        if self._run is not None:
            self._run.stop()
        self._items = None
