"""Masks to classes: pixels without a class are an error unless declared."""

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T


@pytest.fixture
def binary(tmp_path):
    """Three pairs; the masks store 0, and 255 in a rectangle of 8x10 px of 16x20."""
    for name in ("image", "mask"):
        (tmp_path / name).mkdir()
    mask = np.zeros((16, 20), np.uint8)
    mask[4:12, 5:15] = 255
    for n in range(3):
        Image.new("RGB", (20, 16)).save(tmp_path / "image" / f"{n}.png")
        Image.fromarray(mask).save(tmp_path / "mask" / f"{n}.png")
    return tmp_path


def masks(root, *steps, size=(16, 20)):
    source = sources.Pairs(image=root / "image", mask=root / "mask")
    crop = T.Crop(*size, at="top_left")
    return infeed.Pipeline(source).decode().transform(crop, *steps).batch(3)


def first(pipeline):
    with pipeline.open(workers=1) as loader:
        return next(iter(loader))["mask"]


def test_a_foreground_of_255_is_an_error_that_names_file_value_and_share(binary):
    with pytest.raises(infeed.errors.TransformError) as caught:
        first(masks(binary, T.OneHot("mask", classes=2)))

    message = str(caught.value)
    assert "0.png" in message
    assert "OneHot" in message
    assert "25.00 % of the pixels have no class: value 255" in message
    assert "values=(0, 255)" in message


def test_settings_declare_the_foreground(binary):
    channels = first(masks(binary, T.OneHot("mask", values=(0, 255))))
    void = first(masks(binary, T.OneHot("mask", classes=1, ignore_index=255)))
    index = first(masks(binary, T.ClassIndex("mask", values=(0, 255), dtype="int64")))

    assert channels[..., 1].sum() == 3 * 80
    assert channels.sum() == 3 * 320
    assert void.sum() == 3 * 240
    assert index.dtype == np.int64
    assert index.sum() == 3 * 80


def test_a_foreign_palette_is_an_error_unless_it_is_ignored(segmentation):
    def step(**settings):
        return masks(
            segmentation.palette.parent,
            T.ClassIndex("mask", palette=segmentation.palette, **settings),
            size=(48, 64),
        )

    with pytest.raises(infeed.errors.TransformError, match="colour 1,2,3"):
        first(step())
    no_class = np.stack(segmentation.classes[:3]) == 4
    np.testing.assert_array_equal(first(step(unknown="ignore")) == 255, no_class)
    np.testing.assert_array_equal(first(step(ignore_index=9)) == 9, no_class)


@pytest.mark.parametrize("device", [None, "sim"])
@pytest.mark.parametrize("workers", [1, 4])
def test_pixels_of_no_class_are_counted_when_they_are_delivered(
    segmentation, workers, device
):
    pipeline = masks(
        segmentation.palette.parent,
        T.RandomHorizontalFlip(),
        T.OneHot("mask", palette=segmentation.palette, unknown="ignore"),
        size=(48, 64),
    )
    each = [int((classes == 4).sum()) for classes in segmentation.classes]
    with pipeline.open(workers=workers, device=device) as loader:
        for _ in range(2):
            begun = loader.stats()["unknown_pixels"]
            for step, _ in zip(range(2), loader, strict=False):
                counted = loader.stats()["unknown_pixels"] - begun
                assert counted == sum(each[: 3 * (step + 1)])


def test_mask_options_survive_saving(binary, tmp_path):
    steps = (T.OneHot("mask", values=(0, 255), unknown="ignore", ignore_index=7),)
    pipeline = masks(binary, *steps)

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
