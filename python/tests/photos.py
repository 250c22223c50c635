"""The pipeline of device tests, and a check that two of its epochs are equal."""

import numpy as np

import infeed
from infeed import sources
from infeed import transforms as T

ROWS = 4


def pipeline_of(folder, dtype="float32"):
    """Images of thirty records as normalized floats, and their labels."""
    made = infeed.Pipeline(sources.Folder(str(folder))).shuffle(seed=3).decode()
    steps = [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
    ]
    return made.transform(*steps, layout="CHW", dtype=dtype).batch(ROWS)


def equal(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a[name], b[name])
        for a, b in zip(one, other, strict=True)
        for name in a
    )
