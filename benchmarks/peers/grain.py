"""Grain: a MapDataset read by threads; images by OpenCV, outside the interpreter.

Threads instead of worker processes: with batches of tens of megabytes, passing them on
from a process costs half of its rate.
"""

import random
from collections.abc import Iterator

import cv2
import grain
import numpy as np

from measure import Job, main
from peers.images import classification_sample, segmentation_sample
from workloads import normalize

cv2.setNumThreads(0)  # the threads are grain's


def running(job: Job, samples, one) -> Iterator:
    ds = grain.MapDataset.source(samples).seed(0)
    ds = (ds.shuffle() if job.work.shuffled else ds).repeat()
    ds = ds.map(one).batch(job.work.batch, drop_remainder=True)
    return iter(
        ds.to_iter_dataset(
            grain.ReadOptions(num_threads=job.threads, prefetch_buffer_size=4)
        )
    )


def segmentation(job: Job) -> Iterator:
    colours = job.data.colours()
    return running(
        job, job.data.pairs(), lambda pair: segmentation_sample(pair, colours)
    )


def classification(job: Job) -> Iterator:
    return running(
        job, list(zip(*job.data.images(), strict=True)), classification_sample
    )


def decoded_rows(job: Job) -> Iterator:
    pixels, labels = job.data.array()
    floats = job.work.name == "decoded"

    def one(row):
        image = pixels[row]
        image = image[:, ::-1] if random.random() < 0.5 else image
        return normalize(image) if floats else np.ascontiguousarray(image), labels[row]

    return running(job, range(len(labels)), one)


if __name__ == "__main__":
    main(
        ["grain", "opencv-python-headless", "numpy"],
        {
            "segmentation": segmentation,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
