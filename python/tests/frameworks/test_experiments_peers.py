"""Experiments with frameworks that are installed."""

import json

import numpy as np
import pytest
from requirements import framework_test, import_or_skip

from infeed.experiments import command, machines, placement, tfrecord

pytestmark = framework_test


@pytest.fixture
def tf():
    return import_or_skip("tensorflow")


def test_all_loaders_do_the_same_job(tf, capsys):
    import_or_skip("keras")
    arguments = ["keras", "--quick", "--json", "--light-ms", "1", "--heavy-ms", "2"]

    assert command.main(arguments) == 0

    runs = json.loads(capsys.readouterr().out)["figures"]["runs"]
    assert len(runs) == 8
    assert not any("missing" in run for run in runs)
    assert all(len(run["epochs_s"]) == 2 for run in runs)


def test_tensorflow_reads_the_records_that_are_written(tf, tmp_path):
    path = tmp_path / "x.tfrecord"
    with open(path, "wb") as file:
        tfrecord.write(file, [tfrecord.example(image=bytes([n] * 9)) for n in range(3)])

    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    found = [
        tf.io.parse_single_example(record, features)["image"].numpy()
        for record in tf.data.TFRecordDataset(str(path))
    ]

    assert found == [bytes([n] * 9) for n in range(3)]


@pytest.fixture
def on_cpu():
    """Uses PyTorch's CPU in place of a device: the same calls, no bus."""
    torch = import_or_skip("torch")
    return machines.Device("made up", "PyTorch", torch, where="cpu")


def test_placement_measures_each_placement_on_a_device(on_cpu, monkeypatch, capsys):
    monkeypatch.setattr(placement, "device", lambda: (on_cpu, ""))
    arguments = ["placement", "--quick", "--json", "--side", "16"]
    arguments += ["--small-ms", "1", "--large-ms", "2"]

    assert command.main(arguments) == 0

    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["device"] == "made up"
    assert not figures["modelled"]
    assert len(figures["rows"]) == 6
    assert all(row["in_turn_s"] > 0 for row in figures["rows"])


def test_transfer_measures_resident_and_copied_operands(on_cpu, monkeypatch, capsys):
    from infeed.experiments import transfer

    monkeypatch.setattr(transfer, "device", lambda: (on_cpu, ""))

    assert command.main(["transfer", "--quick", "--json", "--sizes", "20,40"]) == 0

    rows = json.loads(capsys.readouterr().out)["figures"]["sizes"]
    assert all(row["resident_s"] > 0 and row["copying_s"] > 0 for row in rows)


def test_arrays_survive_a_round_trip_to_a_device(on_cpu):
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)

    there = on_cpu.put(array)

    np.testing.assert_array_equal(on_cpu.get(there), array)
    assert on_cpu.get(on_cpu.floats(there)).dtype == np.float32
