"""Small datasets in the format of YOLO, for each of its tasks."""

from pathlib import Path

import numpy as np
from PIL import Image

IMAGES = 40
# Resized to a longer side of 96, the last one has a side that is no whole number.
SIZES = [(60, 80), (128, 96), (96, 72), (144, 144), (60, 120), (100, 60), (130, 61)]
# The second and the third point are a pair.
POINTS, FLIP_INDEX = 4, [0, 2, 1, 3]


def write_boxed_folder(folder: Path, task: str = "detect") -> Path:
    """Writes images of several sizes with up to four objects; returns `data.yaml`.

    Args:
        folder: The folder.
        task: Labels are boxes (``"detect"``), outlines (``"segment"``), boxes with
            keypoints (``"pose"``) or the corners of rotated boxes (``"obb"``).
    """
    rng = np.random.default_rng(0)
    for split, count in (("train", IMAGES), ("val", 12)):
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for number in range(count):
            height, width = SIZES[number % len(SIZES)]
            small = rng.integers(0, 255, (6, 8, 3), np.uint8)
            image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
            image.save(images / f"{number:03}.jpg", quality=95)
            rows = []
            # One image in five has no object.
            for _ in range(number % 5):
                side = rng.uniform(0.1, 0.5, 2)
                centre = rng.uniform(side / 2, 1 - side / 2)
                label = int(rng.integers(3))
                values = _values(task, rng, centre, side)
                rows.append(" ".join(map(str, (label, *values))))
            (labels / f"{number:03}.txt").write_text("\n".join(rows))
    path = folder / "data.yaml"
    text = (
        f"path: {folder}\ntrain: images/train\nval: images/val\n"
        "names:\n  0: zero\n  1: one\n  2: two\n"
    )
    if task == "pose":
        text += f"kpt_shape: [{POINTS}, 3]\nflip_idx: {FLIP_INDEX}\n"
    path.write_text(text)
    return path


def write_class_folder(folder: Path) -> Path:
    """Writes images of three classes, in folders of a training and a validation."""
    rng = np.random.default_rng(0)
    for split, count in (("train", IMAGES), ("val", 9)):
        for number in range(count):
            path = folder / split / "abc"[number % 3] / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            height, width = SIZES[number % len(SIZES)]
            small = rng.integers(0, 255, (6, 8, 3), np.uint8)
            image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
            image.save(path, quality=95)
    return folder


def _values(task: str, rng, centre, side) -> list[float]:
    """Returns the numbers of an object in this box: shares of the image."""
    if task == "segment":
        angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(5, 12)))
        radii = rng.uniform(0.4, 1, (len(angles), 1)) * side / 2
        corners = centre + radii * np.stack([np.cos(angles), np.sin(angles)], 1)
        return corners.ravel().tolist()
    if task == "obb":
        angle = rng.uniform(0, np.pi)
        turn = np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        half = side / 2 * [0.9, 0.4]
        signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        return np.clip(centre + signs * half @ turn.T, 0, 1).ravel().tolist()
    if task == "pose":
        points = rng.uniform(centre - side / 2, centre + side / 2, (POINTS, 2))
        visible = rng.integers(0, 3, (POINTS, 1))
        return [*centre, *side, *np.hstack([points, visible]).ravel()]
    return [*centre, *side]
