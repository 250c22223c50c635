"""The console script `infeed`."""

import signal
import sys

from infeed import _core


def main() -> int:
    """Runs the command with the arguments of this process.

    Returns the exit status.
    """
    arguments = sys.argv[1:]
    own = (["adopt"], ["check"], ["experiment"])
    if arguments[:1] == ["help"] and arguments[1:2] in own:
        arguments = [*arguments[1:], "--help"]
    if arguments[:1] == ["adopt"]:
        from infeed.adopting import command as adopting

        return adopting.main(arguments[1:])
    if arguments[:1] == ["check"]:
        from infeed.watching import check

        return check.main(arguments[1:])
    if arguments[:1] == ["experiment"]:
        from infeed.experiments import command

        return command.main(arguments[1:])
    # Python's own handler only sets a flag, and no Python code runs to check it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.main(["infeed", *arguments])
