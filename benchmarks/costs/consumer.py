"""Measures the cost of a batch of 64 samples of 1 kB for the consumer's thread.

The consumer computes for a millisecond between batches, so that the next batch is
ready.
"""

import statistics
import time

import numpy as np

import infeed
from costs.figures import arguments, figure, report
from infeed import sources
from machine import cores

BATCH, WIDTH, STEPS = 64, 1000, 3000
STEP_S = 1e-3


def main() -> None:
    arguments()
    rows = np.zeros((BATCH * 1000, WIDTH), np.uint8)
    pipeline = infeed.Pipeline(sources.Memory(x=rows)).batch(BATCH, drop_last=True)
    taken = []
    with pipeline.open(workers=cores()) as loader:
        while len(taken) < STEPS:
            batches = iter(loader)
            while True:
                until = time.perf_counter() + STEP_S
                while time.perf_counter() < until:
                    pass
                started = time.perf_counter()
                batch = next(batches, None)
                if batch is None:
                    break
                batch["x"]
                taken.append(time.perf_counter() - started)
    median_us = 1e6 * statistics.median(taken[100:])
    report(figure("batch of 64 x 1 kB, cost to the consumer", median_us, 50, "us"))


if __name__ == "__main__":
    main()
