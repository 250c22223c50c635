"""Recipes of torchvision with small networks: classification, detection, segmentation.

A recipe has the loader for training, batches to evaluate, a network, its loss for a
batch of either loader, and its score.
"""

import argparse
import itertools
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms, tv_tensors
from torchvision.transforms import v2

import detector
import scenes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Scenes that are not trained on.
HELD_OUT = 300

Loss = Callable[[nn.Module, Any], torch.Tensor]


@dataclass(frozen=True)
class Recipe:
    """A recipe.

    Attributes:
        loader: The loader for training.
        held_out: Batches to evaluate, in the form of the loader's.
        network: Returns a new network.
        loss: Returns the loss of a batch of the loader, or of the pipeline's loader.
        score: Returns the score of a network on batches.
        measure: Name of the score.
        rate: Highest learning rate.
    """

    loader: DataLoader
    held_out: Sequence[Any]
    network: Callable[[], nn.Module]
    loss: Loss
    score: Callable[[nn.Module, Sequence[Any]], float]
    measure: str
    rate: float


def loader_of(dataset: Any, options: argparse.Namespace, **others: Any) -> DataLoader:
    """Returns a loader for training."""
    return DataLoader(
        dataset,
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        **others,
    )


def convolution(inputs: int, outputs: int, stride: int = 1, gap: int = 1) -> nn.Module:
    """Returns a convolution of 3 by 3 pixels with a normalization."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, gap, dilation=gap, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


# Classification.


def classification(options: argparse.Namespace) -> Recipe:
    """Returns the recipe for photographs in folders of classes."""
    if not options.folder.exists():
        command = [options.infeed, "sample", "classification", str(options.folder)]
        command += ["--count", str(options.count), "--classes", str(options.classes)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
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
    return Recipe(
        loader_of(train, options),
        list(DataLoader(others, batch_size=64)),
        lambda: classifier(len(dataset.classes)),
        loss_of_classes,
        accuracy,
        "accuracy",
        0.01,
    )


def classifier(classes: int) -> nn.Module:
    """Returns four convolutions and a linear layer."""
    widths = (3, 16, 32, 64, 128)
    layers = [convolution(a, b, 2) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes)
    )


def loss_of_classes(model: nn.Module, batch: Any) -> torch.Tensor:
    """Returns the cross entropy of labels, or of masks in which 255 does not count."""
    images, labels = batch
    if labels.dim() == 4:
        # Torchvision keeps the channel of a mask.
        labels = labels.squeeze(1)
    return nn.functional.cross_entropy(model(images), labels, ignore_index=255)


def accuracy(model: nn.Module, held_out: Sequence[Any]) -> float:
    """Returns the share of images with the right class."""
    right = total = 0
    for images, labels in held_out:
        right += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    return right / total


# Detection.


def detection(options: argparse.Namespace) -> Recipe:
    """Returns the recipe of torchvision's SSD for scenes in the form of COCO."""
    parts = {"train": (0, options.count), "val": (options.count, HELD_OUT)}
    for part, (first, count) in parts.items():
        if not (options.folder / part).exists():
            scenes.write_coco(options.folder / part, first, count)
    side = options.size
    last = [
        v2.Resize((side, side)),
        v2.PILToTensor(),
        v2.ToDtype(torch.float, scale=True),
        v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
        v2.SanitizeBoundingBoxes(),
        v2.Normalize(MEAN, STD),
        v2.ToPureTensor(),
    ]
    augment = [
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill=[123, 117, 104], side_range=(1.0, 1.5)),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(p=0.5),
    ]
    train = coco(options.folder / "train", [*augment, *last])
    others = DataLoader(coco(options.folder / "val", last), 32, collate_fn=together)
    return Recipe(
        loader_of(train, options, collate_fn=together),
        list(others),
        lambda: detector.Detector(len(scenes.CLASSES), convolution),
        lambda model, batch: detector.loss(model, *scene_batch(batch)),
        lambda model, batches: detector.mean_average_precision(
            model, map(scene_batch, batches), len(scenes.CLASSES)
        ),
        "mAP@0.5",
        0.004,
    )


def coco(folder: Path, steps: Sequence[Any]) -> Any:
    """Returns the scenes of a folder, for transforms v2."""
    dataset = datasets.CocoDetection(
        folder / "images", folder / "annotations.json", transforms=v2.Compose([*steps])
    )
    return datasets.wrap_dataset_for_transforms_v2(
        dataset, target_keys=("boxes", "labels")
    )


def together(samples: Sequence[Any]) -> tuple[Any, ...]:
    """Returns images and targets, as the reference collates them."""
    return tuple(zip(*samples, strict=True))


def scene_batch(batch: Any) -> tuple[torch.Tensor, detector.Targets]:
    """Returns the images, and the boxes and labels of each one, of either loader."""
    if isinstance(batch, tuple):
        images, targets = batch
        found = [(target["boxes"], target["labels"]) for target in targets]
        return torch.stack(images), found
    (boxes, offsets), (labels, _) = batch["boxes"], batch["labels"]
    counts = (offsets[1:] - offsets[:-1]).tolist()
    pairs = zip(boxes.split(counts), labels.split(counts), strict=True)
    return batch["image"], list(pairs)


# Segmentation.


def segmentation(options: argparse.Namespace) -> Recipe:
    """Returns the recipe of torchvision for scenes in the form of Pascal VOC."""
    if not options.folder.exists():
        scenes.write_voc(options.folder, options.count, HELD_OUT)
    side = options.size
    kinds = {torch.Tensor: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    last = [
        v2.PILToTensor(),
        v2.ToDtype(kinds, scale=True),
        v2.Normalize(MEAN, STD),
        v2.ToPureTensor(),
    ]
    augment = [
        v2.RandomResize(min_size=side, max_size=side * 2),
        v2.RandomHorizontalFlip(0.5),
        v2.RandomCrop(
            side, pad_if_needed=True, fill={tv_tensors.Mask: 255, "others": 0}
        ),
    ]
    others = voc(options.folder, "val", [v2.CenterCrop(side), *last])
    return Recipe(
        loader_of(voc(options.folder, "train", [*augment, *last]), options),
        list(DataLoader(others, batch_size=32)),
        lambda: SmallUNet(1 + len(scenes.CLASSES)),
        loss_of_classes,
        mean_iou,
        "mean IoU",
        0.005,
    )


def voc(folder: Path, part: str, steps: Sequence[Any]) -> Any:
    """Returns the scenes of a part of a folder, for transforms v2."""
    dataset = datasets.VOCSegmentation(
        folder, image_set=part, transforms=v2.Compose([*steps])
    )
    return datasets.wrap_dataset_for_transforms_v2(dataset)


class SmallUNet(nn.Module):
    """Three convolutions down and two up, with the results of the former.

    Args:
        classes: Number of classes with the background.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [convolution(3, 16, 2), convolution(16, 32, 2), convolution(32, 64, 2)]
        )
        self.middle = convolution(64, 64, gap=2)
        self.up = nn.ModuleList([convolution(96, 32), convolution(48, 16)])
        self.last = nn.Conv2d(16, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the classes of each pixel."""
        x, kept = images, list[torch.Tensor]()
        for step in self.down:
            x = step(x)
            kept.append(x)
        x = self.middle(x)
        for step, other in zip(self.up, kept[-2::-1], strict=True):
            x = step(torch.cat([resize(x, other.shape[-2:]), other], dim=1))
        return resize(self.last(x), images.shape[-2:])


def resize(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Returns a resized tensor."""
    return nn.functional.interpolate(x, size=tuple(size), mode="bilinear")


def mean_iou(model: nn.Module, held_out: Sequence[Any]) -> float:
    """Returns intersection over union, as the mean over classes and background."""
    classes = 1 + len(scenes.CLASSES)
    table = torch.zeros(classes, classes)
    for images, masks in held_out:
        found, masks = (
            model(images).argmax(1),
            masks.reshape(len(masks), *images.shape[2:]),
        )
        counted = masks != 255
        pairs = masks[counted] * classes + found[counted]
        table += torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    both = table.diag()
    return float((both / (table.sum(0) + table.sum(1) - both)).mean())


RECIPES: dict[str, Callable[[argparse.Namespace], Recipe]] = {
    "classification": classification,
    "detection": detection,
    "segmentation": segmentation,
}
