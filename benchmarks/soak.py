#!/usr/bin/env python3
"""A long run with restarts at random: what it holds and its digests stay the same.

See README.md, "Soak". Needs the `infeed` package and Python's standard library. On
Linux alone: what the process holds is read from /proc.
"""

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import infeed
from infeed import _core, sources
from infeed import transforms as T

PROC = Path("/proc/self")

# Share of the run in which pools and arenas fill up, and nothing is compared.
WARM_UP = 0.25

# Least time between two tables of what is held: a minute in a run of half an hour.
EVERY_S = 60.0

# Share of the restarts that are crashes: what came after the state that is left comes
# again.
CRASHES = 0.25

# Growth of memory that is none: what the allocator keeps differs by what was asked of
# it last, and restarts with another number of workers ask differently. Medians of the
# first and last quarter are compared.
SLACK = 0.10
SLACK_BYTES = 24 << 20


@dataclass(frozen=True)
class Held:
    """What the process holds at one moment."""

    at_s: float
    rss: int
    threads: int
    files: int


@dataclass
class Run:
    """How far the soak is."""

    steps: int = 0
    restarts: int = 0
    epochs: int = 0
    checked: int = 0


def held(since: float) -> Held:
    """What this process holds now."""
    words = (PROC / "statm").read_text().split()
    rss = int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = len(os.listdir(PROC / "task"))
    files = len(os.listdir(PROC / "fd"))
    return Held(time.monotonic() - since, rss, threads, files)


def described(folder: Path, tail: str) -> infeed.Pipeline:
    """A pipeline in which records are bad, cropped and flipped at random."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=11)
        .decode()
        .transform(T.RandomResizedCrop(64), T.RandomHorizontalFlip(), layout="CHW")
        .batch(16, tail=tail)
    )


def damaged(folder: Path, chance: random.Random, share: float) -> None:
    """Cuts some files short, which are bad records then."""
    files = sorted(folder.rglob("*.jpg"))
    for file in chance.sample(files, max(1, int(share * len(files)))):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])


def soak(args: argparse.Namespace, folder: Path, work: Path) -> tuple[Run, list[Held]]:
    """Runs epochs with restarts until the time is over.

    Raises:
        SystemExit: A digest differs from that of a replay.
    """
    chance = random.Random(args.seed)
    pipeline = described(folder, "wrap")
    run, history = Run(), []
    since = time.monotonic()
    end, next_line = since + 60 * args.minutes, since
    every = min(EVERY_S, 6 * args.minutes)
    state: dict[str, Any] | None = None
    farthest = (0, 0)
    digests = work / "digests.jsonl"
    while time.monotonic() < end:
        workers = chance.randint(1, args.workers)
        steps = chance.randint(1, args.most)
        # Of a run that crashes an earlier state is left than where it was.
        saved = chance.randint(1, steps) if chance.random() < CRASHES else steps
        with pipeline.open(
            workers=workers, on_error="substitute", digest="pixels", digest_file=digests
        ) as loader:
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            for step in range(1, steps + 1):
                if next(batches, None) is None:
                    batches = iter(loader)
                    next(batches)
                if step == saved:
                    state = loader.state_dict()
            last, digest = loader.state_dict(), loader.digest()
            del batches
        run.steps += steps
        run.restarts += 1
        at = (last["epoch"], last["position"])
        farthest = max(farthest, at)
        if saved == steps and at == farthest and at[0] > run.epochs:
            run.epochs = at[0]
            check(pipeline, digests, digest, run, chance.randint(1, args.workers))
            digests.unlink()
            # A state lists what was bad in all its epochs: growth of its own.
            kept = {name: value for name, value in last.items() if name != "bad"}
            state = kept | {"digest": "-".join(["0" * 16] * 2)}
        if time.monotonic() >= next_line:
            history.append(held(since))
            print(line(history[-1], run), flush=True)
            next_line += every
    history.append(held(since))
    return run, history


def check(
    pipeline: infeed.Pipeline, digests: Path, digest: str, run: Run, workers: int
) -> None:
    """Replays what was delivered since the last check, and compares step by step.

    Raises:
        SystemExit: A step, or the digest of all, differs.
    """
    found = infeed.verify(pipeline, against=digests, workers=workers)
    if found.difference is not None:
        sys.exit(f"restart {run.restarts}: {found.difference}")
    if found.digest != digest:
        sys.exit(
            f"restart {run.restarts}: the loader says {digest} and a replay of its "
            f"{found.steps} steps {found.digest}"
        )
    run.checked += found.steps


def line(now: Held, run: Run) -> str:
    return (
        f"{now.at_s / 60:6.1f} min  {run.steps:8} steps  {run.restarts:6} restarts  "
        f"{run.checked:8} checked  {now.rss / 2**20:7.1f} MiB  "
        f"{now.threads:3} threads  {now.files:3} files"
    )


def median(parts: list[Held], of: Callable[[Held], int]) -> int:
    ordered = sorted(of(part) for part in parts)
    return ordered[len(ordered) // 2]


def table(history: list[Held]) -> tuple[str, bool]:
    """What was held early and late after warming up, and whether it grew."""
    warm = [h for h in history if h.at_s >= WARM_UP * history[-1].at_s] or history
    early, late = warm[: max(1, len(warm) // 4)], warm[-max(1, len(warm) // 4) :]
    rows, grew = [f"{'':10}{'early':>12}{'late':>12}{'most':>12}"], False
    kinds: list[tuple[str, Callable[[Held], int], float]] = [
        ("memory", lambda h: h.rss, 2**20),
        ("threads", lambda h: h.threads, 1),
        ("files", lambda h: h.files, 1),
    ]
    for name, of, unit in kinds:
        before, after = median(early, of), median(late, of)
        most = max(of(h) for h in warm)
        allowed = before + max(SLACK * before, SLACK_BYTES) if unit > 1 else before
        grew = grew or after > allowed
        mark = "  grew" if after > allowed else ""
        numbers = "".join(f"{value / unit:12.1f}" for value in (before, after, most))
        rows.append(f"{name:10}{numbers}{mark}")
    return "\n".join(rows), grew


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of the run")
    parser.add_argument("--images", type=int, default=400, help="that are made")
    parser.add_argument("--workers", type=int, default=6, help="at most")
    parser.add_argument("--most", type=int, default=60, help="steps between restarts")
    parser.add_argument("--bad", type=float, default=0.02, help="share of bad records")
    parser.add_argument("--seed", type=int, default=0, help="of the restarts")
    args = parser.parse_args()
    # Every loader would name the same bad records again.
    logging.getLogger("infeed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="infeed-soak-") as folder:
        work, photos = Path(folder), Path(folder) / "photos"
        made = ["sample", "classification", str(photos), "--count", str(args.images)]
        if _core.main(["infeed", *made, "--size", "160x120"]) != 0:
            return 1
        damaged(photos, random.Random(args.seed), args.bad)
        run, history = soak(args, photos, work)
    text, grew = table(history)
    print(f"\n{line(history[-1], run)}\n\n{text}")
    print("\ngrowth" if grew else "\nflat, and every step the same in a replay")
    return int(grew)


if __name__ == "__main__":
    sys.exit(main())
