"""Points move with the pixels of their image, and their objects with its boxes."""

import json

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import HEIGHT, WIDTH, png, rows

POINTS = 3


class Objects:
    """Images with objects of three pixels, whose colours say which point they are."""

    def __init__(self, count, encode=None, normalized=False):
        self.rng = np.random.default_rng(0)
        self.encode, self.normalized = encode, normalized
        self.made = [self.scene(index) for index in range(count)]

    def scene(self, index):
        image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        objects = index % 4
        at = self.rng.choice(HEIGHT * WIDTH, objects * POINTS, replace=False)
        y, x = np.divmod(at.reshape(objects, POINTS), WIDTH)
        for label, point in np.ndindex(objects, POINTS):
            image[y[label, point], x[label, point]] = colour(label, point)
        visibility = np.full_like(x, 2)
        points = np.stack([x, y, visibility], 2).astype(np.float32)
        corners = [x.min(1), y.min(1), x.max(1) + 1, y.max(1) + 1] if objects else []
        boxes = np.stack(corners, 1) if objects else np.zeros((0, 4))
        return image, boxes.astype(np.float32), points, np.arange(objects)

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        image, boxes, points, labels = self.made[index]
        if self.normalized:
            points = points / np.float32([WIDTH, HEIGHT, 1])
        return {
            "image": image if self.encode is None else self.encode(image, index),
            "boxes": boxes,
            "keypoints": points.reshape(-1),
            "labels": labels,
        }


def colour(label, point):
    return (200, 40 + 50 * label, 40 + 50 * point)


def pipeline_of(dataset, **options):
    ragged = sources.Field(kind="ragged")
    fields = dict.fromkeys(("boxes", "keypoints", "labels"), ragged)
    source = sources.Items(dataset, fields={"image": sources.Field(), **fields})
    columns = ("labels", "keypoints")
    pipeline = infeed.Pipeline(source).boxes(columns=columns, min_size=0, min_area=0)
    return pipeline.points(count=POINTS, **options)


EXACT = [
    (T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomCrop((24, 30))),
    (T.RandomCrop(30), T.Pad((5, 3, 0, 2)), T.RandomHorizontalFlip()),
    (T.RandomHorizontalFlip(), T.Mosaic((80, 120), p=0.8), T.RandomCrop((60, 90))),
]


@pytest.mark.parametrize("encode", [None, png])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("steps", EXACT, ids=["crop", "pad", "mosaic"])
def test_visible_points_are_the_pixels_of_their_colour(encode, normalized, steps):
    pipeline = pipeline_of(Objects(24, encode, normalized), normalized=normalized)
    pipeline = pipeline.shuffle(1).decode().transform(*steps).batch(8)
    seen = 0
    with pipeline.open(workers=2) as loader:
        for batch in loader:
            lists = zip(rows(batch, "keypoints"), rows(batch, "labels"), strict=True)
            for image, (objects, labels) in zip(batch["image"], lists, strict=True):
                assert objects.shape == (len(labels), POINTS, 3)
                found = []
                for label, points in zip(labels, objects, strict=True):
                    height, width = image.shape[:2] if normalized else (1, 1)
                    for number, (x, y, visibility) in enumerate(points):
                        if visibility == 0:
                            assert (x, y) == (0, 0)
                            continue
                        at = round(float(y * height)), round(float(x * width))
                        assert tuple(image[at]) == colour(label, number)
                        found.append(colour(label, number))
                pixels = image[image[..., 0] == 200]
                assert sorted(found) == sorted(map(tuple, pixels.tolist()))
                seen += len(found)
    assert seen > 25


# A point at (10, 8) of 60 x 40, by the formulas of torchvision v2.
FORMULAS = [
    (T.RandomHorizontalFlip(1.0), (49, 8)),
    (T.RandomVerticalFlip(1.0), (10, 31)),
    (T.Resize((20, 90)), (15, 4)),
    (T.Crop(20, 15, at=(3, 4)), (6, 5)),
    (T.Pad((1, 2, 3, 4)), (11, 10)),
    (T.RandomAffine((90, 90)), (30 - (8 - 20), 20 + (10 - 30))),
    (T.ColorJitter(0.5), (10, 8)),
]


@pytest.mark.parametrize(("step", "expected"), FORMULAS, ids=lambda x: repr(x))
def test_a_transform_moves_a_point_as_torchvision_does(step, expected):
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    source = sources.Memory(image=image, at=np.float32([[[10, 8, 1], [70, 8, 2]]]))

    with infeed.Pipeline(source).points("at").transform(step).open(workers=1) as loader:
        (batch,) = loader

    assert batch["at"].shape == (1, 2, 3)
    np.testing.assert_allclose(batch["at"][0, 0], [*expected, 1], atol=1e-4)
    np.testing.assert_array_equal(batch["at"][0, 1], [0, 0, 0])


def test_points_without_visibility_keep_coordinates_outside_the_image():
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    points = np.int32([[[10, 8], [55, 39]]])
    pipeline = infeed.Pipeline(sources.Memory(image=image, points=points))
    pipeline = pipeline.points("points", visibility=False)

    with pipeline.transform(T.Crop(20, 20, at="top_left")).open(workers=1) as loader:
        (batch,) = loader

    np.testing.assert_array_equal(batch["points"], points)
    assert batch["points"].dtype == np.float32


def test_pairs_change_places_when_the_image_is_mirrored():
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    points = np.float32([[[10, 8, 2], [20, 9, 1], [30, 10, 2]]])
    pipeline = infeed.Pipeline(sources.Memory(image=image, keypoints=points))
    pipeline = pipeline.points(pairs=[(1, 2)])

    def move_points(*steps):
        with pipeline.transform(*steps).open(workers=1) as loader:
            (batch,) = loader
            return batch["keypoints"][0].tolist()

    flip, turn = T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)
    assert move_points(flip) == [[49, 8, 2], [29, 10, 2], [39, 9, 1]]
    assert move_points(flip, turn) == [[49, 31, 2], [39, 30, 1], [29, 29, 2]]


def test_wrong_points_are_a_bad_record():
    dataset = Objects(8)
    image, boxes, points, labels = dataset.made[7]
    for wrong, message in [
        (np.where(points == points[1, 1], np.nan, points), "is .*not finite numbers"),
        (points - np.float32([0, 0, 3]), "visibility of at least 0"),
        (points[:, :2], "has 2 rows, but `boxes` has 3 boxes"),
    ]:
        dataset.made[7] = image, boxes, wrong.astype(np.float32), labels
        pipeline = pipeline_of(dataset).transform(T.RandomCrop(30)).batch(4)

        with (
            pipeline.open(workers=1) as loader,
            pytest.raises(infeed.errors.DecodeError, match=message) as caught,
        ):
            list(loader)
        assert "record 7" in str(caught.value)


def test_wrong_declarations_name_the_fix():
    images = np.zeros((2, HEIGHT, WIDTH, 3), np.uint8)
    source = sources.Memory(
        image=images,
        keypoints=np.zeros((2, 4, 3)),
        pose=np.zeros((2, 5)),
        x=[[1, 2, 3], []],
    )
    pipeline = infeed.Pipeline(source)

    def message(declared):
        with pytest.raises(infeed.errors.ConfigError) as caught:
            declared.open()
        return str(caught.value)

    assert "no field `point`; use one of" in message(pipeline.points("point"))
    assert "an array [n, 3]" in message(pipeline.points("pose"))
    assert "declared twice" in message(pipeline.points().points())
    pairs = pipeline.points(pairs=[(0, 4)])
    assert "pairs have point 4, but an object of `keypoints` has 4" in message(pairs)
    assert "is in two pairs" in message(pipeline.points(pairs=[(0, 1), (1, 2)]))
    assert "count is 0" in message(pipeline.points("x", count=0))
    mirrored = pipeline.points().transform(T.Pad(2, padding_mode="reflect"))
    assert "which points cannot follow" in message(mirrored)
    mosaic = pipeline.points().transform(T.Mosaic(8))
    assert "Mosaic adds those of others" in message(mosaic)
    undeclared = pipeline.transform(T.Resize((8, 8)))
    assert '.points("keypoints")' in message(undeclared)
    with pytest.raises(infeed.errors.ConfigError, match="pairs must be"):
        pipeline.points(pairs=[(1, 2, 3)])


def test_the_declaration_is_part_of_the_description(tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((4, HEIGHT, WIDTH, 3), np.uint8))
    np.save(tmp_path / "keypoints.npy", np.zeros((4, 2, 3), np.float32))
    source = sources.Memory(
        image=np.load(tmp_path / "image.npy", mmap_mode="r"),
        keypoints=np.load(tmp_path / "keypoints.npy", mmap_mode="r"),
    )
    pipeline = infeed.Pipeline(source).points(normalized=True, pairs=[(0, 1)])
    pipeline = pipeline.transform(T.RandomCrop(30)).batch(2)

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
    assert '.points("keypoints", normalized=True, pairs=((0, 1),))' in repr(pipeline)
    assert "keypoints: moved with the image" in pipeline.explain()


def test_packing_does_not_move_points(tmp_path):
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    source = sources.Memory(image=image, at=np.float32([[[10, 8, 1]]]))
    pipeline = infeed.Pipeline(source).points("at")

    with pytest.raises(
        infeed.errors.ConfigError, match="does not move the points in `at`"
    ):
        infeed.pack(pipeline, tmp_path / "packed", to="arrays", fit=8)


@pytest.fixture
def coco(tmp_path):
    dataset = Objects(12)
    (tmp_path / "images").mkdir()
    images, annotations = [], []
    for index, (image, boxes, points, labels) in enumerate(dataset.made):
        name = f"{index:03}.png"
        (tmp_path / "images" / name).write_bytes(png(image, index))
        images.append({"id": index, "file_name": name})
        for box, of, label in zip(boxes, points, labels, strict=True):
            x1, y1, x2, y2 = box.tolist()
            given = {"keypoints": of.flatten().tolist()} if label != 1 else {}
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": index,
                    "category_id": int(label) + 1,
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    **given,
                }
            )
    categories = [{"id": n + 1, "name": f"c{n}"} for n in range(3)]
    text = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "keypoints.json").write_text(json.dumps(text))
    return tmp_path, dataset


def test_coco_keypoints_move_with_their_objects(coco):
    folder, dataset = coco
    names = str(folder / "images"), str(folder / "keypoints.json")
    source = sources.Coco(*names, labels="index", keypoints=POINTS)
    pipeline = infeed.Pipeline(source).decode().transform(T.RandomHorizontalFlip(1.0))

    batched = pipeline.batch(12, pad=True, ragged="pad")
    with batched.open(workers=2) as loader:
        (batch,) = loader

    assert "keypoints_count" not in [*batch.keys()]
    for row, (_, _, points, labels) in enumerate(dataset.made):
        count = batch["boxes_count"][row]
        assert count == len(labels)
        found = batch["keypoints"][row][:count]
        expected = points.copy()
        expected[..., 0] = WIDTH - 1 - expected[..., 0]
        expected[labels == 1] = 0
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(infeed.errors.ConfigError, match="numbers of keypoints"):
        infeed.Pipeline(sources.Coco(*names, keypoints=17)).open()
    with pytest.raises(infeed.errors.ConfigError, match="keypoints"):
        sources.Coco(*names, keypoints=0)
