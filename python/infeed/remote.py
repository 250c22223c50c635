"""Data in buckets and on web servers: what of it is kept on a disk of this machine."""

import os

from infeed import _check, _core

__all__ = ["cache"]


def cache(folder: str | os.PathLike[str] | None, limit: int | str = "32GiB") -> None:
    """Keeps what is read from buckets and web servers, for datasets opened from now on.

    ::

        infeed.cache("/scratch/infeed", limit="500GB")

    The second epoch, the next run and other processes read from there what was read
    once. Pieces are checked on every read, belong to one version of an object, and go
    when the limit is reached, those first that were used longest ago. Processes may
    share a folder; each must name it, with the same limit.

    Args:
        folder: Where; made if it is not there. None: what INFEED_CACHE_DIR and
            INFEED_CACHE_BYTES say, as if this had not been called.
        limit: Bytes that are kept at most, or a text such as ``"500GB"``.

    Raises:
        ConfigError: ``folder`` is no path or ``limit`` no size.
        OpenError: When a dataset is opened: the folder cannot be made.
    """
    size = _check.size_bytes(limit, "cache", "limit")
    if size >= 2**64:
        raise _check.refusal("cache", "limit", "below 2**64 bytes", limit)
    # What the program does to its current folder later changes nothing.
    path = None if folder is None else _check.path("cache", "folder", folder)
    _core.set_cache(None if path is None else os.path.abspath(path), size)
