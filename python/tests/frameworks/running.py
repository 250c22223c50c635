"""Scripts that run in separate processes: for their variables, forks and backends."""

import os
import subprocess
import sys

import pytest

DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore",
    # Otherwise Ray connects to the cluster that another test has just started.
    "RAY_ADDRESS": "local",
}


def environment(**variables: str) -> dict[str, str]:
    """Returns the variables of this process, `DEFAULTS`, and `variables`."""
    return {**os.environ, **DEFAULTS, **variables}


def run(
    script: str, *arguments: object, timeout_s: float = 120, **variables: str
) -> str:
    """Runs a script, which must succeed, and returns its output."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environment(**variables),
        )
    except subprocess.TimeoutExpired as error:
        printed = [
            (part or b"").decode(errors="replace")[-4000:]
            for part in (error.stdout, error.stderr)
        ]
        pytest.fail(f"not done after {timeout_s} s, printed: " + "\n".join(printed))
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout
