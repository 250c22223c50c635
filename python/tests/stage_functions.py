"""Functions for `test_python_stage`, in a module that other processes can import."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np

# A file that exists after the first crash; processes inherit the variable.
CRASHED = "INFEED_TEST_CRASHED"


def halve(sample):
    """Returns every second row and column of the image as float32, and the label."""
    image = sample["image"][::2, ::2]
    return {"image": image.astype(np.float32) / 255, "label": sample["label"]}


def noisy(sample, rng):
    """Adds noise, drawn for each sample."""
    noise = rng.standard_normal(4)
    return {"noise": noise, "twice": rng.integers(0, 2**60), "label": sample["label"]}


def keyword_noise(sample, *, rng):
    """Receives the generator as a keyword."""
    return {"noise": rng.standard_normal(4)}


def in_place(sample):
    """Changes its input in place."""
    sample["image"] += 1
    return sample


def keep_input(sample, seen=[]):  # noqa: B006
    """Keeps its input, which must not change later."""
    seen.append((sample["image"], sample["image"].copy()))
    whole = all((image == copy).all() for image, copy in seen)
    return {"whole": np.array(whole)}


def texts(sample):
    """Receives and returns text and bytes."""
    return {"name": sample["name"].upper(), "data": sample["data"] + b"!"}


def picky(sample):
    """Raises for odd numbers."""
    if sample["x"] % 2:
        raise ValueError(f"{int(sample['x'])} is odd")
    return {"x": sample["x"]}


def where(sample):
    """Returns the number of the process that runs it."""
    return {"x": sample["x"], "process": np.int64(os.getpid())}


def killed_once(sample):
    """Crashes at one sample the first time."""
    path = os.environ[CRASHED]
    if sample["x"] == 7 and not os.path.exists(path):
        with open(path, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return {"x": sample["x"] * 2}


def exits(sample):
    """Crashes at one sample every time."""
    if sample["x"] == 7:
        os._exit(3)
    return {"x": sample["x"] * 2}


BLOCKED = "INFEED_TEST_BLOCKED"


def block(sample):
    """Never returns, except for the first sample. Creates a file before it blocks."""
    if sample["x"] > 0:
        Path(os.environ[BLOCKED]).touch()
    while sample["x"] > 0:
        time.sleep(0.05)
    return {"x": sample["x"]}


def busy(sample):
    """Holds the interpreter's lock for a few milliseconds."""
    total = 0
    for n in range(60_000):
        total += n
    return {"x": sample["x"] + 0 * total}


def printing(sample):
    """Prints, which must not break the protocol with the engine."""
    print("a line of the function")
    return {"x": sample["x"]}


def mix(batch, rng):
    """Mixes each image with that of the next row, as MixUp does."""
    weight = rng.beta(0.4, 0.4)
    image = batch["image"].astype(np.float32)
    other = np.roll(image, 1, axis=0)
    label = np.eye(3, dtype=np.float32)[batch["label"]]
    soft = weight * label + (1 - weight) * np.roll(label, 1, axis=0)
    mixed_image = (weight * image + (1 - weight) * other).astype(np.float32)
    return {"image": mixed_image, "label": soft.astype(np.float32)}


def brighten(batch):
    """Changes the batch in place."""
    batch["image"] += 1
    return batch


class Adder:
    """A callable with settings."""

    def __init__(self, number):
        self.number = number

    def __call__(self, sample):
        return {"x": sample["x"] + self.number}


def brightened_label(batch):
    """Changes one field in place."""
    batch["label"] += 1
    return batch


def identity(fields):
    """Returns a sample or a batch unchanged."""
    return fields


def make_boxes(sample):
    """Returns as many boxes as its number, as lists of Python."""
    number = int(sample["x"])
    boxes = [[number, 0, 1, 1]] * number
    return {"boxes": np.array(boxes, np.float32) if boxes else []}


def limits(sample):
    """Returns the thread limits that libraries read when they are imported."""
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    return {"x": np.array([int(os.environ.get(name, 0)) for name in names])}


def draw(sample):
    """Draws from the generators of its process."""
    return {"x": np.array([random.random(), np.random.rand()])}


class LateGenerator:
    """Makes its generator in the first call, and changes its input."""

    def __init__(self):
        self.generator = None

    def __call__(self, sample):
        self.generator = self.generator or np.random.default_rng()
        number = sample["x"].copy()
        sample["x"] += 1
        return {"x": np.float64(self.generator.random()), "number": number}
