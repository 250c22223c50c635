"""Threads, signals and forks."""

import gc
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import interrupt_script, result_in_fork
from conftest import wait_until

import infeed
from infeed import sources

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="counts threads in /proc"
)

# The first batch takes minutes, so that the caller waits.
SLOW = """
import io, infeed
from infeed import sources, transforms as T
from PIL import Image
file = io.BytesIO()
Image.new("RGB", (4000, 4000)).save(file, "PNG")
pipeline = (
    infeed.Pipeline(sources.Memory(image=[file.getvalue()] * 2000))
    .decode()
    .transform(T.Resize((32, 32), interpolation="lanczos"))
    .batch(2000)
)
try:
    print("ready", flush=True)
    for _ in pipeline:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

# Leaves the loop, the loader, an array and an engine thread to the interpreter.
LEFT_OPEN = """
import os, sys, infeed
from infeed import sources
pipeline = infeed.Pipeline(sources.Memory(x=list(range(1000)))).batch(10)
batches = iter(pipeline)
array = next(batches)["x"]
if sys.argv[1] == "fork":
    child = os.fork()
    if child:
        sys.exit(os.waitpid(child, 0)[1])
    again = infeed.Pipeline(sources.Memory(x=[1, 2, 3]))
    print([batch["x"].tolist() for batch in again])
"""


def threads() -> set[tuple[str, str]]:
    """Ids and names of the engine's threads in this process."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:
            continue
        # The thread for buckets belongs to the process and stays.
        if name.startswith("infeed") and name != "infeed-net":
            found.add((task.name, name))
    return found


def threads_left(before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns the threads that were not there before, once they had time to end.

    Linux lists a thread for a moment after another thread has joined it.
    """
    wait_until(lambda: not threads() - before)
    return threads() - before


@pytest.fixture
def pipeline() -> infeed.Pipeline:
    gc.collect()
    pixels = np.zeros((1000, 32, 32, 3), np.uint8)
    return infeed.Pipeline(sources.Memory(image=pixels)).batch(10)


def test_no_thread_is_left_after_close(pipeline):
    before = threads()
    loader = pipeline.open(workers=3)
    next(iter(loader))
    assert threads() - before

    loader.close()

    assert not threads_left(before)


def test_no_thread_is_left_when_the_loader_is_dropped_in_mid_epoch(pipeline):
    before = threads()
    loader = pipeline.open(workers=3)
    batches = iter(loader)
    next(batches)
    assert threads() - before

    del loader, batches
    gc.collect()

    assert not threads_left(before)


def test_no_thread_is_left_when_the_pipeline_is_dropped_in_mid_epoch(pipeline):
    before = threads()
    copy = pipeline.shuffle(seed=3)
    for _ in copy:
        break
    assert threads() - before

    del copy
    gc.collect()

    assert not threads_left(before)


def test_ctrl_c_works_at_once():
    # The batch takes minutes, so the time limit of a script ends it before.
    assert interrupt_script(SLOW) == ["interrupted"]


def test_tests_interrupt_their_scripts_also_where_sigint_is_ignored():
    command = [sys.executable, "-m", "pytest"]
    command += [f"{__file__}::{test_ctrl_c_works_at_once.__name__}"]

    ended = subprocess.run(
        command,
        timeout=60,
        capture_output=True,
        text=True,
        # As a shell starts a command in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )

    assert ended.returncode == 0, ended.stdout


# Python 3.12 and later, and JAX, warn about forks.
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_of_an_open_loader_raises_in_the_child(pipeline):
    loader = pipeline.open(workers=2)
    batches = iter(loader)
    next(batches)

    reported = result_in_fork(lambda: next(batches))

    assert reported.startswith("ForkedError")
    assert "before a fork" in reported
    assert result_in_fork(batches.__del__) == "None"
    assert len(list(batches)) == 99


def test_an_interpreter_that_ends_in_mid_epoch_ends():
    command = [sys.executable, "-c", LEFT_OPEN, "stay"]

    assert subprocess.run(command, timeout=60).returncode == 0


def test_a_forked_child_opens_its_own_loader_and_ends():
    command = [sys.executable, "-c", LEFT_OPEN, "fork"]

    ended = subprocess.run(command, timeout=60, capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "[[1], [2], [3]]\n")
