"""Writes the golden files of the transforms: `cases.json` and `pixels.bin`.

Resizes are Pillow's. Colours, sizes, offsets and distributions are those that
torchvision.transforms.v2 (0.20 and later) and tf.image document and compute,
written again in NumPy. Run it with the versions named in `cases.json`; from version 13
on Pillow resizes columns before rows where that is faster, which shows in filters
that overshoot, so an earlier one is needed:

    python -m venv venv && venv/bin/pip install numpy "pillow<13"
    venv/bin/python testdata/transforms/make.py
"""

import json
import math
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

HERE = Path(__file__).parent
F32 = np.float32
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Pixels:
    """Arrays one after another in one file; an array is named by its place."""

    def __init__(self):
        self.blob = bytearray()

    def add(self, array):
        place = {
            "offset": len(self.blob),
            "height": array.shape[0],
            "width": array.shape[1],
            "channels": array.shape[2],
            "depth": "u16" if array.dtype == np.uint16 else "u8",
        }
        self.blob += array.astype(array.dtype.newbyteorder("<")).tobytes()
        return place


def photo(rng, height, width, channels):
    """Gradients, a hard edge and some noise: what photographs are made of."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for c in range(channels):
        plane = 120 + 70 * np.sin(x / (5 + c)) + 50 * np.cos(y / (3 + 2 * c))
        plane[(x + c * 5 > width / 2) & (y > height / 3)] += 60
        planes.append(plane + rng.normal(0, 8, plane.shape))
    return np.stack(planes, -1).clip(0, 255).round().astype(np.uint8)


def checker(rng, height, width, channels):
    """Black or white at random: where filters overshoot and clip the most."""
    return (rng.integers(0, 2, (height, width, channels)) * 255).astype(np.uint8)


def resize(array, height, width, name):
    """Resizes each channel as a separate image with Pillow: alpha is not special.

    16 bits go through its float32 mode, since its 16-bit one wraps around where a
    filter overshoots.
    """
    deep = array.dtype == np.uint16
    planes = []
    for c in range(array.shape[2]):
        plane = np.ascontiguousarray(array[..., c])
        image = Image.fromarray(plane.astype(F32) if deep else plane)
        planes.append(np.asarray(image.resize((width, height), FILTERS[name])))
    resized = np.stack(planes, -1)
    return resized.round().astype(np.uint16) if deep else resized


# --- torchvision's arithmetic on uint8, in float32, rounded after each operation ---


def truncate(values):
    return values.clip(F32(0), F32(255)).astype(np.uint8)


def luma(image):
    r, g, b = (image[..., c].astype(F32) for c in range(3))
    return np.floor(r * F32(0.2989) + F32(0.587) * g + F32(0.114) * b)


def blend(image, other, ratio):
    return truncate(image.astype(F32) * F32(ratio) + F32(1.0 - ratio) * other)


def brightness(image, factor):
    return truncate(image.astype(F32) * F32(factor))


def contrast(image, factor):
    gray = luma(image) if image.shape[2] == 3 else image.astype(F32)
    return blend(image, F32(gray.mean(dtype=np.float64)), factor)


def saturation(image, factor):
    if image.shape[2] == 1:
        return image
    return blend(image, luma(image)[..., None], factor)


def hue(image, factor):
    if image.shape[2] == 1:
        return image
    unit = image.astype(F32) / F32(255)
    r, g = unit[..., 0], unit[..., 1]
    low, high = unit.min(-1), unit.max(-1)
    gray = high == low
    one = F32(1)
    s = (high - low) / np.where(gray, one, high)
    divisor = np.where(gray, one, high - low)
    rc, gc, bc = ((high - unit[..., c]) / divisor for c in range(3))
    is_r = high == r
    is_g = (high == g) & ~is_r
    is_b = ~is_r & ~is_g
    h = (bc - gc) * is_r + ((rc + F32(2)) - bc) * is_g + ((gc + F32(4)) - rc) * is_b
    h = np.fmod(h * F32(1 / 6) + one, one)
    h = np.remainder(h + F32(factor), one)
    h6 = h * F32(6)
    i = np.floor(h6)
    f = h6 - i
    sxf = s * f
    rest = one - s
    v = high
    q = ((one - sxf) * v).clip(0, 1)
    t = ((sxf + rest) * v).clip(0, 1)
    p = (rest * v).clip(0, 1)
    i = i.astype(np.int32) % 6
    choices = [(v, q, p, p, t, v), (t, v, v, q, p, p), (p, p, t, v, v, q)]
    turned = np.stack([np.choose(i, choice) for choice in choices], -1)
    return (turned.astype(F32) * F32(255 + 1.0 - 1e-3)).astype(np.uint8)


def grayscale(image, channels):
    gray = luma(image)[..., None] if image.shape[2] == 3 else image
    return np.repeat(gray, channels, -1).astype(np.uint8)


# --- sizes and offsets ---


def center_crop(height, width, crop_height, crop_width):
    """Padding [left, top, right, bottom], then first row and column."""
    dx, dy = max(crop_width - width, 0), max(crop_height - height, 0)
    padding = [dx // 2, dy // 2, (dx + 1) // 2, (dy + 1) // 2]
    height, width = height + dy, width + dx
    top = round((height - crop_height) / 2.0)
    left = round((width - crop_width) / 2.0)
    return [*padding, top, left]


def crop_or_pad(height, width, to_height, to_width):
    """First row and column of the crop, then padding before and after each way."""
    crop_top = max(-(to_height - height) // 2, 0)
    crop_left = max(-(to_width - width) // 2, 0)
    pad_top = max((to_height - height) // 2, 0)
    pad_left = max((to_width - width) // 2, 0)
    pad_bottom = to_height - pad_top - min(height, to_height)
    pad_right = to_width - pad_left - min(width, to_width)
    return [crop_top, crop_left, pad_left, pad_top, pad_right, pad_bottom]


def short_side(height, width, size, max_size):
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return [new_long, new_short] if width <= height else [new_short, new_long]


# --- distributions, simulated with NumPy's own generator ---


def resized_crop(rng, height, width, scale, ratio):
    area = height * width
    for _ in range(10):
        target = area * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.integers(0, height - h + 1), rng.integers(0, width - w + 1), h, w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def erasing(rng, height, width, scale, ratio):
    area = height * width
    for _ in range(10):
        target = area * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        h = round(math.sqrt(target * aspect))
        w = round(math.sqrt(target / aspect))
        if h < height and w < width:
            return rng.integers(0, height - h + 1), rng.integers(0, width - w + 1), h, w
    return 0, 0, 0, 0


def moments(draws):
    draws = np.array(draws, np.float64)
    return {"mean": draws.mean(0).tolist(), "std": draws.std(0).tolist()}


def main():
    rng = np.random.default_rng(2)
    pixels = Pixels()
    cases = {"pillow": PIL.__version__, "numpy": np.__version__}

    cases["resize"] = []
    inputs = [photo(rng, 40, 33, c) for c in (1, 3, 4)]
    inputs += [checker(rng, 31, 37, c) for c in (1, 3, 4)]
    # Away from both ends, where filters would overshoot.
    deep = photo(rng, 29, 30, 3).astype(np.uint16) * 128 + 16384
    deep ^= rng.integers(0, 128, deep.shape).astype(np.uint16)
    inputs += [deep]
    for array in inputs:
        place = pixels.add(array)
        for name in FILTERS:
            for height, width in [(17, 21), (52, 45), (9, 60), (40, 12), (1, 1)]:
                to = pixels.add(resize(array, height, width, name))
                case = {"input": place, "filter": name, "output": to, "crop": None}
                cases["resize"].append(case)
    for array in inputs[1:5:3]:
        place = pixels.add(array)
        for name in FILTERS:
            crop = {"top": 5, "left": 7, "size": {"height": 20, "width": 16}}
            part = array[5:25, 7:23]
            to = pixels.add(resize(part, 24, 24, name))
            case = {"input": place, "filter": name, "output": to, "crop": crop}
            cases["resize"].append(case)

    cases["color"] = []
    # Every corner of the colour cube and all grays, beside a photograph.
    cube = np.stack(np.meshgrid(*[[0, 1, 127, 128, 254, 255]] * 3), -1).reshape(
        12, 18, 3
    )
    color_inputs = [photo(rng, 16, 20, 3), cube.astype(np.uint8), photo(rng, 9, 8, 1)]
    changes = [
        ("brightness", brightness, [0.0, 0.37, 1.0, 1.73]),
        ("contrast", contrast, [0.0, 0.41, 1.0, 1.9]),
        ("saturation", saturation, [0.0, 0.62, 1.0, 2.3]),
        ("hue", hue, [-0.5, -0.21, 0.0, 0.1, 0.5]),
        ("gray", grayscale, [1, 3]),
    ]
    for array in color_inputs:
        place = pixels.add(array)
        for name, change, factors in changes:
            for factor in factors:
                to = pixels.add(change(array, factor))
                case = {"input": place, "change": name, "factor": factor, "output": to}
                cases["color"].append(case)

    cases["pad"] = []
    modes = ["constant", "edge", "reflect", "symmetric"]
    pad_inputs = [photo(rng, 5, 7, 3), photo(rng, 1, 4, 1), deep[:3, :5]]
    for array in pad_inputs:
        place = pixels.add(array)
        for mode in modes:
            for left, top, right, bottom in [
                (2, 1, 3, 4),
                (0, 0, 5, 0),
                (13, 11, 9, 17),
            ]:
                around = [(top, bottom), (left, right), (0, 0)]
                to = pixels.add(np.pad(array, around, mode))
                sides = [left, top, right, bottom]
                case = {"input": place, "mode": mode, "sides": sides, "output": to}
                cases["pad"].append(case)

    sizes = [(1, 1), (3, 4), (480, 640), (333, 500), (500, 333), (7, 101), (224, 225)]
    wanted = [(1, 1), (2, 3), (224, 224), (5, 400), (101, 7)]
    pairs = [(*size, *want) for size in sizes for want in wanted]
    cases["center_crop"] = [[*pair, *center_crop(*pair)] for pair in pairs]
    cases["crop_or_pad"] = [[*pair, *crop_or_pad(*pair)] for pair in pairs]
    cases["short_side"] = [
        [h, w, size, max_size, *short_side(h, w, size, max_size)]
        for h, w in [*sizes, (1000, 3), (427, 640), (2448, 3264)]
        for size, max_size in [(1, None), (224, None), (256, 300), (37, 2000)]
    ]

    cases["resized_crop"] = []
    for height, width in [(375, 500), (60, 2000)]:
        scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
        draws = [resized_crop(rng, height, width, scale, ratio) for _ in range(100_000)]
        case = {"height": height, "width": width, **moments(draws)}
        cases["resized_crop"].append(case)
    cases["erasing"] = []
    for height, width in [(224, 224), (40, 400)]:
        scale, ratio = (0.02, 0.33), (0.3, 3.3)
        draws = [erasing(rng, height, width, scale, ratio) for _ in range(100_000)]
        case = {"height": height, "width": width, **moments(draws)}
        cases["erasing"].append(case)

    (HERE / "pixels.bin").write_bytes(pixels.blob)
    (HERE / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
