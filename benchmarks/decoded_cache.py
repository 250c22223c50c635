#!/usr/bin/env python3
"""Measures the cache of decoded records: processor time of epochs with and without.

    python decoded_cache.py FOLDER_OF_PHOTOGRAPHS [--copies 8] [--only PART]

Prints samples per second of processor time of all threads, which other programs
disturb less than a rate; medians of interleaved rounds. Several links to each file make
an epoch longer than the read-ahead. Needs the installed package.

- epochs: the first and the second epoch with a cache, against those without.
- sizes: the third epoch with a cache of one and two thirds of the records, against the
  prediction from the rates without a cache and with all records. `explain` predicts
  with the same formula, from trials.
- arrays: later epochs against a loader over the decoded images as an array.
- folder: the first and the second run with a cache in a folder only.
- lookup: time of an I/O thread to pass on a record that is in memory.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import infeed
from infeed import sources
from infeed import transforms as T

FLIP_AND_SCALE = [
    T.RandomHorizontalFlip(),
    T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
]
CASES = {
    "RandomResizedCrop(224)": [T.RandomResizedCrop(224)],
    "Resize(256), RandomCrop(224)": [T.Resize(256), T.RandomCrop(224)],
}
SQUARE = [T.Resize([256, 256]), T.RandomCrop(224)]
LARGE = "8GiB"

Rates = list[float]


def pipeline_of(source: sources.Source, steps: list) -> infeed.Pipeline:
    pipeline = infeed.Pipeline(source).shuffle(seed=0)
    if isinstance(source, sources.Folder):
        pipeline = pipeline.decode()
    return pipeline.transform(*steps, *FLIP_AND_SCALE).batch(32)


def epochs(pipeline: infeed.Pipeline, cache: object, count: int = 2) -> Rates:
    """Returns samples per second of processor time of some epochs."""
    rates = []
    start = time.process_time()
    with pipeline.open(workers=2, cache=cache) as loader:
        for _ in range(count):
            samples = sum(batch.rows for batch in loader)
            end = time.process_time()
            rates.append(samples / (end - start))
            start = end
    return rates


def medians(runs: dict[str, Callable[[], Rates]], rounds: int) -> dict[str, Rates]:
    """Runs all of them in turn, and returns the median rate of each epoch."""
    found: dict[str, list[Rates]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    return {
        name: [statistics.median(column) for column in zip(*rates, strict=True)]
        for name, rates in found.items()
    }


def compare_epochs(folder: Path, rounds: int) -> None:
    for name, steps in CASES.items():
        pipeline = pipeline_of(sources.Folder(folder), steps)
        found = medians(
            {of: partial(epochs, pipeline, of or None) for of in ("", LARGE)},
            rounds,
        )
        for epoch in range(2):
            plain, cached = found[""][epoch], found[LARGE][epoch]
            gain = f"{plain:.0f} to {cached:.0f}, {cached / plain:.2f}x"
            print(f"{name}, epoch {epoch + 1}: {gain}")


def compare_sizes(folder: Path, rounds: int) -> None:
    for name, steps in CASES.items():
        pipeline = pipeline_of(sources.Folder(folder), steps)
        with pipeline.open(workers=2, cache=LARGE) as loader:
            records = sum(batch.rows for batch in loader)
            used = loader.stats()["cache"]["used_bytes"]
        shares = {"none": 0.0, "1/3": 1 / 3, "2/3": 2 / 3, "all": 1.0}
        found = medians(
            {
                of: partial(epochs, pipeline, int(used * share * 1.001) or None, 3)
                for of, share in shares.items()
            },
            rounds,
        )
        plain, full = found["none"][2], found["all"][2]
        for of, share in shares.items():
            measured = found[of][2]
            predicted = 1 / (share / full + (1 - share) / plain)
            print(
                f"{name}, {of} of {records} records: {measured:.0f}, predicted "
                f"{predicted:.0f}, {measured / predicted - 1:+.1%}"
            )


def compare_arrays(folder: Path, rounds: int) -> None:
    plain = infeed.Pipeline(sources.Folder(folder)).decode().transform(SQUARE[0])
    with plain.batch(32).open(workers=2) as loader:
        batches = [(batch["image"].copy(), batch["label"].copy()) for batch in loader]
    images, labels = map(np.concatenate, zip(*batches, strict=True))
    arrays = pipeline_of(sources.Memory(image=images, label=labels), SQUARE[1:])
    cached = pipeline_of(sources.Folder(folder), SQUARE)
    found = medians(
        {
            "arrays": partial(epochs, arrays, None, 22),
            "cached": partial(epochs, cached, LARGE, 22),
        },
        rounds,
    )
    # A short epoch, and memory that batches use for the first time in the first two.
    of_arrays, of_cache = (
        statistics.median(found[of][2:]) for of in ("arrays", "cached")
    )
    print(
        f"epochs 3 to 22: {of_cache:.0f} with all records in the cache, "
        f"{of_arrays:.0f} over arrays, {of_cache / of_arrays:.2f}x"
    )


def compare_folder(folder: Path, rounds: int) -> None:
    for name, steps in CASES.items():
        pipeline = pipeline_of(sources.Folder(folder), steps)

        def runs(pipeline: infeed.Pipeline = pipeline) -> Rates:
            with tempfile.TemporaryDirectory() as disk:
                cache = infeed.Cache(memory=None, disk=disk, limit=LARGE)
                return [epochs(pipeline, cache, 1)[0] for _ in range(2)]

        found = medians(
            {"plain": partial(epochs, pipeline, None, 1), "folder": runs}, rounds
        )
        [plain], (first, second) = found["plain"], found["folder"]
        print(
            f"{name}, folder: {plain:.0f} without, first run {first / plain:.2f}x, "
            f"second run {second / plain:.2f}x"
        )


def measure_lookups(folder: Path, rounds: int) -> None:
    pipeline = pipeline_of(sources.Folder(folder), SQUARE)

    def read_time(loader: infeed.Loader) -> float:
        stages = {stage["name"]: stage for stage in loader.stats()["stages"]}
        return stages["read"]["cpu_s"]

    with pipeline.open(workers=2, cache=LARGE) as loader:
        for _ in range(2):
            sum(batch.rows for batch in loader)
        before, samples = read_time(loader), 0
        for _ in range(rounds):
            samples += sum(batch.rows for batch in loader)
        each = (read_time(loader) - before) / samples
    print(f"{1e6 * each:.2f} µs of an I/O thread per record in memory")


PARTS = {
    "epochs": compare_epochs,
    "sizes": compare_sizes,
    "arrays": compare_arrays,
    "folder": compare_folder,
    "lookup": measure_lookups,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PARTS, action="append")
    args = parser.parse_args()
    files = [file for file in args.folder.rglob("*") if file.is_file()]
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "all"
        photos.mkdir()
        for copy in range(args.copies):
            for number, file in enumerate(files):
                (photos / f"{copy}-{number}.jpg").symlink_to(file.resolve())
        for part in args.only or PARTS:
            PARTS[part](Path(folder), args.rounds)


if __name__ == "__main__":
    main()
