"""Processor time of this process and its children, and the cores that they may use.

The times of children and of the machine come from `/proc`, so on other systems than
Linux they are 0. Source: proc(5), cgroups(7).
"""

import os
import threading
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class ProcessorTimes:
    """Processor seconds up to one moment.

    Attributes:
        at_s: The moment, on the clock of `time.perf_counter`.
        own_s: Processor time of all threads of this process.
        python_s: Part of it in threads that Python started, without excluded ones.
        children_s: Processor time of child processes and their children.
        machine_s: Processor time of all programs on the machine.
    """

    at_s: float
    own_s: float
    python_s: float
    children_s: float
    machine_s: float


class ProcessTree:
    """Processor time of this process and all processes that it has started.

    If a thread ends between two readings, its time after the first one is lost.

    Args:
        without: Threads that do not count in `ProcessorTimes.python_s`.
    """

    def __init__(self, without: Container[int | None] = ()) -> None:
        self._without = without
        self._threads: dict[int, tuple[float, float]] = {}
        for thread, spent in self._python_threads():
            self._threads[thread] = (spent, spent)

    def read(self) -> ProcessorTimes:
        """Returns the times up to now."""
        for thread, spent in self._python_threads():
            first, _ = self._threads.get(thread, (0.0, 0.0))
            self._threads[thread] = (first, spent)
        return ProcessorTimes(
            time.perf_counter(),
            time.process_time(),
            sum(latest - first for first, latest in self._threads.values()),
            _children_s(),
            _machine_s(),
        )

    def _python_threads(self) -> list[tuple[int, float]]:
        """Returns native ID and processor seconds of each thread."""
        found = []
        for thread in threading.enumerate():
            if thread.ident in self._without or thread.native_id is None:
                continue
            try:
                path = _PROC / f"self/task/{thread.native_id}/schedstat"
                spent_ns = int(path.read_text().split()[0])
            except (OSError, ValueError, IndexError):
                continue
            found.append((thread.native_id, spent_ns / 1e9))
        return found


def usable_cores() -> float:
    """Returns the cores that this process may use: its affinity, limited by quotas."""
    if hasattr(os, "sched_getaffinity"):
        cores: float = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min([cores, *_quotas()])


def _quotas() -> list[float]:
    """Returns the processor quotas of this process's control groups, in cores."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            quotas += _quotas_of(_CGROUPS, path)
        elif "cpu" in controllers.split(","):
            quotas += _quotas_of(_CGROUPS / "cpu", path)
    return quotas


def _quotas_of(root: Path, path: str) -> list[float]:
    """Returns the quotas of a group and of its parents."""
    quotas = []
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text()
            if quota not in ("max", "-1"):
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            pass
        if folder == root:
            break
    return quotas


def _children_s() -> float:
    """Returns the processor seconds of all descendants, including ended ones."""
    # The time of an ended child is part of `resource`.
    total = 0.0
    if resource is not None:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = ended.ru_utime + ended.ru_stime
    waiting = ["self"]
    while waiting:
        for process in _child_ids(waiting.pop()):
            try:
                # The name may contain spaces and parentheses, so count from its end.
                text = (_PROC / process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # Its own time, and that of its ended children.
            total += sum(map(int, text[11:15])) / _TICKS_PER_S
            waiting.append(process)
    return total


def _child_ids(process: str) -> list[str]:
    ids: list[str] = []
    try:
        tasks = list((_PROC / process / "task").iterdir())
    except OSError:
        return ids
    for task in tasks:
        try:
            ids += (task / "children").read_text().split()
        except OSError:
            continue
    return ids


def _machine_s() -> float:
    """Returns the processor seconds of the whole machine."""
    try:
        with open(_PROC / "stat") as file:
            fields = [int(field) for field in file.readline().split()[1:]]
    except (OSError, ValueError):
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / _TICKS_PER_S
