"""Processes that tests start: a forked child with a result, a script to interrupt."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple


class Stopped(NamedTuple):
    """Output of a script after it was interrupted, and the time until then."""

    reported: list[str]
    answered_s: float
    ended_s: float


def result_in_fork(tell: Callable[[], object]) -> str:
    """Returns the text of a function's result or error in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # pytest must continue in the parent only.
        try:
            os.write(writer, str(tell()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        reported = pipe.read()
    os.waitpid(child, 0)
    return reported


def interrupted(script: str, *arguments: str, after_s: float = 0) -> Stopped:
    """Runs a script that prints ``ready``, and interrupts it some time after that."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        if after_s:
            try:
                process.wait(timeout=after_s)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise AssertionError("the script ended before it was interrupted")
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        reported = process.stdout.readline()
        answered_s = time.monotonic() - asked
        reported += process.stdout.read()
        assert process.wait(timeout=30) == 0
        return Stopped(reported.split(), answered_s, time.monotonic() - asked)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
