"""Loops over loaders that `infeed.install` leaves alone."""

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


def is_own() -> bool:
    """Whether loops that begin in this thread take the loader's own batches."""
    return getattr(_thread, "is_own", False)


@contextlib.contextmanager
def own_loops() -> Iterator[None]:
    """Makes loops that begin in its block take the loader's own batches."""
    before, _thread.is_own = is_own(), True
    try:
        yield
    finally:
        _thread.is_own = before
