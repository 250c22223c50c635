"""The steps of `scripts/gpu-check` that need PyTorch and no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import framework_test, import_or_skip

import infeed

torch = import_or_skip("torch")
pytestmark = framework_test

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def parts(monkeypatch):
    """The package with the parts of the script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    # No caches next to scripts.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import gpu_parts.findings
    import gpu_parts.nvjpeg
    import gpu_parts.steps

    return gpu_parts


def test_steps_of_pytorch_pass_on_the_simulated_device(parts, tmp_path):
    script, page = str(SCRIPTS / "gpu-check"), tmp_path / "report.md"
    steps = "^PyTorch$|training|exit|leaks|workers|host's time|automatic|next to"
    options = ["--device", "sim", "--quick", "--steps", steps]
    path = str(Path(infeed.__file__).parents[1])

    ran = subprocess.run(
        [sys.executable, script, *options, "--report", str(page)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = parts.findings.read(page.with_suffix(".jsonl"))
    outcomes = {one["name"]: one["outcome"] for one in found if one["kind"] == "step"}
    assert set(outcomes.values()) == {"passed"}
    assert len(outcomes) == 8
    checks = [one for one in found if one["kind"] == "check"]
    training = [one for one in checks if one["step"] == "training"]
    assert len(training) == 9
    assert {one["outcome"] for one in training} == {"passed"}
    ratios = [one["value"] for one in found if "over resident" in one["name"]]
    assert len(ratios) == 9
    assert all(ratio > 0 for ratio in ratios)
    at_addresses = [one["outcome"] for one in checks if one["step"] == "PyTorch"]
    assert sorted(at_addresses) == ["not_run"] * 4 + ["passed"] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_nvidias_decoder_reports_the_reason(
    parts, tmp_path, monkeypatch
):
    monkeypatch.setenv("INFEED_NVJPEG", "/nowhere/libnvjpeg.so")
    nvjpeg = parts.nvjpeg
    settings = parts.steps.Settings("cuda:0", "quick", tmp_path, SCRIPTS.parent)
    findings = parts.findings.Findings(tmp_path / "found.jsonl", "nvJPEG alone")

    assert nvjpeg.candidates(settings) == ["/nowhere/libnvjpeg.so"]
    with pytest.raises(nvjpeg.LibraryError, match="nowhere"):
        nvjpeg.Library(settings)
    nvjpeg.measure(findings, settings)

    (note,) = parts.findings.read(findings.path)
    assert (note["kind"], note["detail"]) == ("note", "PyTorch sees no GPU")
