"""Boxes, keypoints and masks move as those of torchvision v2 do."""

import numpy as np
import pytest
from PIL import Image
from requirements import framework_test, import_or_skip
from test_copy_paste import widen

import infeed
from infeed import sources
from infeed import transforms as T

torch = import_or_skip("torch")
torchvision = import_or_skip("torchvision")
pytestmark = framework_test

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import functional as functional_v1  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

IMAGES, OBJECTS, POINTS = 200, 9, 5
HEIGHT, WIDTH = 48, 70
NEAREST = torchvision.transforms.InterpolationMode.NEAREST
BILINEAR = torchvision.transforms.InterpolationMode.BILINEAR


def made_up():
    """Returns masks, boxes and keypoints of random ellipses, some over the edges."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    shape = (IMAGES, OBJECTS, 1, 1)
    cy, cx = rng.uniform(0, HEIGHT, shape), rng.uniform(0, WIDTH, shape)
    ry, rx = rng.uniform(2, HEIGHT / 2, shape), rng.uniform(2, WIDTH / 2, shape)
    masks = (((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1).astype(np.uint8)
    low = np.maximum(np.concatenate([cx - rx, cy - ry], 2), 0)
    high = np.minimum(np.concatenate([cx + rx, cy + ry], 2), [[WIDTH], [HEIGHT]])
    boxes = np.concatenate([low, high], 2)[..., 0].astype(np.float32)
    inside = rng.uniform(0, 1, (IMAGES, OBJECTS, POINTS, 2)) * (WIDTH - 1, HEIGHT - 1)
    visible = np.full((IMAGES, OBJECTS, POINTS, 1), 2)
    points = np.concatenate([inside, visible], 3).astype(np.float32)
    return masks, boxes, points


MASKS, BOXES, POINTS_OF = made_up()

CASES = {
    "crop": (T.Crop(30, 40, at=(5, 9)), lambda x: F.crop(x, 5, 9, 30, 40)),
    "centre crop": (T.CenterCrop(33), lambda x: F.center_crop(x, [33])),
    "pad": (T.Pad((1, 2, 3, 4)), lambda x: F.pad(x, [1, 2, 3, 4])),
    "flip": (T.RandomHorizontalFlip(1.0), F.horizontal_flip),
    "vertical flip": (T.RandomVerticalFlip(1.0), F.vertical_flip),
    "resize": (T.Resize((31, 57)), lambda x: F.resize(x, [31, 57])),
    "enlarge": (T.Resize((101, 97)), lambda x: F.resize(x, [101, 97])),
    "longest side": (
        T.LongestMaxSize(50),
        lambda x: F.resize(x, None, max_size=50),
    ),
    "rotation": (
        T.RandomRotation((33, 33)),
        lambda x: F.rotate(x, 33, interpolation=BILINEAR),
    ),
    "quarter turn": (T.RandomRotation((90, 90)), lambda x: F.rotate(x, 90)),
    "affine": (
        T.RandomAffine((-20, -20), scale=(0.8, 0.8), shear=(7, 7)),
        lambda x: F.affine(x, -20, [0, 0], 0.8, [7, 0], interpolation=BILINEAR),
    ),
}

RESIZES = [CASES[name][1] for name in ("resize", "enlarge", "longest side")]


def moved_masks(functional, masks):
    """Returns masks as torchvision moves tensors; for a resize, as it resizes files.

    Of tensors, its "nearest" takes the pixel above and to the left, as
    docs/reference/parity.md says.
    """
    moved = functional(tv_tensors.Mask(torch.from_numpy(masks))).numpy()
    height, width = moved.shape[1:]
    if functional not in RESIZES:
        return moved
    resized = [
        F.resize(Image.fromarray(mask), [height, width], interpolation=NEAREST)
        for mask in masks
    ]
    return np.stack([np.array(mask) for mask in resized])


@pytest.mark.parametrize("case", CASES)
def test_objects_move_as_in_torchvision(case):
    transform, functional = CASES[case]
    source = sources.Memory(
        image=np.zeros((IMAGES, HEIGHT, WIDTH, 3), np.uint8),
        boxes=BOXES,
        masks=MASKS,
        keypoints=POINTS_OF,
        number=np.tile(np.arange(OBJECTS), (IMAGES, 1)),
    )
    pipeline = infeed.Pipeline(source).boxes(
        columns=("keypoints", "number"), masks="masks"
    )
    pipeline = pipeline.points("keypoints").transform(transform)
    seen = 0
    with pipeline.batch(1).open(workers=1) as loader:
        for index, batch in enumerate(loader):
            masks, boxes, points, numbers = (
                batch[name][0] for name in ("masks", "boxes", "keypoints", "number")
            )
            expected = moved_masks(functional, MASKS[index])[numbers]
            assert masks.shape == expected.shape
            np.testing.assert_array_equal(masks, expected)
            canvas = (HEIGHT, WIDTH)
            of = tv_tensors.BoundingBoxes(
                torch.from_numpy(BOXES[index]), format="XYXY", canvas_size=canvas
            )
            moved = F.clamp_bounding_boxes(functional(of)).numpy()
            np.testing.assert_allclose(boxes, moved[numbers], atol=1e-4)
            sides = moved[:, 2:] - moved[:, :2]
            is_kept = (sides >= 1).all(1) & (sides.prod(1) >= 1)
            assert np.flatnonzero(is_kept).tolist() == numbers.tolist()
            of = tv_tensors.KeyPoints(
                torch.from_numpy(POINTS_OF[index, ..., :2]), canvas_size=canvas
            )
            unclamped = functional(of).numpy()[numbers]
            is_visible = points[..., 2] > 0
            np.testing.assert_allclose(
                points[is_visible][:, :2], unclamped[is_visible], atol=1e-4
            )
            seen += len(numbers)
    assert seen > IMAGES


def test_blending_pastes_the_pixels_that_torchvisions_blur_of_a_binary_mask_reaches():
    rng = np.random.default_rng(1)
    for share in (0.001, 0.01, 0.1) * 20:
        mask = rng.random((20, 30)) < share
        blurred = functional_v1.gaussian_blur(
            torch.from_numpy(mask)[None], [5, 5], [2.0]
        )
        np.testing.assert_array_equal(blurred[0].numpy(), widen(mask))
