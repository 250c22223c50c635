"""Explanations of loops with batches on a device."""

import json
import subprocess
import sys

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T

ROWS = 4
SIDE = 24
COMMAND = [sys.executable, "-c", "import infeed._cli as c, sys; sys.exit(c.main())"]


@pytest.fixture
def photos():
    pixels = np.random.default_rng(0).integers(
        0, 256, (12, SIDE, SIDE, 3), dtype=np.uint8
    )
    made = infeed.Pipeline(sources.Memory(image=pixels, label=np.arange(12)))
    normalize = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)
    return made.transform(normalize).batch(ROWS)


def explain_loop(loader, epochs=2):
    for _ in range(epochs):
        for batch in loader:
            np.from_dlpack(batch.array("image"))
    return loader.explain()


def test_a_loop_on_a_device_reports_its_copies(photos):
    with photos.open(device="sim") as loader:
        found = explain_loop(loader)

    crossed = found.to_dict()["transfers"]
    assert crossed["simulated"]
    assert crossed["delivered"] == 6
    fields = {field["name"]: field for field in crossed["fields"]}
    assert fields["image"]["row_bytes"] == SIDE * SIDE * 3
    assert fields["image"]["device_bytes"] == 4 * SIDE * SIDE * 3
    assert fields["label"]["row_bytes"] == 8
    assert crossed["copies"] == 2 * crossed["batches"]
    assert crossed["bytes"] == crossed["batches"] * ROWS * (SIDE * SIDE * 3 + 8)
    assert "one batch per step to sim, simulated (image and label: 2 copies" in (
        " ".join(str(found).split())
    )


def test_floats_that_cross_the_bus_are_reported_as_floats(photos):
    with photos.open(device="sim", placement="host") as loader:
        crossed = explain_loop(loader).to_dict()["transfers"]

    image = crossed["fields"][0]
    assert image["row_bytes"] == image["device_bytes"] == 4 * SIDE * SIDE * 3


def test_a_running_loop_reports_the_rate_of_a_slow_bus(photos):
    with photos.open(device="sim:bandwidth=1e6,latency=1us") as loader:
        found = explain_loop(loader, epochs=4)

    # Waits of the loop for the device count as its step here: its stream is unknown, so
    # they were not measured.
    resources = {r["limit"]: r for r in found.to_dict()["resources"]}
    expected = 1e6 / (SIDE * SIDE * 3 + 8)
    assert resources["copy"]["rate"]["mid"] == pytest.approx(expected, rel=0.1)


def test_a_loop_on_the_host_sends_nothing(photos):
    with photos.open() as loader:
        for _ in loader:
            pass
        found = loader.explain().to_dict()

    assert "transfers" not in found
    assert "placement" not in found


def test_the_command_line_reports_the_best_placement(classification, tmp_path):
    page, description = tmp_path / "report.html", tmp_path / "small.toml"
    pipeline = infeed.Pipeline(sources.Folder(classification.path)).decode()
    small = pipeline.transform(T.Resize((SIDE, SIDE)), T.ToFloat("image"))
    small.batch(4).save(description)
    reported = subprocess.run(
        [
            *COMMAND, "explain", str(description),
            "--device", "sim:bandwidth=1e6,latency=1us", "--seconds", "0.3",
            "--no-remedies", "--json", "--html", str(page),
        ],
        capture_output=True, check=True, text=True,
    )  # fmt: skip

    found = json.loads(reported.stdout)
    assert found["placement"]["chosen"] == "device"
    assert found["placement"]["origin"] == "simulated"
    assert found["verdict"]["limit"] == "copy"
    assert found["transfers"]["copies"] >= found["transfers"]["batches"]
    assert "Placement of the work" in page.read_text()


def test_the_command_line_reports_the_gain_of_a_decoder(classification, tmp_path):
    page, description = tmp_path / "report.html", tmp_path / "small.toml"
    pipeline = infeed.Pipeline(sources.Folder(classification.path)).decode()
    crop = T.RandomResizedCrop(SIDE)
    pipeline.transform(crop, T.ToFloat("image")).batch(4).save(description)
    reported = subprocess.run(
        [
            *COMMAND, "explain", str(description),
            "--device", "sim:jpeg=2e5,latency=1us", "--decode", "1/16",
            "--seconds", "0.05", "--no-remedies", "--json", "--html", str(page),
        ],
        capture_output=True, check=True, text=True,
    )  # fmt: skip

    found = json.loads(reported.stdout)
    assert found["decoding"]["now"] == 1
    assert [row["share"] for row in found["decoding"]["candidates"]][-1] == 16
    assert found["decoding"]["candidates"][-1]["binding"] == "decoder"
    assert "JPEG decoding" in page.read_text()


def test_the_plan_shows_the_work_of_the_device(classification):
    pipeline = infeed.Pipeline(sources.Folder(classification.path)).decode()
    crop = T.RandomResizedCrop(SIDE)
    normalize = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)
    pipeline = pipeline.transform(crop, normalize).batch(ROWS)

    assert "after the transfer" not in pipeline.explain()
    assert pipeline.explain(placement="host") == pipeline.explain()
    assert "after the transfer" in pipeline.explain(placement="device")
    resized = pipeline.explain(placement="device-resize")
    device = [line for line in resized.splitlines() if line.startswith("  device")]
    assert "RandomResizedCrop" in device[0]
    assert "baseline JPEGs on the device" in pipeline.explain(decode="gpu")
    assert "of 5 in 16 records on the device" in pipeline.explain(decode=5 / 16)
    with pytest.raises(infeed.errors.ConfigError, match="device-resize"):
        pipeline.explain(placement="host", decode="gpu")
    with pytest.raises(infeed.errors.ConfigError, match="placement"):
        pipeline.explain(placement="moon")
    with pytest.raises(infeed.errors.ConfigError, match='decode must be "auto"'):
        pipeline.explain(decode="moon")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "moon"], "is not a device"),
        (["--device", "sim", "--on", "h100x8"], "use one of the two"),
    ],
)
def test_invalid_devices_raise(classification, arguments, message):
    path = str(classification.path)
    reported = subprocess.run(
        [*COMMAND, "explain", path, *arguments],
        capture_output=True, text=True,
    )  # fmt: skip

    assert reported.returncode != 0
    assert message in " ".join(reported.stderr.split())
