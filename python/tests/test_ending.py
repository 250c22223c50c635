"""The end of loaders, and of worker processes of functions."""

import contextlib
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys

import pytest
import stage_functions as steps
from children import start_script

import infeed
from infeed import sources
from infeed._functions import FunctionStep

linux = pytest.mark.skipif(sys.platform != "linux", reason="memfd_create")


@linux
def test_a_process_of_functions_prints_nothing_when_its_parent_ends():
    # Without the thread that watches the parent, which may end the process earlier.
    code = "from infeed import _process as p; p._watch = lambda *_: None; p.main()"
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("values")
    function = FunctionStep.from_arguments(steps.halve, batch=False, processes=1)
    pickled = pickle.dumps(function.function)
    os.pwrite(memory, pickled, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs.fileno(),
        stdout=memory,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    theirs.close()
    call = {"values": [], "key": [0, 0], "end": 0}
    for message in ({"pickled": len(pickled)}, call):
        text = json.dumps(message).encode()
        ours.sendall(struct.pack("<I", len(text)) + text)

    ours.close()

    _, log = process.communicate(timeout=60)
    os.close(memory)
    assert log == b""
    assert process.returncode == 0


# A function that never returns, with and without the interpreter's lock.
BLOCKED = """
import sys, threading, time
import infeed
from infeed import sources

entered = threading.Event()

probed = threading.Event()

def block(sample):
    if not probed.is_set():
        # `open` calls it to learn what it returns.
        probed.set()
        return sample
    entered.set()
    while True:
        {wait}

def report(loader):
    entered.wait()
    print("ready", flush=True)

items = sources.Items([{{"number": n}} for n in range(8)])
pipeline = infeed.Pipeline(items).python(block)
{use}
"""

FOR_LOOP = """
with pipeline.batch(2).open(workers=2) as loader:
    threading.Thread(target=report, args=(loader,), daemon=True).start()
    for batch in loader:
        pass
"""

WITHOUT_WITH = """
loader = pipeline.batch(2).open(workers=2)
report(loader)
next(iter(loader))
"""

CLOSE_AFTER = """
loader = pipeline.batch(2).open(workers=2)
report(loader)
began = time.monotonic()
loader.close(timeout=0.3)
took = time.monotonic() - began
print(loader.closed, 0.2 < took, flush=True)
loader.close(timeout=0.1)
print("the end", flush=True)
"""


def start_blocked(
    use: str, wait: str
) -> contextlib.AbstractContextManager[subprocess.Popen]:
    """Starts a script with a function that never returns, and waits for its call."""
    return start_script(BLOCKED.format(use=use, wait=wait), stderr=subprocess.PIPE)


@pytest.mark.parametrize("wait", ["pass", "time.sleep(60)"])
@pytest.mark.parametrize("use", [FOR_LOOP, WITHOUT_WITH])
def test_interrupts_end_a_process_whose_function_never_returns(use, wait):
    with start_blocked(use, wait) as process:
        # The first one ends the loop, the second one the wait for the function. Python
        # loses one that comes while it prints the traceback of the first.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)

        _, log = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "KeyboardInterrupt" in log
    assert "block() still runs at <string>:" in log


@pytest.mark.parametrize("wait", ["pass", "time.sleep(60)"])
def test_close_with_a_timeout_leaves_a_function_behind_and_names_it(wait):
    with start_blocked(CLOSE_AFTER, wait) as process:
        printed, log = process.communicate(timeout=30)

    assert printed.splitlines() == ["True True", "the end"]
    assert process.returncode == 1
    warned = "the loader is closed, but block() still runs at <string>:"
    assert log.count(warned) == 2
    assert "the process ends while block() still runs at <string>:" in log


def test_close_waits_for_a_function_that_returns_in_time():
    script = """
import time
import infeed
from infeed import sources
items = sources.Items([{"number": n} for n in range(8)])
slow = lambda sample: time.sleep(0.2) or sample
pipeline = infeed.Pipeline(items).python(slow).batch(2)
loader = pipeline.open(workers=2)
time.sleep(0.2)
loader.close(timeout=30)
loader.close()
"""

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")])
def test_close_rejects_an_invalid_timeout(timeout):
    loader = infeed.Pipeline(sources.Items([{"number": 1}])).batch(1).open()

    with pytest.raises(
        infeed.errors.ConfigError, match="timeout must be a number of at least 0"
    ):
        loader.close(timeout)
    loader.close()
