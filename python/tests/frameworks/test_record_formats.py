"""Files of the tools of the record formats, read bit for bit."""

import importlib.util
import io
import sys
import types

import numpy as np
import pytest
from requirements import framework_test, import_or_skip, require

import infeed
from infeed import sources

pytestmark = framework_test
RECORDS = 23


def image(n):
    """Returns bytes that begin like a JPEG; no test decodes them."""
    return b"\xff\xd8\xff" + np.random.default_rng(n).bytes(1000 + 37 * n)


def rows(source):
    """Returns all records, shuffled, by field name in record order."""
    pipeline = infeed.Pipeline(source).shuffle(3).batch(5)
    columns = {}
    with pipeline.open(workers=2) as loader:
        for batch in loader:
            for name, column in batch.items():
                if isinstance(column, tuple):
                    values, offsets = column
                    column = np.split(values, offsets[1:-1])
                for row, (record, _) in enumerate(batch.records):
                    columns.setdefault(name, {})[record] = column[row]
    return {name: [rows[n] for n in sorted(rows)] for name, rows in columns.items()}


@pytest.mark.parametrize("packing", ["", "GZIP", "ZLIB"])
def test_tfrecords_of_tensorflow_are_read(tmp_path, packing):
    tf = import_or_skip("tensorflow")

    def example(n):
        feature = {
            "image/encoded": tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[image(n)])
            ),
            "image/class/label": tf.train.Feature(
                int64_list=tf.train.Int64List(value=[n - 7])
            ),
            "box": tf.train.Feature(
                float_list=tf.train.FloatList(value=[n / 3, -n, 0, 1e30])
            ),
            "ids": tf.train.Feature(
                int64_list=tf.train.Int64List(value=[2**62 - i for i in range(n % 4)])
            ),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    for shard in range(2):
        path = str(tmp_path / f"train-{shard:05}-of-00002")
        with tf.io.TFRecordWriter(path, packing) as writer:
            for n in range(shard, RECORDS, 2):
                writer.write(example(n).SerializeToString())

    read = rows(sources.TFRecord(tmp_path / "train-*"))

    order = [*range(0, RECORDS, 2), *range(1, RECORDS, 2)]
    assert read["image"] == [image(n) for n in order]
    assert [int(label) for label in read["label"]] == [n - 7 for n in order]
    boxes = np.array([[n / 3, -n, 0, 1e30] for n in order], np.float32)
    assert np.array_equal(np.array(read["box"]), boxes)
    ids = [[2**62 - i for i in range(n % 4)] for n in order]
    assert [list(map(int, one)) for one in read["ids"]] == ids


def test_tars_of_the_webdataset_package_are_read(tmp_path):
    wds = import_or_skip("webdataset")

    with wds.ShardWriter(str(tmp_path / "train-%04d.tar"), maxcount=10) as writer:
        for n in range(RECORDS):
            writer.write(
                {
                    "__key__": f"some/folder/{n:06}",
                    "jpg": image(n),
                    "cls": n,
                    "json": {"n": n},
                    "vector.npy": np.arange(3, dtype=np.float32) + n,
                    "txt": f"caption {n} ü",
                }
            )

    read = rows(sources.WebDataset(tmp_path / "train-{0000..0002}.tar"))

    assert read["image"] == [image(n) for n in range(RECORDS)]
    assert [int(label) for label in read["label"]] == list(range(RECORDS))
    assert read["txt"] == [f"caption {n} ü" for n in range(RECORDS)]
    vectors = np.arange(3, dtype=np.float32) + np.arange(RECORDS)[:, None]
    assert np.array_equal(np.array(read["vector.npy"]), vectors.astype(np.float32))

    # The same as that package reads.
    shards = str(tmp_path / "train-{0000..0002}.tar")
    theirs = wds.WebDataset(shards, shardshuffle=False)
    assert [sample["jpg"] for sample in theirs] == read["image"]


def streaming_writer():
    """Returns the writer, without the imports that only training needs."""
    import_or_skip("torch")
    for name in ("streaming", "streaming.base"):
        if name not in sys.modules:
            require(name)
            spec = importlib.util.find_spec(name)
            package = types.ModuleType(name)
            package.__path__ = list(spec.submodule_search_locations)
            package.__spec__ = spec
            sys.modules[name] = package
    from streaming.base.format.mds.writer import MDSWriter

    return MDSWriter


@pytest.mark.parametrize("compression", [None, "zstd", "zstd:7", "gz"])
def test_mds_of_mosaicml_streaming_is_read(tmp_path, compression):
    columns = {
        "image": "bytes",
        "label": "int",
        "name": "str",
        "about": "json",
        "vector": "ndarray:float32:3",
        "table": "ndarray",
        "small": "uint8",
        "digits": "str_int",
        "pixels": "pil",
        "photo": "jpeg",
    }
    pil = import_or_skip("PIL.Image")

    def picture(n):
        return pil.fromarray(np.full((4, 6, 3), n, np.uint8))

    with streaming_writer()(
        out=str(tmp_path),
        columns=columns,
        compression=compression,
        hashes=["sha1"],
        size_limit=1 << 14,
    ) as writer:
        for n in range(RECORDS):
            writer.write(
                {
                    "image": image(n),
                    "label": n - 3,
                    "name": f"ü {n}",
                    "about": {"n": n},
                    "vector": np.arange(3, dtype=np.float32) + n,
                    "table": np.full((2, 2), n, np.int16),
                    "small": n,
                    "digits": 10**12 + n,
                    "pixels": picture(n),
                    "photo": picture(n),
                }
            )

    read = rows(sources.MDS(tmp_path))

    assert read["image"] == [image(n) for n in range(RECORDS)]
    assert [int(label) for label in read["label"]] == [n - 3 for n in range(RECORDS)]
    assert read["name"] == [f"ü {n}" for n in range(RECORDS)]
    for n in range(RECORDS):
        assert np.array_equal(read["vector"][n], np.arange(3, dtype=np.float32) + n)
        assert np.array_equal(read["table"][n], np.full((2, 2), n, np.int16))
        assert int(read["small"][n]) == n
        assert int(read["digits"][n]) == 10**12 + n
        assert np.array_equal(read["pixels"][n], np.asarray(picture(n)))
        photo = io.BytesIO()
        picture(n).save(photo, "JPEG")
        assert read["photo"][n] == photo.getvalue()
