"""Reports of `scripts/gpu-check`: their content, and runs that are killed."""

import json
import random
import signal
import subprocess
from pathlib import Path


def states(report: Path) -> dict[str, str]:
    """Returns the state of each step in a report, after checking its tables."""
    text = report.read_text()
    assert text.startswith("# Results of `scripts/gpu-check`\n")
    assert text.rstrip().splitlines()[-1].startswith("The run took ")
    found, columns, section = {}, 0, ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            columns = 0
            continue
        cells = line.replace("\\|", "").split("|")[1:-1]
        columns = columns or len(cells)
        assert len(cells) == columns, line
        state, name = cells[0].strip(" *"), cells[1].strip()
        if section == "Steps" and state in ("passed", "failed", "not run"):
            found[name] = state
    return found


def kill_at_random(command: list[str], environment: dict[str, str]) -> None:
    """Starts a run and kills it in one of its first steps."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True
    )
    # A finished step adds one line.
    for _ in range(draw.randrange(1, 4)):
        assert process.stdout.readline()
    try:
        process.wait(timeout=draw.random())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()


def assert_whole(page: Path) -> None:
    """Checks the report and the findings of a run that was killed."""
    found = states(page)
    assert found["machine"] == "passed"
    assert "not run" in found.values()
    lines = page.with_suffix(".jsonl").read_text().splitlines()
    assert all(json.loads(line)["kind"] for line in lines)
