"""Writes the golden files `torchvision.json` and `torchvision.bin`.

They hold what torchvision.transforms.v2 returns for uint8 tensors, masks, boxes
and points, given the draws. Run it with the versions that the file names:

    python -m venv venv && venv/bin/pip install torch torchvision
    venv/bin/python testdata/transforms/make_torchvision.py
"""

import json
from pathlib import Path

import numpy as np
import torch
import torchvision
from torchvision import tv_tensors
from torchvision.transforms.v2 import InterpolationMode, functional

HERE = Path(__file__).parent
FILTERS = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
}
POINTS = [[2.0, 3.0], [30.0, 22.0], [20.5, 10.25]]
BOXES = [[2.0, 3.0, 9.0, 12.0], [0.0, 0.0, 31.0, 23.0], [20.5, 10.25, 28.0, 22.0]]
# torchvision moves pixels by an elastic map, and drops the fractions of positions.
WHOLE_POINTS = [[2.0, 3.0], [30.0, 22.0], [20.0, 10.0]]
WHOLE_BOXES = [[2.0, 3.0, 9.0, 12.0], [0.0, 0.0, 30.0, 22.0]]


class Golden:
    """Cases, and their pixels one after another."""

    def __init__(self):
        self.blob = bytearray()
        self.cases = {}

    def place(self, array):
        """Stores pixels [H, W, C] unless they are there, and returns their place."""
        pixels = array.tobytes()
        offset = self.blob.find(pixels)
        if offset < 0:
            offset = len(self.blob)
            self.blob += pixels
        height, width, channels = array.shape
        return {
            "offset": offset,
            "height": height,
            "width": width,
            "channels": channels,
            "depth": "u8",
        }

    def add(self, kind, **case):
        for name, item in case.items():
            if isinstance(item, np.ndarray):
                case[name] = self.place(item)
        self.cases.setdefault(kind, []).append(case)


def photo(rng, height, width, channels):
    """Gradients, a hard edge and some noise: what photographs are made of."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for c in range(channels):
        plane = 120 + 70 * np.sin(x / (5 + c)) + 50 * np.cos(y / (3 + 2 * c))
        plane[(x + c * 5 > width / 2) & (y > height / 3)] += 60
        planes.append(plane + rng.normal(0, 8, plane.shape))
    return np.stack(planes, -1).clip(0, 255).round().astype(np.uint8)


def tensor(array):
    return torch.from_numpy(array.copy()).permute(2, 0, 1)


def array(image):
    return image.permute(1, 2, 0).contiguous().numpy()


def boxes_of(height, width, boxes=BOXES):
    return tv_tensors.BoundingBoxes(
        boxes, format="XYXY", canvas_size=(height, width), dtype=torch.float32
    )


def points_of(height, width, points=POINTS):
    return tv_tensors.KeyPoints(
        points, canvas_size=(height, width), dtype=torch.float32
    )


def points(golden):
    """Adds the steps of points that keep straight lines straight and upright."""
    steps = {
        "flip_x": functional.horizontal_flip,
        "flip_y": functional.vertical_flip,
        "resize": lambda item: functional.resize(item, [40, 17]),
        "crop": lambda item: functional.crop(item, 2, 5, 12, 16),
        "pad": lambda item: functional.pad(item, [1, 2, 3, 4]),
    }
    for name, step in steps.items():
        moved = step(points_of(23, 31)).tolist()
        golden.add("points", name=name, points=POINTS, points_moved=moved)


def warps(golden, images, mask):
    """Adds the warps of each image, of a mask, of boxes and of points."""

    def add(kind, image, call, **settings):
        mode = FILTERS[settings["filter"]]
        fill = settings["fill"][0] if settings["fill"] else None
        out = array(call(tensor(image), interpolation=mode, fill=fill))
        case = {"image": image, "out": out}
        if image.shape[:2] == (23, 31):
            is_whole = kind == "elastic"
            boxes = WHOLE_BOXES if is_whole else BOXES
            moved = call(boxes_of(23, 31, boxes), interpolation=mode)
            case["boxes"], case["moved"] = boxes, moved.tolist()
            points = WHOLE_POINTS if is_whole else POINTS
            moved = call(points_of(23, 31, points), interpolation=mode)
            case["points"], case["points_moved"] = points, moved.tolist()
            moved = call(tv_tensors.Mask(tensor(mask)), interpolation=mode, fill=7)
            case["mask"], case["mask_out"] = mask, array(moved)
        golden.add(kind, **settings, **case)

    for number, image in enumerate(images):
        for mode in FILTERS:
            for fill in ([0], [90.0], []):
                for affine in (
                    {
                        "angle": 33.0,
                        "translate": [3, -2],
                        "scale": 1.3,
                        "shear": [10.0, -5.0],
                    },
                    {
                        "angle": -128.5,
                        "translate": [0, 0],
                        "scale": 0.6,
                        "shear": [0.0, 0.0],
                        "center": [4.0, 7.5],
                    },
                ):
                    call = lambda item, a=affine, **more: functional.affine(  # noqa: E731
                        item, **a, **more
                    )
                    add("affine", image, call, filter=mode, fill=fill, **affine)
            for angle, expand, center in (
                (20.0, False, None),
                (-75.25, True, None),
                (90.0, True, None),
                (90.0, False, None),
                (180.0, False, None),
                (50.0, False, [3.0, 4.0]),
            ):
                turn = {"angle": angle, "expand": expand, "center": center}
                call = lambda item, t=turn, **more: functional.rotate(  # noqa: E731
                    item, **t, **more
                )
                add("rotate", image, call, filter=mode, fill=[12.0], **turn)
            height, width = image.shape[:2]
            start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
            for end in (
                [[2, 3], [width - 4, 1], [width - 1, height - 5], [1, height - 2]],
                [[6, 0], [width - 8, 5], [width - 3, height - 1], [0, height - 6]],
            ):
                call = lambda item, e=end, s=start, **more: functional.perspective(  # noqa: E731
                    item, s, e, **more
                )
                fill = [5.0 + number]
                add("perspective", image, call, corners=end, filter=mode, fill=fill)
            for seed, alpha, sigma in (
                (3, [60.0, 90.0], [1.5, 1.5]),
                (2**64 - 5, [200.0, 50.0], [0.7, 1.2]),
            ):
                shifts = displacement(height, width, alpha, sigma, seed)
                call = lambda item, d=shifts, **more: functional.elastic(  # noqa: E731
                    item, d, **more
                )
                field = {"alpha": alpha, "sigma": sigma, "seed": seed}
                add("elastic", image, call, filter=mode, fill=[33.0], **field)


def mix(numbers):
    """The mixer of splitmix64, as in `infeed_core::random`."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def displacement(height, width, alpha, sigma, seed):
    """The field of `ElasticTransform.make_params`, with infeed's noise."""
    golden_ratio = np.uint64(0x9E3779B97F4A7C15)
    fields = []
    with np.errstate(over="ignore"):
        for axis, side in enumerate((width, height)):
            key = mix(np.uint64(2))
            for part in (np.uint64(seed), np.uint64(axis)):
                key = mix(key * golden_ratio ^ mix(part + golden_ratio))
            at = np.arange(height * width, dtype=np.uint64)
            random = mix(key + at * golden_ratio) >> np.uint64(40)
            noise = random.astype(np.float32) * np.float32(2**-23) - np.float32(1)
            noise = torch.from_numpy(noise).reshape(1, 1, height, width)
            kernel = int(8 * sigma[axis] + 1) | 1
            noise = functional.gaussian_blur(noise, [kernel, kernel], sigma)
            fields.append(noise * alpha[axis] / side)
    return torch.concat(fields, 1).permute(0, 2, 3, 1)


def colors(golden, images):
    """Adds the changes of colours of each image."""
    for image in images:
        changes = {
            "invert": (functional.invert, [[]]),
            "posterize": (functional.posterize, [[0], [3], [8]]),
            "solarize": (functional.solarize, [[0.0], [127.5], [255.0]]),
            "autocontrast": (functional.autocontrast, [[]]),
            "equalize": (functional.equalize, [[]]),
            "sharpness": (functional.adjust_sharpness, [[0.0], [0.4], [1.7], [5.0]]),
            "gray": (
                lambda x: functional.rgb_to_grayscale(x, num_output_channels=len(x)),
                [[]],
            ),
        }
        for name, (change, draws) in changes.items():
            for draw in draws:
                out = array(change(tensor(image), *draw))
                golden.add("colors", name=name, draw=draw, image=image, out=out)
        for kernel in ([3, 3], [5, 9], [1, 7]):
            for sigma in (0.1, 0.9, 2.0):
                out = functional.gaussian_blur(tensor(image), kernel, [sigma, sigma])
                golden.add(
                    "blurs", kernel=kernel, sigma=sigma, image=image, out=array(out)
                )
        for quality in (1, 40, 90, 100):
            out = array(functional.jpeg(tensor(image), quality))
            golden.add("colors", name="jpeg", draw=[quality], image=image, out=out)
        write_mix(golden, image)
    rgb = next(image for image in images if image.shape[2] == 3)
    for order in ([1, 2, 0], [2, 1, 0]):
        out = array(functional.permute_channels(tensor(rgb), order))
        golden.add("colors", name="permute", draw=order, image=rgb, out=out)


def write_mix(golden, image):
    """Adds a sum of an image and changed copies, computed as `AugMix` does."""
    changed = [
        functional.posterize(tensor(image), 3),
        functional.autocontrast(functional.invert(tensor(image))),
    ]
    own, *weights = torch.tensor([0.3, 0.45, 0.25])
    out = own * tensor(image)
    for weight, copy in zip(weights, changed, strict=True):
        out.add_(weight * copy)
    golden.add("mixed", image=image, out=array(out.to(torch.uint8)))


def main():
    rng = np.random.default_rng(22)
    golden = Golden()
    images = [photo(rng, 23, 31, 3), photo(rng, 16, 16, 1)]
    flat = np.full((9, 9, 1), 77, np.uint8)
    mask = rng.integers(0, 5, (23, 31, 1), dtype=np.uint8)
    warps(golden, images, mask)
    points(golden)
    colors(golden, [*images, flat, photo(rng, 40, 60, 3) // 3 + 20])
    for start, end, count in (
        (0.0, 0.3, 31),
        (0.0, 32.0, 31),
        (1.0, 0.0, 31),
        (0.0, 150.0 / 331.0 * 224, 31),
        (0.0, 0.99, 10),
        (0.0, 224 / 3.0, 10),
    ):
        values = torch.linspace(start, end, count).tolist()
        golden.add("spaced", start=start, end=end, values=values)
    for bins, most, kept in ((31, 4, 8), (31, 6, 8), (10, 4, 8), (10, 4, 4)):
        bits = (kept - (torch.arange(bins) / ((bins - 1) / most))).round().int()
        golden.add("bits", bins=bins, most=most, kept=kept, values=bits.tolist())
    golden.cases["versions"] = {
        "torch": torch.__version__.partition("+")[0],
        "torchvision": torchvision.__version__.partition("+")[0],
    }
    (HERE / "torchvision.json").write_text(json.dumps(golden.cases) + "\n")
    (HERE / "torchvision.bin").write_bytes(golden.blob)


if __name__ == "__main__":
    main()
