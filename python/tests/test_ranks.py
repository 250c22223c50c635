"""Ranks on one machine without a launcher."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="reads cores from /proc"
)

# Variables that launchers set; these processes have no launcher.
REPORTED = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
)

# Opens as one rank, waits until all have, and trains until it has detected the others.
RANK = """
import json, sys, threading, time
import infeed
from infeed import sources
rank, ranks, wanted = map(int, sys.argv[1:])
pipeline = (
    infeed.Pipeline(sources.Memory(x=list(range(400))))
    .shuffle(seed=3)
    .batch(16, tail="pad")
)
step = threading.Event()
with pipeline.open(rank=rank, world_size=ranks, workers="auto") as loader:
    print("open", flush=True)
    sys.stdin.readline()
    epochs = []
    end = time.monotonic() + 90
    while len(epochs) < 2 or loader.stats()["tuned"]["cores"] > wanted:
        if time.monotonic() > end:
            break
        epochs.append([])
        for batch in loader:
            epochs[-1] += batch["x"][batch["valid"]].tolist()
            step.wait(0.02)
    stats = loader.stats()
    found = {"epochs": epochs[:2], "workers": stats["workers"], **stats["tuned"]}
    print(json.dumps(found), flush=True)
    sys.stdin.readline()
"""

# Opens with batches of several rows of 64 KiB. There are few rows, so that the reserved
# memory is not touched.
GREEDY = """
import json, sys
import infeed, numpy as np
from infeed import sources
rows = np.zeros((4, 1 << 16), np.uint8)
pipeline = infeed.Pipeline(sources.Memory(x=rows)).batch(int(sys.argv[1]))
with pipeline.open() as loader:
    print(json.dumps(loader.stats()["budget_bytes"]), flush=True)
    sys.stdin.readline()
"""


@contextmanager
def processes(
    folder: Path, script: str, *arguments: tuple[object, ...]
) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a script once for each list of arguments, all at once, and ends them.

    They detect each other by files in ``folder``, and detect no other processes.
    """
    environment = {key: text for key, text in os.environ.items() if key not in REPORTED}
    environment["TMPDIR"] = str(folder)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, *map(str, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for given in arguments
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def go_on(started: list[subprocess.Popen[str]]) -> None:
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()


def memory_limit() -> int:
    """Returns the bytes that a process may use on this machine."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        file = Path("/sys/fs/cgroup", name)
        if file.exists() and (text := file.read_text().strip()).isdigit():
            limits.append(int(text))
    return min(limits)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_see_each_other_and_share_cores_and_records(tmp_path, ranks):
    cores = len(os.sched_getaffinity(0))
    share = max(1, round(cores / ranks))

    with processes(
        tmp_path, RANK, *((rank, ranks, share) for rank in range(ranks))
    ) as started:
        assert [rank.stdout.readline() for rank in started] == ["open\n"] * ranks
        go_on(started)
        found = [json.loads(rank.stdout.readline()) for rank in started]

    for rank in found:
        assert rank["cores"] <= share
        # Up to two workers per core, if one does not fill a core.
        assert 1 <= rank["workers"] <= 2 * rank["cores"]
    for epoch in range(2):
        seen = [record for rank in found for record in rank["epochs"][epoch]]
        assert sorted(seen) == list(range(400))


@pytest.mark.parametrize("count", [2, 4])
def test_budgets_of_processes_add_up_to_at_most_that_of_one(tmp_path, count):
    limit = memory_limit()
    # Four batches are in flight: each process requests more than an eighth of the
    # limit.
    rows = int(limit / 32 * 1.1) >> 16

    with processes(tmp_path, GREEDY, *([(rows,)] * count)) as started:
        budgets = [json.loads(one.stdout.readline()) for one in started]
        # A killed process holds no memory any more.
        for one in started[1:]:
            one.kill()
            one.wait()
        with processes(tmp_path, GREEDY, (rows,)) as later:
            budgets_later = [budgets[0], json.loads(later[0].stdout.readline())]

    assert sum(budgets) <= limit // 2
    assert all(budget >= 2 * (rows << 16) for budget in budgets)
    assert sum(budgets_later) <= limit // 2
    assert budgets_later[1] > limit // 8
