"""The two pipelines of the README, compared with NumPy and Pillow."""

import re

import numpy as np
from conftest import PALETTE
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T

# A level of 255 after Normalize with the smallest deviation.
LEVEL = 1 / 255 / min(T.IMAGENET_STD)


def segmentation_pipeline(data) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Pairs(image=data.image, mask=data.mask))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.Crop(32, 40, at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=data.palette, unknown="ignore"),
        )
        .batch(3, drop_last=True)
    )


def classification_pipeline(data) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Folder(data.path))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.RandomResizedCrop(64),
            T.RandomHorizontalFlip(),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(8, drop_last=True)
    )


def test_crops_and_one_hot_masks_equal_numpy(segmentation):
    classes = np.arange(len(PALETTE))
    seen = []

    for batch in segmentation_pipeline(segmentation):
        images, masks = batch
        assert (images.dtype, images.shape) == (np.float32, (3, 32, 40, 3))
        assert (masks.dtype, masks.shape) == (np.float32, (3, 32, 40, 4))
        for row, (record, _) in enumerate(batch.records):
            pixels = segmentation.images[record][:32, :40]
            expected = segmentation.classes[record][:32, :40, None] == classes
            np.testing.assert_allclose(images[row], pixels / 255, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(masks[row], expected.astype(np.float32))
            seen.append(record)

    assert len(seen) == len(set(seen)) == 9


def test_random_resized_crops_equal_pillow_after_the_same_draws(classification):
    pipeline = classification_pipeline(classification)
    mean, std = np.array(T.IMAGENET_MEAN), np.array(T.IMAGENET_STD)
    labels_of = [label for _, label in classification.files]
    position = 0

    for batch in pipeline:
        images, labels = batch
        assert (images.dtype, images.shape) == (np.float32, (8, 3, 64, 64))
        assert labels.dtype == np.int64
        for row, (record, name) in enumerate(batch.records):
            path = classification.files[record][0]
            preview = pipeline.preview(position)
            expected = replay(path, preview)
            expected = ((expected / 255 - mean) / std).transpose(2, 0, 1)

            assert name.endswith(str(path.relative_to(classification.path)))
            assert labels[row] == labels_of[record]
            np.testing.assert_allclose(images[row], expected, rtol=0, atol=LEVEL + 1e-6)
            # The resize may differ by a level; later steps by a millionth.
            resized = preview["RandomResizedCrop"].fields["image"]
            if "RandomHorizontalFlip" in [stage.name for stage in preview]:
                resized = resized[:, ::-1]
            exact = ((resized / 255 - mean) / std).transpose(2, 0, 1)
            np.testing.assert_allclose(images[row], exact, rtol=0, atol=1e-6)
            position += 1

    assert position == 24


def replay(path, preview) -> np.ndarray:
    """Returns Pillow's result for a file and a preview's draws, uint8 [64, 64, 3]."""
    draws = preview["RandomResizedCrop"].draws
    found = re.match(r"crop (\d+)x(\d+) at x (\d+), y (\d+), ", draws)
    width, height, left, top = map(int, found.groups())
    image = Image.open(path).convert("RGB")
    image = image.crop((left, top, left + width, top + height))
    image = image.resize((64, 64), Image.Resampling.BILINEAR)
    flipped = "RandomHorizontalFlip" in [stage.name for stage in preview]
    if flipped:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)
