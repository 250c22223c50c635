"""infeed.torch registered with Hugging Face Accelerate."""

import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources

torch = import_or_skip("torch")
accelerate = import_or_skip("accelerate")
adapter = import_or_skip("infeed.torch")
pytestmark = framework_test


@pytest.fixture
def accelerator():
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_save_state_and_load_state_carry_the_loader(accelerator, tmp_path):
    source = sources.Memory(x=[float(n) for n in range(24)])
    pipeline = infeed.Pipeline(source).shuffle(seed=2).batch(4)
    whole = [batch["x"].tolist() for batch in pipeline]
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    loader = adapter.Loader(pipeline)
    accelerator.register_for_checkpointing(loader)

    assert accelerator.prepare(loader) is loader
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch["x"][:, None].float()).sum())
        if step == 2:
            accelerator.save_state(str(tmp_path / "state"))
            break
    accelerator.load_state(str(tmp_path / "state"))

    assert [batch["x"].tolist() for batch in loader] == whole[3:]
