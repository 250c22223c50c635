"""How processes of functions end."""

import json
import os
import pickle
import socket
import struct
import subprocess
import sys

import pytest
import stage_functions as steps

from infeed._functions import Step

linux = pytest.mark.skipif(sys.platform != "linux", reason="memfd_create")


@linux
def test_a_process_of_functions_prints_nothing_when_its_parent_goes():
    # Without the thread that watches the parent, which may be faster.
    code = "from infeed import _process as p; p._watch = lambda *_: None; p.main()"
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("values")
    function = Step.checked(steps.halved, batch=False, processes=1)
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
