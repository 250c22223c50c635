"""The command ``infeed experiment``: arguments, printing, exit status."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from infeed.errors import InfeedError
from infeed.experiments import formats, keras, overlap, placement, transfer
from infeed.experiments.result import Result
from infeed.watching.processor import ProcessorTimes, ProcessTree, usable_cores

EXPERIMENTS: dict[str, ModuleType] = {
    "overlap": overlap,
    "transfer": transfer,
    "formats": formats,
    "keras": keras,
    "placement": placement,
}

# Cores in use by other programs above which a result mentions them.
COMPANY = 0.1
# Exit status of shells for a program that Ctrl-C ended.
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Runs an experiment and prints its result.

    Returns:
        The exit status: 0; 1 if the experiment failed; 2 for invalid arguments.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    tree = ProcessTree()
    before = tree.read()
    try:
        result = EXPERIMENTS[options.experiment].run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (InfeedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = _with_other_load(result, others(before, tree.read()))
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print(result.text())
    return 0


def others(before: ProcessorTimes, after: ProcessorTimes) -> float:
    """Returns the cores that other programs used between two readings."""
    machine_s = after.machine_s - before.machine_s
    own_s = after.own_s + after.children_s - before.own_s - before.children_s
    return max(0.0, machine_s - own_s) / max(1e-9, after.at_s - before.at_s)


def _with_other_load(result: Result, cores: float) -> Result:
    """Adds the load of other programs to a result."""
    meaning = list(result.meaning)
    if cores >= COMPANY:
        meaning.append(
            f"Other programs used {cores:.1f} of {usable_cores():.3g} cores during the "
            "measurement; repeat it on an idle machine."
        )
    figures = {**result.figures, "other_cores": cores}
    return replace(result, meaning=meaning, figures=figures)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {m.SUMMARY}" for name, m in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="infeed experiment",
        description="Measure common claims about data loading on this machine.",
        epilog=f"experiments:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="experiment", required=True, metavar="NAME")
    for name, module in EXPERIMENTS.items():
        command = commands.add_parser(
            name, description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add_argument(
            "--json", action="store_true", help="print the figures as JSON"
        )
        command.add_argument(
            "--quick",
            action="store_true",
            help="small sizes and one turn: shows that it runs, measures little",
        )
        module.options(command)
    return parser
