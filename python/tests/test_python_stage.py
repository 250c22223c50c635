"""User functions, in this process and in worker processes."""

import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import stage_functions as steps
from children import start_script
from conftest import wait_until

import infeed
from infeed import sources
from infeed import transforms as T

linux = pytest.mark.skipif(
    not Path("/proc/self/task").exists(),
    reason="lists processes in /proc",
)

# Two workers wait in the function, in this process or in others, when the parent is
# killed, interrupted, or its interpreter ends.
WAITING = """
import sys, threading, infeed, stage_functions
from infeed import sources
pipeline = infeed.Pipeline(sources.Memory(x=list(range(100)))).batch(10)
output = {"x": "int64"}
pipeline = pipeline.python(stage_functions.block, processes=2, output=output)
loader = pipeline.open(workers=2)
batches = iter(loader)
try:
    print("ready", flush=True)
    next(batches)
except KeyboardInterrupt:
    loader.close()
    print("interrupted", flush=True)
"""

# The variables of a script that imports modules of the tests.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def photographs(data) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Folder(data.path))
        .shuffle(seed=3)
        .decode()
        .transform(T.RandomResizedCrop(16), T.RandomHorizontalFlip())
    )


def numbers(count: int = 20) -> infeed.Pipeline:
    return infeed.Pipeline(sources.Memory(x=np.arange(count)))


def epochs(pipeline: infeed.Pipeline, count: int = 2, **settings) -> list[bytes]:
    """Returns the content of the batches of some epochs."""
    with pipeline.open(**settings) as loader:
        return [
            np.ascontiguousarray(column).tobytes()
            for _ in range(count)
            for batch in loader
            for column in batch
        ]


def children(pid: int | str = "self") -> set[int]:
    """Returns the child processes of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread of an earlier test may end meanwhile.
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.fixture
def blocked_file(tmp_path, monkeypatch) -> Path:
    """The file that `stage_functions.block` creates before it blocks."""
    path = tmp_path / "blocked"
    monkeypatch.setenv(steps.BLOCKED, str(path))
    return path


def left_behind() -> set[object]:
    """Returns children, open files and shared memory.

    Those of other tests may disappear at any time, so a test can only check that it
    adds none.
    """
    gc.collect()
    files = set()
    for number in os.listdir("/proc/self/fd"):
        # The file that lists them is closed again.
        with contextlib.suppress(FileNotFoundError):
            files.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return children() | files | set(os.listdir("/dev/shm"))


def has_ended(pid: int) -> bool:
    """Whether a process has ended; its parent may not have noticed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_a_process_computes_on_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")

    (batch,) = numbers().python(steps.limits, processes=1).batch(20)

    assert (batch["x"] == 1).all()


def test_a_function_receives_the_sample_as_stored_in_the_batch(classification):
    plain = photographs(classification).batch(6)

    pairs = zip(plain.open(), plain.python(steps.halve).open(), strict=True)

    for before, after in pairs:
        assert after.keys() == ("image", "label")
        assert after["image"].dtype == np.float32
        expected = before["image"][:, ::2, ::2].astype(np.float32) / 255
        np.testing.assert_array_equal(after["image"], expected)
        np.testing.assert_array_equal(after["label"], before["label"])
        assert after.records == before.records


@pytest.mark.parametrize("function", [steps.halve, steps.noisy, steps.keyword_noise])
def test_bits_are_the_same_for_any_number_of_workers_and_processes(
    classification, function
):
    plain = photographs(classification).batch(8)

    seen = [
        epochs(plain.python(function, processes=processes), workers=workers)
        for workers, processes in [(1, 0), (2, 0), (4, 0), (1, 1), (4, 2)]
    ]

    assert all(other == seen[0] for other in seen[1:])
    half = len(seen[0]) // 2
    assert seen[0][:half] != seen[0][half:]


def test_the_generator_belongs_to_the_sample_and_the_seed(classification):
    def draws(seed: int) -> dict[tuple[int, int], bytes]:
        pipeline = photographs(classification).shuffle(seed).batch(10)
        with pipeline.python(steps.noisy).open() as loader:
            return {
                (epoch, record): batch["noise"][row].tobytes()
                for epoch in range(2)
                for batch in loader
                for row, (record, _) in enumerate(batch.records)
            }

    first, again, other = draws(1), draws(1), draws(2)

    assert first == again
    assert len({*first.values(), *other.values()}) == 120


def test_a_function_may_change_and_keep_its_input(classification):
    plain = photographs(classification).batch(6)

    for processes in (0, 1):
        pairs = zip(
            plain.open(),
            plain.python(steps.in_place, processes=processes).open(),
            strict=True,
        )
        for before, after in pairs:
            np.testing.assert_array_equal(after["image"], before["image"] + 1)
        kept = plain.python(steps.keep_input, processes=processes)
        assert all(batch["whole"].all() for batch in kept.open(workers=2))


def test_text_and_bytes_go_through_a_function():
    source = sources.Memory(name=["ant", "bee", "øre"], data=[b"1", b"", b"\0\xff"])

    for processes in (0, 1):
        pipeline = infeed.Pipeline(source).batch(3)
        (batch,) = pipeline.python(steps.texts, processes=processes)
        assert batch["name"] == ["ANT", "BEE", "ØRE"]
        assert batch["data"] == [b"1!", b"!", b"\0\xff!"]


def test_images_of_any_size_go_to_a_function_that_makes_one(classification):
    def corner(sample):
        return {"corner": sample["image"][:8, :8], "shape": sample["image"].shape}

    pipeline = infeed.Pipeline(sources.Folder(classification.path)).decode()
    (batch,) = pipeline.python(corner).batch(30)

    assert batch["corner"].shape == (30, 8, 8, 3)
    assert batch["shape"].dtype == np.int64
    assert len({tuple(shape) for shape in batch["shape"]}) == 30


def test_fields_that_a_function_does_not_receive_stay(classification):
    def mean(sample):
        assert [*sample] == ["image"]
        return {"mean": sample["image"].mean(axis=(0, 1))}

    plain = photographs(classification).batch(5)
    after = plain.python(mean, fields=["image"])
    pairs = zip(plain.open(), after.open(), strict=True)

    for before, after in pairs:
        assert after.keys() == ("label", "mean")
        np.testing.assert_array_equal(after["label"], before["label"])
        expected = before["image"].mean(axis=(1, 2))
        np.testing.assert_allclose(after["mean"], expected)


def test_functions_run_in_order_and_may_declare_their_output():
    pipeline = (
        numbers(9)
        .python(steps.Adder(5), output={"x": "int64"})
        .python(lambda sample: {"x": np.stack([sample["x"], -sample["x"]])})
        .batch(9)
    )

    assert pipeline.shapes["x"] == infeed.pipeline.Column("array", "int64", (9, 2))
    (batch,) = pipeline
    np.testing.assert_array_equal(batch["x"][:, 0], np.arange(9) + 5)
    np.testing.assert_array_equal(batch["x"][:, 1], -np.arange(9) - 5)


def test_a_result_must_match_the_declared_or_found_output():
    reported = numbers().python(steps.Adder(1), output={"x": ("float32", (2,))})
    with pytest.raises(
        infeed.errors.FunctionError, match=r"int64 \[\], expected float32 \[2\]"
    ):
        next(iter(reported))

    with pytest.raises(
        infeed.errors.FunctionError, match="a dictionary of arrays by field"
    ):
        numbers().python(lambda sample: sample["x"]).open()

    with pytest.raises(infeed.errors.FunctionError, match="arrays of numbers"):
        numbers().python(lambda sample: {"x": object()}).open()

    less = numbers().python(lambda s: {"x": s["x"]} | ({} if s["x"] else {"y": 1}))
    with pytest.raises(infeed.errors.FunctionError, match="did not return `y`"):
        list(less)


def test_an_exception_names_record_function_and_line_and_brings_its_traceback():
    pipeline = numbers().batch(4)

    for processes in (0, 2):
        loader = pipeline.python(steps.picky, processes=processes).open(workers=2)
        with pytest.raises(infeed.errors.FunctionError) as caught:
            list(loader)
        text = str(caught.value)
        assert "record 1" in text
        assert "stage_functions:picky" in text
        assert "ValueError: 1 is odd" in text
        assert "stage_functions.py, line" in text
        (note,) = caught.value.__notes__
        assert "Traceback" in note
        assert "in picky" in note
        loader.close()


@pytest.mark.parametrize("processes", [0, 2])
def test_records_that_a_function_rejects_are_substituted_or_skipped(processes):
    pipeline = numbers().shuffle(1).python(steps.picky, processes=processes).batch(5)

    seen = []
    for workers in (1, 3):
        with pipeline.open(workers=workers, on_error="substitute") as loader:
            seen.append([batch["x"].tolist() for batch in loader])
            assert {bad.index for bad in loader.bad_records} <= set(range(1, 20, 2))
            assert "is odd" in loader.bad_records[0].reason
    with pipeline.open(on_error="skip") as loader:
        left = sorted(x for batch in loader for x in batch["x"])

    assert seen[0] == seen[1]
    assert all(len(batch) == 5 and not np.any(np.mod(batch, 2)) for batch in seen[0])
    assert left == [*range(0, 20, 2)]


def test_a_batch_function_gets_the_batch_and_a_generator_of_its_step(classification):
    plain = photographs(classification).batch(6, drop_last=True)
    pipeline = plain.python_batch(steps.mix)

    assert pipeline.shapes["label"] == infeed.pipeline.Column(
        "array", "float32", (6, 3)
    )
    assert epochs(pipeline, workers=1) == epochs(pipeline, workers=4)
    pairs = zip(plain.open(), pipeline.open(), strict=True)
    for before, after in pairs:
        assert after["image"].shape == before["image"].shape
        np.testing.assert_allclose(after["label"].sum(axis=1), 1, rtol=1e-6)
        assert after.records == before.records


def test_a_batch_changed_in_place_is_not_copied():
    places = set()

    def check_memory(batch):
        places.add(batch["image"].__array_interface__["data"][0])
        return steps.brighten(batch)

    source = sources.Memory(image=np.zeros((40, 8, 8, 3), np.uint8), name=["a"] * 40)
    pipeline = infeed.Pipeline(source).batch(4).python_batch(check_memory)

    with pipeline.open(workers=1) as loader:
        for batch in loader:
            assert batch["image"].__array_interface__["data"][0] in places
            assert (batch["image"] == 1).all()
            assert batch["name"] == ["a"] * 4


def test_an_error_or_wrong_result_of_a_batch_function_stops_the_run():
    def late(batch):
        if batch["x"][0] == 8:
            raise KeyError("eight")
        return batch

    loader = numbers().batch(4).python_batch(late).open(on_error="substitute")
    batches = iter(loader)
    assert [next(batches)["x"][0] for _ in range(2)] == [0, 4]
    with pytest.raises(infeed.errors.FunctionError, match=r"epoch 0, step 2.*'eight'"):
        next(batches)

    short = numbers().batch(4).python_batch(lambda batch: {"x": batch["x"][:2]})
    with pytest.raises(infeed.errors.FunctionError, match="must be the 4 rows"):
        short.open()


def test_a_function_that_can_be_imported_is_saved_by_name_and_others_raise(
    classification, tmp_path
):
    path = tmp_path / "pipeline.toml"
    pipeline = photographs(classification).python(steps.noisy, processes=1)
    pipeline = pipeline.python_batch(steps.brightened_label).batch(8)
    pipeline.save(path)

    again = infeed.Pipeline.load(path, allow_functions=["stage_functions:*"])

    assert 'function = "stage_functions:noisy"' in path.read_text()
    assert epochs(again) == epochs(pipeline)
    assert repr(again) == repr(pipeline)
    assert ".python(noisy, processes=1)" in repr(again)
    assert again._python[0].function is steps.noisy
    for held in (lambda sample: sample, functools.partial(steps.noisy), steps.Adder(1)):
        with pytest.raises(infeed.errors.ConfigError, match="module"):
            pipeline.python(held).save(path)
    path.write_text(path.read_text().replace(":noisy", ":nosy"))
    with pytest.raises(infeed.errors.ConfigError, match="stage_functions:nosy"):
        infeed.Pipeline.load(path, allow_functions=["stage_functions:*"])


def test_one_function_may_be_named_for_samples_and_for_batches(tmp_path):
    text = [chr(97 + n) for n in range(6)]
    source = sources.Memory(x=np.arange(6), text=text)
    pipeline = infeed.Pipeline(source).python(steps.identity).batch(3)
    pipeline = pipeline.python_batch(steps.identity)

    # A batch has a list of texts, a sample has one text.
    assert [batch["text"] for batch in pipeline] == [["a", "b", "c"], ["d", "e", "f"]]


def test_a_state_of_another_function_raises_by_name(classification):
    plain = photographs(classification).batch(8)
    with plain.python(steps.halve).open() as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert len(str(state)) < 400

    with plain.python(steps.noisy).open() as loader:
        expected = "python is stage_functions:noisy, was stage_functions:halve"
        with pytest.raises(infeed.errors.ConfigError, match=expected):
            loader.load_state_dict(state)


def test_functions_that_take_other_arguments_raise_where_they_are_added():
    for wrong in (lambda: {}, lambda a, b, c: {}, lambda a, *, b: {}, 3):
        with pytest.raises(infeed.errors.ConfigError, match="python: fn must be"):
            numbers().python(wrong)
    fine = [lambda s, size=3: s, lambda *args: args[0], lambda s, rng=None: s]
    for function in fine:
        list(numbers(2).python(function))


# A script whose functions no module has.
SCRIPT = """
import functools
import random
import sys
import numpy as np
import infeed
from infeed import sources
from infeed.adopting import RemainingSteps

SHARED, OTHER, LAST = np.random.default_rng(), random.Random(), np.random.RandomState()
SCALE = 1

class Parent:
    def second(self):
        return SHARED.random()

class Step(Parent):
    def __init__(self):
        self.held = np.random.default_rng()

    def last(self):
        return LAST.rand()

    def first(self):
        return OTHER.random()

    def __call__(self, sample):
        draws = self.second(), self.first(), self.last(), self.held.random(), SCALE
        return {"x": np.array([*draws, random.random(), np.random.rand()])}

def rows(function, processes):
    pipeline = infeed.Pipeline(sources.Memory(x=np.arange(20))).batch(8)
    with pipeline.python(function, processes=processes).open(workers=2) as loader:
        return np.concatenate([batch["x"].copy() for batch in loader])

if __name__ == "__main__":
    SCALE, k = 3, 7
    for function in (
        infeed.seeding.seed_draws(Step()),
        infeed.seeding.seed_draws(functools.partial(Step.__call__, Step())),
        lambda sample: {"x": sample["x"] + k},
    ):
        np.testing.assert_array_equal(rows(function, 0), rows(function, 2))
    assert rows(Step(), 1)[0, 4] == 3
    sys.modules["cloudpickle"] = None
    try:
        rows(infeed.seeding.seed_draws(RemainingSteps([Step()])), 1)
    except infeed.errors.ConfigError as error:
        print(error)
"""


def test_processes_run_functions_of_the_script_with_cloudpickle(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    run = [sys.executable, str(path)]

    printed = subprocess.run(run, capture_output=True, text=True, env=ENVIRONMENT)

    assert printed.stderr == ""
    assert printed.stdout == (
        "python: processes=1: Step is defined in the running script or notebook; move "
        "it to a module, or install cloudpickle\n"
    )


class LockedCall:
    """A function that no package can copy."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, sample):
        return sample


def test_functions_that_processes_cannot_load_raise_with_a_fix(monkeypatch):
    with pytest.raises(
        infeed.errors.ConfigError, match="create the object in the call"
    ):
        numbers().python(LockedCall(), processes=2)

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(
        infeed.errors.ConfigError, match="to a module, or install cloudpickle"
    ):
        numbers().python(lambda sample: sample, processes=2)

    # A function that no other process can import is detected at open.
    namespace = {"__name__": "nowhere"}
    exec("def lost(sample): return sample", namespace)
    module = type(sys)("nowhere")
    module.lost = namespace["lost"]
    sys.modules["nowhere"] = module
    try:
        pipeline = numbers().python(module.lost, processes=1)
        with pytest.raises(
            infeed.errors.ConfigError, match="No module named 'nowhere'"
        ):
            pipeline.open()
    finally:
        del sys.modules["nowhere"]


def test_a_preview_shows_the_function(classification):
    preview = photographs(classification).python(steps.halve).preview(0)

    assert [stage.name for stage in preview][-3:] == ["row", "python", "output"]
    assert preview["row"].fields["image"].shape == (16, 16, 3)
    assert preview["output"].fields["image"].shape == (8, 8, 3)


def test_the_plan_and_the_counters_show_the_function(classification):
    pipeline = photographs(classification).python(steps.halve, processes=2).batch(8)

    assert "stage_functions:halve: python, with each sample, in 2" in pipeline.explain()
    with pipeline.open(workers=2) as loader:
        list(loader)
        stage = loader.stats()["stages"][-1]
    assert stage["name"] == "python"
    assert stage["samples"] >= 30
    assert stage["wall_s"] > 0
    assert stage["cpu_s"] > 0
    assert stage["bytes_out"] > 30 * 8 * 8 * 3


def test_explain_reports_a_slow_function_as_the_limit_with_a_fix():
    pipeline = numbers(400).python(steps.busy).batch(10)

    with pipeline.open(workers=2) as loader:
        for _ in loader:
            pass
        explanation = loader.explain()

    verdict = explanation.to_dict()["verdict"]
    assert verdict["limit"] == "python"
    (advice,) = verdict["advice"]
    assert "stage_functions:busy, processes=N" in advice
    python = explanation.to_dict()["run"]["stages"][-1]
    assert python["wait_s"] > 0


def test_the_command_line_explains_a_pipeline_with_a_function_and_tries_processes(
    tmp_path,
):
    np.save(tmp_path / "x.npy", np.arange(400))
    path = tmp_path / "pipeline.toml"
    source = sources.Memory(x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    infeed.Pipeline(source).python(steps.busy).batch(10).save(path)
    code = "import sys; from infeed import _core; sys.exit(_core.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "infeed", "explain", str(path)]
    command += ["--allow-functions", "stage_functions:busy"]

    reported = subprocess.run(
        [*command, "--seconds", "0.2", "--workers", "2"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert reported.returncode == 0, reported.stderr
    assert "Python limits" in reported.stdout, reported.stdout
    # Only the id is listed where processes gain nothing: without the GIL, or next to
    # other programs.
    tried = ("functions in 2 worker processes", "processes-2")
    assert any(text in reported.stdout for text in tried), reported.stdout


@linux
@pytest.mark.parametrize("workers", [1, 3])
def test_a_killed_process_is_replaced_and_its_sample_is_retried(
    tmp_path, monkeypatch, workers
):
    monkeypatch.setenv(steps.CRASHED, str(tmp_path / "crashed"))
    pipeline = numbers().python(steps.killed_once, processes=2).batch(5)

    with pipeline.open(workers=workers) as loader:
        seen = [x for batch in loader for x in batch["x"]]

    assert (tmp_path / "crashed").exists()
    assert seen == [*range(0, 40, 2)]


@linux
def test_a_sample_that_ends_two_processes_is_a_bad_record_with_the_reason():
    pipeline = numbers().python(steps.exits, processes=2).batch(5)

    with pipeline.open(workers=2) as loader:
        with pytest.raises(infeed.errors.FunctionError) as caught:
            list(loader)
        assert "record 7" in str(caught.value)
        assert "exit status: 3" in str(caught.value)
    with pipeline.open(workers=2, on_error="skip") as loader:
        seen = [x for batch in loader for x in batch["x"]]
        # Replacements work like the processes before: the next epoch has the same
        # result.
        again = [x for batch in loader for x in batch["x"]]

    assert seen == again == [2 * x for x in range(20) if x != 7]


@linux
def test_a_process_killed_while_idle_is_replaced():
    pipeline = numbers().python(steps.where, processes=1).batch(20)
    processes = set()
    full = 1
    with pipeline.open(workers=1) as loader:
        for _ in range(6):
            (batch,) = loader
            processes |= {*batch["process"].tolist()}
            # Batches of the next epochs are made until all permitted ones are ready: as
            # many as before the last kill, and no more for a second.
            ready, since = 0, time.monotonic()
            while ready < full or time.monotonic() < since + 1:
                now = loader.stats()["ready"]
                if now != ready:
                    ready, since = now, time.monotonic()
                time.sleep(0.02)
            full = ready
            for child in children():
                os.kill(child, signal.SIGKILL)
                assert wait_until(lambda child=child: has_ended(child))

    assert os.getpid() not in processes
    assert len(processes) > 1


@linux
def test_nothing_is_left_after_close_or_an_exception_or_when_it_is_dropped(capfd):
    def run(function, **settings):
        pipeline = numbers().python(function, processes=2).batch(4)
        loader = pipeline.open(workers=2, **settings)
        next(iter(loader))
        assert len(children() - before) == 2
        return loader

    list(numbers().python(steps.printing, processes=1))
    gc.collect()
    before = left_behind()

    run(steps.Adder(1)).close()
    assert left_behind() <= before

    loader = run(steps.picky, on_error="substitute")
    del loader
    assert left_behind() <= before

    pipeline = numbers().python(steps.exits, processes=2).batch(4)
    with pytest.raises(infeed.errors.FunctionError), pipeline.open(workers=2) as loader:
        list(loader)
    del loader
    assert left_behind() <= before

    with pytest.raises(infeed.errors.FunctionError):
        numbers().python(steps.Adder("text"), processes=2).open()
    assert left_behind() <= before
    assert "a line of the function" in capfd.readouterr().err


@linux
def test_a_loader_closes_although_its_processes_are_stuck(blocked_file):
    output = {"x": "int64"}
    pipeline = numbers().batch(4).python(steps.block, processes=2, output=output)
    before = children()
    loader = pipeline.open(workers=2)
    assert wait_until(blocked_file.exists)
    started = children() - before

    loader.close()

    assert len(started) == 2
    assert not started & children()


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_processes_end_with_a_parent_that_is_killed_or_interrupted(how, blocked_file):
    environment = ENVIRONMENT | {steps.BLOCKED: str(blocked_file)}
    with start_script(WAITING, stderr=subprocess.PIPE, env=environment) as process:
        started = children(process.pid)
        assert len(started) == 2
        assert wait_until(blocked_file.exists)
        process.send_signal(how)
        printed = process.stdout.read()
        assert "Traceback" not in process.stderr.read()
        process.wait(timeout=30)
        assert wait_until(lambda: all(has_ended(child) for child in started))
        assert printed == ("interrupted\n" if how == signal.SIGINT else "")


def test_ctrl_c_works_while_a_function_runs_here():
    code = (
        WAITING.replace("processes=2, ", "")
        .replace("stage_functions.block", "slow")
        .replace(
            "pipeline =",
            "import time\ndef slow(s):\n    time.sleep(0.3); return s\npipeline =",
            1,
        )
    )
    with start_script(code, env=ENVIRONMENT) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(timeout=30) == 0


def test_a_pipeline_with_a_function_is_pickled_with_it():
    import pickle

    pipeline = numbers(4).python(steps.Adder(3)).batch(4)

    (batch,) = pickle.loads(pickle.dumps(pipeline))

    np.testing.assert_array_equal(batch["x"], np.arange(4) + 3)


def test_a_packed_dataset_keeps_the_functions_of_its_pipeline(classification, tmp_path):
    pipeline = photographs(classification).batch(5).python(steps.halve)

    packed = infeed.pack(pipeline, tmp_path / "packed", to="webdataset")

    functions = {"stage_functions:halve": steps.halve}
    loaded = infeed.Pipeline.load(tmp_path / "packed", functions=functions)
    assert epochs(loaded) == epochs(packed.pipeline)
    held = pipeline.python(lambda sample: {"label": sample["label"]})
    packed = infeed.pack(held, tmp_path / "held", to="webdataset")
    assert packed.pipeline.fields == ("label",)
    assert infeed.Pipeline.load(tmp_path / "held", functions=functions).fields == (
        "image",
        "label",
    )


def test_ragged_fields_go_to_functions_as_lists_of_one_sample_or_all():
    values, offsets = np.arange(6, dtype=np.float32), np.array([0, 1, 3, 6])
    source = sources.Memory(boxes=(values, offsets))
    plain = infeed.Pipeline(source).batch(3)

    def double(sample):
        return {"boxes": sample["boxes"] * 2}

    def count_boxes(batch):
        _, ends = batch["boxes"]
        return {"boxes": batch["boxes"], "count": np.diff(ends)}

    (batch,) = plain.python(double).python_batch(count_boxes)

    twice, ends = batch["boxes"]
    np.testing.assert_array_equal(twice, values * 2)
    np.testing.assert_array_equal(ends, offsets)
    np.testing.assert_array_equal(batch["count"], [1, 2, 3])


@pytest.mark.parametrize("processes", [0, 1])
def test_a_function_returns_lists_that_its_output_declares(processes):
    field = sources.Field(kind="ragged", dtype="float32", shape=(4,))
    pipeline = numbers(3).python(
        steps.make_boxes, processes=processes, output={"boxes": field}
    )
    code = 'output={"boxes": sources.Field(kind="ragged", dtype="float32", shape=(4,))}'
    assert code in repr(pipeline)

    (batch,) = pipeline.batch(3)
    values, offsets = batch["boxes"]
    # The list of number 0 is empty, and NumPy gives such a list another type.
    np.testing.assert_array_equal(offsets, [0, 0, 1, 3])
    np.testing.assert_array_equal(values.reshape(-1, 4)[:, 0], [1, 2, 2])


@pytest.mark.parametrize(
    "field",
    [
        sources.Field(kind="tensor", dtype="float32"),
        sources.Field(kind="ragged"),
        sources.Field("other", kind="ragged", dtype="float32"),
    ],
)
def test_a_field_in_an_output_declares_lists_of_a_type(field):
    with pytest.raises(infeed.errors.ConfigError, match="output of boxes"):
        numbers().python(steps.make_boxes, output={"boxes": field})
