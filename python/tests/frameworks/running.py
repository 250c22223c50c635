"""Scripts run in processes of their own: to be killed, or with another backend."""

import os
import signal
import subprocess
import sys

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def environment(**variables: str) -> dict[str, str]:
    """The variables of this process and of the frameworks' silence, and `variables`."""
    return {**os.environ, **QUIET, **variables}


def run(script: str, *arguments: object, killed: bool = False, **variables: str) -> str:
    """What a script prints; it must end by itself, or be killed where that is said."""
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**variables),
    )
    expected = -signal.SIGKILL if killed else 0
    assert ended.returncode == expected, ended.stderr[-4000:]
    return ended.stdout
