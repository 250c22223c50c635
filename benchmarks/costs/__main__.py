"""Measures the overhead of infeed, and compares it with the promised limits.

`python -m costs [NAME ...]`, in `benchmarks/`, with the interpreter that has infeed.
Each measurement runs in a separate process; see README.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import datasets
import machine
from costs.figures import many_files

HERE = Path(__file__).resolve().parent.parent
NAMES = ("index", "first_batch", "resume", "consumer", "step", "memory", "recording")
# Folders of many files for a measurement, below --data.
TREES = {
    "index": {"thousand": 1000, "million": 1_000_000},
    "first_batch": {"hundred-thousand": 100_000},
    "resume": {"hundred-thousand": 100_000},
}


def main() -> int:
    args = parse()
    args.workloads = ["classification", "segmentation"]
    paths = datasets.prepare(args)
    results = {}
    for name in args.names:
        for tree in TREES.get(name, ()):
            many_files(args.data / tree, TREES[name][tree], paths.classification)
        runs = [run_one(name, args, paths) for _ in range(args.repeats)]
        results[name] = merge(runs)
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    head = {
        "version": 1,
        "machine": machine.describe(),
        "data": datasets.describe(paths),
    }
    args.results.mkdir(parents=True, exist_ok=True)
    out = args.results / f"costs-{time.strftime('%Y-%m-%d-%H%M%S', time.gmtime())}.json"
    out.write_text(json.dumps(head | {"costs": results}, indent=1) + "\n")
    print("| promise | limit | measured, median | min to max | kept |")
    print("|---|--:|--:|--:|---|")
    kept = True
    for figures in results.values():
        for f in figures:
            kept &= f["kept"]
            unit, answer = f["unit"], "yes" if f["kept"] else "NO"
            spread = f"{min(f['all']):.4g} to {max(f['all']):.4g}"
            cells = [f["what"], f"{f['limit']:g} {unit}", f"{f['measured']:.4g} {unit}"]
            print(f"| {' | '.join([*cells, spread, answer])} |")
    print(f"\nraw figures: {out}", file=sys.stderr)
    return int(not kept)


def run_one(name: str, args: argparse.Namespace, paths: datasets.Paths) -> list[dict]:
    """Runs one process, which prints a list of figures: what, limit, measured, unit."""
    command = [
        sys.executable,
        "-m",
        f"costs.{name}",
        "--data",
        str(args.data.absolute()),
    ]
    command += ["--classification", str(paths.classification)]
    command += [
        "--segmentation",
        str(paths.segmentation),
        "--started",
        repr(time.time()),
    ]
    done = subprocess.run(
        command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def merge(runs: list[list[dict]]) -> list[dict]:
    """Returns the figures of several runs as their medians."""
    result = []
    for same in zip(*runs, strict=True):
        values = [f["measured"] for f in same]
        middle = statistics.median(values)
        result.append(
            same[0]
            | {"measured": middle, "all": values, "kept": middle <= same[0]["limit"]}
        )
    return result


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="costs", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(
        "--repeats", type=int, default=3, help="processes each (default 3)"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results")
    datasets.add_arguments(parser)
    args = parser.parse_args()
    args.names = args.names or list(NAMES)
    if unknown := set(args.names) - set(NAMES):
        parser.error(
            f"unknown measurement {', '.join(unknown)}; one of {', '.join(NAMES)}"
        )
    return args


if __name__ == "__main__":
    sys.exit(main())
