"""The arithmetic of `benchmarks/ledger.py`: coverage, tables, resuming, states."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

if not sys.platform.startswith("linux"):
    pytest.skip("the states of the machine need Linux", allow_module_level=True)

# `benchmarks/datasets.py` must not stand in the way of the package `datasets`.
installed = sys.modules.pop("datasets", None)
sys.path.insert(0, str(BENCHMARKS))
try:
    import groups
    import ledger
    import states
    from ledger_data import SAMPLES, Dataset
finally:
    sys.path.remove(str(BENCHMARKS))
    sys.modules.pop("datasets", None)
    if installed is not None:
        sys.modules["datasets"] = installed


def entry(mid, measured, half=0.1):
    predicted = {"low": mid * (1 - half), "mid": mid, "high": mid * (1 + half)}
    return {"remedy": "decoded", "predicted": predicted, "measured": measured}


def line(dataset="jpeg", state="idle", entries=(), foreign=0.0, **more):
    return {
        "dataset": dataset,
        "state": state,
        "held_out": False,
        "control": {"low": 0.9, "mid": 1.02, "high": 1.1},
        "foreign_cores": foreign,
        "entries": list(entries),
        **more,
    }


def test_coverage_is_the_share_of_measured_gains_in_their_intervals():
    entries = [entry(2.0, 2.1), entry(2.0, 2.5), entry(2.0, 1.8), entry(2.0, 1.7)]

    assert ledger.coverage(entries) == 0.5


def test_the_best_remedy_is_first_or_not_distinguished_from_the_first():
    def is_ranked(best):
        return ledger.ranks_best_first(line(entries=[entry(3.0, 2.0), best]))

    assert ledger.ranks_best_first(line(entries=[entry(3.0, 3.0), entry(2.0, 2.0)]))
    assert is_ranked(entry(2.8, 2.9))
    assert not is_ranked(entry(2.0, 2.9))


def test_a_row_has_errors_bias_coverage_width_and_control():
    lines = [
        line(entries=[entry(2.0, 2.5), entry(3.3, 3.0)]),
        line(entries=[entry(1.0, 1.0)]),
    ]

    row = ledger.row("all", lines)

    # Errors -20 %, +10 % and 0 %.
    cells = "| all | 2 | 3 | 10.0% | -20.0% | -3.3% | 67% | 10% | 2.0% |"
    assert row == cells


def test_the_table_separates_states_datasets_and_held_out_data():
    lines = [
        line(entries=[entry(2.0, 2.0)]),
        line("webp", "half", [entry(2.0, 2.0)], held_out=True),
        line("arrays", "memory", [], skipped="no control groups"),
        line("png", "cold", [], error="decoding failed"),
    ]

    text = ledger.report(lines)

    names = [row.split("|")[1].strip() for row in text.splitlines() if "|" in row]
    assert names[2:] == [
        "all",
        "data: for calibration",
        "data: held out",
        "state: half",
        "state: idle",
        "data: jpeg",
        "data: webp",
    ]
    assert "- arrays, memory: skipped, no control groups" in text
    assert "- png, cold: error, decoding failed" in text


def test_a_case_next_to_other_programs_is_not_idle():
    assert ledger.state_of(line(foreign=0.05)) == "idle"
    assert ledger.state_of(line(foreign=0.5)) == "idle, shared machine"
    assert ledger.state_of(line(state="half", foreign=None)) == "half"


def test_the_text_between_the_markers_is_replaced():
    page = f"a\n{ledger.BEGIN}\nold\n{ledger.END}\nz\n"

    assert ledger.between(page, "new") == f"a\n{ledger.BEGIN}\nnew\n{ledger.END}\nz\n"
    with pytest.raises(SystemExit, match="no lines"):
        ledger.between("a\n", "new")


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    """Fills a matrix with invented results; returns the function and the cases run."""
    ran = []

    def run(_args, dataset, state):
        ran.append((dataset.name, state))
        if state == "memory":
            return {"skipped": "no control groups"}
        return {"entries": [entry(2.0, 2.0 if state == "idle" else 3.0)]}

    monkeypatch.setattr(ledger, "run", run)
    monkeypatch.setattr(ledger, "datasets_of", lambda _args: DATASETS)

    def main(*arguments):
        files = ["--data", str(tmp_path), "--file", str(tmp_path / "cases.jsonl")]
        monkeypatch.setattr(sys, "argv", ["ledger.py", *files, *arguments])
        return ledger.main()

    return main, ran, tmp_path / "cases.jsonl"


DATASETS = [Dataset(name, ("decoded",), None) for name in ("jpeg", "png")]


def test_cases_in_the_file_are_not_run_again(matrix):
    main, ran, file = matrix

    assert main("--states", "idle", "--cases", "jpeg") == 0
    assert main("--states", "idle") == 0

    assert ran == [("jpeg", "idle"), ("png", "idle")]
    assert len(file.read_text().splitlines()) == 2


def test_a_skipped_case_is_reported_and_run_again(matrix, capsys):
    main, ran, _ = matrix

    for _ in range(2):
        assert main("--states", "memory", "--cases", "jpeg") == 0

    assert ran == [("jpeg", "memory")] * 2
    assert "- jpeg, memory: skipped, no control groups" in capsys.readouterr().out


def test_low_coverage_is_an_error(matrix, capsys):
    main, _, _ = matrix

    assert main("--states", "idle", "half") == 1

    assert "50% of the measured gains" in capsys.readouterr().err


def test_no_case_starts_after_the_time_limit(matrix, capsys):
    main, ran, file = matrix

    assert main("--limit-minutes", "0") == 0

    assert ran == []
    assert not file.exists()
    assert "no cases yet" in capsys.readouterr().out


def test_the_last_line_of_a_case_counts(tmp_path):
    file = tmp_path / "cases.jsonl"
    lines = [line(error="failed"), line("png"), line(entries=[entry(1.0, 1.0)])]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))

    assert [each["dataset"] for each in ledger.read(file)] == ["jpeg", "png"]
    assert "error" not in ledger.read(file)[0]


def test_a_dataset_that_fits_the_least_memory_is_skipped(tmp_path):
    (tmp_path / "0.jpg").write_bytes(bytes(1000))

    with (
        pytest.raises(states.SkippedError, match="less than"),
        states.enter("memory", tmp_path),
    ):
        pass


def test_a_state_without_control_groups_is_skipped(tmp_path, monkeypatch):
    (tmp_path / "0.jpg").write_bytes(bytes(1000))
    monkeypatch.setattr(states, "LEAST_MEMORY", 100)
    monkeypatch.setattr(groups, "ROOT", tmp_path / "none")

    with (
        pytest.raises(states.SkippedError, match="cannot limit memory"),
        states.enter("memory", tmp_path),
    ):
        pass


def test_limits_are_written_in_both_versions_of_control_groups():
    limits = {"cores": 0.5, "memory": 1 << 20, "read": ("8:0", 40)}

    assert groups.settings(2, **limits) == {
        "cpu": {"cpu.max": "5000 10000"},
        "memory": {"memory.max": "1048576"},
        "io": {"io.max": "8:0 rbps=40"},
    }
    assert groups.settings(1, **limits) == {
        "cpu": {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "5000"},
        "memory": {"memory.limit_in_bytes": "1048576"},
        "blkio": {"blkio.throttle.read_bps_device": "8:0 40"},
    }


def test_the_load_of_a_state_ends_with_it(tmp_path):
    (tmp_path / "0.jpg").write_bytes(bytes(1000))

    with states.enter("one-core", tmp_path):
        during = states.multiprocessing.active_children()

    assert len(during) == 1
    assert not during[0].is_alive()


def test_samples_have_at_least_six_kinds_and_some_are_held_out():
    assert len({dataset.name for dataset in SAMPLES}) >= 6
    assert any(dataset.held_out for dataset in SAMPLES)
    assert not all(dataset.held_out for dataset in SAMPLES)


def test_a_failed_command_is_an_error_with_its_last_line():
    command = [sys.executable, "-c", "import sys; sys.exit('bad: reason')"]

    found = ledger.run_explain(command, lambda: None)

    assert found == {"error": "bad: reason"}


def test_a_missing_library_skips_a_dataset(tmp_path):
    def make(_infeed, _path):
        raise ImportError("no module named PIL")

    args = Namespace(infeed="infeed", data=tmp_path, remedies=None)

    found = ledger.run(args, Dataset("webp", (), make), "idle")

    assert "install Pillow" in found["skipped"]
