"""Order and random draws depend on the seed alone."""

import json
import subprocess
import sys

import numpy as np
import pytest
from test_examples import classification_pipeline

import infeed
from infeed import _core, sources
from infeed.errors import ConfigError

PRINT_ORDER = """
import sys, infeed
pipeline = infeed.Pipeline.load(sys.argv[1])
print([[r for b in pipeline for r, _ in b.records] for _ in range(2)])
"""


def epochs(pipeline, count: int = 2, **options) -> list[np.ndarray]:
    """Returns all images of some epochs, one array per epoch."""
    with pipeline.open(**options) as loader:
        return [
            np.concatenate([batch["image"].copy() for batch in loader])
            for _ in range(count)
        ]


def order(loader) -> list[int]:
    return [record for batch in loader for record, _ in batch.records]


@pytest.mark.parametrize("workers", [2, 7])
def test_any_number_of_workers_gives_the_same_bits(classification, workers):
    pipeline = classification_pipeline(classification)

    one = epochs(pipeline, workers=1)
    many = epochs(pipeline, workers=workers)

    for a, b in zip(one, many, strict=True):
        assert a.tobytes() == b.tobytes()


def test_epochs_differ_and_each_has_every_record_once(classification):
    pipeline = classification_pipeline(classification).batch(7)

    with pipeline.open() as loader:
        first, second = order(loader), order(loader)

    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second


def test_the_order_is_the_same_in_another_process(classification, tmp_path):
    pipeline = classification_pipeline(classification)
    pipeline.save(tmp_path / "pipeline.toml")

    command = [sys.executable, "-c", PRINT_ORDER, tmp_path / "pipeline.toml"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with pipeline.open() as loader:
        assert json.loads(printed) == [order(loader), order(loader)]


def test_another_seed_is_another_order(classification):
    pipeline = classification_pipeline(classification)

    with pipeline.open() as a, pipeline.shuffle(seed=1).open() as b:
        assert order(a) != order(b)


def test_without_shuffle_records_keep_the_order_of_the_source(segmentation):
    pipeline = infeed.Pipeline(
        sources.Pairs(image=segmentation.image, mask=segmentation.mask)
    )

    assert order(pipeline.decode(mask="rgb").batch(4, pad=True)) == list(range(10))


def test_ranks_divide_each_global_batch(classification):
    pipeline = classification_pipeline(classification)

    with pipeline.open() as loader:
        whole = [[record for record, _ in batch.records] for batch in loader]
    parts = []
    for rank in range(2):
        with pipeline.open(rank=rank, world_size=2) as loader:
            parts.append([[record for record, _ in b.records] for b in loader])

    assert [a + b for a, b in zip(*parts, strict=True)] == whole


def test_a_batch_per_rank_is_the_same_as_its_global_batch(classification):
    pipeline = classification_pipeline(classification)

    with (
        pipeline.batch(per_rank=4, drop_last=True).open(rank=1, world_size=2) as a,
        pipeline.batch(8, drop_last=True).open(rank=1, world_size=2) as b,
    ):
        assert order(a) == order(b)


@pytest.mark.parametrize("count", [9, 5000])
def test_the_order_is_available_without_reading(count):
    pipeline = infeed.Pipeline(sources.Memory(x=list(range(count)))).batch(count)

    for seed, described in ((None, pipeline), (7, pipeline.shuffle(seed=7))):
        with described.open() as loader:
            for epoch in range(2):
                reported = _core.order(count, seed, epoch, 0, count)
                assert reported == order(loader)
                assert _core.order(count, seed, epoch, 3, 5) == reported[3:5]


def test_positions_outside_an_epoch_raise():
    for begin, end in ((0, 10), (4, 3)):
        with pytest.raises(
            ValueError, match=f"{begin} to {end} are outside of the dataset"
        ):
            _core.order(9, 1, 0, begin, end)


def images_of(batch) -> np.ndarray:
    return np.from_dlpack(batch["image"]).copy()


CHOSEN = [7, 7, 0, 29, 3, 11, 2]


@pytest.mark.parametrize("device", [None, "sim"])
def test_a_program_chooses_the_records_of_each_epoch(classification, device):
    pipeline = classification_pipeline(classification).batch(3)
    options = {"epoch_records": len(CHOSEN), "device": device}

    def read(epoch, records, step=0):
        loader.begin_epoch(epoch, records, step)
        found = [
            ([record for record, _ in batch.records], images_of(batch))
            for batch in loader
        ]
        return [one for one, _ in found], np.concatenate([one for _, one in found])

    with pipeline.open(**options) as loader:
        assert len(loader) == 3
        with pytest.raises(ConfigError, match="records of epoch 0 are not chosen"):
            next(iter(loader))
        first, images = read(5, CHOSEN)
        other, _ = read(2, np.array(CHOSEN[::-1]))
        with pytest.raises(ConfigError, match="records of epoch 3 are not chosen"):
            next(iter(loader))
        again, same = read(5, CHOSEN)
        rest, end = read(5, CHOSEN, step=1)
        _, others = read(6, CHOSEN)

    assert first == again == [[7, 7, 0], [29, 3, 11], [2]]
    assert other == [[2, 11, 3], [29, 0, 7], [7]]
    assert rest == first[1:]
    assert images.tobytes() == same.tobytes()
    assert images[3:].tobytes() == end.tobytes()
    assert images.tobytes() != others.tobytes(), "draws belong to the epoch"
    assert not np.array_equal(images[0], images[1]), "draws belong to the position"


def test_a_loop_over_chosen_records_may_end_early_and_seek(classification):
    pipeline = classification_pipeline(classification).batch(3)
    with pipeline.open(epoch_records=len(CHOSEN)) as loader:
        loader.begin_epoch(0, CHOSEN)
        next(iter(loader))
        loader.begin_epoch(1, CHOSEN)
        assert order(loader) == CHOSEN
        loader.seek(1, 2)
        assert order(loader) == CHOSEN[6:]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((0, CHOSEN[1:]), "an epoch has 7 records, got 6"),
        ((0, [30, *CHOSEN[1:]]), "record 30 is not in the source, which has 30"),
        ((0, [-1, *CHOSEN[1:]]), "records must be a list"),
        ((0, ["a", *CHOSEN[1:]]), "records must be a list"),
        ((0, CHOSEN, 3), "epoch 0 has no step 3"),
        ((2**32, CHOSEN), r"epoch must be below 2\*\*32"),
    ],
)
def test_records_that_cannot_be_chosen_are_named(classification, arguments, problem):
    pipeline = classification_pipeline(classification).batch(3)
    with pipeline.open(epoch_records=len(CHOSEN)) as loader:
        with pytest.raises(ConfigError, match=problem):
            loader.begin_epoch(*arguments)
        loader.begin_epoch(0, CHOSEN)
        assert order(loader) == CHOSEN


def test_only_a_loader_for_it_takes_chosen_records(classification):
    pipeline = classification_pipeline(classification)
    with (
        pipeline.open() as loader,
        pytest.raises(ConfigError, match="its own order; open it with epoch_records"),
    ):
        loader.begin_epoch(0, CHOSEN)
    for other, name in [
        (pipeline.weights([1.0] * 30), "weights"),
        (pipeline.repeat(2), "repeat"),
    ]:
        with pytest.raises(ConfigError, match=f"there are no {name}"):
            other.open(epoch_records=3)
    with pytest.raises(ConfigError, match="epoch_records"):
        pipeline.open(epoch_records=0)
