#!/usr/bin/env python3
"""Measures small rows: tables, embeddings and tokens of a fixed length.

Each contender delivers shuffled and unshuffled batches of rows of one size, which lie
in memory, in an `.npy`, or in an Arrow file in the page cache. Contenders run in
separate processes, in turn, several times. The bound is `numpy.take` into a reused
batch on as many threads as infeed has workers: a copy with known indices, without
order, hand-over or statistics. README.md describes the peers' environments.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

import machine

BATCH = 1024
# Bytes of all rows of a size: more than the caches of the processor.
BYTES = 256 << 20

Batches = Callable[[argparse.Namespace], Iterator[int]]


def rows(args: argparse.Namespace) -> "np.ndarray":
    """Returns the rows in memory."""
    return np.load(args.data / f"{args.size}.npy")


def through_infeed(source: str) -> Batches:
    def batches(args: argparse.Namespace) -> Iterator[int]:
        import infeed
        from infeed import sources

        if source == "memory":
            opened = sources.Memory(row=rows(args))
        elif source == "npy":
            opened = sources.Memory(
                row=np.load(args.data / f"{args.size}.npy", mmap_mode="r")
            )
        else:
            opened = sources.Arrow(str(args.data / f"{args.size}/*.arrow"))
        pipeline = infeed.Pipeline(opened).batch(BATCH)
        if args.shuffle:
            pipeline = pipeline.shuffle(seed=0)
        loader = pipeline.open(workers=args.workers)
        while True:
            for batch in loader:
                yield batch.rows

    return batches


def through_take(args: argparse.Namespace) -> Iterator[int]:
    """Copies rows with known indices on all threads. Yields what they copied."""
    all_rows = rows(args).view(np.uint64)
    count = len(all_rows)
    order = np.random.default_rng(0).permutation(count)
    if not args.shuffle:
        order = np.arange(count)
    copied = [0] * args.workers

    def copy(worker: int) -> None:
        batch = np.empty((BATCH, all_rows.shape[1]), np.uint64)
        at = worker * count // args.workers
        while True:
            at = 0 if at + BATCH > count else at
            part = order[at : at + BATCH]
            np.take(all_rows, part, axis=0, out=batch, mode="clip")
            copied[worker] += BATCH
            at += BATCH

    for worker in range(args.workers):
        threading.Thread(target=copy, args=(worker,), daemon=True).start()
    before = 0
    while True:
        time.sleep(0.05)
        now = sum(copied)
        yield now - before
        before = now


def through_torch(whole_batches: bool) -> Batches:
    def batches(args: argparse.Namespace) -> Iterator[int]:
        import torch
        from torch.utils import data

        class Rows(data.Dataset):
            tensor = torch.from_numpy(rows(args))

            def __len__(self) -> int:
                return len(self.tensor)

            def __getitem__(self, row: "int | list[int]") -> "torch.Tensor":
                return self.tensor[row]

        dataset = Rows()
        order = (data.RandomSampler if args.shuffle else data.SequentialSampler)(
            dataset
        )
        settings = {"num_workers": args.workers, "persistent_workers": True}
        if whole_batches:
            # One index operation for each batch, instead of one for each row.
            order = data.BatchSampler(order, BATCH, drop_last=False)
            loader = data.DataLoader(
                dataset, sampler=order, batch_size=None, **settings
            )
        else:
            loader = data.DataLoader(
                dataset, sampler=order, batch_size=BATCH, **settings
            )
        while True:
            for batch in loader:
                yield len(batch)

    return batches


def through_tf(args: argparse.Namespace) -> Iterator[int]:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(rows(args))
    if args.shuffle:
        dataset = dataset.shuffle(100_000)
    dataset = dataset.batch(BATCH, num_parallel_calls=args.workers)
    for batch in dataset.prefetch(tf.data.AUTOTUNE).repeat():
        yield int(batch.shape[0])


def through_grain(args: argparse.Namespace) -> Iterator[int]:
    import grain

    dataset = grain.MapDataset.source(rows(args))
    if args.shuffle:
        dataset = dataset.shuffle(seed=0)
    options = grain.ReadOptions(num_threads=args.workers, prefetch_buffer_size=4096)
    while True:
        for batch in dataset.batch(BATCH).to_iter_dataset(options):
            yield len(batch)


# Environment below --venvs ("": infeed's own), and the function that yields the numbers
# of rows delivered.
CONTENDERS: dict[str, tuple[str, Batches]] = {
    "take": ("", through_take),
    "infeed memory": ("", through_infeed("memory")),
    "infeed npy": ("", through_infeed("npy")),
    "infeed arrow": ("", through_infeed("arrow")),
    "torch": ("torch", through_torch(whole_batches=False)),
    "torch:batched": ("torch", through_torch(whole_batches=True)),
    "tf": ("tf", through_tf),
    "grain": ("grain", through_grain),
}


def one(args: argparse.Namespace) -> None:
    """Measures one contender in this process and prints its rate."""
    batches = CONTENDERS[args.one][1](args)
    warm = time.perf_counter() + args.warm_up
    while time.perf_counter() < warm:
        next(batches)
    begun, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < args.seconds:
        done += next(batches)
    print(json.dumps({"rate": done / passed}), flush=True)
    os._exit(0)


def prepare(args: argparse.Namespace) -> None:
    """Writes the rows as `.npy` and as Arrow files."""
    import infeed
    from infeed import sources

    args.data.mkdir(parents=True, exist_ok=True)
    for size in args.sizes:
        path = args.data / f"{size}.npy"
        if not path.exists():
            random = np.random.default_rng(size)
            shape = (BYTES // size, size)
            np.save(path, random.integers(0, 256, shape, dtype=np.uint8))
        made = infeed.Pipeline(sources.Memory(row=np.load(path, mmap_mode="r")))
        infeed.pack(made, args.data / f"{size}", to="arrow")


def measure(name: str, args: argparse.Namespace, size: int, shuffle: bool) -> float:
    venv = CONTENDERS[name][0]
    python = args.venvs / venv / "bin/python" if venv else Path(sys.executable)
    command = [str(python), "-W", "ignore", __file__, "--one", name]
    command += ["--data", str(args.data), "--size", str(size)]
    command += ["--workers", str(args.workers), "--seconds", str(args.seconds)]
    command += ["--warm-up", str(args.warm_up)] + ["--shuffle"] * shuffle
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])["rate"]
    except (OSError, IndexError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error!r}", file=sys.stderr)
        return float("nan")


def main() -> int:
    args = parse()
    if args.one:
        one(args)
    prepare(args)
    names = args.contenders or list(CONTENDERS)
    cases = [(size, shuffle) for size in args.sizes for shuffle in (False, True)]
    rates: dict[tuple[str, int, bool], list[float]] = {}
    for turn in range(args.repeats):
        # Each turn starts with another contender, so that none always has the same
        # position.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for size, shuffle in cases:
                rate = measure(name, args, size, shuffle)
                rates.setdefault((name, size, shuffle), []).append(rate)
                print(f"{name} {size} B {shuffle=}: {rate:,.0f}/s", file=sys.stderr)
    on = machine.describe()
    print(f"Machine: {on['processor']}, {on['cores']} cores, {on['system']}.")
    print(f"{args.workers} workers, batches of {BATCH}; million rows per second.\n")
    order = {False: "in order", True: "shuffled"}
    heads = [f"{size} B, {order[shuffle]}" for size, shuffle in cases]
    print(f"| loader | {' | '.join(heads)} |")
    print(f"|---|{'--:|' * len(heads)}")
    for name in names:
        values = [median(rates[name, size, shuffle]) for size, shuffle in cases]
        cells = " | ".join(f"{value / 1e6:.3g}" for value in values)
        print(f"| {name} | {cells} |")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).parent
    parser.add_argument("--data", type=Path, default=here / ".data/small-rows")
    parser.add_argument("--venvs", type=Path, default=here / ".venvs")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--workers", type=int, default=machine.cores())
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--shuffle", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
