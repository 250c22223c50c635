"""The console script `infeed`."""

import signal
import sys

from infeed import _core


def main() -> int:
    """Runs the command with the arguments of this process.

    The exit status.
    """
    arguments = sys.argv[1:]
    if arguments[:2] == ["help", "experiment"]:
        arguments = ["experiment", *arguments[2:], "--help"]
    if arguments[:1] == ["experiment"]:
        from infeed.experiments import command

        return command.main(arguments[1:])
    # Python's own handler only sets a flag, and no Python code runs to check it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.main(["infeed", *arguments])
