"""The same images from PyTorch's DataLoader."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from infeed import transforms as T

from . import data


class Decoded(Dataset):
    """Images in memory, one at a time."""

    def __init__(self, pixels, classes, floats: bool):
        self.pixels, self.classes, self.floats = pixels, classes, floats

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, at: int):
        image = torch.from_numpy(self.pixels[at]).permute(2, 0, 1)
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        if self.floats:
            image = normalized(image)
        return image.contiguous(), self.classes[at]


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Converts bytes [..., 3, H, W] to normalized bfloat16 with PyTorch."""
    mean = torch.tensor(T.IMAGENET_MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(T.IMAGENET_STD, device=images.device).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).to(torch.bfloat16)


def batches(
    pixels, classes, batch: int, here: torch.device, floats: bool, workers: int
) -> Iterator:
    """Yields batches on the device; the workers or the device compute the floats."""
    on_gpu = here.type == "cuda"
    loader = DataLoader(
        Decoded(pixels, classes, floats),
        batch,
        shuffle=True,
        drop_last=True,
        pin_memory=on_gpu,
        num_workers=workers if on_gpu else 0,
        persistent_workers=on_gpu,
    )
    for images, labels in data.forever(loader):
        images = images.to(here, non_blocking=True)
        labels = labels.to(here, non_blocking=True)
        if not floats:
            images = normalized(images)
        yield images.contiguous(memory_format=torch.channels_last), labels
