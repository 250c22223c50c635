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
