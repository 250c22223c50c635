"""The machine of a measurement, and its load meanwhile, from /proc.

Standard library only. Without /proc, loads and memory are None.
"""

import os
import platform
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cores() -> int:
    """Returns the number of cores this process may use: its affinity, and its cgroup's
    quota.
    """
    allowed = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        allowed = min(allowed, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return allowed or 1


def describe() -> dict:
    """Returns processor, cores, memory and system of this machine."""
    return {
        "processor": first_field("/proc/cpuinfo", "model name") or platform.processor(),
        "simd": [f for f in ("avx2", "avx512bw", "asimd") if f in flags()],
        "cores": cores(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
    }


def flags() -> set[str]:
    return set(
        (
            first_field("/proc/cpuinfo", "flags")
            or first_field("/proc/cpuinfo", "Features")
            or ""
        ).split()
    )


def memory_gib() -> int | None:
    total = first_field("/proc/meminfo", "MemTotal")
    return round(int(total.split()[0]) / 2**20) if total else None


def first_field(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


class Load:
    """CPU time and memory of a process tree over a span, and CPU time of all others."""

    def __init__(self, root: int):
        self.root = root
        self.start = self.now()
        self.peak_rss = 0

    def now(self) -> dict | None:
        """Returns CPU seconds so far: of the machine, stolen by its host, and of the
        tree.
        """
        try:
            first = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return None
        user, nice, system, _, _, irq, softirq, steal = (int(v) / TICK for v in first)
        tree = sum(cpu_seconds(pid) for pid in descendants(self.root))
        return {
            "busy": user + nice + system + irq + softirq,
            "steal": steal,
            "tree": tree,
        }

    def sample_memory(self) -> None:
        """Records the tree's resident memory; shared pages count once per process."""
        self.peak_rss = max(
            self.peak_rss, sum(resident_bytes(p) for p in descendants(self.root))
        )

    def since_start(self, wall_s: float) -> dict:
        """Returns the cores used by the tree, by others and by the host, on average
        since then.
        """
        end = self.now()
        if self.start is None or end is None:
            return {"own_cores": None, "foreign_cores": None, "stolen_cores": None}
        spent = {k: end[k] - self.start[k] for k in end}
        return {
            "own_cores": round(spent["tree"] / wall_s, 3),
            "foreign_cores": round(max(0.0, spent["busy"] - spent["tree"]) / wall_s, 3),
            "stolen_cores": round(spent["steal"] / wall_s, 3),
        }


def descendants(root: int) -> list[int]:
    """Returns a process and all its descendants.

    Reads the children of each thread: walking all of /proc would cost several
    milliseconds of CPU time each time.
    """
    found, rest = [], [root]
    while rest:
        pid = rest.pop()
        found.append(pid)
        for children in (PROC / str(pid) / "task").glob("*/children"):
            with suppress(OSError):  # a thread that has ended
                rest.extend(int(child) for child in children.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and of its ended children."""
    fields = stat_fields(pid)
    return sum(int(v) for v in fields[11:15]) / TICK if fields else 0.0


def resident_bytes(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def stat_fields(pid: int) -> list[str] | None:
    """Returns the fields of /proc/PID/stat after the command's name, which may have
    spaces.
    """
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
