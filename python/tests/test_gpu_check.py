"""`scripts/gpu-check`, which a machine with a GPU runs, on the simulated device."""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import infeed
from infeed import _core

SCRIPT = Path(__file__).parents[2] / "scripts/gpu-check"


@pytest.fixture
def gpu_check():
    """The script as a module."""
    loader = SourceFileLoader("gpu_check", str(SCRIPT))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("gpu_check", loader)
    )
    # No cache beside a script.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(SCRIPT.parent))
        sys.dont_write_bytecode = before


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with the package that is tested."""
    path = str(Path(infeed.__file__).parents[1])
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_simulated_device_passes_and_gives_a_table_and_all_of_it_as_json(tmp_path):
    page = tmp_path / "docs/results.md"

    ran = run("--device", "sim", "--seconds", "0.3", "--out", str(page))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(page.with_suffix(".json").read_text())
    assert sum(check["part"] == "engine" for check in report["checks"]) == 13
    assert all(check["passed"] for check in report["checks"])
    assert any(f["name"].startswith("kernel/expand") for f in report["figures"])
    text = page.read_text()
    assert "**simulated device**" in text
    assert "| passed | every kernel gives the bytes of its host run |" in text
    assert "nvJPEG" in text.split("## Not measured")[1]


@pytest.mark.skipif(bool(json.loads(_core.cards())["cards"]), reason="a GPU is here")
def test_a_machine_without_a_gpu_is_told_so_with_status_2(tmp_path):
    ran = run("--out", str(tmp_path / "results.md"))

    assert ran.returncode == 2
    assert "no GPU here: " in ran.stderr
    assert "--device sim" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_none_is_a_failed_check(tmp_path):
    page = tmp_path / "results.md"

    ran = run("--device", "sim:speed=1", "--out", str(page))

    assert ran.returncode == 1
    assert "| **failed** | engine runs to its end |" in page.read_text()
    assert "speed" in page.read_text()


def test_a_part_that_fails_does_not_keep_the_others_from_being_told(gpu_check):
    report = {"machine": {}, "checks": [], "figures": [], "not_measured": {}}

    gpu_check.add(report, "engine", gpu_check.failed("engine ends", "it did not"))
    figures = [
        {"name": "copy/on=device/bytes=1", "value": 4.0, "unit": "GB/s"},
        {
            "name": "kernel/expand/to=bf16/layout=chw/rows=1",
            "value": 3.0,
            "unit": "GB/s",
        },
    ]
    gpu_check.add(report, "copies", {"figures": figures})
    gpu_check.derive(report)

    assert [check["passed"] for check in report["checks"]] == [False]
    ratios = {f["name"]: f["value"] for f in report["figures"] if "ratio" in f["name"]}
    assert ratios == {"ratio/kernel over copy on the device": 0.75}
    assert "ratio: pinned copy over PyTorch's best" in report["not_measured"]


def test_what_a_step_feels_of_the_kernels_is_a_share_of_their_time(gpu_check):
    report = {"figures": [], "not_measured": {}}
    # 115.6 MB at 1 GB/s are 115.6 ms; the step is longer by half of that.
    values = {
        "resnet50/fed by=infeed, floats on the device/step": 257.8,
        "resnet50/fed by=one batch that stays/step": 200.0,
        "kernel/expand/to=bf16/layout=hwc/rows=256": 1.0,
    }

    gpu_check.contention(report, values)

    alone, share = (figure["value"] for figure in report["figures"])
    assert alone == pytest.approx(115.6, abs=0.1)
    assert share == pytest.approx(0.5, abs=0.01)
