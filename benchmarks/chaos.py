#!/usr/bin/env python3
"""Kills packers and feeders, and breaks answers of a web server; compares the results.

See README.md, "Campaigns". Needs the `infeed` package and Python's standard library,
and no special rights: all processes are on loopback addresses of this machine.

| kind | disturbance | comparison |
|---|---|---|
| pack | `infeed pack` is killed at random moments and repeated | bytes of every file with an undisturbed run |
| feeders | feeders are killed, restarted, stopped and continued | pixels and records of every step |
| storage | answers are cut, late, short, errors, of another range or of the whole file; files of the disk cache are damaged | pixels and records of every step |
"""  # noqa: E501

import argparse
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import campaign
import infeed

# Maximum number of kills of one packer; then it may finish.
MOST_KILLS = 6

# Steps of a run.
STEPS = 40

FORMATS = ["webdataset", "tfrecord", "arrow", "parquet", "npz", "folder", "arrays"]


class Differs(Exception):
    """The result of a disturbed run differs from that of the undisturbed run."""


def pack(
    chance: random.Random, data: campaign.Data, work: Path, tally: campaign.Tally
) -> None:
    """Kills a packer until it has finished, and compares its files."""
    file_format = chance.choice(FORMATS)
    options = ["--to", file_format, "--jobs", str(chance.randint(1, 4))]
    if file_format in ("arrays", "npz"):
        options += ["--fit", chance.choice(["32x32", "48x40"])]
    elif chance.random() < 0.5:
        options += ["--fit", "64x64", "--image", chance.choice(["png", "jpeg:90"])]
    if file_format == "npz":
        options += ["--rows", str(chance.choice([4, 16]))]
    elif file_format not in ("folder", "arrays"):
        options += ["--shard-size", chance.choice(["20KB", "60KB", "200KB"])]
        if chance.random() < 0.4:
            options += ["--shuffle", str(chance.randrange(100))]
    command = [*campaign.COMMAND, "pack", str(data.root / "photos")]

    def begin(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, str(out), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finish(process: subprocess.Popen[bytes]) -> None:
        _, errors = process.communicate()
        # Status 3: bad records were left out.
        if process.returncode not in (0, 3):
            raise Differs(f"{' '.join(options)}: {errors.decode()[-500:]}")

    whole, out = work / "whole", work / "out"
    since = time.monotonic()
    finish(begin(whole))
    usual = time.monotonic() - since
    for _ in range(chance.randint(1, MOST_KILLS)):
        process = begin(out)
        try:
            process.wait(timeout=chance.uniform(0.2, 1.0) * usual)
        except subprocess.TimeoutExpired:
            process.kill()
            tally.add("packers killed")
        process.communicate()
    finish(begin(out))
    expected, found = campaign.hashes(whole), campaign.hashes(out)
    names = {
        name
        for name in expected.keys() | found.keys()
        if expected.get(name) != found.get(name)
    }
    if names:
        raise Differs(f"{' '.join(options)}: {sorted(names)[:5]} differ")
    tally.add("files compared", len(found))
    tally.add(f"packs to {file_format}")


def make_pipelines(
    chance: random.Random, data: campaign.Data, url: str | None = None
) -> tuple[infeed.Pipeline, infeed.Pipeline]:
    """Returns a random pipeline over local files, and over a server if there is one."""
    kind = chance.choice(["list", "tar", "parquet"])
    seed, state = chance.randrange(1 << 32), chance.getstate()

    def over(at: str | None) -> infeed.Pipeline:
        chance.setstate(state)
        pipeline = infeed.Pipeline(data.source(kind, at)).shuffle(seed).decode()
        return campaign.add_transforms(pipeline, chance).batch(8, tail="wrap")

    return over(None), over(url)


def digests(pipeline: infeed.Pipeline, workers: Any, each: Any) -> list[str]:
    """Returns the digests of steps; calls `each` before every step."""
    found = []
    with pipeline.open(
        workers=workers, on_error="substitute", digest="pixels", memory="64MiB"
    ) as loader:
        batches = campaign.endless(loader)
        for _ in range(STEPS):
            each()
            batch = next(batches)
            found.append(f"{batch.epoch} {batch.step} {loader.step_digest()}")
            del batch
        del batches
    return found


def compare(expected: list[str], found: list[str], tally: campaign.Tally) -> None:
    for one, other in zip(expected, found, strict=True):
        if one != other:
            raise Differs(f"expected epoch, step and digest {one}, got {other}")
    tally.add("steps compared", len(found))


def feeders(
    chance: random.Random, data: campaign.Data, work: Path, tally: campaign.Tally
) -> None:
    """Kills and stops feeders while they feed a run."""
    pipeline, _ = make_pipelines(chance, data)
    expected = digests(pipeline, 2, lambda: None)
    with campaign.feeders(pipeline, work, chance.randint(1, 3)) as group:
        share = chance.choice([0.05, 0.2])

        def disturb() -> None:
            for feeder in group:
                if chance.random() >= share:
                    feeder.resume()
                elif not feeder.runs:
                    feeder.start()
                    tally.add("feeders started again")
                elif chance.random() < 0.5:
                    feeder.kill()
                    tally.add("feeders killed")
                else:
                    feeder.pause()
                    tally.add("feeders stopped for a while")

        workers = infeed.feeders.Feeders(
            [feeder.address for feeder in group],
            token=campaign.TOKEN,
            local=chance.choice(["help", "fallback"]),
            workers=chance.randint(1, 3),
            deadline=0.3,
        )
        compare(expected, digests(pipeline, workers, disturb), tally)


def storage(
    chance: random.Random, data: campaign.Data, work: Path, tally: campaign.Tally
) -> None:
    """Reads from a server with wrong answers, through a damaged cache."""
    share = chance.choice([2, 10, 25])
    with ExitStack() as stack:
        served = campaign.web(data.root, chance.randrange(1 << 32), share)
        url = stack.enter_context(served)
        local, remote = make_pipelines(chance, data, url)
        expected = digests(local, 2, lambda: None)
        cache = work / "cache"
        if chance.random() < 0.6:
            infeed.remote.cache(cache, limit=chance.choice(["3MiB", "1GiB"]))
            stack.callback(infeed.cache, None)

        def disturb() -> None:
            if chance.random() < 0.1 and cache.exists():
                damage(cache, chance, tally)

        workers = chance.randint(1, 4)
        compare(expected, digests(remote, workers, disturb), tally)
        compare(expected, digests(remote, workers, disturb), tally)
    tally.add(f"runs with {share} of 100 answers wrong", 2)


def damage(cache: Path, chance: random.Random, tally: campaign.Tally) -> None:
    """Truncates, changes or removes a file of the cache."""
    files = [path for path in sorted(cache.rglob("*")) if path.is_file()]
    if not files:
        return
    path = chance.choice(files)
    try:
        content = bytearray(path.read_bytes())
        how = chance.choice(["cut", "changed", "removed"])
        if how == "removed" or not content:
            path.unlink()
        elif how == "cut":
            path.write_bytes(content[: len(content) // 2])
        else:
            content[chance.randrange(len(content))] ^= 0xFF
            path.write_bytes(content)
    except FileNotFoundError:
        return
    tally.add(f"files of the cache {how}")


KINDS = {"pack": pack, "feeders": feeders, "storage": storage}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of the run")
    parser.add_argument("--images", type=int, default=120, help="that are made")
    parser.add_argument("--bad", type=float, default=0.03, help="share of bad records")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    campaign.cases(parser)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    # Lost feeders, failed requests and bad records are expected.
    logging.getLogger("infeed").setLevel(logging.CRITICAL)
    tally = campaign.Tally()
    with tempfile.TemporaryDirectory(prefix="infeed-chaos-") as folder:
        chance = campaign.chance_of(args.seed, -1)
        made = Path(folder) / "data"
        data = campaign.data(made, args.images, chance, args.bad)
        end = time.monotonic() + 60 * args.minutes
        number = args.case or 0
        while time.monotonic() < end:
            kind = list(KINDS)[number % len(KINDS)]
            if kind not in args.kinds and args.case is None:
                number += 1
                continue
            work = Path(folder) / f"case-{number}"
            work.mkdir()
            since = time.monotonic()
            try:
                KINDS[kind](campaign.chance_of(args.seed, number), data, work, tally)
                result = "same"
            except Exception as error:
                result = f"FINDING: {error!r}"
                tally.findings.append(f"case {number} of seed {args.seed}: {error!r}")
                traceback.print_exc()
            seconds = time.monotonic() - since
            print(f"case {number:5} {kind:8} {seconds:6.1f} s  {result}", flush=True)
            tally.add(f"cases of {kind}")
            shutil.rmtree(work, ignore_errors=True)
            number += 1
            if args.case is not None:
                break
    print(f"\n{tally.text()}")
    return int(bool(tally.findings))


if __name__ == "__main__":
    sys.exit(main())
