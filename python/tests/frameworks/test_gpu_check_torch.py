"""The parts of `scripts/gpu-check` that need PyTorch, as far as no GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import framework_test, imported

import infeed

torch = imported("torch")
pytestmark = framework_test

SCRIPTS = Path(__file__).parents[3] / "scripts"


def test_a_network_trains_on_what_every_loader_feeds():
    part = ["--device", "sim", "--part", "training", "--seconds", "1"]
    path = str(Path(infeed.__file__).parents[1])

    ran = subprocess.run(
        [sys.executable, str(SCRIPTS / "gpu-check"), *part],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert [check["passed"] for check in found["checks"]] == [True]
    ways = [f for f in found["figures"] if f["name"].endswith("/step")]
    assert len(ways) == 7
    assert all(way["value"] > 0 for way in ways)


def test_tensors_at_fixed_addresses_and_two_devices_pass(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from gpu_parts import places

    found = places.measure("sim", 1.0)

    assert len(found["checks"]) == 2
    assert all(check["passed"] for check in found["checks"]), found


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_machine_without_nvidias_decoder_is_told_why(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("INFEED_NVJPEG", "/nowhere/libnvjpeg.so")
    from gpu_parts import nvjpeg

    assert nvjpeg.candidates()[0] == "/nowhere/libnvjpeg.so"
    # Neither a library that is not there nor one without a card decodes.
    with pytest.raises(nvjpeg.Refused):
        nvjpeg.Decoder(nvjpeg.Library(), nvjpeg.BACKENDS["the engine"], 4)
