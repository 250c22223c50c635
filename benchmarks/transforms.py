#!/usr/bin/env python3
"""Compares each transform, and chains of detection, with albumentations on one core.

Both sides read photographs and boxes from memory and write batches. A process per side
stays alive, and the sides take turns. The figure is processor time of all threads of a
process, so other programs disturb it less than they disturb a clock.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ALBUMENTATIONS = HERE / ".venvs" / "albumentations" / "bin" / "python"
BATCH = 8
HEIGHT, WIDTH = 480, 640
BOXES = 8
CHAINS = "detection"


@dataclass(frozen=True)
class Case:
    """A transform on both sides, each an expression over its own names."""

    name: str
    infeed: str
    albumentations: str
    boxes: bool = False
    sizes: bool = False  # results differ in size
    fuse: bool = False


MOSAIC = "A.Mosaic(target_size={0}, cell_shape=(640, 640), fit_mode='contain', p=1)"
HSV = "A.HueSaturationValue(5, 180, 100, p=1)"
OWN_HSV = "T.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015)"
OWN_AFFINE = (
    "T.RandomAffine(0, translate=(0.1, 0.1), scale=(0.5, 1.5), fill=114, "
    "interpolation='bilinear')"
)
AFFINE = "A.Affine(scale=(0.5, 1.5), translate_percent=(-0.1, 0.1), fill=114, p=1)"
LETTERBOX = "A.LongestMaxSize(640), A.PadIfNeeded(640, 640, fill=114)"
CHAIN = f"{OWN_AFFINE}, T.RandomPerspective(0.2, p=1, fill=114)"
PEER_CHAIN = f"{AFFINE}, A.Perspective((0.05, 0.1), fill=114, p=1)"
OWN_COLORS = "T.ColorJitter(0.4, 0.4, 0.4)"
COLORS = "A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (0, 0), p=1)"
OWN_LETTERBOX = "T.LongestMaxSize(640), T.CropOrPad(640, 640, fill=114)"

CASES = [
    Case("RandomCrop(320)", "T.RandomCrop(320)", "A.RandomCrop(320, 320)"),
    Case("CenterCrop(320)", "T.CenterCrop(320)", "A.CenterCrop(320, 320)"),
    Case("Resize(320)", "T.Resize((320, 320))", "A.Resize(320, 320)"),
    Case("Resize(640)", "T.Resize((640, 640))", "A.Resize(640, 640)"),
    Case(
        "RandomResizedCrop(224)",
        "T.RandomResizedCrop(224)",
        "A.RandomResizedCrop((224, 224))",
    ),
    Case(
        "Resize(320), not antialiased",
        "T.Resize((320, 320), antialias=False)",
        "A.Resize(320, 320)",
    ),
    Case("LongestMaxSize(320)", "T.LongestMaxSize(320)", "A.LongestMaxSize(320)"),
    Case(
        "RandomShortestSize(320)",
        "T.RandomShortestSize([320], max_size=640)",
        "A.SmallestMaxSize([320])",
        sizes=True,
    ),
    Case("Pad(16)", "T.Pad(16, fill=114)", "A.Pad(16, fill=114)"),
    Case(
        "RandomHorizontalFlip",
        "T.RandomHorizontalFlip(1)",
        "A.HorizontalFlip(p=1)",
    ),
    Case("RandomVerticalFlip", "T.RandomVerticalFlip(1)", "A.VerticalFlip(p=1)"),
    Case(
        "RandomAffine",
        "T.RandomAffine(10, translate=(0.1, 0.1), scale=(0.9, 1.1), shear=5, "
        "interpolation='bilinear')",
        "A.Affine(rotate=(-10, 10), translate_percent=(-0.1, 0.1), scale=(0.9, 1.1), "
        "shear=(-5, 5), p=1)",
    ),
    Case(
        "RandomRotation",
        "T.RandomRotation(30, interpolation='bilinear')",
        "A.Rotate((-30, 30), p=1)",
    ),
    Case(
        "RandomRotation, nearest",
        "T.RandomRotation(30)",
        "A.Rotate((-30, 30), interpolation=0, p=1)",
    ),
    Case(
        "RandomPerspective",
        "T.RandomPerspective(0.2, p=1)",
        "A.Perspective((0.05, 0.1), p=1)",
    ),
    Case(
        "ElasticTransform",
        "T.ElasticTransform()",
        "A.ElasticTransform(50, 5, p=1)",
    ),
    Case(
        "ColorJitter, brightness",
        "T.ColorJitter(brightness=0.4)",
        "A.ColorJitter((0.6, 1.4), (1, 1), (1, 1), (0, 0), p=1)",
    ),
    Case(
        "ColorJitter, contrast",
        "T.ColorJitter(contrast=0.4)",
        "A.ColorJitter((1, 1), (0.6, 1.4), (1, 1), (0, 0), p=1)",
    ),
    Case(
        "ColorJitter, saturation",
        "T.ColorJitter(saturation=0.4)",
        "A.ColorJitter((1, 1), (1, 1), (0.6, 1.4), (0, 0), p=1)",
    ),
    Case(
        "ColorJitter, hue",
        "T.ColorJitter(hue=0.1)",
        "A.ColorJitter((1, 1), (1, 1), (1, 1), (-0.1, 0.1), p=1)",
    ),
    Case(
        "ColorJitter, all four",
        "T.ColorJitter(0.4, 0.4, 0.4, 0.1)",
        "A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1)",
    ),
    Case("brightness, saturation, hue", OWN_HSV, HSV),
    Case("ColorJitter without hue", OWN_COLORS, COLORS),
    Case("ColorJitter without hue, fused", OWN_COLORS, COLORS, fuse=True),
    Case("RandomAffine, RandomPerspective", CHAIN, PEER_CHAIN),
    Case("RandomAffine, RandomPerspective, fused", CHAIN, PEER_CHAIN, fuse=True),
    Case("Grayscale(3)", "T.Grayscale(3)", "A.ToGray(p=1)"),
    Case("RandomInvert", "T.RandomInvert(1)", "A.InvertImg(p=1)"),
    Case("RandomPosterize(4)", "T.RandomPosterize(4, p=1)", "A.Posterize(4, p=1)"),
    Case("RandomSolarize(128)", "T.RandomSolarize(128, p=1)", "A.Solarize(p=1)"),
    Case(
        "RandomAutocontrast",
        "T.RandomAutocontrast(1)",
        "A.AutoContrast(method='pil', p=1)",
    ),
    Case("RandomEqualize", "T.RandomEqualize(1)", "A.Equalize(mode='pil', p=1)"),
    Case(
        "RandomAdjustSharpness",
        "T.RandomAdjustSharpness(2, p=1)",
        "A.Sharpen(kernel_size=3, p=1)",
    ),
    Case(
        "GaussianBlur(5)",
        "T.GaussianBlur(5)",
        "A.GaussianBlur(5, sigma_limit=(0.1, 2), p=1)",
    ),
    Case(
        "GaussianNoise", "T.GaussianNoise(sigma=0.1)", "A.GaussNoise((0.1, 0.1), p=1)"
    ),
    Case("JPEG(50)", "T.JPEG(50)", "A.ImageCompression(quality_range=(50, 50), p=1)"),
    Case("RandomErasing", "T.RandomErasing(1)", "A.Erasing(p=1)"),
    Case("ToFloat", "T.ToFloat()", "A.ToFloat(255)"),
    Case("Normalize", "T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)", "A.Normalize()"),
    Case("Mosaic(1280)", "T.Mosaic(1280)", MOSAIC.format("(1280, 1280)"), boxes=True),
    Case(
        f"{CHAINS}: mosaic 1280, affine, crop 640, HSV, flip",
        f"T.Mosaic(1280), {OWN_AFFINE}, T.CenterCrop(640), {OWN_HSV}, "
        "T.RandomHorizontalFlip()",
        f"{MOSAIC.format('(1280, 1280)')}, {AFFINE}, A.CenterCrop(640, 640), {HSV}, "
        "A.HorizontalFlip()",
        boxes=True,
    ),
    Case(
        f"{CHAINS}: the same; albumentations crops its mosaic first",
        f"T.Mosaic(1280), {OWN_AFFINE}, T.CenterCrop(640), {OWN_HSV}, "
        "T.RandomHorizontalFlip()",
        f"{MOSAIC.format('(640, 640)')}, {AFFINE}, {HSV}, A.HorizontalFlip()",
        boxes=True,
    ),
    Case(
        f"{CHAINS}: letterbox 640, affine, HSV, flip",
        f"{OWN_LETTERBOX}, {OWN_AFFINE}, {OWN_HSV}, T.RandomHorizontalFlip()",
        f"{LETTERBOX}, {AFFINE}, {HSV}, A.HorizontalFlip()",
        boxes=True,
    ),
]


def photographs(count: int) -> np.ndarray:
    """Returns smooth images with some noise, uint8 ``[count, height, width, 3]``."""
    rng = np.random.default_rng(1)
    coarse = rng.uniform(0, 255, (count, HEIGHT // 40 + 1, WIDTH // 40 + 1, 3))
    smooth = coarse.repeat(40, 1).repeat(40, 2)[:, :HEIGHT, :WIDTH]
    for axis in (1, 2):
        for _ in range(2):
            total = np.cumsum(smooth, axis)
            smooth = (total - np.roll(total, 20, axis)) / 20
            smooth = np.clip(smooth, 0, 255)
    noise = rng.normal(0, 6, smooth.shape)
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)


def boxes(count: int) -> np.ndarray:
    """Returns boxes as left, top, right, bottom, float32 ``[count, BOXES, 4]``."""
    rng = np.random.default_rng(2)
    low = rng.uniform(0, (WIDTH / 2, HEIGHT / 2), (count, BOXES, 2))
    size = rng.uniform(16, (WIDTH / 2, HEIGHT / 2), (count, BOXES, 2))
    return np.concatenate([low, low + size], 2).astype(np.float32)


def infeed_batches(case: Case, images: np.ndarray) -> Iterator[object]:
    """Makes batches in one worker, epoch after epoch."""
    import infeed
    from infeed import sources, transforms

    steps = eval(f"[{case.infeed}]", {"T": transforms})
    fields = {"image": images}
    if case.boxes:
        fields["boxes"] = boxes(len(images))
        fields["labels"] = np.zeros((len(images), BOXES), np.int64)
    pipeline = infeed.Pipeline(sources.Memory(**fields)).shuffle(seed=0)
    if case.boxes:
        pipeline = pipeline.boxes("boxes", columns=("labels",))
    pipeline = pipeline.transform(*steps, fuse=case.fuse).batch(BATCH, pad=case.sizes)
    with pipeline.open(workers=1) as loader:
        while True:
            yield from loader


def albumentations_batches(case: Case, images: np.ndarray) -> Iterator[object]:
    """Calls the transforms in a loop that fills batches."""
    import albumentations as A
    import cv2

    cv2.setNumThreads(1)
    steps = eval(f"[{case.albumentations}]", {"A": A})
    own = boxes(len(images))
    labels = np.zeros(BOXES, np.int64)
    settings = A.BboxParams("pascal_voc", label_fields=["labels"])
    compose = A.Compose(steps, bbox_params=settings if case.boxes else None, seed=0)
    rng = np.random.default_rng(0)
    has_mosaic = "Mosaic" in case.albumentations

    def sample(number: int) -> dict[str, object]:
        if not case.boxes:
            return {"image": images[number]}
        return {"image": images[number], "bboxes": own[number], "labels": labels}

    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            made = []
            for number in order[start : start + BATCH]:
                others = rng.integers(0, len(images), 3)
                more = {"mosaic_metadata": [sample(other) for other in others]}
                made.append(compose(**sample(number), **(more if has_mosaic else {})))
            found = [one["image"] for one in made]
            batch = np.empty((BATCH, *found[0].shape), found[0].dtype)
            for row, image in zip(batch, found, strict=True):
                row[...] = image
            yield batch


def serve(side: Callable[[Case, np.ndarray], Iterator[object]]) -> None:
    """Answers each line ``case seconds`` with samples and processor time."""
    images = photographs(32)
    for line in sys.stdin:
        number, seconds = line.split()
        batches = side(CASES[int(number)], images)
        for _ in range(4):
            next(batches)
        start, used, count = time.process_time(), 0.0, 0
        while used < float(seconds) or count < 4:
            next(batches)
            count += 1
            used = time.process_time() - start
        batches.close()
        print(json.dumps({"samples": count * BATCH, "seconds": used}), flush=True)


def measure_case(process: "subprocess.Popen[str]", case: int, seconds: float) -> float:
    """Returns samples per second of processor time."""
    process.stdin.write(f"{case} {seconds}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{CASES[case].name}: {process.args[0]} ended")
    answer = json.loads(line)
    return answer["samples"] / answer["seconds"]


def main() -> None:
    """Runs the sides in turn and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="processor time of each turn"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", type=Path, default=ALBUMENTATIONS, help="its Python")
    parser.add_argument("--serve", choices=("infeed", "albumentations"))
    args = parser.parse_args()
    if args.serve:
        serve(infeed_batches if args.serve == "infeed" else albumentations_batches)
        return
    core = min(os.sched_getaffinity(0))
    env = os.environ | {"NO_ALBUMENTATIONS_UPDATE": "1", "OMP_NUM_THREADS": "1"}
    sides = [
        subprocess.Popen(
            [python, __file__, "--serve", side],
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        for python, side in ((sys.executable, "infeed"), (args.peer, "albumentations"))
    ]
    print(
        f"load {os.getloadavg()[0]:.1f}, {args.repeats} turns of {args.seconds:g} s "
        "of processor time"
    )
    print("| transform | infeed | albumentations | ratio |\n|---|--:|--:|--:|")
    for number, case in enumerate(CASES):
        if args.only not in case.name:
            continue
        turns = [
            [measure_case(side, number, args.seconds) for side in sides]
            for _ in range(args.repeats)
        ]
        own, peer = np.median(np.array(turns), 0)
        print(f"| {case.name} | {own:,.0f} | {peer:,.0f} | {own / peer:.2f}x |")
    for side in sides:
        side.stdin.close()
        side.wait()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
