#!/usr/bin/env python3
"""Measures infeed, its peers and the bare loops on the same data, interleaved.

README.md describes how the numbers are measured. Needs only Python 3.11 and its
standard library; each loader runs in the environment in which it is installed.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import datasets
import machine
import table

HERE = Path(__file__).resolve().parent
# The environment below --venvs for each peer.
VENVS = {
    "tf": "tf",
    "keras": "tf",
    "dali": "dali",
    "spdl": "spdl",
    "grain": "grain",
    "torch": "torch",
    "ffcv": "torch",
    "streaming": "torch",
}
# Loaders measured by default; NAME:VARIANT.
LOADERS = {
    "segmentation": "bare infeed infeed:unverified tf grain dali keras keras:packed "
    "torch spdl",
    "segmentation-ordered": "bare infeed tf grain dali torch spdl",
    "segmentation-lossless": "bare infeed",
    "classification": "bare infeed tf tf:fast dali dali:fast grain keras torch spdl",
    "classification-lossless": "bare infeed",
    "classification-uint8": "bare infeed",
    "classification-uint8-lossless": "bare infeed",
    "decoded": "bare infeed dali spdl tf torch grain ffcv streaming",
    "decoded-uint8": "bare infeed infeed:arrow dali spdl tf torch grain ffcv streaming",
    "whole-png": "bare infeed:unverified",
}
# A loader that has not ended by then hangs: start, warm-up, epochs' ends and the check.
GRACE_S = 180


def main() -> int:
    args = parse()
    data = datasets.prepare(args)
    wanted = [(w, name) for w in args.workloads for name in loaders_of(w, args.loaders)]
    if any(name == "bare" for _, name in wanted):
        build_bare()
    head = head_of(args, data)
    runs: list[dict] = []
    out = args.results / f"{time.strftime('%Y-%m-%d-%H%M%S', time.gmtime())}.json"
    for turn in range(args.repeats + args.retries):
        # Each turn starts with another loader, so that none always has the same
        # position.
        shift = turn % max(1, len(wanted))
        for workload, name in wanted[shift:] + wanted[:shift]:
            mine = [r for r in runs if (r["workload"], r["loader"]) == (workload, name)]
            if sum(table.is_clean(r) for r in mine) >= args.repeats or any(
                "error" in r for r in mine
            ):
                continue
            run = run_one(workload, name, data, args)
            run["dropped"] = (run.get("foreign_cores") or 0) > args.max_foreign
            print(table.line_of(run), file=sys.stderr, flush=True)
            runs.append(run)
            # After every run: an interrupted measurement keeps its results.
            out.write_text(json.dumps(head | {"runs": runs}, indent=1) + "\n")
    print(table.markdown(head, runs))
    print(f"\nraw runs: {out}", file=sys.stderr)
    return int(any("error" in r or "wrong" in r for r in runs))


def run_one(
    workload: str, name: str, data: datasets.Paths, args: argparse.Namespace
) -> dict:
    """Runs one process of one loader; returns its output."""
    loader, _, variant = name.partition(":")
    command, environment = command_of(loader, variant, workload, data, args)
    run = {
        "workload": workload,
        "loader": name,
        "at": time.strftime("%FT%TZ", time.gmtime()),
    }
    load, started = machine.Load(os.getpid()), time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=args.seconds + args.warm_up + GRACE_S,
        )
    except FileNotFoundError:
        return run | {
            "error": f"{command[0]} does not exist; see README.md for the environments"
        }
    except subprocess.TimeoutExpired:
        return run | {
            "error": f"no result after {args.seconds + args.warm_up + GRACE_S:.0f} s"
        }
    whole = load.since_start(time.perf_counter() - started)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return run | {"error": (done.stderr.strip() or "printed nothing")[-2000:]}
    # A peer measures its own span; for the bare loop the process is the span.
    return run | whole | json.loads(lines[-1])


def command_of(loader, variant, workload, data, args) -> tuple[list[str], dict]:
    spans = ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    spans += ["--warm-up", str(args.warm_up)]
    if loader == "bare":
        root = getattr(data, datasets.READS[workload])
        return [str(bare_binary()), workload, "--data", str(root), *spans], dict(
            os.environ
        )
    python = (
        args.python if loader == "infeed" else args.venvs / VENVS[loader] / "bin/python"
    )
    command = [str(python), "-W", "ignore", "-m", f"peers.{loader}", workload, *spans]
    command += ["--variant", variant, "--segmentation", str(data.segmentation)]
    command += [
        "--classification",
        str(data.classification),
        "--decoded",
        str(data.decoded),
    ]
    if datasets.READS[workload].endswith("_records"):
        command += ["--records", str(getattr(data, datasets.READS[workload]))]
    return command, os.environ | {"PYTHONPATH": str(HERE)}


def bare_binary() -> Path:
    return HERE / "bare/target/release/bare"


def build_bare() -> None:
    subprocess.run(
        [
            "cargo",
            "build",
            "--release",
            "--quiet",
            "--manifest-path",
            str(HERE / "bare/Cargo.toml"),
        ],
        check=True,
    )


def loaders_of(workload: str, wanted: list[str] | None) -> list[str]:
    """Returns the loaders to measure, in the given order, without unsuitable ones."""
    usual = LOADERS[workload].split()
    return usual if wanted is None else [name for name in wanted if name in usual]


def head_of(args: argparse.Namespace, data: datasets.Paths) -> dict:
    """Returns the context of a measurement: machine, data, command, state of the
    source.
    """
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE,
        capture_output=True,
        text=True,
    )
    return {
        "version": 1,
        "machine": machine.describe(),
        "threads": args.threads,
        "data": datasets.describe(data),
        "command": shlex.join(["benchmarks/run.py", *sys.argv[1:]]),
        "commit": commit.stdout.strip() or None,
        "max_foreign_cores": args.max_foreign,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=", ".join(LOADERS)
    )
    parser.add_argument(
        "--loaders", nargs="+", metavar="NAME[:VARIANT]", help="only these"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="clean runs of each (default 3)"
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=2,
        help="more turns for runs that were dropped (default 2)",
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="measured span (default 10)"
    )
    parser.add_argument("--warm-up", type=float, default=3, metavar="SECONDS")
    parser.add_argument(
        "--threads", type=int, default=machine.cores(), help="default: all cores"
    )
    parser.add_argument(
        "--max-foreign",
        type=float,
        default=0.1,
        metavar="CORES",
        help="drop runs during which other processes used more (default 0.1)",
    )
    parser.add_argument(
        "--venvs", type=Path, default=HERE / ".venvs", help="the peers' environments"
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        help="the interpreter infeed is in",
    )
    parser.add_argument("--results", type=Path, default=HERE / "results")
    datasets.add_arguments(parser)
    args = parser.parse_args()
    args.workloads = args.workloads or list(LOADERS)
    if unknown := set(args.workloads) - set(LOADERS):
        parser.error(f"no workload {unknown.pop()}; one of {', '.join(LOADERS)}")
    known = {name for names in LOADERS.values() for name in names.split()}
    if unknown := set(args.loaders or []) - known:
        parser.error(f"no loader {unknown.pop()}; one of {', '.join(sorted(known))}")
    args.results.mkdir(parents=True, exist_ok=True)
    args.venvs = args.venvs.absolute()
    args.python = args.python.absolute()
    return args


if __name__ == "__main__":
    sys.exit(main())
