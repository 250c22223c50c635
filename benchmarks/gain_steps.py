"""Datasets and steps of `gains.py`, in a module that worker processes can import."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2


class Slow:
    """A step in Python that computes."""

    def __call__(self, image: Any) -> Any:
        total = 0
        for n in range(150_000):
            total += n * n
        return image


class Sleeping:
    """A step that waits, as for another service."""

    def __call__(self, image: Any) -> Any:
        time.sleep(0.05)
        return image


class Pairs(Dataset):
    """Images and masks, cropped and flipped together."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted((folder / "images").glob("*.png"))
        self.steps = v2.Compose(
            [
                v2.RandomCrop(256),
                v2.RandomHorizontalFlip(),
                v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, True),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        path = self.paths[number]
        image = tv_tensors.Image(Image.open(path).convert("RGB"))
        mask = Image.open(path.parents[1] / "masks" / path.name)
        return self.steps(image, tv_tensors.Mask(np.array(mask)))


class HubSteps:
    """The function of `with_transform`."""

    def __init__(self) -> None:
        self.steps = v2.Compose(
            [
                v2.RandomResizedCrop(224),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        rows["image"] = [self.steps(image.convert("RGB")) for image in rows["image"]]
        return rows
