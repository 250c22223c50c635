"""A Trainer of Hugging Face whose train loader is infeed's, saved and resumed."""

import json
import os

import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = import_or_skip("torch")
import_or_skip("accelerate")
transformers = import_or_skip("transformers")
training_arguments = import_or_skip("hugging_face").training_arguments
adapter = import_or_skip("infeed.torch")
callback = import_or_skip("infeed.transformers")
pytestmark = framework_test


class Model(torch.nn.Module):
    """One weight; remembers which records it saw."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def forward(self, x):
        self.seen.append(x.tolist())
        return {"loss": self.layer(x[:, None].float()).square().mean()}


def pipeline(seed=4) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Memory(x=list(range(24)))).shuffle(seed=seed).batch(4)
    )


def trainer(folder, loader=None, callbacks=None, **settings):
    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return adapter.Loader(pipeline()) if loader is None else loader

    common = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 2}
    common |= {"ignore_data_skip": True}
    arguments = training_arguments(folder, **common | settings)
    if callbacks is None:
        callbacks = [callback.LoaderState()]
    return Trainer(Model(), arguments, callbacks=callbacks)


@pytest.fixture(scope="module")
def whole() -> list[list[int]]:
    batches = pipeline()
    return [batch["x"].tolist() for _ in range(2) for batch in batches]


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A folder with the checkpoints of a run, two epochs of six steps, and the run."""
    folder = tmp_path_factory.mktemp("trained")
    first = trainer(folder)
    first.train()
    return folder, first


def test_a_run_sees_the_epochs_of_the_pipeline(trained_run, whole):
    assert trained_run[1].model.seen == whole
    assert trained_run[1].state.global_step == 12


@pytest.mark.parametrize("step", [4, 6, 10])
def test_a_resumed_run_continues_at_its_checkpoint(trained_run, whole, tmp_path, step):
    again = trainer(tmp_path)

    again.train(resume_from_checkpoint=str(trained_run[0] / f"checkpoint-{step}"))

    assert again.model.seen == whole[step:]
    assert again.state.global_step == 12


def test_gradient_accumulation_resumes(tmp_path, whole):
    settings = {"gradient_accumulation_steps": 3, "save_steps": 1}
    trainer(tmp_path / "first", **settings).train()
    again = trainer(tmp_path / "again", **settings)

    again.train(resume_from_checkpoint=str(tmp_path / "first" / "checkpoint-1"))

    assert again.model.seen == whole[3:]
    assert again.state.global_step == 4


def test_callbacks_restored_from_the_checkpoint_continue(trained_run, whole, tmp_path):
    again = trainer(tmp_path, restore_callback_states_from_checkpoint=True)

    again.train(resume_from_checkpoint=str(trained_run[0] / "checkpoint-4"))

    assert again.model.seen == whole[4:]


def test_the_state_is_stored_in_the_trainers_own_file(trained_run):
    path = trained_run[0] / "checkpoint-4" / "trainer_state.json"
    saved = json.loads(path.read_text())["stateful_callbacks"]["LoaderState"]

    assert saved["attributes"]["saved"]["position"] == 16


def test_settings_that_would_lose_records_raise(trained_run, tmp_path):
    checkpoint = trained_run[0] / "checkpoint-4"
    other = adapter.Loader(pipeline(seed=5))

    with pytest.raises(infeed.errors.ConfigError, match="ignore_data_skip=True"):
        trainer(tmp_path, ignore_data_skip=False).train(str(checkpoint))
    with pytest.raises(infeed.errors.ConfigError, match="seed is 5, was 4"):
        trainer(tmp_path, other).train(str(checkpoint))
    with pytest.raises(infeed.errors.ConfigError, match="list, which has no state"):
        trainer(tmp_path, [{"x": torch.ones(4)}]).train()


def test_a_checkpoint_without_the_callback_raises(tmp_path):
    trainer(tmp_path, callbacks=[]).train()

    with pytest.raises(infeed.errors.ConfigError, match="saved without this callback"):
        trainer(tmp_path).train(str(tmp_path / "checkpoint-4"))
