"""infeed.torch below torchdata's StatefulDataLoader, which saves it by itself."""

import json

import pytest
from installed import framework_test, imported

import infeed
from infeed import sources

imported("torch")
stateful = imported("torchdata.stateful_dataloader")
adapter = imported("infeed.torch")
pytestmark = framework_test


def made():
    source = sources.Memory(x=list(range(24)))
    pipeline = infeed.Pipeline(source).shuffle(seed=2).batch(4)
    return stateful.StatefulDataLoader(adapter.Loader(pipeline), batch_size=None)


@pytest.mark.parametrize("taken", [1, 3, 6])
def test_it_saves_and_resumes_the_loader_as_its_dataset(taken):
    loader = made()
    whole, following = ([b["x"].tolist() for b in loader] for _ in range(2))
    loader = made()
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))

    again = made()
    again.load_state_dict(state)

    assert isinstance(again.dataset, stateful.Stateful)
    assert [b["x"].tolist() for b in again] == (whole[taken:] or following)


def test_a_prefetch_of_it_keeps_its_state():
    whole = [batch["x"].tolist() for batch in made()]
    ahead = infeed.prefetch(made(), batches=3)
    batches = iter(ahead)
    seen = [next(batches)["x"].tolist() for _ in range(2)]

    again = infeed.prefetch(made())
    again.load_state_dict(ahead.state_dict())

    assert seen + [batch["x"].tolist() for batch in again] == whole
