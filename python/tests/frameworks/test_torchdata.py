"""infeed.torch below torchdata's StatefulDataLoader, which saves it by itself."""

import json

import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources

import_or_skip("torch")
stateful = import_or_skip("torchdata.stateful_dataloader")
adapter = import_or_skip("infeed.torch")
pytestmark = framework_test


def make_loader():
    source = sources.Memory(x=list(range(24)))
    pipeline = infeed.Pipeline(source).shuffle(seed=2).batch(4)
    return stateful.StatefulDataLoader(adapter.Loader(pipeline), batch_size=None)


@pytest.mark.parametrize("taken", [1, 3, 6])
def test_torchdata_saves_and_resumes_the_loader_as_its_dataset(taken):
    loader = make_loader()
    whole, following = ([b["x"].tolist() for b in loader] for _ in range(2))
    loader = make_loader()
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))

    again = make_loader()
    again.load_state_dict(state)

    assert isinstance(again.dataset, stateful.Stateful)
    assert [b["x"].tolist() for b in again] == (whole[taken:] or following)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_prefetch_that_was_left_resumes_after_the_items_taken(workers):
    def numbers():
        return stateful.StatefulDataLoader(
            list(range(40)), batch_size=4, num_workers=workers
        )

    ahead = infeed.prefetch(numbers(), batches=3)
    seen = []
    for batch in ahead:
        seen.append(batch.tolist())
        if len(seen) == 2:
            break
    state = ahead.state_dict()

    again = numbers()
    again.load_state_dict(state)

    assert [b.tolist() for b in numbers()] == seen + [b.tolist() for b in again]


def test_a_prefetch_of_a_stateful_data_loader_keeps_its_state():
    whole = [batch["x"].tolist() for batch in make_loader()]
    ahead = infeed.prefetch(make_loader(), batches=3)
    batches = iter(ahead)
    seen = [next(batches)["x"].tolist() for _ in range(2)]

    again = infeed.prefetch(make_loader())
    again.load_state_dict(ahead.state_dict())

    assert seen + [batch["x"].tolist() for batch in again] == whole
