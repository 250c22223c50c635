"""infeed.tensorflow: tensors over the batch's memory, and a tf.data.Dataset."""

import gc
import weakref

import numpy as np
import pytest
from conftest import held_batches
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T

tf = import_or_skip("tensorflow")
adapter = import_or_skip("infeed.tensorflow")
pytestmark = framework_test


def everything(rows=6, **fields) -> infeed.Pipeline:
    """One batch with every kind of field."""
    pixels = np.arange(rows * 4 * 5 * 3, dtype=np.uint8).reshape(rows, 4, 5, 3)
    source = sources.Memory(
        image=pixels,
        label=list(range(rows)),
        flag=[True, False] * (rows // 2),
        text=["grün", *"bcdef"][:rows],
        blob=[b"\x00\xff"] * rows,
        boxes=[[1.5] * n for n in range(rows)],
    )
    return infeed.Pipeline(source).transform(T.ToFloat("image")).batch(rows)


@pytest.fixture
def pipeline() -> infeed.Pipeline:
    """Twelve numbers in shuffled batches of four."""
    return infeed.Pipeline(sources.Memory(x=list(range(12)))).shuffle(seed=3).batch(4)


def epoch(batches) -> list[list[int]]:
    return [np.asarray(batch["x"]).tolist() for batch in batches]


@pytest.mark.parametrize("batch_type", ["dict", "tuple", "named"])
@pytest.mark.parametrize("as_dataset", [False, True])
def test_every_kind_of_field_becomes_a_tensor(batch_type, as_dataset):
    pipeline = everything()
    loader = adapter.Loader(pipeline, batch_type)
    (expected,) = pipeline

    batches = loader.dataset() if as_dataset else loader
    (batch,) = batches

    if batch_type == "dict":
        assert list(batch) == list(pipeline.fields)
        batch = tuple(batch.values())
    elif batch_type == "named":
        assert batch._fields == pipeline.fields
    image, label, flag, text, blob, boxes = batch
    assert (image.dtype, image.shape) == (tf.float32, (6, 4, 5, 3))
    np.testing.assert_array_equal(image.numpy(), expected["image"])
    assert label.numpy().tolist() == list(range(6))
    assert flag.numpy().tolist() == [True, False] * 3
    assert [row.decode() for row in text.numpy()] == ["grün", *"bcdef"]
    assert blob.numpy().tolist() == [b"\x00\xff"] * 6
    assert boxes.to_list() == [[1.5] * n for n in range(6)]
    if as_dataset:
        spec = batches.element_spec
        spec = list(spec.values()) if batch_type == "dict" else list(spec)
        assert spec[0].shape == (6, 4, 5, 3)
        shapes = [s.shape.as_list() for s in spec]
        assert shapes[1:] == [[6], [6], [6], [6], [6, None]]


def test_bfloat16_is_delivered_unchanged():
    pipeline = everything().transform(dtype="bfloat16")

    (eager,), (mapped,) = (
        list(batches)
        for batches in (adapter.Loader(pipeline), adapter.Loader(pipeline).dataset())
    )

    assert eager["image"].dtype == mapped["image"].dtype == tf.bfloat16
    assert tf.reduce_all(eager["image"] == mapped["image"])


def test_tensors_of_a_loop_share_memory_and_outlive_the_loader(pipeline):
    (whole,) = infeed.Pipeline(sources.Memory(x=[1, 2, 3])).batch(3)
    tensor = adapter._tensor(whole.array("x"))
    whole["x"][0] = 77
    assert tensor.numpy().tolist() == [77, 2, 3]

    loader = adapter.Loader(pipeline)
    held = [batch["x"] for batch in loader]
    assert held_batches(loader, 3) == 3
    held[2] = held[2] + 0
    assert held_batches(loader, 2) == 2
    loader.close()
    del loader
    gc.collect()

    assert sorted(tf.concat(held, 0).numpy().tolist()) == list(range(12))


def test_each_pass_is_the_next_epoch_and_ends_alone(pipeline):
    expected = [epoch(pipeline) for _ in range(4)]
    loader = adapter.Loader(pipeline)
    dataset = loader.dataset()

    assert len(dataset) == len(loader) == 3
    assert [epoch(dataset), epoch(loader), epoch(dataset)] == expected[:3]
    repeated = adapter.Loader(pipeline).dataset().repeat(2)
    assert epoch(repeated) == expected[0] + expected[1]


def test_a_limit_of_tokens_makes_the_number_of_rows_unknown(pipeline):
    lengths = [1 + number % 4 for number in range(12)]
    limited = pipeline.batch(6, max_tokens=8, lengths=lengths, drop_last=True)

    dataset = adapter.Loader(limited).dataset()

    assert dataset.element_spec["x"].shape.as_list() == [None]
    sizes = [len(batch["x"]) for batch in dataset]
    assert len(set(sizes)) > 1
    assert len(sizes) == len(dataset)


def test_a_shorter_last_batch_makes_the_number_of_rows_unknown():
    numbers = infeed.Pipeline(sources.Memory(x=list(range(10))))

    short = adapter.Loader(numbers.batch(4)).dataset()
    dropped = adapter.Loader(numbers.batch(4, drop_last=True)).dataset()
    shared = adapter.Loader(
        numbers.batch(4, drop_last=True), rank=1, world_size=2
    ).dataset()

    assert short.element_spec["x"].shape.as_list() == [None]
    assert [len(rows) for rows in epoch(short)] == [4, 4, 2]
    assert dropped.element_spec["x"].shape.as_list() == [4]
    assert shared.element_spec["x"].shape.as_list() == [2]
    assert epoch(shared) == [[2, 3], [6, 7]]


def test_a_padded_last_batch_has_all_rows_and_a_mask():
    numbers = infeed.Pipeline(sources.Memory(x=list(range(10))))

    padded = adapter.Loader(numbers.batch(4, tail="pad"))
    wrapped = adapter.Loader(numbers.batch(4, tail="wrap")).dataset()

    assert padded.dataset().element_spec["valid"] == tf.TensorSpec([4], tf.bool)
    masks = [batch["valid"].numpy().tolist() for batch in padded.dataset()]
    assert masks == [[True] * 4, [True] * 4, [True, True, False, False]]
    assert [batch["valid"].numpy().tolist() for batch in padded] == masks
    assert wrapped.element_spec["x"].shape.as_list() == [4]
    assert epoch(wrapped)[-1] == [8, 9, 0, 1]


@pytest.mark.parametrize("ragged", [False, True])
def test_the_state_counts_taken_batches_and_a_run_continues_there(ragged):
    fields = {"x": list(range(40))}
    if ragged:
        fields["boxes"] = [[1.0] * (n % 3) for n in range(40)]
    pipeline = infeed.Pipeline(sources.Memory(**fields)).shuffle(seed=1).batch(4)
    whole = epoch(pipeline)
    loader = adapter.Loader(pipeline)
    dataset = loader.dataset()
    # With them, tf.data takes batches ahead of the loop, some time after a step.
    ahead = dataset.options().experimental_optimization
    assert (ahead.inject_prefetch, ahead.map_parallelization) == (False, False)
    batches = iter(dataset)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()

    assert (state["epoch"], state["position"]) == (0, 12)
    again = adapter.Loader(pipeline)
    again.load_state_dict(state)
    resumed = again.dataset()
    assert epoch(resumed) == whole[3:]
    assert len(epoch(resumed)) == 10


def test_leaving_a_pass_ends_its_epoch(pipeline):
    expected = [epoch(pipeline) for _ in range(2)]
    loader = adapter.Loader(pipeline)
    dataset = loader.dataset()

    for _ in dataset:
        break
    gc.collect()

    assert epoch(dataset) == expected[1]


def test_only_a_dataset_holds_its_loader(pipeline):
    expected = [epoch(pipeline) for _ in range(2)]
    dataset = adapter.Loader(pipeline).dataset().map(lambda batch: batch).prefetch(1)
    gc.collect()
    assert [epoch(dataset), epoch(dataset)] == expected

    loader = adapter.Loader(pipeline)
    dropped, seen = weakref.ref(loader), epoch(loader.dataset())
    del loader
    gc.collect()

    assert seen == expected[0]
    assert dropped() is None


def test_an_error_of_the_data_reaches_the_loop():
    source = sources.Memory(image=[b"no image"] * 4)
    pipeline = infeed.Pipeline(source).decode().transform(T.Resize((8, 8))).batch(2)

    with pytest.raises(infeed.errors.DecodeError):
        next(iter(adapter.Loader(pipeline)))
    with pytest.raises(tf.errors.OpError, match="DecodeError"):
        next(iter(adapter.Loader(pipeline).dataset()))


def test_a_keras_model_trains_on_the_dataset():
    keras = import_or_skip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    x = np.arange(12, dtype=np.float32)[:, None]
    pipeline = infeed.Pipeline(sources.Memory(x=x, y=2 * x)).shuffle(seed=1).batch(4)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    loader = adapter.Loader(pipeline, "tuple")

    loss = model.fit(loader.dataset(), epochs=3, verbose=0).history["loss"]

    assert loss[2] < loss[0]
    assert loader.epoch == 3
