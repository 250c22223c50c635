"""A common first version: a Keras PyDataset over OpenCV, run as `model.fit` does.

Variants: "" compares the mask with each colour, as in the widespread example of this
code; "packed" compares colours packed into integers.
"""

import os
import random
from collections.abc import Iterator

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cv2
import keras
import numpy as np
from keras.src.trainers.data_adapters.py_dataset_adapter import OrderedEnqueuer

from measure import Job, epochs, main
from peers.images import classification_sample, segmentation_sample
from workloads import CROP


class Batches(keras.utils.PyDataset):
    """Batches of samples; a function makes each sample."""

    def __init__(self, job: Job, samples: list, one):
        super().__init__(workers=job.threads, max_queue_size=10)
        self.work, self.samples, self.one = job.work, list(samples), one
        self.on_epoch_end()

    def __len__(self) -> int:
        return len(self.samples) // self.work.batch

    def on_epoch_end(self) -> None:
        if self.work.shuffled:
            random.shuffle(self.samples)

    def __getitem__(self, n: int):
        batch = self.samples[n * self.work.batch : (n + 1) * self.work.batch]
        images, targets = zip(*map(self.one, batch), strict=True)
        return np.stack(images), np.stack(targets)


def running(batches: Batches) -> Iterator:
    def epoch(_: int) -> Iterator:
        enqueuer = OrderedEnqueuer(
            batches, workers=batches.workers, max_queue_size=batches.max_queue_size
        )
        enqueuer.start()
        produced = enqueuer.get()
        for _ in range(len(batches)):
            yield next(produced)
        enqueuer.stop()
        batches.on_epoch_end()

    return epochs(epoch)


def one_hot_by_class(mask: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Compares the three channels once for each class."""
    planes = [np.all(np.equal(mask, colour), axis=-1) for colour in colours]
    return np.stack(planes, axis=-1).astype(np.float32)


def segmentation(job: Job) -> Iterator:
    colours = job.data.colours()

    def naive(pair):
        image, mask = (
            cv2.cvtColor(cv2.imread(p), cv2.COLOR_BGR2RGB)[:CROP, :CROP] for p in pair
        )
        return np.float32(image) / np.float32(255), one_hot_by_class(mask, colours)

    def packed_sample(pair):
        return segmentation_sample(pair, colours)

    one = packed_sample if job.variant == "packed" else naive
    return running(Batches(job, job.data.pairs(), one))


def classification(job: Job) -> Iterator:
    return running(
        Batches(job, list(zip(*job.data.images(), strict=True)), classification_sample)
    )


if __name__ == "__main__":
    main(
        ["keras", "opencv-python-headless", "numpy"],
        {"segmentation": segmentation, "classification": classification},
    )
