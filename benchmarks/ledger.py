#!/usr/bin/env python3
"""Compares infeed's predictions with measurements: applies every remedy and measures
it.

See README.md, "How good the predictions are". Needs only Python 3.11 and its standard
library, and the `infeed` command.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import machine

# Limits of the errors, set before the data for judging was used.
MEDIAN_ERROR = 0.10
WORST_ERROR = 0.25
HELD = 0.80
HALF_WIDTH = 0.15
# The remedy that is ranked first gains at least this share of the true best.
BEST = 0.95


@dataclass(frozen=True)
class Case:
    """One pipeline to explain, with its options."""

    name: str
    path: Path
    arguments: tuple[str, ...] = ()


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory(dir=args.data, prefix="ledger-") as folder:
        work = Path(folder)
        cases = cases_of(args, work)
        wanted = [case for case in cases if not args.cases or case.name in args.cases]
        results = [run(case, args.infeed, work) for case in wanted]
    print(table(results))
    if args.json:
        args.json.write_text(
            json.dumps({"machine": machine.describe(), "cases": results})
        )
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument(
        "--data", type=Path, default=Path("."), help="folder for what remedies write"
    )
    parser.add_argument(
        "--group",
        choices=("developing", "judging"),
        default="judging",
        help="the part of the data: thresholds were chosen on one of them alone",
    )
    parser.add_argument(
        "--segmentation",
        type=Path,
        required=True,
        metavar="DIR",
        help="pairs of PNGs, images/ and masks/ or NAME/ and NAME_labels/",
    )
    parser.add_argument(
        "--classification", type=Path, required=True, metavar="DIR", help="JPEGs"
    )
    parser.add_argument("--cases", nargs="*", metavar="NAME", help="these cases alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all entries")
    return parser.parse_args()


def cases_of(args: argparse.Namespace, work: Path) -> list[Case]:
    """Returns pipelines that decoding, transforming, storage or the step limits."""
    photos = half_of(args.classification, work / "photos", args.group)
    street = copied(args.segmentation, work / "street")
    jitter = work / "jitter.toml"
    jitter.write_text(JITTER.format(path=photos))
    onehot = work / "onehot.toml"
    palette = next(street.glob("*.csv"), None)
    images, masks = folders_of(street)
    cases = [
        Case("photos", photos),
        Case("photos, slow disk", photos, ("--on", "hdd")),
        Case("photos, 1 GbE", photos, ("--on", "1gbe")),
        Case("photos, step 100 ms", photos, ("--step-ms", "100")),
        Case("photos, jitter", jitter),
        Case("street", street),
        Case("street, 1 GbE", street, ("--on", "1gbe")),
        Case("street, step 15 ms", street, ("--step-ms", "15")),
    ]
    if palette is not None:
        onehot.write_text(ONEHOT.format(images=images, masks=masks, palette=palette))
        cases.append(Case("street, one-hot", onehot))
    return cases


JITTER = """\
[source]
kind = "folder"
path = "{path}"
[shuffle]
seed = 0
[decode]
[[transforms]]
kind = "RandomResizedCrop"
size = 224
[[transforms]]
kind = "ColorJitter"
brightness = 0.4
contrast = 0.4
saturation = 0.4
hue = 0.1
[[transforms]]
kind = "ToFloat"
field = "image"
[batch]
size = 32
"""

ONEHOT = """\
[source]
kind = "pairs"
image = "{images}"
mask = "{masks}"
[shuffle]
seed = 0
[decode]
[[transforms]]
kind = "Crop"
height = 320
width = 320
at = "top_left"
[[transforms]]
kind = "ToFloat"
field = "image"
[[transforms]]
kind = "OneHot"
palette = "{palette}"
[batch]
size = 3
"""


def folders_of(root: Path) -> tuple[Path, Path]:
    """Returns the folders of images and of masks."""
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    masks = [f for f in folders if any(w in f.name for w in ("mask", "label", "index"))]
    images = [f for f in folders if f not in masks]
    return images[0], masks[0]


def half_of(source: Path, to: Path, group: str) -> Path:
    """Returns every second file: the even ones for developing, the odd ones for
    judging.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    for path in files[0 if group == "developing" else 1 :: 2]:
        target = to / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return to


def copied(source: Path, to: Path) -> Path:
    """Copies the pairs to a folder in which remedies may write."""
    shutil.copytree(source, to)
    return to


def run(case: Case, infeed: str, work: Path) -> dict:
    """Explains a case and applies every remedy that it offers."""
    ledger = work / "ledger.jsonl"
    ledger.unlink(missing_ok=True)
    command = [infeed, "explain", str(case.path), *case.arguments]
    command += ["--json", "--apply", "all", "--ledger", str(ledger)]
    print(f"{case.name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for made in work.iterdir():
        # The output of a remedy is named after its data, which the next case uses, too.
        if made.is_dir() and made.name.rpartition("-")[0]:
            shutil.rmtree(made)
    if done.returncode != 0:
        return {"case": case.name, "error": done.stderr.strip(), "entries": []}
    found = json.loads(done.stdout)
    return {
        "case": case.name,
        "limit": found["verdict"]["limit"],
        "notes": [note for note in found["notes"] if "other processes" in note],
        "entries": found["ledger"],
    }


def error_of(entry: dict) -> float:
    return entry["predicted"]["mid"] / entry["measured"] - 1


def holds(entry: dict) -> bool:
    return entry["predicted"]["low"] <= entry["measured"] <= entry["predicted"]["high"]


def half_width(entry: dict) -> float:
    predicted = entry["predicted"]
    return (predicted["high"] - predicted["low"]) / 2 / predicted["mid"]


def ranked(entries: list[dict]) -> float:
    """Returns the gain of the best predicted remedy, as a share of the best gain."""
    first = max(entries, key=lambda entry: entry["predicted"]["mid"])
    return first["measured"] / max(entry["measured"] for entry in entries)


def table(results: list[dict]) -> str:
    lines = [
        "| case | limit | remedy | predicted | interval | measured | error |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for result in results:
        if "error" in result:
            lines.append(f"| {result['case']} | {result['error']} | | | | | |")
        for entry in result["entries"]:
            low, high = entry["predicted"]["low"], entry["predicted"]["high"]
            lines.append(
                f"| {result['case']} | {result['limit']} | {entry['remedy']} "
                f"| {entry['predicted']['mid']:.2f}x | {low:.2f} to {high:.2f} "
                f"| {entry['measured']:.2f}x | {error_of(entry):+.1%} |"
            )
    entries = [entry for result in results for entry in result["entries"]]
    if not entries:
        return "\n".join(lines)
    errors = [abs(error_of(entry)) for entry in entries]
    shares = [ranked(r["entries"]) for r in results if r["entries"]]
    held = statistics.mean(holds(entry) for entry in entries)
    widths = statistics.median(map(half_width, entries))
    lines += [
        "",
        f"{len(entries)} predictions in {len(shares)} cases:",
        "",
        "| | asked | found |",
        "|---|--:|--:|",
        f"| median error | at most {MEDIAN_ERROR:.0%} "
        f"| {statistics.median(errors):.1%} |",
        f"| worst error | at most {WORST_ERROR:.0%} | {max(errors):.1%} |",
        f"| intervals that held | at least {HELD:.0%} | {held:.0%} |",
        f"| median half-width | at most {HALF_WIDTH:.0%} | {widths:.1%} |",
        f"| best remedy ranked first, or within 5 % of it | all "
        f"| {sum(share >= BEST for share in shares)} of {len(shares)} |",
    ]
    lines += [f"- {r['case']}: {n}" for r in results for n in r.get("notes", [])]
    return "\n".join(lines)


if __name__ == "__main__":
    os.chdir(os.environ.get("PWD", "."))
    raise SystemExit(main())
