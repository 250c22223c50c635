"""The command ``infeed experiment``: arguments, printing, exit status."""

import argparse
import json
import sys
from collections.abc import Sequence
from types import ModuleType

from infeed.errors import InfeedError
from infeed.experiments import formats, keras, overlap, placement, transfer

EXPERIMENTS: dict[str, ModuleType] = {
    "overlap": overlap,
    "transfer": transfer,
    "formats": formats,
    "keras": keras,
    "placement": placement,
}

# What shells give for a program that Ctrl-C ended.
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Runs the experiment that is named and prints what it found.

    Returns:
        The exit status: 0; 1 where it failed; 2 where the arguments make no sense.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    try:
        result = EXPERIMENTS[options.experiment].run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (InfeedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print(result.text())
    return 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {m.SUMMARY}" for name, m in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="infeed experiment",
        description="Run again, on this machine, what the field's folklore rests on.",
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
