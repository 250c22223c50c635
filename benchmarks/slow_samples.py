#!/usr/bin/env python3
"""Measures what slow samples cost: one of a hundred takes 50 times as long as others.

    python slow_samples.py [--workers 16] [--batch 64]

Samples are made by a function that sleeps, so the run has as many workers as a large
machine on any machine. Prints the share of the time in which workers are busy, with and
without slow samples, and the loss: how much lower the throughput is than the additional
time of the slow samples explains. Needs the installed package.
"""

import argparse
import statistics
import time

import numpy as np

import infeed
from infeed import sources

USUAL_S = 0.005
SLOW_S = 50 * USUAL_S
ROWS = 12_800
ROUNDS = 3


def sleep(sample: dict) -> dict:
    """Takes the time that the sample's field names."""
    time.sleep(float(sample["seconds"]))
    return sample


def busy_share(seconds: np.ndarray, workers: int, batch: int) -> float:
    """Returns the share of an epoch in which all workers were busy."""
    source = sources.Memory(seconds=seconds)
    pipeline = infeed.Pipeline(source).shuffle(seed=0).python(sleep).batch(batch)
    with pipeline.open(workers=workers) as loader:
        # The first epoch, in which times are unknown, is not measured.
        for _ in loader:
            pass
        start = time.perf_counter()
        for _ in loader:
            pass
        spent = time.perf_counter() - start
    return float(seconds.sum()) / workers / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    even = np.full(ROWS, USUAL_S)
    uneven = even.copy()
    uneven[np.random.default_rng(0).permutation(ROWS)[: ROWS // 100]] = SLOW_S
    shares: dict[str, list[float]] = {"equal samples": [], "with slow samples": []}
    for _ in range(ROUNDS):
        for found, seconds in zip(shares.values(), (even, uneven), strict=True):
            found.append(busy_share(seconds, args.workers, args.batch))
    for name, found in shares.items():
        print(f"{name}: workers busy {statistics.median(found):.1%} of the time")
    without, with_slow = (statistics.median(found) for found in shares.values())
    print(f"loss beyond the time of the slow samples: {1 - with_slow / without:.1%}")


if __name__ == "__main__":
    main()
