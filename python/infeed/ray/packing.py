"""Packing a dataset on the machines of a cluster, one shard per task."""

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
from infeed._pack_tasks import PackTotals, distribute
from infeed.errors import ConfigError, InterruptedPackError
from infeed.packing import PackProgress, PackResult
from infeed.pipeline import Pipeline

__all__ = ["pack"]

# Number of times that Ray repeats a task whose machine or process was lost.
_RETRIES = 5

# Longest wait for the end of a task, in seconds, and so the interval of checks.
_TICK_S = 0.2


def pack(
    source: Pipeline | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    cpus: float = 1,
    progress: bool | Callable[[PackProgress], bool | None] = False,
    **options: Any,
) -> PackResult:
    """Packs a dataset into shards with tasks on a Ray cluster, one task per shard.

        ray.init("auto")
        infeed.ray.pack("s3://raw/", "s3://packed/", resize_short=256, jobs=64)

    The files have the same bytes as those of `infeed.pack` with the same options. The
    sizes of records determine the ends of shards, so each record is made twice: to
    measure it, and to write it. If a call is stopped or killed, the same call continues
    it, on any machines, and so does `infeed.pack`.

    If Ray is not initialized, this initializes it. All machines need infeed. Ray's
    dashboard shows the names of tasks. If a machine is lost, other machines repeat its
    tasks.

    Args:
        source: A pipeline over files that all machines see under the same path or URL;
            or the path or URL of a folder of images.
        out: Folder that all machines see under the same path, or URL of a bucket:
            missing, empty, or of an earlier call with the same options.
        jobs: Number of tasks at a time. None: as many as the cluster has room for.
        cpus: CPUs that a task requests from Ray, and its number of threads, at least
            one.
        progress: As in `infeed.pack`.
        **options: As in `infeed.pack`, for formats with shards.

    Raises:
        ConfigError: As in `infeed.pack`; or the format has no shards, the source is in
            the memory of this process, or a machine does not see the folder.
        InfeedError: As in `infeed.pack`.
        ray.exceptions.RayError: Tasks were lost repeatedly.
    """
    pipeline = source
    if not isinstance(pipeline, Pipeline):
        # Images in a folder may differ in size.
        folder = sources.Folder(os.fspath(pipeline))
        pipeline = Pipeline(folder).decode().batch(1, pad=True)
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or cpus <= 0:
        raise _check.error("pack", "cpus", "a number over 0", cpus)
    if jobs is not None:
        jobs = _check.integer("pack", "jobs", jobs, low=1)
    if pipeline._buffers():
        raise ConfigError(
            "pack: the source or a function is in the memory of this process, which "
            "other machines cannot read; use infeed.pack, or files"
        )
    unknown = options.keys() - packing.OPTIONS.keys()
    if unknown:
        raise TypeError(f"pack() has no arguments {', '.join(sorted(unknown))}")
    options["jobs"] = max(1, int(cpus))
    requested = packing.options_from(pipeline, options)
    path = os.path.abspath(os.fspath(out)) if "://" not in str(out) else str(out)
    begun = time.monotonic()
    parts = _core.PackParts(pipeline._json(), path, json.dumps(requested), True)
    description = json.dumps(json.loads(parts.json())["pipeline"])
    if not ray.is_initialized():
        ray.init()
    if jobs is None:
        jobs = max(1, int(ray.cluster_resources().get("CPU", 1) / cpus))
    workers = _RayWorkers((description, path, json.dumps(requested)), cpus)
    report = packing.print_progress if progress is True else progress or None
    stopped = False

    def report_progress(totals: PackTotals) -> bool:
        nonlocal stopped
        if report is not None:
            stopped = report(_progress(totals, time.monotonic() - begun)) is False
        return not stopped

    try:
        totals = distribute(parts, workers, jobs, requested["max_bad"], report_progress)
    finally:
        workers.cancel()
    if stopped:
        raise InterruptedPackError(
            f"packing was stopped after {totals.records + totals.bad} of "
            f"{totals.places} records; the same call continues from there"
        )
    # Adds the written shards to the index, and marks the dataset as complete.
    packed = packing.pack(pipeline, out, **options)
    if progress is True:
        print(file=sys.stderr)
    return replace(
        packed,
        seconds=time.monotonic() - begun,
        reused=totals.reused,
        unchanged=packed.unchanged + totals.unchanged,
    )


def _progress(totals: PackTotals, seconds: float) -> PackProgress:
    return PackProgress(
        done=totals.records + totals.bad,
        total=totals.places,
        reused=totals.reused,
        bad=totals.bad,
        bytes_in=totals.bytes_in,
        bytes_out=totals.bytes_out,
        seconds=seconds,
    )


class _RayWorkers:
    """Ray tasks as `PackWorkers`."""

    def __init__(self, dataset: tuple[str, str, str], cpus: float):
        self._dataset = dataset
        self._weigh, self._shard = ray.remote(_weigh), ray.remote(_shard)
        self._settings = {"num_cpus": cpus, "max_retries": _RETRIES}
        self._tasks: set[Any] = set()

    def weigh(self, begin: int, end: int) -> Any:
        return self._begin(self._weigh, f"weigh {begin} to {end}", begin, end)

    def shard(self, number: int, begin: int, end: int) -> Any:
        return self._begin(self._shard, f"shard {number}", number, begin, end)

    def poll(self, tasks: Sequence[Any]) -> list[Any]:
        ready, _ = ray.wait(list(tasks), num_returns=1, timeout=_TICK_S)
        return list(ready)

    def result(self, task: Any) -> Any:
        self._tasks.discard(task)
        try:
            return ray.get(task)
        except ray.exceptions.RayTaskError as error:
            # The exception of the task, without Ray's wrapper.
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise cause from None

    def cancel(self) -> None:
        """Cancels the tasks whose result was not taken."""
        for task in self._tasks:
            ray.cancel(task)
        self._tasks.clear()

    def _begin(self, function: Any, name: str, *places: int) -> Any:
        named = function.options(name=f"infeed pack: {name}", **self._settings)
        task = named.remote(*self._dataset, *places)
        self._tasks.add(task)
        return task


@functools.lru_cache(maxsize=1)
def _join_dataset(description: str, out: str, options: str) -> _core.PackParts:
    """Joins a dataset that another process began; once per process."""
    return _core.PackParts(description, out, options, False)


def _weigh(
    description: str, out: str, options: str, begin: int, end: int
) -> list[int | None]:
    return _join_dataset(description, out, options).weigh(begin, end)


def _shard(
    description: str, out: str, options: str, number: int, begin: int, end: int
) -> str:
    return _join_dataset(description, out, options).shard(number, begin, end)
