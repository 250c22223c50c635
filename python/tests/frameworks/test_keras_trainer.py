"""`fit` of Keras with the batches of infeed, by `infeed.install`."""

import json

import numpy as np
import pytest
from requirements import framework_test, import_or_skip, require
from running import run

import infeed

import_or_skip("tensorflow")
keras = import_or_skip("keras")
pytestmark = framework_test


class Losses(keras.callbacks.Callback):
    """The losses of all batches by epoch, of a model that does not learn."""

    def __init__(self):
        super().__init__()
        self.by_epoch = {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = self.by_epoch.setdefault(epoch, [])

    def on_train_batch_end(self, batch, logs=None):
        self.epoch.append(logs["loss"])


@pytest.fixture
def dataset_of(classification):
    """Returns a function that makes the dataset of thirty images."""

    def make(**options):
        options = {"image_size": (16, 16), "batch_size": 8} | options
        return keras.utils.image_dataset_from_directory(
            str(classification.path), verbose=False, **options
        )

    return make


def train(dataset, epochs=2, **options) -> dict[int, list[float]]:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    seen = Losses()
    model.fit(dataset, epochs=epochs, verbose=0, callbacks=[seen], **options)
    return seen.by_epoch


@pytest.fixture
def with_infeed():
    infeed.install("keras", proof_seconds=0)
    yield
    infeed.uninstall()


@pytest.mark.parametrize("shuffle", [True, False])
def test_fit_takes_each_sample_once_from_infeed(dataset_of, shuffle, capsys):
    dataset = dataset_of(shuffle=shuffle, seed=1)
    theirs = train(dataset)
    infeed.install("keras", proof_seconds=2)
    try:
        ours = train(dataset)
        again = train(dataset)
    finally:
        infeed.uninstall()
    printed = capsys.readouterr().err

    assert printed.count("makes the batches of fit") == 2
    assert printed.count("proof: 30 samples: equal labels") == 2
    assert ours == again, "the order follows the seed of Keras"
    for epoch in range(2):
        # Keras logs the mean loss of the epoch so far.
        assert len(ours[epoch]) == len(theirs[epoch]) == 4
        assert ours[epoch][-1] == pytest.approx(theirs[epoch][-1], rel=1e-2)
    assert (ours[0] == ours[1]) == (not shuffle)
    assert train(dataset_of(shuffle=False)) == train(dataset_of(shuffle=False))


def test_a_validation_takes_its_batches_from_infeed(dataset_of, capsys):
    def validate() -> list[float]:
        return validation_losses(dataset_of(seed=1), dataset_of(shuffle=False))

    theirs = validate()
    infeed.install("keras", proof_seconds=2)
    try:
        ours = validate()
    finally:
        infeed.uninstall()

    assert "infeed 0.1.0 makes the batches of validation" in capsys.readouterr().err
    assert len(ours) == 3
    assert ours == pytest.approx(theirs, rel=1e-2)


def test_an_unknown_validation_stays_with_keras(with_infeed, dataset_of, capsys):
    halved = dataset_of(shuffle=False).map(lambda x, y: (x / 2, y))

    validation_losses(dataset_of(), halved)
    validation_losses(dataset_of(), dataset_of(), validation_steps=2)
    printed = capsys.readouterr().err

    assert "infeed: the batches of validation stay with Keras: map(" in printed
    assert "the batches of validation stay with Keras: validation_steps" in printed
    assert printed.count("makes the batches of fit") == 2


def validation_losses(dataset, validation, **options) -> list[float]:
    """Returns the losses of the validation in three epochs without learning."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(
        dataset, epochs=3, verbose=0, validation_data=validation, **options
    )
    return history.history["val_loss"]


def test_an_initial_epoch_continues_with_its_samples(with_infeed, dataset_of):
    whole = train(dataset_of(seed=1), epochs=3)
    rest = train(dataset_of(seed=1), epochs=3, initial_epoch=1)

    assert rest == {1: whole[1], 2: whole[2]}


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (lambda data: data.map(lambda x, y: (x / 2, y)), {}, "map(<lambda>)"),
        (lambda data: data.repeat(), {"steps_per_epoch": 4}, "steps_per_epoch is set"),
        (lambda data: data.take(2), {}, "take"),
    ],
)
def test_other_datasets_stay_with_keras_and_are_named(
    with_infeed, dataset_of, capsys, change, options, reason
):
    theirs = train(change(dataset_of(shuffle=False)), **options)

    printed = capsys.readouterr().err
    assert "the batches of fit stay with Keras" in printed
    assert reason in printed
    infeed.uninstall()
    assert theirs == train(change(dataset_of(shuffle=False)), **options)


def test_arrays_and_the_switch_leave_fit_alone(
    with_infeed, dataset_of, capsys, monkeypatch
):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((2, 1)), np.ones(2), verbose=0)
    monkeypatch.setenv("INFEED_TRAINERS", "off")
    train(dataset_of())

    assert "infeed" not in capsys.readouterr().err


OTHER_BACKEND = """
import json, sys
import keras, infeed
data = keras.utils.image_dataset_from_directory(
    sys.argv[1], image_size=(16, 16), batch_size=8, verbose=False, shuffle=False
)
def train():
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss)
    history = model.fit(data, epochs=2, verbose=0, validation_data=data).history
    return history["loss"] + history["val_loss"]
theirs = train()
infeed.install("keras", proof_seconds=0)
print(json.dumps([keras.backend.backend(), theirs, train()]))
"""


def test_fit_on_another_backend_takes_batches_from_infeed(classification):
    require("torch")
    variables = {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}

    printed = run(OTHER_BACKEND, classification.path, **variables)

    backend, theirs, ours = json.loads(printed)
    assert backend == "torch"
    assert ours == pytest.approx(theirs, rel=1e-2)
