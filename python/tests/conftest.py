"""Small datasets of synthetic photographs, and a count of absent frameworks."""

import collections
import csv
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

# A command that a shell starts in the background ignores SIGINT, and so do the scripts
# that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test-all` sets it.
LONG_TESTS = bool(os.environ.get("INFEED_LONG_TESTS"))

PALETTE = {
    "sky": (128, 128, 128),
    "road": (128, 64, 128),
    "tree": (128, 128, 0),
    "car": (64, 0, 128),
}


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Waits until a condition holds. Returns whether it does within that time."""
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def held_batches(loader, expected: int) -> int:
    """Waits until a number of batches is held; a batch counts while it is finished."""
    wait_until(lambda: loader.loader.stats()["held"] == expected)
    return loader.loader.stats()["held"]


def photograph(seed: int, height: int, width: int) -> np.ndarray:
    """Returns smooth colours with some noise, uint8 [H, W, 3]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    channels = []
    for _ in range(3):
        a, b, c = rng.uniform(2, 9, 3)
        channels.append(128 + 90 * np.sin(a * x + b * y * x + c))
    noise = rng.normal(0, 6, (height, width, 3))
    return np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8)


def class_map(seed: int, height: int, width: int) -> np.ndarray:
    """Returns class indices in large regions, int [H, W]; one has no colour."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    centres = rng.uniform(0, 1, (9, 2)) * (height, width)
    distance = [(y - cy) ** 2 + (x - cx) ** 2 for cy, cx in centres]
    return np.argmin(distance, axis=0) % (len(PALETTE) + 1)


@pytest.fixture(autouse=True)
def seed_generators():
    """Seeds the generators that datasets draw from, so that each test repeats."""
    random.seed(0)
    np.random.seed(0)
    # A framework that is not imported yet is not imported here.
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(0)


@pytest.fixture
def ctrl_c():
    """Sends Ctrl-C to the main thread after some seconds, unless the test has ended.

    Installs Python's handler, because the command, which other tests run in this
    process, sets another one.
    """
    main = threading.main_thread().ident
    timers = []

    def send(delay: float):
        timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT))
        timers.append(timer)
        timer.start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield send
    for timer in timers:
        timer.cancel()
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Segmentation:
    """A folder of images, one of masks, and the CSV of their colours."""

    image: Path
    mask: Path
    palette: Path
    images: list[np.ndarray]
    classes: list[np.ndarray]


@dataclass(frozen=True)
class Classification:
    """A folder of classes, and its files with their labels in record order."""

    path: Path
    files: list[tuple[Path, int]]


@pytest.fixture(scope="session")
def segmentation(tmp_path_factory) -> Segmentation:
    """Ten PNG pairs of 48x64 px. A fifth of each mask has a colour without a class."""
    root = tmp_path_factory.mktemp("segmentation")
    colours = np.array([*PALETTE.values(), (1, 2, 3)], np.uint8)
    images, classes = [], []
    for name in ("image", "mask"):
        (root / name).mkdir()
    for n in range(10):
        images.append(photograph(n, 48, 64))
        classes.append(class_map(n, 48, 64))
        Image.fromarray(images[-1]).save(root / "image" / f"{n:03}.png")
        Image.fromarray(colours[classes[-1]]).save(root / "mask" / f"{n:03}.png")
    with open(root / "class_dict.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "r", "g", "b"])
        writer.writerows([name, *colour] for name, colour in PALETTE.items())
    return Segmentation(
        root / "image", root / "mask", root / "class_dict.csv", images, classes
    )


@pytest.fixture(scope="session")
def classification(tmp_path_factory) -> Classification:
    """Thirty JPEGs in three classes, all of different sizes."""
    root = tmp_path_factory.mktemp("classification")
    files = []
    for label, name in enumerate(["ant", "bee", "cat"]):
        (root / name).mkdir()
        for n in range(10):
            seed = 10 * label + n
            pixels = photograph(seed, 90 + 3 * seed, 140 - 2 * seed)
            path = root / name / f"{n:03}.jpg"
            Image.fromarray(pixels).save(path, quality=92)
            files.append((path, label))
    return Classification(root, files)


@pytest.fixture
def few_draws(monkeypatch):
    """Compares random samples in eight draws; in long tests, in the usual number."""
    if not LONG_TESTS:
        monkeypatch.setattr("infeed.adopting.equivalence._MOST_DRAWS", 8)


def pytest_collection_modifyitems(config, items):
    """Deselects tests marked `long`, unless INFEED_LONG_TESTS is set."""
    if LONG_TESTS:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


def pytest_terminal_summary(terminalreporter):
    """Prints the reasons for skipped tests, and a count for each absent framework."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in skip_summary(report.longrepr[2] for report in skipped):
        terminalreporter.write_line(line)


def skip_summary(reasons) -> list[str]:
    """Returns one line for all absent frameworks, and one for each other reason."""
    pattern = r"(\w+) is not installed|could not import '(\w+)'"
    absent, others = collections.Counter(), collections.Counter()
    for reason in reasons:
        if match := re.search(pattern, reason):
            absent[match[1] or match[2]] += 1
        else:
            others[reason.removeprefix("Skipped: ")] += 1
    lines = [f"Skipped {count}: {reason}" for reason, count in sorted(others.items())]
    if absent:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(absent.items()))
        lines.append(f"Skipped for frameworks that are not installed: {counts}")
    return lines
