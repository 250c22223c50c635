#!/usr/bin/env python3
"""Trains a model with the trainer's own loader and with that of `infeed.install`.

    python benchmarks/trainer_accuracy.py --seeds 8 --epochs 8
    python benchmarks/trainer_accuracy.py --task segment --seeds 5
    python benchmarks/trainer_accuracy.py --task classify --seeds 5

The detector and the segmenter are those of Ultralytics: the smallest network of YOLO11
with half of its channels, with all default augmentation, on the scenes of
`training.py`. The classifier is a plain loop of PyTorch: four convolutions, transforms
of torchvision, and photographs of `infeed sample`. All train from random weights on the
processors.

Both loaders run with every seed, in turn. The table has the score on 400 other scenes
(mAP50, of the masks for the segmenter) or 1200 other photographs (accuracy), steps per
second, and the share of the time that the loop waited. The time to the same loss ends
with the first epoch whose mean loss is at most the lowest that both loaders reach.
Detector and segmenter run in `.venv-trainers/ultralytics`, the classifier in
`.venv-frameworks`.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

import infeed
import scenes
from infeed import _core
from training import LOADERS, Run, table
from training_recipes import MEAN, STD, accuracy, classifier, loss_of_classes

# Scenes and photographs that are not trained on.
HELD_OUT = 400
HELD_OUT_PHOTOGRAPHS = 1200
# Corners of the outline of a circle.
CORNERS = 32
# Suffix of the model of Ultralytics for each task.
SUFFIXES = {"detect": "", "segment": "-seg"}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="detect")
    parser.add_argument("--count", type=int, default=2400, help="images to train on")
    parser.add_argument("--classes", type=int, default=24, help="of photographs")
    parser.add_argument("--seeds", type=int, default=8, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=96, help="side of an image in px")
    options = parser.parse_args()
    task = TASKS[options.task]
    runs: dict[str, list[Run]] = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory() as folder:
        data = task.write(Path(folder), options)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            # The order changes from seed to seed, so that neither is always first.
            for name in LOADERS if seed % 2 else LOADERS[::-1]:
                if name == "infeed":
                    infeed.install(task.trainer, proof_seconds=0)
                clock = Clock()
                score = task.train(data, seed, options, clock)
                infeed.uninstall()
                if clock.loaders != {name}:
                    sys.exit(f"seed {seed}: the batches were not those of {name}")
                run = clock.run(score)
                runs[name].append(run)
                losses = ", ".join(f"{loss:.3f}" for _, loss in run.losses)
                print(f"seed {seed}, {name}: {run}", file=sys.stderr)
                print(f"  losses of the epochs: {losses}", file=sys.stderr, flush=True)
    print(table(runs, task.measure))
    return 0


class Clock:
    """Times of steps, and of the waiting before each but an epoch's first."""

    def __init__(self) -> None:
        # Names of the loaders whose batches were used.
        self.loaders: set[str] = set()
        self._steps = 0
        self._took_s = self._waited_s = 0.0
        self._ended_at: float | None = None
        self._begun_at = self._step_begun_at = 0.0
        self._losses: list[tuple[float, float]] = []

    def begin(self) -> None:
        """Begins the training."""
        self._begun_at = time.perf_counter()

    def begin_step(self, batches: Any) -> None:
        """Begins a step, after the loader or iterator has returned its batch."""
        is_of_infeed = type(batches).__module__.startswith("infeed.")
        self.loaders.add("infeed" if is_of_infeed else "DataLoader")
        self._step_begun_at = time.perf_counter()
        if self._ended_at is not None:
            waited_s = self._step_begun_at - self._ended_at
            self._waited_s += waited_s
            self._took_s += waited_s

    def end_step(self) -> None:
        """Ends a step."""
        self._ended_at = time.perf_counter()
        self._took_s += self._ended_at - self._step_begun_at
        self._steps += 1

    def end_epoch(self, loss: float) -> None:
        """Ends an epoch with its mean loss."""
        self._ended_at = None
        self._losses.append((time.perf_counter() - self._begun_at, loss))

    def run(self, score: float) -> Run:
        """Returns the training with its score."""
        waited = self._waited_s / self._took_s
        return Run(score, self._steps / self._took_s, waited, self._losses)


# Detection and segmentation with Ultralytics.


def write_scenes(folder: Path, options: argparse.Namespace) -> Path:
    """Writes scenes in the format of YOLO; returns the `data.yaml`."""
    os.environ["YOLO_CONFIG_DIR"] = str(folder)
    task, count = options.task, options.count
    numbers = iter(range(count + HELD_OUT))
    for split, size in (("train", count), ("val", HELD_OUT)):
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for _, number in zip(range(size), numbers, strict=False):
            one = scenes.scene(number)
            scenes.Image.fromarray(one.pixels).save(
                images / f"{number:06}.jpg", quality=90
            )
            rows = []
            for box, label in zip(one.boxes, one.labels, strict=True):
                values = (
                    outline(label, box) if task == "segment" else centre_and_sides(box)
                )
                shares = (value / scenes.SIDE for value in values)
                rows.append(" ".join(map(str, (label - 1, *shares))))
            (labels / f"{number:06}.txt").write_text("\n".join(rows))
    names = "".join(f"  {at}: {name}\n" for at, name in enumerate(scenes.CLASSES))
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}"
    )
    return folder / "data.yaml"


def centre_and_sides(box: list[float]) -> list[float]:
    """Returns centre, width and height of a box."""
    left, top, right, bottom = box
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def outline(label: int, box: list[float]) -> list[float]:
    """Returns x and y of the corners of a shape in a box."""
    x, y, width, height = centre_and_sides(box)
    if scenes.CLASSES[label - 1] == "circle":
        angles = np.linspace(0, 2 * np.pi, CORNERS, endpoint=False)
        corners = np.stack([np.cos(angles), np.sin(angles)], 1)
    elif scenes.CLASSES[label - 1] == "rectangle":
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    else:
        corners = np.array([[0, -1], [1, 1], [-1, 1]])
    return (np.array([x, y]) + corners * [width / 2, height / 2]).ravel().tolist()


def train_yolo(
    data: Path, seed: int, options: argparse.Namespace, clock: Clock
) -> float:
    """Trains a new network of Ultralytics; returns its mAP50."""
    from ultralytics import YOLO
    from ultralytics.utils import ROOT, YAML

    suffix = SUFFIXES[options.task]
    settings = YAML.load(ROOT / f"cfg/models/11/yolo11{suffix}.yaml")
    settings["scales"] = {"n": [0.33, 0.125, 256]}
    path = data.parent / f"yolo11n{suffix}.yaml"
    YAML.save(path, settings)
    model = YOLO(str(path), task=options.task)
    callbacks: dict[str, Callable[[Any], None]] = {
        "on_train_start": lambda trainer: clock.begin(),
        "on_train_batch_start": lambda trainer: clock.begin_step(trainer.train_loader),
        "on_train_batch_end": lambda trainer: clock.end_step(),
        "on_train_epoch_end": lambda trainer: clock.end_epoch(
            sum(map(float, trainer.tloss.values()))
        ),
    }
    for event, callback in callbacks.items():
        model.add_callback(event, callback)
    common: dict[str, Any] = {"data": str(data), "imgsz": options.size, "device": "cpu"}
    common |= {"batch": options.batch, "plots": False, "project": str(data.parent)}
    model.train(
        **common,
        **{"epochs": options.epochs, "close_mosaic": 1, "workers": 2, "seed": seed},
        **{"amp": False, "val": False, "verbose": False, "pretrained": False},
    )
    found = model.val(**common, verbose=False)
    scores = found.seg if options.task == "segment" else found.box
    return float(scores.map50)


# Classification with a loop of PyTorch.


def write_photographs(folder: Path, options: argparse.Namespace) -> Path:
    """Writes photographs in folders by class: `train` and `val`; returns the folder.

    Raises:
        SystemExit: They could not be written.
    """
    counts = {"train": options.count, "val": HELD_OUT_PHOTOGRAPHS}
    for seed, (split, count) in enumerate(counts.items()):
        command = ["sample", "classification", str(folder / split), "--seed", str(seed)]
        command += ["--count", str(count), "--classes", str(options.classes)]
        if _core.main(["infeed", *command]) != 0:
            sys.exit("no photographs were written")
    return folder


def train_classifier(
    data: Path, seed: int, options: argparse.Namespace, clock: Clock
) -> float:
    """Trains a new classifier; returns its accuracy."""
    last = [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    augment = [
        v2.RandomResizedCrop(options.size, scale=(0.3, 1.0)),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.4, 0.4, 0.4, 0.05),
    ]
    plain = [v2.Resize(options.size * 9 // 8), v2.CenterCrop(options.size)]
    dataset = datasets.ImageFolder(data / "train", v2.Compose([*augment, *last]))
    loader = DataLoader(
        dataset,
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(seed),
    )
    torch.manual_seed(seed)
    model = classifier(options.classes)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.01, total_steps=options.epochs * len(loader)
    )
    clock.begin()
    for _ in range(options.epochs):
        total = 0.0
        batches = iter(loader)
        for batch in batches:
            clock.begin_step(batches)
            loss = loss_of_classes(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            clock.end_step()
        clock.end_epoch(total / len(loader))
    others = datasets.ImageFolder(data / "val", v2.Compose([*plain, *last]))
    images, labels = zip(*others, strict=True)
    model.eval()
    with torch.no_grad():
        return accuracy(model, [(torch.stack(images), torch.tensor(labels))])


@dataclass(frozen=True)
class Task:
    """A kind of training.

    Attributes:
        trainer: Name of the trainer for `infeed.install`.
        measure: Name of the score.
        write: Writes the images into a folder; returns the argument of `train`.
        train: Trains a new network with a seed and a clock; returns its score.
    """

    trainer: str
    measure: str
    write: Callable[[Path, argparse.Namespace], Path]
    train: Callable[[Path, int, argparse.Namespace, Clock], float]


TASKS = {
    "detect": Task("ultralytics", "mAP50", write_scenes, train_yolo),
    "segment": Task("ultralytics", "mAP50", write_scenes, train_yolo),
    "classify": Task("torch", "accuracy", write_photographs, train_classifier),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
