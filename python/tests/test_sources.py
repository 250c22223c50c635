"""Sources as settings; kinds of fields in `Memory`."""

import io
import json
import logging
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed.errors import ConfigError
from infeed.experiments import tfrecord


def describe_fields(source: sources.Memory) -> dict[str, dict]:
    return {field["name"]: field for field in source._to_dict()["fields"]}


def test_a_path_object_is_the_same_as_its_text():
    assert sources.Folder(Path("data")) == sources.Folder("data")


def test_the_repr_of_a_source_is_its_code():
    for source in (
        sources.Folder("data"),
        sources.Folder("data", labels="none"),
        sources.Pairs(image="a", mask='b "c"'),
    ):
        assert eval(repr(source), {"sources": sources}) == source


def test_the_kind_of_an_array_follows_from_its_type_shape_and_name():
    n = 4
    fields = describe_fields(
        sources.Memory(
            image=np.zeros((n, 8, 9, 3), np.uint8),
            mask=np.zeros((n, 8, 9), np.uint16),
            other=np.zeros((n, 8, 9, 4), np.uint8),
            many=np.zeros((n, 8, 9, 5), np.uint8),
            vector=np.zeros((n, 7), np.float32),
            label=[1, 2, 3, 4],
            name=["a", "b", "c", "d"],
            blob=[b"", b"1", b"22", b"333"],
            boxes=[[1, 2], [], [3], [4, 5, 6]],
        )
    )

    kinds = {name: field["kind"] for name, field in fields.items()}
    assert kinds == {
        "image": "image",
        "mask": "mask",
        "other": "image",
        "many": "tensor",
        "vector": "tensor",
        "label": "tensor",
        "name": "text",
        "blob": "bytes",
        "boxes": "ragged",
    }
    assert fields["image"]["shape"] == [8, 9, 3]
    assert fields["mask"]["dtype"] == "uint16"
    assert fields["label"] | {"handle": 0} == {
        "name": "label",
        "kind": "tensor",
        "dtype": "int64",
        "shape": [],
        "handle": 0,
    }


def test_gray_images_have_one_channel():
    field = describe_fields(sources.Memory(image=np.zeros((2, 28, 28), np.uint8)))[
        "image"
    ]

    assert (field["kind"], field["shape"]) == ("image", [28, 28, 1])


def test_kinds_override_the_default():
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    fields = describe_fields(
        sources.Memory(x=[b"1", b"2"], y=pixels, kinds={"x": "image", "y": "tensor"})
    )

    assert (fields["x"]["kind"], fields["y"]["kind"]) == ("image", "tensor")


def test_an_array_is_not_copied():
    pixels = np.zeros((2, 4, 4, 3), np.uint8)

    (held,) = sources.Memory(image=pixels)._buffers()

    assert np.shares_memory(held, pixels)


def test_a_mapped_array_is_described_by_its_file_and_offset(tmp_path):
    pixels = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
    np.save(tmp_path / "x.npy", pixels)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")

    source = sources.Memory(image=mapped[2:5])

    field = describe_fields(source)["image"]
    assert source._buffers() == []
    assert field["path"] == str(tmp_path / "x.npy")
    assert field["records"] == 3
    raw = np.fromfile(field["path"], np.uint8, offset=field["offset"])
    assert (raw[: 3 * 60] == pixels[2:5].reshape(-1)).all()


def test_an_array_that_is_not_contiguous_is_copied_once_with_a_warning(caplog):
    pixels = np.arange(2 * 4 * 8 * 3, dtype=np.uint8).reshape(2, 4, 8, 3)[:, :, ::2]

    with caplog.at_level(logging.WARNING, logger="infeed"):
        (held,) = sources.Memory(image=pixels)._buffers()

    assert (held == pixels.reshape(-1)).all()
    assert [record.message.split(":")[0] for record in caplog.records] == ["image"]


def test_numbers_of_the_other_byte_order_are_converted():
    values = np.array([1, 2, 3], ">i4")

    source = sources.Memory(label=values)

    assert describe_fields(source)["label"]["dtype"] == "int32"
    assert source._buffers()[0].view(np.int32).tolist() == [1, 2, 3]


def test_ragged_fields_are_values_and_offsets():
    values, offsets = np.arange(5, dtype=np.float32), np.array([0, 2, 2, 5])

    held = sources.Memory(boxes=(values, offsets))._buffers()

    assert held[0].view(np.float32).tolist() == [0, 1, 2, 3, 4]
    assert held[1].view(np.uint64).tolist() == [0, 2, 2, 5]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "fields must be set"),
        ({"a": [1, 2], "b": [1]}, r"b must be as long as a \(2 records\), got 1"),
        ({"a": np.array(["x"])}, "a must hold numbers"),
        ({"a": np.array(3)}, "a must have one element per record"),
        ({"a": []}, "a must not be empty"),
        ({"a": 5}, "a must be a NumPy array or a list, got int"),
        ({"a": [b"x"], "kinds": {"a": "ragged"}}, 'a of kind "ragged"'),
        (
            {"a": [b"x"], "kinds": {"b": "image"}},
            "kinds must be a mapping",
        ),
        ({"a": np.zeros(3), "kinds": {"a": "image"}}, r"\[N, H, W, C\], got float64"),
        ({"a": (np.arange(3), np.array([0, 4]))}, "offsets that ascend from 0 to 3"),
        ({"a": [np.zeros((2, 2)), np.zeros(3)]}, r"must have items \[n\], or \[n, k\]"),
    ],
)
def test_values_that_cannot_be_a_field_raise_with_its_name(fields, named):
    with pytest.raises(ConfigError, match=named):
        sources.Memory(**fields)


def test_memory_is_equal_over_the_same_arrays_only():
    pixels = np.zeros((2, 4, 4, 3), np.uint8)

    assert sources.Memory(image=pixels) == sources.Memory(image=pixels)
    assert sources.Memory(image=pixels) != sources.Memory(image=pixels.copy())


def test_shards_are_the_code_that_makes_them_and_survive_a_description():
    field = sources.Field("cls", kind="tensor", dtype="int32")
    for source in (
        sources.WebDataset("train-{00..09}.tar"),
        sources.WebDataset(
            [Path("a.tar"), "b.tar"],
            fields={"image": "jpg;png", "label": field, "mask": None},
        ),
        sources.TFRecord(
            "train-*", {"box": sources.Field("b", "tensor", "float32", (4,))}
        ),
        sources.MDS("data"),
        sources.MDS(Path("data"), {"image": "x"}),
    ):
        assert eval(repr(source), {"sources": sources}) == source
        describe_fields = source._to_dict()
        assert sources.from_dict(describe_fields) == source
        assert json.loads(json.dumps(describe_fields)) == describe_fields
    assert sources.Field(dtype=np.float32).dtype == "float32"


def test_invalid_fields_of_shards_raise():
    with pytest.raises(ConfigError, match="shards must be a path or pattern"):
        sources.WebDataset([])
    with pytest.raises(ConfigError, match=r"fields\['image'\] must be a name"):
        sources.WebDataset("a.tar", {"image": 3})
    with pytest.raises(ConfigError, match="fields must be names, or a mapping"):
        sources.TFRecord("a", "image")
    with pytest.raises(ConfigError, match='kind must be one of "image"'):
        sources.Field("jpg", kind="picture")


def test_records_of_a_tar_are_delivered_in_batches(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for n in range(5):
            for extension, content in (("txt", f"text {n}"), ("cls", str(n))):
                member = tarfile.TarInfo(f"{n:03}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content.encode()))

    guessed = infeed.Pipeline(sources.WebDataset(path)).batch(5)
    (batch,) = guessed.open()
    assert batch["txt"] == [f"text {n}" for n in range(5)]
    assert batch["label"].tolist() == list(range(5))

    fields = {"n": sources.Field("cls", "tensor", "uint8"), "key": "__key__"}
    reported = infeed.Pipeline(sources.WebDataset([path], fields)).batch(5)
    (batch,) = reported.open()
    assert np.asarray(batch["n"]).dtype == np.uint8
    assert batch["key"] == [f"{n:03}" for n in range(5)]


def test_a_truncated_shard_raises_with_its_byte(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("0.txt")
        member.size = 10
        tar.addfile(member, io.BytesIO(b"0123456789"))
    path.write_bytes(path.read_bytes()[:600])

    with pytest.raises(infeed.errors.OpenError, match=r"a\.tar.*byte 0.*truncated"):
        infeed.Pipeline(sources.WebDataset(path)).open()


def test_a_feature_that_the_first_records_lack_is_warned_about_once(tmp_path, caplog):
    first = [tfrecord.example(name=b"x")] * 16
    late = [tfrecord.example(name=b"x", extra=b"y")] * 2
    with open(tmp_path / "a.tfrecord", "wb") as file:
        tfrecord.write(file, first + late)

    with caplog.at_level(logging.WARNING, "infeed"):
        for _ in infeed.Pipeline(sources.TFRecord(tmp_path / "a.tfrecord")).open():
            pass

    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("the feature `extra` is left out, because the first")


def test_a_mix_holds_each_source_by_its_weight_and_is_saved(tmp_path):
    low = sources.Memory(number=np.arange(40))
    high = sources.Memory(number=np.arange(100, 200))
    mixed = infeed.Pipeline(sources.Mix((low, 3), (high, 1), epoch=80)).shuffle(seed=1)

    with mixed.batch(80).open() as loader:
        (batch,) = loader
    assert (batch["number"] < 100).sum() == 60

    with infeed.Pipeline(sources.Mix(low, high)).batch(140).open() as loader:
        (batch,) = loader
    assert sorted(batch["number"]) == [*range(40), *range(100, 200)]

    files = sources.Mix((sources.Folder("a"), 0.5), (sources.Folder("b"), 2.0))
    assert eval(repr(files), {"sources": sources}) == files
    pipeline = infeed.Pipeline(files).shuffle(seed=1, window="1 GiB")
    pipeline.save(tmp_path / "mix.toml")
    assert infeed.Pipeline.load(tmp_path / "mix.toml") == pipeline


@pytest.mark.parametrize(
    "parts", [(), ("photos",), ((sources.Folder("a"), 1.0), sources.Folder("b"))]
)
def test_an_invalid_mix_raises(parts):
    with pytest.raises(infeed.errors.ConfigError, match="Mix"):
        sources.Mix(*parts)


def test_the_budget_of_images_in_memory_fits_those_of_each_pipeline():
    for side in (16, 4000):
        file = io.BytesIO()
        Image.new("RGB", (side, side)).save(file, "JPEG")
        source = sources.Memory(image=[file.getvalue()] * 2)
        pipeline = infeed.Pipeline(source).decode().batch(1, pad=True)

        with pipeline.open() as loader:
            shapes = [batch["image"].shape for batch in loader]

        assert shapes == [(1, side, side, 3)] * 2


def image_files(folder, count=6):
    """Returns the paths of images in two folders, whose values are their numbers."""
    paths = []
    for number in range(count):
        path = folder / f"part {number % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(path)
        paths.append(path)
    return paths


def test_a_list_of_paths_is_read_with_its_columns(tmp_path):
    paths = image_files(tmp_path)
    source = sources.Memory(
        image=[*map(str, paths[:3]), *paths[3:]],
        label=np.arange(6),
        boxes=[np.zeros(4 * (number % 3), np.float32) for number in range(6)],
        kinds={"image": "image"},
    )
    pipeline = infeed.Pipeline(source).shuffle(seed=3).decode().batch(6, pad=True)

    with pipeline.open() as loader:
        batch = next(iter(loader))

    np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["label"])
    assert sorted(batch["label"]) == list(range(6))
    counts = np.diff(batch["boxes"][1].astype(int)) // 4
    np.testing.assert_array_equal(counts, batch["label"] % 3)


def test_a_missing_file_of_a_list_is_a_bad_record_with_its_name(tmp_path):
    paths = image_files(tmp_path)
    paths[4].unlink()
    source = sources.Memory(image=paths, kinds={"image": "image"})
    pipeline = infeed.Pipeline(source).decode().batch(1, pad=True)

    with pipeline.open(on_error="skip") as loader:
        rows = sum(len(batch["image"]) for batch in loader)
        (bad,) = loader.bad_records

    assert rows == 5
    assert bad.name == str(paths[4])
    assert "there is no file" in bad.reason


def test_two_fields_may_be_lists_of_paths(tmp_path):
    paths = image_files(tmp_path)
    source = sources.Memory(
        image=paths, mask=paths[::-1], kinds={"image": "image", "mask": "image"}
    )

    with infeed.Pipeline(source).decode().batch(6, pad=True).open() as loader:
        batch = next(iter(loader))

    np.testing.assert_array_equal(batch["image"], batch["mask"][::-1])


def test_lists_of_other_files_have_another_fingerprint(tmp_path):
    paths = image_files(tmp_path)

    def state(given):
        source = sources.Memory(image=given, kinds={"image": "image"})
        with infeed.Pipeline(source).decode().batch(2, pad=True).open() as loader:
            return loader.state_dict()

    assert state(paths) == state(paths)
    assert state(paths) != state(paths[::-1])
