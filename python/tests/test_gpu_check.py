"""`scripts/gpu-check`, which a machine with a GPU runs, on the simulated device."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from gpu_reports import assert_whole, kill_at_random, states

import infeed
from infeed import _core

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def parts(monkeypatch):
    """The package with the parts of the script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    # No caches next to scripts.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import gpu_parts.report
    import gpu_parts.runner
    import gpu_parts.steps

    return gpu_parts


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / "gpu-check"), *arguments]


def environment() -> dict[str, str]:
    """The environment of a process that imports the tested package."""
    return {**os.environ, "PYTHONPATH": str(Path(infeed.__file__).parents[1])}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_simulated_device_passes(tmp_path):
    page = tmp_path / "docs/results.md"

    ran = run("--device", "sim", "--quick", "--report", str(page))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = states(page)
    for step in ("self-test, warm JIT", "rates of copies and kernels", "stress"):
        assert found[step] == "passed"
    assert found["loop cases"] == found["nvJPEG alone"] == "not run"
    lines = page.with_suffix(".jsonl").read_text().splitlines()
    findings = [json.loads(line) for line in lines]
    names = [one["name"] for one in findings if one["kind"] == "figure"]
    assert "kernel/expand/to=bf16/layout=hwc/rows=4" in names
    text = page.read_text()
    assert "**simulated device**" in text
    assert "| passed | stress | a release left out on purpose is found |" in text
    assert "| not measured | pinned copies over PyTorch's best |" in text
    assert "| not judged | host cost of sending a batch, us |" in text


def test_two_calls_share_the_steps(parts, tmp_path):
    for call in (1, 2):
        own = [step for step in parts.steps.STEPS if step.call in (0, call)]
        assert sum(step.expected_s for step in own) <= 300
    options = ["--device", "sim", "--quick", "--out", str(tmp_path)]

    ran = run(*options, "--call", "2", "--steps", "machine|warm|by workers")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(states(tmp_path / "call-2.md")) == ["machine", "JPEGs by workers"]


@pytest.mark.skipif(bool(json.loads(_core.gpus())["gpus"]), reason="a GPU is here")
def test_a_machine_without_a_gpu_gets_status_2_and_no_report(tmp_path):
    ran = run("--report", str(tmp_path / "results.md"))

    assert ran.returncode == 2
    assert "no GPU here: " in ran.stderr
    assert "--device sim" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_wrong_device_is_a_failed_step_with_the_engines_error(tmp_path):
    page = tmp_path / "results.md"
    options = ["--device", "sim:speed=1", "--quick", "--steps", "stress|machine"]

    ran = run(*options, "--report", str(page))

    assert ran.returncode == 1
    assert states(page) == {"machine": "passed", "stress": "failed"}
    assert "ConfigError" in page.read_text()


def test_decoders_that_the_device_lacks_are_not_run(tmp_path):
    page = tmp_path / "results.md"
    options = ["--device", "sim:jpeg=none", "--quick", "--steps", "JPEG decoding"]

    ran = run(*options, "--report", str(page))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert states(page) == {"JPEG decoding": "not run"}
    assert page.read_text().count("| not run | JPEG decoding | ") >= 4


# Modules with steps, which the test writes.
STEPS = """
import os, signal, subprocess, sys, time

def good(findings, settings):
    findings.figure("answer | of it", 42, "")

def crashes(findings, settings):
    findings.figure("before the crash", 1, "")
    os.write(findings._file, b'{"kind": "figure", "na')
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(findings, settings):
    findings.figure("before the hang", 2, "")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = (
        "import signal, os; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
        "print(os.getpid(), flush=True)\\n"
        "while True: signal.pause()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    findings.fact("grandchild", child.stdout.readline().decode().strip())
    while True:
        signal.pause()

def nothing(findings, settings):
    pass

def absent(findings, settings):
    findings.not_run("a check", "no such library here")

def wrong(findings, settings):
    findings.check("one", lambda: "seen")
    findings.check("two", lambda: 1 / 0)
"""


@pytest.fixture
def run_steps(parts, tmp_path):
    """Runs functions of `STEPS`; returns whether nothing failed, and the report."""
    (tmp_path / "written_steps.py").write_text(textwrap.dedent(STEPS))

    def run(*steps, deadline_s=60, effort="normal"):
        made = [
            parts.steps.Step(name, f"written_steps:{name}", expected_s, limit_s)
            for name, expected_s, limit_s in steps
        ]
        settings = parts.steps.Settings("sim", effort, tmp_path, SCRIPTS.parent)
        files = parts.findings.Files(tmp_path / "found.jsonl", tmp_path / "report.md")
        variables = parts.runner.environment_of_steps([SCRIPTS, tmp_path])
        passed = parts.runner.run(
            made, settings, files, deadline_s, variables, lambda line: None
        )
        return passed, files

    return run


def is_running(pid: int) -> bool:
    """Whether a process runs. An ended process that was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_steps_that_crash_hang_and_find_nothing_are_each_reported(run_steps, parts):
    names = ["good", "crashes", "nothing", "absent", "wrong", "good"]
    steps = [(name, 0, 30) for name in names]
    steps.insert(2, ("hangs", 0, 10))

    passed, files = run_steps(*steps)

    assert not passed
    assert states(files.report) == {
        "good": "passed",
        "crashes": "failed",
        "hangs": "failed",
        "nothing": "failed",
        "absent": "not run",
        "wrong": "failed",
    }
    text = files.report.read_text()
    assert "ended by SIGSEGV" in text
    assert "did not end within 10 s" in text
    assert "it ended without a finding" in text
    assert "no such library here" in text
    assert "1 of 2 checks failed" in text
    found = parts.findings.read(files.findings)
    figures = [one["name"] for one in found if one["kind"] == "figure"]
    # Findings of steps before they crashed or hung are kept, and lines stay separate.
    expected = ["answer | of it", "before the crash", "before the hang"]
    assert figures == [*expected, "answer | of it"]
    (grandchild,) = (one["value"] for one in found if one["name"] == "grandchild")
    assert not is_running(int(grandchild))


def test_the_deadline_ends_a_step_and_later_steps_do_not_run(run_steps):
    passed, files = run_steps(
        ("good", 0, 30), ("hangs", 1, 600), ("absent", 20, 30), deadline_s=6
    )

    assert not passed
    found = states(files.report)
    assert found == {"good": "passed", "hangs": "failed", "absent": "not run"}
    text = files.report.read_text()
    assert "did not end within" in text
    assert "deadline: 0 s left, it takes 20 s" in text


def test_a_killed_run_leaves_a_complete_report_and_complete_findings(tmp_path):
    page = tmp_path / "results.md"
    options = ["--device", "sim", "--quick", "--report", str(page)]
    for _ in range(3):
        kill_at_random(command(*options), environment())

        assert_whole(page)


def figure(name: str, value: float) -> dict:
    return {"kind": "figure", "step": "", "name": name, "value": value, "unit": ""}


def test_ratios_use_copies_larger_than_any_cache(parts):
    figures = [
        figure("copy/on=device/bytes=4194304", 90.0),
        figure(f"copy/on=device/bytes={256 << 20}", 40.0),
        figure("kernel/expand/to=bf16/layout=chw/rows=256", 30.0),
        figure("kernel/expand/to=f32/layout=chw/rows=256", 36.0),
    ]

    made = {one["name"]: one["value"] for one in parts.report.ratios(figures)}

    assert made["ratio/slowest expand kernel"] == 0.75
    assert "ratio/pinned copy over PyTorch's best" not in made


def test_targets_are_reached_missed_or_not_measured(parts):
    rows = parts.report.target_rows(
        [
            figure("ratio/slowest expand kernel", 0.75),
            figure("host/call=send/rows=256/median", 12.0),
            figure("host/call=send/rows=256/p99", 99.0),
        ]
    )

    by_name = {row[1]: row[0] for row in rows}
    assert by_name["slowest expand kernel over copies on the device"] == "**missed**"
    assert by_name["host cost of sending a batch, us"] == "met"
    assert by_name["pinned copies over PyTorch's best"] == "not measured"


def test_no_text_breaks_a_table(parts):
    assert parts.report.cell("a|b\nc") == "a\\|b c"
    assert len(parts.report.cell("x" * 5000)) < 700
