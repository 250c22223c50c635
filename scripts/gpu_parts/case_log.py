"""A plugin of pytest that writes each case's result as a finding at once."""

import faulthandler
import os
from pathlib import Path

from .findings import Findings
from .process import end_with_parent

# Variables that name the files.
FINDINGS = "GPU_CHECK_FINDINGS"
PROGRESS = "GPU_CHECK_PROGRESS"

STEP = "loop cases"

# A case that takes longer counts as hanging; its process ends with a traceback.
CASE_SECONDS = 90

_reports: list = []


def note(word: str, case: str) -> None:
    """Records the progress of the run."""
    with open(os.environ[PROGRESS], "a") as file:
        file.write(f"{word} {case}\n")


def pytest_configure(config) -> None:
    """Makes the process end with the step."""
    end_with_parent()


def pytest_runtest_logstart(nodeid: str, location) -> None:
    """Records that a case begins."""
    _reports.clear()
    note("begin", nodeid)
    faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)


def pytest_runtest_logreport(report) -> None:
    """Writes the result of a phase of a case."""
    _reports.append(report)


def pytest_runtest_logfinish(nodeid: str, location) -> None:
    """Records that a case ended."""
    faulthandler.cancel_dump_traceback_later()
    seconds = sum(report.duration for report in _reports)
    outcome, detail = "passed", ""
    for report in _reports:
        if report.failed:
            outcome, detail = "failed", str(report.longrepr)[-1500:]
            break
        if report.skipped:
            outcome, detail = "not_run", str(report.longrepr[2])
    findings = Findings(Path(os.environ[FINDINGS]), STEP)
    findings.result(nodeid.rpartition("::")[2], outcome, detail, seconds)
    note("end", nodeid)
