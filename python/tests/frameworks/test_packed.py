"""Files of `infeed.pack`, read with the tools of their formats."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T

pytestmark = framework_test


@pytest.fixture(scope="module")
def photos(classification) -> infeed.Pipeline:
    source = sources.Folder(classification.path)
    return infeed.Pipeline(source).decode().batch(8, pad=True)


@pytest.fixture(scope="module")
def streets(segmentation) -> infeed.Pipeline:
    return infeed.Pipeline(sources.Pairs(segmentation.image, segmentation.mask))


def shards(out: Path, extension: str) -> list[str]:
    found = sorted(str(path) for path in out.glob(f"shard-*.{extension}"))
    assert len(found) > 1
    return found


def test_webdataset_reads_images_and_labels(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    webdataset = import_or_skip("webdataset")
    infeed.pack(photos, tmp_path / "out", to="webdataset", shard_size="100kB")

    paths = shards(tmp_path / "out", "tar")
    dataset = webdataset.WebDataset(paths, shardshuffle=False)
    found = list(dataset.to_tuple("jpg", "cls"))

    expected = [(path.read_bytes(), label) for path, label in classification.files]
    assert [(image, int(label)) for image, label in found] == expected


def test_webdataset_decodes_images_and_masks(
    streets: infeed.Pipeline, segmentation: Any, tmp_path: Path
) -> None:
    webdataset = import_or_skip("webdataset")
    infeed.pack(streets, tmp_path / "out", to="webdataset", shard_size="30kB")

    paths = shards(tmp_path / "out", "tar")
    dataset = webdataset.WebDataset(paths, shardshuffle=False).decode("rgb8")
    images = [image for image, _ in dataset.to_tuple("png", "mask.png")]

    np.testing.assert_array_equal(images, segmentation.images)


def test_tensorflow_parses_examples_in_order(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    tf = import_or_skip("tensorflow")
    infeed.pack(photos, tmp_path / "out", to="tfrecord", shard_size="100kB")

    dataset = tf.data.TFRecordDataset(shards(tmp_path / "out", "tfrecord"))
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    found = [tf.io.parse_single_example(record, features) for record in dataset]

    assert len(found) == len(classification.files)
    for one, (path, label) in zip(found, classification.files, strict=True):
        assert one["image/encoded"].numpy() == path.read_bytes()
        assert one["image/format"].numpy() == b"jpeg"
        assert one["image/class/label"].numpy() == label


def test_tensorflow_parses_numbers_text_and_masks(
    streets: infeed.Pipeline, segmentation: Any, tmp_path: Path
) -> None:
    tf = import_or_skip("tensorflow")
    values = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    source = sources.Memory(
        box=values,
        count=np.array([-1, 0, 5, 2**40]),
        half=values.astype(np.float16),
        text=["a", "", "ü", "d"],
    )
    infeed.pack(infeed.Pipeline(source), tmp_path / "numbers", to="tfrecord")
    infeed.pack(streets, tmp_path / "streets", to="tfrecord")

    path = str(tmp_path / "numbers" / "shard-000000.tfrecord")
    features = {
        "box": tf.io.FixedLenFeature([3], tf.float32),
        "half": tf.io.FixedLenFeature([3], tf.float32),
        "count": tf.io.FixedLenFeature([], tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string),
    }
    found = [
        tf.io.parse_single_example(record, features)
        for record in tf.data.TFRecordDataset(path)
    ]
    np.testing.assert_array_equal([one["box"] for one in found], values)
    halves = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal([one["half"] for one in found], halves)
    assert [int(one["count"]) for one in found] == [-1, 0, 5, 2**40]
    assert [one["text"].numpy().decode() for one in found] == ["a", "", "ü", "d"]
    path = str(tmp_path / "streets" / "shard-000000.tfrecord")
    mask = {"mask/encoded": tf.io.FixedLenFeature([], tf.string)}
    first = next(iter(tf.data.TFRecordDataset(path)))
    encoded = tf.io.parse_single_example(first, mask)["mask/encoded"].numpy()
    assert encoded == sorted(segmentation.mask.glob("*.png"))[0].read_bytes()


def test_the_index_next_to_a_tfrecord_shard_is_used(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    tf = import_or_skip("tensorflow")
    infeed.pack(photos, tmp_path / "out", to="tfrecord", shard_size="100kB")

    for path in shards(tmp_path / "out", "tfrecord"):
        whole = Path(path).read_bytes()
        lines = Path(path).with_suffix(".idx").read_text().splitlines()
        records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
        spans = [tuple(map(int, line.split())) for line in lines]
        # Length and checksum before a record, a checksum after it.
        cut = [whole[begin + 12 : begin + size - 4] for begin, size in spans]
        assert cut == records


def test_pyarrow_maps_pixels_as_tensors(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    pa = import_or_skip("pyarrow")
    infeed.pack(
        photos, tmp_path / "out", to="arrow", encode="raw", fit=32, shard_size="50kB"
    )

    pixels, labels = [], []
    for path in shards(tmp_path / "out", "arrow"):
        with pa.memory_map(path) as file:
            table = pa.ipc.open_file(file).read_all()
        assert isinstance(table.schema.field("image").type, pa.FixedShapeTensorType)
        for chunk in table.column("image").chunks:
            pixels.append(chunk.to_numpy_ndarray())
        labels += table.column("label").to_pylist()

    assert labels == [label for _, label in classification.files]
    both = photos.transform(T.Resize(32), T.CenterCrop(32))
    expected = np.concatenate([batch.array("image") for batch in both])
    np.testing.assert_array_equal(np.concatenate(pixels), expected)


def test_pyarrow_reads_encoded_images_from_arrow(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    pa = import_or_skip("pyarrow")
    infeed.pack(photos, tmp_path / "out", to="arrow", shard_size="100kB")

    found = []
    for path in shards(tmp_path / "out", "arrow"):
        with pa.OSFile(path) as file:
            found += pa.ipc.open_file(file).read_all().column("image").to_pylist()

    assert found == [path.read_bytes() for path, _ in classification.files]


def test_datasets_shows_images_and_class_names_from_parquet(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    datasets = import_or_skip("datasets")
    infeed.pack(photos, tmp_path / "out", to="parquet", shard_size="100kB")

    files = shards(tmp_path / "out", "parquet")
    found = datasets.Dataset.from_parquet(files, cache_dir=str(tmp_path / "cache"))

    assert isinstance(found.features["image"], datasets.Image)
    assert found.features["label"].names == ["ant", "bee", "cat"]
    assert found["label"] == [label for _, label in classification.files]
    for one, (path, _) in zip(found, classification.files, strict=True):
        expected = np.asarray(Image.open(path).convert("RGB"))
        np.testing.assert_array_equal(np.asarray(one["image"].convert("RGB")), expected)


def test_pyarrow_finds_row_groups_and_file_names_in_parquet(
    photos: infeed.Pipeline, classification: Any, tmp_path: Path
) -> None:
    parquet = import_or_skip("pyarrow.parquet")
    infeed.pack(photos, tmp_path / "out", to="parquet", shard_size="100kB")

    rows = []
    for path in shards(tmp_path / "out", "parquet"):
        file = parquet.ParquetFile(path)
        keys = json.loads(file.schema_arrow.metadata[b"huggingface"])
        assert keys["info"]["features"]["image"] == {"_type": "Image"}
        rows += file.read().column("image").to_pylist()

    assert rows == [
        {"bytes": path.read_bytes(), "path": path.name}
        for path, _ in classification.files
    ]


def test_numpy_loads_the_batches(photos: infeed.Pipeline, tmp_path: Path) -> None:
    infeed.pack(photos, tmp_path / "out", to="npz", fit=32)

    paths = shards(tmp_path / "out", "npz")
    both = photos.transform(T.Resize(32), T.CenterCrop(32))
    for path, batch in zip(paths, both, strict=True):
        with np.load(path) as arrays:
            assert set(arrays) == {"image", "label"}
            np.testing.assert_array_equal(arrays["image"], batch.array("image"))
            np.testing.assert_array_equal(arrays["label"], batch.array("label"))


def test_pillow_opens_images_of_a_lossy_pack(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    packed = infeed.pack(photos, tmp_path / "out", encode="jpeg:80")

    assert packed.fidelity is not None
    assert packed.fidelity.images == 30
    import tarfile

    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as archive:
        for member in archive:
            assert (member.mtime, member.uid, member.mode) == (0, 0, 0o644)
            if member.name.endswith("jpg"):
                file = archive.extractfile(member)
                assert file is not None
                Image.open(io.BytesIO(file.read())).load()
