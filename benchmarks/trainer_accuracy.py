#!/usr/bin/env python3
"""Trains a model of Ultralytics with its own loader and with `infeed.install`.

    python benchmarks/trainer_accuracy.py --seeds 8 --epochs 8
    python benchmarks/trainer_accuracy.py --task segment --seeds 5

The network is the smallest one of YOLO11 with half of its channels, trained from random
weights on the processors, with all default augmentation. Images are the scenes of
`training.py`. Both loaders run with every seed, in turn. The table has mAP50 on 400
other scenes (of the masks, with `--task segment`), steps per second, and the share of
the time that the loop waited. Runs in `.venv-trainers/ultralytics`.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import infeed
import scenes
from training import LOADERS, Run, table

HELD_OUT = 400
# Corners of the outline of a circle.
CORNERS = 32
# Suffix of the model of each task.
SUFFIXES = {"detect": "", "segment": "-seg"}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=SUFFIXES, default="detect")
    parser.add_argument("--count", type=int, default=2400, help="scenes to train on")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=96, help="side of an image in px")
    options = parser.parse_args()
    runs: dict[str, list[Run]] = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["YOLO_CONFIG_DIR"] = folder
        data = write_scenes(Path(folder), options.count, options.task)
        for seed in range(options.seeds):
            # The order changes from seed to seed, so that neither is always first.
            for name in LOADERS if seed % 2 else LOADERS[::-1]:
                if name == "infeed":
                    infeed.install("ultralytics", proof_seconds=0)
                run = train(data, seed, options)
                infeed.uninstall()
                runs[name].append(run)
                print(f"seed {seed}, {name}: {run}", file=sys.stderr, flush=True)
    print(table(runs, "mAP50"))
    return 0


def write_scenes(folder: Path, count: int, task: str) -> Path:
    """Writes scenes in the format of YOLO; returns the `data.yaml`."""
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


def train(data: Path, seed: int, options: argparse.Namespace) -> Run:
    """Trains a new network, and evaluates it."""
    from ultralytics import YOLO
    from ultralytics.utils import ROOT, YAML

    suffix = SUFFIXES[options.task]
    settings = YAML.load(ROOT / f"cfg/models/11/yolo11{suffix}.yaml")
    settings["scales"] = {"n": [0.33, 0.125, 256]}
    path = data.parent / f"yolo11n{suffix}.yaml"
    YAML.save(path, settings)
    model = YOLO(str(path), task=options.task)
    clock = Clock()
    model.add_callback("on_train_batch_start", lambda trainer: clock.begin_step())
    model.add_callback("on_train_batch_end", lambda trainer: clock.end_step())
    model.add_callback("on_train_epoch_end", lambda trainer: clock.end_epoch())
    common: dict[str, Any] = {"data": str(data), "imgsz": options.size, "device": "cpu"}
    common |= {"batch": options.batch, "plots": False, "project": str(data.parent)}
    model.train(
        **common,
        **{"epochs": options.epochs, "close_mosaic": 1, "workers": 2, "seed": seed},
        **{"amp": False, "val": False, "verbose": False, "pretrained": False},
    )
    found = model.val(**common, verbose=False)
    scores = found.seg if options.task == "segment" else found.box
    return Run(float(scores.map50), clock.steps / clock.took_s, clock.waited_share)


class Clock:
    """Times of steps, and of the waiting before each but an epoch's first."""

    def __init__(self) -> None:
        self.steps = 0
        self.took_s = self._waited_s = 0.0
        self._ended_at: float | None = None
        self._begun_at = 0.0

    @property
    def waited_share(self) -> float:
        return self._waited_s / self.took_s

    def begin_step(self) -> None:
        self._begun_at = time.perf_counter()
        if self._ended_at is not None:
            waited_s = self._begun_at - self._ended_at
            self._waited_s += waited_s
            self.took_s += waited_s

    def end_step(self) -> None:
        self._ended_at = time.perf_counter()
        self.took_s += self._ended_at - self._begun_at
        self.steps += 1

    def end_epoch(self) -> None:
        self._ended_at = None


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
