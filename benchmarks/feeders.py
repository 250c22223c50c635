#!/usr/bin/env python3
"""Measures the trainer's cost of a batch from a feeder, and the rate of the wire.

See README.md, "Feeders". Needs only Python 3.11 and its standard library, and the
`infeed` command.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
from pipelines import classification


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="feeders-") as folder:
        work = Path(folder)
        pipeline, token = work / "pipeline.toml", work / "token"
        pipeline.write_text(classification(args.folder))
        token.write_text("0123456789abcdef0123456789abcdef")
        feeders = [start(args, pipeline, token) for _ in range(args.feeders)]
        hosts = ",".join(host for _, host in feeders)
        remote = ["--feeders", hosts, "--token-file", str(token), "--local", "fallback"]
        variants = {"local": [], "remote": remote}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
        try:
            for turn in range(args.turns + 1):
                for name, more in variants.items():
                    run = bench(args, pipeline, more)
                    # The first turn reads files into memory.
                    if turn > 0:
                        runs[name].append(run)
        finally:
            for process, _ in feeders:
                process.kill()
                process.wait()
    print(table(runs))
    if args.json:
        found = {"machine": machine.describe(), "folder": args.folder.name}
        args.json.write_text(json.dumps(found | {"runs": runs}, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="JPEGs, in any folders")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--feeders", type=int, default=1, help="processes on loopback")
    parser.add_argument("--turns", type=int, default=5, help="runs of each way")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all runs")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    return args


def start(
    args: argparse.Namespace, pipeline: Path, token: Path
) -> tuple[subprocess.Popen[str], str]:
    """Starts a feeder; returns it and its address."""
    command = [args.infeed, "feed", str(pipeline), "--listen", "127.0.0.1:0"]
    feeder = subprocess.Popen(
        [*command, "--token-file", str(token)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert feeder.stdout is not None
    line = feeder.stdout.readline()
    return feeder, line.removeprefix("feeding at ").strip()


def bench(args: argparse.Namespace, pipeline: Path, more: list[str]) -> dict[str, Any]:
    """Returns the result of a run, with the processor time of the trainer's process
    only.
    """
    before = cpu_time()
    command = [args.infeed, "bench", str(pipeline), "--json", *more]
    command += ["--seconds", str(args.seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    run: dict[str, Any] = json.loads(done.stdout)
    run["cpu_s"] = cpu_time() - before
    return run


def cpu_time() -> float:
    # Only of children that have ended, so without the feeders.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["way    samples/s  CPU a batch  wire GB/s  made by feeders"]
    for name, found in runs.items():
        rate = statistics.median(run["samples_per_s"] for run in found)
        cpu = statistics.median(run["cpu_s"] / max(run["batches"], 1) for run in found)
        made = sum(f["batches"] for run in found for f in run["feeders"])
        wire = statistics.median(
            sum(f["bytes"] for f in run["feeders"]) / run["elapsed_s"] / 1e9
            for run in found
        )
        all_of_them = max(sum(run["batches"] for run in found), 1)
        share = f"{min(made / all_of_them, 1):.0%}"
        lines.append(f"{name:6}{rate:10.0f}{cpu * 1e3:10.2f} ms{wire:11.2f}{share:>17}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
