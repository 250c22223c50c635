"""Processes that tests start: a forked child with a result, a script to interrupt."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from conftest import wait_until


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


def interrupt_script(
    script: str, *arguments: str, holds: Callable[[], bool] = lambda: True
) -> list[str]:
    """Interrupts a script that prints ``ready``, once a condition holds.

    Returns the words that it prints. Without an end in a minute, the test fails.
    """
    with start_script(script, *arguments) as process:
        assert wait_until(lambda: holds() or process.poll() is not None)
        assert process.poll() is None, "the script ended before it was interrupted"
        process.send_signal(signal.SIGINT)
        reported = process.stdout.read()
        assert process.wait(timeout=30) == 0
        return reported.split()
