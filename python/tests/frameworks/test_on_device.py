"""Batches of a device, copied to memory of JAX and TensorFlow, one batch ahead."""

import gc
import json
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from children import interrupt_script
from requirements import framework_test, import_or_skip, require
from running import run

import infeed
from infeed import sources
from infeed import transforms as T

pytestmark = framework_test

ROWS, STEPS = 4, 6
NUMBERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"]


class Framework:
    """Parts of a framework that the tests use: loaders on host and device, copies."""

    def __init__(self, name: str):
        self.name = name
        self.adapter = import_or_skip(f"infeed.{name}")

    def host(self, pipeline, **options):
        return self.adapter.Loader(pipeline, **options)

    def device(self, pipeline, device="sim", **options):
        return self.adapter.Loader(pipeline, device=device, **options)

    def copies(self, arrays):
        if self.name == "jax":
            return import_or_skip("infeed._jax_copies").copy_arrays(arrays)
        return self.adapter._copies(arrays)


@pytest.fixture(params=["jax", "tensorflow"])
def framework(request) -> Framework:
    return Framework(request.param)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    for thread in copiers():
        thread.join(5)
    assert copiers() == []


def copiers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "infeed-copy"]


@pytest.fixture
def pipeline() -> infeed.Pipeline:
    """Twenty-two numbers in shuffled batches of four, the last of two."""
    source = sources.Memory(x=np.arange(22, dtype=np.int32))
    return infeed.Pipeline(source).shuffle(seed=3).batch(ROWS)


def epoch(batches) -> list[list[int]]:
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def same(one, other) -> bool:
    """Whether two columns are of one kind, type and content."""
    if isinstance(one, list):
        return one == other
    if isinstance(one, tuple):
        return all(map(same, one, other))
    if hasattr(one, "to_list"):
        return one.to_list() == other.to_list()
    alike = (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
    return alike and bool((np.asarray(one) == np.asarray(other)).all())


def ready(loader) -> None:
    """Waits until the thread of the loop has the next batch ready."""
    (run,) = loader._ahead
    with run._changed:
        assert run._changed.wait_for(lambda: run._ready, timeout=30)


@pytest.mark.parametrize("batch_type", ["dict", "tuple", "named"])
def test_a_device_delivers_every_field_as_the_host_does(framework, batch_type):
    rng = np.random.default_rng(5)
    columns = {f"n{k}": rng.integers(0, 2, (22, 3)).astype(k) for k in NUMBERS}
    source = sources.Memory(
        image=rng.integers(0, 256, (22, 4, 5, 3), dtype=np.uint8),
        text=[chr(97 + n) for n in range(22)],
        boxes=[[1.5] * n for n in range(22)],
        **{name.replace("?", "bool"): column for name, column in columns.items()},
    )
    pipeline = infeed.Pipeline(source).transform(T.ToFloat("image")).batch(ROWS)

    with framework.device(pipeline, batch_type=batch_type) as loader:
        found = list(loader)
        sent = loader.loader.stats()["device"]

    expected = list(framework.host(pipeline, batch_type=batch_type))
    assert len(found) == STEPS
    for one, other in zip(found, expected, strict=True):
        if batch_type == "dict":
            assert list(one) == list(other) == list(pipeline.fields)
            one, other = tuple(one.values()), tuple(other.values())
        assert [*map(same, one, other)] == [True] * len(pipeline.fields)
    assert sent["name"] == "sim"


def test_bfloat16_is_delivered_unchanged(framework):
    image = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    pipeline = infeed.Pipeline(sources.Memory(image=image))
    pipeline = pipeline.transform(T.ToFloat(), dtype="bfloat16").batch(2)

    (batch,) = framework.device(pipeline)

    (expected,) = framework.host(pipeline)
    assert "bfloat16" in str(batch["image"].dtype)
    assert same(batch["image"], expected["image"])


def align(values: np.ndarray) -> np.ndarray:
    """Returns the values at an address that every framework shares without a copy."""
    room = np.zeros(values.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    array = room[begin : begin + values.nbytes].view(values.dtype)
    array[:] = values
    return array


@pytest.mark.parametrize("kind", NUMBERS)
def test_copies_do_not_change_when_the_memory_is_reused(framework, kind):
    given = [align(np.arange(256).astype(kind)), align(np.ones(4096, kind))]
    expected = [array.copy() for array in given]

    copies, made = framework.copies(given)
    made()
    for array in given:
        array[:] = array == 0

    for copy, values in zip(copies, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(copy), values)


# Types for which TensorFlow registers `Snapshot` on GPUs: `TF_CALL_POD_TYPES` in
# snapshot_op.cc and register_types.h of version 2.
ON_GPU = ["int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]
ON_GPU += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("kind", [*NUMBERS, "bfloat16"])
def test_tensorflow_copies_every_type_by_an_operation_with_a_gpu_kernel(
    kind, monkeypatch
):
    framework = Framework("tensorflow")
    tf = import_or_skip("tensorflow")
    snapshot, seen = tf.raw_ops.Snapshot, []

    def record_snapshot(input):
        seen.append(input.dtype.name)
        return snapshot(input=input)

    monkeypatch.setattr(tf.raw_ops, "Snapshot", record_snapshot)
    kind = tf.as_dtype(kind if kind == "bfloat16" else np.dtype(kind))
    tensor = tf.cast(tf.constant([0, 1, 2, 3]), kind)

    copied = framework.adapter._copy_tensor(tensor)

    assert copied.dtype == kind
    assert seen[0] in ON_GPU
    assert len(seen) == 1


def test_a_copy_that_tensorflow_makes_on_another_device_is_an_error(monkeypatch):
    framework = Framework("tensorflow")
    tf = import_or_skip("tensorflow")
    elsewhere = SimpleNamespace(device="/device:GPU:1")
    monkeypatch.setattr(tf.raw_ops, "Snapshot", lambda input: elsewhere)

    with pytest.raises(infeed.errors.DeviceError, match=r"uint8 tensor from .*GPU:1"):
        framework.adapter._copy_tensor(tf.constant([1, 2], tf.uint8))
    with pytest.raises(infeed.errors.DeviceError, match="no GPU kernel for this type"):
        framework.adapter._copy_tensor(tf.constant(["text"]))


def test_slots_are_released_while_batches_are_kept(framework, pipeline):
    with framework.device(pipeline, slots=2) as loader:
        kept = [batch for _ in range(2) for batch in loader]
        sent = loader.loader.stats()["device"]

    assert (sent["slots"], sent["overflow"]) == (2, 0)
    host = framework.host(pipeline)
    assert epoch(kept) == epoch(host) + epoch(host)


def test_a_thread_is_one_batch_ahead_and_the_state_is_not(framework, pipeline):
    with framework.device(pipeline) as loader:
        steps = iter(loader)
        assert loader.state_dict()["position"] == 0
        for taken in (1, 2, 3):
            next(steps)
            ready(loader)
            assert loader.state_dict()["position"] == taken * ROWS
            assert loader.loader.state_dict()["position"] == (taken + 1) * ROWS
        state = json.loads(json.dumps(loader.state_dict()))
        rest = epoch(steps)
        assert loader.state_dict()["epoch"] == loader.epoch == 1

    again = framework.host(pipeline)
    again.load_state_dict(state)
    assert epoch(again) == rest
    again = framework.device(pipeline)
    again.load_state_dict(state)
    assert epoch(again) == rest
    assert len(rest) == STEPS - 3


def test_epochs_are_in_order_and_leaving_one_ends_it(framework, pipeline):
    host = framework.host(pipeline)
    expected = [epoch(host) for _ in range(5)]
    loader = framework.device(pipeline)

    assert [epoch(loader), epoch(loader)] == expected[:2]
    for batch in loader:
        assert np.asarray(batch["x"]).tolist() == expected[2][0]
        break
    del batch
    # A loop over the number of steps does not request the end.
    assert loader.epoch == 3
    counted = iter(loader)
    assert epoch(next(counted) for _ in range(STEPS)) == expected[3]
    assert loader.epoch == 4
    assert epoch(loader) == expected[4]
    assert list(counted) == []


def test_a_moved_loop_raises_and_the_next_one_continues(framework, pipeline):
    host = framework.host(pipeline)
    expected = [epoch(host) for _ in range(8)]
    loader = framework.device(pipeline)

    steps = iter(loader)
    next(steps)
    loader.set_epoch(6)
    with pytest.raises(
        infeed.errors.IteratorError, match="make one loader for each loop"
    ):
        next(steps)
    assert epoch(loader) == expected[6]

    steps = iter(loader)
    next(steps)
    state = loader.state_dict()
    with pytest.raises(infeed.errors.ConfigError, match="batch"):
        loader.load_state_dict(state | {"batch": 3})
    # The rejected call moved nothing.
    assert np.asarray(next(steps)["x"]).tolist() == expected[7][1]
    loader.load_state_dict(state)
    with pytest.raises(infeed.errors.IteratorError):
        next(steps)
    assert epoch(loader) == expected[7][1:]

    steps = iter(loader)
    next(steps)
    assert loader.epoch == 8
    other = iter(loader)
    next(other)
    with pytest.raises(infeed.errors.IteratorError):
        next(steps)
    assert loader.epoch == 9


def test_a_bad_record_stops_the_run_at_its_position(
    framework, classification, tmp_path
):
    shutil.copytree(classification.path, tmp_path / "photos")
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[9]
    bad.write_bytes(bad.read_bytes()[:200])
    made = infeed.Pipeline(sources.Folder(str(tmp_path / "photos"))).decode()
    pipeline = made.transform(T.Resize([16, 16])).batch(ROWS)

    def ending(loader):
        steps = iter(loader)
        taken = []
        try:
            for batch in steps:
                taken.append(np.asarray(batch["label"]).tolist())
        except infeed.errors.DecodeError as error:
            return taken, str(error), list(steps), loader.state_dict()
        raise AssertionError("it ended without an error")

    assert ending(framework.device(pipeline)) == ending(framework.host(pipeline))


def test_an_error_of_a_copy_is_raised_at_its_batch(framework, pipeline, monkeypatch):
    module = framework.adapter
    if framework.name == "jax":
        module = import_or_skip("infeed._jax_copies")
    name = "copy_arrays" if framework.name == "jax" else "_copies"
    copies, calls = getattr(module, name), iter(range(100))

    def failing(arrays):
        if next(calls) == 2:
            raise MemoryError("no room on the gpu")
        return copies(arrays)

    monkeypatch.setattr(module, name, failing)
    with framework.device(pipeline) as loader:
        steps = iter(loader)
        taken = [next(steps), next(steps)]
        with pytest.raises(MemoryError, match="no room"):
            next(steps)
        assert loader.state_dict()["position"] == len(taken) * ROWS
        # The slot of the batch that failed is not lost.
        assert len(list(steps)) == STEPS - 3
        assert loader.loader.stats()["device"]["overflow"] == 0


def test_a_closed_loader_has_no_thread_and_raises(framework, pipeline):
    before = threading.active_count()
    loader = framework.device(pipeline)
    steps = iter(loader)
    held = next(steps)
    assert copiers() != []

    loader.close()
    loader.close()

    assert copiers() == []
    assert threading.active_count() <= before
    with pytest.raises(infeed.errors.ClosedError, match="make another one"):
        next(steps)
    assert np.asarray(held["x"]).shape == (ROWS,)


def test_a_dropped_loop_ends_its_thread(framework, pipeline):
    loader = framework.device(pipeline)
    next(iter(loader))
    steps = iter(loader)
    next(steps)
    del loader
    gc.collect()
    assert np.asarray(next(steps)["x"]).shape == (ROWS,)
    # `no_thread_is_left` checks the rest.


# A loop that waits for its batches, and one that is left in the middle.
LOOP = """
import sys, threading, time
import numpy as np
import infeed, infeed.{name}
from infeed import sources

class Slow:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index >= 16:
            time.sleep(0.05)
        return {{"x": index}}

pipeline = infeed.Pipeline(sources.Items(Slow())).batch(4)
loader = infeed.{name}.Loader(pipeline, device="sim", workers=1)
seen, steps = [], iter(loader)
while len(seen) < 64:
    try:
        seen += np.asarray(next(steps)["x"]).tolist()
        if len(seen) == 16:
            if sys.argv[1] == "exit":
                break
            print("ready", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
if sys.argv[1] == "slow":
    print("all" if seen == list(range(64)) else seen)
"""


def test_ctrl_c_loses_no_batch(framework):
    printed = interrupt_script(LOOP.format(name=framework.name), "slow")

    assert "interrupted" in printed
    assert printed[-1] == "all"


def test_an_interpreter_that_ends_in_mid_loop_ends(framework):
    run(LOOP.format(name=framework.name), "exit")


def test_a_step_that_donates_its_batch_does_no_harm():
    require("jax")
    jax, framework = import_or_skip("jax"), Framework("jax")
    values = np.arange(64 * 4096, dtype=np.float32).reshape(64, 4096)
    step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)

    loader = framework.device(infeed.Pipeline(sources.Memory(x=values)).batch(4))
    for _ in range(3):
        for n, batch in enumerate(loader):
            np.testing.assert_array_equal(batch["x"], values[4 * n : 4 * n + 4])
            assert (step(batch.pop("x")) == -1).all()
            assert loader.loader.stats()["device"]["overflow"] == 0


def test_arrays_of_jax_are_committed_to_their_device():
    framework = Framework("jax")
    jax = import_or_skip("jax")
    made = infeed.Pipeline(sources.Memory(x=np.arange(8, dtype=np.float32))).batch(4)

    for batch in framework.device(made):
        assert batch["x"].committed
        assert batch["x"].devices() == {jax.devices("cpu")[0]}


def test_a_dataset_of_tensorflow_works_on_the_host(pipeline):
    loader = Framework("tensorflow").device(pipeline)

    with pytest.raises(infeed.errors.ConfigError, match="leave out device"):
        loader.dataset()


# Two CPUs replace the GPUs of the replicas.
REPLICAS = """
import numpy as np
import tensorflow as tf
import infeed, infeed.tensorflow
from infeed import sources

(cpu,) = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
source = sources.Memory(x=np.arange(22, dtype=np.float32), n=list(range(22)))
pipeline = infeed.Pipeline(source).shuffle(seed=3).batch(4)
whole = [batch["x"].tolist() for batch in pipeline]
loader = infeed.tensorflow.Loader(pipeline, devices=["sim", "sim:latency=50us"])

@tf.function
def step(batch):
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(batch["x"]))

seen, sums = [], []
for parts in loader:
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )
    results = strategy.experimental_local_results(strategy.run(step, (batch,)))
    sums.append(float(results[1]))
    assert [part["n"].dtype for part in parts] == [tf.int64] * 2
    seen.append(np.concatenate([part["x"] for part in parts]).tolist())
assert seen == whole, (seen, whole)
assert sums == [sum(rows) for rows in whole]
assert loader.loader.stats()["device"]["overflow"] == 0
named = infeed.tensorflow.Loader(pipeline, "named", devices=["sim", "sim"])
first, second = next(iter(named))
assert first.x.shape == second.n.shape == (2,)
try:
    loader.dataset()
except infeed.errors.ConfigError as error:
    print(error)
"""


def test_replicas_of_tensorflow_get_the_parts_of_several_devices():
    require("tensorflow")

    output = run(REPLICAS)

    assert "experimental_distribute_dataset" in output


def test_keras_on_tensorflow_takes_its_data_on_the_host(pipeline):
    require("keras")
    script = (
        "import infeed, infeed.keras\n"
        "from infeed import sources\n"
        "made = infeed.Pipeline(sources.Memory(x=[1, 2])).batch(2)\n"
        "for on in (dict(device='sim'), dict(devices=['sim', 'sim'])):\n"
        "    try: infeed.keras.Dataset(made, **on)\n"
        "    except infeed.errors.ConfigError as error: print(error)\n"
    )
    reported = run(script, KERAS_BACKEND="tensorflow").splitlines()
    assert len(reported) == 2
    assert all("leave out device" in message for message in reported)
    torch = run(script, KERAS_BACKEND="torch")
    assert "start a process for each, with rank, world_size and device" in torch


GPU = {"device": "cuda:0", "name": "a gpu"}


def test_a_framework_that_sees_no_gpu_raises_with_the_package_to_install(
    framework, pipeline, monkeypatch
):
    found = json.dumps({"gpus": [GPU], "reason": None})
    monkeypatch.setattr(infeed._core, "gpus", lambda: found)

    for device in ("cuda", "cuda:0"):
        loader = framework.device(pipeline, device=device)
        with pytest.raises(infeed.errors.DeviceError, match=device) as error:
            next(iter(loader))
        text = str(error.value).lower()
        assert f"install {framework.name}" in text
        assert "leave out device" in text


def test_without_any_gpu_the_engine_reports_the_reason(framework, pipeline):
    if json.loads(infeed._core.gpus())["gpus"]:
        pytest.skip("this machine has a GPU")
    for device, part in [("cuda", "driver"), ("cuda:first", "cuda:0")]:
        with pytest.raises(infeed.InfeedError, match=part):
            next(iter(framework.device(pipeline, device=device)))


def test_a_gpu_that_tensorflow_knows_by_another_number_raises(pipeline, monkeypatch):
    tensorflow = Framework("tensorflow")
    tf = import_or_skip("tensorflow")
    second = [SimpleNamespace(name="/physical_device:GPU:1")]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: second)

    with pytest.raises(infeed.errors.DeviceError, match="CUDA_VISIBLE_DEVICES"):
        len(tensorflow.device(pipeline, device="cuda"))


def test_cuda_means_the_default_gpu_of_jax(pipeline, monkeypatch):
    require("jax")
    jax, copies = import_or_skip("jax"), import_or_skip("infeed._jax_copies")
    gpus = [SimpleNamespace(local_hardware_id=n) for n in (2, 5)]
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: gpus)

    named = {
        name: copies.device_name(name) for name in ("cuda", "cuda:5", "sim:seed=1")
    }

    assert named == {"cuda": "cuda:2", "cuda:5": "cuda:5", "sim:seed=1": "sim:seed=1"}
    monkeypatch.setattr(
        infeed._core, "gpus", lambda: json.dumps({"gpus": [GPU], "reason": None})
    )
    with pytest.raises(
        infeed.errors.DeviceError, match="cuda:0: JAX does not see this GPU"
    ):
        copies.device_name("cuda:0")
