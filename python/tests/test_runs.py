"""Records of what loaders deliver, and their comparison."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T

ROWS = 4


class Epochs:
    """A loader of shuffled numbers with images, for any number of epochs."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def __iter__(self) -> Iterator[dict]:
        for at in range(0, len(self.order), ROWS):
            ids = self.order[at : at + ROWS]
            images = np.stack([np.full((3, 5, 7), n, np.uint8) for n in ids])
            yield {"image": images, "id": np.array(ids)}

    def __len__(self) -> int:
        return -(-len(self.order) // ROWS)


def record(path: Path, order: list[int], **options) -> Path:
    for _ in infeed.runs.certify(Epochs(order), path, **options):
        pass
    return path


def order(epochs: int = 2, records: int = 24) -> list[int]:
    random = np.random.default_rng(0)
    return [int(n) for _ in range(epochs) for n in random.permutation(records)]


@pytest.mark.parametrize("ids", [None, "id", lambda batch: batch["id"]])
def test_equal_runs_are_equal(tmp_path, ids):
    one = record(tmp_path / "one", order(), ids=ids)
    two = record(tmp_path / "two", order(), ids=ids)

    assert infeed.runs.compare_runs(one, two) is None
    assert infeed.runs.compare_runs(one, Epochs(order()), ids=ids) is None


@pytest.mark.parametrize("ids", [None, "id"])
def test_a_lost_sample_is_named(tmp_path, ids):
    whole = order(epochs=1)
    lost = whole.pop(9)
    one = record(tmp_path / "one", order(epochs=1), ids=ids)

    difference = infeed.runs.compare_runs(one, record(tmp_path / "two", whole, ids=ids))

    assert (difference.step, difference.row) == (2, 1)
    assert difference.lost == 1
    assert "is lost" in str(difference)
    if ids:
        assert difference.expected == str(lost)
        assert f"Sample {lost}, which is expected there, is lost." in str(difference)


def test_a_doubled_sample_is_named_with_both_places(tmp_path):
    changed = order(epochs=1)
    changed.insert(14, changed[3])
    one = record(tmp_path / "one", order(epochs=1), ids="id")

    difference = infeed.runs.compare_runs(one, Epochs(changed), ids="id")

    assert (difference.step, difference.row) == (3, 2)
    assert difference.found == str(changed[3])
    assert (difference.lost, difference.doubled) == (0, 1)
    assert "already delivered in step 0, row 3" in str(difference)


def test_two_swapped_samples_are_named_with_their_places(tmp_path):
    changed = order(epochs=1)
    changed[5], changed[18] = changed[18], changed[5]
    one = record(tmp_path / "one", order(epochs=1), ids="id")

    difference = infeed.runs.compare_runs(one, Epochs(changed), ids="id")

    assert (difference.lost, difference.doubled, difference.moved) == (0, 0, 2)
    assert f"Sample {changed[18]}" in str(difference)
    assert "is in step 4, row 2" in str(difference)
    assert f"Sample {changed[5]} is there; it is expected in step 4" in str(difference)


def test_one_changed_value_in_one_sample_is_found(tmp_path):
    rng = np.random.default_rng(0)
    for shape, dtype in [((8, 8), np.uint8), ((3, 200, 200), np.float32), ((), int)]:
        batch = rng.integers(0, 200, (ROWS, *shape)).astype(dtype)
        list(infeed.runs.certify([(batch,)], tmp_path / "one"))
        flat = batch.reshape(ROWS, -1)
        for place in {0, flat.shape[1] - 1}:
            changed = flat.copy()
            changed[2, place] += 1
            other = [(changed.reshape(batch.shape),)]
            difference = infeed.runs.compare_runs(tmp_path / "one", other)
            assert (difference.step, difference.row) == (0, 2)


def test_a_run_that_continues_is_added_to_its_record(tmp_path):
    whole = order()
    one = record(tmp_path / "one", whole)
    two = record(tmp_path / "two", whole[: 7 * ROWS])
    # The last two steps before the end are repeated after a restart.
    record(two, whole[5 * ROWS :], start=5)

    assert infeed.runs.compare_runs(one, two) is None
    steps = [json.loads(line) for line in two.read_text().splitlines()[1:]]
    assert [line["step"] for line in steps] == [*range(7), *range(5, 12)]


def test_a_loader_that_repeats_after_a_restart_is_caught(tmp_path):
    whole = order(epochs=1)
    one = record(tmp_path / "one", whole, ids="id")
    # Restarts at step 3, but delivers the rows of step 2 again.
    two = record(tmp_path / "two", whole[: 3 * ROWS], ids="id")
    record(two, whole[2 * ROWS :], start=3, ids="id")

    difference = infeed.runs.compare_runs(one, two)

    assert difference.step == 3
    assert (difference.doubled, difference.lost) == (ROWS, 0)


def test_a_killed_program_leaves_a_record_of_its_steps(tmp_path):
    program = """
import os, sys, signal, numpy as np, infeed
batches = [(np.full((4, 3), n),) for n in range(100)]
for step, batch in enumerate(infeed.runs.certify(batches, sys.argv[1])):
    if step == 20:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "record"
    subprocess.run([sys.executable, "-c", program, path], check=False)
    lines = path.read_bytes()

    whole = [(np.full((4, 3), n),) for n in range(100)]
    assert lines.count(b"\n") == 22
    assert infeed.runs.compare_runs(path, whole) is None
    path.write_bytes(lines[:-5])
    assert infeed.runs.compare_runs(path, whole) is None


def test_a_pipeline_of_infeed_and_its_resumed_run_are_equal(classification, tmp_path):
    pipeline = infeed.Pipeline(sources.Folder(str(classification.path))).shuffle(seed=1)
    pipeline = pipeline.decode().transform(T.RandomResizedCrop(16)).batch(3)
    with pipeline.open() as loader:
        for _ in infeed.runs.certify(loader, tmp_path / "whole"):
            pass
    with pipeline.open() as loader:
        certified = infeed.runs.certify(loader, tmp_path / "parts")
        iterator = iter(certified)
        next(iterator), next(iterator)
        state = certified.state_dict()
        step = certified.step
    with pipeline.open() as loader:
        loader.load_state_dict(state)
        for _ in infeed.runs.certify(loader, tmp_path / "parts", start=step):
            pass

    assert infeed.runs.compare_runs(tmp_path / "whole", tmp_path / "parts") is None
    other = infeed.runs.compare_runs(
        tmp_path / "whole", pipeline.shuffle(seed=2).open()
    )
    assert other is not None
    assert other.step == 0


def test_a_line_is_short_and_attributes_are_those_of_the_loader(tmp_path):
    batches = Epochs(order())
    certified = infeed.runs.certify(batches, tmp_path / "record")
    assert len(certified) == len(batches)
    assert certified.order is batches.order
    for _ in certified:
        pass

    line = (tmp_path / "record").read_text().splitlines()[-1]
    assert len(line) < 30 + 12 * ROWS


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((1, 2.5), "no arrays"),
        ({"a": np.zeros((3, 2)), "b": np.zeros(4)}, "field b of a batch has 4 rows"),
    ],
)
def test_a_batch_without_equal_rows_raises_an_error(batch, message, tmp_path):
    with pytest.raises(infeed.errors.ConfigError, match=message):
        next(iter(infeed.runs.certify([batch], tmp_path / "record")))


def test_records_that_cannot_be_compared_raise_an_error(tmp_path):
    one = record(tmp_path / "one", order())
    two = record(tmp_path / "two", order(), ids="id")
    late = record(tmp_path / "late", order(), start=50)
    with pytest.raises(
        infeed.errors.ConfigError, match="one run has hashes of contents and"
    ):
        infeed.runs.compare_runs(one, two)
    with pytest.raises(infeed.errors.ConfigError, match="no step is in both runs"):
        infeed.runs.compare_runs(one, late)
    with pytest.raises(infeed.errors.ConfigError, match="a batch has no 'name'"):
        record(tmp_path / "three", order(), ids="name")
    for content, problem in [
        (b"", "other: it has no complete first line"),
        (b"\n", "not a run record"),
        (b"{}\n", "not a run record"),
        (b"\x00\xff\n", "not a run record"),
        (b"[1]\n", "not a run record"),
        (
            b'{"infeed_certificate":1}\n',
            "record the run again with infeed.runs.certify",
        ),
        (b'{"infeed_digests":1}\n', "write it again with infeed verify --write"),
    ]:
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(infeed.errors.ConfigError, match=problem):
            infeed.runs.compare_runs(one, tmp_path / "other")
    text = one.read_bytes()
    for bad in (
        b'{"step":1}\n',
        b'{"step":"x","hashes":""}\n',
        b'{"step":1,"hashes":"?"}\n',
        b'{"step":1,"ids":["a"]}\n',
    ):
        (tmp_path / "other").write_bytes(text + bad)
        with pytest.raises(infeed.errors.ConfigError, match="line 14"):
            infeed.runs.compare_runs(one, tmp_path / "other")


def test_a_run_continues_a_record_with_a_torn_last_line(tmp_path):
    whole = record(tmp_path / "whole", list(range(16)))
    torn = record(tmp_path / "torn", list(range(12)))
    torn.write_bytes(torn.read_bytes()[:-5])
    record(torn, list(range(8, 16)), start=2)
    assert infeed.runs.compare_runs(whole, torn) is None
    assert torn.read_bytes() == whole.read_bytes()

    header = tmp_path / "header"
    header.write_bytes(b'{"infeed_run_re')
    record(header, list(range(8, 16)), start=2)
    assert infeed.runs.compare_runs(whole, header, common=True) is None


def test_a_run_continues_no_file_of_another_kind(tmp_path):
    other = tmp_path / "precious"
    other.write_bytes(b"no line end")

    with pytest.raises(infeed.errors.ConfigError, match="precious"):
        record(other, order(), start=2)

    assert other.read_bytes() == b"no line end"


def test_files_that_cannot_be_used_raise_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError, match="gone"):
        infeed.runs.compare_runs(tmp_path / "gone", tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        infeed.runs.compare_runs(tmp_path / "pipe", tmp_path / "pipe")
    with pytest.raises(OSError, match="no-folder"):
        record(tmp_path / "no-folder" / "file", order())


@pytest.mark.parametrize("kind", [lambda row: row, lambda row: {"tokens": row}])
def test_ragged_rows_are_compared_wholly(tmp_path, kind):
    def batch(changed: int):
        rows = np.empty(2, object)
        tokens = np.arange(2000)
        tokens[1000] += changed
        rows[:] = [kind(tokens), kind(np.arange(3))]
        return [{"tokens": rows}]

    for _ in infeed.runs.certify(batch(0), tmp_path / "run"):
        pass
    assert infeed.runs.compare_runs(tmp_path / "run", batch(0)) is None
    difference = infeed.runs.compare_runs(tmp_path / "run", batch(1))
    assert (difference.step, difference.row) == (0, 0)


def test_steps_that_one_run_does_not_have_are_lost(tmp_path):
    whole = order(epochs=1)
    one = record(tmp_path / "one", whole, ids="id")

    short = record(tmp_path / "short", whole[: 2 * ROWS], ids="id")
    record(short, whole[2 * ROWS : 3 * ROWS], ids="id", start=2)
    for found in (short, Epochs(whole[: 3 * ROWS])):
        difference = infeed.runs.compare_runs(one, found, ids="id")
        assert (difference.step, difference.lost) == (3, 3 * ROWS)
        assert "found run ends at step 2, and the expected run goes on to step 5" in (
            str(difference)
        )
        assert infeed.runs.compare_runs(one, found, ids="id", common=True) is None

    longer = infeed.runs.compare_runs(short, one)
    assert (longer.step, longer.lost, longer.doubled) == (3, 0, 3 * ROWS)
    assert "expected run ends at step 2" in str(longer)
    # A loader may go on after the steps of the record.
    assert infeed.runs.compare_runs(short, Epochs(whole), ids="id") is None

    gap = record(tmp_path / "gap", whole[:ROWS], ids="id")
    record(gap, whole[3 * ROWS :], ids="id", start=3)
    difference = infeed.runs.compare_runs(one, gap)
    assert (difference.step, difference.lost, difference.moved) == (1, 2 * ROWS, 0)
    assert "found run does not have steps 1 to 2" in str(difference)


def test_lines_before_a_crash_do_not_hide_that_the_resumed_run_ends(tmp_path):
    whole = order(epochs=1)
    one = record(tmp_path / "one", whole, ids="id")
    two = record(tmp_path / "two", whole, ids="id")
    record(two, whole[2 * ROWS : 3 * ROWS], ids="id", start=2)

    difference = infeed.runs.compare_runs(one, two)

    assert (difference.step, difference.lost) == (3, 3 * ROWS)


@pytest.mark.parametrize("contents", [False, True])
def test_records_of_certify_and_of_the_command_are_compared(
    classification, tmp_path, contents
):
    folder = sources.Folder(str(classification.path))
    pipeline = infeed.Pipeline(folder).shuffle(seed=1).decode()
    pipeline = pipeline.transform(T.RandomResizedCrop(16)).batch(4, tail="pad")
    pipeline.save(tmp_path / "pipeline.toml")
    other = pipeline.shuffle(seed=2)
    ids = None if contents else lambda batch: [number for number, _ in batch.records]
    for name, described in [("loop", pipeline), ("other", other)]:
        with described.open() as loader:
            certified = infeed.runs.certify(loader, tmp_path / name, ids=ids)
            for _ in range(2):
                for _ in certified:
                    pass
            steps = certified.step
    pixels = ["--pixels"] if contents else []
    written = verify(tmp_path, "--write", "command", "--steps", str(steps), *pixels)
    assert written.returncode == 0, written.stderr

    assert infeed.runs.compare_runs(tmp_path / "loop", tmp_path / "command") is None
    same = verify(tmp_path, "--against", "loop")
    assert same.returncode == 0, same.stderr
    assert f"equal to the record: {steps} steps" in same.stdout

    difference = infeed.runs.compare_runs(tmp_path / "command", tmp_path / "other")
    assert (difference.step, difference.row) == (0, 0)
    differs = verify(tmp_path, "--against", "other")
    assert differs.returncode == 1
    assert "step 0 of epoch 0 (positions 0 to 3) differs: position 0 has" in (
        differs.stderr
    )


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    program = "import sys; from infeed._core import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "infeed", "verify", "pipeline.toml"]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_fields_of_any_kind_of_infeed_are_recorded(tmp_path):
    lists = [[1, 2], [], [3]]
    items = [{"text": f"n{n}", "list": lists[n], "x": n} for n in range(3)]
    pipeline = infeed.Pipeline(
        sources.Items(items, fields={"list": sources.Field(kind="ragged")})
    ).batch(3)
    with pipeline.open() as loader:
        for _ in infeed.runs.certify(loader, tmp_path / "one"):
            pass
    lists[2] = items[2]["list"] = [4]
    with pipeline.open() as loader:
        difference = infeed.runs.compare_runs(tmp_path / "one", loader)

    assert (difference.step, difference.row) == (0, 2)
