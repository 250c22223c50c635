"""One run of one loader: the clock, and the line of JSON that it prints.

A peer's script builds an endless iterator of ``(images, masks or labels)`` for a
workload and passes it to `main`. Time to the first batch counts from before the loader
is built, without imports. Then the loader warms up, and then the batches of a fixed
span are counted; each is touched, and dropped when the next arrives. The first batch is
checked after the clock has stopped.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from checks import WrongBatch, check
from machine import Load
from workloads import WORKLOADS, Data, Workload

LONGEST_WARM_UP_S = 60


@dataclass(frozen=True)
class Job:
    """Settings from which a peer builds its loader."""

    work: Workload
    data: Data
    threads: int
    variant: str


Build = Callable[[Job], Iterator[tuple[Any, Any]]]


def main(packages: list[str], builders: dict[str, Build]) -> None:
    """Runs the workload named on the command line and prints one line of JSON.

    Args:
        packages: Distributions whose versions are part of the result.
        builders: The function that builds the loader, for each dataset it supports.
    """
    args = parse()
    job = Job(
        WORKLOADS[args.workload],
        Data(args.segmentation, args.classification, args.decoded, args.records),
        args.threads,
        args.variant,
    )
    result = {"versions": {p: version(p) for p in packages}}
    build = builders.get(job.work.name) or builders.get(job.work.data)
    if build is None:
        print(json.dumps({"skipped": "not a job for this loader"}))
        return
    first, figures = run(job, build, args.warm_up, args.seconds)
    result |= figures
    try:
        result["first_batch"] = check(job.work, job.data, *first)
    except WrongBatch as wrong:
        result["wrong"] = str(wrong)
    print(json.dumps(result), flush=True)
    # Loaders with daemon threads or worker processes may take seconds to end.
    os._exit(0)


def run(job: Job, build: Build, warm_up_s: float, seconds: float) -> tuple[tuple, dict]:
    """Returns the first batch as NumPy arrays, and the figures of a measured span."""
    started = time.perf_counter()
    batches = build(job)
    x, y = next(batches)
    first_s = time.perf_counter() - started
    first = np.array(as_numpy(x)), np.array(as_numpy(y))
    warm(job, batches, warm_up_s)

    load = Load(os.getpid())
    memory = Sampler(load)
    count, begin = 0, time.perf_counter()
    while (wall_s := time.perf_counter() - begin) < seconds:
        x, y = next(batches)
        touch(x)
        touch(y)
        count += 1
    spent = load.since_start(wall_s)
    memory.stop()
    samples = count * job.work.batch
    own = spent["own_cores"]
    return first, {
        "samples_per_s": round(samples / wall_s, 2),
        "batches": count,
        "wall_s": round(wall_s, 3),
        "first_batch_s": round(first_s, 3),
        "cpu_ms_per_sample": round(1e3 * own * wall_s / max(1, samples), 4)
        if own
        else None,
        "peak_rss_bytes": load.peak_rss or None,
        **spent,
    }


def warm(job: Job, batches: Iterator, seconds: float) -> None:
    """Takes batches for a while; for a mapped file, for an epoch.

    The first access to a mapped page costs more than the work on its rows.
    """
    rows = len(job.data.array()[1]) if job.work.data == "decoded" else 0
    started, taken = time.perf_counter(), 1
    while (passed := time.perf_counter() - started) < LONGEST_WARM_UP_S:
        if passed >= seconds and taken * job.work.batch >= rows:
            return
        next(batches)
        taken += 1


class Sampler:
    """Samples the memory of the process tree twice a second."""

    def __init__(self, load: Load):
        self.done = threading.Event()
        self.load = load
        self.thread = threading.Thread(target=self.sample, name="memory", daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while True:
            self.load.sample_memory()
            if self.done.wait(0.5):
                return

    def stop(self) -> None:
        self.done.set()
        self.thread.join()


def touch(array: Any) -> None:
    """Reads one element, the least that a consumer does."""
    array[(0,) * len(array.shape)]


def as_numpy(array: Any) -> np.ndarray:
    return array.numpy() if hasattr(array, "numpy") else np.asarray(array)


def epochs(epoch: Callable[[int], Iterator]) -> Iterator:
    """Yields epoch after epoch without end, for loaders of single epochs."""
    number = 0
    while True:
        yield from epoch(number)
        number += 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=Path(sys.argv[0]).stem)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument(
        "--variant", default="", help="which of the peer's ways to do it"
    )
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=3, metavar="SECONDS")
    for data in ("segmentation", "classification", "decoded"):
        parser.add_argument(f"--{data}", type=Path, required=True)
    parser.add_argument("--records", type=Path)
    return parser.parse_args()
