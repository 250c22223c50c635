"""Outlines of boxes move with their image; boxes and maps are those of their pixels."""

import json
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import COLOURS, png, rows

HEIGHT, WIDTH = 80, 100
OBJECTS = 4


class OutlineScenes:
    """Images of coloured polygons with their outlines."""

    def __init__(
        self, count, outline_format="numbers", encode=None, normalized=False, seed=0
    ):
        self.rng = np.random.default_rng(seed)
        self.outline_format, self.encode, self.normalized = (
            outline_format,
            encode,
            normalized,
        )
        self.made = [self.scene(index) for index in range(count)]

    def scene(self, index):
        canvas = Image.new("RGB", (WIDTH, HEIGHT))
        outlines = []
        for number in range(index % (OBJECTS + 1)):
            angles = np.sort(self.rng.uniform(0, 2 * np.pi, 9))
            radius = self.rng.uniform(0.5, 1, 9)[:, None] * 10
            centre = np.array([15 + 22 * number, self.rng.uniform(15, 65)])
            corners = centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1)
            # Pillow paints whole pixels.
            corners = corners.round()
            draw = ImageDraw.Draw(canvas)
            draw.polygon(list(map(tuple, corners)), fill=tuple(COLOURS[number + 1]))
            outlines.append(corners + 0.5)
        return np.asarray(canvas), outlines

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        image, outlines = self.made[index]
        sides = [WIDTH, HEIGHT] if self.normalized else [1, 1]
        outlines = [outline / sides for outline in outlines]
        boxes = [[*one.min(0), *one.max(0)] for one in outlines]
        return {
            "image": image if self.encode is None else self.encode(image, index),
            "boxes": np.array(boxes, np.float32).reshape(-1, 4),
            "labels": np.arange(1, len(outlines) + 1),
            "outlines": write(outlines, self.outline_format),
        }


def write(outlines, outline_format):
    """Returns outlines as JSON, or as numbers."""
    if outline_format == "text":
        return json.dumps([[one.ravel().tolist()] for one in outlines])
    end = np.full((1, 2), np.nan)
    parts = [part for one in outlines for part in (one, end)]
    return np.concatenate([np.zeros((0, 2)), *parts]).astype(np.float32)


RAGGED = sources.Field(kind="ragged")


def pipeline_of(dataset, *steps, batch=1, map_stride=None, **options):
    fields = {"image": "image", "boxes": RAGGED, "labels": RAGGED}
    kind = "text" if dataset.outline_format == "text" else "ragged"
    fields["outlines"] = sources.Field(kind=kind)
    pipeline = infeed.Pipeline(sources.Items(dataset, fields=fields))
    if dataset.encode is not None:
        pipeline = pipeline.decode()
    pipeline = pipeline.boxes(
        columns=("labels",),
        normalized=dataset.normalized,
        outlines="outlines",
        map_stride=map_stride,
        **options,
    )
    pipeline = pipeline.transform(*steps).batch(batch, pad=dataset.encode is not None)
    return pipeline


CHAINS = {
    "nothing": (),
    "crop": (T.RandomCrop(50), T.RandomHorizontalFlip(1.0)),
    "pad": (T.RandomCrop(40), T.Pad(12), T.RandomVerticalFlip(1.0)),
    "affine": (
        T.RandomAffine(40, translate=(0.2, 0.2), scale=(0.8, 1.6)),
        T.CenterCrop(64),
    ),
    "perspective": (T.RandomPerspective(p=1.0),),
    "resize": (T.Resize((160, 130), interpolation="nearest"),),
    "mosaic": (T.Mosaic(200, fill=0, antialias=False), T.CenterCrop(120)),
    "copies": (
        T.MirroredPaste(1.0, max_overlap=1e-9),
        T.RandomAffine(40, translate=(0.2, 0.2), scale=(0.8, 1.6)),
        T.CenterCrop(72),
    ),
    "copies on a mosaic": (
        T.Mosaic(200, p=0.7, fill=0, antialias=False),
        T.MirroredPaste(1.0, max_overlap=1e-9),
        T.RandomHorizontalFlip(),
        T.CenterCrop(120),
    ),
}


@pytest.mark.parametrize("outline_format", ["numbers", "text"])
@pytest.mark.parametrize("chain", CHAINS)
def test_maps_and_boxes_are_those_of_the_pixels(chain, outline_format):
    dataset = OutlineScenes(20, outline_format=outline_format, encode=png)
    pipeline = pipeline_of(dataset, *CHAINS[chain], map_stride=1).shuffle(seed=3)
    has_several = "mosaic" in chain or "copies" in chain
    found = 0
    for batch in pipeline:
        image, numbers = batch["image"][0].astype(int), batch["outlines"][0]
        (labels,), (boxes,) = rows(batch, "labels"), rows(batch, "boxes")
        assert numbers.shape == image.shape[:2]
        for label in range(1, OBJECTS + 1):
            own = 1 + np.flatnonzero(labels == label)
            colour = np.abs(image - COLOURS[label]).max(axis=-1) < 128
            apart = colour != np.isin(numbers, own)
            assert apart.mean() < 0.02
            # Too little of another object with this label may be left.
            if not has_several and len(own) == 1 and colour.sum() > 50:
                ys, xs = np.nonzero(colour)
                extent = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
                np.testing.assert_allclose(boxes[own[0] - 1], extent, atol=2)
                found += 1
    assert found > 10 or has_several


def test_mirrored_copies_are_added_to_the_objects():
    dataset = OutlineScenes(10)
    added = 0
    for index, batch in enumerate(pipeline_of(dataset, T.MirroredPaste(1.0))):
        (boxes,), (labels,) = rows(batch, "boxes"), rows(batch, "labels")
        (corners,) = rows(batch, "outlines")
        objects = index % (OBJECTS + 1)
        copies = labels[objects:]
        assert labels[:objects].tolist() == list(range(1, objects + 1))
        assert np.isin(copies, labels[:objects]).all()
        outlines = np.split(corners, np.flatnonzero(np.isnan(corners[:, 0])) + 1)
        for label, box, outline in zip(
            copies, boxes[objects:], outlines[objects:], strict=False
        ):
            left, top, right, bottom = boxes[label - 1]
            np.testing.assert_allclose(box, [WIDTH - right, top, WIDTH - left, bottom])
            original = outlines[label - 1] * [-1, 1] + [WIDTH, 0]
            np.testing.assert_allclose(outline, original, rtol=1e-5)
        image, own = batch["image"][0], dataset.made[index][0]
        from_mirror = (image != own).any(-1)
        np.testing.assert_array_equal(image[from_mirror], own[:, ::-1][from_mirror])
        added += len(copies)
    assert added > 8


def test_fewer_copies_are_pasted_for_a_lower_share():
    dataset = OutlineScenes(10)

    def count(share):
        return sum(
            len(rows(batch, "labels")[0])
            for batch in pipeline_of(dataset, T.MirroredPaste(share))
        )

    assert count(0.0) == 20 < count(0.5) < count(1.0)


def test_boxes_surround_the_visible_part_of_an_outline():
    # A triangle whose tip is left of the crop's edge: its box is low.
    triangle = np.array([[10, 40], [90, 0], [90, 79]], np.float32)
    source = sources.Memory(
        image=np.zeros((1, HEIGHT, WIDTH, 3), np.uint8),
        boxes=[np.array([10, 0, 90, 79], np.float32)],
        outlines=[write([triangle], "numbers")],
    )
    pipeline = infeed.Pipeline(source).boxes(outlines="outlines", min_visibility=0.02)

    batch = next(iter(pipeline.transform(T.Crop(80, 20, at=(0, 10))).batch(1)))

    (box,), (corners,) = rows(batch, "boxes"), rows(batch, "outlines")
    np.testing.assert_allclose(box, [[0, 30, 20, 49.75]], atol=1e-3)
    np.testing.assert_allclose(corners[:-1], [[0, 40], [20, 30], [20, 49.75]])
    assert np.isnan(corners[-1]).all()


@pytest.mark.parametrize("normalized", [False, True])
def test_corners_have_the_unit_of_the_boxes(normalized):
    dataset = OutlineScenes(10, normalized=normalized)
    for index, batch in enumerate(pipeline_of(dataset, T.RandomHorizontalFlip(1.0))):
        expected = dataset[index]["outlines"]
        expected[:, 0] = (1 if normalized else WIDTH) - expected[:, 0]
        assert batch["outlines"][0].dtype == np.float32
        (found,) = rows(batch, "outlines")
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_polygons_of_one_outline_are_separated():
    first, second = np.float32([[5, 5], [20, 5], [20, 20]]), np.float32([[50, 50]])
    second = second + np.float32([[0, 0], [20, 0], [20, 9]])
    infinite = np.full((1, 2), np.inf, np.float32)
    numbers = np.concatenate([first, infinite, second, np.full_like(infinite, np.nan)])
    text = json.dumps([[first.ravel().tolist(), second.ravel().tolist()]])
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    for outlines in ([numbers.ravel()], [text]):
        source = sources.Memory(image=image, boxes=[np.ones(4)], outlines=outlines)
        pipeline = infeed.Pipeline(source).boxes(outlines="outlines").batch(1)
        batch = next(iter(pipeline))
        np.testing.assert_array_equal(batch["outlines"][0], numbers)
        np.testing.assert_array_equal(batch["boxes"][0], [[5, 5, 70, 59]])


def test_a_map_has_the_middle_pixels_of_a_larger_one():
    dataset = OutlineScenes(10)
    pixels = pipeline_of(dataset, map_stride=1)
    for stride, middle in ((3, [1]), (4, [1, 2])):
        small = pipeline_of(dataset, map_stride=stride)
        for large, batch in zip(pixels, small, strict=True):
            found = batch["outlines"][0]
            height, width = HEIGHT // stride, WIDTH // stride
            assert found.shape == (height, width)
            whole = large["outlines"][0][: height * stride, : width * stride] > 0
            blocks = whole.reshape(height, stride, width, stride)
            share = blocks[:, middle][..., middle].mean(axis=(1, 3))
            # Several objects together may fill half of a pixel.
            assert ((found > 0) <= (share >= 0.25)).all()
            assert ((share > 0.75) <= (found > 0)).all()


def test_images_of_several_sizes_have_padded_maps():
    dataset = OutlineScenes(
        6, encode=lambda image, index: png(image[: 40 + 8 * index], 0)
    )
    pipeline = pipeline_of(dataset, batch=6, map_stride=4)
    batch = next(iter(pipeline))
    assert batch["outlines"].shape == (6, HEIGHT // 4, WIDTH // 4)
    assert not batch["outlines"][0, 10:].any()


def test_the_number_of_workers_changes_no_bit():
    dataset = OutlineScenes(24, encode=png)
    chain = (*CHAINS["copies on a mosaic"], T.ImageMixUp(p=0.5))
    pipeline = pipeline_of(dataset, *chain, batch=4, map_stride=2)
    pipeline = pipeline.shuffle(seed=1)
    one, three = (
        [batch["outlines"].copy() for batch in pipeline.open(workers=workers)]
        for workers in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


def test_coco_has_outlines(tmp_path):
    dataset = OutlineScenes(5)
    images, annotations = [], []
    for number in range(len(dataset)):
        image, outlines = dataset.made[number]
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        file = {"file_name": f"{number}.png", "height": HEIGHT, "width": WIDTH}
        images.append({"id": number, **file})
        for outline in outlines:
            low, high = outline.min(0), outline.max(0)
            ids = {"id": len(annotations), "image_id": number, "category_id": 1}
            box = {"bbox": [*low, *(high - low)], "segmentation": [outline.ravel()]}
            annotations.append(ids | box | {"iscrowd": 0})
    content = {"images": images, "annotations": annotations}
    content["categories"] = [{"id": 1, "name": "thing"}]
    text = json.dumps(content, default=np.ndarray.tolist)
    (tmp_path / "coco.json").write_text(text)
    source = sources.Coco(tmp_path, tmp_path / "coco.json", masks=True)
    pipeline = infeed.Pipeline(source).decode(orient=True)
    pipeline = pipeline.boxes("boxes", columns=("labels",), outlines="masks")

    batch = next(iter(pipeline.batch(5, pad=True)))

    expected = [dataset[number]["outlines"] for number in range(5)]
    for found, outlines in zip(rows(batch, "masks"), expected, strict=True):
        np.testing.assert_allclose(found, outlines, rtol=1e-5)


@pytest.mark.parametrize(
    ("outlines", "message"),
    [
        (np.float32([1, 2, 3, 4, 5, 6]), "has an outline that does not end"),
        (np.float32([np.nan, np.nan]), "has a polygon without corners"),
        (np.float32([1, 2, np.nan, 3, np.nan, np.nan]), "which is no number"),
        (np.float32([1, 2, 1e9, 3, np.nan, np.nan]), "far outside any image"),
        (np.float32([1, 2, 3]), "has 3 numbers, which are not x and y of corners"),
        ("[[[1, 2, 3, 4]]]", "are not x and y of 3 corners or more"),
        ('[{"size": [2, 2], "counts": [4]}]', "is run lengths, which have no corners"),
        ("[", "is no JSON list of segmentations"),
        ("[]", "has 0 outlines, but there are 1 boxes"),
    ],
)
def test_wrong_outlines_are_a_bad_record(outlines, message):
    source = sources.Memory(
        image=np.zeros((1, 2, 2, 3), np.uint8),
        boxes=[np.float32([0, 0, 1, 1])],
        outlines=[outlines],
    )
    pipeline = infeed.Pipeline(source).boxes(outlines="outlines").batch(1)
    with pytest.raises(infeed.errors.InfeedError, match=re.escape(message)):
        next(iter(pipeline))


def test_wrong_declarations_name_the_fix():
    source = sources.Memory(
        image=np.zeros((1, 8, 8, 3), np.uint8),
        boxes=[np.float32([0, 0, 1, 1])],
        masks=["[[[1, 1, 5, 1, 5, 5]]]"],
        outlines=["[[[1, 1, 5, 1, 5, 5]]]"],
        number=np.arange(1),
    )
    pipeline = infeed.Pipeline(source)

    def message(declared):
        with pytest.raises(infeed.errors.ConfigError) as caught:
            declared.open()
        return str(caught.value)

    assert "no field `lines`" in message(pipeline.boxes(outlines="lines"))
    assert "cannot hold outlines" in message(pipeline.boxes(outlines="number"))
    assert "set outlines" in message(pipeline.boxes(map_stride=4))
    both = pipeline.boxes(masks="masks", outlines="outlines", map_stride=4)
    assert "a map sorts the boxes" in message(both)
    assert "map_stride is 0" in message(
        pipeline.boxes(outlines="outlines", map_stride=0)
    )
    twice = pipeline.boxes(masks="masks", outlines="masks")
    assert "declared twice" in message(twice)
    paste = T.MirroredPaste()
    for unlined in (pipeline, pipeline.boxes()):
        assert "inside their outlines" in message(unlined.transform(paste))
    lined = pipeline.boxes(outlines="outlines")
    assert "have one MirroredPaste" in message(lined.transform(paste, paste))
    around = (paste, T.RandomIoUCrop(), T.Resize((8, 8)))
    assert "put it after RandomIoUCrop" in message(lined.transform(*around))
    mosaic = (paste, T.Mosaic(8))
    assert "it cannot follow MirroredPaste" in message(lined.transform(*mosaic))
    pasted = pipeline.boxes(masks="masks", outlines="outlines")
    assert "instead of outlines=" in message(pasted.transform(T.CopyPaste()))


def test_a_text_of_outlines_needs_no_more_memory_than_allowed():
    outline = ",".join(["0,0,9,0,9,9"] * 200_000)
    source = sources.Memory(
        image=np.zeros((4, 32, 32, 3), np.uint8),
        boxes=[np.float32([0, 0, 9, 9])] * 4,
        outlines=[f"[[[{outline}]]]"] * 4,
    )
    pipeline = infeed.Pipeline(source).boxes(outlines="outlines").batch(1)
    with pytest.raises(infeed.errors.InfeedError, match="memory"):
        list(pipeline.open(memory="16MiB"))


def test_previews_have_the_objects():
    dataset = OutlineScenes(6)
    preview = pipeline_of(dataset, T.RandomHorizontalFlip(1.0), map_stride=4).preview(4)
    objects = preview.stages[-1].objects
    assert objects.shape == (HEIGHT, WIDTH)
    assert set(np.unique(objects)) == {0, 1, 2, 3, 4}


def test_the_declaration_is_part_of_the_description(tmp_path):
    source = sources.Coco(tmp_path, tmp_path / "coco.json", masks=True)
    pipeline = infeed.Pipeline(source).decode(orient=True)
    pipeline = pipeline.boxes(outlines="masks", map_stride=4)

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
    assert '.boxes("boxes", outlines="masks", map_stride=4)' in repr(pipeline)
