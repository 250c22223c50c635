"""The console script `infeed`."""

import sys

from infeed import _core


def main() -> int:
    """Runs the command with the arguments of this process.

    Returns:
        Its exit status.
    """
    return _core.main(["infeed", *sys.argv[1:]])
