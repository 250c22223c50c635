"""Data of the steps: images in memory, and photographs in files."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import infeed
from infeed import sources
from infeed import transforms as T

# The command of the imported package, installed or not.
COMMAND = "import sys; from infeed._cli import main; sys.exit(main())"

# JPEGs that `PHOTOGRAPHS=FOLDER make gpu-kit` added, in folders of one class each.
CARRIED = Path(__file__).parents[2] / "target" / "gpu-kit" / "photographs"

FLOATS = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)


def images(count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images uint8 [count, side, side, 3] and their classes int64 [count]."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return pixels, np.arange(count) % 1000


def in_memory(pixels: np.ndarray, classes: np.ndarray, batch: int) -> infeed.Pipeline:
    """Images in memory, mirrored at random, as bfloat16 with the channels last."""
    source = sources.Memory(image=pixels, label=classes)
    return (
        infeed.Pipeline(source)
        .shuffle(seed=0)
        .transform(T.RandomHorizontalFlip(), FLOATS, layout="HWC", dtype="bfloat16")
        .batch(batch, drop_last=True)
    )


def photographs(folder: Path, count: int) -> Path:
    """Writes JPEGs as ``folder/class/0000.jpg``; returns the folder.

    Repeats the photographs of the kit, or generates scenes if the kit has none.
    """
    carried = sorted(CARRIED.glob("*/*"))
    if carried:
        for at in range(count):
            file = carried[at % len(carried)]
            copy = folder / file.parent.name / f"{at:05}.jpg"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(file)
        return folder
    command = [sys.executable, "-c", COMMAND, "sample", "classification", str(folder)]
    command += ["--count", str(count)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"cannot write photographs: {ran.stderr.strip()}")
    return folder


def crop_pipeline(folder: Path, side: int, batch: int) -> infeed.Pipeline:
    """Random crops of photographs, mirrored at random, as bfloat16, channels last."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.RandomResizedCrop(side),
            T.RandomHorizontalFlip(),
            FLOATS,
            layout="HWC",
            dtype="bfloat16",
        )
        .batch(batch, drop_last=True)
    )


def forever(loader):
    """Yields its batches, epoch after epoch."""
    while True:
        yield from loader
