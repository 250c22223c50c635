"""timm's `PrefetchLoader`, which normalizes and erases batches on the device."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class BatchNormalize:
    """Normalizes an image [C, H, W] of 8 bits, as timm's loader does with a batch.

    Args:
        mean: Mean by channel in units of 0 to 1.
        std: Standard deviation by channel in units of 0 to 1.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = tuple(mean), tuple(std)

    def __call__(self, image: Any) -> Any:
        """Returns the normalized image as a tensor, which the next steps expect."""
        mean, std = (
            np.array(one, np.float32).reshape(-1, 1, 1) * np.float32(255)
            for one in (self.mean, self.std)
        )
        normalized = (np.asarray(image).astype(np.float32) - mean) / std
        return importlib.import_module("torch").from_numpy(normalized)

    def __repr__(self) -> str:
        mean, std = (
            tuple(round(value, 6) for value in one) for one in (self.mean, self.std)
        )
        return f"BatchNormalize({mean}, {std})"


class NormalizedSamples:
    """The samples of a dataset as a `PrefetchLoader` returns them.

    Args:
        dataset: The dataset, whose images have 8 bits.
        normalize: The normalization.
        erase: timm's `RandomErasing`; None: nothing is erased.
    """

    def __init__(
        self,
        dataset: Any,
        normalize: BatchNormalize,
        erase: Callable[[Any], Any] | None = None,
    ) -> None:
        self.dataset, self.normalize, self.erase = dataset, normalize, erase

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        image, label = self.dataset[number]
        normalized = self.normalize(image)
        return normalized if self.erase is None else self.erase(normalized), label


def inner_of(dataset: Any) -> Any:
    """Returns the dataset inside `NormalizedSamples`, or the dataset itself."""
    return dataset.dataset if isinstance(dataset, NormalizedSamples) else dataset


def unwrap(loader: Any) -> tuple[Any, Any]:
    """Returns the DataLoader inside a `PrefetchLoader`, and its samples; else both."""
    is_timm = type(loader).__module__.partition(".")[0] == "timm"
    if not is_timm or type(loader).__name__ != "PrefetchLoader":
        return loader, getattr(loader, "dataset", None)
    mean, std = ((one.flatten() / 255).tolist() for one in (loader.mean, loader.std))
    inner = loader.loader
    erase = getattr(loader, "random_erasing", None)
    samples = NormalizedSamples(inner.dataset, BatchNormalize(mean, std), erase)
    return inner, samples
