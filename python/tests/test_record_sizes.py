"""Images that are brought to the size in a field of their record."""

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.errors import ConfigError, InfeedError
from scenes import png

COUNT = 12
# Height and width of the results: batches of three have the same.
CANVASES = np.array([[40, 56], [64, 33], [21, 80], [48, 48]], np.int64).repeat(3, 0)


def sized_scenes(canvases=CANVASES):
    """Returns images of several sizes, with the sizes of the results."""
    images, masks, boxes, outlines = [], [], [], []
    for index in range(COUNT):
        rng = np.random.default_rng(index)
        height, width = 30 + 3 * index, 60 - 2 * index
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        images.append(png(pixels, index))
        masks.append(png(rng.integers(0, 5, (height, width), np.uint8), index))
        boxes.append([8, 9, 20, 19])
        outlines.append([8, 9, 20, 9, 20, 19, np.nan, np.nan])
    return sources.Memory(
        image=images,
        mask=masks,
        boxes=np.array(boxes, np.float32),
        outlines=np.array(outlines, np.float32),
        canvas=canvases,
        kinds={"image": "image", "mask": "mask"},
    )


def pipeline_of(source, *transforms, size=3):
    records = infeed.Pipeline(source).decode()
    records = records.boxes("boxes", outlines="outlines", map_stride=1)
    return records.transform(*transforms).batch(size, pad=True)


def samples_of(pipeline, **options):
    """Returns the samples of an epoch, each as arrays by name."""
    with pipeline.open(**options) as loader:
        batches = [dict(batch.items()) for batch in loader]
    return [
        {
            "image": batch["image"][row],
            "mask": batch["mask"][row],
            "outlines": batch["outlines"][row],
            "boxes": batch["boxes"][0][slice(*batch["boxes"][1][row : row + 2])],
        }
        for batch in batches
        for row in range(len(batch["image"]))
    ]


LEADING = (T.LongestMaxSize(50, antialias=False),)
LATER = (T.RandomAffine(20, fill=9), T.RandomHorizontalFlip(0.5))


@pytest.mark.parametrize(
    "options", [{}, {"cache": "64MiB"}, {"workers": 3, "device": "sim"}], ids=str
)
def test_a_sample_is_that_of_a_fixed_size(options):
    fill = {"fill": (1, 2, 3), "mask_fill": 255}
    found = samples_of(
        pipeline_of(sized_scenes(), *LEADING, T.CropOrPadTo("canvas", **fill), *LATER),
        **options,
    )

    assert len(found) == COUNT
    for index, (height, width) in enumerate(CANVASES.tolist()):
        fixed = T.CropOrPad(height, width, **fill)
        fixed = pipeline_of(sized_scenes(), *LEADING, fixed, *LATER, size=1)
        expected = samples_of(fixed)[index]
        assert expected["image"].shape == (height, width, 3)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[index][name], array, name)


def test_the_tiles_of_a_mosaic_can_have_sizes_of_their_records():
    sized = samples_of(
        pipeline_of(sized_scenes(), T.CropOrPadTo("canvas"), T.Mosaic(96), size=4)
    )
    same = np.full_like(CANVASES, 48)
    other = pipeline_of(sized_scenes(same), T.CropOrPadTo("canvas"), T.Mosaic(96))
    fixed = samples_of(pipeline_of(sized_scenes(), T.CropOrPad(48, 48), T.Mosaic(96)))

    assert {one["image"].shape for one in sized} == {(96, 96, 3)}
    for found, expected in zip(samples_of(other), fixed, strict=True):
        np.testing.assert_array_equal(found["image"], expected["image"])


@pytest.mark.parametrize(
    ("transforms", "problem"),
    [
        ([T.CropOrPadTo("shape")], r"no field `shape`; use one of .*canvas"),
        ([T.CropOrPadTo("boxes")], "`boxes` is no size; use a field with two integers"),
        (
            [T.Mosaic(96), T.CropOrPadTo("canvas")],
            "an image after Mosaic has several records; put it before Mosaic",
        ),
    ],
)
def test_a_size_that_no_record_has_is_an_error(transforms, problem):
    with pytest.raises(ConfigError, match=f"CropOrPadTo.*{problem}"):
        pipeline_of(sized_scenes(), *transforms).open()


def unboxed_pipeline():
    canvas = np.full((3, 2), 20)
    images = np.zeros((3, 30, 40, 3), np.uint8)
    return infeed.Pipeline(sources.Memory(image=images, canvas=canvas)).transform(
        T.CropOrPadTo("canvas")
    )


def test_a_size_is_no_coordinate_that_moves(caplog):
    with unboxed_pipeline().batch(1, pad=True).open():
        assert "canvas" not in caplog.text


def test_without_padding_batches_must_have_one_size():
    with pytest.raises(ConfigError, match=r"batch\(n, pad=True\)"):
        unboxed_pipeline().batch(3)


@pytest.mark.parametrize(
    "size", [(0, 5), (5, -1), (1 << 40, 3), (1 << 20, 1 << 20)], ids=str
)
def test_an_impossible_size_is_a_bad_record(size):
    canvases = CANVASES.copy()
    canvases[4] = size
    pipeline = pipeline_of(sized_scenes(canvases), T.CropOrPadTo("canvas"), size=1)

    with pytest.raises(InfeedError, match=r"4.*(is no size|in total)"):
        samples_of(pipeline)
    with pipeline.open(on_error="skip") as loader:
        assert sum(len(batch["image"]) for batch in loader) == COUNT - 1
        assert len(loader.bad_records) == 1


def test_packing_does_not_write_sizes_of_records(tmp_path):
    pipeline = unboxed_pipeline().batch(1, pad=True)

    with pytest.raises(ConfigError, match="leave it to the pipeline"):
        infeed.pack(pipeline, tmp_path / "packed", bake=1)
