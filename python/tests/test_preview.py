"""One sample, stage by stage."""

import re

import numpy as np
import pytest
from test_examples import classification_pipeline, segmentation_pipeline

import infeed
from infeed import sources
from infeed import transforms as T


def test_the_last_stage_is_the_row_of_the_batch(classification):
    pipeline = classification_pipeline(classification)
    with pipeline.open() as loader:
        first = next(iter(loader))

    for position in range(first.rows):
        preview = pipeline.preview(position)
        stages = [stage.name for stage in preview]
        output = preview[-1].fields
        assert stages[:2] == ["decode", "RandomResizedCrop"]
        assert stages[-1] == "output"
        assert preview.record == first.records[position]
        np.testing.assert_array_equal(output["image"], first["image"][position])
        assert output["label"] == first["label"][position]


def test_a_preview_shows_the_random_draws(classification):
    stage = classification_pipeline(classification).preview(3)["RandomResizedCrop"]

    crop, resize = r"crop \d+x\d+ at x \d+, y \d+", r"resize to 64x64 \(bilinear\)"
    assert re.search(f"^{crop}, {resize}$", stage.draws)
    assert stage.fields["image"].shape == (64, 64, 3)


def test_each_epoch_has_other_draws(classification):
    pipeline = classification_pipeline(classification)

    assert repr(pipeline.preview(3)) == repr(pipeline.preview(3, epoch=0))
    assert repr(pipeline.preview(3)) != repr(pipeline.preview(3, epoch=1))


def test_masks_are_shown_next_to_their_images(segmentation):
    preview = segmentation_pipeline(segmentation).preview(0)

    assert list(preview["decode"].fields) == ["image", "mask"]
    assert preview["Crop"].fields["mask"].shape == (32, 40, 3)
    assert preview["output"].fields["mask"].shape == (32, 40, 4)


def test_a_notebook_shows_a_picture_for_every_image(segmentation):
    preview = segmentation_pipeline(segmentation).preview(0)

    page = preview._repr_html_()

    assert page.count("data:image/png;base64,") == 2 * len(preview)


def test_fields_of_every_kind_are_shown():
    source = sources.Memory(
        x=[1.5, 2.5], text=["a", "b"], blob=[b"1", b"2"], n=[[1], []]
    )

    output = infeed.Pipeline(source).preview(1)["output"].fields

    assert (output["x"], output["text"], output["blob"]) == (2.5, "b", b"2")
    assert output["n"].tolist() == []


def test_a_position_beyond_the_end_raises(segmentation):
    with pytest.raises(infeed.errors.ConfigError, match="position"):
        segmentation_pipeline(segmentation).preview(10)


def test_an_unknown_stage_is_a_key_error(segmentation):
    with pytest.raises(KeyError):
        segmentation_pipeline(segmentation).preview(0)["RandomCrop"]


def test_a_notebook_does_not_draw_on_the_arrays_of_a_preview():
    image = np.zeros((1, 20, 30, 3), np.uint8)
    boxes = np.array([[[5, 5, 15, 15]]], np.float32)
    pipeline = infeed.Pipeline(sources.Memory(image=image, boxes=boxes)).boxes()
    preview = pipeline.transform(T.RandomHorizontalFlip(1.0)).preview(0)

    preview._repr_html_()

    assert not preview["RandomHorizontalFlip"].fields["image"].any()
