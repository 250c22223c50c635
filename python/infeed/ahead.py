"""Any iterable, run ahead of the loop in a thread of its own.

The smallest way in: nothing of infeed's engine is used. What is gained is what the
iterable and the step can do at once, which for a generator that computes in Python is
little: both need Python's lock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from infeed import _check
from infeed._feed import Feed
from infeed._moving import Mover
from infeed._running import Counts, Items, Run, at_work
from infeed.errors import ConfigError
from infeed.watching import loaders

__all__ = ["Overlap", "Prefetch", "StatefulPrefetch", "overlap", "prefetch"]


def prefetch(
    iterable: Iterable[Any], batches: int = 2, device: Any = None
) -> "Prefetch":
    """Runs an iterable ahead of the loop that consumes it, in a thread.

    ::

        for batch in infeed.prefetch(loader, device="cuda"):
            step(batch)

    The iterable may be a generator, a PyTorch DataLoader, a Keras PyDataset, a tf.data
    dataset or anything else. Its items come in order, and its exceptions at their
    place among them; it is asked for nothing while ``batches`` items wait. If it has a
    state, so has the result, which counts the items that the loop took.

    Args:
        iterable: What to iterate. Each ``for`` over the result iterates it once more.
        batches: How many items may be ready, or being made, before the loop asks.
        device: Where the thread moves PyTorch's tensors, found in dicts, lists and
            tuples. None: leaves all items as they are.

    Raises:
        ConfigError: An argument is not one of the above, or ``device`` was named and
            PyTorch was not imported.
    """
    if isinstance(iterable, Feed) and iterable.device is not None:
        raise ConfigError(
            f"prefetch: the loader delivers on {iterable.device} ahead of the step "
            "already, in the stream of who iterates it; iterate it without prefetch"
        )
    if hasattr(iterable, "state_dict") and hasattr(iterable, "load_state_dict"):
        return StatefulPrefetch(iterable, batches, device)
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
        self._runs: list[Run] = []
        self._counted = Counts()

    def __iter__(self) -> Iterator[Any]:
        """Begins to run the iterable; what its ``iter`` raises comes at once."""
        for run in list(at_work):
            # A loop that was left may be in the middle of an item of the same iterable.
            if run.left and run.iterable is self._iterable:
                run.join()
        # Here and not in the thread: loaders fork their workers now.
        source = loaders.iterator(self._iterable)
        mover = None if self._mover is None else self._mover.begun()
        fresh = Run(self._iterable, source, self._batches, mover, self._state_of)
        for run in [run for run in self._runs if run.left and not run.runs]:
            self._counted = self._counted + run.counts
            self._runs.remove(run)
        self._runs.append(fresh)
        return Items(fresh)

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

    def _state_of(self) -> Any:
        """What is kept beside each item, asked for after it was made."""

    def _total(self) -> "Counts":
        return sum((run.counts for run in self._runs), start=self._counted)


class StatefulPrefetch(Prefetch):
    """A `Prefetch` of what has a state, such as a loader of infeed or torchdata.

    The iterable is asked for its state with each item.
    """

    def state_dict(self) -> Any:
        """The iterable's state as it was when the loop's last item was made.

        Also after the loop was left, unless the iterable has moved since by itself:
        because it was iterated elsewhere, or because it ends its epoch when it is left,
        as infeed's loaders do. Its own state is the answer then.
        """
        last = self._runs[-1] if self._runs else None
        if last is not None and not last.left:
            return last.state
        # No thread is in the middle of an item then.
        self.close()
        now = self._state_of()
        return last.state if last is not None and _equal(now, last.reached) else now

    def load_state_dict(self, state_dict: Any, **options: Any) -> None:
        """Ends the loops over it, and loads the state into the iterable.

        Args:
            state_dict: What `state_dict` gave.
            **options: What else the iterable's ``load_state_dict`` takes.
        """
        self.close()
        # What they took says nothing of where the iterable is from now on.
        self._counted = self._total()
        self._runs.clear()
        self._iterable.load_state_dict(  # type: ignore[attr-defined]
            state_dict, **options
        )

    def _state_of(self) -> Any:
        return self._iterable.state_dict()  # type: ignore[attr-defined]


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


def _equal(a: Any, b: Any) -> bool:
    """Whether two states are equal. What cannot be compared is not."""
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
    """The function, whose StopIteration is an error and not the end of the items."""

    def called(item: Any) -> Any:
        try:
            return function(item)
        except StopIteration as error:
            raise RuntimeError(f"overlap: {name} raised StopIteration") from error

    return called
