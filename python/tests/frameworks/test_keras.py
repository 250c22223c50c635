"""infeed.keras below `model.fit`, on each of Keras's backends."""

import json

import pytest
from requirements import framework_test, require
from running import run

import infeed
from infeed import sources

require("keras")
pytestmark = framework_test

# A model that records which records it trains and is evaluated on: their numbers are
# its input, and its loss, computed without them, is the target. An argument is the
# device to which batches are delivered.
SCRIPT = """
import json, os, sys, threading
import keras
import numpy as np
import infeed, infeed.keras
from infeed import sources

trained, evaluated, steps = [], [], []

on = dict(device=sys.argv[1]) if sys.argv[1:] else {}

class Data(infeed.keras.Dataset):
    def __init__(self, seen, *arguments, **settings):
        super().__init__(*arguments, **settings, **on)
        self.seen = seen

    def __getitem__(self, index):
        batch = super().__getitem__(index)
        self.seen.append(batch[0].ravel().tolist())
        return batch

def make_data(count, size, seed=None):
    x = np.arange(count, dtype=np.float32)[:, None]
    pipeline = infeed.Pipeline(sources.Memory(x=x, y=2 * x)).batch(size)
    return pipeline if seed is None else pipeline.shuffle(seed=seed)

dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
model = keras.Sequential([keras.Input((1,)), dense])
model.compile(keras.optimizers.SGD(1e-4), "mse")

class Note(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        steps.append(batch)

data = Data(trained, make_data(24, 4, seed=1))
settings = dict(verbose=0, callbacks=[Note()])
history = model.fit(
    data, validation_data=Data(evaluated, make_data(6, 4)), epochs=3, **settings
).history
begun = dict(
    trained=trained[:], evaluated=evaluated[:], loss=history["loss"],
    val=history["val_loss"], steps=steps[:], epoch=data.epoch,
    weight=float(np.ravel(model.get_weights()[0])[0]),
    score=model.evaluate(Data([], make_data(6, 4)), verbose=0),
    predicted=np.ravel(model.predict(Data([], make_data(6, 4)), verbose=0)).tolist(),
)

# From the middle of training on, after another fit was left early.
class Leave(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.model.stop_training = True
            raise KeyboardInterrupt

trained.clear()
try:
    model.fit(data, epochs=1, verbose=0, callbacks=[Leave()])
except KeyboardInterrupt:
    pass
trained.clear()
follow = keras.callbacks.LambdaCallback(
    on_epoch_begin=lambda epoch, logs: data.set_epoch(epoch)
)
model.fit(data, initial_epoch=5, epochs=7, verbose=0, callbacks=[follow])
later = trained[:]

# Epochs of Keras that are parts of one of the data.
data.set_epoch(0)
trained.clear()
model.fit(data, steps_per_epoch=3, epochs=4, verbose=0)
sent = data.loader.stats()["device"]
more = dict(later=later, parts=trained, workers=data.workers, sent=sent)
print(json.dumps(begun | more))
"""

# Padded rows have no weight if the mask is the weight.
PADDED = """
import json
import keras
import numpy as np
import infeed, infeed.keras
from infeed import sources

x = np.arange(1, 7, dtype=np.float32)[:, None]
pipeline = infeed.Pipeline(sources.Memory(x=x, y=3 * x)).batch(4, tail="pad")
data = infeed.keras.Dataset(pipeline, "x", "y", sample_weight="valid")
dense = keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer="ones")
model = keras.Sequential([keras.Input((1,)), dense])
model.compile(keras.optimizers.SGD(0.0), keras.losses.MeanSquaredError(reduction="sum"))
score = model.evaluate(data, verbose=0, return_dict=True)
model.fit(data, epochs=1, verbose=0)
try:
    infeed.keras.Dataset(pipeline)
except infeed.errors.ConfigError as error:
    print(json.dumps([score, str(error)]))
"""

# Fields, states and errors, which need no training.
FIELDS = """
import json
import infeed, infeed.keras
from infeed import sources
from infeed.keras import Dataset

source = sources.Memory(
    image=[[1.0], [2.0]], depth=[[3.0], [4.0]], label=[0, 1], weight=[0.5, 1.5],
    name=["a", "b"],
)
pipeline = infeed.Pipeline(source).batch(2)

def to_lists(part):
    if isinstance(part, dict):
        return {name: array.tolist() for name, array in part.items()}
    return part.tolist()

def error_of(*arguments, **settings):
    try:
        Dataset(*arguments, **settings)
    except infeed.errors.ConfigError as error:
        return str(error)

whole = Dataset(pipeline, ["image", "depth"], "label", sample_weight="weight")
numbers = infeed.Pipeline(sources.Memory(x=list(range(6)))).shuffle(seed=1).batch(2)
first = Dataset(numbers)
epochs = [[first[n][0].tolist() for n in range(3)] for _ in range(2)]
first[0]
state = first.state_dict()
again = Dataset(numbers)
again.load_state_dict(state)
third = [again[n][0].tolist() for n in range(3)]
fresh = Dataset(numbers)
fresh.set_epoch(2)

class BrokenItems:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 1:
            raise ValueError("no one")
        return {"x": index, "y": index}

# As Keras does: reads the first batch, and then the epoch.
items = infeed.Pipeline(sources.Items(BrokenItems()))
broken = Dataset(items.batch(2), on_error="substitute", max_bad=1)
broken[0]
broken.num_batches
for n in range(3):
    broken[n]
broken.set_epoch(0)
bad = [len(broken.loader.bad_records), broken.loader.stats()["bad"]]
for n in range(3):
    broken[n]
bad.append(broken.state_dict()["bad"])

other = Dataset(infeed.Pipeline(sources.Memory(x=list(range(6)))).batch(2))
other.load_state_dict(state, strict=False)
print(json.dumps(dict(
    whole=[to_lists(part) for part in whole[0]],
    inputs=[to_lists(part) for part in Dataset(pipeline, "depth")[0]],
    epochs=epochs,
    state=state,
    third=third,
    fresh=[fresh[n][0].tolist() for n in range(3)],
    bad=bad,
    other=other.epoch,
    refused=[
        error_of(pipeline),
        error_of(pipeline, "pixels"),
        error_of(pipeline, "name", "label"),
        error_of(pipeline, "image", sample_weight="weight"),
        error_of([1]),
    ],
)))
"""


def expected_epochs(count, size, seed):
    pipeline = infeed.Pipeline(sources.Memory(x=list(range(count)))).batch(size)
    pipeline = pipeline.shuffle(seed=seed)
    loader = pipeline.open()
    return [[batch["x"].tolist() for batch in loader] for _ in range(8)]


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("device", [None, "sim"])
def test_fit_sees_each_epoch_of_the_pipeline_once_and_in_its_order(backend, device):
    require(backend)
    if (backend, device) == ("tensorflow", "sim"):
        pytest.skip("Keras on TensorFlow takes its data on the host")
    epochs = expected_epochs(24, 4, seed=1)
    on = [] if device is None else [device]

    found = json.loads(run(SCRIPT, *on, KERAS_BACKEND=backend, CUDA_VISIBLE_DEVICES=""))

    # Keras first inspects a batch; the records of the training come last.
    assert found["trained"][-18:] == epochs[0] + epochs[1] + epochs[2]
    shown_ahead = found["trained"][:-18]
    assert len(shown_ahead) <= 2
    assert shown_ahead == epochs[0][: len(shown_ahead)]
    assert found["epoch"] == 3
    assert found["steps"] == [*range(6)] * 3
    assert found["evaluated"][-6:] == [[0, 1, 2, 3], [4, 5]] * 3
    assert found["workers"] == 1
    assert (found["sent"] is None) == (device is None)

    assert found["later"][-12:] == epochs[5] + epochs[6]
    assert found["parts"][-12:] == epochs[0] + epochs[1]

    # The numbers follow from the data: a gradient step on each batch, by hand.
    weight = 0.0
    for batch in epochs[0] + epochs[1] + epochs[2]:
        weight -= 1e-4 * sum(2 * (weight * n - 2 * n) * n for n in batch) / len(batch)
    assert found["weight"] == pytest.approx(weight, rel=1e-4)
    assert found["loss"][2] < found["loss"][0]
    assert found["predicted"] == pytest.approx([weight * n for n in range(6)], rel=1e-4)
    errors = [(weight * n - 2 * n) ** 2 for n in range(6)]
    assert found["score"] == pytest.approx(sum(errors) / 6, rel=1e-3)
    assert found["val"][-1] == pytest.approx(found["score"], rel=1e-3)


@pytest.fixture(scope="module")
def fields_report():
    return json.loads(run(FIELDS, KERAS_BACKEND="numpy"))


def test_fields_are_inputs_targets_and_weights_as_named(fields_report):
    inputs, label, weight = fields_report["whole"]
    assert inputs == {"image": [[1.0], [2.0]], "depth": [[3.0], [4.0]]}
    assert (label, weight) == ([0, 1], [0.5, 1.5])
    assert fields_report["inputs"] == [[[3.0], [4.0]]]
    unnamed, unknown, text, untargeted, other = fields_report["refused"]
    assert "ambiguous for the fields image, depth, label, weight, name" in unnamed
    assert "no field 'pixels'" in unknown
    assert "'name' is text, which Keras does not accept" in text
    assert "sample_weight needs targets" in untargeted
    assert "pipeline must be an infeed.Pipeline" in other


def test_bad_records_of_batches_that_keras_inspected_count_once(fields_report):
    assert fields_report["bad"] == [1, 1, [[0, 1, 1]]]


def test_a_state_of_another_run_is_accepted_on_request(fields_report):
    assert fields_report["other"] == 2


def test_a_state_is_restored_at_the_beginning_of_its_epoch(fields_report):
    epochs = expected_epochs(6, 2, seed=1)

    assert fields_report["epochs"] == epochs[:2]
    assert (fields_report["state"]["epoch"], fields_report["state"]["position"]) == (
        2,
        2,
    )
    assert fields_report["third"] == epochs[2]
    assert fields_report["fresh"] == epochs[2]


# Keras keeps its own backups, at the ends of epochs. The first run is a separate
# process that is killed in the middle of the third epoch.
KILLED = """
import os, signal, sys, json
import keras
import numpy as np
import infeed, infeed.keras
from infeed import sources

folder = sys.argv[1]

def train(log, dies):
    x = np.arange(24, dtype=np.float32)[:, None]
    pipeline = infeed.Pipeline(sources.Memory(x=x, y=2 * x)).shuffle(seed=1).batch(4)

    class Data(infeed.keras.Dataset):
        def __getitem__(self, index):
            batch = super().__getitem__(index)
            with open(f"{folder}/{log}", "a") as file:
                file.write(json.dumps(batch[0].ravel().tolist()) + "\\n")
            return batch

    class Die(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (2, 3):
                os.kill(os.getpid(), signal.SIGKILL)

    data = Data(pipeline)
    follow = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: data.set_epoch(epoch)
    )
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    backup = keras.callbacks.BackupAndRestore(f"{folder}/backup")
    callbacks = [backup, follow] + [Die()] * dies
    model.fit(data, epochs=4, verbose=0, callbacks=callbacks)

child = os.fork()
if child == 0:
    try:
        train("killed", dies=True)
    finally:
        os._exit(0)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
train("resumed", dies=False)
"""


def test_a_killed_run_continues_with_the_epoch_of_its_backup(tmp_path):
    require("torch")
    epochs = expected_epochs(24, 4, seed=1)

    run(KILLED, tmp_path, KERAS_BACKEND="torch", CUDA_VISIBLE_DEVICES="")

    killed, resumed = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("killed", "resumed")
    )
    assert killed[-16:] == epochs[0] + epochs[1] + epochs[2][:4]
    assert resumed[-12:] == epochs[2] + epochs[3]


# A distribution over two CPUs, with data of two simulated devices and of the host.
PARALLEL = """
import json
import jax, keras, numpy as np
import infeed, infeed.keras
from infeed import sources

x = np.arange(24, dtype=np.float32)[:, None] / 24
made = infeed.Pipeline(sources.Memory(x=x, y=2 * x)).shuffle(seed=1)
pipeline = made.batch(4)
sims = ["sim", "sim:latency=50us"]

def error_of(*arguments, **options):
    try:
        infeed.keras.Dataset(*arguments, **options).num_batches
    except infeed.InfeedError as error:
        return str(error)

messages = dict(alone=error_of(pipeline, devices=sims))
keras.distribution.set_distribution(keras.distribution.DataParallel())
messages |= dict(
    one=error_of(pipeline, device="sim"), three=error_of(pipeline, devices=["sim"] * 3),
    fewer=error_of(pipeline, devices=["sim"]),
)

def train(**options):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data = infeed.keras.Dataset(pipeline, **options)
    losses = model.fit(data, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert data.epoch == 3
    return losses, [np.asarray(weight).tolist() for weight in model.get_weights()]

assert train(devices=sims) == train()

# Keras finds the arrays on the expected devices, and moves nothing.
data = infeed.keras.Dataset(pipeline, devices=sims)
data.num_batches
inputs, targets = data[0]
layout = keras.distribution.distribution().get_data_layout(inputs.shape)
shards = [shard.data.unsafe_buffer_pointer() for shard in inputs.addressable_shards]
placed = jax.make_array_from_process_local_data(layout.backend_layout, inputs)
assert [s.data.unsafe_buffer_pointer() for s in placed.addressable_shards] == shards
assert len(set(shards)) == 2
print(json.dumps(messages))
"""


def test_a_distribution_of_keras_receives_batches_on_all_of_its_devices():
    require("jax")
    devices = "--xla_force_host_platform_device_count=2"
    variables = {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}

    messages = json.loads(run(PARALLEL, **variables))

    assert "keras.distribution.DataParallel()" in messages["alone"]
    assert "name all of its devices in devices=[...]" in messages["one"]
    assert "jax_num_cpu_devices" in messages["three"]
    assert "name exactly those" in messages["fewer"]
