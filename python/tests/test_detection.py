"""Boxes move with the pixels of their image, and their columns stay aligned."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import (
    COLOURS,
    HEIGHT,
    STEPS,
    WIDTH,
    Scenes,
    convert_boxes,
    extent,
    png,
    rows,
)

LISTS = {
    "image": sources.Field(),
    "boxes": sources.Field(kind="ragged"),
    "labels": sources.Field(kind="ragged"),
}


def corners(boxes, box_format, normalized, size):
    """Returns left, top, right and bottom of boxes in a format."""
    height, width = size if normalized else (1, 1)
    a, b, c, d = (boxes * np.array([width, height, width, height], np.float32)).T
    columns = {
        "xyxy": (a, b, c, d),
        "xywh": (a, b, a + c, b + d),
        "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
    }[box_format]
    return np.stack(columns, 1)


def detection(dataset, **options):
    source = sources.Items(dataset, fields=LISTS)
    return infeed.Pipeline(source).boxes("boxes", columns=("labels",), **options)


def one_image(boxes, size=(HEIGHT, WIDTH), **fields):
    image = np.zeros((1, *size, 3), np.uint8)
    boxes = np.array(boxes, np.float32).reshape(1, -1, 4)
    return sources.Memory(image=image, boxes=boxes, **fields)


def move_boxes(boxes, *steps, size=(HEIGHT, WIDTH), **options):
    pipeline = infeed.Pipeline(one_image(boxes, size)).boxes(**options)
    with pipeline.transform(*steps).open(workers=1) as loader:
        (batch,) = loader
        return batch["boxes"][0]


# Box of 10..30 x 8..20 in 60 x 40, by the formulas of torchvision v2.
BOX = (10, 8, 30, 20)
FORMULAS = [
    (T.RandomHorizontalFlip(1.0), (60 - 30, 8, 60 - 10, 20)),
    (T.RandomVerticalFlip(1.0), (10, 40 - 20, 30, 40 - 8)),
    (T.Resize((20, 90)), (10 * 1.5, 8 * 0.5, 30 * 1.5, 20 * 0.5)),
    (T.Resize(20), (5, 4, 15, 10)),
    (T.Crop(20, 15, at=(10, 12)), (0, 0, 15, 10)),
    (T.CenterCrop((20, 30)), (0, 0, 15, 10)),
    (T.CenterCrop((60, 60)), (10, 18, 30, 30)),
    (T.Pad((1, 2, 3, 4)), (11, 10, 31, 22)),
    (T.CropOrPad(60, 40), (0, 18, 20, 30)),
    (T.ColorJitter(0.5), BOX),
]


@pytest.mark.parametrize(("step", "expected"), FORMULAS, ids=lambda x: repr(x))
def test_a_transform_moves_a_box_as_torchvision_does(step, expected):
    np.testing.assert_allclose(move_boxes([BOX], step), [expected], atol=1e-4)


@pytest.mark.parametrize("box_format", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("normalized", [False, True])
def test_formats_and_units_are_those_of_the_source(box_format, normalized):
    given = convert_boxes([BOX], box_format, normalized, (HEIGHT, WIDTH))
    steps = T.RandomHorizontalFlip(1.0), T.Crop(30, 45, at="top_left")

    found = move_boxes(given, *steps, format=box_format, normalized=normalized)

    expected = convert_boxes([(30, 8, 45, 20)], box_format, normalized, (30, 45))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_small_boxes_are_dropped_with_their_columns():
    boxes = [(0, 0, 30, 20), (25, 0, 45, 20), (29.5, 0, 60, 40), (40, 0, 60, 40)]
    area = np.array([[600, 400, 1220, 800]], np.float64)
    pair = np.arange(8).reshape(1, 4, 2)
    source = one_image(boxes, labels=np.array([[1, 2, 3, 4]]), size_of=area, pair=pair)
    crop = T.Crop(40, 30, at="top_left")

    def kept_numbers(**options):
        columns = ("labels", "size_of", "pair")
        pipeline = infeed.Pipeline(source).boxes(columns=columns, **options)
        with pipeline.transform(crop, keep=("pair",)).open(workers=1) as loader:
            (batch,) = loader
            np.testing.assert_array_equal(
                batch["pair"][0], pair[0][batch["labels"][0] - 1]
            )
            np.testing.assert_array_equal(
                batch["size_of"][0], area[0][batch["labels"][0] - 1]
            )
            assert batch["boxes"][0].dtype == np.float32
            assert len(batch["boxes"][0]) == len(batch["labels"][0])
            return batch["labels"][0].tolist()

    assert kept_numbers() == [1, 2]
    assert kept_numbers(min_size=0, min_area=0) == [1, 2, 3]
    assert kept_numbers(min_size=10) == [1]
    assert kept_numbers(min_area=101) == [1]
    assert kept_numbers(min_visibility=0.25) == [1, 2]
    assert kept_numbers(min_visibility=0.26) == [1]


def test_boxes_are_clipped_without_any_transform():
    boxes = [(-5, 4, 100, 20), (70, 0, 90, 20)]

    np.testing.assert_array_equal(move_boxes(boxes), [(0, 4, 60, 20)])


def encode_turned(image, index):
    """A file whose stored pixels are `image`, with one of the eight orientations."""
    data = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 1 + index % 8
    Image.fromarray(image).save(data, "png", exif=exif)
    return data.getvalue()


NEAREST = {"interpolation": "nearest"}
EXACT = [
    [T.RandomCrop((24, 30)), T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    [T.RandomHorizontalFlip(), T.RandomCrop(40, padding=7, pad_if_needed=True)],
    [T.CropOrPad(48, 33), T.RandomVerticalFlip(), T.Pad(3), T.CenterCrop((30, 50))],
    [T.Resize((HEIGHT * 2, WIDTH * 2), **NEAREST), T.RandomCrop((50, 70))],
]
SERIES = (T.RandomHorizontalFlip(), T.RandomSizedCrop((48, 64), (30, 60), **NEAREST))
RESAMPLED = [
    [T.RandomResizedCrop((48, 64), scale=(0.4, 1.0), **NEAREST)],
    [T.RandomChoice([T.Resize((48, 64), **NEAREST), T.RandomApply(SERIES, p=1.0)])],
    [
        T.RandomHorizontalFlip(),
        T.RandomResizedCrop(50, scale=(0.5, 1.0), **NEAREST),
        T.RandomVerticalFlip(),
        T.RandomCrop(40),
    ],
]


@pytest.mark.parametrize("encode", [None, png, encode_turned])
@pytest.mark.parametrize(
    ("box_format", "normalized"), [("xyxy", False), ("xywh", False), ("cxcywh", True)]
)
def test_boxes_are_the_extents_of_their_pixels(encode, box_format, normalized):
    dataset = Scenes(48, 1, encode, box_format, normalized)
    compared = 0
    for steps in EXACT + RESAMPLED:
        # A box of one pixel in float32 shares may be slightly smaller.
        options = {"format": box_format, "normalized": normalized}
        pipeline = detection(dataset, min_size=0.9, min_area=0.9, **options).shuffle(3)
        pipeline = pipeline.decode(orient=encode is encode_turned)
        # Turned images differ in size.
        last = [] if encode is not encode_turned else [T.CropOrPad(80, 80)]
        exact = steps in EXACT and not (encode is encode_turned and steps == EXACT[-1])
        tolerance = 1e-3 if exact else 1.01
        with pipeline.transform(*steps, *last).batch(8).open(workers=2) as loader:
            for batch in loader:
                lists = zip(rows(batch, "boxes"), rows(batch, "labels"), strict=True)
                for image, (boxes, labels) in zip(batch["image"], lists, strict=True):
                    found = corners(boxes, box_format, normalized, image.shape[:2])
                    for box, label in zip(found, labels, strict=True):
                        pixels = extent(image, label)
                        if pixels is None:
                            assert not exact
                            assert min(box[2] - box[0], box[3] - box[1]) < 2
                            continue
                        np.testing.assert_allclose(pixels, box, atol=tolerance)
                        compared += 1
                    if exact:
                        seen = {n for n in range(1, 6) if extent(image, n) is not None}
                        assert seen == set(labels.tolist())
    assert compared > 300


def test_boxes_of_the_shown_image_do_not_turn():
    dataset = Scenes(8, 1, encode_turned)

    def boxes(**options):
        pipeline = detection(dataset, **options).decode(orient=True).batch(8, pad=True)
        with pipeline.open(workers=1) as loader:
            (batch,) = loader
            return rows(batch, "boxes")

    shown, stored = boxes(oriented=True), boxes()
    for index, (found, other) in enumerate(zip(shown, stored, strict=True)):
        _, given, _ = dataset.made[index]
        if 1 + index % 8 < 5:
            np.testing.assert_array_equal(found, given)
        assert index in (0, 6) or not np.array_equal(found, other)


def turned_yolo(root, orientation):
    """A YOLO dataset of an image, with the box of its red pixels as viewers show it."""
    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    shown = np.zeros((100, 40, 3), np.uint8)
    shown[10:50, 4:20] = COLOURS[1]
    undo = {3: 2, 6: 1, 8: 3}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(np.rot90(shown, undo))
    Image.fromarray(stored).save(root / "images/photo.png", exif=exif)
    (root / "labels/photo.txt").write_text("0 0.3 0.3 0.4 0.4\n")
    return sources.Yolo(str(root / "images"))


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_boxes_of_a_source_refer_to_the_image_as_viewers_show_it(tmp_path, orientation):
    pipeline = infeed.Pipeline(turned_yolo(tmp_path, orientation))
    declared = pipeline.boxes(
        format="cxcywh", normalized=True, columns=("labels",), min_size=2
    )
    for each in [pipeline, declared]:
        with each.decode(orient=True).open(workers=1) as loader:
            (batch,) = loader
            box = corners(rows(batch, "boxes")[0], "cxcywh", True, (100, 40))[0]
            np.testing.assert_allclose(box, extent(batch["image"][0], 1), atol=1e-4)


def test_boxes_next_to_a_turned_image_warn_when_a_loader_opens(tmp_path, caplog):
    pipeline = infeed.Pipeline(turned_yolo(tmp_path, 6))

    with pipeline.decode(orient=True).open(workers=1):
        assert "orientation" not in caplog.text
    with pipeline.decode().open(workers=1):
        pass

    assert "1 of 1 sampled images has an EXIF orientation" in caplog.text
    assert "photo.png" in caplog.text
    assert ".decode(orient=True)" in caplog.text


def test_masks_and_boxes_share_the_draw():
    rng = np.random.default_rng(0)
    count = 12
    masks = np.zeros((count, HEIGHT, WIDTH), np.uint8)
    lefts = rng.integers(0, 40, count)
    for mask, left in zip(masks, lefts, strict=True):
        mask[10:30, left : left + 15] = 1
    boxes = np.stack([lefts, lefts * 0 + 10, lefts + 15, lefts * 0 + 30], 1)
    images = np.zeros((count, HEIGHT, WIDTH, 3), np.uint8)
    source = sources.Memory(image=images, mask=masks, box=boxes.astype(np.int32))
    steps = T.RandomCrop(32), T.RandomHorizontalFlip()
    pipeline = infeed.Pipeline(source).boxes("box").transform(*steps).batch(count)

    with pipeline.open(workers=1) as loader:
        (batch,) = loader

    for mask, found in zip(batch["mask"], rows(batch, "box"), strict=True):
        ys, xs = np.nonzero(mask)
        expected = [] if len(ys) == 0 else [[xs.min(), 10, xs.max() + 1, 30]]
        (top,) = {ys.min()} if len(ys) else {0}
        for box in expected:
            box[1], box[3] = top, ys.max() + 1
        np.testing.assert_array_equal(found, np.reshape(expected, (-1, 4)))


MOSAIC = (T.RandomHorizontalFlip(), T.Mosaic((80, 120), p=0.8), T.RandomCrop((60, 90)))
either = pytest.mark.parametrize("steps", [STEPS, MOSAIC], ids=["crop", "mosaic"])


@pytest.mark.parametrize("encode", [None, png])
@pytest.mark.parametrize(
    ("box_format", "normalized"), [("xyxy", False), ("xywh", False), ("cxcywh", True)]
)
def test_a_mosaic_has_the_boxes_of_its_images(encode, box_format, normalized):
    dataset = Scenes(24, 1, encode, box_format, normalized)
    options = {"format": box_format, "normalized": normalized}
    pipeline = detection(dataset, min_size=0.5, min_area=0.5, **options).decode()
    pipeline = pipeline.shuffle(3).transform(*MOSAIC).batch(8)
    most = 0
    with pipeline.open(workers=2) as loader:
        for batch in loader:
            lists = zip(rows(batch, "boxes"), rows(batch, "labels"), strict=True)
            for image, (boxes, labels) in zip(batch["image"], lists, strict=True):
                found = corners(boxes, box_format, normalized, image.shape[:2])
                np.testing.assert_allclose(found, found.round(), atol=1e-3)
                covered = np.zeros(len(COLOURS), np.int64)
                for box, label in zip(found.round().astype(int), labels, strict=True):
                    x1, y1, x2, y2 = box
                    assert (image[y1:y2, x1:x2] == COLOURS[label]).all()
                    covered[label] += (y2 - y1) * (x2 - x1)
                for label in range(1, len(COLOURS)):
                    pixels = (image == COLOURS[label]).all(axis=-1).sum()
                    assert pixels == covered[label]
                most = max(most, len(boxes))
    assert most > 6


def test_a_crop_around_boxes_sees_those_of_all_images():
    steps = T.Mosaic((80, 120)), T.RandomIoUCrop(), T.Resize((40, 60))
    pipeline = detection(Scenes(12)).shuffle(2).transform(*steps).batch(12)

    with pipeline.open(workers=2) as loader:
        (batch,) = loader

    for position in range(12):
        shown = pipeline.preview(position)["output"].fields
        np.testing.assert_array_equal(shown["boxes"], rows(batch, "boxes")[position])
    assert len(batch["boxes"][0]) > 24


def pad_lists(values, offsets):
    """Pads lists by the definition: zeros after each list."""
    lengths = np.diff(offsets)
    out = np.zeros((len(lengths), lengths.max(), *values.shape[1:]), values.dtype)
    for row, (a, b) in enumerate(itertools.pairwise(offsets)):
        out[row, : b - a] = values[a:b]
    return out, lengths


def test_ragged_fields_are_offsets_or_padded():
    pipeline = detection(Scenes(20)).shuffle(1).transform(*STEPS)

    with pipeline.batch(8).open(workers=2) as loader:
        lists = [{"boxes": b["boxes"], "labels": b["labels"]} for b in loader]
    with pipeline.batch(8, ragged="pad").open(workers=2) as loader:
        assert tuple(next(iter(loader)).keys()) == (
            "image",
            "boxes",
            "labels",
            "boxes_count",
        )
    with pipeline.batch(8, ragged="pad").open(workers=2) as loader:
        arrays = [dict(batch.items()) for batch in loader]

    assert len(lists) == len(arrays) == 3
    for ragged, batch in zip(lists, arrays, strict=True):
        boxes, counts = pad_lists(*ragged["boxes"])
        labels, _ = pad_lists(*ragged["labels"])
        np.testing.assert_array_equal(batch["boxes"], boxes)
        np.testing.assert_array_equal(batch["labels"], labels)
        np.testing.assert_array_equal(batch["boxes_count"], counts)
        assert batch["boxes_count"].dtype == np.int64
    assert pipeline.batch(8).shapes["boxes"].shape == (None, 4)
    assert pipeline.batch(8, ragged="pad").shapes["boxes"].shape == (8, None, None)


def test_other_lists_are_padded_with_a_count_each():
    source = sources.Memory(x=[[1, 2], [], [3]], y=[[1.0], [2.0, 3.0], []])

    with infeed.Pipeline(source).batch(3, ragged="pad").open(workers=1) as loader:
        (batch,) = loader

    np.testing.assert_array_equal(batch["x"], [[1, 2], [0, 0], [3, 0]])
    np.testing.assert_array_equal(batch["x_count"], [2, 0, 1])
    np.testing.assert_array_equal(batch["y"], [[1, 0], [2, 3], [0, 0]])
    np.testing.assert_array_equal(batch["y_count"], [1, 2, 0])


def test_rows_of_padding_have_no_boxes():
    pipeline = detection(Scenes(11)).transform(*STEPS)

    with pipeline.batch(8, ragged="pad", tail="pad").open(workers=1) as loader:
        *_, batch = loader
        assert [*batch.keys()][-1] == "valid"
        np.testing.assert_array_equal(batch["valid"], [True] * 3 + [False] * 5)
        np.testing.assert_array_equal(batch["boxes_count"][3:], 0)
        np.testing.assert_array_equal(batch["boxes"][3:], 0)
    with pipeline.batch(8, tail="pad").open(workers=1) as loader:
        *_, batch = loader
        assert [len(row) for row in rows(batch, "boxes")][3:] == [0] * 5


def only_even(sample):
    even = sample["labels"] % 2 == 0
    return {**sample, "boxes": sample["boxes"][even], "labels": sample["labels"][even]}


def test_a_function_receives_and_returns_boxes():
    pipeline = detection(Scenes(12)).transform(*STEPS)
    shapes = []

    def check_fields(sample):
        shapes.append((sample["boxes"].shape, sample["labels"].shape))
        return only_even(sample)

    with pipeline.batch(12).open(workers=1) as loader:
        (plain,) = loader
    with pipeline.python(check_fields).batch(12).open(workers=1) as loader:
        (batch,) = loader
    with (
        pipeline.python(check_fields).batch(12, ragged="pad").open(workers=1) as loader
    ):
        (arrays,) = loader

    assert all(len(boxes) == 2 and boxes[0] == labels[0] for boxes, labels in shapes)
    for row, (boxes, labels) in enumerate(
        zip(rows(plain, "boxes"), rows(plain, "labels"), strict=True)
    ):
        even = labels % 2 == 0
        np.testing.assert_array_equal(rows(batch, "boxes")[row], boxes[even])
        assert arrays["boxes_count"][row] == even.sum()
        np.testing.assert_array_equal(arrays["boxes"][row][: even.sum()], boxes[even])


def test_a_function_on_batches_receives_offsets():
    pipeline = detection(Scenes(12)).transform(*STEPS)

    def count_boxes(batch):
        return {**batch, "n": np.diff(batch["boxes"][1])}

    with pipeline.python_batch(count_boxes).batch(12).open(workers=1) as loader:
        (batch,) = loader
        assert batch["n"].tolist() == [len(row) for row in rows(batch, "boxes")]
    with pytest.raises(infeed.errors.ConfigError, match='use ragged="offsets"'):
        pipeline.python_batch(count_boxes).batch(12, ragged="pad").open()


def digest(loader):
    return [
        [batch[name].tobytes() for name in ("image", "boxes", "labels", "boxes_count")]
        for batch in loader
    ]


@pytest.fixture(params=[STEPS, MOSAIC], ids=["crop", "mosaic"])
def shuffled_scenes(request):
    steps = request.param
    return detection(Scenes(24)).shuffle(5).transform(*steps).batch(8, ragged="pad")


def test_a_state_in_the_middle_of_an_epoch_continues_with_equal_boxes(shuffled_scenes):
    with shuffled_scenes.open(workers=2) as loader:
        whole = digest(loader)
    with shuffled_scenes.open(workers=3) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with shuffled_scenes.open(workers=1) as loader:
        loader.load_state_dict(state)
        assert digest(loader) == whole[1:]


def test_ranks_deliver_the_rows_of_one_process(shuffled_scenes):
    with shuffled_scenes.open(workers=1) as loader:
        whole = [(batch["boxes"], batch["boxes_count"]) for batch in loader]
    parts = []
    for rank in range(2):
        with shuffled_scenes.open(workers=1, rank=rank, world_size=2) as loader:
            parts.append([(batch["boxes"], batch["boxes_count"]) for batch in loader])

    for step, (_, counts) in enumerate(whole):
        found = [part[step][1] for part in parts]
        np.testing.assert_array_equal(np.concatenate(found), counts)


class DamagedScenes(Scenes):
    """Scenes in which the boxes of one record are wrong."""

    def __init__(self, wrong):
        super().__init__(16)
        self.wrong = wrong

    def __getitem__(self, index):
        item = super().__getitem__(index)
        return {**item, **(self.wrong if index == 7 else {})}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"boxes": [1.0, np.nan, 3.0, 4.0]}, "box 0 of `boxes` is .*not finite"),
        ({"boxes": [1.0, 2.0, np.inf, 4.0]}, "correct the record"),
        ({"boxes": [9.0, 2.0, 3.0, 4.0]}, "negative width or height; .*format"),
        ({"boxes": [1.0, 2.0, 3.0]}, "3 numbers, .*give each box four"),
        ({"labels": [1, 2, 3]}, "`labels` has 3 rows, but `boxes` has 1 boxes"),
    ],
)
@either
def test_wrong_boxes_are_a_bad_record(wrong, message, steps):
    dataset = DamagedScenes({k: np.array(v) for k, v in wrong.items()})
    dataset.made[7] = (dataset.made[7][0], np.float32([BOX]), np.array([1]))
    if "boxes" in wrong:
        dataset.wrong["boxes"] = np.float32(wrong["boxes"])
    pipeline = detection(dataset).shuffle(2).transform(*steps).batch(4, ragged="pad")

    with (
        pipeline.open(workers=1) as loader,
        pytest.raises(infeed.errors.DecodeError, match=message) as caught,
    ):
        list(loader)
    assert "record 7" in str(caught.value)

    with pipeline.open(workers=1, on_error="substitute") as loader:
        first = digest(loader)
        assert {entry.index for entry in loader.bad_records} == {7}
    with pipeline.open(workers=3, on_error="substitute") as loader:
        assert digest(loader) == first


def test_pixels_that_are_declared_as_shares_are_a_bad_record():
    with pytest.raises(infeed.errors.DecodeError, match="set normalized=False"):
        move_boxes([BOX], normalized=True)


def test_wrong_declarations_name_the_fix():
    images = np.zeros((2, HEIGHT, WIDTH, 3), np.uint8)
    boxes = [np.zeros(4), np.zeros(8)]
    source = sources.Memory(
        image=images, boxes=boxes, pose=np.zeros((2, 3)), name=["a", "b"]
    )
    pipeline = infeed.Pipeline(source)

    def message(declared):
        with pytest.raises(infeed.errors.ConfigError) as caught:
            declared.open()
        return str(caught.value)

    assert "no field `box`; use one of" in message(pipeline.boxes("box"))
    assert "an array [n, 4]" in message(pipeline.boxes("pose"))
    assert "`name` cannot be in columns" in message(pipeline.boxes(columns=["name"]))
    assert "declared twice" in message(pipeline.boxes().boxes())
    assert "min_visibility is 2" in message(pipeline.boxes(min_visibility=2))
    assert "min_size is -1" in message(pipeline.boxes(min_size=-1.0))
    mirrored = pipeline.boxes().transform(T.Pad(2, padding_mode="reflect"))
    assert 'padding_mode="constant"' in message(mirrored)
    mixed = pipeline.boxes().transform(T.MixUp(0.2, field="pose"))
    assert "mixes the pixels of two samples" in message(mixed)
    encoded = sources.Memory(image=[b"\xff\xd8\xff", b"\xff\xd8\xff"], boxes=boxes)
    assert "add .decode()" in message(infeed.Pipeline(encoded).boxes())
    alone = sources.Memory(boxes=boxes)
    assert "no image" in message(infeed.Pipeline(alone).boxes())
    counted = sources.Memory(image=images, boxes=boxes, boxes_count=np.arange(2))
    with pytest.raises(infeed.errors.ConfigError, match="adds a field `boxes_count`"):
        infeed.Pipeline(counted).boxes().batch(2, ragged="pad")
    undeclared = pipeline.transform(T.Resize((8, 8)))
    assert '.boxes("boxes", format="xyxy")' in message(undeclared)
    with pytest.raises(infeed.errors.ConfigError, match="format must be one of"):
        pipeline.boxes(format="yxyx")
    with pytest.raises(infeed.errors.ConfigError, match="columns must be a list"):
        pipeline.boxes(columns="labels")
    with pytest.raises(infeed.errors.ConfigError, match="ragged must be"):
        pipeline.batch(2, ragged="lists")


def test_the_declaration_is_part_of_the_description(tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((4, HEIGHT, WIDTH, 3), np.uint8))
    np.save(tmp_path / "boxes.npy", np.float32([[BOX]] * 4))
    source = sources.Memory(
        image=np.load(tmp_path / "image.npy", mmap_mode="r"),
        boxes=np.load(tmp_path / "boxes.npy", mmap_mode="r"),
    )
    pipeline = infeed.Pipeline(source).boxes("boxes", format="xywh", min_visibility=0.1)
    pipeline = pipeline.transform(T.RandomCrop(30)).batch(2, ragged="pad")

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
    assert '.boxes("boxes", format="xywh", min_visibility=0.1)' in repr(pipeline)
    assert '.batch(2, ragged="pad")' in repr(pipeline)
    assert "boxes: moved with the image" in pipeline.explain()
    assert "boxes_count: length of each list" in pipeline.explain()


def test_lists_of_arrays_in_memory_are_ragged():
    boxes = [np.float32([BOX]), np.float32([BOX, BOX]), np.zeros((0, 4), np.float32)]
    images = np.zeros((3, HEIGHT, WIDTH, 3), np.uint8)
    pipeline = infeed.Pipeline(sources.Memory(image=images, boxes=boxes)).boxes()

    with pipeline.transform(T.Resize((20, 30))).batch(3).open(workers=1) as loader:
        (batch,) = loader

    half = np.float32(BOX) / 2
    for row, count in zip(rows(batch, "boxes"), (1, 2, 0), strict=True):
        np.testing.assert_array_equal(row, [half] * count if count else row)
        assert len(row) == count


@either
def test_a_preview_shows_the_moved_boxes(steps):
    pipeline = detection(Scenes(12)).shuffle(1).transform(*steps)

    with pipeline.batch(12).open(workers=1) as loader:
        (batch,) = loader
    for position in range(12):
        shown = pipeline.preview(position)["output"].fields
        np.testing.assert_array_equal(shown["boxes"], rows(batch, "boxes")[position])
        np.testing.assert_array_equal(shown["labels"], rows(batch, "labels")[position])


def test_packing_does_not_move_boxes(tmp_path):
    pipeline = infeed.Pipeline(one_image([BOX])).boxes()

    with pytest.raises(
        infeed.errors.ConfigError, match="leave the transform to the pipeline"
    ):
        infeed.pack(pipeline, tmp_path / "packed", to="arrays", fit=8)
