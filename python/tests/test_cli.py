"""The console script: the command of the engine, in the package."""

import subprocess
import sys

import infeed

COMMAND = [sys.executable, "-c", "import infeed._cli as c, sys; sys.exit(c.main())"]


def test_the_command_prints_its_version():
    ended = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, f"infeed {infeed.__version__}\n")


def test_an_unknown_command_is_a_usage_error():
    ended = subprocess.run([*COMMAND, "nonsense"], capture_output=True, text=True)

    assert ended.returncode == 2
    assert "nonsense" in ended.stderr
