#!/usr/bin/env python3
"""Runs random pipelines with kills and restarts for hours, and compares every step.

See README.md, "Campaigns". Needs the `infeed` package and Python's standard library.
Runs on Linux only: it reads the process's memory, threads and files from /proc.

A case has a source, transforms, ranks, a policy for bad records, and sometimes a web
server with faults, a disk cache and feeders. It runs once without disturbance. Then it
runs in legs: each ends by closing, by a crash that leaves an earlier state, or by a
kill of its process, and the next one resumes with another number of workers.
"""

import argparse
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import campaign
import infeed

PROC = Path("/proc/self")

# Share of the run in which pools and arenas fill up, and growth is not checked.
WARM_UP = 0.25

# Maximum time between two lines: a minute in a run of half an hour.
EVERY_S = 60.0

# End of a leg: closed, crashed (an earlier state remains), or killed.
ENDS = {"closed": 0.5, "crashed": 0.25, "killed": 0.25}

# Probability of a feeder fault at each step.
FEEDER_FAULT = 0.06

# Permitted growth of memory: the memory that the allocator keeps depends on the last
# requests, which differ between cases. Medians of the first and last quarter are
# compared.
SLACK = 0.10
SLACK_BYTES = 24 << 20

# Rows of a batch: divisible by 1, 2 and 3 ranks.
BATCH = 12

# Where a case keeps decoded records: nowhere, or in a memory or folder that holds some
# or all of them. A folder does not keep records of web servers.
KEPT = ["", "", "memory", "little memory", "a folder", "a little folder"]

Digests = dict[tuple[int, int, int], str]


@dataclass(frozen=True)
class Resources:
    """Resources of the process at one moment."""

    at_s: float
    rss: int
    threads: int
    files: int


@dataclass
class Run:
    """Progress of the soak."""

    steps: int = 0
    restarts: int = 0
    tally: campaign.Tally = field(default_factory=campaign.Tally)


@dataclass
class Case:
    """One random run, and its disturbances."""

    number: int
    source: str
    remote: bool
    cache: bool
    kept: str
    feeders: int
    ranks: int
    on_error: str
    tail: str
    pipeline: infeed.Pipeline
    undisturbed: infeed.Pipeline
    steps: int

    def __str__(self) -> str:
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        parts = [self.source, ranks, self.on_error, f"tail {self.tail}"]
        parts += ["web server"] if self.remote else []
        parts += ["cache"] if self.cache else []
        parts += [f"decoded records in {self.kept}"] if self.kept else []
        parts += ["feeders"] if self.feeders else []
        return ", ".join(parts)


class Differs(Exception):
    """A step of a disturbed run differs from that of the undisturbed run."""


def decoded_cache(kept: str, work: Path) -> infeed.Cache | None:
    """Returns the cache for decoded records of a case."""
    limit = "200KiB" if "little" in kept else "1GiB"
    if "folder" in kept:
        # Records move from the folder to the memory.
        return infeed.Cache(memory="200KiB", disk=work / "decoded", limit=limit)
    return infeed.Cache(memory=limit) if kept else None


def resources(since: float) -> Resources:
    """Returns the current resources of this process."""
    words = (PROC / "statm").read_text().split()
    rss = int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = len(os.listdir(PROC / "task"))
    files = len(os.listdir(PROC / "fd"))
    return Resources(time.monotonic() - since, rss, threads, files)


class Group:
    """The loaders of all ranks of a run, in one process."""

    def __init__(
        self,
        pipeline: infeed.Pipeline,
        ranks: int,
        on_error: Any,
        workers: int | Callable[[], infeed.feeders.Feeders],
        states: list[dict[str, Any]] | None,
        cache: infeed.Cache | None = None,
    ) -> None:
        self.loaders = []
        for rank in range(ranks):
            loader = pipeline.open(
                workers=workers if isinstance(workers, int) else workers(),
                rank=rank,
                world_size=ranks,
                on_error=on_error,
                digest="pixels",
                memory="64MiB",
                cache=cache,
            )
            self.loaders.append(loader)
            if states is not None:
                loader.load_state_dict(states[rank])
        self.batches = [campaign.endless(loader) for loader in self.loaders]

    def step(self) -> Digests:
        """Takes a batch of each rank; returns their digests by rank, epoch and step."""
        found = {}
        for rank, (loader, batches) in enumerate(
            zip(self.loaders, self.batches, strict=True)
        ):
            batch = next(batches)
            found[rank, batch.epoch, batch.step] = loader.step_digest()
        return found

    def states(self) -> list[dict[str, Any]]:
        return [loader.state_dict() for loader in self.loaders]

    def digests(self) -> list[str]:
        return [loader.digest() for loader in self.loaders]

    def close(self) -> None:
        self.batches.clear()
        for loader in self.loaders:
            loader.close()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose(
    number: int,
    chance: random.Random,
    args: argparse.Namespace,
    data: campaign.Data,
    url: str,
) -> Case:
    """Chooses a case; `url` is that of the web server."""
    source = chance.choice(["folder", "tar", "tar", "parquet"])
    remote = chance.random() < 0.4
    # The same list of files is read from the server and from the disk.
    kind = "list" if source == "folder" and remote else source
    ranks = chance.choice([1, 1, 2, 3])
    on_error = chance.choice(["skip", "substitute"]) if ranks == 1 else "substitute"
    tails = ["keep"] if on_error == "skip" else ["drop", "pad", "wrap"]
    tail = chance.choice(tails)
    seed = chance.randrange(1 << 32)
    window = chance.choice([None, None, "200KB"]) if source == "tar" else None
    state = chance.getstate()

    def make_pipeline(at: str | None) -> infeed.Pipeline:
        chance.setstate(state)
        pipeline = infeed.Pipeline(data.source(kind, at)).shuffle(seed, window=window)
        pipeline = campaign.add_transforms(pipeline.decode(), chance)
        return pipeline.batch(BATCH, tail=tail)  # type: ignore[arg-type]

    undisturbed = make_pipeline(None)
    pipeline = make_pipeline(url) if remote else undisturbed
    return Case(
        number=number,
        source=source,
        remote=remote,
        cache=remote and chance.random() < 0.6,
        kept=chance.choice(KEPT if not remote else KEPT[:3]),
        feeders=chance.choice([0, 0, 0, 1, 2]),
        ranks=ranks,
        on_error=on_error,
        tail=tail,
        pipeline=pipeline,
        undisturbed=undisturbed,
        steps=chance.randint(10, args.most),
    )


def once(
    number: int, args: argparse.Namespace, data: campaign.Data, work: Path, run: Run
) -> None:
    """Tries one case.

    Raises:
        Differs: A step differs.
    """
    chance = campaign.chance_of(args.seed, number)
    work.mkdir()
    with ExitStack() as stack:
        share = chance.randint(1, 8)
        faults = chance.randrange(1 << 32)
        url = stack.enter_context(campaign.web(data.root, faults, share))
        case = choose(number, chance, args, data, url)
        if args.verbose:
            print(f"case {number}: {case}", flush=True)
        workers = chance.randint(1, args.workers)
        expected: Digests = {}
        with Group(case.undisturbed, case.ranks, case.on_error, workers, None) as group:
            for _ in range(case.steps):
                expected |= group.step()
            whole = group.digests()
        env = {}
        if case.cache:
            # A small cache evicts pieces all the time.
            limit = chance.choice(["3MiB", "1GiB"])
            env = {
                "INFEED_CACHE_DIR": str(work / "cache"),
                "INFEED_CACHE_BYTES": limit,
            }
            infeed.remote.cache(work / "cache", limit=limit)
            stack.callback(infeed.cache, None)
        feeders = []
        if case.feeders:
            feeders = stack.enter_context(
                campaign.feeders(case.pipeline, work, case.feeders, env)
            )
        run_disturbed(case, chance, args, work, run, (expected, whole), feeders, env)
    for part in str(case).split(", "):
        run.tally.add(f"cases: {part}")


def run_disturbed(
    case: Case,
    chance: random.Random,
    args: argparse.Namespace,
    work: Path,
    run: Run,
    wanted: tuple[Digests, list[str]],
    feeders: list[campaign.Feeder],
    env: dict[str, str],
) -> None:
    """Runs a case in legs, and compares the results."""
    expected, whole = wanted
    missing = set(expected)
    states: list[dict[str, Any]] | None = None
    done = 0
    while done < case.steps:
        end = chance.choices(list(ENDS), list(ENDS.values()))[0]
        threads = chance.randint(1, args.workers)
        workers: Any = threads
        if feeders:
            local = chance.choice(["help", "fallback"])
            workers = lambda local=local, threads=threads: infeed.feeders.Feeders(  # noqa: E731
                [feeder.address for feeder in feeders],
                token=campaign.TOKEN,
                local=local,
                workers=threads,
                deadline=0.5,
            )
        steps = min(chance.randint(1, args.most // 2), case.steps - done)
        found: Digests = {}
        if end == "killed":
            states, passed = run_and_kill(
                case, threads, steps, states, chance, work, env
            )
            found = passed
        else:
            saved = chance.randint(1, steps) if end == "crashed" else steps
            cache = decoded_cache(case.kept, work)
            with Group(
                case.pipeline, case.ranks, case.on_error, workers, states, cache
            ) as group:
                for step in range(1, steps + 1):
                    disturb(feeders, chance, run)
                    found |= group.step()
                    if step == saved:
                        states = group.states()
                if done + steps == case.steps and end == "closed":
                    digests = group.digests()
                    if case.ranks == 1 and digests != whole:
                        raise Differs(f"digest {digests}, undisturbed {whole}")
        for at, digest in found.items():
            if expected.get(at) != digest:
                raise Differs(f"rank, epoch and step {at} after a leg that was {end}")
        missing -= set(found)
        run.steps += len(found)
        run.restarts += 1
        run.tally.add(f"legs: {end}")
        done = position(expected, states)
    if missing:
        raise Differs(f"{len(missing)} steps never came")


def position(expected: Digests, states: list[dict[str, Any]] | None) -> int:
    """Returns the number of steps of the case before the next one of these states."""
    if states is None:
        return 0
    at = (states[0]["epoch"], states[0]["position"] // BATCH)
    return sum(1 for rank, epoch, step in expected if rank == 0 and (epoch, step) < at)


def disturb(feeders: list[campaign.Feeder], chance: random.Random, run: Run) -> None:
    """Kills, starts, stops or continues a feeder, with some probability."""
    for feeder in feeders:
        if chance.random() < FEEDER_FAULT:
            if not feeder.runs:
                feeder.start()
            elif chance.random() < 0.5:
                feeder.kill()
                run.tally.add("feeders killed")
            else:
                feeder.pause()
                run.tally.add("feeders stopped for a while")
        else:
            feeder.resume()


def run_and_kill(
    case: Case,
    workers: int,
    steps: int,
    states: list[dict[str, Any]] | None,
    chance: random.Random,
    work: Path,
    env: dict[str, str],
) -> tuple[list[dict[str, Any]] | None, Digests]:
    """Runs a leg in another process and kills it; returns last states and digests."""
    pipeline, saved = work / "pipeline.toml", work / "states.json"
    case.pipeline.save(pipeline)
    saved.unlink(missing_ok=True)
    if states is not None:
        saved.write_text(json.dumps(states))
    leg = [str(pipeline), str(saved), str(case.ranks), case.on_error, str(workers)]
    leg += [case.kept, str(work)]
    child = subprocess.Popen(
        [sys.executable, __file__, "--leg", *leg, str(steps)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    )
    assert child.stdout is not None
    last = chance.randint(0, steps * case.ranks)
    lines = []
    for text in child.stdout:
        lines.append(text)
        if len(lines) > last:
            # Between two steps, or in the middle of one.
            time.sleep(chance.random() * 0.01)
            break
    child.kill()
    lines += child.stdout.readlines()
    child.stdout.close()
    if child.wait() > 0:
        raise Differs(f"the process of a leg ended with status {child.returncode}")
    found: Digests = {}
    for text in lines:
        if text.endswith("\n"):
            rank, epoch, step, digest = text.split()
            found[int(rank), int(epoch), int(step)] = digest
    return (json.loads(saved.read_text()) if saved.exists() else None), found


def leg(words: list[str]) -> int:
    """Runs a leg in this process, which another process will kill."""
    path, saved, ranks, on_error, workers, kept, work, steps = words
    at = Path(saved)
    states = json.loads(at.read_text()) if at.exists() else None
    pipeline = infeed.Pipeline.load(path)
    cache = decoded_cache(kept, Path(work))
    with Group(pipeline, int(ranks), on_error, int(workers), states, cache) as group:
        for _ in range(int(steps)):
            found = group.step()
            for (rank, epoch, step), digest in found.items():
                print(rank, epoch, step, digest, flush=True)
            part = at.with_suffix(".part")
            part.write_text(json.dumps(group.states()))
            part.replace(at)
    return 0


def soak(args: argparse.Namespace, folder: Path) -> tuple[Run, list[Resources]]:
    """Tries cases until the time is over."""
    chance = campaign.chance_of(args.seed, -1)
    data = campaign.data(folder / "data", args.images, chance, args.bad)
    # The first use of a web server starts threads that the process keeps.
    with ExitStack() as stack:
        url = stack.enter_context(campaign.web(data.root, 0, 0))
        warm_up = infeed.Pipeline(data.source("tar", url))
        next(iter(stack.enter_context(warm_up.open(workers=1))))
    run, history = Run(), []
    since = time.monotonic()
    end, next_line = since + 60 * args.minutes, since
    every = min(EVERY_S, 6 * args.minutes)
    number = args.case or 0
    while time.monotonic() < end:
        try:
            once(number, args, data, folder / f"case-{number}", run)
        except Exception as error:
            finding = f"case {number} of seed {args.seed}: {error!r}"
            print(f"{finding}\n{traceback.format_exc()}", flush=True)
            run.tally.findings.append(finding)
        run.tally.add("cases")
        shutil.rmtree(folder / f"case-{number}", ignore_errors=True)
        number += 1
        if time.monotonic() >= next_line:
            history.append(resources(since))
            print(line(history[-1], run), flush=True)
            next_line += every
        if args.case is not None:
            break
    history.append(resources(since))
    return run, history


def line(now: Resources, run: Run) -> str:
    return (
        f"{now.at_s / 60:6.1f} min  {run.tally.tried.get('cases', 0):6} cases  "
        f"{run.restarts:6} legs  {run.steps:8} steps checked  "
        f"{now.rss / 2**20:7.1f} MiB  {now.threads:3} threads  {now.files:3} files"
    )


def median(parts: list[Resources], of: Callable[[Resources], int]) -> int:
    ordered = sorted(of(part) for part in parts)
    return ordered[len(ordered) // 2]


def table(history: list[Resources]) -> tuple[str, bool]:
    """Compares resources early and late after warming up; reports whether they grew."""
    warm = [h for h in history if h.at_s >= WARM_UP * history[-1].at_s] or history
    early, late = warm[: max(1, len(warm) // 4)], warm[-max(1, len(warm) // 4) :]
    rows, grew = [f"{'':10}{'early':>12}{'late':>12}{'most':>12}"], False
    kinds: list[tuple[str, Callable[[Resources], int], float]] = [
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
    if sys.argv[1:2] == ["--leg"]:
        logging.getLogger("infeed").setLevel(logging.ERROR)
        return leg(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of the run")
    parser.add_argument("--hours", type=float, help="of the run, in place of minutes")
    parser.add_argument("--images", type=int, default=150, help="that are made")
    parser.add_argument("--workers", type=int, default=6, help="at most")
    parser.add_argument("--most", type=int, default=40, help="steps of a case")
    parser.add_argument("--bad", type=float, default=0.02, help="share of bad records")
    parser.add_argument("--verbose", action="store_true", help="prints every case")
    campaign.cases(parser)
    args = parser.parse_args()
    if args.hours is not None:
        args.minutes = 60 * args.hours
    print(f"seed {args.seed}", flush=True)
    # Every loader would log the same bad records again, and every lost feeder.
    logging.getLogger("infeed").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="infeed-soak-") as folder:
        run, history = soak(args, Path(folder))
    text, grew = table(history)
    # A single case does not show growth.
    grew = grew and args.case is None
    print(f"\n{line(history[-1], run)}\n\n{run.tally.text()}\n\n{text}")
    print("\ngrowth" if grew else "\nno growth")
    return int(grew or bool(run.tally.findings))


if __name__ == "__main__":
    sys.exit(main())
