"""Tables of other libraries, and their files, read by infeed."""

import io

import numpy as np
import pytest
from PIL import Image
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T

pa = import_or_skip("pyarrow")

pytestmark = framework_test


def png(index: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((6, 7, 3), index, np.uint8)).save(out, "png")
    return out.getvalue()


def photos(count: int) -> "pa.Table":
    images = [{"bytes": png(n), "path": f"{n}.png"} for n in range(count)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table(
        {
            "image": pa.array(images, kind),
            "label": pa.array([n % 3 for n in range(count)], pa.int8()),
            "caption": [f"photo {n}" for n in range(count)],
            "boxes": [list(range(n % 4)) for n in range(count)],
        }
    )


def check(source: sources.Source, count: int = 20) -> None:
    """Checks that a source has `photos`, in order and shuffled."""
    pipeline = infeed.Pipeline(source).decode().batch(count, pad=True)
    for seed in (None, 1):
        run = pipeline if seed is None else pipeline.shuffle(seed=seed)
        with run.open() as loader:
            (batch,) = list(loader)
        order = batch["image"][:, 0, 0, 0].tolist()
        assert sorted(order) == list(range(count))
        assert (order == sorted(order)) == (seed is None)
        assert batch["image"].shape == (count, 6, 7, 3)
        assert batch["label"].dtype == np.int64
        assert batch["label"].tolist() == [n % 3 for n in order]
        assert list(batch["caption"]) == [f"photo {n}" for n in order]


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4", "gzip", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_parquet_of_pyarrow_is_read(tmp_path, codec, version):
    parquet = import_or_skip("pyarrow.parquet")
    parquet.write_table(
        photos(20),
        tmp_path / "t.parquet",
        row_group_size=7,
        compression=codec,
        data_page_version=version,
        write_page_checksum=True,
    )

    check(sources.Parquet(tmp_path / "*.parquet"))


def test_a_page_without_its_checksum_is_a_bad_record(tmp_path):
    parquet = import_or_skip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(
        photos(20),
        path,
        row_group_size=10,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    content = bytearray(path.read_bytes())
    content[content.index(b"IHDR") + 5] ^= 1
    path.write_bytes(content)

    with (
        infeed.Pipeline(sources.Parquet(path)).batch(1).open(on_error="skip") as loader
    ):
        rows = sum(batch.rows for batch in loader)
        bad = loader.bad_records

    assert (rows, len(bad)) == (10, 10)
    assert "row group 0" in bad[0].name
    assert "CRC" in bad[0].reason


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("writer_name", ["new_file", "new_stream"])
def test_arrow_files_of_pyarrow_are_read(tmp_path, codec, writer_name):
    ipc = import_or_skip("pyarrow.ipc")
    table = photos(20)
    options = ipc.IpcWriteOptions(compression=codec)
    with (
        pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file,
        getattr(ipc, writer_name)(file, table.schema, options=options) as writer,
    ):
        writer.write_table(table, max_chunksize=6)

    check(sources.Arrow(tmp_path / "t.arrow"))


def test_tensors_of_a_fixed_shape_are_tensors(tmp_path):
    parquet = import_or_skip("pyarrow.parquet")
    arrays = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(arrays)
    table = pa.table({"depth": column})
    parquet.write_table(table, tmp_path / "t.parquet")

    for source in (sources.Arrow(table), sources.Parquet(tmp_path / "t.parquet")):
        with infeed.Pipeline(source).batch(2).open() as loader:
            (batch,) = list(loader)
        np.testing.assert_array_equal(batch["depth"], arrays)


def test_a_table_of_pyarrow_is_read_in_place():
    check(sources.Arrow(photos(20)))
    check(sources.Arrow(photos(20).slice(0, 20)))


def test_words_of_a_dictionary_are_classes():
    words = pa.array(["dog", "cat", "dog"]).dictionary_encode()
    source = sources.Arrow(
        pa.table({"breed": words}), fields={"breed": sources.Field(kind="tensor")}
    )

    with infeed.Pipeline(source).batch(3).open() as loader:
        (batch,) = list(loader)

    assert batch["breed"].tolist() == [0, 1, 0]


def test_a_data_frame_of_polars_is_read(tmp_path):
    polars = import_or_skip("polars")
    frame = polars.from_arrow(photos(20))

    check(sources.Arrow(frame))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=6)
    check(sources.Parquet(tmp_path / "t.parquet"))
    for codec in ("uncompressed", "lz4", "zstd"):
        frame.write_ipc(tmp_path / "t.arrow", compression=codec)
        check(sources.Arrow(tmp_path / "t.arrow"))


def test_a_relation_of_duckdb_is_read(tmp_path):
    duckdb = import_or_skip("duckdb")
    table = photos(20)
    connection = duckdb.connect()
    connection.register("photos", table)
    relation = connection.sql("select * from photos")

    check(sources.Arrow(relation))
    connection.sql("select * from photos").write_parquet(str(tmp_path / "t.parquet"))
    check(sources.Parquet(tmp_path / "t.parquet"))


def test_a_failing_duckdb_query_raises_with_its_name():
    duckdb = import_or_skip("duckdb")
    connection = duckdb.connect()
    # Fails in its second row only, when the stream is read.
    relation = connection.sql(
        "select case when i = 1 then error('row one') else i end from range(3) t(i)"
    )

    with pytest.raises(
        infeed.errors.ConfigError, match=r"DuckDBPyRelation is not a table.*"
    ):
        infeed.Pipeline(sources.Arrow(relation)).open()


def hugging_face(count: int):
    datasets = import_or_skip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["a", "b", "c"]),
            "caption": datasets.Value("string"),
            "boxes": datasets.Sequence(datasets.Value("int64")),
        }
    )
    return datasets.Dataset.from_list(photos(count).to_pylist(), features=features)


def test_a_dataset_of_hugging_face_is_read_without_python(tmp_path):
    dataset = hugging_face(20)

    check(sources.Arrow(dataset))
    check(sources.Items(dataset))
    with infeed.Pipeline(sources.Items(dataset)).batch(4).open() as loader:
        list(loader)
        assert loader.stats()["python"] is None
    dataset.save_to_disk(tmp_path / "saved")
    check(sources.Arrow(tmp_path / "saved" / "*.arrow"))
    dataset.to_parquet(tmp_path / "t.parquet")
    check(sources.Parquet(tmp_path / "t.parquet"))


def test_a_changed_dataset_of_hugging_face_is_read_without_python():
    datasets = import_or_skip("datasets")
    whole = hugging_face(20)
    mapped = whole.map(lambda row: {"label": row["label"], "half": row["label"] / 2})
    some = mapped.filter(lambda row: row["label"] != 1)
    shuffled = some.shuffle(seed=2)
    changed = [
        mapped,
        some,
        shuffled,
        shuffled.select([3, 0, 3]),
        shuffled.train_test_split(test_size=4, seed=1)["test"],
        whole.sort("label").shard(3, 1),
        datasets.concatenate_datasets([mapped.shuffle(seed=1), some]),
        shuffled.flatten_indices(),
    ]

    for dataset in changed:
        for source in (sources.Items(dataset), sources.Arrow(dataset)):
            pipeline = infeed.Pipeline(source).decode().batch(len(dataset), pad=True)
            with pipeline.open() as loader:
                (batch,) = list(loader)
                assert loader.stats()["python"] is None
            assert batch["label"].tolist() == list(dataset["label"])
            if "half" in dataset.column_names:
                assert batch["half"].tolist() == list(dataset["half"])


def test_a_dataset_of_hugging_face_with_a_format_is_read_by_items():
    dataset = hugging_face(20).shuffle(seed=2).with_format("numpy", columns=["label"])

    with infeed.Pipeline(sources.Items(dataset)).batch(20).open() as loader:
        (batch,) = list(loader)
        # The next epoch may be in flight.
        assert loader.stats()["python"]["items"] >= 20

    assert batch["label"].tolist() == list(dataset["label"])


def test_a_stream_and_splits_of_hugging_face_raise_with_what_works():
    datasets = import_or_skip("datasets")
    stream = hugging_face(6).to_iterable_dataset()
    splits = datasets.DatasetDict({"train": hugging_face(6), "test": hugging_face(6)})

    for make, name in [(sources.Items, "dataset"), (sources.Arrow, "data")]:
        with pytest.raises(
            infeed.errors.ConfigError, match=r"from_generator.*Iterable"
        ):
            make(stream)
        with pytest.raises(infeed.errors.ConfigError, match=rf"{name}\['train'\]"):
            make(splits)
    stored = datasets.Dataset.from_generator(lambda: (yield from stream))
    with infeed.Pipeline(sources.Arrow(stored)).batch(1).open() as loader:
        assert len(loader) == 6


def test_removed_columns_of_a_hugging_face_dataset_are_not_read():
    dataset = hugging_face(20).with_format(None, columns=["image", "label"])

    pipeline = infeed.Pipeline(sources.Items(dataset)).decode().batch(20, pad=True)

    assert set(pipeline.fields) == {"image", "label"}
    with pipeline.open() as loader:
        (batch,) = list(loader)
    assert batch["label"].tolist() == [n % 3 for n in range(20)]
    with pytest.raises(infeed.errors.ConfigError, match=r"try sources\.Items"):
        sources.Arrow(dataset)
    everything = hugging_face(20).with_format(None, columns=dataset.column_names)
    check(sources.Arrow(everything))


def test_a_mask_of_hugging_face_is_a_mask_by_rows_and_by_items():
    datasets = import_or_skip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "annotation": datasets.Image()}
    )
    rows = [
        {name: {"bytes": png(n), "path": None} for name in features} for n in range(12)
    ]
    dataset = datasets.Dataset.from_list(rows, features=features)

    def shapes(source):
        pipeline = infeed.Pipeline(source).decode().batch(4, pad=True)
        return pipeline.transform(T.CenterCrop(4)).shapes

    assert shapes(sources.Items(dataset.shuffle(seed=1))) == shapes(
        sources.Items(dataset)
    )


def test_a_dataset_of_torch_is_read_by_items():
    torch = import_or_skip("torch")

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return torch.full((3, 4, 5), index / 2), torch.tensor(index)

    with infeed.Pipeline(sources.Items(Numbers())).batch(12).open() as loader:
        (batch,) = list(loader)

    assert batch["image"].shape == (12, 3, 4, 5)
    assert batch["image"].dtype == np.float32
    assert batch["label"].tolist() == list(range(12))
