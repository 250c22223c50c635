"""Augmentations in pipelines, with boxes and masks; boxes of YOLO and VOC."""

import re

import numpy as np
import pytest
from PIL import Image
from test_detection import BOX, detection, move_boxes, one_image

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import COLOURS, Scenes, extent, rows

SSD = (
    T.RandomZoomOut(fill=0, side_range=(1, 2)),
    T.RandomIoUCrop(),
    T.RandomHorizontalFlip(),
)


def affine_corners(box, angle, scale, size):
    """Returns the box around the turned and scaled corners of a box, clipped."""
    height, width = size
    x1, y1, x2, y2 = box
    points = np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], np.float64)
    turn = np.radians(angle)
    matrix = scale * np.array(
        [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    )
    middle = np.array([width / 2, height / 2])
    points = (points - middle) @ matrix.T + middle
    low, high = points.min(0), points.max(0)
    return np.clip(np.concatenate([low, high]), 0, [width, height, width, height])


def test_a_warp_moves_a_box_around_its_corners_as_torchvision_does():
    for angle, scale in ((25, 1), (-70, 0.5), (180, 1.2)):
        step = T.RandomAffine((angle, angle), scale=(scale, scale))
        expected = affine_corners(BOX, angle, scale, (40, 60))
        np.testing.assert_allclose(move_boxes([BOX], step), [expected], atol=1e-4)
        turn = T.RandomRotation((angle, angle))
        expected = affine_corners(BOX, -angle, 1, (40, 60))
        np.testing.assert_allclose(move_boxes([BOX], turn), [expected], atol=1e-4)


def affine_reference(image, angle, translate, scale, fill):
    """Bilinear affine of torchvision v2 on a uint8 image [H, W, C], in NumPy."""
    height, width, _ = image.shape
    turn = np.radians(angle)
    a, b = np.cos(turn) / scale, np.sin(turn) / scale
    theta = np.array(
        [
            [a, b, -a * translate[0] - b * translate[1]],
            [-b, a, b * translate[0] - a * translate[1]],
        ],
        np.float32,
    )
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    base = np.stack(
        [x - np.float32((width - 1) / 2), y - np.float32((height - 1) / 2), x * 0 + 1]
    )
    half = np.array([width, height], np.float32)[:, None] / 2
    grid = np.tensordot(theta / half, base, 1)
    at_x = (grid[0] + 1) * half[0] - np.float32(0.5)
    at_y = (grid[1] + 1) * half[1] - np.float32(0.5)
    left, top = np.floor(at_x), np.floor(at_y)
    total, share = np.zeros(image.shape, np.float32), np.zeros((height, width))
    for dx in (0, 1):
        for dy in (0, 1):
            weight = (1 - abs(at_x - left - dx)) * (1 - abs(at_y - top - dy))
            inside = (left + dx >= 0) & (left + dx < width)
            inside &= (top + dy >= 0) & (top + dy < height)
            row = np.clip(top + dy, 0, height - 1).astype(int)
            column = np.clip(left + dx, 0, width - 1).astype(int)
            weight = weight * inside
            total += image[row, column] * weight[..., None]
            share += weight
    mixed = (total - fill) * share[..., None] + fill
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def test_pixels_of_a_warp_are_within_one_level_of_the_formulas_of_torchvision():
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (6, 37, 53, 3), np.uint8)
    step = T.RandomAffine(
        90,
        translate=(0.2, 0.3),
        scale=(0.5, 1.5),
        interpolation="bilinear",
        fill=40,
    )
    pipeline = infeed.Pipeline(sources.Memory(image=images)).transform(step)

    for position, image in enumerate(images):
        preview = pipeline.preview(position)
        numbers = re.findall(r"-?\d+(?:\.\d+)?", preview[0].draws)
        angle, _, _, scale, x, y = map(float, numbers)
        expected = affine_reference(image, angle, (x, y), scale, 40)
        found = preview["output"].fields["image"].astype(int)
        assert np.abs(found - expected).max() <= 1


def test_boxes_follow_their_pixels_through_the_recipe_of_ssd():
    pipeline = detection(Scenes(36)).shuffle(3).transform(*SSD)

    seen, empty = 0, 0
    with pipeline.batch(1).open(workers=2) as loader:
        for batch in loader:
            (boxes,), (labels,) = rows(batch, "boxes"), rows(batch, "labels")
            empty += len(boxes) == 0
            for box, label in zip(boxes, labels, strict=True):
                np.testing.assert_array_equal(extent(batch["image"][0], label), box)
                seen += 1
    assert seen > 40
    assert empty >= 6, "scenes without boxes stay"


def test_a_crop_around_boxes_needs_boxes():
    pipeline = infeed.Pipeline(sources.Memory(image=np.zeros((2, 9, 9, 3), np.uint8)))

    with pytest.raises(infeed.errors.ConfigError, match=r"declare them with \.boxes"):
        pipeline.transform(T.RandomIoUCrop()).open()


AUGMENTATIONS = [
    T.RandomAffine(20, translate=(0.1, 0.1), interpolation="bilinear"),
    T.RandomRotation(30),
    T.RandomPerspective(p=0.9),
    T.ElasticTransform(sigma=2),
    T.JPEG((5, 60)),
    T.AugMix(),
    T.AutoAugment(),
    T.RandAugment(),
    T.TrivialAugmentWide(),
    T.RandomApply([T.GaussianNoise(), T.RandomHorizontalFlip()], p=0.7),
    T.RandomChoice([T.RandomSolarize(99), T.GaussianBlur(5), T.RandomRotation(9)]),
    T.RandomOrder([T.RandomInvert(), T.RandomVerticalFlip(), T.RandomGrayscale(0.5)]),
    T.RandomPhotometricDistort(),
    T.RandomHSV(),
    T.RandomChoice(
        [
            T.Resize((24, 32)),
            T.RandomApply(
                [
                    T.RandomChoice([T.Resize(20), T.Resize(28)]),
                    T.RandomSizedCrop((24, 32), (12, 28)),
                ],
                p=1.0,
            ),
        ]
    ),
]


@pytest.mark.parametrize("step", AUGMENTATIONS, ids=lambda step: type(step).__name__)
def test_batches_are_those_of_the_preview_for_any_number_of_workers(step):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (12, 24, 32, 3), np.uint8)
    source = sources.Memory(image=images)
    pipeline = infeed.Pipeline(source).shuffle(5).transform(step, T.ToFloat()).batch(6)

    def epoch(workers):
        with pipeline.open(workers=workers) as loader:
            return np.concatenate([batch["image"] for batch in loader])

    one = epoch(1)
    np.testing.assert_array_equal(one, epoch(3))
    for position in range(12):
        shown = pipeline.preview(position)["output"].fields["image"]
        np.testing.assert_array_equal(one[position], shown)


@pytest.mark.parametrize(
    "step",
    [
        T.RandomAffine(45, translate=(0.2, 0.2), scale=(0.5, 1.5), shear=20),
        T.RandomRotation(180, expand=True),
        T.RandomPerspective(p=1, interpolation="nearest"),
        T.ElasticTransform(200, sigma=2, interpolation="nearest"),
        T.RandAugment(num_ops=4),
        T.RandomZoomOut(p=1),
        T.Mosaic((60, 80), fill=0),
    ],
    ids=lambda step: type(step).__name__,
)
def test_masks_move_with_their_images_by_the_same_draw(step, tmp_path):
    rng = np.random.default_rng(2)
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for number in range(6):
        mask = rng.integers(0, 200, (30, 40), np.uint8)
        for folder in ("images", "masks"):
            Image.fromarray(mask).save(tmp_path / folder / f"{number}.png")
    source = sources.Pairs(image=tmp_path / "images", mask=tmp_path / "masks")
    pipeline = infeed.Pipeline(source).decode(image="gray").transform(step)

    moved = 0
    for position in range(6):
        preview = pipeline.preview(position)
        output = preview["output"].fields
        image = output["image"][..., 0]
        mask = output["mask"].reshape(image.shape)
        draws = preview[-2].draws
        moved += any(word in draws for word in ("rotate", "corners", "shift"))
        if type(step) is not T.RandAugment:
            np.testing.assert_array_equal(image, mask)
        assert image.shape == mask.shape
    assert moved or type(step) in (T.RandomZoomOut, T.Mosaic)


def test_a_list_of_transforms_is_part_of_the_description(tmp_path):
    (tmp_path / "images").mkdir()
    step = T.RandomChoice(
        [T.RandomApply([T.GaussianBlur(3)], p=0.5), T.RandomInvert()], p=(0.5, 2)
    )
    source = sources.Folder(str(tmp_path / "images"))
    pipeline = infeed.Pipeline(source).decode().transform(step)

    pipeline.save(tmp_path / "pipeline.toml")

    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")
    assert loaded == pipeline
    assert eval(repr(step), {"T": T}) == step


def test_a_preview_has_the_boxes_of_each_stage_and_draws_them():
    pipeline = infeed.Pipeline(one_image([BOX])).boxes()
    pipeline = pipeline.transform(T.RandomHorizontalFlip(1), T.Crop(30, 60))

    preview = pipeline.preview(0)

    names = [stage.name for stage in preview]
    assert names == ["RandomHorizontalFlip", "Crop", "output"]
    np.testing.assert_array_equal(preview[0].boxes, [(30, 8, 50, 20)])
    np.testing.assert_array_equal(preview[1].boxes, [(30, 3, 50, 15)])
    np.testing.assert_array_equal(preview[2].boxes, preview[2].fields["boxes"])
    # The image is black, so only the outline makes the picture larger.
    plain = infeed.Pipeline(one_image([BOX])).transform(T.Crop(30, 60), keep=("boxes",))
    assert len(preview._repr_html_()) > len(plain.preview(0)._repr_html_())


def write_scenes(folder, scenes):
    for index, (image, _, _) in enumerate(scenes.made):
        Image.fromarray(image).save(folder / f"{index:03}.png")


def test_yolo_boxes_are_those_of_the_text_files_and_move(tmp_path):
    scenes = Scenes(12, 4)
    images, labels = tmp_path / "images" / "train", tmp_path / "labels" / "train"
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    write_scenes(images, scenes)
    for index, (_, boxes, classes) in enumerate(scenes.made):
        lines = [
            f"{label - 1} {(x1 + x2) / 120} {(y1 + y2) / 80} {(x2 - x1) / 60} "
            f"{(y2 - y1) / 40}"
            for (x1, y1, x2, y2), label in zip(boxes, classes, strict=True)
        ]
        if lines:
            (labels / f"{index:03}.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "classes.txt").write_text("a\nb\nc\nd\ne\n")
    source = sources.Yolo(str(images), classes=str(tmp_path / "classes.txt"))
    pipeline = infeed.Pipeline(source).decode().transform(T.RandomHorizontalFlip())
    pipeline.save(tmp_path / "pipeline.toml")
    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline

    with pipeline.batch(12, pad=True).open(workers=1) as loader:
        (batch,) = loader

    seen = 0
    for row, boxes in enumerate(rows(batch, "boxes")):
        for (x, y, width, height), label in zip(
            boxes * (60, 40, 60, 40), rows(batch, "labels")[row], strict=True
        ):
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            found = extent(batch["image"][row], label + 1)
            np.testing.assert_allclose(found, box, atol=1e-3)
            seen += 1
    assert seen == sum(len(boxes) for _, boxes, _ in scenes.made)
    (labels / "001.txt").write_text("0 0.5 0.5 0.1 0.1\n9 0.5 0.5 0.1 0.1\n")
    with pytest.raises(
        infeed.errors.ConfigError, match=r"001\.txt, line 2: class 9 is not"
    ):
        pipeline.open()
    with pytest.raises(infeed.errors.ConfigError, match="set labels="):
        infeed.Pipeline(sources.Yolo(str(tmp_path / "labels"))).open()


def test_voc_boxes_are_those_of_the_annotations(tmp_path):
    scenes = Scenes(6, 4)
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (tmp_path / folder).mkdir(parents=True)
    names = ("person", "cat", "dog", "car", "bus")
    for index, (image, boxes, labels) in enumerate(scenes.made):
        Image.fromarray(image).save(
            tmp_path / f"JPEGImages/{index}.jpg", quality=95, subsampling=0
        )
        objects = [
            f"<object><name>{names[label - 1]}</name><difficult>{label % 2}</difficult>"
            f"<bndbox><xmin>{x1 + 1}</xmin><ymin>{y1 + 1}</ymin><xmax>{x2}</xmax>"
            f"<ymax>{y2}</ymax></bndbox></object>"
            for (x1, y1, x2, y2), label in zip(boxes, labels, strict=True)
        ]
        text = f"<annotation>{''.join(objects)}</annotation>"
        (tmp_path / f"Annotations/{index}.xml").write_text(text)
    listed = tmp_path / "ImageSets/Main/val.txt"
    listed.write_text("".join(f"{n}\n" for n in range(6)))
    source = sources.Voc(str(tmp_path), image_set="val", classes=names)
    pipeline = infeed.Pipeline(source).decode().batch(6, pad=True)
    pipeline.save(tmp_path / "pipeline.toml")
    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline

    with pipeline.open(workers=1) as loader:
        (batch,) = loader

    for row, (_, boxes, labels) in enumerate(scenes.made):
        np.testing.assert_array_equal(rows(batch, "boxes")[row], boxes)
        np.testing.assert_array_equal(rows(batch, "labels")[row], labels - 1)
        np.testing.assert_array_equal(rows(batch, "difficult")[row], labels % 2 == 1)
    assert len(COLOURS) == 6
    default = infeed.Pipeline(sources.Voc(str(tmp_path), image_set="val")).batch(6)
    with default.open(workers=1) as loader:
        (batch,) = loader
    person = [labels == 14 for labels in rows(batch, "labels")]
    expected = [labels == 1 for _, _, labels in scenes.made]
    np.testing.assert_array_equal(np.concatenate(person), np.concatenate(expected))
    with pytest.raises(infeed.errors.OpenError, match=r"train\.txt"):
        infeed.Pipeline(sources.Voc(str(tmp_path))).open()
