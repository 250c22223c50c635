"""Batches of records of one group."""

import numpy as np
import pytest

import infeed
from infeed import sources

RECORDS = 103
GROUPS = np.array([10, -3, 10, 7])[np.arange(RECORDS) % 4]
BATCH = 8


def numbered_records(groups=GROUPS) -> infeed.Pipeline:
    source = sources.Memory(number=np.arange(RECORDS))
    return infeed.Pipeline(source).shuffle(seed=3).batch_groups(groups).batch(BATCH)


def epoch(pipeline, **options):
    with pipeline.open(**options) as loader:
        return [np.array(batch["number"]) for batch in loader]


def test_batches_have_one_group_until_the_last_ones_and_nothing_is_lost():
    batches = epoch(numbered_records())

    assert sorted(np.concatenate(batches)) == list(range(RECORDS))
    uniform = [len(set(GROUPS[batch])) == 1 for batch in batches]
    assert all(uniform[:10])
    assert sum(uniform) < len(batches)


def test_the_number_of_workers_changes_nothing_and_a_run_resumes_in_the_middle():
    whole = epoch(numbered_records(), workers=1)

    with numbered_records().open(workers=2) as loader:
        batches = iter(loader)
        first = [np.array(next(batches)["number"]) for _ in range(5)]
        state = loader.state_dict()
    with numbered_records().open(workers=2) as loader:
        loader.load_state_dict(state)
        rest = [np.array(batch["number"]) for batch in loader]

    np.testing.assert_array_equal(np.concatenate(whole), np.concatenate(first + rest))


def test_a_state_of_other_groups_is_rejected():
    with numbered_records().open() as loader:
        next(iter(loader))
        state = loader.state_dict()

    with (
        numbered_records(np.arange(RECORDS) % 2).open() as loader,
        pytest.raises(infeed.errors.ConfigError, match="belongs to another run"),
    ):
        loader.load_state_dict(state)


def test_all_ranks_have_the_same_group_in_a_step():
    pipeline = numbered_records().batch(BATCH, tail="wrap")
    ranks = [epoch(pipeline, rank=rank, world_size=2) for rank in range(2)]

    for one, other in list(zip(*ranks, strict=True))[:10]:
        assert len(one) == len(other) == BATCH // 2
        assert len(set(GROUPS[np.concatenate([one, other])])) == 1


def test_groups_of_a_file_are_saved_and_those_in_memory_are_not(tmp_path):
    np.save(tmp_path / "number.npy", np.arange(RECORDS))
    np.save(tmp_path / "groups.npy", GROUPS.astype(np.int64))
    number, groups = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        for name in ("number", "groups")
    )
    pipeline = infeed.Pipeline(sources.Memory(number=number)).shuffle(seed=3)
    saved = pipeline.batch_groups(groups).batch(BATCH)

    saved.save(tmp_path / "pipeline.toml")

    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")
    np.testing.assert_array_equal(
        np.concatenate(epoch(loaded)), np.concatenate(epoch(numbered_records()))
    )
    assert ".batch_groups(" in repr(loaded)
    with pytest.raises(infeed.errors.ConfigError, match=r"np\.save"):
        pipeline.batch_groups(GROUPS).save(tmp_path / "other.toml")


def test_selected_records_keep_their_groups():
    first = numbered_records().take(40)

    batches = epoch(first)

    assert sorted(np.concatenate(batches)) == list(range(40))
    assert all(len(set(GROUPS[batch])) == 1 for batch in batches[:3])


def test_wrong_groups_name_the_fix(tmp_path):
    pipeline = infeed.Pipeline(sources.Memory(number=np.arange(RECORDS))).shuffle(0)
    with pytest.raises(infeed.errors.ConfigError, match="one integer per record"):
        pipeline.batch_groups([0.5] * RECORDS)
    with pytest.raises(infeed.errors.ConfigError, match="7 numbers for 103 records"):
        pipeline.batch_groups([1] * 7).batch(8).open()
    with pytest.raises(infeed.errors.ConfigError, match=r"\.batch\(n\)"):
        pipeline.batch_groups(GROUPS).batch(per_rank=4).open()


def test_shards_need_a_shuffle_of_all_records(tmp_path):
    pipeline = infeed.Pipeline(sources.Memory(number=np.arange(RECORDS)))
    infeed.pack(pipeline, tmp_path / "tar", to="webdataset")
    packed = infeed.Pipeline.load(tmp_path / "tar" / "pipeline.toml")
    grouped = packed.batch_groups(GROUPS).batch(BATCH)

    with pytest.raises(infeed.errors.ConfigError, match='window="all"'):
        grouped.shuffle(seed=0).open()

    batches = epoch(grouped.shuffle(seed=0, window="all"))
    assert all(len(set(GROUPS[batch])) == 1 for batch in batches[:10])
