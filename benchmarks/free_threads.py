#!/usr/bin/env python3
"""Measures Python functions on samples: in one thread, in several, and in processes.

Run it with a Python with the GIL and with a free-threaded one, on an idle machine:
    python3.14 free_threads.py
    python3.14t free_threads.py
Needs the installed package and NumPy.
"""

import os
import statistics
import sys
import time

import numpy as np

import infeed
from infeed import sources
from text_functions import tokenize

ROWS = 64
ROUNDS = 5


def rate(words: np.ndarray, workers: int, processes: int) -> float:
    """Returns samples per second of one epoch, after a first epoch."""
    pipeline = infeed.Pipeline(sources.Memory(text=words))
    pipeline = pipeline.python(tokenize, processes=processes).batch(ROWS)
    with pipeline.open(workers=workers) as loader:
        for _ in loader:
            pass
        start = time.perf_counter()
        samples = sum(batch.rows for batch in loader)
        return samples / (time.perf_counter() - start)


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    is_free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        f"Python {sys.version.split()[0]}, {'without' if is_free else 'with'} the GIL"
    )
    cases = [("one worker", 1, 0), (f"{cores} workers", cores, 0)]
    cases.append((f"{cores} processes", cores, cores))
    words = np.random.default_rng(0).integers(97, 123, (2048, 20_000), dtype=np.uint8)
    words[:, ::7] = 32
    rates: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(ROUNDS):
        for name, workers, processes in cases:
            rates[name].append(rate(words, workers, processes))
    base = statistics.median(rates[cases[0][0]])
    for name, measured in rates.items():
        middle = statistics.median(measured)
        print(f"{name:12} {middle:8.0f} samples/s  {middle / base:.2f}x")


if __name__ == "__main__":
    main()
