"""A dataset packed by the machines of a cluster, one shard a task."""

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray

from infeed import _check, _core, packing, sources
from infeed._parting import Sums, distribute
from infeed.errors import ConfigError, InterruptedPackError
from infeed.packing import Packed, PackProgress
from infeed.pipeline import Pipeline

__all__ = ["pack"]

# How often Ray starts a task anew whose machine or process was lost under it.
_RETRIES = 5

# How long one look at the tasks waits for one that ends.
_TICK_S = 0.2


def pack(
    source: Pipeline | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    cpus: float = 1,
    progress: bool | Callable[[PackProgress], bool | None] = False,
    **options: Any,
) -> Packed:
    """Packs a dataset into shards, as tasks of a Ray cluster, one shard a task.

    ::

        ray.init("auto")
        infeed.ray.pack("s3://raw/", "s3://packed/", resize_short=256, jobs=64)

    The files are those that `infeed.pack` writes with the same options, byte for byte.
    Where shards end follows from their records, so each record is made twice, to be
    weighed and to be written. A call that was stopped, killed even, is taken up by the
    same call again, on any machines, or by `infeed.pack`.

    Ray is used as it was initialized, or initializes itself; infeed must be installed
    on its machines. Tasks are named in its dashboard. What the loss of a machine has
    cost is done again elsewhere.

    Args:
        source: A pipeline over files that all machines see by the same path or URL; or
            the path or URL of a folder of images.
        out: A folder that all machines see by the same path, or one of a bucket by its
            URL; missing, empty, or of an earlier call with the same options.
        jobs: Tasks at a time. None: as many as the cluster has room for now.
        cpus: What a task asks of Ray, and how many threads it has, at least one.
        progress: As for `infeed.pack`.
        **options: As for `infeed.pack`, of the forms that are shards.

    Raises:
        ConfigError: As for `infeed.pack`; or the form is no shards, the source lies in
            the memory of this process, or a machine does not see the folder.
        InfeedError: As for `infeed.pack`.
        ray.exceptions.RayError: Tasks were lost again and again.
    """
    pipeline = source
    if not isinstance(pipeline, Pipeline):
        # Images of a folder have any size.
        folder = sources.Folder(os.fspath(pipeline))
        pipeline = Pipeline(folder).decode().batch(1, pad=True)
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or cpus <= 0:
        raise _check.refusal("pack", "cpus", "a number over 0", cpus)
    if jobs is not None:
        jobs = _check.integer("pack", "jobs", jobs, low=1)
    if pipeline._buffers():
        raise ConfigError(
            "pack: the source or a function lies in the memory of this process, which "
            "no other machine sees; use infeed.pack, or files"
        )
    asked = packing.options_from(pipeline, jobs=max(1, int(cpus)), **options)
    path = os.path.abspath(os.fspath(out)) if "://" not in str(out) else str(out)
    begun = time.monotonic()
    parts = _core.PackParts(pipeline._json(), path, json.dumps(asked), True)
    description = json.dumps(json.loads(parts.json())["pipeline"])
    if not ray.is_initialized():
        ray.init()
    if jobs is None:
        jobs = max(1, int(ray.cluster_resources().get("CPU", 1) / cpus))
    crew = _Crew((description, path, json.dumps(asked)), cpus)
    report = packing.line if progress is True else progress or None
    stopped = False

    def told(sums: Sums) -> bool:
        nonlocal stopped
        if report is not None:
            stopped = report(_progress(sums, time.monotonic() - begun)) is False
        return not stopped

    # By their rows, files of npz end wherever their bytes would.
    bytes_of_shard = 0 if asked["to"] == "npz" else asked["shard_bytes"]
    try:
        sums = distribute(parts, crew, jobs, bytes_of_shard, asked["max_bad"], told)
    finally:
        crew.cancel()
    if stopped:
        raise InterruptedPackError(
            f"packing was stopped after {sums.records + sums.bad} of {sums.places} "
            "records; the same call goes on from there"
        )
    # Takes the shards that were noted, and marks the dataset as complete.
    packed = packing.pack(pipeline, out, **options)
    if progress is True:
        print(file=sys.stderr)
    return replace(
        packed,
        seconds=time.monotonic() - begun,
        reused=sums.reused,
        unmarked=packed.unmarked + sums.unmarked,
    )


def _progress(sums: Sums, seconds: float) -> PackProgress:
    return PackProgress(
        done=sums.records + sums.bad,
        total=sums.places,
        reused=sums.reused,
        bad=sums.bad,
        bytes_in=sums.bytes_in,
        bytes_out=sums.bytes_out,
        seconds=seconds,
    )


class _Crew:
    """Tasks of Ray; see `infeed._parting.Crew`."""

    def __init__(self, what: tuple[str, str, str], cpus: float):
        self._what = what
        self._weigh, self._shard = ray.remote(_weigh), ray.remote(_shard)
        self._settings = {"num_cpus": cpus, "max_retries": _RETRIES}
        self._tasks: set[Any] = set()

    def weigh(self, begin: int, end: int) -> Any:
        return self._begun(self._weigh, f"weigh {begin} to {end}", begin, end)

    def shard(self, number: int, begin: int, end: int) -> Any:
        return self._begun(self._shard, f"shard {number}", number, begin, end)

    def ended(self, tasks: Sequence[Any]) -> list[Any]:
        ready, _ = ray.wait(list(tasks), num_returns=1, timeout=_TICK_S)
        return list(ready)

    def result(self, task: Any) -> Any:
        self._tasks.discard(task)
        try:
            return ray.get(task)
        except ray.exceptions.RayTaskError as error:
            # What was raised there, without Ray's wrapping.
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise cause from None

    def cancel(self) -> None:
        """Has what was begun and not asked for end, or not begin."""
        for task in self._tasks:
            ray.cancel(task)
        self._tasks.clear()

    def _begun(self, function: Any, name: str, *places: int) -> Any:
        named = function.options(name=f"infeed pack: {name}", **self._settings)
        task = named.remote(*self._what, *places)
        self._tasks.add(task)
        return task


@functools.lru_cache(maxsize=1)
def _joined(description: str, out: str, options: str) -> _core.PackParts:
    """A dataset that was begun; a process opens its source once."""
    return _core.PackParts(description, out, options, False)


def _weigh(
    description: str, out: str, options: str, begin: int, end: int
) -> list[int | None]:
    return _joined(description, out, options).weigh(begin, end)


def _shard(
    description: str, out: str, options: str, number: int, begin: int, end: int
) -> str:
    return _joined(description, out, options).shard(number, begin, end)
