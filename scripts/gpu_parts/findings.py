"""Findings of steps in JSON Lines; each is written completely before the next begins.

A finding has a ``kind`` and a ``name``. Kinds: ``fact`` (``value``), ``check``
(``outcome``: passed, failed or not_run; ``detail``, ``seconds``), ``figure``
(``value``, ``unit``), ``note`` (``detail``: why something was not measured), and
``step`` (``outcome``, ``detail``, ``seconds``), which the script adds at a step's end.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    """The files of a run: findings as JSON Lines, and the report as Markdown."""

    findings: Path
    report: Path


class Findings:
    """Appends the findings of a step to a file.

    Args:
        path: The file; several processes may append to it.
        step: Name of the step.
    """

    def __init__(self, path: Path, step: str):
        self.step = step
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, finding: dict) -> None:
        """Appends a finding with one write, so that a killed process leaves no partial
        one.
        """
        line = json.dumps({"step": self.step, **finding}) + "\n"
        os.write(self._file, line.encode())

    def add_text(self, text: str) -> None:
        """Appends a finding that is JSON already."""
        self.add(json.loads(text))

    def fact(self, name: str, value: object) -> None:
        """Appends a property of the machine or the device."""
        self.add({"kind": "fact", "name": name, "value": str(value)})

    def figure(self, name: str, value: float, unit: str) -> None:
        """Appends a measurement."""
        self.add({"kind": "figure", "name": name, "value": value, "unit": unit})

    def note(self, name: str, detail: object) -> None:
        """Appends the reason why something was not measured."""
        self.add({"kind": "note", "name": name, "detail": str(detail)})

    def result(self, name: str, outcome: str, detail: object, seconds: float) -> None:
        """Appends the result of a check."""
        self.add(
            {
                "kind": "check",
                "name": name,
                "outcome": outcome,
                "detail": str(detail),
                "seconds": round(seconds, 3),
            }
        )

    def not_run(self, name: str, reason: object) -> None:
        """Appends a check that could not run here."""
        self.result(name, "not_run", reason, 0.0)

    def check(self, name: str, run: Callable[[], str]) -> None:
        """Runs a check, which returns its observation.

        `NotRun` means that the check cannot run here; any other exception is a failure.
        """
        start = time.perf_counter()
        try:
            outcome, detail = "passed", run()
        except NotRun as reason:
            outcome, detail = "not_run", str(reason)
        except Exception as error:
            outcome, detail = "failed", f"{type(error).__name__}: {error}"
        self.result(name, outcome, detail, time.perf_counter() - start)


class NotRun(Exception):
    """A check cannot run here; the message is the reason."""


def read(path: Path) -> list[dict]:
    """Returns the findings of a file, without a line that a killed process left
    unfinished.
    """
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            finding = json.loads(line)
        except ValueError:
            continue
        if isinstance(finding, dict) and "kind" in finding:
            found.append(finding)
    return found


def end_line(path: Path) -> None:
    """Ends a last line that a killed process left unfinished."""
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        with open(path, "ab") as file:
            file.write(b"\n")
