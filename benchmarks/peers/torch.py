"""torch DataLoader with persistent workers, images by torchvision's decoders.

Segmentation uses OpenCV and packed colours, which is faster than torchvision's decoder.
"""

from collections.abc import Iterator

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from measure import Job, epochs, main
from peers.images import segmentation_sample
from workloads import BIAS, MEAN, SCALE, SIDE, STD

cv2.setNumThreads(0)  # a worker is a core


class Samples(Dataset):
    """Samples; a function makes each."""

    def __init__(self, samples: list, one):
        self.samples, self.one = samples, one

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, n: int):
        return self.one(self.samples[n])


def running(job: Job, samples: Dataset, workers: int, collate=None) -> Iterator:
    loader = DataLoader(
        samples,
        batch_size=job.work.batch,
        shuffle=job.work.shuffled,
        drop_last=True,
        num_workers=workers,
        persistent_workers=True,
        prefetch_factor=2,
        collate_fn=collate,
    )
    return epochs(lambda _: iter(loader))


def segmentation(job: Job) -> Iterator:
    colours = job.data.colours()
    samples = Samples(job.data.pairs(), lambda pair: segmentation_sample(pair, colours))
    return running(job, samples, job.threads)


def classification(job: Job) -> Iterator:
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN.tolist(), STD.tolist()),
        ]
    )

    def one(sample):
        path, label = sample
        return transform(decode_jpeg(read_file(path), ImageReadMode.RGB)), label

    # One worker more than cores was best in a sweep on two cores.
    return running(
        job, Samples(list(zip(*job.data.images(), strict=True)), one), job.threads + 1
    )


class Rows(Dataset):
    """Rows of the mapped array, fetched, flipped and normalized per batch."""

    def __init__(self, job: Job):
        self.data, self.floats, self.arrays = job.data, job.work.name == "decoded", None
        self.count = len(job.data.array()[1])
        self.scale, self.bias = torch.from_numpy(SCALE), torch.from_numpy(BIAS)

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, rows: list[int]):
        self.arrays = self.arrays or self.data.array()  # opened in the worker
        pixels, labels = self.arrays
        rows = np.asarray(rows)
        x = torch.from_numpy(pixels[rows])
        flip = torch.rand(len(rows)) < 0.5
        x[flip] = x[flip].flip(2)
        x = torch.addcmul(self.bias, x, self.scale) if self.floats else x
        return x, torch.from_numpy(labels[rows])


def decoded_rows(job: Job) -> Iterator:
    return running(job, Rows(job), job.threads, collate=lambda batch: batch)


if __name__ == "__main__":
    main(
        ["torch", "torchvision", "opencv-python-headless", "numpy"],
        {
            "segmentation": segmentation,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
