"""FFCV: decoded pixels in its raw format, mapped, by compiled Numba pipelines."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.decoders import SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor
from ffcv.writer import DatasetWriter

from measure import Job, epochs, main
from workloads import MEAN, STD


class Rows:
    """Rows of the mapped array, for FFCV's writer."""

    def __init__(self, job: Job):
        self.data, self.arrays = job.data, None
        self.count = len(job.data.array()[1])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int):
        self.arrays = self.arrays or self.data.array()
        pixels, labels = self.arrays
        return np.array(pixels[row]), int(labels[row])


def write_beton(job: Job) -> Path:
    """Writes the dataset in FFCV's format once, next to the array."""
    path = job.data.decoded.with_suffix(".beton")
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        DatasetWriter(str(unfinished), fields).from_indexed_dataset(Rows(job))
        unfinished.rename(path)
    return path


def decoded_rows(job: Job) -> Iterator:
    image = [SimpleRGBImageDecoder(), RandomHorizontalFlip()]
    if job.work.name == "decoded":
        image.append(NormalizeImage(MEAN * 255, STD * 255, np.float32))
    loader = Loader(
        str(write_beton(job)),
        batch_size=job.work.batch,
        num_workers=job.threads,
        order=OrderOption.RANDOM if job.work.shuffled else OrderOption.SEQUENTIAL,
        os_cache=True,
        drop_last=True,
        pipelines={
            "image": [*image, ToTensor()],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )
    return epochs(lambda _: iter(loader))


if __name__ == "__main__":
    main(["ffcv", "torch", "numpy"], {"decoded": decoded_rows})
