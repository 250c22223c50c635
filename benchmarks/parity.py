#!/usr/bin/env python3
"""Compares each transform with torchvision v2 in docs/reference/parity.md.

Needs torch, torchvision, numpy, pillow and infeed in one environment. Every random
transform is replayed: torchvision gets the parameters that infeed's preview prints.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms.v2 import InterpolationMode, functional

import infeed
from infeed import sources
from infeed import transforms as T

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "parity.md"

NEXT = "\n## EXIF orientation"

HEAD = """\
# Parity with torchvision

This page compares each transform with torchvision v2 and the same parameters, on uint8
tensors and on Pillow images (which torchvision passes to Pillow). Levels are those of 8
bits (0 to 255). `ToFloat` and `Normalize` are compared in their own units. "Values that
differ" counts single values of a channel.

infeed decodes and resizes like Pillow, and changes colours like torchvision on tensors.
Warps have the pixels of tensors. Masks are resized "nearest", with Pillow's pixels. On
tensors, torchvision's "nearest" takes other pixels. Its "nearest-exact" differs if
a centre is on the border of two source pixels.
"""

FOOT = """
These transforms have no counterpart to compare value by value:

| transform | follows |
|---|---|
| `Crop` | `functional.crop`: the same values, as those of `RandomCrop` |
| `CropOrPad`, `CropOrPadTo` | TensorFlow's `resize_with_crop_or_pad`: the same values |
| `OneHot`, `ClassIndex` | exact by definition |
| `MixUp`, `CutMix` | the papers; torchvision mixes within a batch |
| `LongestMaxSize` | sizes of albumentations or Ultralytics, pixels of `Resize` |
| `RandomSizedCrop` | the regions of RF-DETR, and the pixels of `Resize` |
| `RandomIoUCrop` | `functional.crop`, at most 100 minimum overlaps per image |
| `CopyPaste` | the masks and pixels of torchvision's reference for detection |
| `Mosaic` | the sizes and places of Ultralytics, and the pixels of `Resize` |
| `ImageMixUp` | the distributions of Ultralytics; values are rounded to nearest |
| `MirroredPaste` | the objects and distributions of Ultralytics, in the tests |
| `RandomHSV` | the formula of Ultralytics; rounding differs from OpenCV, as below |
| `GaussianNoise` | the distribution of the integers that torchvision adds |
| `RandomApply`, `RandomChoice`, `RandomOrder` | the transforms of their lists |
| `ElasticTransform` | torchvision's field with the same noise, in the tests |
| `AugMix` | torchvision's sum of the same copies, in the tests |
| `AutoAugment`, `RandAugment`, `TrivialAugmentWide` | the changes above, all fields |

Boxes and points are equal up to the rounding of float32. `benchmarks/parity_boxes.py`
compares six of each per image after the 13 transforms of geometry that torchvision has.
The largest difference was 0.00003 px over 1 000 random sizes of 50 to 200 px, and
0.0002 px over the sizes of 300 ImageNet photographs, where a float32 has steps of up to
0.00006 px. With `RandomRotation(expand=True)` they stay on their pixels, which
torchvision moves by up to one pixel more.

OpenCV stores hues in steps of 2 degrees and saturations in 256 steps, and truncates a
change of them. `RandomHSV` does not. Over 300 ImageNet photographs with its default
arguments, its values differ from those of OpenCV 5.0 by 0.30 levels in the mean and by
at most 13 levels; 1.9 % of the values differ by more than 2.

Random parameters have torchvision's distributions and other values: infeed draws them
from seed, epoch and position.
"""

MODES = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
    "lanczos": InterpolationMode.LANCZOS,
    "nearest-exact": InterpolationMode.NEAREST_EXACT,
}


@dataclass
class Case:
    """One transform, and its counterparts in torchvision, given infeed's draws."""

    name: str
    step: T.Transform
    other: Callable[..., object]
    is_float: bool = False
    tensors: bool = True
    pillow: bool = True


def photographs(count: int, height: int, width: int) -> np.ndarray:
    """Smooth colours, noise and hard edges, uint8 [N, H, W, 3]."""
    images = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[0:height, 0:width] / max(height, width)
        waves = [
            128 + 100 * np.sin(a * x + b * y * x + c)
            for a, b, c in rng.uniform(2, 12, (3, 3))
        ]
        image = np.stack(waves, -1) + rng.normal(0, 8, (height, width, 3))
        for _ in range(6):
            top, left = rng.integers(0, height - 40), rng.integers(0, width - 40)
            bottom, right = top + rng.integers(4, 40), left + rng.integers(4, 40)
            image[top:bottom, left:right] = rng.integers(0, 256, 3)
        images.append(np.clip(image, 0, 255).astype(np.uint8))
    return np.stack(images)


def numbers(draws: str) -> list[int]:
    """Returns the whole numbers of a text of draws, in order."""
    return [int(number) for number in re.findall(r"\d+", draws)]


def resize(mode: str, size: list[int]) -> Callable[..., object]:
    return lambda image, _: functional.resize(
        image, size, MODES[mode], antialias=not mode.startswith("nearest")
    )


def resized_crop(image: object, draws: str) -> object:
    width, height, left, top, *_ = numbers(draws)
    return functional.resized_crop(
        image, top, left, height, width, [96, 96], antialias=True
    )


def crop(image: object, draws: str) -> object:
    width, height, left, top = numbers(draws)[:4]
    return functional.crop(image, top, left, height, width)


def erase(image: object, draws: str) -> object:
    width, height, left, top = numbers(draws)[:4]
    value = torch.tensor([7], dtype=torch.uint8).reshape(1, 1, 1)
    return functional.erase(image, top, left, height, width, value)


def pad(mode: str) -> Callable[..., object]:
    return lambda image, _: functional.pad(image, [5, 7, 9, 11], 3, mode)


def normalize(image: object, _: str) -> object:
    floats = functional.to_dtype(image, torch.float32, scale=True)
    return functional.normalize(floats, list(T.IMAGENET_MEAN), list(T.IMAGENET_STD))


def floats(draws: str) -> list[float]:
    """Returns the numbers of a text of draws, in order."""
    return [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", draws)]


def affine(image: object, draws: str) -> object:
    angle, shear_x, shear_y, scale, x, y = floats(draws)
    mode = MODES[draws.rpartition("(")[2].rstrip(")")]
    move, shear = [int(x), int(y)], [shear_x, shear_y]
    return functional.affine(
        image, angle, move, scale, shear, interpolation=mode, fill=3
    )


def perspective(image: object, draws: str) -> object:
    x = [int(n) for n in floats(draws)]
    corners = [x[0:2], x[2:4], x[4:6], x[6:8]]
    start = [[0, 0], [399, 0], [399, 299], [0, 299]]
    return functional.perspective(image, start, corners, fill=3)


def scale(image: object, draws: str) -> object:
    width, height = numbers(draws)[:2]
    return functional.resize(image, [height, width], MODES["bilinear"], antialias=True)


def zoom_out(image: object, draws: str) -> object:
    left, top, right, bottom = numbers(draws)[:4]
    return functional.pad(image, [left, top, right, bottom], 3)


def distort(image: object, draws: str) -> object:
    changes = {
        "brightness": functional.adjust_brightness,
        "contrast": functional.adjust_contrast,
        "saturation": functional.adjust_saturation,
        "hue": functional.adjust_hue,
    }
    for change in filter(None, draws.split(", ")):
        name, *values = change.split()
        if name == "channels":
            image = functional.permute_channels(image, [int(n) for n in values])
        else:
            image = changes[name](image, float(values[0]))
    return image


def blur(image: object, draws: str) -> object:
    return functional.gaussian_blur(image, [5, 9], float(draws.split()[-1]))


def factor(change: Callable[..., object]) -> Callable[..., object]:
    return lambda image, draws: change(image, float(draws.split()[-1]))


def cases() -> list[Case]:
    """Returns all cases."""
    all_cases = [
        Case(
            "CenterCrop(224)",
            T.CenterCrop(224),
            lambda image, _: functional.center_crop(image, [224, 224]),
        ),
        Case("RandomCrop(224)", T.RandomCrop(224), crop),
        Case(
            "RandomHorizontalFlip",
            T.RandomHorizontalFlip(p=1),
            lambda image, _: functional.horizontal_flip(image),
        ),
        Case(
            "RandomVerticalFlip",
            T.RandomVerticalFlip(p=1),
            lambda image, _: functional.vertical_flip(image),
        ),
    ]
    all_cases += [
        Case(
            f'Pad, "{mode}"',
            T.Pad((5, 7, 9, 11), fill=3, padding_mode=mode),
            pad(mode),
        )
        for mode in ("constant", "edge", "reflect", "symmetric")
    ]
    for what, size in (("smaller", [120, 150]), ("larger", [500, 640])):
        all_cases += [
            Case(
                f'Resize, {what}, "{mode}"',
                T.Resize(size, interpolation=mode.partition("-")[0]),
                resize(mode, size),
                tensors=mode != "lanczos",
                pillow=mode != "nearest-exact",
            )
            for mode in MODES
        ]
    all_cases += [
        Case("RandomResizedCrop(96)", T.RandomResizedCrop(96), resized_crop),
        Case(
            "ColorJitter, brightness",
            T.ColorJitter(brightness=0.8),
            factor(functional.adjust_brightness),
        ),
        Case(
            "ColorJitter, contrast",
            T.ColorJitter(contrast=0.8),
            factor(functional.adjust_contrast),
        ),
        Case(
            "ColorJitter, saturation",
            T.ColorJitter(saturation=0.8),
            factor(functional.adjust_saturation),
        ),
        Case("ColorJitter, hue", T.ColorJitter(hue=0.4), factor(functional.adjust_hue)),
        Case(
            "Grayscale(1)",
            T.Grayscale(1),
            lambda image, _: functional.rgb_to_grayscale(image, 1),
        ),
        Case(
            "Grayscale(3)",
            T.Grayscale(3),
            lambda image, _: functional.rgb_to_grayscale(image, 3),
        ),
        *[
            Case(
                f'RandomAffine, "{mode}"',
                T.RandomAffine(
                    30,
                    translate=(0.1, 0.2),
                    scale=(0.7, 1.4),
                    shear=(-10, 10, -5, 5),
                    interpolation=mode,
                    fill=3,
                ),
                affine,
                pillow=False,
            )
            for mode in ("nearest", "bilinear")
        ],
        Case(
            'RandomRotation, "bilinear"',
            T.RandomRotation(180, interpolation="bilinear", fill=3),
            affine,
            pillow=False,
        ),
        Case(
            'RandomPerspective, "bilinear"',
            T.RandomPerspective(p=1, fill=3),
            perspective,
            pillow=False,
        ),
        Case("RandomShortestSize", T.RandomShortestSize((150, 400)), scale),
        Case("ScaleJitter", T.ScaleJitter((400, 300)), scale),
        Case("RandomZoomOut", T.RandomZoomOut(3, p=1), zoom_out),
        Case(
            "RandomPhotometricDistort",
            T.RandomPhotometricDistort(p=0.9),
            distort,
        ),
        Case("RandomInvert", T.RandomInvert(p=1), lambda x, _: functional.invert(x)),
        Case(
            "RandomPosterize(3)",
            T.RandomPosterize(3, p=1),
            lambda image, _: functional.posterize(image, 3),
        ),
        Case(
            "RandomSolarize(128)",
            T.RandomSolarize(128, p=1),
            lambda image, _: functional.solarize(image, 128),
        ),
        Case(
            "RandomGrayscale",
            T.RandomGrayscale(p=1),
            lambda image, _: functional.rgb_to_grayscale(image, 3),
        ),
        Case(
            "RandomAutocontrast",
            T.RandomAutocontrast(p=1),
            lambda image, _: functional.autocontrast(image),
        ),
        Case(
            "RandomEqualize",
            T.RandomEqualize(p=1),
            lambda image, _: functional.equalize(image),
        ),
        Case(
            "RandomAdjustSharpness(2)",
            T.RandomAdjustSharpness(2, p=1),
            lambda image, _: functional.adjust_sharpness(image, 2),
        ),
        Case("GaussianBlur", T.GaussianBlur((5, 9)), blur),
        Case(
            "JPEG",
            T.JPEG((20, 90)),
            lambda image, draws: functional.jpeg(image, numbers(draws)[0]),
        ),
        Case("RandomErasing", T.RandomErasing(p=1, value=7), erase, pillow=False),
        Case(
            "ToFloat",
            T.ToFloat(),
            lambda image, _: functional.to_dtype(image, torch.float32, scale=True),
            is_float=True,
            pillow=False,
        ),
        Case(
            "Normalize",
            T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
            normalize,
            is_float=True,
            pillow=False,
        ),
    ]
    return all_cases


def as_array(image: object) -> np.ndarray:
    """Returns an image as ``[H, W, C]``, in a wider type so that differences fit."""
    if isinstance(image, torch.Tensor):
        array = image.permute(1, 2, 0).numpy()
    else:
        array = np.asarray(image)
    array = array[:, :, None] if array.ndim == 2 else array
    return array.astype(np.float64)


def difference(found: list[np.ndarray], other: list[np.ndarray], case: Case) -> str:
    """Returns largest and mean difference and share that differs, as cells of the
    table.
    """
    apart = np.concatenate(
        [np.abs(a - b).ravel() for a, b in zip(found, other, strict=True)]
    )
    if not apart.any():
        return "0 | 0 | 0 %"
    share = f"{100 * (apart > 0).mean():.2g} %"
    if case.is_float:
        return f"{apart.max():.1e} | {apart.mean():.1e} | {share}"
    return f"{apart.max():.0f} | {apart.mean():.2g} | {share}"


def row(case: Case, images: np.ndarray) -> str:
    """Returns the line of the table for one case."""
    pipeline = infeed.Pipeline(sources.Memory(image=images)).transform(case.step)
    found, tensors, pillow = [], [], []
    for at, pixels in enumerate(images):
        preview = pipeline.preview(at)
        name = type(case.step).__name__
        draws = preview[name].draws if name in [s.name for s in preview] else ""
        found.append(as_array(preview["output"].fields["image"]))
        if case.tensors:
            tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
            tensors.append(as_array(case.other(tensor, draws)))
        if case.pillow:
            pillow.append(as_array(case.other(Image.fromarray(pixels), draws)))
    none = "- | - | -"
    of_tensors = difference(found, tensors, case) if case.tensors else none
    of_pillow = difference(found, pillow, case) if case.pillow else none
    return f"| {case.name} | {of_tensors} | {of_pillow} |"


def plain(module: ModuleType) -> str:
    """Returns a version without its build."""
    return str(module.__version__).partition("+")[0]


def main() -> None:
    """Measures everything and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=12, help="how many, of 300x400")
    parser.add_argument("--to", type=Path, default=PAGE, help="the page")
    args = parser.parse_args()
    images = photographs(args.images, 300, 400)
    lines = [
        HEAD,
        "Measured with `benchmarks/parity.py` over "
        f"{args.images} synthetic photographs of 300x400 px:\n"
        f"torchvision {plain(torchvision)}, torch {plain(torch)}, "
        f"Pillow {plain(PIL)}.\n",
        "| transform | tensors: largest | mean | values that differ | Pillow images: "
        "largest | mean | values that differ |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(row(case, images) for case in cases()),
    ]
    # The sections below are not measured here.
    _, mark, kept = PAGE.read_text().partition(NEXT)
    args.to.write_text("\n".join(lines) + "\n" + FOOT + mark + kept)


if __name__ == "__main__":
    main()
