"""Trains a small network on photographs in class folders, in one process or several.

Made-up data to try it with, and the run:

    infeed sample classification photos/train --classes 4
    infeed sample classification photos/val --classes 4 --count 200 --seed 1
    python examples/torch_classification.py --data photos
    torchrun --nproc-per-node 2 examples/torch_classification.py --data photos
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.functional import cross_entropy

import infeed
import infeed.torch
from infeed import sources
from infeed import transforms as T

SIDE = 64


def training(folder: Path, batch: int) -> infeed.Pipeline:
    """Random crops, mirrored or not, in another order each epoch."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.RandomResizedCrop(SIDE, scale=(0.5, 1.0)),
            T.RandomHorizontalFlip(),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(batch, drop_last=True)  # over all processes together
    )


def validation(folder: Path, batch: int) -> infeed.Pipeline:
    """Whole images, each once."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .decode()
        .transform(
            T.Resize((SIDE, SIDE)),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(batch)
    )


def network(classes: int) -> nn.Module:
    """Three convolutions and a mean over what is left of the image."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)
    )


def train_epoch(model, optimizer, batches) -> list[float]:
    """One pass over pairs of images and labels; the loss of each step."""
    model.train()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(model, batches) -> float:
    """The share of images whose class is guessed."""
    model.eval()
    hits = [model(images).argmax(1) == labels for images, labels in batches]
    return torch.cat(hits).float().mean().item()


def main() -> None:
    """Trains, and says how well and how much of the time it waited for data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default="photos", help="has train and val")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="over all processes")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    several = "RANK" in os.environ  # as torchrun starts it
    if several:
        torch.distributed.init_process_group("gloo")
    folder = arguments.data / "train"
    model = network(classes=sum(entry.is_dir() for entry in folder.iterdir()))
    parallel = nn.parallel.DistributedDataParallel(model) if several else model
    optimizer = torch.optim.Adam(parallel.parameters(), lr=3e-3)

    loader = infeed.torch.Loader(training(folder, arguments.batch), "tuple")
    for epoch in range(arguments.epochs):
        losses = train_epoch(parallel, optimizer, loader)
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}", flush=True)
    stats = loader.loader.stats()
    print(f"waited for data: {stats['wait_s'] / stats['elapsed_s']:.1%} of the time")

    if not several or torch.distributed.get_rank() == 0:
        whole = validation(arguments.data / "val", 50)
        held_out = infeed.torch.Loader(whole, "tuple", rank=0, world_size=1)
        print(f"accuracy: {accuracy(model, held_out):.3f}")
    if several:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
