"""The disk cache of data from object storage and web servers."""

import os

from infeed import _check, _core

__all__ = ["cache"]


def cache(folder: str | os.PathLike[str] | None, limit: int | str = "32GiB") -> None:
    """Sets the disk cache for object storage and web servers.

    It applies to datasets that are opened afterwards:

        infeed.remote.cache("/scratch/infeed", limit="500GB")

    Later epochs, later runs and other processes read from the cache. Each piece belongs
    to one version of an object, and its checksum is verified on every read. At the
    limit, the least recently used pieces are deleted. Processes may share a folder if
    each sets the same folder and limit.

    Args:
        folder: Local folder of the cache, created if missing. None: the environment
            variables INFEED_CACHE_DIR and INFEED_CACHE_BYTES, as without this call.
        limit: Size limit in bytes, or text such as ``"500GB"``.

    Raises:
        ConfigError: ``folder`` is not a local path, or ``limit`` is not a size.
        OpenError: Raised when a dataset is opened: the folder cannot be created.
    """
    size = _check.size_bytes(limit, "cache", "limit")
    if size >= 2**64:
        raise _check.error("cache", "limit", "below 2**64 bytes", limit)
    path = None if folder is None else _check.local_folder("cache", "folder", folder)
    _core.set_cache(path, size)
