"""The command ``infeed adopt``."""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from infeed.adopting.adoption import adopt
from infeed.errors import ConfigError, InfeedError

# Exit status of shells for a program that Ctrl-C ended.
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Adopts the loader that a function returns, and prints report and code.

    Returns:
        The exit status: 0; 1 if samples differ or the loader cannot be adopted; 2 for
        invalid arguments.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    try:
        loader = _function(options.function)()
        print("comparing samples, measuring both loaders ...", file=sys.stderr)
        adopted = adopt(loader, samples=options.samples, seconds=options.seconds)
        if options.html is not None:
            adopted.save_html(options.html)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (InfeedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(adopted.report)
    print()
    print(adopted.code, end="")
    return int(adopted.equivalence is not None and bool(adopted.equivalence.problems))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="infeed adopt",
        description="Print the pipeline that replaces a DataLoader, compare their "
        "samples, and measure both. Runs the file, as Python does.",
        epilog="example: infeed adopt train.py:make_loader",
    )
    parser.add_argument(
        "function",
        metavar="FILE:FUNCTION",
        help="a Python file, and a function in it that returns the loader",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=64,
        metavar="N",
        help="samples to compare; 0: none [default: 64]",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds of each of the four turns of measurement [default: 5]",
    )
    parser.add_argument(
        "--html",
        metavar="PATH",
        help="write the report as a page, with pictures of samples that differ",
    )
    return parser


def _function(named: str) -> Callable[[], Any]:
    """Returns the function that `FILE:FUNCTION` names.

    Raises:
        ConfigError: There is no such file or function.
    """
    file, _, name = named.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier():
        raise ConfigError(f"adopt: {named!r} is not FILE:FUNCTION")
    if not path.is_file():
        raise ConfigError(f"adopt: there is no file {file}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"adopt: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Worker processes of the loader import the file by this name.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    function: Callable[[], Any] | None = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"adopt: {file} has no function {name}")
    return function
