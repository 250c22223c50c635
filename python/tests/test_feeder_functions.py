"""Python functions with feeders, which run them by name if their code is equal."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import stage_functions as steps
from feeding import TOKEN, arguments, feeding, wait_for_feeders

import infeed
from infeed import sources
from infeed import transforms as T

HERE = Path(__file__).parent


def photographs(data) -> infeed.Pipeline:
    made = infeed.Pipeline(sources.Folder(data.path)).shuffle(seed=3).decode()
    return made.transform(T.RandomResizedCrop(16)).batch(5)


def start_feeders(host: str, local="fallback") -> infeed.feeders.Feeders:
    return infeed.feeders.Feeders(
        [host], token=TOKEN, local=local, workers=1, deadline=60
    )


def batch_contents(loader: infeed.Loader, epochs: int = 2) -> list[tuple]:
    """Returns fields and bytes of all batches."""
    return [
        (batch.records, [(name, batch[name].tobytes()) for name in [*batch.keys()]])
        for _ in range(epochs)
        for batch in loader
    ]


def feeder_stats(loader: infeed.Loader) -> dict:
    (feeder,) = loader.stats()["feeders"]
    return feeder


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("function", [steps.halve, steps.noisy, steps.keyword_noise])
def test_a_feeder_makes_the_batches_of_this_process(
    classification, tmp_path, function, processes
):
    pipeline = photographs(classification).python(function, processes=processes)
    with pipeline.open(workers=1) as loader:
        expected = batch_contents(loader)

    with (
        feeding(pipeline, tmp_path, HERE) as (host, _),
        pipeline.open(workers=start_feeders(host)) as loader,
    ):
        wait_for_feeders(loader)
        assert batch_contents(loader) == expected
        assert feeder_stats(loader)["batches"] > 0
        assert feeder_stats(loader)["declined"] == 0


def test_functions_on_batches_run_in_the_trainer_and_need_no_module(
    classification, tmp_path
):
    rows = photographs(classification)
    last = {"seen": 0}

    def count_calls(batch):
        last["seen"] += 1
        return {"sum": batch["image"].sum(axis=(1, 2, 3), dtype=np.float64)}

    pipeline = rows.python_batch(steps.mix).python_batch(count_calls)
    with pipeline.open(workers=1) as loader:
        expected = batch_contents(loader)
    last["seen"] = 0

    # The feeder's file has no functions, and the feeder finds no modules.
    with (
        feeding(rows, tmp_path) as (host, _),
        pipeline.open(workers=start_feeders(host)) as loader,
    ):
        wait_for_feeders(loader)
        assert batch_contents(loader) == expected
        assert feeder_stats(loader)["batches"] > 0
    assert last["seen"] >= len(expected)


def test_an_error_on_a_feeder_equals_the_local_error(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(40))
    arrays = np.load(tmp_path / "x.npy", mmap_mode="r")
    pipeline = infeed.Pipeline(sources.Memory(x=arrays)).batch(8)
    pipeline = pipeline.python(steps.picky, output={"x": "int64"})

    def results_with(workers) -> tuple:
        with pipeline.open(workers=workers, on_error="substitute") as loader:
            batches, bad = batch_contents(loader), loader.bad_records
        with (
            pipeline.open(workers=workers) as loader,
            pytest.raises(infeed.errors.FunctionError, match="is odd") as raised,
        ):
            batch_contents(loader)
        return batches, bad, str(raised.value), raised.value.__notes__

    with feeding(pipeline, tmp_path, HERE) as (host, _):
        assert results_with(start_feeders(host)) == results_with(1)


def test_a_function_whose_file_differs_raises_with_both_hashes(
    classification, tmp_path
):
    pipeline = photographs(classification).python(steps.noisy)
    other = tmp_path / "modules"
    other.mkdir()
    shutil.copy(HERE / "stage_functions.py", other)
    with open(other / "stage_functions.py", "a") as file:
        file.write("\nMORE = 1\n")
    found = r"stage_functions:noisy \(stage_functions [0-9a-f]{16}\)"

    with feeding(pipeline, tmp_path, other) as (host, _):
        refused = f"`functions` differs: {found} at the trainer, {found} at the feeder"
        with pytest.raises(infeed.errors.ConfigError, match=refused):
            pipeline.open(workers=start_feeders(host))


def test_a_feeder_that_cannot_import_a_function_ends_with_the_reason(
    classification, tmp_path
):
    pipeline = photographs(classification).python(steps.noisy)

    ended = subprocess.run(
        arguments(pipeline, tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(infeed.__file__).parents[1])},
    )

    assert ended.returncode != 0
    assert "cannot import stage_functions:noisy" in ended.stderr
    assert "a module on sys.path" in ended.stderr


def test_functions_that_feeders_cannot_import_raise_with_a_fix(classification):
    rows = photographs(classification)
    feeders = infeed.feeders.Feeders(["127.0.0.1:1"], token=TOKEN)

    for function in (lambda sample: sample, functools.partial(steps.halve)):
        with pytest.raises(
            infeed.errors.ConfigError, match="define it with `def` in a module"
        ):
            rows.python(function).open(workers=feeders)


def test_a_function_of_the_script_that_runs_raises_with_a_fix(classification):
    script = (
        "import sys, infeed\n"
        "from infeed import sources\n"
        "def same(sample): return sample\n"
        "made = infeed.Pipeline(sources.Folder(sys.argv[1])).decode().python(same)\n"
        "try: made.open(workers=infeed.feeders.Feeders(['127.0.0.1:1']))\n"
        "except infeed.errors.ConfigError as error: print(error)\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script, classification.path],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "__main__:same cannot run on feeders" in ended.stdout, ended.stderr
    assert "move it to a module that the feeders can import" in ended.stdout
