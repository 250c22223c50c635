"""Masks of boxes move with their image and stay aligned with the boxes."""

import base64
import io
import itertools
import json
import re

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import png, rows

HEIGHT, WIDTH = 40, 60
OBJECTS = 11

# Declares the size of images in files.
SAME_SIZE = T.CropOrPad(HEIGHT, WIDTH)


def blobs(rng, size, count):
    """Returns a map of object numbers from 1, in which objects cover each other."""
    height, width = size
    y, x = np.mgrid[:height, :width]
    found = np.zeros(size, np.uint8)
    for number in range(1, count + 1):
        cy, cx = rng.uniform(0, height), rng.uniform(0, width)
        ry, rx = rng.uniform(4, height / 2), rng.uniform(4, width / 2)
        found[((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1] = number
    return found


def box_of(mask):
    y, x = np.nonzero(mask)
    return (x.min(), y.min(), x.max() + 1, y.max() + 1)


def run_lengths(mask):
    """Returns the lengths of runs, column by column."""
    flat = mask.T.ravel()
    ends = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *ends, flat.size]).tolist()
    return [0, *lengths] if flat[0] else lengths


def compress(lengths):
    """Returns run lengths in COCO's text form."""
    text = ""
    for at, length in enumerate(lengths):
        value = length - lengths[at - 2] if at > 2 else length
        more = True
        while more:
            digit = value & 0x1F
            value >>= 5
            more = value != (-1 if digit & 0x10 else 0)
            text += chr(48 + (digit | (0x20 if more else 0)))
    return text


def segmentation(mask, mask_format):
    lengths = run_lengths(mask)
    counts = compress(lengths) if mask_format == "text" else lengths
    return {"size": list(mask.shape), "counts": counts}


class Scenes:
    """Images, a map of their objects, and box, label and mask of each object."""

    def __init__(
        self, count, mask_format="dense", encode=None, size=(HEIGHT, WIDTH), seed=0
    ):
        self.rng = np.random.default_rng(seed)
        self.mask_format, self.encode, self.size = mask_format, encode, size
        self.made = [self.scene(index) for index in range(count)]

    def scene(self, index):
        size = self.size
        if size is None:
            size = tuple(int(side) for side in self.rng.integers(24, 60, 2))
        objects = blobs(self.rng, size, index % OBJECTS)
        labels = np.unique(objects[objects > 0]).astype(np.int64)
        masks = [(objects == label).astype(np.uint8) for label in labels]
        boxes = np.array([box_of(mask) for mask in masks], np.float32).reshape(-1, 4)
        image = np.stack([objects * 20, objects, 255 - objects], 2)
        return image, objects, boxes, labels, masks

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        image, objects, boxes, labels, masks = self.made[index]
        if self.mask_format == "dense":
            masks = np.array(masks, np.uint8).reshape(-1)
        else:
            masks = json.dumps([segmentation(mask, self.mask_format) for mask in masks])
        if self.encode is not None:
            image, objects = self.encode(image, index), self.encode(objects, index)
        return {
            "image": image,
            "mask": objects,
            "boxes": boxes,
            "labels": labels,
            "masks": masks,
        }


def pipeline_of(scenes, **options):
    ragged = sources.Field(kind="ragged")
    fields = {
        "image": sources.Field(),
        "mask": sources.Field(kind="mask"),
        "boxes": ragged,
        "labels": ragged,
        "masks": ragged
        if scenes.mask_format == "dense"
        else sources.Field(kind="text"),
    }
    source = sources.Items(scenes, fields=fields)
    sizes = {"min_size": 0, "min_area": 0, **options}
    pipeline = infeed.Pipeline(source)
    return pipeline.boxes(columns=("labels",), masks="masks", **sizes)


CHAINS = {
    "crop": (T.RandomCrop(30), T.RandomHorizontalFlip(), T.RandomVerticalFlip()),
    "resized crop": (T.RandomResizedCrop((32, 24)), T.RandomHorizontalFlip()),
    "choice": (T.RandomChoice([T.RandomSizedCrop(32, (9, 30)), T.Resize((32, 32))]),),
    "pad": (T.Pad((3, 1, 0, 7), mask_fill=0), T.Resize((50, 30)), T.CenterCrop(28)),
    "zoom out": (T.RandomZoomOut(fill=9), T.Resize((36, 44))),
    "affine": (T.RandomAffine(40, translate=(0.2, 0.2), scale=(0.6, 1.4), shear=10),),
    "rotation": (T.RandomRotation(180), T.RandomHorizontalFlip()),
    "perspective": (T.RandomPerspective(0.6, p=1.0), T.CenterCrop(32)),
    "elastic": (T.ElasticTransform(100, sigma=2), T.RandomHorizontalFlip()),
    "iou crop": (T.RandomIoUCrop(), T.Resize((32, 32))),
    "augment": (T.RandAugment(3), T.TrivialAugmentWide()),
    "mosaic": (T.Mosaic((64, 96), p=0.8), T.RandomAffine(10), T.CenterCrop(48)),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("mask_format", ["dense", "text", "numbers"])
def test_masks_are_the_pixels_of_the_mask_field_with_their_number(chain, mask_format):
    scenes = Scenes(60, mask_format, png if mask_format == "text" else None)
    pipeline = pipeline_of(scenes).shuffle(1).decode()
    pipeline = pipeline.transform(SAME_SIZE, *CHAINS[chain])
    seen = pixels = 0
    with pipeline.batch(8).open(workers=2) as loader:
        for batch in loader:
            lists = zip(rows(batch, "masks"), rows(batch, "labels"), strict=True)
            for objects, (masks, labels) in zip(batch["mask"], lists, strict=True):
                assert masks.dtype == np.uint8
                assert masks.shape == (len(labels), *objects.shape)
                # A mosaic has objects of one number from several images.
                for label in np.unique(labels):
                    of_label = masks[labels == label].max(0)
                    np.testing.assert_array_equal(of_label, objects == label)
                seen += len(labels)
                pixels += int(masks.sum())
    assert seen > 100
    assert pixels > 10_000


def test_a_dropped_box_drops_its_mask():
    pipeline = pipeline_of(Scenes(44), min_size=3, min_visibility=0.4)
    pipeline = pipeline.transform(T.RandomCrop(20)).batch(4)
    kept = total = 0
    with pipeline.open(workers=2) as loader:
        for batch in loader:
            boxes, masks = rows(batch, "boxes"), rows(batch, "masks")
            for own, of, objects in zip(boxes, masks, batch["mask"], strict=True):
                assert len(own) == len(of)
                kept += len(own)
                total += len(np.unique(objects[objects > 0]))
                for (x1, y1, x2, y2), mask in zip(own, of, strict=True):
                    y, x = np.nonzero(mask)
                    assert not len(x) or (x1 <= x.min() and x.max() < x2)
                    assert not len(y) or (y1 <= y.min() and y.max() < y2)
    assert 20 < kept < total


def test_batches_hold_masks_with_offsets_or_padded():
    scenes = Scenes(8)
    flat = next(iter(pipeline_of(scenes).batch(8)))
    padded = next(iter(pipeline_of(scenes).batch(8, ragged="pad")))
    most = max(len(labels) for _, _, _, labels, _ in scenes.made)
    assert padded["masks"].shape == (8, most, HEIGHT, WIDTH)
    assert "masks_count" not in padded
    for own, of, count in zip(
        rows(flat, "masks"), padded["masks"], padded["boxes_count"], strict=True
    ):
        np.testing.assert_array_equal(of[:count], own)
        assert not of[count:].any()

    varied = Scenes(8, "numbers", png, size=None)
    batch = next(iter(pipeline_of(varied).decode().batch(8, pad=True)))
    height, width = batch["image"].shape[1:3]
    assert batch["masks"].shape == (8, most, height, width)
    for found, (_, objects, _, _, masks) in zip(
        batch["masks"], varied.made, strict=True
    ):
        y, x = objects.shape
        for mask, own in itertools.zip_longest(found, masks, fillvalue=0):
            np.testing.assert_array_equal(mask[:y, :x], own)
            assert not mask[y:].any()
            assert not mask[:, x:].any()


def test_functions_and_previews_get_an_array_of_masks():
    def largest(sample):
        areas = sample["masks"].sum((1, 2))
        order = np.argsort(-areas)[:2]
        chosen = {name: sample[name][order] for name in ("boxes", "labels", "masks")}
        return {**sample, **chosen}

    pipeline = pipeline_of(Scenes(16), min_area=9).transform(T.RandomCrop(32))
    with pipeline.python(largest).batch(16).open(workers=1) as loader:
        (batch,) = loader
    with pipeline.batch(16).open(workers=1) as loader:
        (whole,) = loader
    for found, masks in zip(rows(batch, "masks"), rows(whole, "masks"), strict=True):
        areas = np.sort(masks.sum((1, 2)))[::-1][:2]
        np.testing.assert_array_equal(found.sum((1, 2)), areas)

    last = pipeline.preview(9).stages[-1]
    np.testing.assert_array_equal(last.fields["masks"], rows(whole, "masks")[9])


def exif(image, orientation):
    """Returns a lossless file of this orientation whose stored pixels are ``image``."""
    data = Image.Exif()
    data[0x0112] = orientation
    out = io.BytesIO()
    Image.fromarray(image).save(out, "png", exif=data)
    return out.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("orient", [True, False])
def test_masks_turn_with_the_stored_pixels(orientation, orient):
    scenes = Scenes(12, "text", lambda image, _: exif(image, orientation))
    pipeline = pipeline_of(scenes).decode(orient=orient)
    with pipeline.transform(T.RandomCrop(30)).batch(12).open(workers=1) as loader:
        (batch,) = loader
    for objects, masks, labels in zip(
        batch["image"][..., 1], rows(batch, "masks"), rows(batch, "labels"), strict=True
    ):
        for label, mask in zip(labels, masks, strict=True):
            np.testing.assert_array_equal(mask, objects == label)


def test_the_number_of_workers_the_cache_and_a_resumed_run_change_no_bit(coco):
    pipeline = coco().shuffle(3).decode()
    pipeline = pipeline.transform(T.Resize((36, 50)), T.RandomAffine(20)).batch(2)

    def mask_rows(**options):
        with pipeline.open(**options) as loader:
            return [rows(batch, "masks") for _ in range(2) for batch in loader]

    first = mask_rows(workers=1)
    for options in ({"workers": 3}, {"workers": 2, "cache": "64MiB"}):
        for own, other in zip(first, mask_rows(**options), strict=True):
            for a, b in zip(own, other, strict=True):
                np.testing.assert_array_equal(a, b)
    with pipeline.open(workers=2) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with pipeline.open(workers=2) as loader:
        loader.load_state_dict(state)
        resumed = next(iter(loader))
    for a, b in zip(first[3], rows(resumed, "masks"), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "steps",
    [
        (T.CopyPaste(), T.RandomCrop(32)),
        (T.Resize((36, 50)), T.CopyPaste(), T.RandomAffine(20)),
        (T.Resize((36, 50)), T.Mosaic(64), T.RandomAffine(20), T.CenterCrop(32)),
    ],
)
def test_samples_of_several_records_are_the_same_from_a_cache(coco, tmp_path, steps):
    pipeline = coco().shuffle(3).decode().transform(*steps).batch(3)

    def read_masks(cache=None):
        found = []
        with pipeline.open(workers=2, cache=cache) as loader:
            # Up to 24 batches are read before the first one is made.
            for _ in range(12):
                for batch in loader:
                    found.append(batch["image"].copy())
                    found.extend(rows(batch, "masks") + rows(batch, "boxes"))
            return found, loader.stats()["cache"]

    expected, _ = read_masks()
    folder = infeed.Cache(memory=None, disk=tmp_path / "cache", limit="64MiB")
    # A run fills a folder for later runs.
    for cache, has_hits in (("64MiB", True), (folder, False), (folder, True)):
        found, counts = read_masks(cache)
        assert (counts["hits"] > 0) == has_hits
        for own, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(own, other)


@pytest.fixture
def coco(tmp_path):
    """Writes images and annotations; returns a function that opens them."""
    scenes = Scenes(9, seed=5)
    images = [
        {"id": index, "file_name": f"{index}.png", "height": HEIGHT, "width": WIDTH}
        for index in range(len(scenes))
    ]
    mask_formats = itertools.cycle(["text", "numbers"])
    annotations = [
        {
            "id": len(scenes) * number + index,
            "image_id": index,
            "category_id": int(label),
            "bbox": [float(v) for v in (x1, y1, x2 - x1, y2 - y1)],
            "segmentation": segmentation(mask, next(mask_formats)),
            "iscrowd": 1,
        }
        for index, (_, _, boxes, labels, masks) in enumerate(scenes.made)
        for number, (label, (x1, y1, x2, y2), mask) in enumerate(
            zip(labels, boxes, masks, strict=True)
        )
    ]
    categories = [{"id": n, "name": str(n)} for n in range(1, OBJECTS)]
    for index, (image, *_) in enumerate(scenes.made):
        Image.fromarray(image).save(tmp_path / f"{index}.png")

    def open_scenes(change=lambda annotations: None, **options):
        change(annotations)
        described = {
            "images": images,
            "annotations": annotations,
            "categories": categories,
        }
        (tmp_path / "instances.json").write_text(json.dumps(described))
        source = sources.Coco(
            str(tmp_path), str(tmp_path / "instances.json"), masks=True, **options
        )
        return infeed.Pipeline(source)

    open_scenes.scenes = scenes
    return open_scenes


def test_coco_reads_masks_next_to_its_boxes(coco):
    pipeline = (
        coco().decode().transform(SAME_SIZE, T.RandomHorizontalFlip(1.0)).batch(9)
    )
    assert "masks: moved with the image" in pipeline.explain()
    with pipeline.open(workers=2) as loader:
        (batch,) = loader
    for found, labels, boxes, (_, objects, *_) in zip(
        rows(batch, "masks"),
        rows(batch, "labels"),
        rows(batch, "boxes"),
        coco.scenes.made,
        strict=True,
    ):
        for label, mask, box in zip(labels, found, boxes, strict=True):
            np.testing.assert_array_equal(mask, objects[:, ::-1] == label)
            assert tuple(box) == box_of(mask)
    text = next(iter(coco().batch(9)))["masks"]
    assert [len(json.loads(of)) for of in text] == [
        len(labels) for _, _, _, labels, _ in coco.scenes.made
    ]
    # Other conditions keep the masks.
    strict = coco().decode().boxes(columns=("labels",), min_visibility=1)
    strict = strict.transform(SAME_SIZE).batch(9)
    assert next(iter(strict))["masks"][0].shape == batch["masks"][0].shape


@pytest.fixture
def panoptic(tmp_path):
    """Writes images with a segment everywhere, and opens them after a change."""
    scenes = Scenes(6, seed=8)
    (tmp_path / "segments").mkdir()
    images, annotations, made = [], [], []
    for index, (image, objects, *_) in enumerate(scenes.made):
        # Object 0 is the background, which is a segment too.
        numbers = 1000 + objects.astype(np.uint32) * 77_777
        pixels = np.stack([numbers >> shift & 255 for shift in (0, 8, 16)], -1)
        Image.fromarray(image).save(tmp_path / f"{index}.png")
        Image.fromarray(pixels.astype(np.uint8)).save(
            tmp_path / "segments" / f"{index}.png"
        )
        height, width = objects.shape
        entry = {"id": 5 * index, "file_name": f"{index}.png"}
        images.append(entry | {"height": height, "width": width})
        segments = []
        for label in np.unique(objects):
            x1, y1, x2, y2 = (float(v) for v in box_of(objects == label))
            segments.append(
                {
                    "id": 1000 + int(label) * 77_777,
                    "category_id": int(label),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": int((objects == label).sum()),
                    "iscrowd": 0,
                }
            )
        annotations.append(
            {
                "image_id": 5 * index,
                "file_name": f"{index}.png",
                "segments_info": segments,
            }
        )
        made.append(objects)
    categories = [{"id": n, "name": str(n), "isthing": n > 0} for n in range(OBJECTS)]

    def open_objects(change=lambda annotations: None):
        change(annotations)
        described = {
            "images": images,
            "annotations": annotations,
            "categories": categories,
        }
        (tmp_path / "panoptic.json").write_text(json.dumps(described))
        source = sources.Coco(
            tmp_path, tmp_path / "panoptic.json", panoptic=tmp_path / "segments"
        )
        return infeed.Pipeline(source).decode()

    open_objects.made = made
    return open_objects


def test_panoptic_segments_have_boxes_labels_and_masks_that_move(panoptic, tmp_path):
    pipeline = panoptic().transform(SAME_SIZE, T.RandomHorizontalFlip(1.0)).batch(6)
    pipeline.save(tmp_path / "pipeline.toml")
    for opened in (pipeline, infeed.Pipeline.load(tmp_path / "pipeline.toml")):
        with opened.open(workers=2) as loader:
            (batch,) = loader
        np.testing.assert_array_equal(batch["image_id"], 5 * np.arange(6))
        for found, labels, boxes, objects in zip(
            rows(batch, "masks"),
            rows(batch, "labels"),
            rows(batch, "boxes"),
            panoptic.made,
            strict=True,
        ):
            assert sorted(labels) == list(np.unique(objects))
            for label, mask, box in zip(labels, found, boxes, strict=True):
                np.testing.assert_array_equal(mask, objects[:, ::-1] == label)
                assert tuple(box) == box_of(mask)
            # Each pixel belongs to one segment.
            np.testing.assert_array_equal(found.sum(0), 1)


def test_a_png_with_other_segments_is_a_bad_record(panoptic):
    def other(annotations):
        annotations[2]["segments_info"][0]["id"] += 1

    pipeline = panoptic(other).transform(SAME_SIZE).batch(6)
    with pytest.raises(
        infeed.errors.DamagedError,
        match=r"segments/2\.png has pixels of segment 1000, which",
    ):
        next(iter(pipeline))
    with pipeline.open(on_error="skip") as loader:
        assert len(next(iter(loader))["image_id"]) == 5
    source = sources.Coco("a", "b", keypoints=3, panoptic="c")
    with pytest.raises(infeed.errors.ConfigError, match="leave out one of them"):
        infeed.Pipeline(source).open()


def test_the_outlines_of_labelme_are_masks(tmp_path):
    shapes = [
        {"label": "b", "points": [[1, 1], [5, 1], [1, 5]], "shape_type": "polygon"},
        {"label": "a", "points": [[20, 30], [10, 8]], "shape_type": "rectangle"},
    ]
    for name in ("one", "two"):
        Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / f"{name}.png")
    (tmp_path / "two.json").write_text(json.dumps({"shapes": shapes}))
    source = sources.LabelMe(tmp_path, masks=True)
    pipeline = infeed.Pipeline(source).decode()
    pipeline = pipeline.transform(SAME_SIZE, T.RandomVerticalFlip(1.0)).batch(2)
    pipeline.save(tmp_path / "pipeline.toml")

    for opened in (pipeline, infeed.Pipeline.load(tmp_path / "pipeline.toml")):
        (batch,) = opened
        assert [len(of) for of in rows(batch, "labels")] == [0, 2]
        assert rows(batch, "labels")[1].tolist() == [1, 0]
        triangle, rectangle = rows(batch, "masks")[1][:, ::-1]
        assert triangle[1:4, 1:4].tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
        assert rectangle[8:30, 10:20].all()
        assert rectangle.sum() == 22 * 10
        assert rows(batch, "boxes")[1][1].tolist() == [10, HEIGHT - 30, 20, HEIGHT - 8]
    with pytest.raises(infeed.errors.ConfigError, match="set classes="):
        infeed.Pipeline(sources.LabelMe(tmp_path, classes=("a",))).open()


def test_coco_fills_polygons_as_pycocotools(coco):
    def outline(annotations):
        # A triangle, and another object part to its right.
        annotations[0]["segmentation"] = [[1, 1, 5, 1, 1, 5], [50.5, 2, 53, 2, 53, 4.5]]

    batch = next(iter(coco(outline).decode().transform(SAME_SIZE).batch(9)))
    mask = rows(batch, "masks")[1][0]
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[1:4, 1:4] = [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(mask[:, :40], expected[:, :40])
    assert mask[2:5, 50:53].sum() == mask[:, 40:].sum() > 0


def test_wrong_masks_name_the_annotation_or_the_record_and_the_fix(coco):
    def wrong(change):
        with pytest.raises(infeed.errors.ConfigError) as caught:
            coco(change).decode().batch(9, pad=True).open()
        return str(caught.value)

    def cut(annotations):
        annotations[3]["segmentation"] = [[1, 2, 3, 4]]

    def missing(annotations):
        del annotations[3]["segmentation"]

    def other_size(annotations):
        annotations[3]["segmentation"] = {"size": [4, 6], "counts": [24]}

    assert "has 4 numbers in polygon 0" in wrong(cut)
    assert "has no segmentation; add it" in wrong(missing)
    with pytest.raises(
        infeed.errors.DecodeError, match=r"is for an image of 6x4 px"
    ) as caught:
        list(coco(other_size).decode().batch(9, pad=True))
    assert ".png" in str(caught.value)
    assert "mask 0 of `masks`" in str(caught.value)

    def check_failure(masks, match):
        image = np.zeros((1, 8, 8, 3), np.uint8)
        source = sources.Memory(image=image, boxes=np.ones((1, 1, 4)), masks=masks)
        pipeline = infeed.Pipeline(source).boxes(masks="masks", min_size=0, min_area=0)
        with pytest.raises(infeed.InfeedError, match=match):
            list(pipeline.batch(1))

    check_failure(["[]"], "has 0 masks, but there are 1 boxes; give each box one mask")
    check_failure(["{"], "no JSON list of segmentations")
    check_failure([b"\xff"], "no JSON list of segmentations")
    check_failure(
        np.zeros((1, 1, 8, 9), np.uint8), "72 numbers, which are no masks of 1 boxes"
    )
    check_failure(
        np.zeros((1, 8, 8), np.float32), "`masks` cannot hold masks; use a text"
    )
    check_failure(np.zeros((1, 64), np.uint8), "`masks` cannot hold masks; use a text")


def test_masks_that_are_declared_twice_or_do_not_exist_are_errors():
    def message(**options):
        source = sources.Memory(
            image=np.zeros((1, 8, 8, 3), np.uint8), boxes=np.ones((1, 1, 4))
        )
        pipeline = infeed.Pipeline(source).boxes(**options)
        with pytest.raises(infeed.errors.ConfigError) as caught:
            pipeline.batch(1).open()
        return str(caught.value)

    assert "no field `masks`; use one of" in message(masks="masks")
    assert "declared twice" in message(masks="boxes")
    with pytest.raises(infeed.errors.ConfigError, match="masks"):
        infeed.Pipeline(sources.Folder("x")).boxes(masks=3)


def test_a_text_of_masks_needs_no_more_memory_than_allowed():
    image = np.zeros((1, 2000, 2000, 3), np.uint8)
    count = 2000
    mask = {"size": [2000, 2000], "counts": [0, 4_000_000]}
    boxes = np.tile(np.float32([0, 0, 9, 9]), (1, count, 1))
    source = sources.Memory(
        image=image, boxes=boxes, masks=[json.dumps([mask] * count)]
    )
    pipeline = infeed.Pipeline(source).boxes(masks="masks").batch(1)
    with (
        pytest.raises(infeed.InfeedError, match=r"needs 80\d+ bytes"),
        pipeline.open(workers=1, memory="256MiB") as loader,
    ):
        next(iter(loader))


def test_previews_have_the_objects_and_draw_them():
    pipeline = pipeline_of(Scenes(12)).transform(T.RandomCrop(30))
    for position in (5, 9):
        shown = pipeline.preview(position)
        masks = shown[-1].fields["masks"]
        for stage in shown:
            assert stage.objects.shape == stage.fields["image"].shape[:2]
        objects = shown[-1].objects
        assert set(np.unique(objects)) <= set(range(len(masks) + 1))
        for number, mask in enumerate(masks, start=1):
            np.testing.assert_array_equal(objects == number, mask)
        drawn = drawn_image(shown)
        plain = shown[-1].fields["image"]
        outside = objects == 0
        for x1, y1, x2, y2 in shown[-1].boxes.astype(int):
            outside[y1:y2, x1:x2] = False
        np.testing.assert_array_equal(drawn[outside], plain[outside])
        inside = objects > 0
        assert inside.any()
        assert (drawn[inside] != plain[inside]).any(1).mean() > 0.9


def test_previews_draw_points():
    image = np.zeros((1, 20, 30, 3), np.uint8)
    at = np.float32([[[4, 5, 2], [9, 9, 0], [12, 8, 1]]])
    pipeline = infeed.Pipeline(sources.Memory(image=image, at=at)).points("at")
    shown = pipeline.transform(T.RandomHorizontalFlip(1.0)).preview(0)
    assert shown[-1].points.tolist() == [[25, 5], [17, 8]]
    assert shown[-1].objects is None
    drawn = drawn_image(shown)
    marked = np.zeros((20, 30), bool)
    marked[4:7, 24:27] = marked[7:10, 16:19] = True
    np.testing.assert_array_equal((drawn == (255, 0, 0)).all(2), marked)


def drawn_image(shown):
    """Returns the image of the last stage as a notebook shows it."""
    last = shown._repr_html_().split("<b>output</b>")[1]
    data = re.search(r"base64,([^\"]+)", last).group(1)
    return np.array(Image.open(io.BytesIO(base64.b64decode(data))))
