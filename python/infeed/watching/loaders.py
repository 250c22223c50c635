"""Loaders and batches of any framework, recognized by their methods."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def iterator(loader: Any) -> Iterator[Any]:
    """Begins an epoch of a loader, as its framework does.

    Raises:
        TypeError: The loader cannot be iterated.
    """
    if is_py_dataset(loader):
        return _py_dataset_epoch(loader)
    return iter(loader)


def is_py_dataset(loader: Any) -> bool:
    """Whether `loader` returns batches by number, as Keras's PyDataset does."""
    kind = type(loader)
    counted = hasattr(kind, "__len__") or hasattr(kind, "num_batches")
    return counted and hasattr(kind, "__getitem__") and hasattr(kind, "on_epoch_end")


def _py_dataset_epoch(loader: Any) -> Iterator[Any]:
    """Yields batches in order, made by the number of workers that `model.fit` uses."""
    length = loader.num_batches if hasattr(loader, "num_batches") else len(loader)
    numbers = itertools.count() if length is None else range(length)
    try:
        enqueuer = _enqueuer(loader)
        if enqueuer is None:
            for number in numbers:
                yield loader[number]
        else:
            enqueuer.start()
            try:
                batches = enqueuer.get()
                for _ in numbers:
                    yield next(batches)
            finally:
                enqueuer.stop()
    except StopIteration:
        # From `next(batches)`; in a generator it would become a RuntimeError.
        return
    loader.on_epoch_end()


def _enqueuer(loader: Any) -> Any:
    """Returns Keras's own prefetcher, from the module of the loader's base class."""
    workers = getattr(loader, "workers", 1)
    processes = getattr(loader, "use_multiprocessing", False)
    if not (workers > 1 or (workers > 0 and processes)):
        return None
    for base in type(loader).__mro__:
        module = sys.modules.get(base.__module__)
        make = getattr(module, "OrderedEnqueuer", None)
        if make is not None:
            return make(
                loader,
                workers=workers,
                use_multiprocessing=processes,
                max_queue_size=getattr(loader, "max_queue_size", 10),
            )
    return None


def arrays(batch: Any) -> Iterable[Any]:
    """Yields the arrays of a batch, in order."""
    if shape_of(batch) is not None:
        yield batch
    elif hasattr(batch, "keys") and hasattr(batch, "__getitem__"):
        for key in list(batch.keys()):
            yield from arrays(batch[key])
    elif isinstance(batch, tuple | list):
        for item in batch:
            yield from arrays(item)


def shape_of(item: Any) -> tuple[int, ...] | None:
    """Returns the shape of any framework's array; None for other objects."""
    shape = getattr(item, "shape", None)
    if shape is None or not hasattr(item, "dtype"):
        return None
    try:
        return tuple(int(side) for side in shape)
    except (TypeError, ValueError):
        return None


def is_tensorflow(loader: Any) -> bool:
    """Whether a loader is a dataset of TensorFlow or an iterator over one."""
    return type(loader).__module__.partition(".")[0] == "tensorflow"


def runs_on_device() -> bool:
    """Whether an asynchronous framework uses a device in this process."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    initialized = getattr(cuda, "is_initialized", None)
    return bool(initialized and initialized())
