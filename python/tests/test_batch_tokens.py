"""Batches with a limited number of tokens."""

import numpy as np
import pytest
from feeding import TOKEN, feeding, wait_for_feeders

import infeed
from infeed import sources

RECORDS = 103
LENGTHS = 1 + np.arange(RECORDS) * 7 % 32
TOKENS = 64


def texts(**options) -> infeed.Pipeline:
    """Records with `length` times their own number."""
    rows = [np.full(length, number) for number, length in enumerate(LENGTHS)]
    source = sources.Memory(number=np.arange(RECORDS), token=rows)
    options = {"max_tokens": TOKENS, "lengths": LENGTHS, "ragged": "pad"} | options
    return infeed.Pipeline(source).shuffle(seed=3).batch(**options)


def epoch(pipeline, **options):
    with pipeline.open(**options) as loader:
        return [np.array(batch["number"]) for batch in loader]


def test_batches_are_within_the_limit_and_nothing_is_lost():
    with texts().open(workers=2) as loader:
        sizes = []
        for _ in range(3):
            seen = []
            for batch in loader:
                number, token = batch["number"], batch["token"]
                assert token.size <= TOKENS
                assert token.shape == (len(number), LENGTHS[number].max())
                np.testing.assert_array_equal(batch["token_count"], LENGTHS[number])
                assert (token.sum(1) == number * LENGTHS[number]).all()
                seen.extend(number)
                sizes.append(len(number))
            assert sorted(seen) == list(range(RECORDS))
        steps = len(loader)
    assert sizes == sizes[:steps] * 3
    assert len(set(sizes)) > 4


def test_the_rows_of_a_column_are_not_known_before():
    assert texts(size=9).shapes["number"].shape == (None,)


def test_short_records_fill_more_of_a_batch_than_with_one_size():
    def waste(pipeline):
        with pipeline.open() as loader:
            batches = [batch["token"].size for batch in loader]
        return sum(batches) / LENGTHS.sum()

    equal = waste(texts(size=4, max_tokens=None, lengths=None))
    assert waste(texts()) < 1.2 < 1.4 < equal


def test_the_number_of_workers_changes_nothing_and_a_run_resumes_at_any_step():
    whole = epoch(texts(), workers=1)
    for steps in (1, 5, len(whole) - 1, len(whole)):
        with texts().open(workers=2) as loader:
            batches = iter(loader)
            first = [np.array(next(batches)["number"]) for _ in range(steps)]
            state = loader.state_dict()
        with texts().open(workers=3) as loader:
            loader.load_state_dict(state)
            rest = [np.array(batch["number"]) for batch in loader]
        if steps < len(whole):
            np.testing.assert_array_equal(
                np.concatenate(whole), np.concatenate(first + rest)
            )
            assert [len(batch) for batch in first + rest] == [len(b) for b in whole]
        else:
            assert sorted(np.concatenate(rest)) == list(range(RECORDS))


def test_a_state_of_another_limit_is_rejected():
    with texts().open() as loader:
        batches = iter(loader)
        for _ in range(9):
            next(batches)
        state = loader.state_dict()

    with (
        texts(max_tokens=70).open() as loader,
        pytest.raises(infeed.errors.ConfigError, match="belongs to another run"),
    ):
        loader.load_state_dict(state)
    with texts(max_tokens=70).open() as loader:
        loader.load_state_dict(state, strict=False)
        assert sum(len(batch["number"]) for batch in loader) < RECORDS


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
def test_ranks_share_each_batch(tail):
    pipeline = texts(multiple_of=2, tail=tail, ragged="offsets")
    whole = epoch(pipeline)
    ranks = [epoch(pipeline, rank=rank, world_size=2) for rank in range(2)]

    assert len(whole) == len(ranks[0]) == len(ranks[1])
    for batch, one, other in zip(whole, *ranks, strict=True):
        np.testing.assert_array_equal(batch, np.concatenate([one, other]))


def test_ranks_need_batches_that_they_divide():
    with pytest.raises(infeed.errors.ConfigError, match="multiple_of=2"):
        texts(tail="wrap").open(rank=0, world_size=2)


def test_the_size_limits_rows_and_a_substitute_is_not_longer(tmp_path):
    assert max(len(batch) for batch in epoch(texts(size=7))) == 7
    assert {len(batch) % 2 for batch in epoch(texts(multiple_of=2))[:-1]} == {0}

    def fail(sample):
        if sample["number"] % 9 == 4:
            raise ValueError("bad")
        return sample

    pipeline = texts(ragged="offsets").python(fail)
    with pipeline.open(on_error="substitute") as loader:
        for batch in loader:
            rows = len(batch["number"])
            assert rows * LENGTHS[batch["number"]].max() <= TOKENS
            assert not (batch["number"] % 9 == 4).any()
        assert len(loader.bad_records) == len(range(4, RECORDS, 9))
    with pipeline.open(on_error="skip") as loader:
        left = sum(len(batch["number"]) for batch in loader)
    assert left == RECORDS - len(range(4, RECORDS, 9))


def test_devices_share_each_batch():
    pipeline = texts(ragged="offsets", tail="drop")
    with pytest.raises(infeed.errors.ConfigError, match="use multiple_of=2 and tail="):
        pipeline.open(devices=["sim", "sim"])

    even = texts(ragged="offsets", tail="drop", multiple_of=2)
    expected = [len(batch) for batch in epoch(even)]
    with even.open(devices=["sim", "sim"]) as loader:
        rows = [[part.rows for part in parts] for parts in loader]
    assert rows == [[size // 2] * 2 for size in expected]


def test_passes_and_selections_keep_the_limit():
    twice = epoch(texts().repeat(2))
    counts = np.bincount(np.concatenate(twice))
    assert (counts == 2).all()
    first = epoch(texts().take(40))
    assert sorted(np.concatenate(first)) == list(range(40))
    for batch in twice + first:
        assert len(batch) * LENGTHS[batch].max() <= TOKENS


def test_lengths_of_a_file_are_saved_and_those_in_memory_are_not(tmp_path):
    np.save(tmp_path / "number.npy", np.arange(RECORDS))
    np.save(tmp_path / "lengths.npy", LENGTHS.astype(np.int64))
    number, lengths = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        for name in ("number", "lengths")
    )
    pipeline = infeed.Pipeline(sources.Memory(number=number)).shuffle(seed=3)
    saved = pipeline.batch(40, max_tokens=TOKENS, lengths=lengths, tail="drop")

    saved.save(tmp_path / "pipeline.toml")

    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")
    for one, other in zip(epoch(loaded), epoch(saved), strict=True):
        np.testing.assert_array_equal(one, other)
    assert '.batch(40,max_tokens=64,tail="drop",lengths=<' in "".join(
        repr(loaded).split()
    )
    assert loaded.batch(8) == pipeline.batch(8)
    with pytest.raises(infeed.errors.ConfigError, match=r"np\.save"):
        pipeline.batch(max_tokens=TOKENS, lengths=LENGTHS).save(tmp_path / "o.toml")


@pytest.mark.parametrize("world_size", [1, 2])
def test_feeders_make_the_same_batches(tmp_path, world_size):
    np.save(tmp_path / "number.npy", np.arange(RECORDS))
    np.save(tmp_path / "lengths.npy", LENGTHS.astype(np.int64))
    number = np.load(tmp_path / "number.npy", mmap_mode="r")
    lengths = np.load(tmp_path / "lengths.npy", mmap_mode="r")
    pipeline = infeed.Pipeline(sources.Memory(number=number)).shuffle(seed=3)
    pipeline = pipeline.batch(
        max_tokens=TOKENS, lengths=lengths, multiple_of=2, tail="wrap"
    )
    shared = {"rank": world_size - 1, "world_size": world_size}
    expected = epoch(pipeline, **shared)

    with feeding(pipeline, tmp_path) as (host, _):
        feeders = infeed.feeders.Feeders(
            [host], token=TOKEN, local="fallback", deadline=30
        )
        with pipeline.open(workers=feeders, **shared) as loader:
            wait_for_feeders(loader)
            found = [np.array(batch["number"]) for batch in loader]
            (reported,) = loader.stats()["feeders"]

    assert reported["batches"] > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_wrong_options_name_the_fix():
    pipeline = infeed.Pipeline(sources.Memory(number=np.arange(RECORDS))).shuffle(0)
    with pytest.raises(infeed.errors.ConfigError, match="one integer per record"):
        pipeline.batch(max_tokens=9, lengths=[0.5] * RECORDS)
    with pytest.raises(infeed.errors.ConfigError, match="pass lengths"):
        pipeline.batch(max_tokens=9).open()
    with pytest.raises(infeed.errors.ConfigError, match="7 numbers for 103 records"):
        pipeline.batch(max_tokens=9, lengths=[1] * 7).open()
    with pytest.raises(infeed.errors.ConfigError, match=r"length 22.*allows 20"):
        texts(max_tokens=20).open()
    with pytest.raises(
        infeed.errors.ConfigError, match=r"max_tokens=64 allows 16 in .* 4 rows"
    ):
        texts(multiple_of=4).open()
    with pytest.raises(infeed.errors.ConfigError, match="multiple_of is 8"):
        texts(size=4, multiple_of=8).open()
    with pytest.raises(infeed.errors.ConfigError, match="left out without max_tokens"):
        pipeline.batch(8, multiple_of=2)
    with pytest.raises(infeed.errors.ConfigError, match="size over all ranks"):
        texts(per_rank=4).open()
    with pytest.raises(infeed.errors.ConfigError, match="leave out weights"):
        texts().weights(np.arange(RECORDS)).open()
    with pytest.raises(infeed.errors.ConfigError, match="use one of them"):
        texts().batch_groups(LENGTHS).open()
    with pytest.raises(infeed.errors.ConfigError, match="the length -1"):
        pipeline.batch(max_tokens=9, lengths=[-1] * RECORDS).open()


def test_shards_need_a_shuffle_of_all_records(tmp_path):
    pipeline = infeed.Pipeline(sources.Memory(number=np.arange(RECORDS)))
    infeed.pack(pipeline, tmp_path / "tar", to="webdataset")
    packed = infeed.Pipeline.load(tmp_path / "tar" / "pipeline.toml")
    limited = packed.batch(max_tokens=TOKENS, lengths=LENGTHS)

    with pytest.raises(infeed.errors.ConfigError, match='window="all"'):
        limited.shuffle(seed=0).open()
    batches = epoch(limited.shuffle(seed=0, window="all"))
    assert all(len(batch) * LENGTHS[batch].max() <= TOKENS for batch in batches)
    with pytest.raises(infeed.errors.ConfigError, match="pack without max_tokens"):
        infeed.pack(
            pipeline.batch(max_tokens=TOKENS, lengths=LENGTHS), tmp_path / "other"
        )
