"""Writes masks.json: segmentations of COCO, and their pixels by pycocotools.

    python make_masks.py

Needs pycocotools 2.0.
"""

import json
import pathlib

import numpy as np
from pycocotools import mask as coco

HERE = pathlib.Path(__file__).parent


def polygon(rng, height, width):
    """Returns corners inside and outside the image, with few digits."""
    corners = int(rng.integers(3, 12))
    low, high = (-0.3, 1.3) if rng.random() < 0.4 else (0.0, 1.0)
    points = rng.uniform(low, high, (corners, 2)) * (width, height)
    if rng.random() < 0.5:
        # In the order of the angle: an outline that does not cross itself.
        x, y = (points - points.mean(0)).T
        points = points[np.argsort(np.arctan2(y, x))]
    digits = int(rng.integers(0, 4))
    points = np.round(points, digits)
    if rng.random() < 0.2:
        points = np.round(points * 10) / 10
    return points.ravel().tolist()


def main():
    rng = np.random.default_rng(0)
    cases = []
    for _ in range(120):
        height, width = (int(side) for side in rng.integers(1, 40, 2))
        polygons = [polygon(rng, height, width) for _ in range(int(rng.integers(1, 4)))]
        runs = coco.merge(coco.frPyObjects(polygons, height, width))
        pixels = coco.decode(runs)
        cases.append(
            {
                "size": [height, width],
                "polygons": polygons,
                "counts": runs["counts"].decode(),
                "pixels": np.packbits(pixels).tobytes().hex(),
            }
        )
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "masks.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
