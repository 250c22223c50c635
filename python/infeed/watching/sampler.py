"""A thread that asks for the interpreter's lock now and then, and adds up who is busy.

It sleeps for a few milliseconds and looks how late it runs again. It is late because no
core was free, which Linux counts for each thread (`schedstat`), or because another
thread held the lock. What is left after the first is the second. Measured on two cores
of an EPYC (Zen 4): 0.09 ms late when nothing runs, 5.2 ms, the interpreter's switch
interval, beside a thread that computes in Python.
"""

import os
import random
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

from infeed.watching.load import Busy, Tree

# The thread asks at moments that keep no time with anybody's steps.
SHORTEST_S, LONGEST_S = 0.006, 0.014
# How often processor time is added up; each time reads a file a thread and a child.
TALLY_S = 1.0
# Late by this much more than when idle is late. Short holds of the lock hurt nobody.
MARGIN_S = 0.0003
# Idle threads were 0.05 to 0.15 ms late; more than this is no idle machine.
MOST_IDLE_S = 0.0003

# Requests from which on their share says something.
FEWEST = 10

# How far back it is known what the loop did: a dozen of the shortest steps.
PHASES = 32

WAIT, STEP, ALONE = "wait", "step", "alone"


@dataclass
class Asked:
    """How requests for the lock went.

    Attributes:
        requests: How many there were.
        late: How many found it held.
        waited_s: Time they waited for it.
    """

    requests: int = 0
    late: int = 0
    waited_s: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of requests that found the lock held; None for too few to tell."""
        return self.late / self.requests if self.requests >= FEWEST else None


class Sampler:
    """The thread and what it found. `start` and `stop` may alternate.

    Attributes:
        asked: Requests for the lock, by what the loop was doing.
        spent: Processor seconds of the time it ran.
        cost_s: Processor seconds of the thread itself.
        loop: The loop's thread. Set by the loop.
    """

    def __init__(self) -> None:
        self.asked = {name: Asked() for name in (WAIT, STEP, ALONE)}
        self.spent = Busy(0.0, 0.0, 0.0, 0.0, 0.0)
        self.loop: int | None = None
        self.cost_s = 0.0
        self._phases: deque[tuple[float, str]] = deque([(0.0, WAIT)], maxlen=PHASES)
        # Here, where the caller waits, because later other threads compute.
        self._idle_s = _idle_s()
        self._random = random.Random(0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def begin(self, phase: str) -> None:
        """Says what the loop does from now on."""
        self._phases.append((time.perf_counter(), phase))

    def start(self, adds_up: bool = True) -> None:
        """Starts the thread, unless it runs.

        Args:
            adds_up: Whether what is spent on the processor goes into `spent`.
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
        # In a fork of the process there is no thread to wait for.
        if thread is None or os.getpid() != self._process:
            return
        self._stop.set()
        if thread is not threading.current_thread():
            thread.join()

    def _run(self, stop: threading.Event, adds_up: bool) -> None:
        tree = Tree(without=(threading.get_ident(), self.loop))
        last = tree.read()
        queue = _RunQueue()
        has_lock = lock_exists()
        try:
            while not stop.is_set():
                if has_lock:
                    self._ask(queue)
                else:
                    stop.wait(LONGEST_S)
                if adds_up and time.perf_counter() - last.at_s > TALLY_S:
                    last = self._tally(tree, last)
        finally:
            if adds_up:
                self._tally(tree, last)
            self.cost_s += time.thread_time()
            queue.close()

    def _ask(self, queue: "_RunQueue") -> None:
        pause_s = self._random.uniform(SHORTEST_S, LONGEST_S)
        slept = time.perf_counter()
        time.sleep(pause_s)
        late_s = time.perf_counter() - slept - pause_s - self._idle_s
        asked = self.asked[self._phase_at(slept + pause_s)]
        asked.requests += 1
        if late_s > MARGIN_S:
            late_s -= queue.waited_s()
        if late_s > MARGIN_S:
            asked.late += 1
            asked.waited_s += late_s

    def _phase_at(self, moment: float) -> str:
        """What the loop did then; it may have moved on since."""
        phases = list(self._phases)
        for since, phase in reversed(phases):
            if since <= moment:
                return phase
        return phases[0][1]

    def _tally(self, tree: Tree, last: Busy) -> Busy:
        now = tree.read()
        self.spent = Busy(
            self.spent.at_s + now.at_s - last.at_s,
            self.spent.own_s + now.own_s - last.own_s,
            self.spent.python_s + now.python_s - last.python_s,
            self.spent.children_s + now.children_s - last.children_s,
            self.spent.machine_s + now.machine_s - last.machine_s,
        )
        return now


class _RunQueue:
    """Time that the calling thread was ready to run and had no core."""

    def __init__(self) -> None:
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        self._last_ns = self._read_ns()

    def waited_s(self) -> float:
        """Since it was asked last."""
        now_ns = self._read_ns()
        waited_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return waited_ns / 1e9

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _read_ns(self) -> int:
        if self._file < 0:
            return 0
        return int(os.pread(self._file, 64, 0).split()[1])


def lock_exists() -> bool:
    """Whether this interpreter has a lock at all."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


_idle: list[float] = []


def _idle_s() -> float:
    """How late a thread runs on this machine when nobody holds the lock.

    Measured once a process, in 10 ms, and capped: somebody may hold it just then.
    """
    if not _idle:
        late = []
        for _ in range(9):
            slept = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - slept - 0.001)
        _idle.append(min(sorted(late)[len(late) // 2], MOST_IDLE_S))
    return _idle[0]
