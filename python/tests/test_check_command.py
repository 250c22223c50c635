"""`infeed check`: waiting in the loops of a script."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

COMMAND = "import sys; from infeed._cli import main; sys.exit(main())"

# A loop over a loader of infeed. Names of the script and of its arguments are printed.
TRAINING = """
import sys
import numpy as np
import infeed
from infeed import sources

print("arguments", sys.argv[1:], __name__)
source = sources.Memory(x=np.zeros((200, 8), np.float32))
pipeline = infeed.Pipeline(source).batch(10)
steps = 0
with pipeline.open() as loader:
    for epoch in range(int(sys.argv[1])):
        for batch in loader:
            steps += 1
print("steps", steps)
"""


def check(folder: Path, script: str, *options: str, arguments=("9",)):
    """Runs the command on a script; returns the ended process."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "check", *options, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_loop_that_waits_too_long_fails_with_the_verdict(tmp_path):
    ended = check(tmp_path, TRAINING, "--max-waiting", "0 %", "--steps", "50")

    assert ended.returncode == 1, ended.stderr
    assert "evidence" in ended.stdout
    assert "check      failed: the loop waited" in ended.stdout
    assert "in 50 steps; at most 0.0% is allowed" in ended.stdout
    # The script ended in its third epoch.
    assert "steps 180" not in ended.stdout


def test_a_loop_that_waits_less_passes(tmp_path):
    ended = check(tmp_path, TRAINING, "--max-waiting=100", "--steps=50")

    assert ended.returncode == 0, ended.stderr
    assert "arguments ['9'] __main__" in ended.stdout
    assert "check      passed: the loop waited" in ended.stdout


def test_a_script_that_ends_early_is_checked_with_its_steps(tmp_path):
    ended = check(tmp_path, TRAINING, "--max-waiting=100", arguments=("2",))

    assert ended.returncode == 0, ended.stderr
    assert "steps 40" in ended.stdout
    # The last step of an epoch ends when the loop asks for the next batch.
    assert "in 40 steps; at most 100.0% is allowed" in ended.stdout


def test_the_loop_with_the_most_batches_is_checked(tmp_path):
    script = """
    import numpy as np
    import infeed
    from infeed import sources

    def loader_of(count):
        source = sources.Memory(x=np.zeros((count, 8), np.float32))
        return infeed.Pipeline(source).batch(1).open()

    with loader_of(12) as first, loader_of(30) as second:
        for batch in first:
            pass
        for batch in second:
            pass
    """
    ended = check(tmp_path, script, "--max-waiting=100")

    assert "evidence   30 batches" in ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("print('no loop')", 2, "took 10 batches of a loader of infeed"),
        ("import sys; sys.exit(3)", 1, "ended with 3"),
        ("raise ValueError('broken')", 1, "ValueError: broken"),
    ],
)
def test_a_script_without_a_loop_is_an_error(tmp_path, script, status, message):
    ended = check(tmp_path, script)

    assert ended.returncode == status
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-waiting", "much"), "'much' is no percentage of 0 to 100"),
        (("--max-waiting", "101"), "'101' is no percentage of 0 to 100"),
        (("--steps", "3"), "'3' is no number of 10 or more"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, message):
    ended = check(tmp_path, TRAINING, *options)

    assert ended.returncode == 2
    assert message in ended.stderr


def test_ctrl_c_ends_the_script(tmp_path):
    script = """
    import signal
    # A shell in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
    print("not interrupted")
    """
    ended = check(tmp_path, script)

    assert ended.returncode == 130
    assert ended.stderr.splitlines() == ["interrupted"]
    assert ended.stdout == ""


def test_a_missing_script_is_named():
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND, "check", "absent.py"],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 2
    assert "there is no file absent.py" in ended.stderr
