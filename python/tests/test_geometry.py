"""Coordinates next to images: transforms do not move them and report that."""

import logging

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T

SIZE = (12, 16)


def memory(**fields):
    images = np.zeros((4, *SIZE, 3), np.uint8)
    return sources.Memory(image=images, **fields)


def items(**fields):
    class Dataset:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            image = np.zeros((*SIZE, 3), np.uint8)
            return {"image": image} | {name: of[index] for name, of in fields.items()}

    return sources.Items(Dataset())


BOXES = np.ones((4, 7, 4), np.float32)
MOVES = [
    T.Resize((8, 8)),
    T.RandomHorizontalFlip(p=0.0),
    T.RandomCrop(8),
    T.CenterCrop(8),
]


@pytest.mark.parametrize("source", [memory, items])
@pytest.mark.parametrize("step", MOVES, ids=lambda step: type(step).__name__)
def test_boxes_next_to_a_transform_that_moves_pixels_are_an_error(source, step):
    pipeline = infeed.Pipeline(source(boxes=BOXES)).transform(step)

    with pytest.raises(infeed.errors.ConfigError) as caught:
        pipeline.open()

    message = str(caught.value)
    assert type(step).__name__ in message
    assert "`boxes`" in message
    assert 'keep=("boxes",)' in message


def test_kept_fields_do_not_change(tmp_path):
    pipeline = infeed.Pipeline(memory(boxes=BOXES)).transform(
        T.Resize((8, 8)), keep=("boxes",)
    )

    with pipeline.open() as loader:
        batch = next(iter(loader))

    assert batch["image"].shape == (1, 8, 8, 3)
    np.testing.assert_array_equal(batch["boxes"], BOXES[:1])


def test_keep_is_part_of_the_description(tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((4, *SIZE, 3), np.uint8))
    np.save(tmp_path / "boxes.npy", BOXES)
    source = sources.Memory(
        image=np.load(tmp_path / "image.npy", mmap_mode="r"),
        boxes=np.load(tmp_path / "boxes.npy", mmap_mode="r"),
    )
    pipeline = infeed.Pipeline(source).transform(T.Resize((8, 8)), keep=["boxes"])

    pipeline.save(tmp_path / "pipeline.toml")
    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")

    assert 'keep=("boxes",)' in repr(pipeline)
    assert loaded.shapes["boxes"].shape == (1, 7, 4)
    with pytest.raises(infeed.errors.ConfigError, match="boxes"):
        infeed.Pipeline(source).transform(T.Resize((8, 8))).shapes  # noqa: B018


def test_colours_may_change_next_to_boxes():
    pipeline = infeed.Pipeline(memory(boxes=BOXES)).transform(T.ColorJitter(0.5))

    assert pipeline.fields == ("image", "boxes")


def test_lists_of_numbers_are_coordinates_by_their_name():
    ragged = {"polygon": [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [], [5.0, 6.0]]}

    with pytest.raises(infeed.errors.ConfigError, match="`polygon`"):
        infeed.Pipeline(memory(**ragged)).transform(T.Resize((8, 8))).open()


def test_coordinates_recognised_by_shape_alone_are_one_warning(caplog):
    pose = np.ones((4, 17, 2), np.float32)
    pipeline = infeed.Pipeline(memory(pose_of_this_test=pose)).transform(
        T.Resize((8, 8))
    )

    with caplog.at_level(logging.WARNING, "infeed"):
        for _ in range(2):
            pipeline.open().close()
        pipeline.transform(keep=["pose_of_this_test"]).open().close()

    reported = [r.getMessage() for r in caplog.records if "pose_of" in r.getMessage()]
    assert len(reported) == 1
    assert 'keep=("pose_of_this_test",)' in reported[0]


def test_an_unknown_field_to_keep_raises_with_its_name():
    with pytest.raises(infeed.errors.ConfigError, match=r"no field `box`.*boxes"):
        infeed.Pipeline(memory(boxes=BOXES)).transform(keep=["box"]).open()
    with pytest.raises(infeed.errors.ConfigError, match="keep must be a list"):
        infeed.Pipeline(memory(boxes=BOXES)).transform(keep="boxes")


def test_packing_moves_no_boxes_either(tmp_path):
    pipeline = infeed.Pipeline(memory(boxes=BOXES))

    with pytest.raises(infeed.errors.ConfigError, match="`boxes`"):
        infeed.pack(pipeline, tmp_path / "a", to="arrays", fit=8)

    kept = pipeline.transform(keep=["boxes"])
    packed = infeed.pack(kept, tmp_path / "b", to="arrays", fit=8)
    assert packed.records == 4
