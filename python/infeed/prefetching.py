"""`prefetch` and `overlap`: any iterable, run ahead of the loop in a thread.

They do not use infeed's engine. The gain is the work that the iterable and the step can
do at the same time. It is small for a generator that computes in Python, because both
need the interpreter's lock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from infeed import _check
from infeed._adapter import AdapterLoader
from infeed._closing import ClosedAtExit
from infeed._prefetch_thread import (
    PrefetchCounts,
    PrefetchIterator,
    PrefetchThread,
    at_work,
)
from infeed._tensor_mover import TensorMover
from infeed.errors import ConfigError
from infeed.stats import PrefetchStats
from infeed.watching import loaders

__all__ = ["Overlap", "Prefetch", "StatefulPrefetch", "overlap", "prefetch"]


def prefetch(
    iterable: Iterable[Any], batches: int = 2, device: Any = None
) -> "Prefetch":
    """Runs an iterable ahead of the loop that consumes it, in a thread.

        for batch in infeed.prefetch(loader, device="cuda"):
            step(batch)

    The iterable may be a generator, a PyTorch DataLoader, a Keras PyDataset, a tf.data
    dataset or any other. Items keep their order, and an exception is raised at its
    position. The thread pauses while ``batches`` items wait. If the iterable has a
    state, the result has one too; it counts the items that the loop took.

    Args:
        iterable: The iterable. Each ``for`` over the result iterates it again.
        batches: Highest number of items that are ready or being made.
        device: Device to which the thread copies PyTorch tensors in dicts, lists and
            tuples. None: items stay unchanged.

    Raises:
        ConfigError: An argument is invalid, or ``device`` is set and the program has
            not imported PyTorch.
    """
    if isinstance(iterable, AdapterLoader) and iterable.device is not None:
        raise ConfigError(
            f"prefetch: the loader already delivers on {iterable.device} ahead of the "
            "step; iterate over the loader without prefetch"
        )
    if hasattr(iterable, "state_dict") and hasattr(iterable, "load_state_dict"):
        return StatefulPrefetch(iterable, batches, device)
    return Prefetch(iterable, batches, device)


def overlap(
    items: Iterable[Any],
    load: Callable[[Any], Any],
    step: Callable[[Any], Any],
) -> "Overlap":
    """Loads the next item in a thread while the step uses the current one.

        for loss in infeed.prefetching.overlap(paths, load, train_step):
            ...

    It yields ``step(load(item))`` for each item, in order. ``step`` runs in the thread
    of the loop, and ``load`` in another one, one item ahead. An exception of either is
    raised at its item, and the loop may continue after it.

    Args:
        items: Items to load; the loading thread iterates them.
        load: Function that returns the argument of ``step`` for an item.
        step: Function to call with each loaded item.

    Raises:
        ConfigError: ``load`` or ``step`` is not a function.
    """
    return Overlap(items, load, step)


class Prefetch(ClosedAtExit):
    """An iterable that runs ahead of its loop; `prefetch` returns one.

    It is a context manager. Each ``for`` loop has its own thread, which ends after the
    last item, when the loop is left, or with `close`. ``len`` is that of the iterable.
    """

    def __init__(self, iterable: Iterable[Any], batches: int, device: Any):
        self._iterable = iterable
        self._batches = _check.integer("prefetch", "batches", batches, low=1)
        self._mover = None if device is None else TensorMover(device)
        self._runs: list[PrefetchThread] = []
        self._counted = PrefetchCounts()

    def __iter__(self) -> Iterator[Any]:
        """Starts to run the iterable. It raises exceptions of its ``iter`` at once."""
        for run in list(at_work):
            if run.iterable is not self._iterable:
                continue
            if run.interrupted:
                run.stop()
            # A loop that was left may still make an item of the same iterable.
            if run.has_ended:
                run.join()
        # Not in the thread: loaders fork their workers here.
        source = loaders.iterator(self._iterable)
        mover = None if self._mover is None else self._mover.for_thread()
        fresh = PrefetchThread(
            self._iterable, source, self._batches, mover, self._state_of
        )
        for run in [run for run in self._runs if run.has_ended and not run.runs]:
            self._counted = self._counted + run.counts
            self._runs.remove(run)
        self._runs.append(fresh)
        return PrefetchIterator(fresh)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    @property
    def waited_seconds(self) -> float:
        """Seconds that loops waited for items, including each first item."""
        return self._total().waited_s

    def stats(self) -> PrefetchStats:
        """Returns the counters of all loops; see `infeed.stats.PrefetchStats`."""
        total = self._total()
        return {
            "items": total.items,
            "waited_s": total.waited_s,
            "first_s": total.first_s,
            "made_s": total.made_s,
            "idle_s": total.idle_s,
        }

    def close(self) -> None:
        """Ends all loops over it, and waits for items that are being made."""
        for run in self._runs:
            run.stop()
        for run in self._runs:
            run.join()

    def __repr__(self) -> str:
        kind = type(self._iterable).__qualname__
        return f"<infeed.{type(self).__name__} of {kind}, {self._total().items} items>"

    def _state_of(self) -> Any:
        """Returns the state to keep with the item that was just made."""

    def _total(self) -> PrefetchCounts:
        return sum((run.counts for run in self._runs), start=self._counted)


class StatefulPrefetch(Prefetch):
    """A `Prefetch` of an iterable with a state, such as torchdata's loader.

    It reads the state of the iterable after each item.
    """

    def state_dict(self) -> Any:
        """Returns the state of the iterable after the last item that the loop took.

        This also holds after the loop was left, unless the iterable has moved since:
        another loop iterated it, or it ends its epoch with its loop, as infeed's
        loaders do. Then this is the iterable's own state.
        """
        last = self._runs[-1] if self._runs else None
        if last is not None and not last.has_ended:
            return last.state
        # After this, no thread makes an item.
        self.close()
        now = self._state_of()
        return last.state if last is not None and _equal(now, last.reached) else now

    def load_state_dict(self, state_dict: Any, **options: Any) -> None:
        """Ends all loops over it, and loads a state into the iterable.

        Args:
            state_dict: Result of `state_dict`.
            **options: Further arguments of the iterable's ``load_state_dict``.
        """
        self.close()
        # The states of earlier loops no longer describe the iterable.
        self._counted = self._total()
        self._runs.clear()
        self._iterable.load_state_dict(  # type: ignore[attr-defined]
            state_dict, **options
        )

    def _state_of(self) -> Any:
        return self._iterable.state_dict()  # type: ignore[attr-defined]


class Overlap(Prefetch):
    """Items loaded one ahead of their step; `overlap` returns one.

    It is a context manager. Iterating yields the results of the step. ``waited_s`` of
    its counters is the time by which loading took longer than the step.
    """

    def __init__(
        self,
        items: Iterable[Any],
        load: Callable[[Any], Any],
        step: Callable[[Any], Any],
    ):
        for name, function in (("load", load), ("step", step)):
            if not callable(function):
                raise _check.error("overlap", name, "a function", function)
        super().__init__(_LoadedItems(items, load), batches=1, device=None)
        self._step = step

    def __iter__(self) -> Iterator[Any]:
        """Starts to load."""
        return map(_no_end("step", self._step), super().__iter__())


class _LoadedItems:
    """Items and the function that loads them; it can be iterated several times."""

    def __init__(self, items: Iterable[Any], load: Callable[[Any], Any]):
        self._items, self._load = items, load

    def __iter__(self) -> Iterator[Any]:
        return map(_no_end("load", self._load), loaders.iterator(self._items))

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def _equal(a: Any, b: Any) -> bool:
    """Whether two states are equal. Values that cannot be compared are not equal."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    try:
        same = a == b
        # Arrays and tensors compare their elements.
        return bool(same.all() if hasattr(same, "all") else same)
    except Exception:
        return False


def _no_end(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function with StopIteration as an error, and not the last item."""

    def call(item: Any) -> Any:
        try:
            return function(item)
        except StopIteration as error:
            raise RuntimeError(f"overlap: {name} raised StopIteration") from error

    return call
