#!/usr/bin/env python3
"""Measures the rate of the wire of feeders, and how many feeders a trainer can use.

See README.md, "Feeders". Needs only Python 3.11 and its standard library, the `infeed`
command, and `cargo` for simulated feeders.
"""

import argparse
import json
import os
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import groups
import machine

SIDE = 224
IMAGE = SIDE * SIDE * 3
BATCH = 64

# Pixels of a mapped file: a feeder only copies and sends a batch.
PIPELINE = """\
[source]
kind = "memory"
[[source.fields]]
name = "image"
kind = "image"
dtype = "uint8"
shape = [{side}, {side}, 3]
path = {path}
records = {records}
[shuffle]
seed = 0
[batch]
size = {batch}
"""

SIMULATED = "cargo run --quiet --release -p infeed-feed --example simulated_feeders --"

# Memory of a trainer.
MEMORY = "512MB"

# Bytes that a bare connection sends at once.
CHUNK = 1 << 20


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="wire-", dir=args.data) as folder:
        work = Path(folder)
        pipeline = work / "pipeline.toml"
        pixels = work / "pixels"
        with pixels.open("wb") as out:
            for _ in range(args.records):
                out.write(os.urandom(IMAGE))
        text = PIPELINE.format(
            path=json.dumps(str(pixels)), records=args.records, side=SIDE, batch=BATCH
        )
        pipeline.write_text(text)
        found: dict[str, Any] = {
            "machine": machine.describe(),
            "wire": wire(args, pipeline),
            "many": many(args, pipeline),
        }
    print(wire_table(found["wire"]))
    print()
    print(many_table(found["many"], args))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument(
        "--simulated", default=SIMULATED, help="command of feeders that only send"
    )
    parser.add_argument("--turns", type=int, default=5, help="runs of each way")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run")
    parser.add_argument("--records", type=int, default=1024, help="images there are")
    parser.add_argument(
        "--counts", type=int, nargs="*", default=[1, 2, 5, 10, 20, 50, 100]
    )
    parser.add_argument(
        "--rate", type=float, default=800.0, help="images/s that a feeder makes"
    )
    parser.add_argument(
        "--share",
        type=float,
        help="processors that a trainer of many may use, 0.1 or more (root)",
    )
    parser.add_argument("--data", type=Path, default=None, help="folder for pixels")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all runs")
    return parser.parse_args()


def wire(args: argparse.Namespace, pipeline: Path) -> list[dict[str, float]]:
    """Measures one connection, encrypted and not, and in the same turn a bare one and a
    copy in memory.
    """
    turns = []
    for _ in range(args.turns):
        with feeder(args, pipeline, "127.0.0.1") as host:
            run = bench(args, pipeline, [host], token=True)
        # Connections to addresses other than loopback are encrypted.
        with feeder(args, pipeline, own_address()) as host:
            secret = bench(args, pipeline, [host], token=True)
        turns.append(
            {
                "wire": run["wire_bytes_per_s"],
                "cpu_per_byte": run["cpu_s"] / max(run["wire_bytes"], 1),
                "encrypted": secret["wire_bytes_per_s"],
                "encrypted_cpu_per_byte": secret["cpu_s"]
                / max(secret["wire_bytes"], 1),
                "bare": bare(args.seconds / 2),
                "copy": copies(args.seconds / 4),
            }
        )
    return turns


def many(args: argparse.Namespace, pipeline: Path) -> list[dict[str, Any]]:
    """Measures an increasing number of feeders. They have one half of the cores, the
    trainer the other half or a share of it: simulated feeders work as hard as the
    trainer, and the measurement is for the trainer's limit.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    ours = set(cores[:half])
    theirs = set(cores[half:]) or ours
    rows = []
    for count in args.counts:
        runs = []
        for _ in range(args.turns):
            with (
                simulate_feeders(args, pipeline, count, theirs) as (hosts, pid),
                groups.limit_process(cores=args.share) as limit,
            ):
                before = processor_time(pid)
                run = bench(args, pipeline, hosts, ours, limit)
                run["feeders_cpu_s"] = processor_time(pid) - before
            runs.append(run)
        rows.append({"count": count, "cores": half, "share": args.share, "runs": runs})
    return rows


@contextmanager
def feeder(args: argparse.Namespace, pipeline: Path, address: str) -> Iterator[str]:
    """Starts a feeder that makes batches as fast as it can; yields its address."""
    token = ["--token-file", str(token_file(pipeline))]
    command = [args.infeed, "feed", str(pipeline), "--listen", f"{address}:0", *token]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("feeding at ").strip()
    finally:
        process.kill()
        process.wait()


def own_address() -> str:
    """Returns an address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing; the system selects the address that it would send from.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            sys.exit("this machine has only loopback addresses")
        address: str = probe.getsockname()[0]
        return address


def token_file(pipeline: Path) -> Path:
    path = pipeline.with_name("token")
    path.write_text("0123456789abcdef0123456789abcdef")
    return path


@contextmanager
def simulate_feeders(
    args: argparse.Namespace, pipeline: Path, count: int, cores: set[int]
) -> Iterator[tuple[list[str], int]]:
    """Starts a process of feeders that sleep instead of working; yields its number."""
    command = [*shlex.split(args.simulated), str(pipeline), str(count)]
    command.append(str(args.rate * IMAGE))
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        hosts = [process.stdout.readline().strip() for _ in range(count)]
        if not hosts[-1]:
            sys.exit("the feeders did not start")
        yield hosts, process.pid
    finally:
        process.stdin.close()
        process.wait()


def bench(
    args: argparse.Namespace,
    pipeline: Path,
    hosts: list[str],
    cores: set[int] | None = None,
    limit: Callable[[], None] = lambda: None,
    token: bool = False,
) -> dict[str, float]:
    """Runs a trainer that makes no batches itself."""

    def begin() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        limit()

    command = [args.infeed, "bench", str(pipeline), "--json", "--local", "fallback"]
    command += ["--feeders", ",".join(hosts), "--seconds", str(args.seconds)]
    if token:
        command += ["--token-file", str(token_file(pipeline))]
    # A trainer makes all its slabs with its first batches, which is not measured here.
    command += ["--memory", MEMORY]
    before = children()
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=begin,
    )
    cpu_s = children() - before
    run = json.loads(done.stdout)
    received = sum(feeder["bytes"] for feeder in run["feeders"])
    made = sum(feeder["batches"] for feeder in run["feeders"])
    return {
        "samples_per_s": run["samples_per_s"],
        "batches": run["batches"],
        "received": made,
        "redone": sum(feeder["redone"] for feeder in run["feeders"]),
        "wire_bytes": received,
        "wire_bytes_per_s": received / run["elapsed_s"],
        "elapsed_s": run["elapsed_s"],
        "cpu_s": cpu_s,
    }


def children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def processor_time(pid: int) -> float:
    """Returns the seconds of a process and of the children it waited for."""
    # After the name in parentheses, which may contain any characters.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / machine.TICK


def bare(seconds: float) -> float:
    """Returns bytes per second of a connection between two processes that ignore the
    data.
    """
    here, there = socket.create_server(("127.0.0.1", 0)), None
    child = os.fork()
    if child == 0:
        with socket.create_connection(here.getsockname()) as out:
            chunk, end = bytes(CHUNK), time.monotonic() + seconds
            while time.monotonic() < end:
                out.sendall(chunk)
        os._exit(0)
    there, _ = here.accept()
    buffer, received, begun = bytearray(CHUNK), 0, time.monotonic()
    while got := there.recv_into(buffer):
        received += got
    rate = received / (time.monotonic() - begun)
    there.close()
    here.close()
    os.waitpid(child, 0)
    return rate


def copies(seconds: float) -> float:
    """Returns bytes per second that one thread copies from memory to memory."""
    source = memoryview(bytes(os.urandom(64 << 20)))
    target = memoryview(bytearray(64 << 20))
    done, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        target[:] = source
        done += len(source)
    return done / (time.monotonic() - begun)


def middle(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def wire_table(turns: list[dict[str, float]]) -> str:
    lines = [f"one connection        GB/s   (median of {len(turns)})"]
    for key, name in (
        ("wire", "feeder to trainer"),
        ("encrypted", "the same, encrypted"),
        ("bare", "bare, on loopback"),
        ("copy", "copy, one thread"),
    ):
        lines.append(f"{name:20}{middle(turns, key) / 1e9:8.2f}")
    each = statistics.median(turn["wire"] / turn["bare"] for turn in turns)
    cost = middle(turns, "cpu_per_byte") * 1e9
    secret = middle(turns, "encrypted_cpu_per_byte") * 1e9
    lines.append(
        f"of the bare connection {each:.0%}; trainer's CPU {cost:.2f} s per GB, "
        f"encrypted {secret:.2f} s per GB"
    )
    return "\n".join(lines)


def many_table(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    lines = [
        f"{args.rate:.0f} images/s a feeder, {IMAGE * BATCH / 1e6:.1f} MB a batch",
        "feeders  offered  images/s  trainer busy  feeders busy  CPU a batch  redone",
    ]
    for row in rows:
        runs, cores = row["runs"], row["cores"]
        each = [run["cpu_s"] / max(run["received"], 1) * 1e3 for run in runs]
        may_use = row["share"] or cores
        busy = [run["cpu_s"] / run["elapsed_s"] / may_use for run in runs]
        theirs = [run["feeders_cpu_s"] / run["elapsed_s"] / cores for run in runs]
        lines.append(
            f"{row['count']:7}{row['count'] * args.rate:9.0f}"
            f"{middle(runs, 'samples_per_s'):10.0f}{statistics.median(busy):14.0%}"
            f"{statistics.median(theirs):14.0%}{statistics.median(each):10.2f} ms"
            f"{sum(run['redone'] for run in runs):8.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    # The process forks, so it must not have other threads.
    assert threading.active_count() == 1
    sys.exit(main())
