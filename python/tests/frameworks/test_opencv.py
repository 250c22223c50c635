"""Pixels of transforms that follow OpenCV."""

import re

import numpy as np
import pytest
from conftest import photograph
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T

cv2 = import_or_skip("cv2")
pytestmark = framework_test


def photographs(count: int, height: int, width: int) -> np.ndarray:
    """Returns photographs with a tint, uint8 [count, height, width, 3]."""
    tints = np.random.default_rng(0).uniform(0.3, 1, (count, 3))
    images = [photograph(n, height, width) * tint for n, tint in enumerate(tints)]
    return np.stack(images).astype(np.uint8)


def change_hsv(image, turn, saturation, value):
    """Changes HSV by tables of 8 bits and half degrees, whose entries are truncated."""
    levels = np.arange(256)
    changed = [
        (levels + turn * 180) % 180,
        np.clip(levels * saturation, 0, 255),
        np.clip(levels * value, 0, 255),
    ]
    hsv = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2HSV)
    planes = [
        cv2.LUT(plane, table.astype(np.uint8))
        for plane, table in zip(cv2.split(hsv), changed, strict=True)
    ]
    return cv2.cvtColor(cv2.merge(planes), cv2.COLOR_HSV2RGB)


@pytest.mark.parametrize(
    ("step", "most", "mean"),
    [
        # OpenCV rounds a hue to 2 degrees and truncates its turn: up to 3 degrees,
        # which are a twentieth of 255 levels. Rounding of saturation, value and result
        # is up to 4 levels more. The mean differences are 0.53, 0.46 and 0.31; a value
        # that is rounded to the nearest level adds 0.2 to each.
        (T.RandomHSV(), 17, 0.6),
        (T.RandomHSV(hue=0.5, saturation=1, value=1), 17, 0.6),
        # Without a turn, 1 degree and the rounding.
        (T.RandomHSV(hue=0), 9, 0.4),
    ],
)
def test_changes_of_hsv_differ_from_opencv_by_its_rounding(step, most, mean):
    images = photographs(24, 60, 80)
    pipeline = infeed.Pipeline(sources.Memory(image=images)).transform(step)
    apart = []
    for at, image in enumerate(images):
        preview = pipeline.preview(at)
        draws = preview["RandomHSV"].draws
        turn, saturation, value = map(float, re.findall(r"-?\d+(?:\.\d+)?", draws))
        expected = change_hsv(image, turn, saturation, value)
        found = preview["output"].fields["image"]
        apart.append(np.abs(found - expected.astype(int)))

    assert np.max(apart) <= most
    assert np.mean(apart) < mean


@pytest.mark.parametrize(
    ("step", "resized"),
    [
        (T.Resize((37, 50), antialias=False), (37, 50)),
        (T.LongestMaxSize(40, antialias=False), (30, 40)),
        (T.LongestMaxSize(200, antialias=False), (150, 200)),
        # An image alone is in the middle, and fits half of the result.
        (T.Mosaic(64, p=0, antialias=False), (24, 32)),
    ],
)
def test_resizes_without_antialiasing_are_those_of_opencv(step, resized):
    images = photographs(6, 60, 80)
    pipeline = infeed.Pipeline(sources.Memory(image=images)).transform(step)
    height, width = resized
    for at, image in enumerate(images):
        found = pipeline.preview(at)["output"].fields["image"]
        top, left = (found.shape[0] - height) // 2, (found.shape[1] - width) // 2
        part = found[top : top + height, left : left + width]
        expected = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        # OpenCV rounds its weights to 11 bits.
        assert np.abs(part - expected.astype(int)).max() <= 1


def test_tiles_of_a_mosaic_are_resized_as_by_opencv():
    images = photographs(6, 60, 80)
    step = T.Mosaic(64, center_range=(0.5, 0.5), fill=0, antialias=False)
    pipeline = infeed.Pipeline(sources.Memory(image=images)).transform(step)
    resized = [cv2.resize(image, (32, 24)).astype(int) for image in images]
    for at in range(len(images)):
        preview = pipeline.preview(at)
        partners = [int(n) for n in re.findall(r"\d+", preview["Mosaic"].draws)[:3]]
        found = preview["output"].fields["image"]
        right, below, diagonal = partners
        places = [(at, 8, 0), (right, 8, 32), (below, 32, 0), (diagonal, 32, 32)]
        for record, top, left in places:
            part = found[top : top + 24, left : left + 32]
            assert np.abs(part - resized[record]).max() <= 1
