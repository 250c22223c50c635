"""The workloads of the benchmark: their data and batches.

Needs only NumPy (and Pillow for the reference of the segmentation workload), so that it
runs in every peer's environment.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CROP = 512
SIDE = 224
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
# x * SCALE + BIAS is (x / 255 - MEAN) / STD, with one multiplication and one addition.
SCALE = (1 / (255 * STD)).astype(np.float32)
BIAS = (-MEAN / STD).astype(np.float32)
IMAGES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Workload:
    """One job, the same for every peer."""

    name: str
    batch: int
    data: str  # the data set it reads: segmentation, classification or decoded
    unit: str
    shuffled: bool
    about: str


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "segmentation", 3, "segmentation", "pairs/s", True,
            "PNG pairs, 512x512 crop, image to float in 0..1, mask to one-hot float32",
        ),
        Workload(
            "segmentation-ordered", 3, "segmentation", "pairs/s", False,
            "the same without shuffling; the first batch is compared with Pillow's",
        ),
        Workload(
            "segmentation-lossless", 3, "segmentation", "pairs/s", True,
            "the pairs as lossless records",
        ),
        Workload(
            "classification", 64, "classification", "images/s", True,
            "JPEGs, random resized crop to 224, flip, normalize to float32",
        ),
        Workload(
            "classification-lossless", 64, "classification", "images/s", True,
            "the same on lossless records",
        ),
        Workload(
            "classification-uint8", 64, "classification", "images/s", True,
            "JPEGs, random resized crop to 224 and flip: uint8 until the device",
        ),
        Workload(
            "classification-uint8-lossless", 64, "classification", "images/s", True,
            "the same on lossless records",
        ),
        Workload(
            "decoded", 256, "decoded", "images/s", True,
            "uint8 224x224x3 in a memory-mapped .npy, flip, normalize to float32",
        ),
        Workload(
            "decoded-uint8", 256, "decoded", "images/s", True,
            "the same, flipped only: uint8 until the device",
        ),
        Workload(
            "whole-png", 8, "segmentation", "images/s", True,
            "the images of the pairs, decoded whole to uint8: the engine's own cost",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Paths of the datasets."""

    segmentation: Path
    classification: Path
    decoded: Path
    # Lossless records of the files, for workloads that read these instead.
    records: Path | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """Returns sorted pairs of image and mask paths of the segmentation set."""
        images, masks = split_of(self.segmentation)
        return [(str(p), str(masks / p.name)) for p in files_below(images)]

    def colours(self) -> np.ndarray:
        """Returns the palette of the segmentation set: int64 ``[classes, 3]``."""
        with open(self.segmentation / "class_dict.csv", newline="") as lines:
            rows = csv.DictReader(lines, skipinitialspace=True)
            return np.array([[int(row[c]) for c in "rgb"] for row in rows], np.int64)

    def images(self) -> tuple[list[str], list[int]]:
        """Returns paths of the classification set, sorted, and the number of each
        folder.
        """
        files = files_below(self.classification)
        folders = {d: n for n, d in enumerate(sorted({f.parent for f in files}))}
        return [str(f) for f in files], [folders[f.parent] for f in files]

    def array(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the decoded set, mapped uint8 ``[N, 224, 224, 3]``, and each row's
        number.
        """
        pixels = np.load(self.decoded, mmap_mode="r")
        return pixels, np.arange(len(pixels), dtype=np.int64)


def split_of(root: Path) -> tuple[Path, Path]:
    """Returns the folders of images and masks: images and masks, image and mask, or
    NAME and NAME_labels.
    """
    for images, masks in (("images", "masks"), ("image", "mask")):
        if (root / masks).is_dir():
            return root / images, root / masks
    for masks in sorted(root.glob("*_labels")):
        return root / masks.name.removesuffix("_labels"), masks
    raise SystemExit(f"{root} has neither images and masks nor NAME and NAME_labels")


def files_below(root: Path) -> list[Path]:
    """Returns image files below `root`, including linked folders, sorted."""
    walk = os.walk(root, followlinks=True)
    files = (Path(folder, name) for folder, _, names in walk for name in names)
    return sorted(file for file in files if file.suffix.lower() in IMAGES)


def colour_codes(colours: np.ndarray) -> np.ndarray:
    """Returns each colour as one int32, red highest."""
    c = colours.astype(np.int32)
    return (c[:, 0] << 16) | (c[:, 1] << 8) | c[:, 2]


def one_hot(mask: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Encodes masks as careful NumPy code does, one comparison per class."""
    m = mask.astype(np.int32)
    code = (m[..., 0] << 16) | (m[..., 1] << 8) | m[..., 2]
    out = np.empty((*code.shape, len(colours)), np.float32)
    for k, colour in enumerate(colour_codes(colours)):
        np.equal(code, colour, out=out[..., k], casting="unsafe")
    return out


def normalize(pixels: np.ndarray) -> np.ndarray:
    """Converts uint8 ``[..., 3]`` to ImageNet-normalized float32."""
    x = np.multiply(pixels, SCALE, dtype=np.float32)
    x += BIAS
    return x
