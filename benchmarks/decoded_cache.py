#!/usr/bin/env python3
"""Measures the cache of decoded records: processor time of epochs with and without.

    python decoded_cache.py FOLDER_OF_PHOTOGRAPHS [--copies 8]

Prints samples per second of processor time of all threads, which other programs
disturb less than a rate: medians of the first and of the second epoch, interleaved.
Several links to each file make an epoch longer than the read-ahead. Needs the installed
package.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import infeed
from infeed import sources
from infeed import transforms as T

ROUNDS = 5
CASES = {
    "RandomResizedCrop(224)": [T.RandomResizedCrop(224)],
    "Resize(256), RandomCrop(224)": [T.Resize(256), T.RandomCrop(224)],
}


def epochs(folder: Path, steps: list, cache: str | None) -> list[float]:
    """Returns samples per second of processor time of two epochs."""
    steps = [
        *steps,
        T.RandomHorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
    ]
    pipeline = infeed.Pipeline(sources.Folder(folder)).shuffle(seed=0).decode()
    pipeline = pipeline.transform(*steps).batch(32)
    rates = []
    start = time.process_time()
    with pipeline.open(workers=2, cache=cache) as loader:
        for _ in range(2):
            samples = sum(batch.rows for batch in loader)
            end = time.process_time()
            rates.append(samples / (end - start))
            start = end
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    args = parser.parse_args()
    files = [file for file in args.folder.rglob("*") if file.is_file()]
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "all"
        photos.mkdir()
        for copy in range(args.copies):
            for number, file in enumerate(files):
                (photos / f"{copy}-{number}.jpg").symlink_to(file.resolve())
        for name, steps in CASES.items():
            rates: dict[str | None, list[list[float]]] = {None: [], "8GiB": []}
            for _ in range(ROUNDS):
                for cache, measured in rates.items():
                    measured.append(epochs(Path(folder), steps, cache))
            for epoch in range(2):
                plain, cached = (
                    statistics.median(run[epoch] for run in runs)
                    for runs in rates.values()
                )
                gain = f"{plain:.0f} to {cached:.0f}, {cached / plain:.2f}x"
                print(f"{name}, epoch {epoch + 1}: {gain}")


if __name__ == "__main__":
    main()
