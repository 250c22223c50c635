"""The trainings of the examples, on generated data."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from requirements import framework_test, require
from running import environment, run

from infeed import _core

pytestmark = framework_test

EXAMPLES = Path(__file__).parents[3] / "examples"


def make_dataset(folder: Path, kind: str, *options: object) -> Path:
    """Makes a dataset with the command."""
    arguments = ["infeed", "sample", kind, folder, *options]
    assert _core.main([str(argument) for argument in arguments]) == 0
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Four classes, for training and for validation."""
    root = tmp_path_factory.mktemp("photos")
    common = ("--classes", 4, "--size", "160x120")
    make_dataset(root / "train", "classification", "--count", 240, *common)
    make_dataset(root / "val", "classification", "--count", 80, "--seed", 1, *common)
    return root


def run_example(name: str, *arguments: object, **variables: str) -> str:
    """Runs an example and returns its output, which has the time it waited for data."""
    printed = run((EXAMPLES / name).read_text(), *arguments, **variables)
    share = re.search(r"^waited for data: ([\d.]+)% of the time$", printed, re.M)
    assert share is not None, printed
    assert 0 <= float(share[1]) < 100
    return printed


def result(printed: str) -> float:
    """Returns the final accuracy of an example."""
    return float(printed.split("accuracy: ")[-1])


def test_pytorch_learns_the_classes(photos):
    require("torch")

    assert result(run_example("torch_classification.py", "--data", photos)) > 0.8


CHECK = "import sys; from infeed._cli import main; sys.exit(main())"


def test_a_check_ends_the_training_after_its_steps(photos):
    require("torch")
    example = EXAMPLES / "torch_classification.py"
    # A share of 100 % does not depend on the machine.
    options = ("--max-waiting", "100", "--steps", "12")
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, "check", *options, example, "--data", photos],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(OMP_NUM_THREADS="1"),
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "check      passed" in ended.stdout
    assert "in 12 steps" in ended.stdout
    assert "accuracy:" not in ended.stdout


LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Endless(DataLoader):
    # As some trainers, it keeps its workers, and calls no method of DataLoader.
    def __iter__(self):
        self.batches = getattr(self, "batches", None) or self._get_iterator()
        for _ in range(len(self)):
            yield next(self.batches)

if __name__ == "__main__":
    dataset = TensorDataset(torch.zeros(60, 3))
    loader = {kind}(dataset, batch_size=2, num_workers=2)
    for batch in loader:
        pass
"""


@pytest.mark.parametrize("kind", ["DataLoader", "Endless"])
def test_a_check_watches_the_dataloader_of_a_script(tmp_path, kind):
    require("torch")
    (script := tmp_path / "train.py").write_text(LOOP.format(kind=kind))
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, "check", "--max-waiting", "0", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(OMP_NUM_THREADS="1"),
    )

    assert ended.returncode == 1, ended.stderr[-4000:]
    assert "evidence   30 batches of 2" in ended.stdout
    assert "check      failed" in ended.stdout


def test_pytorch_trains_in_two_processes(photos):
    require("torch")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    example = EXAMPLES / "torch_classification.py"
    ended = subprocess.run(
        [sys.executable, *launch, example, "--data", photos, "--epochs", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(OMP_NUM_THREADS="1"),
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.count("epoch 0: loss") == 2, "each process prints its own"
    assert ended.stdout.count("\naccuracy: ") == 1


@pytest.mark.parametrize("kills", [0, pytest.param(1, marks=pytest.mark.long)])
def test_ray_train_takes_each_step_once_also_if_a_worker_is_killed_in_an_epoch(
    photos, tmp_path, kills
):
    require("torch")
    require("ray")
    options = ("--cpus", 4, "--runs", tmp_path / "runs", "--every", 3, "--epochs", 8)
    command = (sys.executable, "-u", EXAMPLES / "ray_train.py", "--data", photos)
    running = subprocess.Popen(
        [str(argument) for argument in (*command, *options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(
            OMP_NUM_THREADS="1",
            RAY_DEDUP_LOGS="0",
            # Ray collects reports of its workers at this interval.
            RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.5",
        ),
    )
    printed, saved = [], 0
    late = threading.Timer(400, running.kill)
    late.start()
    with running:
        for line in running.stdout:
            printed.append(line)
            worker = re.search(r"RayTrainWorker pid=(\d+).*Checkpoint success", line)
            saved += worker is not None
            # By the third checkpoint, Ray has registered the first.
            if worker is not None and saved == 3 and kills:
                os.kill(int(worker[1]), signal.SIGKILL)
    late.cancel()
    text = "".join(printed)

    assert running.returncode == 0, text[-4000:]
    assert ("goes on in epoch" in text) == bool(kills), text[-8000:]
    assert float(re.findall(r"^accuracy: ([\d.]+)$", text, re.M)[-1]) > 0.8
    # Batches delivered before count: no step is taken twice, and none is left out.
    _, batches = re.findall(r"made by feeders: (\d+) of (\d+) batches", text)[-1]
    before = 0
    if kills:
        at = re.findall(r"goes on in epoch (\d+) after (\d+) samples", text)[-1]
        epoch, samples = map(int, at)
        assert samples in (3 * 32, 6 * 32)
        before = epoch * 7 + samples // 32
    assert before + int(batches) == 8 * 7


def test_jax_learns_the_classes(photos):
    require("jax")

    assert result(run_example("jax_classification.py", "--data", photos)) > 0.8


def test_keras_learns_where_streets_and_sky_are(tmp_path):
    require("keras")
    require("tensorflow")
    streets = make_dataset(tmp_path / "streets", "segmentation", "--count", 18)
    arguments = ("--data", streets)
    printed = run_example(
        "keras_segmentation.py", *arguments, KERAS_BACKEND="tensorflow"
    )

    assert result(printed) > 0.7


def test_losses_equal_those_of_pytorchs_loader_over_the_same_order(photos):
    require("torch")
    import torch

    import infeed.torch
    from infeed import sources
    from infeed import transforms as T

    example = module("torch_classification.py")
    prepared = (
        infeed.Pipeline(sources.Folder(photos / "train"))
        .decode()
        .transform(
            T.Resize((64, 64)),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
    )
    whole = list(prepared.batch(60))
    columns = [
        torch.from_numpy(np.concatenate([batch[name] for batch in whole]))
        for name in ("image", "label")
    ]
    sampler = infeed.torch.Sampler(240, batch=32, seed=7, drop_last=True)
    theirs = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*columns), 32, sampler=sampler, drop_last=True
    )
    ours = infeed.torch.Loader(
        prepared.shuffle(seed=7).batch(32, drop_last=True), "tuple"
    )
    losses = []

    for batches in (ours, theirs):
        torch.manual_seed(0)
        model = example.network(4)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        epochs = [example.train_epoch(model, optimizer, batches) for _ in range(2)]
        losses.append(np.concatenate(epochs))

    assert len(losses[0]) == 14
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def module(name: str):
    """Imports an example."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
