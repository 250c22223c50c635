"""Processes that tests start: a fork that tells what it found, a script to stop."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple


class Stopped(NamedTuple):
    """What a script printed once it was interrupted, and how soon."""

    told: list[str]
    answered_s: float
    ended_s: float


def told_by_fork(tell: Callable[[], object]) -> str:
    """Text of what a function gives in a forked child, or of what it raises there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Whatever happens here, pytest goes on in the parent alone.
        try:
            os.write(writer, str(tell()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def interrupted(script: str, *arguments: str, after_s: float = 0) -> Stopped:
    """Runs a script that prints ``ready``, and interrupts it so long after that."""
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
                raise AssertionError("it ended before it was interrupted")
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        told = process.stdout.readline()
        answered_s = time.monotonic() - asked
        told += process.stdout.read()
        assert process.wait(timeout=30) == 0
        return Stopped(told.split(), answered_s, time.monotonic() - asked)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
