"""Control groups that limit a process, in either version of the kernel's interface.

Standard library only. Needs Linux, and root or a delegated hierarchy.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# Short, so that a limited process never pauses for long.
PERIOD_US = 10_000


class NoGroupError(SystemExit):
    """This machine permits no such control group. Ends a script that does not catch it,
    with the reason.
    """


def settings(
    version: int,
    cores: float | None = None,
    memory: int | None = None,
    read: tuple[str, int] | None = None,
) -> dict[str, dict[str, str]]:
    """Returns the files to write, by controller: `cores` processors, `memory` bytes,
    and bytes read per second from a device, `read` as (major:minor, rate).
    """
    found: dict[str, dict[str, str]] = {}
    if cores is not None:
        quota = f"{int(cores * PERIOD_US)}"
        found["cpu"] = (
            {"cpu.max": f"{quota} {PERIOD_US}"}
            if version == 2
            else {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": quota}
        )
    if memory is not None:
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        found["memory"] = {name: f"{memory}"}
    if read is not None:
        device, rate = read
        if version == 2:
            found["io"] = {"io.max": f"{device} rbps={rate}"}
        else:
            found["blkio"] = {"blkio.throttle.read_bps_device": f"{device} {rate}"}
    return found


@contextmanager
def limit_process(
    cores: float | None = None,
    memory: int | None = None,
    read: tuple[str, int] | None = None,
) -> Iterator[Callable[[], None]]:
    """Returns a function that limits the calling process, for `preexec_fn`.

    Raises NoGroupError with the reason if the machine permits no such group.
    """
    version = 2 if (ROOT / "cgroup.procs").exists() else 1
    wanted = settings(version, cores, memory, read)
    with ExitStack() as ends:
        groups = set()
        if version == 2:
            with suppress(OSError):  # the files below are then missing
                names = " ".join(f"+{name}" for name in wanted)
                (ROOT / "cgroup.subtree_control").write_text(names)
        for controller, files in wanted.items():
            folder = ROOT if version == 2 else ROOT / controller
            group = folder / f"infeed-{os.getpid()}"
            try:
                if not group.exists():
                    group.mkdir()
                    ends.callback(remove, group)
                for file, value in files.items():
                    (group / file).write_text(value)
            except OSError as error:
                raise NoGroupError(
                    f"cannot limit {controller} with control groups: {error}; run as "
                    f"root, with the controller `{controller}` in {ROOT}"
                ) from error
            groups.add(group / "cgroup.procs")

        def join() -> None:
            for group in groups:
                group.write_text(f"{os.getpid()}")

        yield join


def remove(group: Path) -> None:
    # A process that has not ended yet keeps its group; the next start reuses it.
    with suppress(OSError):
        group.rmdir()


def device_of(path: Path) -> str:
    """Returns major:minor of the disk below a path; of the whole disk for a partition.

    Raises NoGroupError if no disk is below it.
    """
    number = os.stat(path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    known = Path("/sys/dev/block", device)
    if not known.exists():
        raise NoGroupError(f"{path} lies on no disk whose rate can be limited")
    if (known / "partition").exists():
        return (known.resolve().parent / "dev").read_text().strip()
    return device
