"""Experiments in their quick form: structure and arithmetic, not timings."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

import infeed
from infeed import _cli
from infeed.experiments import (
    command,
    formats,
    machines,
    measuring,
    overlap,
    peers,
    placement,
    tfrecord,
    transfer,
)
from infeed.experiments.result import Result, Table
from infeed.watching.processor import ProcessorTimes


def run_experiment(capsys, *arguments: str) -> dict:
    """Figures of an experiment in its quick form."""
    status = command.main([*arguments, "--quick", "--json"])

    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1
    assert found["name"] == arguments[0]
    assert found["tables"]
    assert found["meaning"]
    for table in found["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    return found["figures"]


@pytest.mark.parametrize("name", ["overlap", "transfer", "formats", "placement"])
def test_an_experiment_prints_its_table_and_its_meaning(capsys, name):
    assert command.main([name, "--quick"]) == 0

    text = capsys.readouterr().out
    assert text.splitlines()[0].endswith("?")
    assert any(line.startswith("- ") for line in text.splitlines())


def test_overlap_predicts_from_both_times_and_draws_the_threads(capsys):
    figures = run_experiment(capsys, "overlap", "--load-ms", "4", "--step-ms", "6")

    load_s, step_s = figures["load_s"], figures["step_s"]
    by_name = {variant["name"]: variant for variant in figures["variants"]}
    assert by_name["in turn"]["predicted_s"] == pytest.approx(load_s + step_s)
    for variant in figures["variants"][1:]:
        longest_s = max(variant["loading_s"], step_s)
        assert variant["predicted_s"] == pytest.approx(longest_s)
        assert variant["predicted_gain"] == pytest.approx((load_s + step_s) / longest_s)
    assert all(variant["measured_s"] >= step_s / 2 for variant in figures["variants"])


def test_overlap_yields_batches_in_order_after_they_are_loaded():
    spans: list[overlap.Span] = []

    overlap._loop(lambda: None, lambda: None, 20, 3, spans)

    steps = [span for span in spans if span.thread == "step"]
    loads = {span.batch: span for span in spans if span.thread != "step"}
    assert [span.batch for span in steps] == list(range(20))
    assert sorted(loads) == list(range(20))
    assert all(loads[step.batch].end_s <= step.end_s for step in steps)


def test_without_overlap_load_and_step_alternate():
    spans: list[overlap.Span] = []

    overlap._loop(lambda: None, lambda: None, 5, 0, spans)

    ordered = [(span.thread, span.batch) for span in spans]
    assert ordered == [(who, n) for n in range(5) for who in ("load", "step")]
    assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(spans))


def test_transfer_without_a_device_reports_the_missing_rows(capsys, monkeypatch):
    monkeypatch.setattr(transfer, "device", lambda: (None, "PyTorch sees no device"))

    assert command.main(["transfer", "--quick"]) == 0

    text = capsys.readouterr().out
    assert "There are no rows for a device: PyTorch sees no device. --on NAME" in (
        " ".join(text.split())
    )
    assert "modelled" not in text.splitlines()[2]


def test_transfer_on_an_unusable_gpu_reports_the_reason(capsys, monkeypatch):
    monkeypatch.setattr(
        transfer, "device", lambda number: (None, "PyTorch sees no device")
    )

    assert command.main(["transfer", "--quick", "--device", "cuda:3"]) == 1

    assert "cuda:3 cannot be used: PyTorch sees no device" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(machines.PROFILES))
def test_transfer_models_a_named_device(capsys, name):
    figures = run_experiment(capsys, "transfer", "--on", name, "--launch-us", "10")

    profile = machines.PROFILES[name]
    for row in figures["sizes"]:
        copies_s = 3 * (10e-6 + row["bytes"] / 3 / profile.bus_bytes_per_s)
        assert row["cpu_low_s"] <= row["cpu_s"] <= row["cpu_high_s"]
        assert row["model_copying_s"] == pytest.approx(
            row["model_resident_s"] + copies_s
        )
    assert [row["n"] for row in figures["sizes"]] == [50, 100, 200]


def test_a_modelled_product_takes_the_longer_time_of_arithmetic_and_memory():
    profile = machines.Profile("x", "x", 1e9, 0.0, 1e12, 1e11, "x")

    assert profile.product_s(1000) == pytest.approx(2e9 / 1e12)
    assert profile.product_s(10) == pytest.approx(1200 / 1e11)


def test_formats_measures_all_six(capsys):
    figures = run_experiment(capsys, "formats")

    by_name = {f["name"]: f for f in figures["formats"]}
    assert list(by_name) == ["PNG", "JPEG", "TFRecord", "tar", ".npy", ".npz"]
    assert by_name[".npy"]["bytes"] > figures["pixel_bytes"]
    assert by_name["JPEG"]["bytes"] < by_name["PNG"]["bytes"]
    assert by_name["TFRecord"]["bytes"] > by_name["JPEG"]["bytes"]
    assert all(one["infeed_samples_per_s"] > 0 for one in by_name.values())


def test_every_format_restores_the_images(tmp_path):
    images = [np.full((16, 24, 3), 40 * n, np.uint8) for n in range(5)]

    for kind in formats._write_formats(images, tmp_path, quality=100):
        data = [path.read_bytes() for path in kind.files]
        found = [kind.decode(image) for image in kind.extract(data)]
        assert len(found) == 5, kind.name
        for image, decoded in zip(images, found, strict=True):
            assert np.abs(image.astype(int) - decoded).max() <= 1, kind.name


def test_formats_accepts_a_folder_and_rejects_an_empty_one(
    capsys, tmp_path, classification
):
    figures = run_experiment(capsys, "formats", "--data", str(classification.path))
    assert figures["images"] == 4

    assert command.main(["formats", "--data", str(tmp_path)]) == 1
    assert f"{tmp_path} holds no images" in capsys.readouterr().err


def test_formats_reads_a_folder_with_a_link_to_itself_once(
    capsys, tmp_path, classification
):
    photo = next(classification.path.rglob("*.jpg"))
    (tmp_path / "photo.jpg").write_bytes(photo.read_bytes())
    (tmp_path / "again").symlink_to(tmp_path)

    figures = run_experiment(capsys, "formats", "--data", str(tmp_path))

    assert figures["images"] == 1


def test_formats_rejects_folders_that_links_multiply(capsys, tmp_path):
    for level in range(26):
        folder = tmp_path / f"{level:02}"
        folder.mkdir()
        for name in "ab" if level < 25 else "":
            (folder / name).symlink_to(f"../{level + 1:02}")

    assert command.main(["formats", "--data", str(tmp_path)]) == 1

    assert "links lead to one folder by more than 100 paths" in capsys.readouterr().err


def test_without_pillow_formats_names_the_package_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)

    assert command.main(["formats", "--quick"]) == 1

    assert "pip install pillow" in capsys.readouterr().err


def test_placement_without_a_device_is_modelled_and_labelled(capsys):
    figures = run_experiment(capsys, "placement", "--on", "h100", "--small-ms", "0.1")

    assert figures["modelled"]
    costs = figures["costs"]
    assert costs["host"]["bus_bytes"] == 4 * costs["device"]["bus_bytes"]
    assert costs["bounced"]["bus_bytes"] == 9 * costs["device"]["bus_bytes"]
    for row in figures["rows"]:
        assert row["overlapped_s"] <= row["in_turn_s"]
        assert row["overlapped_s"] >= figures["steps_s"][row["model"]]
    text = command.main(["placement", "--quick", "--on", "h100"])
    assert text == 0
    assert "modelled, not measured" in capsys.readouterr().out


def test_placement_runs_infeed_on_a_simulated_device_and_labels_it(capsys):
    figures = run_experiment(
        capsys, "placement", "--device", "sim:bandwidth=1e8", "--side", "64",
        "--small-ms", "1", "--large-ms", "40",
    )  # fmt: skip

    assert figures["simulated"]
    assert not figures["modelled"]
    found = {(row["model"], row["variant"]): row for row in figures["rows"]}
    floats, crossed = found["small", "host"], found["small", "device"]
    assert crossed["bus_bytes"] == 4 * 64 * 64 * 3
    assert floats["bus_bytes"] == 4 * crossed["bus_bytes"]
    assert crossed["copies"] == 1
    assert all(row["overlapped_s"] > 0 for row in figures["rows"])
    status = command.main(["placement", "--quick", "--device", "sim"])
    assert status == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "simulated, small model" in text
    assert "not those of a GPU" in text


def test_placement_rejects_an_unknown_device(capsys):
    assert command.main(["placement", "--quick", "--device", "moon"]) == 1

    assert "is not a device" in capsys.readouterr().err


def test_normalized_follows_the_formula():
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)

    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (pixels / 255 - mean) / std
    np.testing.assert_allclose(placement.normalize(pixels), expected, atol=1e-6)


def test_keras_runs_infeed_and_names_missing_packages(capsys, monkeypatch):
    figures = run_experiment(capsys, "keras", "--loaders", "infeed", "--light-ms", "1",
                  "--heavy-ms", "2")  # fmt: skip

    runs = figures["runs"]
    assert [(r["loader"], r["step"]) for r in runs] == [
        ("infeed", "light"),
        ("infeed", "heavy"),
    ]
    assert all(len(r["epochs_s"]) == 2 and 0 <= r["waiting"] <= 1 for r in runs)


def test_a_folder_without_images_is_an_error_with_its_name(capsys, tmp_path):
    assert command.main(["keras", "--data", str(tmp_path)]) == 1

    assert f"{tmp_path} has no images" in capsys.readouterr().err


def test_a_missing_framework_raises_with_the_install_command():
    with pytest.raises(measuring.MissingError, match="pip install nosuchthing"):
        measuring.require("nosuchthing", "nosuchthing", "this")


def test_peers_check_the_shapes_of_their_batches():
    job = {"peer": "x", "batch": 2, "side": 4, "palette": [[0, 0, 0]]}

    with pytest.raises(ValueError, match="gave batches of"):
        peers._check(job, (np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 4, 7))))


def test_crc32c_follows_the_standard():
    # RFC 3720, B.4.
    assert tfrecord.crc32c(b"123456789") == 0xE3069283
    assert tfrecord.crc32c(bytes(32)) == 0x8A9136AA
    assert tfrecord.crc32c(bytes(range(32))) == 0x46DD794E


def test_records_and_examples_survive_a_round_trip(tmp_path):
    records = [
        tfrecord.example(image=bytes([n]) * (300 * n), mask=b"m") for n in range(4)
    ]
    path = tmp_path / "x.tfrecord"
    with open(path, "wb") as file:
        tfrecord.write(file, records)

    found = list(tfrecord.read(path.read_bytes(), verify=True))

    assert found == records
    assert tfrecord.fields_of(found[3]) == {"image": b"\x03" * 900, "mask": b"m"}


@pytest.mark.parametrize("place", [3, 9, 40])
def test_a_damaged_record_is_an_error_with_its_position(tmp_path, place):
    path = tmp_path / "x.tfrecord"
    with open(path, "wb") as file:
        tfrecord.write(file, [bytes(60)])
    data = bytearray(path.read_bytes())
    data[place] ^= 1

    with pytest.raises(infeed.errors.DecodeError, match="byte 0"):
        list(tfrecord.read(bytes(data), verify=True))
    with pytest.raises(infeed.errors.DecodeError, match="cut short"):
        list(tfrecord.read(path.read_bytes()[:-1], verify=True))


def test_the_console_script_runs_experiments(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["infeed", "experiment", "--help"])

    assert _cli.main() == 0

    text = capsys.readouterr().out
    for name in command.EXPERIMENTS:
        assert f"\n  {name} " in text


def test_help_works_as_for_other_commands(capsys, monkeypatch):
    for arguments, shown in (
        (["help", "experiment"], "usage: infeed experiment [-h] NAME"),
        (["help", "experiment", "overlap"], "usage: infeed experiment overlap"),
    ):
        monkeypatch.setattr(sys, "argv", ["infeed", *arguments])
        assert _cli.main() == 0
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["overlap", "--batches", "0"],
        ["transfer", "--on", "moon"],
        ["transfer", "--device", "sim"],
        ["placement", "--device", "sim", "--on", "h100"],
    ],
)
def test_invalid_arguments_are_a_usage_error(capsys, arguments):
    assert command.main(arguments) == 2
    assert "usage: infeed experiment" in capsys.readouterr().err


def test_ctrl_c_ends_an_experiment_without_a_traceback(capsys, monkeypatch):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(overlap, "run", interrupt)

    assert command.main(["overlap"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_experiment_loads_only_the_frameworks_it_needs():
    code = (
        "import sys; from infeed.experiments import command; "
        "command.main(['overlap', '--quick']); "
        "print(sorted({'torch', 'tensorflow', 'keras', 'PIL'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert ended.stdout.splitlines()[-1] == "[]"


def test_a_result_reports_the_load_of_other_programs():
    before = ProcessorTimes(10.0, 1.0, 0.0, 2.0, 100.0)
    after = ProcessorTimes(20.0, 4.0, 0.0, 3.0, 120.0)

    assert command.others(before, after) == pytest.approx(1.6)

    result = command._with_other_load(Result("x", "?", [], ["a"], {}), 1.6)
    assert "1.6 of" in result.meaning[-1]
    assert result.figures["other_cores"] == 1.6
    assert command._with_other_load(result, 0.01).meaning == result.meaning


def test_columns_are_aligned_with_their_titles():
    table = Table(["name", "rate"], [["a", "1"], ["long name", "12.5"]], "a title")

    assert table.text().splitlines() == [
        "a title",
        "name       rate",
        "a             1",
        "long name  12.5",
    ]
    assert "- said" in Result("x", "What?", [table], ["said"], {}).text()


def test_interleaved_runs_begin_with_another_contender_each_turn():
    seen: list[str] = []

    def note(name: str) -> float:
        seen.append(name)
        return 0.0

    measuring.interleave({"a": lambda: note("a"), "b": lambda: note("b")}, 2)

    assert seen == ["a", "b", "b", "a"]
