#!/usr/bin/env python3
"""Measures how rates grow with the number of workers, and what ends the growth.

Runs each workload with 1, 2, 4, 8, ... workers, each in a separate process, in turn,
several times. The consumer only drops batches. For each number of workers: samples per
second, the rate per worker relative to one worker, processor time per sample, the
share of the time in which workers wait for bytes or for the consumer, and page faults.
The rate bends at the first number of workers whose rate per worker is below 0.9.

All data is in the page cache or in memory. Waits and processor time are those of
`Loader.stats`; faults are those of the process, from `getrusage`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import machine
from datasets import files_of, read_once
from pipelines import classification

WORKLOADS = {
    "photos": "JPEGs, random resized crop to 224 px, flip, uint8, batches of 64",
    "pixels": "uint8 pixels of 224x224x3 in memory, shuffled, batches of 256",
    "rows": "rows of 64 bytes in memory, shuffled, batches of 1024",
}
# Rate per worker below which more workers no longer pay, relative to one worker.
BENDS = 0.9
# Share of the workers' time in a wait, growth of processor time, or free share of the
# cores, that explains it.
CAUSES = 0.1


def pipeline(args: argparse.Namespace) -> Any:
    import numpy as np

    import infeed
    from infeed import sources

    if args.one == "photos":
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(classification(args.photos, drop_last=True))
            file.flush()
            return infeed.Pipeline.load(file.name)
    shape = {"pixels": (4000, 224, 224, 3), "rows": (4_000_000, 64)}[args.one]
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    source = sources.Memory(value=values)
    batch = {"pixels": 256, "rows": 1024}[args.one]
    return infeed.Pipeline(source).shuffle(seed=0).batch(batch)


def one(args: argparse.Namespace) -> None:
    """Measures one workload with one number of workers, and prints the figures."""
    loader = pipeline(args).open(workers=args.workers)

    def counters() -> dict[str, float]:
        stats = loader.stats()
        stages = {stage["name"]: stage for stage in stats["stages"]}
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "samples": stats["samples"],
            "consumer_s": stats["wait_s"],
            "bytes_s": stages["decode"]["wait_s"],
            "blocked_s": stages["write"]["wait_s"],
            "cpu_s": used.ru_utime + used.ru_stime,
            "faults": used.ru_minflt,
        }

    begun = before = None
    opened = time.perf_counter()
    while True:
        for _ in loader:
            now = time.perf_counter()
            if begun is None and now - opened >= args.warm_up:
                begun, before = now, counters()
            if begun is not None and now - begun >= args.seconds:
                passed = now - begun
                found = {
                    name: value - before[name] for name, value in counters().items()
                }
                print(json.dumps({"passed_s": passed, **found}), flush=True)
                os._exit(0)


def measure(workload: str, workers: int, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", workload]
    command += ["--workers", str(workers), "--photos", str(args.photos)]
    command += ["--seconds", str(args.seconds), "--warm-up", str(args.warm_up)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    time_of_workers = found["passed_s"] * workers
    return {
        "rate": found["samples"] / found["passed_s"],
        "cpu_us": found["cpu_s"] / found["samples"] * 1e6,
        "bytes": found["bytes_s"] / time_of_workers,
        "blocked": found["blocked_s"] / time_of_workers,
        "consumer": found["consumer_s"] / found["passed_s"],
        "faults": found["faults"] / found["samples"],
    }


def cause(now: dict[str, float], alone: dict[str, float]) -> str:
    """Returns what ends the growth, from the figures of one worker and of several."""
    if now["cpu_us"] >= (1 + CAUSES) * alone["cpu_us"]:
        return "a sample takes more processor time: shared caches, memory or cores"
    if now["cpu_us"] * now["rate"] / 1e6 >= (1 - CAUSES) * machine.cores():
        return "all cores are busy: I/O threads and the consumer run on them too"
    if now["blocked"] >= CAUSES:
        return "workers wait for the consumer"
    if now["bytes"] >= CAUSES:
        return "workers wait for bytes"
    return "waits for locks, or for cores that other programs use"


def table(workload: str, found: dict[int, dict[str, float]]) -> list[str]:
    lines = [
        f"{workload}: {WORKLOADS[workload]}.",
        "",
        "| workers | samples/s | per worker, relative | processor time per sample | "
        "workers wait for bytes | for the consumer | consumer waits | page faults per "
        "sample |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    alone, bend = found[min(found)], None
    for workers, now in found.items():
        share = now["rate"] / workers / (alone["rate"] / min(found))
        if share < BENDS and bend is None:
            bend = f"Bends at {workers} workers: {cause(now, alone)}."
        waits = [f"{now[name]:.0%}" for name in ("bytes", "blocked", "consumer")]
        cells = [
            f"{now['rate']:,.0f}",
            f"{share:.2f}",
            f"{significant(now['cpu_us'])} us",
        ]
        cells = [str(workers), *cells, *waits, f"{now['faults']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", bend or f"Does not bend up to {max(found)} workers.", ""]


def significant(value: float) -> str:
    """Returns a number with three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> int:
    args = parse()
    if args.one:
        one(args)
    if args.photos is None:
        args.photos = Path(__file__).parent / ".data/classification"
        if not args.photos.exists():
            make = [args.infeed, "sample", "classification", str(args.photos)]
            subprocess.run([*make, "--count", "1000"], check=True)
    for path in files_of(args.photos):
        read_once(path)
    counts = args.workers or counts_up_to(machine.cores())
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for turn in range(args.repeats):
        for workload in args.workloads:
            # Each turn starts with another number of workers.
            for workers in counts[turn % len(counts) :] + counts[: turn % len(counts)]:
                now = measure(workload, workers, args)
                found.setdefault((workload, workers), []).append(now)
                print(f"{workload}, {workers}: {now['rate']:,.0f}/s", file=sys.stderr)
    on = machine.describe()
    print(f"Machine: {on['processor']}, {on['cores']} cores, {on['system']}.\n")
    for workload in args.workloads:
        medians = {
            workers: {
                name: median(run[name] for run in found[workload, workers])
                for name in found[workload, workers][0]
            }
            for workers in counts
        }
        print("\n".join(table(workload, medians)))
    return 0


def counts_up_to(cores: int) -> list[int]:
    """Returns powers of two, and all cores but the consumer's."""
    powers = [1 << n for n in range(cores.bit_length()) if 1 << n < cores]
    last = cores if cores <= 2 else cores - 1
    return sorted({*powers, last})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, help="folder of JPEGs")
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS)
    )
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--infeed", default="infeed")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=WORKLOADS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        args.workers = args.workers[0]
    return args


if __name__ == "__main__":
    sys.exit(main())
