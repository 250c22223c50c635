"""The main module of a worker process, which calls a user function for `infeed`.

The engine sends messages over a socket, which is standard input at first. Values are in
an anonymous file, which is standard output at first. `worker_process.rs` of the binding
is the engine's side, and defines the messages.
"""

import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any

import numpy as np

from infeed._functions import FunctionAdapter
from infeed.seeding import HeldGenerators

# Alignment of values in the file, in bytes.
ALIGNED = 64

# Interval of checks whether the parent still lives, in seconds. Its death closes the
# socket, unless a fork of the parent holds the other end.
_POLL_MS = 2000


def main() -> None:
    """Loads the function and calls it until the parent ends.

    The end of the parent is not an error. If the parent closes the socket or dies, or
    if this process receives SIGTERM, it ends and prints nothing.
    """
    # Ctrl-C is for the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A handler that a user's module installed would raise within the function.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _serve()
    except ConnectionError:
        # The parent ended in the middle of a message.
        os._exit(0)


def _serve() -> None:
    parent = os.getppid()
    link = socket.socket(fileno=os.dup(0))
    memory = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    # Output of the function goes to standard error: standard output is not usable.
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.Thread(target=_watch, args=(link, parent), daemon=True).start()
    # No other code of this process draws from its generators.
    HeldGenerators.restores = False
    request = _receive(link)
    if request is None:
        return
    try:
        adapter = FunctionAdapter(
            pickle.loads(_read(memory, 0, request["pickled"])), False
        )
    except BaseException as error:
        _send(link, _describe_error(error))
        return
    _send(link, {})
    while (request := _receive(link)) is not None:
        _send(link, answer(adapter, memory, request))


def answer(
    adapter: FunctionAdapter, memory: int, request: dict[str, Any]
) -> dict[str, Any]:
    """Calls the function with values from the file, and writes its results there."""
    begun = time.process_time_ns()
    try:
        inputs = {of["name"]: _value(memory, of) for of in request["values"]}
        first, second = request["key"]
        returned = adapter(inputs, (first, second))
        end = request["end"]
        values = []
        for name, kind, value in returned:
            dtype, shape, data = value if kind == "array" else ("", (), value)
            size = memoryview(data).nbytes
            _write(memory, end, data)
            values.append(
                {
                    **{"name": name, "kind": kind, "dtype": dtype},
                    **{"shape": list(shape), "at": end, "bytes": size},
                }
            )
            end = -(-(end + size) // ALIGNED) * ALIGNED
    except BaseException as error:
        return _describe_error(error)
    return {"values": values, "cpu_ns": time.process_time_ns() - begun}


def _value(memory: int, of: dict[str, Any]) -> Any:
    """Reads an input into its own memory, because the function may keep it."""
    if of["kind"] == "array":
        if of["dtype"] == "bfloat16":
            import ml_dtypes

            array = np.empty(of["shape"], ml_dtypes.bfloat16)
        else:
            array = np.empty(of["shape"], of["dtype"])
        _read_into(memory, of["at"], array.reshape(-1).view(np.uint8))
        return array
    data = _read(memory, of["at"], of["bytes"])
    return [data if of["kind"] == "bytes" else data.decode()]


def _read(memory: int, at: int, size: int) -> bytes:
    data = np.empty(size, np.uint8)
    _read_into(memory, at, data)
    return data.tobytes()


def _read_into(memory: int, at: int, data: np.ndarray) -> None:
    view = memoryview(data.data)
    while len(view):
        read = os.preadv(memory, [view], at)
        if read == 0:
            raise EOFError("the memory ends before its values")
        view, at = view[read:], at + read


def _write(memory: int, at: int, data: Any) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(memory, view, at)
        view, at = view[written:], at + written


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Returns an exception's last line with its location, and the whole traceback."""
    line = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        line += f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return {"raised": line, "traceback": "".join(traceback.format_exception(error))}


def _receive(link: socket.socket) -> dict[str, Any] | None:
    """Returns the next message; None after the end of the parent."""
    length = _exactly(link, 4)
    if length is None:
        return None
    text = _exactly(link, struct.unpack("<I", length)[0])
    if text is None:
        return None
    message: dict[str, Any] = json.loads(text)
    return message


def _exactly(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


def _send(link: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    link.sendall(struct.pack("<I", len(text)) + text)


def _watch(link: socket.socket, parent: int) -> None:
    """Ends this process after the parent, even while the function runs."""
    poll = select.poll()
    # POLLRDHUP only: the main thread reads the messages.
    poll.register(link, getattr(select, "POLLRDHUP", 0))
    while not poll.poll(_POLL_MS) and os.getppid() == parent:
        pass
    os._exit(0)
