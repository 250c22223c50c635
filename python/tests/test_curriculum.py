"""Selection of records: filter, split, take, weights, repeat."""

import json
import pickle
from collections import Counter

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.errors import ConfigError

NAMES = {"infeed": infeed, "sources": sources, "T": T}


def numbers(count: int) -> infeed.Pipeline:
    """Numbers in memory, every third of class 1."""
    label = (np.arange(count) % 3 == 0).astype(np.int64)
    return infeed.Pipeline(sources.Memory(x=np.arange(count), label=label)).batch(4)


def photos(classification) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Folder(classification.path))
        .decode()
        .transform(T.Resize((16, 16)))
        .batch(4)
    )


def records_of(pipeline: infeed.Pipeline, **options) -> list[int]:
    """Returns the record numbers of an epoch."""
    with pipeline.open(**options) as loader:
        return [record for batch in loader for record, _ in batch.records]


def test_parts_of_a_split_are_disjoint_and_complete(classification):
    train, val, test = photos(classification).shuffle(1).split((0.7, 0.2, 0.1), seed=5)

    parts = [records_of(part) for part in (train, val, test)]

    assert [len(part) for part in parts] == [21, 6, 3]
    assert sorted(r for part in parts for r in part) == list(range(30))
    same = photos(classification).split((0.7, 0.2, 0.1), seed=5)[1]
    assert sorted(parts[1]) == records_of(same)


def test_a_filter_keeps_classes_and_names(classification):
    pipeline = photos(classification)

    assert records_of(pipeline.filter(label="bee")) == list(range(10, 20))
    assert records_of(pipeline.filter(label=["bee", 2])) == list(range(10, 30))
    assert records_of(pipeline.filter(not_label=(0, "bee"))) == list(range(20, 30))
    assert records_of(pipeline.filter(name="*/00[12].jpg")) == [1, 2, 11, 12, 21, 22]
    both = pipeline.filter(name="00[12].jpg", not_name="cat/*").filter(not_label=0)
    assert records_of(both) == [11, 12]


def test_records_keep_their_numbers_and_names(classification):
    with photos(classification).filter(label="cat").open() as loader:
        for record, name in next(iter(loader)).records:
            assert name == str(classification.files[record][0])


def test_weights_are_exact_by_class_and_by_record(classification):
    pipeline = photos(classification).shuffle(3)

    counts = Counter(
        record // 10
        for record in records_of(pipeline.weights({"ant": 4, 1: 0}, epoch=50))
    )
    assert counts == {0: 40, 2: 10}
    counts = Counter(records_of(numbers(30).weights("balanced", epoch=60).shuffle(0)))
    assert all(counts[record] == 3 for record in range(0, 30, 3))
    assert sum(counts.values()) == 60
    wanted = [0, 1, 3, 2, 0, 1]
    counts = Counter(records_of(numbers(6).weights(wanted, epoch=7).shuffle(9)))
    assert counts == {1: 1, 2: 3, 3: 2, 5: 1}


def test_weights_refer_to_the_source_for_any_selection():
    weights = np.zeros(30)
    weights[[4, 7, 21]] = 1, 1, 2
    pipeline = numbers(30).weights(weights, epoch=6)

    for epoch in (pipeline, pipeline.filter(not_label=1), pipeline.take(8)):
        kept = {record: weights[record] for record in records_of(epoch)}
        assert set(kept) <= {4, 7, 21}
    assert Counter(records_of(pipeline.filter(not_label=1))) == {4: 3, 7: 3}
    assert Counter(records_of(pipeline.take(8))) == {4: 3, 7: 3}


def test_an_epoch_of_two_passes_equals_two_epochs():
    pipeline = numbers(10).shuffle(2)
    with pipeline.open() as loader:
        epochs = [[r for b in loader for r, _ in b.records] for _ in range(4)]

    with pipeline.repeat(2).open() as loader:
        passes = [[r for b in loader for r, _ in b.records] for _ in range(2)]

    assert passes == [epochs[0] + epochs[1], epochs[2] + epochs[3]]
    assert len(numbers(10).repeat(2).open()) == 5


def curriculum(classification) -> infeed.Pipeline:
    train, _ = photos(classification).filter(not_name="005.jpg").split((0.8, 0.2))
    return train.take(20).weights({"bee": 3.0}).repeat(2).shuffle(4).batch(4)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_run_continues_in_the_middle_of_a_curriculum(classification, workers):
    pipeline = curriculum(classification)
    with pipeline.open(workers=2) as loader:
        whole = [batch["image"].tobytes() for _ in range(2) for batch in loader]

    loader = pipeline.open(workers=3)
    batches = iter(loader)
    assert [next(batches)["image"].tobytes() for _ in range(7)] == whole[:7]
    state = json.dumps(loader.state_dict())
    loader.close()

    assert len(state) < 300
    with pipeline.open(workers=workers) as again:
        again.load_state_dict(json.loads(state))
        rest = [batch["image"].tobytes() for _ in range(2) for batch in again]
    assert rest == whole[7:]


def test_ranks_divide_a_curriculum(classification):
    pipeline = curriculum(classification)
    ranks = [records_of(pipeline, rank=rank, world_size=2) for rank in range(2)]

    steps = [list(zip(*[iter(rank)] * 2, strict=True)) for rank in ranks]
    together = [r for step in zip(*steps, strict=True) for part in step for r in part]

    assert together == records_of(pipeline)


def test_a_state_of_another_selection_raises(classification):
    pipeline = curriculum(classification)
    state = pipeline.open().state_dict()
    kept = photos(classification).filter(not_name="005.jpg")
    other = kept.split((0.8, 0.2), seed=1)[0].take(20).weights({"bee": 3.0})

    for changed, what in (
        (other.repeat(2).shuffle(4), "filter, split, take"),
        (pipeline.weights({"bee": 2.0}), "boxes, weights, repeat"),
        (pipeline.repeat(3), "records is 60, was 40"),
    ):
        with pytest.raises(ConfigError, match=what):
            changed.open().load_state_dict(state)


def test_the_plan_shows_the_selection(classification):
    plan = curriculum(classification).explain()

    assert plan.startswith("records: 20 of 30\n  filter     not name 005.jpg\n")
    assert "epoch: 40 positions\n  weights    bee 3, others 1\n" in plan
    with curriculum(classification).open() as loader:
        next(iter(loader))
        explanation = loader.explain()
    assert explanation.to_dict()["plan"] == plan
    assert (
        "records: 20 of 30; filter not name 005.jpg"
        in explanation.to_dict()["notes"][0]
    )


def test_a_selection_is_printed_saved_and_pickled(classification, tmp_path):
    pipeline = curriculum(classification)

    assert eval(repr(pipeline), NAMES) == pipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    pipeline.save(tmp_path / "pipeline.toml")
    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline
    balanced = photos(classification).weights("balanced", epoch=9)
    assert eval(repr(balanced), NAMES) == balanced


def test_a_mapped_array_of_weights_is_saved_and_one_in_memory_is_not(
    classification, tmp_path
):
    weights = np.linspace(0, 1, 30)
    pipeline = photos(classification).shuffle(1)
    with pytest.raises(ConfigError, match=r"weights.*np\.save"):
        pipeline.weights(weights).save(tmp_path / "pipeline.toml")

    np.save(tmp_path / "weights.npy", weights)
    mapped = pipeline.weights(np.load(tmp_path / "weights.npy", mmap_mode="r"))
    mapped.save(tmp_path / "pipeline.toml")

    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")
    assert loaded == mapped
    assert records_of(loaded) == records_of(pipeline.weights(weights))


def test_packing_writes_the_selected_records(classification, tmp_path):
    packed = infeed.pack(curriculum(classification), tmp_path / "packed", to="folder")

    assert packed.records == 20
    with packed.pipeline.open() as loader:
        assert sum(len(batch.records) for batch in loader) == 40


def test_an_order_of_calls_with_another_meaning_raises():
    train, val = numbers(20).split((0.5, 0.5))
    for call, fix in (
        (lambda: train.filter(label=1), "before .split"),
        (lambda: numbers(20).take(5).filter(label=1), "before .split and .take"),
        (lambda: numbers(20).take(5).split((0.5, 0.5)), "before .take"),
        (lambda: val.split((0.5, 0.5)), "all shares at once"),
    ):
        with pytest.raises(ConfigError, match=fix):
            call()
    # The others mean the same in any order.
    one = numbers(20).shuffle(0).repeat(2).weights([1.0] * 20).take(7)
    other = numbers(20).take(7).weights([1.0] * 20).repeat(2).shuffle(0)
    assert records_of(one) == records_of(other)
    assert records_of(numbers(20).take(3).take(9)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda p: p.filter(), "filter: label must be set"),
        (lambda p: p.filter(label=[]), "filter: label"),
        (lambda p: p.filter(label=1.5), "filter: label"),
        (lambda p: p.filter(name=3), "filter: name"),
        (lambda p: p.split((0.9, 0.2)), "split: shares"),
        (lambda p: p.split((1.0, 0.0)), "split: shares"),
        (lambda p: p.split(0.9), "split: shares"),
        (lambda p: p.split((0.5, 0.5), seed=-1), "split: seed"),
        (lambda p: p.take(0), "take: records"),
        (lambda p: p.repeat(0), "repeat: passes"),
        (lambda p: p.weights("balance"), "weights: weights must be"),
        (lambda p: p.weights({}), "weights: weights must be"),
        (lambda p: p.weights({"cat": -1.0}), "weight of 'cat'"),
        (lambda p: p.weights(np.ones((3, 2))), "weights: weights must be"),
        (lambda p: p.weights(["a"]), "weights: weights must be"),
        (lambda p: p.weights([1.0], epoch=0), "weights: epoch"),
    ],
)
def test_invalid_selections_raise_at_the_call(call, part):
    with pytest.raises(ConfigError, match=part):
        call(numbers(10))


@pytest.mark.parametrize(
    ("selected", "part"),
    [
        (lambda p: p.filter(label="cat"), "no class names"),
        (lambda p: p.filter(name="*.jpg"), "no names"),
        (lambda p: p.filter(shard="*"), "not in shards"),
        (lambda p: p.filter(label=7), "none of 10 records"),
        (lambda p: p.weights([1.0] * 9), "9 numbers for 10 records"),
        (lambda p: p.weights([1.0] * 9 + [-1.0]), "has the weight -1"),
        (lambda p: p.weights([0.0] * 10), "all weights are zero"),
    ],
)
def test_conditions_that_a_source_cannot_check_raise_at_open(selected, part):
    with pytest.raises(ConfigError, match=part):
        selected(numbers(10)).open()
