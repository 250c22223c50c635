"""Samples as a careful user of OpenCV and NumPy makes them."""

import random

import cv2
import numpy as np

from peers.randomness import random_window
from workloads import CROP, SIDE, normalize, one_hot


def segmentation_sample(pair: tuple[str, str], colours: np.ndarray):
    """Returns float image and one-hot mask, cropped."""
    image, mask = (cv2.imread(p, cv2.IMREAD_COLOR_RGB)[:CROP, :CROP] for p in pair)
    return np.float32(image) / np.float32(255), one_hot(mask, colours)


def classification_sample(sample: tuple[str, int]):
    """Applies random resized crop, flip, normalize; returns channels last, and the
    label.
    """
    path, label = sample
    with open(path, "rb") as file:
        image = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_COLOR_RGB)
    top, left, h, w = random_window(*image.shape[:2])
    image = cv2.resize(image[top : top + h, left : left + w], (SIDE, SIDE))
    return normalize(image[:, ::-1] if random.random() < 0.5 else image), np.int64(
        label
    )
