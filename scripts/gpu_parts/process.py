"""Commands with a hard timeout that they cannot exceed.

A command has a separate session and process group, reads nothing, and writes to a file,
so no pipe that the command or its children hold open delays the caller. At the timeout
the group is killed. A process that does not end even then, because a driver holds it
inside the kernel, is left running.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A killed process ends immediately unless the kernel holds it.
REAP_SECONDS = 5

# `PR_SET_PDEATHSIG` of prctl(2).
_PARENT_DEATH_SIGNAL = 1


class CommandResult:
    """Result of a command.

    Attributes:
        status: Exit status; negative: the signal that ended it; None: timeout.
        problem: Reason why the command failed; empty if it did not.
    """

    def __init__(self, status: int | None, problem: str):
        self.status = status
        self.problem = problem


def run(
    command: Sequence[str | Path],
    timeout_s: float,
    output: Path,
    environment: dict[str, str] | None = None,
    own_group: bool = True,
) -> CommandResult:
    """Runs a command; its output and errors go to a file.

    Without its own group, the command ends with the caller's group; its children then
    outlive a timeout.
    """
    with open(output, "wb") as file:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=own_group,
        )
    try:
        status: int | None = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        # The children are killed, too, if the command ended or this process is
        # interrupted.
        if own_group:
            kill_group(child.pid)
        elif child.returncode is None:
            child.kill()
    if status is None:
        problem = f"did not end within {timeout_s:.0f} s"
        try:
            child.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            problem += ", and could not be killed"
        return CommandResult(None, problem)
    if status == 0:
        return CommandResult(0, "")
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return CommandResult(status, f"ended by {name}")
    return CommandResult(status, f"ended with status {status}")


def kill_group(group: int) -> None:
    """Kills all processes of a group, if any are left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end_with_parent() -> None:
    """Makes the kernel end this process when its parent ends for any reason."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def tail(path: Path, characters: int = 2000) -> str:
    """Returns the end of a command's output."""
    try:
        text = path.read_bytes()[-4 * characters :].decode(errors="replace")
    except OSError:
        return ""
    return text.strip()[-characters:]
