"""A small dataset for detection, in the format of YOLO."""

from pathlib import Path

import numpy as np
from PIL import Image

IMAGES = 40
# Resized to a longer side of 96, they have sides that are even numbers.
SIZES = [(60, 80), (128, 96), (96, 72), (144, 144), (60, 120), (100, 60)]


def write_boxed_folder(folder: Path) -> Path:
    """Writes images of several sizes with up to four boxes; returns `data.yaml`."""
    rng = np.random.default_rng(0)
    for split, count in (("train", IMAGES), ("val", 8)):
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for number in range(count):
            height, width = SIZES[number % len(SIZES)]
            small = rng.integers(0, 255, (6, 8, 3), np.uint8)
            image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
            image.save(images / f"{number:03}.jpg", quality=95)
            rows = []
            # One image in five has no box.
            for _ in range(number % 5):
                side = rng.uniform(0.1, 0.5, 2)
                centre = rng.uniform(side / 2, 1 - side / 2)
                row = (int(rng.integers(3)), *centre, *side)
                rows.append(" ".join(map(str, row)))
            (labels / f"{number:03}.txt").write_text("\n".join(rows))
    path = folder / "data.yaml"
    path.write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\n"
        "names:\n  0: zero\n  1: one\n  2: two\n"
    )
    return path
