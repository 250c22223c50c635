"""infeed's order as a Sampler, for PyTorch's DataLoader and torchdata's."""

import json
from itertools import chain

import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources

torch = import_or_skip("torch")
adapter = import_or_skip("infeed.torch")
pytestmark = framework_test


class Numbers(torch.utils.data.Dataset):
    """Records that equal their numbers."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        return n


def lists(loader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def expected_records(
    count, batch, seed=None, epochs=3, rank=0, world_size=1, **settings
):
    """Returns the records of infeed's own loader."""
    pipeline = infeed.Pipeline(sources.Memory(x=list(range(count))))
    pipeline = pipeline if seed is None else pipeline.shuffle(seed=seed)
    loader = pipeline.batch(batch, **settings).open(rank=rank, world_size=world_size)
    return [[b["x"].tolist() for b in loader] for _ in range(epochs)]


@pytest.mark.parametrize(
    ("count", "batch", "seed", "drop_last"),
    [(12, 4, 1, False), (13, 4, 2**64 - 1, False), (13, 4, 2, True), (9, 2, None, 0)],
)
def test_epochs_of_the_sampler_equal_those_of_the_pipeline(
    count, batch, seed, drop_last
):
    drop_last = bool(drop_last)
    sampler = adapter.Sampler(count, batch, seed, drop_last=drop_last)
    loader = torch.utils.data.DataLoader(Numbers(count), batch, sampler=sampler)
    epochs = expected_records(count, batch, seed, drop_last=drop_last)

    assert [lists(loader) for _ in range(3)] == epochs
    assert len(loader) == len(epochs[0])
    assert len(sampler) == sum(map(len, epochs[0]))


def test_a_large_order_equals_that_of_the_pipeline():
    sampler = adapter.Sampler(5000, 1000, seed=3)

    assert list(sampler) == list(chain(*expected_records(5000, 1000, 3, 1)[0]))


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_divide_a_batch_as_in_the_pipeline(rank, monkeypatch):
    place = {"rank": rank, "world_size": 2}
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = adapter.Sampler(13, 4, seed=1, drop_last=True)
    loader = torch.utils.data.DataLoader(
        Numbers(13), sampler.per_rank, sampler=sampler, num_workers=2
    )

    assert [lists(loader)] == expected_records(
        13, 4, 1, epochs=1, drop_last=True, **place
    )
    assert (sampler.per_rank, len(loader), len(sampler)) == (2, 3, 6)


@pytest.mark.parametrize("count", [13, 3, 12])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_wrapped_tail_equals_that_of_the_pipeline(count, world):
    for rank in range(world):
        place = {"rank": rank, "world_size": world}
        sampler = adapter.Sampler(count, 8, seed=1, tail="wrap", **place)
        loader = torch.utils.data.DataLoader(
            Numbers(count), sampler.per_rank, sampler=sampler
        )
        epochs = expected_records(count, 8, 1, tail="wrap", **place)

        assert [lists(loader) for _ in range(3)] == epochs
        assert len(sampler) == sum(map(len, epochs[0]))
        again = adapter.Sampler(count, 8, seed=1, tail="wrap", **place)
        again.load_state_dict(sampler.state_at(1, 0))
        assert list(again) == list(chain(*epochs[1]))


def test_an_unknown_tail_and_padding_raise():
    assert list(adapter.Sampler(7, 4, tail="drop")) == [0, 1, 2, 3]
    assert list(adapter.Sampler(7, 4, tail="keep")) == list(range(7))
    with pytest.raises(infeed.errors.ConfigError, match="yields records only"):
        adapter.Sampler(7, 4, tail="pad")
    with pytest.raises(infeed.errors.ConfigError, match="set one of them"):
        adapter.Sampler(7, 4, tail="wrap", drop_last=True)
    state = adapter.Sampler(7, 4, tail="wrap").state_dict()
    with pytest.raises(infeed.errors.ConfigError, match="tail is None, was 'wrap'"):
        adapter.Sampler(7, 4).load_state_dict(state)


def test_a_batch_that_ranks_cannot_share_evenly_raises():
    with pytest.raises(infeed.errors.ConfigError, match="use drop_last=True"):
        list(adapter.Sampler(13, 4, rank=0, world_size=2))
    with pytest.raises(infeed.errors.ConfigError, match="is not divisible by 3 ranks"):
        list(adapter.Sampler(12, 4, rank=0, world_size=3))


@pytest.mark.parametrize("taken", [1, 2, 3, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_saves_and_resumes_the_sampler(taken, workers):
    stateful = import_or_skip("torchdata.stateful_dataloader")
    epochs = expected_records(14, 4, seed=2)

    def make_loader():
        sampler = adapter.Sampler(14, 4, seed=2)
        return stateful.StatefulDataLoader(
            Numbers(14), 4, sampler=sampler, num_workers=workers
        )

    loader = make_loader()
    batches = iter(loader)
    seen = [next(batches).tolist() for _ in range(taken)]
    again = make_loader()
    again.load_state_dict(loader.state_dict())

    assert seen + lists(again) == (epochs[0] if taken < 4 else epochs[0] + epochs[1])


def test_a_data_loader_resumes_at_a_number_of_steps():
    epochs = expected_records(14, 4, seed=2)
    sampler = adapter.Sampler(14, 4, seed=2)
    loader = torch.utils.data.DataLoader(Numbers(14), 4, sampler=sampler, num_workers=2)

    sampler.load_state_dict(json.loads(json.dumps(sampler.state_at(epoch=1, step=2))))

    assert [lists(loader), lists(loader)] == [epochs[1][2:], epochs[2]]
    assert sampler.state_at(1, 4) == sampler.state_at(2, 0)


def test_set_epoch_selects_an_epoch_and_keeps_a_loaded_position():
    epochs = expected_records(14, 4, seed=2)
    sampler = adapter.Sampler(14, 4, seed=2)
    loader = torch.utils.data.DataLoader(Numbers(14), 4, sampler=sampler)

    seen = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        assert sampler.epoch == epoch
        seen.append(lists(loader))

    assert seen == [epochs[0], epochs[1], epochs[0]]
    sampler.load_state_dict(sampler.state_at(2, 3))
    sampler.set_epoch(2)
    assert lists(loader) == epochs[2][3:]


@pytest.mark.parametrize("held", [False, True])
def test_set_epoch_after_reading_a_batch_restarts_that_epoch(held):
    epochs = expected_records(14, 4, seed=2)
    sampler = adapter.Sampler(14, 4, seed=2)
    loader = torch.utils.data.DataLoader(Numbers(14), 4, sampler=sampler)
    first_pass = iter(loader)
    next(first_pass)
    if not held:
        del first_pass

    seen = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen.append(lists(loader))

    assert seen == epochs
    assert sampler.epoch == 3
    assert lists(loader) == expected_records(14, 4, seed=2, epochs=4)[3]


def test_set_epoch_keeps_an_epoch_that_a_trainer_has_begun():
    epochs = expected_records(40, 4, seed=2)
    sampler = adapter.Sampler(40, 4, seed=2)
    loader = torch.utils.data.DataLoader(Numbers(40), 4, sampler=sampler, num_workers=2)

    seen = []
    for epoch in range(3):
        # Its workers have requested four batches.
        batches = iter(loader)
        sampler.set_epoch(epoch)
        seen.append([batch.tolist() for batch in batches])

    assert seen == epochs


def test_leaving_a_loop_ends_its_epoch():
    epochs = expected_records(14, 4, seed=2)
    sampler = adapter.Sampler(14, 4, seed=2)
    first = iter(sampler)
    next(first)

    assert list(sampler) == list(chain(*epochs[1]))

    with pytest.raises(infeed.errors.IteratorError, match="another loop"):
        next(first)


def test_a_state_of_another_order_raises():
    state = adapter.Sampler(14, 4, seed=2).state_dict()

    with pytest.raises(infeed.errors.ConfigError, match="records is 15, was 14"):
        adapter.Sampler(15, 4, seed=2).load_state_dict(state)
    with pytest.raises(
        infeed.errors.ConfigError, match="position must be the start of a batch"
    ):
        adapter.Sampler(14, 4, seed=2).load_state_dict(state | {"position": 3})
    with pytest.raises(
        infeed.errors.ConfigError, match="must be the result of Sampler"
    ):
        adapter.Sampler(14, 4, seed=2).load_state_dict({"epoch": 1})
    with pytest.raises(infeed.errors.ConfigError, match="batch must be an integer"):
        adapter.Sampler(14, 0)
