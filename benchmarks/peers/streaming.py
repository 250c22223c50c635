"""MosaicML Streaming: decoded pixels as bytes in local MDS shards."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from measure import Job, epochs, main
from workloads import BIAS, SCALE, SIDE


def write_mds(job: Job) -> Path:
    """Writes the dataset into MDS shards once, next to the array."""
    path = job.data.decoded.with_suffix(".mds")
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        pixels, labels = job.data.array()
        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=str(unfinished), columns=columns) as writer:
            for image, label in zip(pixels, labels, strict=True):
                writer.write({"image": image.tobytes(), "label": int(label)})
        unfinished.rename(path)
    return path


class Samples(StreamingDataset):
    def __init__(self, job: Job):
        super().__init__(
            local=str(write_mds(job)),
            shuffle=job.work.shuffled,
            batch_size=job.work.batch,
        )
        self.floats = job.work.name == "decoded"

    def __getitem__(self, row: int):
        sample = super().__getitem__(row)
        x = np.frombuffer(sample["image"], np.uint8).reshape(SIDE, SIDE, 3)
        if torch.rand(()) < 0.5:
            x = x[:, ::-1]
        x = x * SCALE + BIAS if self.floats else np.ascontiguousarray(x)
        return torch.from_numpy(x), sample["label"]


def decoded_rows(job: Job) -> Iterator:
    clean_stale_shared_memory()
    loader = DataLoader(
        Samples(job),
        batch_size=job.work.batch,
        num_workers=job.threads,
        persistent_workers=True,
        drop_last=True,
    )
    return epochs(lambda _: iter(loader))


if __name__ == "__main__":
    main(["mosaicml-streaming", "torch", "numpy"], {"decoded": decoded_rows})
