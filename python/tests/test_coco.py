"""Boxes, labels and sizes of COCO annotation files."""

import json

import numpy as np
import pytest
from feeding import TOKEN, feeding, wait_for_feeders
from PIL import Image

import infeed
from infeed import sources
from infeed.errors import DamagedError
from scenes import STEPS, Scenes, convert_boxes, extent, png, rows


@pytest.fixture
def coco(tmp_path):
    """Scenes as files with a COCO annotation file; ids do not follow the names."""
    scenes = Scenes(12, 4)
    (tmp_path / "images").mkdir()
    images, annotations = [], []
    for index, (image, boxes, labels) in enumerate(scenes.made):
        name = f"{(index * 7) % 12:03}.png"
        (tmp_path / "images" / name).write_bytes(png(image, index))
        number = 100 + index
        images.append({"id": number, "file_name": name, "height": 40, "width": 60})
        for box, label in zip(
            convert_boxes(boxes, "xywh").tolist(), labels, strict=True
        ):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(label) * 10,
                    "bbox": box,
                    "area": box[2] * box[3] / 2,
                    "iscrowd": int(label == 3),
                    "segmentation": [[1, 2, 3, 4, 5, 6]],
                }
            )
    rng = np.random.default_rng(0)
    described = {
        "info": {"description": "made up"},
        "images": [images[n] for n in rng.permutation(len(images))],
        "annotations": annotations,
        "categories": [{"id": n * 10, "name": f"c{n}"} for n in (3, 1, 2, 5, 4)],
    }
    (tmp_path / "instances.json").write_text(json.dumps(described))
    return tmp_path, scenes, described


def source_of(folder, **options):
    return sources.Coco(
        str(folder / "images"), str(folder / "instances.json"), **options
    )


def test_coco_boxes_are_those_of_the_file(coco):
    folder, scenes, _ = coco

    pipeline = infeed.Pipeline(source_of(folder)).decode().batch(12, pad=True)
    with pipeline.open(workers=1) as loader:
        (batch,) = loader

    assert [*batch.keys()] == [
        "image",
        "boxes",
        "labels",
        "area",
        "iscrowd",
        "image_id",
    ]
    assert batch["image_id"].tolist() == [100 + n for n in range(12)]
    for row, (image, boxes, labels) in enumerate(scenes.made):
        np.testing.assert_array_equal(batch["image"][row], image)
        np.testing.assert_array_equal(rows(batch, "boxes")[row], boxes)
        np.testing.assert_array_equal(rows(batch, "labels")[row], labels * 10)
        np.testing.assert_array_equal(rows(batch, "iscrowd")[row], labels == 3)
        half = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 2
        np.testing.assert_array_equal(rows(batch, "area")[row], half)


def test_coco_boxes_move_without_a_declaration(coco):
    folder, _, _ = coco
    pipeline = infeed.Pipeline(source_of(folder, labels="index")).shuffle(2).decode()
    pipeline = pipeline.transform(*STEPS)

    with pipeline.batch(12, ragged="pad").open(workers=2) as loader:
        (batch,) = loader

    assert [*batch.keys()][-1] == "boxes_count"
    seen = 0
    for row, count in enumerate(batch["boxes_count"]):
        boxes, labels = batch["boxes"][row][:count], batch["labels"][row][:count] + 1
        for box, label in zip(boxes, labels, strict=True):
            np.testing.assert_array_equal(extent(batch["image"][row], label), box)
            seen += 1
    assert seen > 10
    strict = pipeline.boxes(columns=("labels", "area", "iscrowd"), min_visibility=1)
    with strict.batch(12, ragged="pad").open(workers=1) as loader:
        (other,) = loader
    assert other["boxes_count"].sum() < batch["boxes_count"].sum()


def change_image(folder, **values):
    """Changes the image 100 of the annotation file."""
    path = folder / "instances.json"
    text = json.loads(path.read_text())
    (image,) = [image for image in text["images"] if image["id"] == 100]
    image |= values
    path.write_text(json.dumps(text))


@pytest.mark.parametrize("decoded", [False, True])
def test_an_image_of_another_size_than_its_annotations_state_is_bad(coco, decoded):
    folder, _, _ = coco
    change_image(folder, width=600, height=400)
    pipeline = infeed.Pipeline(source_of(folder))
    pipeline = pipeline.decode() if decoded else pipeline

    with (
        pipeline.open(workers=1) as loader,
        pytest.raises(DamagedError, match=r"600x400 px.*60x40 px"),
    ):
        list(loader)

    with pipeline.open(workers=1, on_error="skip") as loader:
        assert sum(len(batch.records) for batch in loader) == 11
        (record,) = loader.bad_records
    assert "000.png" in str(record)


def test_a_missing_image_of_a_list_is_left_out(coco):
    folder, _, _ = coco
    change_image(folder, file_name="gone.png")

    pipeline = infeed.Pipeline(source_of(folder)).decode()
    with pipeline.open(workers=1, on_error="skip") as loader:
        assert sum(len(batch.records) for batch in loader) == 11
        (record,) = loader.bad_records
    assert "gone.png" in str(record)


def test_boxes_of_a_turned_image_need_a_turned_image(coco):
    folder, scenes, _ = coco
    image, boxes, _ = scenes.made[0]
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(image)))
    stored.save(folder / "images" / "000.png", exif=exif)

    def first(source, options, **declared):
        pipeline = infeed.Pipeline(source)
        if declared:
            pipeline = pipeline.boxes("boxes", columns=("labels",), **declared)
        pipeline = pipeline.decode(**options).take(1).batch(1)
        with pipeline.open(workers=1) as loader:
            (batch,) = loader
            return np.array(batch["image"][0]), np.array(rows(batch, "boxes")[0])

    plain = source_of(folder)
    for source in (plain, sources.Mix(plain)):
        found, given = first(source, {"orient": True})
        np.testing.assert_array_equal(found, image)
        np.testing.assert_array_equal(given, boxes)
        with pytest.raises(DamagedError, match=r"60x40 px.*use \.decode\(orient=True"):
            first(source, {})
        with pytest.raises(DamagedError, match=r"60x40 px.*without oriented=False"):
            first(source, {"orient": True}, oriented=False)
    change_image(folder, width=40, height=60)
    with pytest.raises(DamagedError, match="oriented=False"):
        first(plain, {"orient": True})
    found, _ = first(plain, {"orient": True}, oriented=False)
    np.testing.assert_array_equal(found, image)


def test_a_coco_source_is_part_of_the_description(coco, tmp_path):
    folder, _, _ = coco
    pipeline = infeed.Pipeline(source_of(folder, labels="index")).decode()

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
    assert 'labels="index"' in repr(pipeline)
    assert repr(pipeline.source).startswith("sources.Coco(")
    assert "boxes: moved with the image" in pipeline.batch(2, pad=True).explain()
    assert "labels: rows of the boxes" in pipeline.batch(2, pad=True).explain()


def test_wrong_coco_files_name_the_entry_and_the_fix(coco):
    folder, _, described = coco
    file = folder / "instances.json"

    def message(text):
        file.write_text(text)
        with pytest.raises(infeed.errors.ConfigError) as caught:
            infeed.Pipeline(source_of(folder)).open()
        return str(caught.value)

    def change_annotation(**changes):
        first, *others = described["annotations"]
        return json.dumps({**described, "annotations": [{**first, **changes}, *others]})

    assert "truncated" in message(change_annotation()[:-20])
    assert "annotation 1 has category 7" in message(change_annotation(category_id=7))
    assert "annotation 1 belongs to image 7" in message(change_annotation(image_id=7))
    assert "annotation 2 occurs twice" in message(change_annotation(id=2))
    assert "is not JSON" in message(change_annotation(bbox=[1, float("nan"), 3, 4]))
    assert "annotation 1 of image 101" in message(change_annotation(bbox=[1, 2, -3, 4]))
    file.unlink()
    with pytest.raises(infeed.errors.OpenError, match=r"instances\.json"):
        infeed.Pipeline(source_of(folder)).open()


def test_a_missing_image_is_a_bad_record_with_its_path(coco):
    folder, _, _ = coco
    (folder / "images" / "000.png").unlink()

    with (
        infeed.Pipeline(source_of(folder)).decode().open(workers=1) as loader,
        pytest.raises(DamagedError, match=r"there is no file .*000\.png"),
    ):
        list(loader)


@pytest.mark.parametrize("ragged", ["offsets", "pad"])
def test_feeders_deliver_equal_boxes(coco, tmp_path, ragged):
    folder, _, _ = coco
    pipeline = infeed.Pipeline(source_of(folder)).shuffle(2).decode()
    pipeline = pipeline.transform(*STEPS).batch(5, ragged=ragged)

    def column_bytes(loader):
        columns = ([c if isinstance(c, tuple) else (c,) for c in b] for b in loader)
        return [[part.tobytes() for c in batch for part in c] for batch in columns]

    with pipeline.open(workers=1) as loader:
        expected = column_bytes(loader)
    with feeding(pipeline, tmp_path) as (host, _):
        feeders = infeed.feeders.Feeders(
            [host], token=TOKEN, local="fallback", deadline=60
        )
        with pipeline.open(workers=feeders) as loader:
            wait_for_feeders(loader)
            assert column_bytes(loader) == expected
            (feeder,) = loader.stats()["feeders"]
            assert feeder["batches"] > 0
