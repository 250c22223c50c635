"""The same images from PyTorch's DataLoader.

Its epochs never end: at the end of an epoch, it would make no batch in advance.
"""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from infeed import transforms as T

# Samples of an epoch that no measurement reaches the end of.
ENDLESS = 10**8


class DecodedImages(Dataset):
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
            image = normalize(image)
        return image.contiguous(), self.classes[at]


def normalize(images: torch.Tensor) -> torch.Tensor:
    """Converts bytes [..., 3, H, W] to normalized bfloat16 with PyTorch."""
    mean = torch.tensor(T.IMAGENET_MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(T.IMAGENET_STD, device=images.device).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).to(torch.bfloat16)


def batches(
    pixels, classes, batch: int, here: torch.device, floats: bool, workers: int
) -> Iterator:
    """Yields batches on the device; the workers or the device compute the floats."""
    decoded = DecodedImages(pixels, classes, floats)
    for images, labels in endless(decoded, batch, here, workers):
        if not floats:
            images = normalize(images)
        yield images.contiguous(memory_format=torch.channels_last), labels


def from_jpegs(
    folder, side: int, batch: int, here: torch.device, workers: int
) -> Iterator:
    """Yields batches of random crops, which torchvision decodes and resizes in the
    workers; the device computes the floats.
    """
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(side), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    dataset = ImageFolder(str(folder), v2.Compose(steps))
    for images, labels in endless(dataset, batch, here, workers):
        yield normalize(images).contiguous(memory_format=torch.channels_last), labels


def endless(
    dataset: Dataset, batch: int, here: torch.device, workers: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields batches on the device, copied while the device computes."""
    on_gpu = here.type == "cuda"
    loader = DataLoader(
        dataset,
        batch,
        sampler=RandomSampler(dataset, replacement=True, num_samples=ENDLESS),
        drop_last=True,
        pin_memory=on_gpu,
        num_workers=workers if on_gpu else 0,
    )
    for images, labels in loader:
        yield (
            images.to(here, non_blocking=True),
            labels.to(here, non_blocking=True),
        )
