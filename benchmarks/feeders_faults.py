#!/usr/bin/env python3
"""Measures losses and pauses of a run when feeders are killed or disconnected.

Feeders run in separate network namespaces, so it must run as root on Linux, with `ip`
(iproute2). See README.md, "Feeders". Needs the `infeed` package.
"""

import argparse
import hashlib
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import infeed
import machine
from campaign import TOKEN, Feeder, endless
from pipelines import classification

PORT = 7077

# Faults of feeders during a run.
FAULTS = {
    "none": [],
    "one killed": ["kill"],
    "one cut off": ["cut"],
    "one killed, one cut off": ["kill", "cut"],
    "two killed": ["kill", "kill"],
}


@dataclass
class Machine:
    """A feeder in a namespace."""

    number: int
    feeder: Feeder

    @property
    def host(self) -> str:
        return self.feeder.address

    def kill(self) -> None:
        self.feeder.kill()

    def cut(self) -> None:
        """Drops all packets without an error on either side."""
        sh(f"ip link set infeed{self.number}h down")


def main() -> int:
    args = parse()
    if shutil.which("ip") is None:
        sys.exit("ip is not there: apt-get install iproute2")
    rng = random.Random(args.seed)
    print(f"seed {args.seed}")
    found = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        work = Path(folder)
        path = work / "pipeline.toml"
        path.write_text(classification(args.folder, batch=args.batch))
        (work / "token").write_text(TOKEN)
        pipeline = infeed.Pipeline.load(path)
        steps = args.steps
        expected = [
            seen for seen, _ in run(pipeline, steps, {}, workers=machine.cores())
        ]
        for _ in range(args.turns):
            for name, faults in FAULTS.items():
                found.append(once(args, rng, pipeline, work, name, faults, expected))
                print(line(found[-1]), flush=True)
    if args.json:
        kept = {"machine": machine.describe(), "seed": args.seed, "runs": found}
        args.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if all(run["equal"] for run in found) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="JPEGs, in any folders")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3, help="runs of each fault")
    parser.add_argument("--feeders", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="of the network")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all runs")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    return args


def once(
    args: argparse.Namespace,
    rng: random.Random,
    pipeline: infeed.Pipeline,
    work: Path,
    name: str,
    faults: list[str],
    expected: list[str],
) -> dict[str, Any]:
    """Runs with feeders, some of which fail at random steps."""
    with ExitStack() as stack:
        machines = [
            stack.enter_context(start_feeder(number, work, args.delay_ms))
            for number in range(1, args.feeders + 1)
        ]
        feeders = infeed.feeders.Feeders(
            [m.host for m in machines], token=TOKEN, local="fallback", workers=1
        )
        # Faults happen after all feeders work, and before the run ends.
        at = sorted(
            rng.sample(range(args.steps // 4, args.steps * 3 // 4), len(faults))
        )
        victims = rng.sample(machines, len(faults))
        events = {
            step: getattr(victim, fault)
            for step, victim, fault in zip(at, victims, faults, strict=True)
        }
        counters: list[dict[str, Any]] = []
        steps = list(run(pipeline, args.steps, events, feeders, counters))
    waits = [seconds for _, seconds in steps]
    return {
        "fault": name,
        "at": at,
        "equal": [seen for seen, _ in steps] == expected,
        "usual_s": statistics.median(waits),
        "longest_s": max(waits[5:]),
        # A disconnected network is detected by a timeout, some steps later.
        "pause_s": max((max(waits[step:]) for step in at), default=0.0),
        "feeders": counters,
    }


def run(
    pipeline: infeed.Pipeline,
    steps: int,
    events: dict[int, Callable[[], None]],
    workers: infeed.feeders.Feeders | int,
    counters: list[dict[str, Any]] | None = None,
) -> Iterator[tuple[str, float]]:
    """Returns the digest of each batch with its records, and the wait for it."""
    with pipeline.open(workers=workers) as loader:
        batches = endless(loader)
        for step in range(steps):
            if step in events:
                events[step]()
            begun = time.monotonic()
            batch = next(batches)
            waited = time.monotonic() - begun
            digest = hashlib.sha256(batch["image"].tobytes())
            digest.update(repr((batch.epoch, batch.step, batch.records)).encode())
            yield digest.hexdigest(), waited
        if counters is not None:
            counters.extend(loader.stats()["feeders"])


def address(number: int, end: int = 2) -> str:
    return f"10.77.{number}.{end}"


@contextmanager
def start_feeder(number: int, work: Path, delay_ms: float) -> Iterator[Machine]:
    """Makes a namespace with a feeder; its link has the ends `h` here and `n` there."""
    space, here, there = (f"infeed{number}{end}" for end in ("", "h", "n"))
    for left in (f"link del {here}", f"netns del {space}"):
        subprocess.run(["ip", *left.split()], stderr=subprocess.DEVNULL)
    sh(f"ip netns add {space}")
    inside = f"ip netns exec {space}"
    feeder = None
    try:
        sh(f"ip link add {here} type veth peer name {there} netns {space}")
        sh(f"ip addr add {address(number, 1)}/30 dev {here}")
        sh(f"ip link set {here} up")
        sh(f"{inside} ip addr add {address(number)}/30 dev {there}")
        sh(f"{inside} ip link set {there} up")
        if delay_ms:
            sh(f"tc qdisc add dev {here} root netem delay {delay_ms}ms")
        feeder = Feeder(
            work / "pipeline.toml",
            work / "token",
            f"{address(number)}:{PORT}",
            inside=inside.split(),
        )
        feeder.start()
        yield Machine(number, feeder)
    finally:
        if feeder is not None:
            feeder.kill()
        # Without this, the link disappears with the namespace, but some time later.
        sh(f"ip link del {here}")
        sh(f"ip netns del {space}")


def sh(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.strip()}")


def line(run: dict[str, Any]) -> str:
    redone = sum(feeder["redone"] for feeder in run["feeders"])
    result = "same order and bits" if run["equal"] else "DIFFERENT"
    return (
        f"{run['fault']:24} {result:19} a batch {run['usual_s'] * 1e3:5.1f} ms, longest"
        f" {run['longest_s']:5.2f} s, after the fault {run['pause_s']:5.2f} s, "
        f"{redone} redone"
    )


if __name__ == "__main__":
    sys.exit(main())
