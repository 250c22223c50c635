#!/usr/bin/env python3
"""Measures gain and cost of `infeed pack --restart-index` for a folder of JPEGs.

See README.md, "Restart markers". Needs only Python 3.11 and its standard library, the
`infeed` command, and for the bare loop `cargo`.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from pipelines import classification

LOOP = "cargo run --quiet --release -p infeed --example restart_tiles --"


@dataclass
class Variant:
    """One format of the data, and the results of its runs."""

    name: str
    pipeline: Path
    size: float = 1.0
    packed_per_s: float | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)

    def rates(self) -> list[float]:
        return [run["samples_per_s"] for run in self.runs]

    def cpu_ms(self, *stages: str) -> float:
        """Returns the processor time of stages per sample, or of all; median over the
        runs.
        """
        each = []
        for run in self.runs:
            spent = [s for s in run["stages"] if not stages or s["name"] in stages]
            each.append(sum(s["cpu_s"] for s in spent) * 1e3 / run["samples"])
        return float(statistics.median(each))


def main() -> int:
    args = parse()
    loop = bare_loop(args)
    with tempfile.TemporaryDirectory(dir=args.data, prefix="restart-") as folder:
        work = Path(folder)
        original = work / "original.toml"
        original.write_text(classification(args.folder))
        variants = [Variant("as they are", original)]
        variants += [pack_tiles(args, original, work, width) for width in args.widths]
        for turn in range(args.turns + 1):
            # The speed of machines drifts: each turn begins with another format.
            for nth in range(len(variants)):
                variant = variants[(nth + turn) % len(variants)]
                run = bench(args, variant)
                # The first turn reads files into memory.
                if turn > 0:
                    variant.runs.append(run)
    print(table(variants))
    if args.json:
        found = {
            "machine": machine.describe(),
            "folder": args.folder.name,
            "loop": loop,
            "variants": [vars(variant) | {"pipeline": None} for variant in variants],
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="JPEGs, in any folders")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[4, 8, 16, 32], help="tiles, in MCUs"
    )
    parser.add_argument("--turns", type=int, default=5, help="runs of each way")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument(
        "--data", type=Path, default=Path("."), help="folder for what is packed"
    )
    parser.add_argument(
        "--loop", default=LOOP, help="command of the bare loop; empty for none"
    )
    parser.add_argument("--rounds", type=int, default=4, help="regions an image, loop")
    parser.add_argument("--images", type=int, default=1000, help="images of the loop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all runs")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    return args


def bare_loop(args: argparse.Namespace) -> str | None:
    """Measures decoding alone, by processor time of one thread; returns the printed
    text.
    """
    if not args.loop:
        return None
    command = [*shlex.split(args.loop), str(args.folder)]
    command += [str(args.rounds), str(args.images)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    return done.stdout


def pack_tiles(
    args: argparse.Namespace, original: Path, work: Path, width: int
) -> Variant:
    """Rewrites the data with tiles of a width."""
    out = work / f"tiles-{width}"
    found = run_json(
        args.infeed,
        "pack",
        str(original),
        str(out),
        "--to",
        "folder",
        f"--restart-index={width}",
    )
    return Variant(
        f"tiles of {width}",
        out / "pipeline.toml",
        found["bytes_out"] / found["bytes_in"],
        found["records_per_s"],
    )


def bench(args: argparse.Namespace, variant: Variant) -> dict[str, Any]:
    load = machine.Load(0)
    start = time.monotonic()
    run = run_json(
        args.infeed, "bench", str(variant.pipeline), "--seconds", str(args.seconds)
    )
    # Load counts the tree below a process; this one's children have ended by now.
    wall_s = time.monotonic() - start
    end = load.now()
    busy = end["busy"] - load.start["busy"] if end and load.start else 0.0
    own = sum(stage["cpu_s"] for stage in run["stages"])
    run["other_cores"] = round(max(0.0, busy - own) / wall_s, 2)
    return run


def run_json(*command: str) -> dict[str, Any]:
    done = subprocess.run(
        [*command, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(variants: list[Variant]) -> str:
    base = statistics.median(variants[0].rates())
    lines = [
        "| files | size | samples/s | min to max | gain | decode | all stages "
        "| packed/s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in variants:
        rates = variant.rates()
        rate = statistics.median(rates)
        packing = f"{variant.packed_per_s:.0f}" if variant.packed_per_s else ""
        lines.append(
            f"| {variant.name} | {variant.size:.3f}x | {rate:.0f} "
            f"| {min(rates):.0f} to {max(rates):.0f} | {rate / base:.2f}x "
            f"| {variant.cpu_ms('decode'):.3f} ms | {variant.cpu_ms():.3f} ms "
            f"| {packing} |"
        )
    others = [run["other_cores"] for variant in variants for run in variant.runs]
    lines.append(
        f"\nMilliseconds are processor time a sample. Cores used by others and by "
        f"the rest of the process meanwhile: {statistics.median(others):.2f}, at "
        f"most {max(others):.2f}."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
