#!/usr/bin/env python3
"""Compares boxes and points with torchvision v2 after each geometric transform.

Needs what `parity.py` needs. Sizes are random, or those of the images of `--images`;
torchvision gets the parameters that infeed's preview prints. Exits with status 1 if a
difference exceeds `--most`.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional

import infeed
from infeed import sources
from infeed import transforms as T
from parity import affine, crop, floats, numbers, scale, zoom_out

COUNT = 6


@dataclass(frozen=True)
class Case:
    """A transform, and its counterpart in torchvision, given infeed's draws."""

    step: T.Transform
    other: Callable[..., object]


def resized_crop(boxes: object, draws: str) -> object:
    width, height, left, top, *_ = numbers(draws)
    return functional.resized_crop(boxes, top, left, height, width, [96, 96])


def perspective(boxes: object, draws: str) -> object:
    height, width = boxes.canvas_size
    x = [int(n) for n in floats(draws)]
    corners = [x[0:2], x[2:4], x[4:6], x[6:8]]
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    return functional.perspective(boxes, start, corners)


def cases() -> list[Case]:
    """Returns the geometric transforms that torchvision has."""
    return [
        Case(T.CenterCrop(48), lambda it, _: functional.center_crop(it, [48, 48])),
        Case(T.RandomCrop(48), crop),
        Case(T.RandomHorizontalFlip(1), lambda it, _: functional.horizontal_flip(it)),
        Case(T.RandomVerticalFlip(1), lambda it, _: functional.vertical_flip(it)),
        Case(T.Pad((5, 7, 9, 11)), lambda it, _: functional.pad(it, [5, 7, 9, 11])),
        Case(T.Resize((50, 70)), lambda it, _: functional.resize(it, [50, 70])),
        Case(T.Resize(60), lambda it, _: functional.resize(it, [60])),
        Case(T.RandomResizedCrop(96), resized_crop),
        Case(T.RandomShortestSize((50, 90)), scale),
        Case(T.ScaleJitter((100, 80)), scale),
        Case(T.RandomZoomOut(p=1), zoom_out),
        Case(
            T.RandomAffine(
                30, translate=(0.1, 0.2), scale=(0.7, 1.4), shear=(-10, 10, -5, 5)
            ),
            affine,
        ),
        Case(T.RandomRotation(180), affine),
        Case(T.RandomPerspective(p=1), perspective),
    ]


class Scenes:
    """Images of given sizes, with random boxes and points in pixels."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> dict[str, np.ndarray | bytes]:
        rng = np.random.default_rng(index)
        height, width = self.sizes[index]
        corners = np.sort(rng.uniform(0, (width, height), (COUNT, 2, 2)), axis=1)
        image = BytesIO()
        Image.new("RGB", (width, height)).save(image, "png")
        return {
            "image": image.getvalue(),
            "boxes": corners.reshape(COUNT, 4).astype(np.float32),
            "labels": np.arange(COUNT),
            "points": rng.uniform(0, (width, height), (COUNT, 2)).astype(np.float32),
        }


def made_up(count: int) -> list[tuple[int, int]]:
    """Returns random heights and widths."""
    rng = np.random.default_rng(0)
    return [tuple(int(n) for n in rng.integers(50, 200, 2)) for _ in range(count)]


def real(folder: Path, count: int) -> list[tuple[int, int]]:
    """Returns heights and widths of images of a folder, again and again."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = [Image.open(path).size[::-1] for path in paths[:count]]
    return [sizes[at % len(sizes)] for at in range(count)]


def differences(case: Case, scenes: Scenes) -> Iterator[tuple[float, float]]:
    """Yields the largest difference of boxes, and of points, in each image."""
    ragged = sources.Field(kind="ragged")
    fields = dict.fromkeys(("boxes", "labels", "points"), ragged)
    source = sources.Items(scenes, fields={"image": "image"} | fields)
    pipeline = (
        infeed.Pipeline(source)
        .decode()
        .boxes("boxes", columns=("labels",), min_size=0, min_area=0)
        .points("points", visibility=False)
        .transform(case.step)
    )
    name = type(case.step).__name__
    for at in range(len(scenes)):
        preview = pipeline.preview(at)
        draws = preview[name].draws if name in [s.name for s in preview] else None
        scene, found = scenes[at], preview["output"].fields
        size = scenes.sizes[at]
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(scene["boxes"]), format="XYXY", canvas_size=size
        )
        points = tv_tensors.KeyPoints(
            torch.from_numpy(scene["points"]), canvas_size=size
        )
        if draws is not None:
            boxes, points = case.other(boxes, draws), case.other(points, draws)
        boxes, points = boxes.numpy(), points.numpy()
        kept = np.asarray(found["labels"]).reshape(-1)
        own = np.asarray(found["boxes"]).reshape(-1, 4)
        apart = np.abs(own - boxes[kept]).max(initial=0)
        # A box that infeed drops is outside: torchvision clips it to a line.
        dropped = np.delete(boxes, kept, 0)
        sides = (dropped[:, 2:] - dropped[:, :2]).min(1, initial=np.inf)
        apart = max(apart, sides.max(initial=0))
        # torchvision moves points that leave the image to its edge.
        height, width = np.asarray(found["image"]).shape[:2]
        own = np.asarray(found["points"]).reshape(-1, 2)
        own, points = (np.clip(at, 0, (width - 1, height - 1)) for at in (own, points))
        yield float(apart), float(np.abs(own - points).max())


def main() -> None:
    """Compares everything and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of images")
    parser.add_argument("--images", type=Path, help="folder of images for sizes")
    parser.add_argument("--most", type=float, default=1e-3, help="in pixels")
    args = parser.parse_args()
    sizes = real(args.images, args.count) if args.images else made_up(args.count)
    scenes = Scenes(sizes)
    print("| transform | boxes: largest, px | points: largest, px |\n|---|--:|--:|")
    worst = 0.0
    for case in cases():
        apart = np.array(list(differences(case, scenes)))
        boxes, points = apart.max(0)
        worst = max(worst, boxes, points)
        name = type(case.step).__name__
        print(f"| {name} | {boxes:.1e} | {points:.1e} |", flush=True)
    if worst > args.most:
        raise SystemExit(f"a difference of {worst:g} px exceeds {args.most:g} px")


if __name__ == "__main__":
    main()
