"""infeed.jax on one device, over a mesh of four, and among two processes."""

import gc
import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from installed import framework_test, imported, needed
from running import environment, run

import infeed
from infeed import sources

needed("jax")
pytestmark = framework_test


@pytest.fixture
def jax():
    return imported("jax")


@pytest.fixture
def adapter(jax):
    return imported("infeed.jax")


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


def test_bfloat16_arrives_as_it_is(adapter):
    from infeed import transforms as T

    image = np.full((2, 4, 4, 3), 255, np.uint8)
    pipeline = infeed.Pipeline(sources.Memory(image=image))
    pipeline = pipeline.transform(T.ToFloat(), dtype="bfloat16").batch(2)

    (batch,) = adapter.Loader(pipeline)

    assert batch["image"].dtype.name == "bfloat16"
    assert float(batch["image"].min()) == 1.0


def test_arrays_keep_their_memory_whoever_else_lets_go(adapter):
    # Large enough that JAX uses the memory as it is, where it can.
    values = np.arange(64 * 4096, dtype=np.int32).reshape(64, 4096)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))

    held = [batch["x"] for _ in range(3) for batch in loader]
    loader.close()
    del loader
    gc.collect()

    for n, array in enumerate(held):
        row = 4 * (n % 16)
        np.testing.assert_array_equal(array, values[row : row + 4])


def test_memory_goes_back_with_the_last_array_of_a_batch(adapter):
    values = np.zeros((64, 4096), np.int32)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))
    for _ in range(3):
        for batch in loader:
            batch["x"].block_until_ready()
    del batch
    gc.collect()

    assert loader.loader.stats()["held"] == 0


def test_a_step_that_takes_its_batch_over_disturbs_no_other(jax, adapter):
    values = np.arange(64 * 4096, dtype=np.float32).reshape(64, 4096)
    loader = adapter.Loader(infeed.Pipeline(sources.Memory(x=values)).batch(4))
    step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)

    for _ in range(3):
        for n, batch in enumerate(loader):
            np.testing.assert_array_equal(batch["x"], values[4 * n : 4 * n + 4])
            assert (step(batch.pop("x")) == -1).all()


def test_epochs_and_states_are_those_of_the_pipeline(adapter, pipeline):
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
def refused(pipeline):
    try:
        list(infeed.jax.Loader(pipeline, over))
    except infeed.ConfigError as error:
        return str(error)
ragged = sources.Memory(boxes=[[1.0] * n for n in range(8)])
found["refused"] = [
    refused(infeed.Pipeline(source).batch(6)),
    refused(infeed.Pipeline(ragged).batch(8)),
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
    assert "batch of shape (6, 3) does not divide" in uneven
    assert "use a batch that does" in uneven
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
for layout, spec in ((devices, P(("a", "b"))), (devices, P("a")), (devices.T, P("a"))):
    loader = infeed.jax.Loader(pipeline, NamedSharding(Mesh(layout, ("a", "b")), spec))
    rows, read = [], loader._place()
    for batch in loader:
        assert batch["x"].shape == (8,)
        parts = {shard.index[0].start: shard.data.tolist()
                 for shard in batch["x"].addressable_shards}
        rows.append(sorted(parts.items()))
    found.append([read, rows])

# Rows of each process lie apart from each other: no rank could read them.
apart = NamedSharding(Mesh(devices.T.reshape(4), ("a",)), P("a"))
try:
    infeed.jax.Loader(pipeline, apart)._place()
except infeed.ConfigError as error:
    found.append(str(error))
assert infeed.jax.Loader(pipeline, apart, rank=1, world_size=2)._place() == (1, 2)
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
    found = [json.loads(said) for said, _ in ended]
    apart = [rank.pop() for rank in found]
    assert "holds rows [0 2] of 4 in the sharding" in apart[0]
    assert all("order the devices of the mesh by process" in said for said in apart)
    # Which share of the batch each process read, for each of the three meshes.
    shares = [[case[0] for case in rank] for rank in found]
    assert shares == [[[0, 2], [0, 2], [0, 1]], [[1, 2], [1, 2], [0, 1]]]
    for rank in found:
        for _, steps in rank:
            for rows, parts in zip(whole, steps, strict=True):
                for start, part in parts:
                    start = start or 0
                    assert part == rows[start : start + len(part)]
