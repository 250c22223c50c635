"""`ImageMixUp` has the objects of both images, in every kind of field."""

import re

import numpy as np
import pytest
from test_device import host
from test_outlines import OutlineScenes, pipeline_of

import infeed
from infeed import sources
from infeed import transforms as T

BEFORE = {
    "mosaic": (T.Mosaic(96, p=0.7), T.RandomAffine(20), T.CenterCrop(72)),
    "copies": (T.Mosaic(96, p=0.7), T.MirroredPaste(1.0), T.CenterCrop(72)),
    "crop": (T.RandomCrop(60), T.RandomHorizontalFlip()),
}


def samples_of(pipeline):
    """Returns the arrays of each sample of an epoch."""
    with pipeline.open(workers=2) as loader:
        return [
            {
                name: np.array(batch[name][0])
                for name in ("image", "boxes", "labels", "outlines")
            }
            for batch in loader
        ]


def partner_of(pipeline, position):
    """Returns the position of the second image of a sample; None without one."""
    for stage in pipeline.preview(position).stages:
        if stage.name == "ImageMixUp":
            return int(re.search(r"rest position (\d+)", stage.draws)[1])
    return None


@pytest.mark.parametrize("before", BEFORE)
def test_objects_of_both_images_stay_in_their_order(before):
    plain = pipeline_of(OutlineScenes(24), *BEFORE[before]).shuffle(seed=3)
    mixed = plain.transform(T.ImageMixUp(p=0.6))
    own, found = samples_of(plain), samples_of(mixed)

    partners = [partner_of(mixed, position) for position in range(24)]

    assert 5 < sum(partner is not None for partner in partners) < 22
    for position, partner in enumerate(partners):
        shown = [own[at] for at in (position, partner) if at is not None]
        for name in ("boxes", "labels", "outlines"):
            expected = np.concatenate([sample[name] for sample in shown])
            np.testing.assert_array_equal(found[position][name], expected)


def test_a_map_has_the_objects_of_both_images():
    chain = (*BEFORE["crop"], T.ImageMixUp(), T.RandomVerticalFlip())
    pipeline = pipeline_of(OutlineScenes(24), *chain, map_stride=1).shuffle(seed=3)

    for sample in samples_of(pipeline):
        assert sample["outlines"].max() <= len(sample["boxes"])
        for number, (left, top, right, bottom) in enumerate(sample["boxes"], 1):
            ys, xs = np.nonzero(sample["outlines"] == number)
            assert (xs >= left - 1).all()
            assert (xs <= right).all()
            assert (ys >= top - 1).all()
            assert (ys <= bottom).all()


def test_a_preview_shows_the_sample():
    chain = (*BEFORE["copies"], T.ImageMixUp(p=0.8), T.RandomHorizontalFlip())
    pipeline = pipeline_of(OutlineScenes(12), *chain).shuffle(seed=3)

    for position, sample in enumerate(samples_of(pipeline)):
        last = pipeline.preview(position).stages[-1]
        for name, expected in sample.items():
            np.testing.assert_array_equal(last.fields[name], expected)


def test_masks_and_points_of_both_images_stay():
    count, size = 6, 32
    boxes = np.stack([np.float32([[n, n, n + 9, n + 9]]) for n in range(count)])
    masks = np.zeros((count, 1, size, size), np.uint8)
    for n in range(count):
        masks[n, 0, n : n + 9, n : n + 9] = 1
    source = sources.Memory(
        image=np.zeros((count, size, size, 3), np.uint8),
        boxes=boxes,
        labels=np.arange(count).reshape(count, 1),
        masks=masks,
        eyes=np.concatenate([boxes[..., :2] + 4, np.ones((count, 1, 1))], 2),
    )
    pipeline = (
        infeed.Pipeline(source)
        .points("eyes", count=1)
        .boxes(columns=("labels", "eyes"), masks="masks")
        .transform(T.ImageMixUp())
        .batch(1)
    )

    for own, batch in enumerate(pipeline):
        first, second = batch["labels"][0]
        assert first == own != second
        for number, label in enumerate((first, second)):
            np.testing.assert_array_equal(batch["masks"][0][number], masks[label, 0])
            np.testing.assert_array_equal(batch["eyes"][0][number, :2], label + 4)


@pytest.mark.parametrize("placement", ["host", "device", "device-resize"])
def test_a_device_has_the_bits_of_the_host(placement):
    chain = (*BEFORE["mosaic"], T.ImageMixUp(p=0.5), T.Resize((32, 32)), T.ToFloat())
    pipeline = pipeline_of(OutlineScenes(16), *chain).shuffle(seed=3)
    expected = samples_of(pipeline)
    with pipeline.open(device="sim", placement=placement) as loader:
        for batch, sample in zip(loader, expected, strict=True):
            found = host(batch, "image")[0]
            np.testing.assert_array_equal(found, sample["image"])


def test_wrong_declarations_name_the_fix():
    image = np.zeros((2, 8, 8, 3), np.uint8)
    source = sources.Memory(
        image=image,
        mask=image[..., 0],
        eyes=np.ones((2, 1, 3), np.float32),
        kinds={"mask": "mask"},
    )
    masked = infeed.Pipeline(source).transform(T.ImageMixUp())
    with pytest.raises(infeed.errors.ConfigError, match="cannot be averaged"):
        masked.open()
    source = sources.Memory(image=image, eyes=np.ones((2, 1, 3), np.float32))
    pointed = infeed.Pipeline(source).points("eyes", count=1)
    with pytest.raises(infeed.errors.ConfigError, match="ImageMixUp adds those of"):
        pointed.transform(T.ImageMixUp()).open()
