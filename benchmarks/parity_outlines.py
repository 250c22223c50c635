"""Compares maps of outlines with those of Ultralytics.

    python benchmarks/parity_outlines.py [--images 200] [--size 640]

Runs in `.venv-trainers/ultralytics`. Each image has up to 20 random polygons of 5 to 40
corners. Ultralytics draws 1 000 points of each, as its datasets do.
"""

import argparse

import numpy as np
from ultralytics.data.utils import polygons2masks_overlap
from ultralytics.utils.ops import resample_segments

import infeed
from infeed import sources

STRIDE = 4


def draw_polygons(draws: np.random.Generator, size: int) -> list[np.ndarray]:
    """Returns random polygons around points of an image."""
    polygons = []
    for _ in range(draws.integers(1, 21)):
        corners = int(draws.integers(5, 41))
        angles = np.sort(draws.uniform(0, 2 * np.pi, corners))
        radius = draws.uniform(0.01, 0.25) * size * draws.uniform(0.6, 1, corners)
        circle = np.stack([np.cos(angles), np.sin(angles)], 1)
        centre = draws.uniform(0, size, 2)
        polygon = np.clip(centre + radius[:, None] * circle, 0, size)
        polygons.append(polygon.astype(np.float32))
    return polygons


def map_of(images: list[list[np.ndarray]], size: int) -> infeed.Pipeline:
    """Returns a pipeline with the maps of images."""
    end = np.full((1, 2), np.nan, np.float32)
    numbers = [
        np.concatenate([part for one in image for part in (one, end)]).ravel()
        for image in images
    ]
    boxes = [np.zeros(4 * len(image), np.float32) for image in images]
    source = sources.Memory(
        image=np.zeros((len(images), size, size, 1), np.uint8),
        boxes=boxes,
        outlines=numbers,
    )
    pipeline = infeed.Pipeline(source).boxes(
        outlines="outlines", map_stride=STRIDE, min_size=0, min_area=0
    )
    return pipeline.batch(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--size", type=int, default=640)
    arguments = parser.parse_args()
    draws, size = np.random.default_rng(0), arguments.size
    images = [draw_polygons(draws, size) for _ in range(arguments.images)]
    apart, areas, overlaps = [], [], []
    for image, batch in zip(images, map_of(images, size), strict=True):
        points = resample_segments([one.copy() for one in image])
        theirs, _ = polygons2masks_overlap((size, size), points, STRIDE)
        ours = batch["outlines"][0]
        apart.append(np.mean((theirs > 0) != (ours > 0)))
        areas.append(np.sum(ours > 0) / np.sum(theirs > 0))
        both = np.sum((ours > 0) & (theirs > 0))
        overlaps.append(both / np.sum((ours > 0) | (theirs > 0)))
    print(
        f"{len(images)} images of {size} px, maps of {size // STRIDE} px: "
        f"{np.mean(apart):.2%} of the pixels differ; area of infeed's "
        f"{np.mean(areas):.4f} of theirs; overlap {np.mean(overlaps):.4f}, at least "
        f"{np.min(overlaps):.4f}"
    )


if __name__ == "__main__":
    main()
