"""infeed.jax on one device, over a mesh of four, and among two processes."""

import gc
import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import held_batches
from requirements import framework_test, import_or_skip, require
from running import environment, run

import infeed
from infeed import sources

require("jax")
pytestmark = framework_test


@pytest.fixture
def jax():
    return import_or_skip("jax")


@pytest.fixture
def adapter(jax):
    return import_or_skip("infeed.jax")


@pytest.fixture
def pipeline() -> infeed.Pipeline:
    """Twelve numbers in shuffled batches of four."""
    source = sources.Memory(x=np.arange(12, dtype=np.int32))
    return infeed.Pipeline(source).shuffle(seed=3).batch(4)


def epoch(batches) -> list[list[int]]:
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def test_batches_are_arrays_on_a_device(jax, adapter):
    source = sources.Memory(
        image=np.arange(6 * 16, dtype=np.uint8).reshape(6, 16),
        label=np.arange(6),
        flag=[True, False] * 3,
        text=list("abcdef"),
        boxes=[[1.5] * n for n in range(6)],
    )
    (device,) = jax.devices("cpu")[:1]

    (batch,) = adapter.Loader(infeed.Pipeline(source).batch(6), device, "named")

    assert batch.image.devices() == {device}
    assert (batch.image.dtype, batch.image.shape) == (np.uint8, (6, 16))
    assert batch.label.tolist() == list(range(6))
    assert batch.flag.dtype == bool
    assert batch.text == list("abcdef")
    values, offsets = batch.boxes
    assert (len(values), offsets.tolist()) == (15, [0, 0, 1, 3, 6, 10, 15])


def test_bfloat16_is_delivered_unchanged(adapter):
    from infeed import transforms as T

    image = np.full((2, 4, 4, 3), 255, np.uint8)
    pipeline = infeed.Pipeline(sources.Memory(image=image))
    pipeline = pipeline.transform(T.ToFloat(), dtype="bfloat16").batch(2)

    (batch,) = adapter.Loader(pipeline)

    assert batch["image"].dtype.name == "bfloat16"
    assert float(batch["image"].min()) == 1.0


def test_arrays_keep_their_memory_after_the_batch_is_dropped(adapter):
    # Large enough that JAX shares the memory, if it can.
    values = np.arange(64 * 4096, dtype=np.int32).reshape(64, 4096)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))

    held = [batch["x"] for _ in range(3) for batch in loader]
    loader.close()
    del loader
    gc.collect()

    for n, array in enumerate(held):
        row = 4 * (n % 16)
        np.testing.assert_array_equal(array, values[row : row + 4])


def test_memory_is_released_with_the_last_array_of_a_batch(adapter):
    values = np.zeros((64, 4096), np.int32)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))
    for _ in range(3):
        for batch in loader:
            batch["x"].block_until_ready()
    del batch
    gc.collect()

    assert held_batches(loader, 0) == 0


def test_a_step_that_donates_its_batch_affects_no_other(jax, adapter):
    values = np.arange(64 * 4096, dtype=np.float32).reshape(64, 4096)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))
    step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)

    for _ in range(3):
        for n, batch in enumerate(loader):
            np.testing.assert_array_equal(batch["x"], values[4 * n : 4 * n + 4])
            assert (step(batch.pop("x")) == -1).all()


def test_epochs_and_states_equal_those_of_the_pipeline(adapter, pipeline):
    expected = [epoch(pipeline) for _ in range(3)]
    loader = adapter.Loader(pipeline)

    assert [epoch(loader), epoch(loader)] == expected[:2]
    batches = iter(loader)
    next(batches)
    again = adapter.Loader(pipeline)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    again.set_epoch(2)

    assert epoch(again) == expected[2][1:]
    assert len(loader) == 3


# Four devices in one process: rows over all four, over two with two copies, and whole.
MESH = """
import json
import jax, numpy as np
import infeed, infeed.jax
from infeed import sources
from jax.sharding import NamedSharding, PartitionSpec as P

assert len(jax.devices()) == 4
values = np.arange(24 * 3, dtype=np.float32).reshape(24, 3)
source = sources.Memory(x=values, y=list(range(24)))
pipeline = infeed.Pipeline(source).shuffle(seed=2).batch(8)
whole = [batch["y"].tolist() for batch in pipeline]
square = jax.make_mesh((2, 2), ("data", "model"))

total = jax.jit(lambda batch: batch["x"].sum())
found = {}
for name, sharding in dict(
    rows=NamedSharding(jax.make_mesh((4,), ("data",)), P("data")),
    both=NamedSharding(square, P(("data", "model"))),
    copies=NamedSharding(square, P("data")),
    whole=NamedSharding(square, P()),
).items():
    seen, sums, parts = [], [], set()
    for batch in infeed.jax.Loader(pipeline, sharding):
        assert batch["x"].sharding == sharding and batch["x"].shape == (8, 3)
        seen.append(batch["y"].tolist())
        sums.append(float(total(batch)))
        parts |= {shard.data.shape for shard in batch["x"].addressable_shards}
        assert all(
            (shard.data == values[batch["y"]][shard.index]).all()
            for shard in batch["x"].addressable_shards
        )
    found[name] = dict(
        same=seen == whole, parts=sorted(parts),
        sums=sums == [float(values[rows].sum()) for rows in whole],
    )

over = NamedSharding(jax.make_mesh((4,), ("data",)), P("data"))
def error_of(pipeline):
    try:
        list(infeed.jax.Loader(pipeline, over))
    except infeed.errors.ConfigError as error:
        return str(error)
ragged = sources.Memory(boxes=[[1.0] * n for n in range(8)])
found["refused"] = [
    error_of(infeed.Pipeline(source).batch(6)),
    error_of(infeed.Pipeline(ragged).batch(8)),
]
print(json.dumps(found))
"""


def test_batches_are_global_arrays_over_a_mesh():
    devices = "--xla_force_host_platform_device_count=4"

    found = json.loads(run(MESH, XLA_FLAGS=devices, JAX_PLATFORMS="cpu"))

    uneven, ragged = found.pop("refused")
    assert all(case["same"] and case["sums"] for case in found.values())
    assert {name: case["parts"] for name, case in found.items()} == {
        "rows": [[2, 3]],
        "both": [[2, 3]],
        "copies": [[4, 3]],
        "whole": [[8, 3]],
    }
    assert "do not divide a batch of shape (6, 3)" in uneven
    assert "use another batch size" in uneven
    assert "boxes is ragged" in ragged


PADDED = """
import json, jax, numpy as np
import infeed, infeed.jax
from infeed import sources
from jax.sharding import NamedSharding, PartitionSpec as P

source = sources.Memory(x=np.arange(1, 14, dtype=np.float32))
pipeline = infeed.Pipeline(source).batch(8, tail="pad")
over = NamedSharding(jax.make_mesh((4,), ("data",)), P("data"))

@jax.jit
def mean(batch):
    return (batch["x"] * batch["valid"]).sum() / batch["valid"].sum()

batches = list(infeed.jax.Loader(pipeline, over))
print(json.dumps(dict(
    valid=[batch["valid"].tolist() for batch in batches],
    means=[float(mean(batch)) for batch in batches],
    dtype=str(batches[0]["valid"].dtype),
)))
"""


def test_the_mask_of_a_padded_tail_is_a_global_array_too():
    devices = "--xla_force_host_platform_device_count=4"

    found = json.loads(run(PADDED, XLA_FLAGS=devices, JAX_PLATFORMS="cpu"))

    assert found["valid"] == [[True] * 8, [True] * 5 + [False] * 3]
    assert found["means"] == [4.5, 11.0]
    assert found["dtype"] == "bool"


# Two processes of two devices each: rows over all four devices, or over two of which
# each process has both copies, or over two of which each process has one copy.
PROCESSES = """
import json, sys
import jax, numpy as np
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
import infeed, infeed.jax
from infeed import sources
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

assert (jax.device_count(), jax.local_device_count()) == (4, 2)
source = sources.Memory(x=np.arange(16, dtype=np.int32))
pipeline = infeed.Pipeline(source).shuffle(seed=2).batch(8)
devices = np.array(jax.devices()).reshape(2, 2)
found = []
# Batches that JAX moves from the host, and those over the buses of two devices.
by_rows = NamedSharding(Mesh(devices, ("a", "b")), P(("a", "b")))
sent = infeed.jax.Loader(pipeline, by_rows, devices=["sim", "sim"])
for one, other in zip(sent, infeed.jax.Loader(pipeline, by_rows), strict=True):
    assert one["x"].shape == (8,) and one["x"].sharding == by_rows
    for mine, yours in zip(
        one["x"].addressable_shards, other["x"].addressable_shards, strict=True
    ):
        assert mine.index == yours.index and mine.device == yours.device
        assert mine.data.tolist() == yours.data.tolist()

for layout, spec in ((devices, P(("a", "b"))), (devices, P("a")), (devices.T, P("a"))):
    loader = infeed.jax.Loader(pipeline, NamedSharding(Mesh(layout, ("a", "b")), spec))
    rows, read = [], loader._find_rank()
    for batch in loader:
        assert batch["x"].shape == (8,)
        parts = {shard.index[0].start: shard.data.tolist()
                 for shard in batch["x"].addressable_shards}
        rows.append(sorted(parts.items()))
    found.append([read, rows])

# Rows of each process lie apart from each other: no rank could read them.
apart = NamedSharding(Mesh(devices.T.reshape(4), ("a",)), P("a"))
try:
    infeed.jax.Loader(pipeline, apart)._find_rank()
except infeed.errors.ConfigError as error:
    found.append(str(error))
assert infeed.jax.Loader(pipeline, apart, rank=1, world_size=2)._find_rank() == (1, 2)
print(json.dumps(found))
"""


def test_processes_read_the_rows_of_their_own_devices(pipeline):
    source = sources.Memory(x=np.arange(16, dtype=np.int32))
    whole = epoch(infeed.Pipeline(source).shuffle(seed=2).batch(8))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    variables = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }

    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESSES, address, str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**variables),
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=120) for process in ranks]

    assert [process.returncode for process in ranks] == [0, 0], ended[0][1][-2000:]
    found = [json.loads(output) for output, _ in ended]
    apart = [rank.pop() for rank in found]
    assert "has rows [0 2] of 4 in the sharding" in apart[0]
    assert all("order the devices of the mesh by process" in output for output in apart)
    # Share of the batch that each process read, for each of the three meshes.
    shares = [[case[0] for case in rank] for rank in found]
    assert shares == [[[0, 2], [0, 2], [0, 1]], [[1, 2], [1, 2], [0, 1]]]
    for rank in found:
        for _, steps in rank:
            for rows, parts in zip(whole, steps, strict=True):
                for start, part in parts:
                    start = start or 0
                    assert part == rows[start : start + len(part)]


# Four CPUs in place of GPUs; each simulated device has its own bus.
SEVERAL = """
import json
import jax, numpy as np
import infeed, infeed.jax
from infeed import sources
from infeed import transforms as T
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rng = np.random.default_rng(5)
source = sources.Memory(
    image=rng.integers(0, 256, (22, 4, 5, 3), dtype=np.uint8),
    label=np.arange(22, dtype=np.int32),
    text=[chr(97 + n) for n in range(22)],
)
made = infeed.Pipeline(source).shuffle(seed=2).transform(T.ToFloat("image"))
pipeline = made.batch(4)
host = [dict(batch.items()) for batch in pipeline]
cpus = jax.devices()
step = jax.jit(lambda image: image * 0 - 1, donate_argnums=0)
sims = ["sim", "sim:latency=50us"]
both = NamedSharding(Mesh(cpus[:2], "data"), P("data"))

def same(found):
    return len(found) == len(host) and all(
        list(one) == list(other)
        and np.array_equal(one["image"], other["image"])
        and one["label"].tolist() == other["label"].tolist()
        and one["text"] == other["text"]
        for one, other in zip(found, host)
    )

# Kept, used by one computation over both, and taken over by another one.
with infeed.jax.Loader(pipeline, devices=sims, slots=2) as loader:
    kept = list(loader)
    for batch in kept:
        rows = batch["image"].shape[0]
        assert batch["image"].committed
        assert batch["image"].sharding == both
        first, second = batch["image"].addressable_shards
        assert (first.device, second.device) == (cpus[0], cpus[1])
        assert first.data.shape == second.data.shape == (rows // 2, 4, 5, 3)
    assert same(kept)
    totals = [float(jax.jit(lambda n: n.sum())(batch["label"])) for batch in kept]
    assert totals == [float(batch["label"].sum()) for batch in host]
    sent = loader.loader.stats()
    assert sent["device"]["overflow"] == 0 and len(sent["devices"]) == 2
    for batch in loader:
        assert (step(batch.pop("image")) == -1).all()
    state = None
    steps = iter(loader)
    taken = [next(steps) for _ in range(3)]
    state = loader.state_dict()
    assert state["position"] == 3 * 4
    rest = [batch["label"].tolist() for batch in steps]
with infeed.jax.Loader(pipeline) as loader:
    loader.load_state_dict(state)
    assert [batch["label"].tolist() for batch in loader] == rest

# A custom sharding, in which each device has its own rows.
square = Mesh(np.array(cpus).reshape(2, 2), ("a", "b"))
over = NamedSharding(square, P(("a", "b")))
four = made.batch(4, tail="drop")
with infeed.jax.Loader(four, over, devices=["sim"] * 4) as loader:
    for batch, other in zip(loader, host):
        assert batch["image"].sharding == over
        assert np.array_equal(batch["image"], other["image"])

def error_of(*arguments, of=pipeline, **options):
    try:
        list(infeed.jax.Loader(of, *arguments, **options))
    except infeed.InfeedError as error:
        return type(error).__name__ + " " + str(error)

ragged = infeed.Pipeline(sources.Memory(boxes=[[1.0] * n for n in range(8)])).batch(8)
print(json.dumps(dict(
    order=error_of(NamedSharding(Mesh(cpus[1::-1], "a"), P("a")), devices=sims),
    copies=error_of(NamedSharding(square, P("a")), of=four, devices=["sim"] * 4),
    others=error_of(over, devices=sims),
    many=error_of(of=made.batch(10, tail="drop"), devices=["sim"] * 5),
    both=error_of(cpus[0], devices=sims),
    named=error_of("sim", devices=sims),
    ragged=error_of(of=ragged, devices=sims),
    text=error_of(devices="sim"),
    rows=error_of(of=made.batch(5), devices=sims),
)))
"""


def test_several_devices_give_global_arrays_of_their_parts():
    devices = "--xla_force_host_platform_device_count=4"

    messages = json.loads(run(SEVERAL, XLA_FLAGS=devices, JAX_PLATFORMS="cpu"))

    parts = {
        "order": "ConfigError image: the sharding has [2:4, 0:4, 0:5, 0:3]",
        "copies": "ConfigError image: the sharding has [0:2, 0:4, 0:5, 0:3]",
        "others": "name exactly those",
        "many": "DeviceError devices: sim needs device 4 of JAX's CPU, which has 4",
        "both": "use a sharding over the devices",
        "named": "device and devices are both set",
        "ragged": "boxes is ragged, and several devices need rows of one shape",
        "text": "a list of names",
        "rows": "5 rows cannot be divided evenly among 2 devices",
    }
    for name, part in parts.items():
        assert part in (messages[name] or "nothing"), (name, messages[name])


@dataclass(frozen=True)
class Gpu:
    """A GPU as JAX describes it."""

    local_hardware_id: int
    platform: str = "gpu"

    @property
    def id(self) -> int:
        return self.local_hardware_id


def test_gpus_of_several_devices_are_those_of_jax(adapter, monkeypatch):
    jax, copies = import_or_skip("jax"), import_or_skip("infeed._jax_copies")
    gpus = [Gpu(0), Gpu(3)]
    has = {"cuda": gpus, "cpu": [Gpu(0, "cpu")]}
    monkeypatch.setattr(jax, "local_devices", lambda backend: has[backend])
    of_jax = SimpleNamespace(addressable_devices=set(gpus))

    assert copies.DeviceArrays(["cuda:3", "cuda"], of_jax).names == ["cuda:3", "cuda:0"]
    with pytest.raises(infeed.errors.ConfigError, match="name exactly those"):
        copies.DeviceArrays(["cuda:3"], of_jax)
    with pytest.raises(infeed.errors.ConfigError, match="name each once"):
        copies.DeviceArrays(["cuda:3", "cuda:3"], of_jax)
    with pytest.raises(infeed.errors.ConfigError, match="cannot form one array"):
        copies.DeviceArrays(["sim", "cuda:3"], None)
