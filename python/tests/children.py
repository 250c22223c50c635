"""Processes that tests start: a forked child with a result, a script to interrupt."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class StoppedScript(NamedTuple):
    """Output of a script after it was interrupted, and the time until then."""

    reported: list[str]
    answered_s: float
    ended_s: float


def result_in_fork(function: Callable[[], object]) -> str:
    """Returns the text of a function's result or error in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # pytest must continue in the parent only.
        try:
            os.write(writer, str(function()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        reported = pipe.read()
    os.waitpid(child, 0)
    return reported


@contextlib.contextmanager
def start_script(
    script: str, *arguments: str, limit_s: float = 60, **options: object
) -> Iterator[subprocess.Popen[str]]:
    """Starts a script, waits for its line ``ready``, and kills it when the block ends.

    A time limit kills it too, so that reads from its pipes end.
    """
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, **options
    ) as process:
        limit = threading.Timer(limit_s, process.kill)
        limit.start()
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            limit.cancel()
            process.kill()


def interrupt_script(script: str, *arguments: str, after_s: float = 0) -> StoppedScript:
    """Runs a script that prints ``ready``, and interrupts it some time after that."""
    with start_script(script, *arguments) as process:
        if after_s:
            try:
                process.wait(timeout=after_s)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise AssertionError("the script ended before it was interrupted")
        sent_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        reported = process.stdout.readline()
        answered_s = time.monotonic() - sent_at
        reported += process.stdout.read()
        assert process.wait(timeout=30) == 0
        return StoppedScript(reported.split(), answered_s, time.monotonic() - sent_at)
