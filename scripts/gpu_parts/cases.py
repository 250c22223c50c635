"""The loop cases of `python/tests/on_gpu`, on the driver of this machine.

A case that crashes or hangs is a failed check; the remaining cases run in another
process.
"""

import importlib.util
import os
import sys

from . import process
from .case_log import FINDINGS, PROGRESS
from .findings import Findings
from .steps import Settings

# Maximum number of processes: each except the last lost a case.
PROCESSES = 6

# Limit of the whole step.
SECONDS = 600


def run(findings: Findings, settings: Settings) -> None:
    """Runs every case."""
    if importlib.util.find_spec("pytest") is None:
        findings.not_run("loop cases", "pytest is not installed here")
        return
    tests = settings.checkout / "python" / "tests"
    progress = settings.scratch / "cases.txt"
    environment = dict(os.environ)
    environment[FINDINGS] = str(findings.path)
    environment[PROGRESS] = str(progress)
    paths = [str(tests), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "pytest", str(tests / "on_gpu" / "cases.py")]
    command += ["-q", "-p", "no:cacheprovider", "-p", "gpu_parts.case_log"]
    # Warnings of other versions of libraries are not part of the check.
    command += ["--rootdir", str(settings.checkout), "-o", "filterwarnings=default"]
    # These are separate steps.
    command += ["-k", "not selftest"]
    if settings.quick:
        command[-1] += " and (fixed_addresses or second_stream or capture)"
    lost: list[str] = []
    for _ in range(PROCESSES):
        output = settings.scratch / "cases-output.txt"
        skipped = [f"--deselect={case}" for case in done_cases(progress)]
        before = len(skipped)
        ended = process.run(
            [*command, *skipped], SECONDS, output, environment, own_group=False
        )
        # Status 1 means failed cases, 5 no remaining cases.
        if ended.status in (0, 1, 5):
            break
        text = f"{ended.problem}: {process.tail(output)}"
        hit = unfinished_cases(progress)
        for case in hit - set(lost):
            findings.result(case.rpartition("::")[2], "failed", text, 0.0)
        lost += hit
        if len(done_cases(progress)) == before:
            findings.result("loop cases run", "failed", text, 0.0)
            break


def lines(progress, word: str) -> list[str]:
    """Returns the cases that began or ended, according to the progress file."""
    if not progress.exists():
        return []
    found = (line.split(" ", 1) for line in progress.read_text().splitlines())
    return [case for kind, case in found if kind == word]


def done_cases(progress) -> list[str]:
    """Returns the cases that need not run again."""
    return lines(progress, "begin")


def unfinished_cases(progress) -> set[str]:
    """Returns the cases that began and did not end."""
    return set(lines(progress, "begin")) - set(lines(progress, "end"))
