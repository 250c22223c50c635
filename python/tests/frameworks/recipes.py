"""Small datasets in the forms that recipes read: VOC, COCO, MNIST and folders."""

import json
import struct
from pathlib import Path

import numpy as np
from conftest import class_map, photograph
from PIL import Image


def write_classes(root: Path, count: int, suffix: str = ".jpg", side: int = 0) -> None:
    """Writes photographs in three classes, of different tints and sizes.

    Args:
        root: The folder.
        count: Number of photographs.
        suffix: Form of the files.
        side: Height and width in pixels; 0: those differ.
    """
    tints = np.random.default_rng(0).uniform(0.3, 1, (count, 3))
    for n in range(count):
        path = root / f"class{n % 3}" / f"{n:03}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = (side, side) if side else (80 + n, 100 + n % 7)
        pixels = (photograph(n, height, width) * tints[n]).astype(np.uint8)
        Image.fromarray(pixels).save(path)


def write_voc(root: Path, count: int) -> None:
    """Writes a dataset of segmentation in the form of Pascal VOC 2012."""
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / folder).mkdir(parents=True)
    names = [f"2012_{n:06}" for n in range(count)]
    for n, name in enumerate(names):
        height, width = 60 + n, 80 - n
        image = Image.fromarray(photograph(n, height, width))
        image.save(base / "JPEGImages" / f"{name}.jpg")
        classes = class_map(n, height, width).astype(np.uint8)
        # Borders of objects have the value 255, as in the challenge.
        classes[:2] = 255
        mask = Image.fromarray(classes, mode="P")
        mask.putpalette(list(range(256)) * 3)
        mask.save(base / "SegmentationClass" / f"{name}.png")
    for part in ("train", "val"):
        text = "\n".join(names) + "\n"
        (base / f"ImageSets/Segmentation/{part}.txt").write_text(text)


def write_coco(root: Path, count: int) -> Path:
    """Writes a dataset of detection in the form of COCO, and returns its annotations.

    Every fourth image has no boxes.
    """
    rng = np.random.default_rng(3)
    images, annotations = [], []
    (root / "images").mkdir(parents=True)
    for n in range(count):
        height, width = 90 + n, 120
        name = f"{n:012}.jpg"
        Image.fromarray(photograph(n, height, width)).save(root / "images" / name)
        image = {"id": n + 1, "file_name": name, "height": height, "width": width}
        images.append(image)
        for _ in range(n % 4):
            left, top = rng.uniform(0, 60, 2).round(2).tolist()
            w, h = rng.uniform(16, 30, 2).round(2).tolist()
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": n + 1,
                    "category_id": int(rng.integers(1, 4)),
                    "bbox": [left, top, w, h],
                    "area": w * h,
                    "iscrowd": 0,
                    "segmentation": [[left, top, left + w, top, left, top + h]],
                }
            )
    categories = [{"id": n, "name": f"kind{n}"} for n in (1, 2, 3)]
    path = root / "instances.json"
    path.write_text(
        json.dumps(
            {"images": images, "annotations": annotations, "categories": categories}
        )
    )
    return path


def write_mnist(root: Path, count: int) -> None:
    """Writes the four files of MNIST, with images of random blobs."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    pixels = np.stack([photograph(n, 28, 28)[..., 0] for n in range(count)])
    labels = (np.arange(count) % 10).astype(np.uint8)
    for part in ("train", "t10k"):
        head = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        head = struct.pack(">II", 0x801, count)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
