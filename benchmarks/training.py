#!/usr/bin/env python3
"""Trains one recipe with its own DataLoader and with the pipeline that replaces it.

The recipe is torchvision's for classification, with a small network on the CPU, for a
fixed number of steps. Both loaders run with every seed, in turn. The table has the
accuracy over the seeds, steps per second, and the share of the time that the loop
waited. Needs torch and torchvision:

    python training.py /tmp/photos --seeds 5 --steps 300

The folder is made by `infeed sample classification` if it does not exist.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

import infeed
import infeed.torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LOADERS = ("DataLoader", "infeed")


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        accuracy: Share of the held-out images with the right class.
        steps_per_s: Steps per second after the first batch.
        waited: Share of that time in which the loop waited for a batch.
    """

    accuracy: float
    steps_per_s: float
    waited: float


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the images")
    parser.add_argument("--count", type=int, default=1500, help="images to generate")
    parser.add_argument("--classes", type=int, default=10, help="classes to generate")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="side of an image in px")
    parser.add_argument("--workers", type=int, default=2, help="of the DataLoader")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--threads", type=int, default=1, help="of the network")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not options.folder.exists():
        sample(options)
    train, others = recipe(options)
    held_out = list(DataLoader(others, batch_size=64))
    adopted = infeed.adopt(train, seconds=None)
    print(f"proof: {adopted.equivalence}", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in LOADERS}
    for seed in range(options.seeds):
        # The order changes from seed to seed, so that neither is always first.
        for name in LOADERS if seed % 2 else LOADERS[::-1]:
            torch.manual_seed(seed)
            if name == "infeed":
                loader: Any = infeed.torch.Loader(
                    adopted.pipeline.shuffle(seed=seed), "tuple"
                )
            else:
                loader = recipe(options)[0]
            run = trained(loader, held_out, options.steps)
            runs[name].append(run)
            print(f"seed {seed}, {name}: {run}", flush=True)
            if name == "infeed":
                loader.close()
    print(table(runs))
    return 0


def sample(options: argparse.Namespace) -> None:
    """Writes the images."""
    command = [options.infeed, "sample", "classification", str(options.folder)]
    command += ["--count", str(options.count), "--classes", str(options.classes)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def recipe(options: argparse.Namespace) -> tuple[DataLoader, Subset]:
    """Returns the loader for training, and every fifth image to evaluate."""
    normalize = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(options.size, scale=(0.3, 1.0)),
            transforms.RandomHorizontalFlip(),
            *normalize,
        ]
    )
    plain = transforms.Compose(
        [
            transforms.Resize(options.size * 9 // 8),
            transforms.CenterCrop(options.size),
            *normalize,
        ]
    )
    dataset = datasets.ImageFolder(options.folder, augment)
    numbers = range(len(dataset))
    train = Subset(dataset, [n for n in numbers if n % 5])
    others = Subset(datasets.ImageFolder(options.folder, plain), numbers[::5])
    loader = DataLoader(
        train,
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    return loader, others


def network(classes: int) -> nn.Module:
    """Returns four convolutions and a linear layer."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64, 128):
        layers += [
            nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


def trained(loader: Iterable[Any], held_out: list[Any], steps: int) -> Run:
    """Trains a new network for a number of steps."""
    classes = 1 + max(int(labels.max()) for _, labels in held_out)
    model = network(classes).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    loss_of = nn.CrossEntropyLoss()
    batches = endless(loader)
    begun, waited_s = 0.0, 0.0
    for step in range(steps):
        asked = time.perf_counter()
        images, labels = next(batches)
        if step:
            waited_s += time.perf_counter() - asked
        else:
            begun = time.perf_counter()
        loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    spent_s = time.perf_counter() - begun
    batches.close()
    return Run(accuracy(model, held_out), steps / spent_s, waited_s / spent_s)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yields batches of epoch after epoch."""
    while True:
        yield from loader


def accuracy(model: nn.Module, held_out: list[Any]) -> float:
    """Returns the share of images with the right class."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in held_out:
            right += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
    return right / total


def table(runs: dict[str, list[Run]]) -> str:
    """Returns the table in Markdown: means, and standard deviations of the accuracy."""
    lines = ["| loader | accuracy | steps/s | waiting |", "|---|--:|--:|--:|"]
    for name, of_loader in runs.items():
        scores = [run.accuracy for run in of_loader]
        rates = [run.steps_per_s for run in of_loader]
        waits = [run.waited for run in of_loader]
        spread = stdev(scores) if len(scores) > 1 else 0.0
        lines.append(
            f"| {name} | {mean(scores):.1%} ± {spread:.1%} | {mean(rates):.1f} "
            f"[{min(rates):.1f}-{max(rates):.1f}] | {mean(waits):.0%} |"
        )
    apart = [
        ours.accuracy - theirs.accuracy
        for theirs, ours in zip(*runs.values(), strict=True)
    ]
    ratios = [
        ours.steps_per_s / theirs.steps_per_s
        for theirs, ours in zip(*runs.values(), strict=True)
    ]
    shown = f"{median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
    lines += ["", f"Ratio of steps/s in turns next to each other: {shown}"]
    if len(apart) > 1:
        error = stdev(apart) / len(apart) ** 0.5
        lines.append(
            f"Difference of accuracy, infeed - DataLoader: {mean(apart):+.1%} with a "
            f"standard error of {error:.1%}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
