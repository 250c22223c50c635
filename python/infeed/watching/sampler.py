"""A thread that requests the interpreter's lock, and adds up processor times.

It sleeps for a few milliseconds and measures how late it wakes up. It is late because
no core was free, which Linux counts for each thread (`schedstat`), or because another
thread held the lock. The delay without the first part is the second part. Measured on
two cores of an EPYC (Zen 4): 0.09 ms on an idle machine, and 5.2 ms, the interpreter's
switch interval, with a thread that computes in Python.
"""

import os
import random
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

from infeed.watching.processor import ProcessorTimes, ProcessTree

# Sleep times are random, so that they are independent of the loop's steps.
SHORTEST_S, LONGEST_S = 0.006, 0.014
# Seconds between two sums of processor time; each reads one file per thread and child.
TALLY_S = 1.0
# Delay above that of an idle machine that counts. Shorter holds of the lock do no harm.
MARGIN_S = 0.0003
# Idle threads were 0.05 to 0.15 ms late; a machine with a longer delay is not idle.
MOST_IDLE_S = 0.0003

# Number of requests from which on a share is reported.
FEWEST = 10

# Number of the loop's phases that are remembered: a dozen of the shortest steps.
PHASES = 32

WAIT, STEP, ALONE = "wait", "step", "alone"


@dataclass
class LockRequests:
    """Counts of requests for the lock.

    Attributes:
        requests: Number of requests.
        late: Number of requests that found the lock held.
        waited_s: Time that requests waited for the lock, in seconds.
    """

    requests: int = 0
    late: int = 0
    waited_s: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of requests that found the lock held; None with too few requests."""
        return self.late / self.requests if self.requests >= FEWEST else None


class LockSampler:
    """The thread and its measurements. `start` and `stop` may alternate.

    Attributes:
        requests: Requests for the lock, by phase of the loop.
        spent: Processor seconds while it ran.
        cost_s: Processor seconds of the thread itself.
        loop: The loop's thread, which sets it.
    """

    def __init__(self) -> None:
        self.requests = {name: LockRequests() for name in (WAIT, STEP, ALONE)}
        self.spent = ProcessorTimes(0.0, 0.0, 0.0, 0.0, 0.0)
        self.loop: int | None = None
        self.cost_s = 0.0
        self._phases: deque[tuple[float, str]] = deque([(0.0, WAIT)], maxlen=PHASES)
        # Measured here, before other threads compute.
        self._idle_s = _idle_s()
        self._random = random.Random(0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def begin(self, phase: str) -> None:
        """Sets the current phase of the loop."""
        self._phases.append((time.perf_counter(), phase))

    def start(self, adds_up: bool = True) -> None:
        """Starts the thread, unless it runs.

        Args:
            adds_up: Whether processor times are added to `spent`.
        """
        if self._thread is not None:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            args=(self._stop, adds_up),
            name="infeed-watch",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it."""
        thread, self._thread = self._thread, None
        # A forked child has no such thread.
        if thread is None or os.getpid() != self._process:
            return
        self._stop.set()
        if thread is not threading.current_thread():
            thread.join()

    def _run(self, stop: threading.Event, adds_up: bool) -> None:
        tree = ProcessTree(without=(threading.get_ident(), self.loop))
        last = tree.read()
        queue = RunQueue()
        has_lock = lock_exists()
        try:
            while not stop.is_set():
                if has_lock:
                    self._request_lock(queue)
                else:
                    stop.wait(LONGEST_S)
                if adds_up and time.perf_counter() - last.at_s > TALLY_S:
                    last = self._tally(tree, last)
        finally:
            if adds_up:
                self._tally(tree, last)
            self.cost_s += time.thread_time()
            queue.close()

    def _request_lock(self, queue: "RunQueue") -> None:
        pause_s = self._random.uniform(SHORTEST_S, LONGEST_S)
        slept = time.perf_counter()
        time.sleep(pause_s)
        late_s = time.perf_counter() - slept - pause_s - self._idle_s
        counts = self.requests[self._phase_at(slept + pause_s)]
        counts.requests += 1
        # Read for each request, because it has the time since the last reading.
        late_s -= queue.waited_s()
        if late_s > MARGIN_S:
            counts.late += 1
            counts.waited_s += late_s

    def _phase_at(self, moment: float) -> str:
        """Returns the loop's phase at a moment, which may be over by now."""
        phases = list(self._phases)
        for since, phase in reversed(phases):
            if since <= moment:
                return phase
        return phases[0][1]

    def _tally(self, tree: ProcessTree, last: ProcessorTimes) -> ProcessorTimes:
        now = tree.read()
        self.spent = ProcessorTimes(
            self.spent.at_s + now.at_s - last.at_s,
            self.spent.own_s + now.own_s - last.own_s,
            self.spent.python_s + now.python_s - last.python_s,
            self.spent.children_s + now.children_s - last.children_s,
            self.spent.machine_s + now.machine_s - last.machine_s,
        )
        return now


class RunQueue:
    """Time that the calling thread was ready to run and had no core."""

    def __init__(self) -> None:
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        self._last_ns = self._read_ns()

    def waited_s(self) -> float:
        """Returns the time since the last call, in seconds."""
        now_ns = self._read_ns()
        waited_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return waited_ns / 1e9

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)

    def _read_ns(self) -> int:
        if self._file < 0:
            return 0
        return int(os.pread(self._file, 64, 0).split()[1])


def lock_exists() -> bool:
    """Whether this interpreter has a lock."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


_idle: list[float] = []


def _idle_s() -> float:
    """Returns the delay of a thread on this machine while the lock is free, in seconds.

    It is measured once per process, in 10 ms, and limited, because the lock may be held
    during the measurement.
    """
    if not _idle:
        late = []
        for _ in range(9):
            slept = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - slept - 0.001)
        _idle.append(min(sorted(late)[len(late) // 2], MOST_IDLE_S))
    return _idle[0]
