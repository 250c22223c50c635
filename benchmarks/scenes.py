"""Made-up scenes: circles, rectangles and triangles, with their boxes and their masks.

Colours are random, so a network must learn shapes. Written as a dataset of COCO for
detection, or of Pascal VOC for segmentation.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ("circle", "rectangle", "triangle")
SIDE = 160


@dataclass(frozen=True)
class Scene:
    """A scene.

    Attributes:
        pixels: uint8 [SIDE, SIDE, 3].
        classes: uint8 [SIDE, SIDE]; 0 is the background, 1 the first class.
        boxes: Left, top, right and bottom of the objects, in pixels.
        labels: Class of each object, from 1.
    """

    pixels: np.ndarray
    classes: np.ndarray
    boxes: list[list[float]]
    labels: list[int]


def scene(number: int) -> Scene:
    """Returns the scene with this number: 1 to 4 objects that do not cover others."""
    rng = np.random.default_rng([7, number])
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float64)
    slope = rng.uniform(-0.5, 0.5, (2, 3))
    pixels = rng.uniform(60, 190, 3) + x[..., None] * slope[0] + y[..., None] * slope[1]
    classes = np.zeros((SIDE, SIDE), np.uint8)
    boxes: list[list[float]] = []
    labels: list[int] = []
    for _ in range(int(rng.integers(1, 5))):
        width, height = rng.uniform(24, 64, 2)
        left, top = rng.uniform(2, SIDE - 2 - width), rng.uniform(2, SIDE - 2 - height)
        box = [left, top, left + width, top + height]
        if any(overlap(box, other) for other in boxes):
            continue
        label = int(rng.integers(1, len(CLASSES) + 1))
        inside = shape(label, (x - left) / width, (y - top) / height)
        color = rng.uniform(0, 255, 3)
        stripes = 25 * np.sin((x + y) * rng.uniform(0.2, 0.9))
        pixels[inside] = (color + stripes[..., None])[inside]
        classes[inside] = label
        boxes.append(box)
        labels.append(label)
    pixels += rng.normal(0, 10, pixels.shape)
    return Scene(pixels.clip(0, 255).astype(np.uint8), classes, boxes, labels)


def shape(label: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns which pixels a shape covers; 0 to 1 is its box."""
    if label == 1:
        return (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.25
    in_box = (x > 0) & (x < 1) & (y > 0) & (y < 1)
    return in_box if label == 2 else in_box & (np.abs(x - 0.5) < y / 2)


def overlap(one: list[float], other: list[float]) -> bool:
    """Whether two boxes overlap."""
    return (
        one[0] < other[2]
        and other[0] < one[2]
        and one[1] < other[3]
        and other[1] < one[3]
    )


def write_coco(root: Path, first: int, count: int) -> None:
    """Writes scenes as ``images`` and ``annotations.json`` in a folder."""
    (root / "images").mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(count):
        one = scene(first + number)
        name = f"{number:06}.jpg"
        Image.fromarray(one.pixels).save(root / "images" / name, quality=90)
        size = {"height": SIDE, "width": SIDE}
        images.append({"id": number, "file_name": name, **size})
        for sides, label in zip(one.boxes, one.labels, strict=True):
            left, top, right, bottom = sides
            box = [left, top, right - left, bottom - top]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": label,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": n, "name": name} for n, name in enumerate(CLASSES, start=1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(content))


def write_voc(root: Path, count: int, held_out: int) -> None:
    """Writes scenes as torchvision's `VOCSegmentation` reads them: train and val."""
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / folder).mkdir(parents=True)
    names = [f"{number:06}" for number in range(count + held_out)]
    for number, name in enumerate(names):
        one = scene(number)
        Image.fromarray(one.pixels).save(
            base / "JPEGImages" / f"{name}.jpg", quality=90
        )
        mask = Image.fromarray(one.classes)
        mask.putpalette(list(range(256)) * 3)
        mask.save(base / "SegmentationClass" / f"{name}.png")
    for part, chosen in (("train", names[:count]), ("val", names[count:])):
        text = "\n".join(chosen) + "\n"
        (base / "ImageSets" / "Segmentation" / f"{part}.txt").write_text(text)
