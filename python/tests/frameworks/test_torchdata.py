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
    whole = [batch["x"].tolist() for batch in made()]
    loader = made()
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))

    again = made()
    again.load_state_dict(state)

    assert isinstance(again.dataset, stateful.Stateful)
    rest = [batch["x"].tolist() for batch in again]
    assert rest[: 6 - taken] == whole[taken:]
    assert len(rest) == 6 - taken or taken == 6
