"""Runs steps, each as a process with a timeout, until the deadline."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import report
from .findings import Files, Findings, end_line, read
from .process import run as run_process
from .process import tail
from .steps import FULL_LIMIT, Settings, Step


def run(
    steps: Sequence[Step],
    settings: Settings,
    files: Files,
    deadline_s: float,
    environment: dict[str, str],
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> bool:
    """Runs the steps; returns whether nothing failed.

    The report is written before the first step and after each one.
    """
    started = time.monotonic()
    for file in (files.findings, files.report):
        file.parent.mkdir(parents=True, exist_ok=True)
    files.findings.write_bytes(b"")
    page = report.Page(steps, settings, started)
    page.write(files)
    for number, step in enumerate(steps):
        left = deadline_s - (time.monotonic() - started)
        begun = time.monotonic()
        outcome, detail = _outcome(step, number, settings, files, left, environment)
        seconds = time.monotonic() - begun
        finding = {"kind": "step", "outcome": outcome, "detail": detail}
        Findings(files.findings, step.name).add(
            {**finding, "name": step.name, "seconds": round(seconds, 2)}
        )
        page.write(files)
        say(f"{outcome.replace('_', ' '):8} {step.name}, {seconds:.1f} s  {detail}")
        for one in read(files.findings):
            failed = one["kind"] == "check" and one["outcome"] == "failed"
            if failed and one["step"] == step.name:
                say(f"    failed: {one['name']}: {one['detail']}")
    return all(
        one["outcome"] != "failed"
        for one in read(files.findings)
        if one["kind"] == "step"
    )


def _outcome(
    step: Step,
    number: int,
    settings: Settings,
    files: Files,
    left_s: float,
    environment: dict[str, str],
) -> tuple[str, str]:
    """Runs a step if it can run; returns its outcome and the reason for it."""
    if step.needs_gpu and settings.is_simulated:
        return "not_run", "the simulated device has no use for it"
    expected_s = 1 if settings.quick else step.expected_s
    if left_s < expected_s:
        return (
            "not_run",
            f"deadline: {max(left_s, 0):.0f} s left, it takes {expected_s:.0f} s",
        )
    factor = FULL_LIMIT if settings.effort == "full" else 1
    output = settings.scratch / f"step-{number}.txt"
    command = [sys.executable, "-m", "gpu_parts.child", step.name, step.function]
    command += [settings.text(), str(files.findings.resolve())]
    ended = run_process(
        command, min(left_s, factor * step.limit_s), output, environment
    )
    end_line(files.findings)
    found = [one for one in read(files.findings) if one["step"] == step.name]
    if ended.problem:
        text = " ".join(tail(output, 500).split())
        return "failed", f"{ended.problem}: {text}" if text else ended.problem
    outcomes = [one["outcome"] for one in found if one["kind"] == "check"]
    if "failed" in outcomes:
        return "failed", f"{outcomes.count('failed')} of {len(outcomes)} checks failed"
    if not found:
        return "failed", "it ended without a finding"
    missing = outcomes.count("not_run")
    measured = any(one["kind"] in ("figure", "fact") for one in found)
    if "passed" in outcomes or (measured and not missing):
        return "passed", f"{missing} of its checks could not run" if missing else ""
    reasons = [one["detail"] for one in found if "detail" in one]
    return "not_run", "; ".join(dict.fromkeys(reasons))


def environment_of_steps(folders: Sequence[Path]) -> dict[str, str]:
    """Returns the environment of steps; they search these folders for modules first."""
    environment = dict(os.environ)
    before = environment.get("PYTHONPATH")
    paths = [*map(str, folders), *([before] if before else [])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    # No caches next to scripts of a checkout.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # JAX would allocate most of the GPU's memory at its first operation.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return environment
