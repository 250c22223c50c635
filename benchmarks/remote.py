#!/usr/bin/env python3
"""Measures the cost of latency: a bucket on loopback, with and without a delay.

Packs a folder of JPEGs once into tar shards, serves the files and the shards with the
server of the tests (`cargo run --release --example range_server`) like S3, and runs
`infeed bench` on both with each latency in turn, several times. The result is the rate
with latency as a share of the rate without; the goal is 0.90.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import machine

SERVER = "cargo run --release --quiet -p infeed --example range_server --"
PREFIX = "bench/data"
WANTED = 0.90
PIPELINE = """
[source]
{source}

[shuffle]
seed = 0

[decode]

[[transforms]]
kind = "RandomResizedCrop"
size = 224

[batch]
size = 64
"""


@dataclass
class DataFormat:
    """One format of the data, and the rates of its runs by latency."""

    name: str
    pipeline: Path
    rates: dict[float, list[float]] = field(default_factory=dict)

    def share(self, latency: float) -> float:
        """Returns the rate with this latency, relative to the rate with the lowest."""
        return median(self.rates[latency]) / median(self.rates[min(self.rates)])


class Server:
    """Runs the range server in a separate process."""

    def __init__(self, command: str, folder: Path) -> None:
        root = Path(__file__).resolve().parent.parent
        self.process = subprocess.Popen(
            [*shlex.split(command), str(folder), PREFIX],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self.answer()

    def answer(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit("the range server did not start")
        return line

    def latency(self, milliseconds: float) -> None:
        assert self.process.stdin
        print(milliseconds, file=self.process.stdin, flush=True)
        self.answer()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory(dir=args.data, prefix="remote-") as name:
        work = Path(name)
        served = work / "served"
        served.mkdir()
        (served / "files").symlink_to(args.folder)
        pack = [args.infeed, "pack", str(args.folder), str(served / "tar")]
        pack += ["--to", "webdataset", "--shard-size", args.shard_size]
        subprocess.run(pack, check=True, stdout=sys.stderr)
        formats = [make_format(args, work, name) for name in args.formats]
        server = Server(args.server, served)
        try:
            measure(args, formats, server)
        finally:
            server.close()
    print(table(formats))
    if args.json:
        found = {
            "machine": machine.describe(),
            "folder": args.folder.name,
            "shard_size": args.shard_size,
            "formats": [{"name": each.name, "rates": each.rates} for each in formats],
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    latest = max(args.latency)
    return int(any(each.share(latest) < WANTED for each in formats))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="JPEGs, in any folders")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--server", default=SERVER, help="command of the range server")
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0, 20.0])
    parser.add_argument("--formats", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--shard-size", default="16MB")
    parser.add_argument("--turns", type=int, default=5, help="runs of each")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument("--data", type=Path, default=Path("."), help="for the shards")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all rates")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    return args


SOURCES = {
    "files": f'kind = "folder"\npath = "s3://{PREFIX}/files"',
    "tar": f'kind = "webdataset"\nshards = ["s3://{PREFIX}/tar/*.tar"]',
}


def make_format(args: argparse.Namespace, work: Path, name: str) -> DataFormat:
    pipeline = work / f"{name}.toml"
    pipeline.write_text(PIPELINE.format(source=SOURCES[name]))
    return DataFormat(name, pipeline, {latency: [] for latency in args.latency})


def measure(
    args: argparse.Namespace, formats: list[DataFormat], server: Server
) -> None:
    cases = [(each, latency) for each in formats for latency in args.latency]
    for turn in range(args.turns + 1):
        # The speed of machines drifts: each turn begins with another case.
        for nth in range(len(cases)):
            each, latency = cases[(nth + turn) % len(cases)]
            server.latency(latency)
            run = bench(args, each.pipeline, server.url)
            # The first turn loads the command and the server into memory.
            if turn > 0:
                each.rates[latency].append(run["samples_per_s"])


def bench(args: argparse.Namespace, pipeline: Path, url: str) -> dict[str, Any]:
    command = [args.infeed, "bench", str(pipeline), "--json"]
    command += ["--seconds", str(args.seconds)]
    bucket = {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_SKIP_SIGNATURE": "true",
    }
    run = subprocess.run(
        command, env=os.environ | bucket, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def table(formats: list[DataFormat]) -> str:
    lines = [
        "| data | latency | samples/s | min to max | share |",
        "|---|--:|--:|--:|--:|",
    ]
    for each in formats:
        for latency, rates in each.rates.items():
            lines.append(
                f"| {each.name} | {latency:g} ms | {median(rates):.0f} "
                f"| {min(rates):.0f} to {max(rates):.0f} | {each.share(latency):.3f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
