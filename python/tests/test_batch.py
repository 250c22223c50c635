"""Batches: unpacking, names, shared memory that stays valid."""

import gc

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T


@pytest.fixture
def batch() -> infeed.Batch:
    """One batch with every kind of field."""
    pipeline = infeed.Pipeline(
        sources.Memory(
            image=np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3),
            mask=np.arange(2 * 4 * 5, dtype=np.uint16).reshape(2, 4, 5),
            vector=np.arange(6, dtype=np.float64).reshape(2, 3),
            label=[7, -8],
            flag=[True, False],
            text=["grün", ""],
            blob=[b"\x00\xff", b"abc"],
            boxes=[[1.5], [2.5, 3.5]],
        )
    ).batch(2)
    (only,) = pipeline
    return only


def test_a_batch_unpacks_in_field_order_and_indexes_by_name(batch):
    image, *_, boxes = batch

    assert batch.keys() == (
        "image",
        "mask",
        "vector",
        "label",
        "flag",
        "text",
        "blob",
        "boxes",
    )
    assert image is not batch["image"]
    assert (image == batch["image"]).all()
    assert boxes[0].tolist() == batch["boxes"][0].tolist()
    assert len(batch) == 8
    assert batch.rows == 2
    assert "label" in batch
    assert "labels" not in batch
    assert [name for name, _ in batch.items()] == list(batch.keys())


def test_every_kind_of_field_keeps_its_values(batch):
    assert batch["image"].dtype == np.uint8
    assert batch["image"].reshape(-1).tolist() == list(range(120))
    assert batch["mask"].dtype == np.uint16
    assert batch["mask"].shape == (2, 4, 5)
    assert batch["vector"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch["label"].tolist() == [7, -8]
    assert batch["flag"].dtype == bool
    assert batch["flag"].tolist() == [True, False]
    assert batch["text"] == ["grün", ""]
    assert batch["blob"] == [b"\x00\xff", b"abc"]
    values, offsets = batch["boxes"]
    assert values.tolist() == [1.5, 2.5, 3.5]
    assert (offsets.dtype, offsets.tolist()) == (np.int64, [0, 1, 3])


def test_an_unknown_field_is_a_key_error(batch):
    with pytest.raises(KeyError, match="labels"):
        batch["labels"]


def test_a_batch_names_the_records_of_its_rows(batch):
    assert [record for record, _ in batch.records] == [0, 1]


def test_arrays_share_the_memory_of_the_batch(batch):
    assert np.shares_memory(batch["image"], batch["image"])
    assert np.shares_memory(np.from_dlpack(batch.array("image")), batch["image"])


def test_arrays_can_be_written_to(batch):
    batch["vector"][:] = 1

    assert batch["vector"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_dlpack_carries_type_and_shape(batch):
    for name in ("image", "mask", "vector", "label", "flag"):
        taken = np.from_dlpack(batch.array(name))
        assert taken.dtype == batch[name].dtype
        assert (taken == batch[name]).all()
    assert batch.array("image").__dlpack_device__() == (1, 0)


def test_dlpack_rejects_another_device_and_a_copy(batch):
    with pytest.raises(BufferError):
        batch.array("image").__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        batch.array("image").__dlpack__(copy=True)


def test_an_unused_capsule_frees_its_memory(batch):
    for version in (None, (1, 0)):
        batch.array("image").__dlpack__(max_version=version)
    gc.collect()


def test_list_fields_are_not_arrays(batch):
    for name in ("text", "blob", "boxes"):
        with pytest.raises(TypeError, match=name):
            batch.array(name)


def test_arrays_outlive_batch_loader_and_pipeline():
    values = np.arange(64 * 64, dtype=np.int32).reshape(64, 64)
    pipeline = infeed.Pipeline(sources.Memory(x=values)).batch(64)
    loader = pipeline.open()
    (array,) = [batch["x"] for batch in loader]

    loader.close()
    del loader, pipeline
    gc.collect()

    assert (array == values).all()


def test_bfloat16_is_exported_through_dlpack_or_ml_dtypes():
    pipeline = (
        infeed.Pipeline(sources.Memory(image=np.full((2, 4, 4, 3), 255, np.uint8)))
        .transform(T.ToFloat(), dtype="bfloat16")
        .batch(2)
    )
    (batch,) = pipeline

    assert batch.array("image").dtype == "bfloat16"
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(TypeError, match="ml_dtypes"):
            batch["image"]
    else:
        assert (batch["image"].astype(np.float32) == 1).all()
    bits = np.asarray(batch.array("image")).view(np.uint16)
    assert (bits == 0x3F80).all()


def test_float16_is_the_nearest_to_float32():
    image = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    pipeline = infeed.Pipeline(sources.Memory(image=image)).transform(T.ToFloat())

    (single,) = pipeline.batch(2)
    (half,) = pipeline.transform(dtype="float16").batch(2)

    assert (half["image"] == single["image"].astype(np.float16)).all()
