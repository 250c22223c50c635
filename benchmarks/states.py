"""States of the machine during a case of the ledger, started and stopped by it.

Standard library only. Load comes from processes, limits from control groups. Load and
caches need Linux.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import groups
import machine

# Time slice of a core that is half busy, in seconds.
SLICE_S = 0.01
# A buffer of this many last-level caches is streamed through.
CACHES = 4
# Share of the dataset that the memory of the states `memory` and `slow-storage` holds,
# and the least memory in which the command runs.
HELD = 0.5
LEAST_MEMORY = 700 << 20
# Rate of the slow storage, in bytes per second.
SLOW = 40_000_000

# Load of each state: what its processes do, and on which cores, None for any.
LOADS: dict[str, list[tuple[str, int | None]]] = {
    "idle": [],
    "one-core": [("compute", None)],
    "one-core-pinned": [("compute", 0)],
    "half": [("half", core) for core in range(machine.cores())],
    "bandwidth": [("stream", None)],
    "cold": [],
    "memory": [],
    "slow-storage": [],
}


class SkippedError(Exception):
    """A case that this machine or dataset does not permit, with the reason."""


@contextmanager
def enter(state: str, dataset: Path) -> Iterator[Callable[[], None]]:
    """Puts the machine into a state. Returns the function that a measured process calls
    before it starts.

    Raises SkippedError with the reason if the state cannot be had.
    """
    limits: dict = {}
    if state in ("memory", "slow-storage"):
        size = sum(file.stat().st_size for file in datasets.files_of(dataset))
        limits["memory"] = int(HELD * size)
        if limits["memory"] < LEAST_MEMORY:
            raise SkippedError(
                f"half of the dataset, {size / 2e6:.0f} MB, is less than the "
                f"{LEAST_MEMORY / 1e6:.0f} MB in which the command runs"
            )
    started = [
        multiprocessing.get_context("fork").Process(target=load, args=one, daemon=True)
        for one in LOADS[state]
    ]
    try:
        if state == "slow-storage":
            limits["read"] = (groups.device_of(dataset), SLOW)
        # The group is charged for pages that are read while the process is in it.
        if limits or state == "cold":
            forget(dataset)
        with groups.limit_process(**limits) as join:
            for process in started:
                process.start()
            yield join
    except groups.NoGroupError as error:
        raise SkippedError(str(error)) from error
    finally:
        for process in started:
            if process.pid is not None:
                process.terminate()
                process.join()


def load(kind: str, core: int | None) -> None:
    """Loads the machine until the parent process ends it, or has ended."""
    if core is not None:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    parent = os.getppid()
    buffer = bytearray(CACHES * last_level_cache() if kind == "stream" else 0)
    view = memoryview(buffer)
    half = len(buffer) // 2
    while os.getppid() == parent:
        if kind == "stream":
            view[:half] = view[half:]
            continue
        end = time.monotonic() + SLICE_S
        while time.monotonic() < end:
            pass
        if kind == "half":
            time.sleep(SLICE_S)


def last_level_cache() -> int:
    """Returns the bytes of the largest cache of the first core; 32 MB if unknown."""
    sizes = [32 << 20]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        sizes.append(int(file.read_text().strip().removesuffix("K")) << 10)
    return max(sizes)


def forget(dataset: Path) -> None:
    """Drops the pages of a dataset from the page cache. Pages that are not yet written
    stay, so it writes them first.
    """
    for file in datasets.files_of(dataset):
        with open(file, "rb") as data:
            os.fdatasync(data.fileno())
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def foreign_cores(seconds: float) -> float | None:
    """Returns the cores that other processes use, over a few seconds."""
    watched = machine.Load(os.getpid())
    time.sleep(seconds)
    return watched.since_start(seconds)["foreign_cores"]
