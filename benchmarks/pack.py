#!/usr/bin/env python3
"""Measures `infeed pack` without encoding, against `tar` of the same files.

See README.md, "Packing". Needs Python 3.11 and its standard library alone, `tar`, and
the `infeed` command.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine

# Shards of `infeed pack`, by format; they are compared with `tar`.
FORMATS = ("webdataset", "tfrecord", "parquet", "arrow")


def main() -> int:
    args = parse()
    files = [path for path in args.folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    for path in files:
        # Both find the files in memory, so that only their own work is compared.
        path.read_bytes()
    seconds: dict[str, list[float]] = {name: [] for name in ("tar", *args.formats)}
    with tempfile.TemporaryDirectory(dir=args.data, prefix="pack-") as folder:
        work = Path(folder)
        runs: dict[str, Callable[[Path], None]] = {"tar": lambda out: tar(args, out)}
        for to in args.formats:
            runs[to] = lambda out, to=to: pack(args, to, out)
        names = list(runs)
        for turn in range(args.turns + 1):
            # The speed of machines drifts: each turn begins with another contender.
            for nth in range(len(names)):
                name = names[(nth + turn) % len(names)]
                out = work / name
                # Earlier writes must be on the disk, or they would slow this one.
                os.sync()
                begun = time.perf_counter()
                runs[name](out)
                taken = time.perf_counter() - begun
                # The first turn starts what is started once.
                if turn > 0:
                    seconds[name].append(taken)
                remove(out)
    report(args, len(files), size, seconds)
    return 0


def tar(args: argparse.Namespace, out: Path) -> None:
    """Runs `tar cf`, and flushes the file to the disk as the packer does its shards."""
    command = ["tar", "-C", str(args.folder), "-cf", str(out), "."]
    subprocess.run(command, check=True)
    with open(out, "rb") as file:
        os.fsync(file.fileno())


def pack(args: argparse.Namespace, to: str, out: Path) -> None:
    command = [args.infeed, "pack", str(args.folder), str(out), "--to", to]
    if args.jobs is not None:
        command += ["--jobs", str(args.jobs)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def remove(out: Path) -> None:
    if out.is_dir():
        shutil.rmtree(out)
    else:
        out.unlink()


def report(
    args: argparse.Namespace, files: int, size: int, seconds: dict[str, list[float]]
) -> None:
    base = statistics.median(seconds["tar"])
    print(f"{files} files, {size / 1e6:.0f} MB, {args.turns} turns\n")
    print("| what | s | MB/s | speed of tar |")
    print("|---|--:|--:|--:|")
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        low, high = min(taken), max(taken)
        print(
            f"| {name} | {middle:.2f} ({low:.2f}-{high:.2f}) "
            f"| {size / 1e6 / middle:.0f} | {base / middle:.2f}x |"
        )
    if args.json is not None:
        found: dict[str, Any] = {
            "machine": machine.describe(),
            "files": files,
            "bytes": size,
            "seconds": seconds,
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="images, as `infeed pack` reads them")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--data", default=None, help="where to write; a folder")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
