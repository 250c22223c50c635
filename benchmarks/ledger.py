#!/usr/bin/env python3
"""Compares infeed's predictions with measurements: datasets x machine states x
remedies.

Each case is one line of a file. A case that is in the file is not run again, so the
matrix can be filled over several sessions. Needs Python 3.11, the `infeed` command,
and Pillow for some datasets.
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
from collections.abc import Callable, Iterable
from pathlib import Path

import ledger_data
import machine
import states
from ledger_data import Dataset

# Coverage of the intervals of a stated 90 % below which the exit status is 1.
COVERAGE = 0.85
# Cores of other programs above which a case counts as measured on a shared machine.
SHARED = 0.15
BEGIN, END = "<!-- generated: ledger -->", "<!-- end -->"


def main() -> int:
    args = parse()
    chosen = [d for d in datasets_of(args) if not args.cases or d.name in args.cases]
    wanted = [(d, s) for s in args.states for d in chosen]
    args.data.mkdir(parents=True, exist_ok=True)
    fill(args, wanted)
    lines = read(args.file)
    text = report(lines)
    print(text)
    if args.write:
        args.write.write_text(between(args.write.read_text(), text))
    found = [e for line in lines for e in line.get("entries", [])]
    if found and coverage(found) < COVERAGE:
        print(
            f"{coverage(found):.0%} of the measured gains are in their intervals, less "
            f"than {COVERAGE:.0%}",
            file=sys.stderr,
        )
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).resolve().parent / ".data" / "ledger",
        help="folder for samples and for what remedies write",
    )
    parser.add_argument(
        "--file", type=Path, default=Path("results/ledger.jsonl"), help="the cases"
    )
    parser.add_argument(
        "--states",
        nargs="*",
        choices=states.LOADS,
        default=list(states.LOADS),
        metavar="STATE",
        help=f"machine states: {', '.join(states.LOADS)}",
    )
    parser.add_argument("--cases", nargs="*", metavar="NAME", help="these datasets")
    parser.add_argument(
        "--remedies",
        nargs="*",
        metavar="ID",
        help="these remedies, or `all` [default: some of each dataset]",
    )
    parser.add_argument(
        "--limit-minutes",
        type=float,
        default=float("inf"),
        metavar="N",
        help="starts no case after this time; 0 only prints the table",
    )
    parser.add_argument(
        "--classification", type=Path, metavar="DIR", help="own JPEGs, held out"
    )
    parser.add_argument(
        "--segmentation",
        type=Path,
        metavar="DIR",
        help="own pairs of PNGs, held out: images/ and masks/, or NAME/ and "
        "NAME_labels/",
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="replaces the table in this page"
    )
    return parser.parse_args()


def datasets_of(args: argparse.Namespace) -> list[Dataset]:
    found = list(ledger_data.SAMPLES)
    if args.classification:
        found.append(ledger_data.photos(args.classification))
    if args.segmentation:
        found.append(ledger_data.streets(args.segmentation))
    return found


def fill(args: argparse.Namespace, wanted: Iterable[tuple[Dataset, str]]) -> None:
    """Runs the cases that are not in the file, until the time is over."""
    done = {key(line) for line in read(args.file) if "entries" in line}
    end = time.monotonic() + 60 * args.limit_minutes
    for dataset, state in wanted:
        if (dataset.name, state) in done:
            continue
        if time.monotonic() >= end:
            return
        print(f"{dataset.name}, {state} ...", file=sys.stderr, flush=True)
        line = {
            "dataset": dataset.name,
            "state": state,
            "held_out": dataset.held_out,
            "at_s": round(time.time()),
            "machine": machine.describe(),
            **run(args, dataset, state),
        }
        for problem in ("skipped", "error"):
            if problem in line:
                print(f"  {problem}: {line[problem]}", file=sys.stderr, flush=True)
        with args.file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def key(line: dict) -> tuple[str, str]:
    return line["dataset"], line["state"]


def read(file: Path) -> list[dict]:
    """Returns the last line of each case, in the order of their first lines."""
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    except FileNotFoundError:
        return []
    return list({key(line): line for line in lines}.values())


def run(args: argparse.Namespace, dataset: Dataset, state: str) -> dict:
    """Explains a dataset in a state of the machine, and applies remedies."""
    try:
        path = dataset.prepare(args.infeed, args.data.absolute())
    except ImportError as error:
        return {"skipped": f"{error}; install Pillow to make this dataset"}
    before = {
        "load_average": os.getloadavg()[0],
        "foreign_cores_before": states.foreign_cores(2.0),
    }
    with tempfile.TemporaryDirectory(dir=args.data, prefix="case-") as folder:
        # The output of remedies lies next to the data.
        data = link_tree(path, Path(folder, f"data{dataset.extension}"))
        command = [args.infeed, "explain", str(data), *dataset.options, "--json"]
        command += ["--ledger", str(Path(folder, "ledger.jsonl"))]
        for remedy in args.remedies or dataset.remedies:
            command += ["--apply", remedy]
        try:
            with states.enter(state, data) as join:
                return before | run_explain(command, join)
        except states.SkippedError as skipped:
            return {"skipped": str(skipped)}


def link_tree(source: Path, to: Path) -> Path:
    """Returns a copy of a file or folder, made of hard links if possible."""

    def link(file: str, target: str) -> None:
        try:
            os.link(file, target)
        except OSError:
            shutil.copy(file, target)

    if source.is_dir():
        shutil.copytree(source, to, copy_function=link)
    else:
        link(str(source), str(to))
    return to


def run_explain(command: list[str], join: Callable[[], None]) -> dict:
    """Runs the command, and returns its predictions and measurements."""
    watched, begun = machine.Load(os.getpid()), time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=join
    )
    load = watched.since_start(time.monotonic() - begun)
    if done.returncode not in (0, 3):
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"status {done.returncode}"}
    found = json.loads(done.stdout)
    fields = ("remedy", "predicted", "measured", "rate_before", "rate_after")
    return {
        "infeed": found["infeed"],
        "limit": found["verdict"]["limit"],
        "control": found.get("control"),
        "sample": found.get("sample"),
        "warnings": found.get("warnings", []),
        "seconds": round(time.monotonic() - begun, 1),
        "foreign_cores": load["foreign_cores"],
        "entries": [{name: e[name] for name in fields} for e in found["ledger"]],
    }


def state_of(line: dict) -> str:
    """Returns the state of a case. Other programs make a state of another name."""
    # The processes of a loaded state are descendants, and do not count as foreign.
    foreign = line.get("foreign_cores") or 0.0
    return f"{line['state']}, shared machine" if foreign > SHARED else line["state"]


def error_of(entry: dict) -> float:
    return entry["predicted"]["mid"] / entry["measured"] - 1


def holds(entry: dict) -> bool:
    return entry["predicted"]["low"] <= entry["measured"] <= entry["predicted"]["high"]


def coverage(entries: list[dict]) -> float:
    """Returns the share of measured gains in their intervals."""
    return statistics.mean(map(holds, entries))


def half_width(entry: dict) -> float:
    predicted = entry["predicted"]
    return (predicted["high"] - predicted["low"]) / 2 / predicted["mid"]


def ranks_best_first(line: dict) -> bool:
    """Returns whether the remedy that gained most was predicted to be first, or its
    interval reaches the first.
    """
    first = max(line["entries"], key=lambda entry: entry["predicted"]["mid"])
    best = max(line["entries"], key=lambda entry: entry["measured"])
    return best["predicted"]["high"] >= first["predicted"]["mid"]


def row(name: str, lines: list[dict]) -> str:
    """Returns a row of the table: errors, coverage and control of some cases."""
    entries = [entry for line in lines for entry in line["entries"]]
    errors = [error_of(entry) for entry in entries]
    controls = [abs(c["mid"] - 1) for line in lines if (c := line.get("control"))]
    worst = max(errors, key=abs)
    cells = [
        name,
        f"{len(lines)}",
        f"{len(entries)}",
        f"{statistics.median(map(abs, errors)):.1%}",
        f"{worst:+.1%}",
        f"{statistics.mean(errors):+.1%}",
        f"{coverage(entries):.0%}",
        f"{statistics.median(map(half_width, entries)):.0%}",
        f"{statistics.median(controls):.1%}" if controls else "",
    ]
    return f"| {' | '.join(cells)} |"


def report(lines: list[dict]) -> str:
    """Returns the table for the documentation."""
    measured = [line for line in lines if line.get("entries")]
    table = ["The ledger has no cases yet."]
    if measured:
        table = [
            "| cases | number | predictions | median error | worst | bias "
            "| in the interval | half-width | A/A |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
            row("all", measured),
        ]
    parts: list[tuple[str, Callable[[dict], str]]] = [
        ("data: ", lambda line: "held out" if line["held_out"] else "for calibration"),
        ("state: ", state_of),
        ("data: ", lambda line: line["dataset"]),
    ]
    for prefix, part in parts:
        for name in sorted({part(line) for line in measured}):
            of_part = [line for line in measured if part(line) == name]
            table.append(row(prefix + name, of_part))
    ranked = [line for line in measured if len(line["entries"]) > 1]
    if ranked:
        count = sum(map(ranks_best_first, ranked))
        table += [
            "",
            f"In {count} of {len(ranked)} cases with several remedies, the one that "
            "gained most was predicted to be first, or its interval reaches the first.",
        ]
    missing = [
        f"- {line['dataset']}, {line['state']}: {problem}, {line[problem]}"
        for line in lines
        for problem in ("skipped", "error")
        if problem in line
    ]
    if missing:
        table += ["", "Cases without a measurement:", "", *missing]
    return "\n".join(table)


def between(page: str, text: str) -> str:
    """Returns a page with the text between its markers."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no lines {BEGIN} and {END}; add them")
    return f"{head}{begin}\n{text}\n{end}{tail}"


if __name__ == "__main__":
    os.chdir(os.environ.get("PWD", "."))
    raise SystemExit(main())
