"""infeed.torch with PyTorch only: tensors, epochs, state, ranks, DataLoader."""

import copy
import gc
import json
import logging
import pickle

import numpy as np
import pytest
from children import result_in_fork
from conftest import held_batches
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T

torch = import_or_skip("torch")
adapter = import_or_skip("infeed.torch")
pytestmark = framework_test


@pytest.fixture
def pipeline() -> infeed.Pipeline:
    """Twelve numbers in shuffled batches of four."""
    return infeed.Pipeline(sources.Memory(x=list(range(12)))).shuffle(seed=3).batch(4)


def epoch(loader) -> list[list[int]]:
    return [batch["x"].tolist() for batch in loader]


def test_batches_are_tensors_over_the_memory_of_the_batch():
    pixels = np.arange(6 * 8 * 8 * 3, dtype=np.uint8).reshape(6, 8, 8, 3)
    source = sources.Memory(
        image=pixels,
        label=list(range(6)),
        flag=[True, False] * 3,
        name=list("abcdef"),
        blob=[b"x"] * 6,
        boxes=[[1.0] * n for n in range(6)],
    )
    pipeline = (
        infeed.Pipeline(source).transform(T.ToFloat("image"), dtype="bfloat16").batch(6)
    )

    (batch,) = adapter.Loader(pipeline)

    assert list(batch) == list(pipeline.fields)
    assert batch["image"].dtype == torch.bfloat16
    assert batch["image"].shape == (6, 8, 8, 3)
    assert batch["label"].tolist() == list(range(6))
    assert batch["label"].dtype == torch.int64
    assert batch["flag"].dtype == torch.bool
    assert batch["name"] == list("abcdef")
    assert batch["blob"] == [b"x"] * 6
    values, offsets = batch["boxes"]
    assert (len(values), offsets.tolist()) == (15, [0, 0, 1, 3, 6, 10, 15])
    # No copy: NumPy's view of the same batch changes with the tensor.
    (whole,) = pipeline
    view = whole["label"]
    torch.from_dlpack(whole.array("label"))[0] = 77
    assert view[0] == 77


def test_the_mask_of_a_padded_tail_is_a_tensor_on_every_rank():
    source = sources.Memory(x=list(range(1, 6)))
    pipeline = infeed.Pipeline(source).batch(4, tail="pad")

    ranks = [
        [(b["x"].tolist(), b["valid"]) for b in adapter.Loader(pipeline, **place)]
        for place in ({"rank": rank, "world_size": 2} for rank in range(2))
    ]

    assert [[x for x, _ in rank] for rank in ranks] == [
        [[1, 2], [5, 0]],
        [[3, 4], [0, 0]],
    ]
    assert all(valid.dtype == torch.bool for rank in ranks for _, valid in rank)
    assert [valid.tolist() for _, valid in ranks[0]] == [[True, True], [True, False]]
    assert [valid.tolist() for _, valid in ranks[1]] == [[True, True], [False, False]]


def test_a_batch_is_a_dict_a_tuple_or_named(pipeline):
    kinds = {
        batch_type: next(iter(adapter.Loader(pipeline, batch_type)))
        for batch_type in ("dict", "tuple", "named")
    }

    assert list(kinds["dict"]) == ["x"]
    assert type(kinds["tuple"]) is tuple
    assert kinds["named"]._fields == ("x",)
    assert kinds["named"].x.tolist() == kinds["tuple"][0].tolist()
    with pytest.raises(infeed.errors.ConfigError, match='"dict", "tuple", "named"'):
        adapter.Loader(pipeline, batch_type="list")


def test_a_field_that_is_not_a_python_name_needs_another_batch_type():
    pipeline = infeed.Pipeline(sources.Memory(**{"a b": [1, 2]})).batch(2)

    with pytest.raises(infeed.errors.ConfigError, match='use batch_type="dict"'):
        next(iter(adapter.Loader(pipeline, batch_type="named")))


def test_tensors_outlive_the_loader(pipeline):
    with adapter.Loader(pipeline) as loader:
        held = [batch["x"] for batch in loader]
    del loader
    gc.collect()

    assert sorted(torch.cat(held).tolist()) == list(range(12))


def test_memory_is_released_with_the_last_tensor_of_a_batch(pipeline):
    loader = adapter.Loader(pipeline, "tuple")
    held = [next(iter(loader))[0]]
    held.append(held[0][:2])
    del held[0]
    assert held_batches(loader, 1) == 1

    held.clear()
    for _ in range(20):
        for _ in loader:
            pass
    del _

    assert held_batches(loader, 0) == 0


def test_tensors_of_their_own_leave_the_memory_of_the_batch_to_the_loader():
    source = sources.Memory(x=list(range(12)), boxes=[[1.0] * n for n in range(12)])
    pipeline = infeed.Pipeline(source).batch(4)
    owning, sharing = (adapter.Loader(pipeline, own=own) for own in (True, False))

    kept = list(owning)

    assert held_batches(owning, 0) == 0
    batches = list(sharing)
    assert held_batches(sharing, 3) == 3
    assert [batch["x"].tolist() for batch in kept] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    for batch, other in zip(kept, batches, strict=True):
        assert batch["x"].tolist() == other["x"].tolist()
        assert [*map(len, batch["boxes"])] == [*map(len, other["boxes"])]


def test_host_memory_is_shared_and_a_gpu_is_copied_by_default(pipeline, monkeypatch):
    loader = adapter.Loader(pipeline)
    kept = next(iter(loader))
    assert held_batches(loader, 1) == 1

    class GpuTensor:
        is_cuda = True

        def clone(self):
            return "a copy"

    monkeypatch.setattr(torch, "from_dlpack", lambda array: GpuTensor())

    assert adapter.tensor_of(kept["x"]) == "a copy"
    assert isinstance(adapter.tensor_of(kept["x"], own=False), GpuTensor)
    with pytest.raises(infeed.errors.ConfigError, match="True or False"):
        adapter.Loader(pipeline, own="yes")


def test_epochs_equal_those_of_the_pipeline(pipeline):
    expected = [epoch(pipeline) for _ in range(3)]
    loader = adapter.Loader(pipeline)

    assert len(loader) == 3
    assert [epoch(loader) for _ in range(3)] == expected
    assert loader.epoch == 3


def test_set_epoch_changes_nothing_if_that_epoch_is_next(pipeline):
    expected = [epoch(pipeline) for _ in range(4)]
    loader = adapter.Loader(pipeline)

    seen = []
    for number in (0, 1, 1, 3, 0):
        loader.set_epoch(number)
        loader.set_epoch(number)
        seen.append(epoch(loader))

    assert seen == [expected[0], expected[1], expected[1], expected[3], expected[0]]


@pytest.mark.parametrize("held", [False, True])
def test_set_epoch_after_reading_a_batch_restarts_that_epoch(pipeline, held):
    expected = [epoch(pipeline) for _ in range(3)]
    loader = adapter.Loader(pipeline)
    first_pass = iter(loader)
    next(first_pass)
    if not held:
        del first_pass

    seen = []
    for number in range(3):
        loader.set_epoch(number)
        seen.append(epoch(loader))

    assert seen == expected
    if held:
        with pytest.raises(infeed.errors.IteratorError, match="another loop"):
            next(first_pass)


class BrokenItems:
    """Numbers, one of which is bad."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5:
            raise ValueError("no five")
        return {"x": index}


@pytest.fixture
def broken_loader():
    pipeline = infeed.Pipeline(sources.Items(BrokenItems())).batch(4)
    return adapter.Loader(pipeline, on_error="substitute", max_bad=1)


def test_set_epoch_keeps_bad_records_and_counts_none_twice(broken_loader):
    first = epoch(broken_loader)

    broken_loader.set_epoch(5)
    assert [bad.index for bad in broken_loader.loader.bad_records] == [5]
    broken_loader.set_epoch(0)

    assert epoch(broken_loader) == first
    assert broken_loader.loader.stats()["bad"] == 1
    assert broken_loader.state_dict()["bad"] == [[0, 5, 5]]


# PyTorch warns if there are no other processes.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_distributed_checkpoints_hold_bad_records_or_none(broken_loader, tmp_path):
    checkpoint = import_or_skip("torch.distributed.checkpoint")
    fresh = adapter.Loader(broken_loader.pipeline, on_error="substitute", max_bad=1)
    checkpoint.save({"data": fresh}, checkpoint_id=tmp_path / "none")
    epoch(broken_loader)
    state = broken_loader.state_dict()
    checkpoint.save({"data": broken_loader}, checkpoint_id=tmp_path / "one")

    checkpoint.load({"data": fresh}, checkpoint_id=tmp_path / "one")
    checkpoint.load({"data": broken_loader}, checkpoint_id=tmp_path / "none")

    assert state["bad"] == [[0, 5, 5]]
    assert fresh.state_dict() == state
    assert broken_loader.state_dict()["bad"] == []
    assert broken_loader.epoch == 0


def test_set_epoch_keeps_the_position_of_a_resumed_epoch(pipeline):
    whole = epoch(pipeline)
    loader = adapter.Loader(pipeline)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()

    again = adapter.Loader(pipeline)
    again.load_state_dict(state)
    again.set_epoch(0)

    assert epoch(again) == whole[1:]


def test_a_loop_that_counts_its_steps_does_not_start_the_next_epoch(pipeline):
    expected = [epoch(pipeline) for _ in range(3)]
    loader = adapter.Loader(pipeline)

    kept = []
    for _ in range(3):
        batches = iter(loader)
        # Held, and a fourth batch is never requested, as in trainers.
        kept.append(batches)
        seen = [next(batches)["x"].tolist() for _ in range(len(loader))]
        assert seen == expected[len(kept) - 1]

    assert [list(batches) for batches in kept] == [[], [], []]


def test_a_second_loop_ends_the_epoch_of_the_first_which_raises(pipeline):
    expected = [epoch(pipeline) for _ in range(2)]
    loader = adapter.Loader(pipeline)
    first = iter(loader)
    next(first)

    assert epoch(loader) == expected[1]

    with pytest.raises(infeed.errors.IteratorError, match="another loop"):
        next(first)


@pytest.mark.parametrize("taken", range(4))
def test_a_run_continues_where_its_state_was_taken(pipeline, taken):
    loader = adapter.Loader(pipeline)
    whole = epoch(loader) + epoch(loader)
    loader.set_epoch(0)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))

    again = adapter.Loader(pipeline, workers=1)
    again.load_state_dict(state)

    assert (epoch(again) + epoch(again))[: 6 - taken] == whole[taken:]


def test_a_state_may_be_loaded_after_iter(pipeline):
    whole = epoch(pipeline)
    loader = adapter.Loader(pipeline)
    batches = iter(loader)

    loader.load_state_dict(loader.state_dict() | {"position": 8})

    assert [batch["x"].tolist() for batch in batches] == whole[2:]


def test_a_state_of_another_run_raises(pipeline):
    state = adapter.Loader(pipeline).state_dict()

    with pytest.raises(infeed.errors.ConfigError, match="seed is 4, was 3"):
        adapter.Loader(pipeline.shuffle(seed=4)).load_state_dict(state)


def test_a_state_of_another_run_is_accepted_on_request_and_ends_the_loop(pipeline):
    state = adapter.Loader(pipeline).state_dict() | {"position": 4}
    other = pipeline.shuffle(seed=4)
    loader = adapter.Loader(other)
    batches = iter(loader)
    next(batches)

    loader.load_state_dict(state, strict=False)

    with pytest.raises(infeed.errors.IteratorError, match="a state was loaded"):
        next(batches)
    assert epoch(loader) == epoch(other)[1:]
    infeed.prefetch(loader).load_state_dict(state, strict=False)
    assert loader.state_dict()["position"] == 4


def test_a_loader_is_an_iterable_dataset_for_a_data_loader(pipeline):
    whole = [epoch(pipeline) for _ in range(2)]
    loader = torch.utils.data.DataLoader(adapter.Loader(pipeline), batch_size=None)

    assert isinstance(loader.dataset, torch.utils.data.IterableDataset)
    assert len(loader) == 3
    assert [epoch(loader) for _ in range(2)] == whole


def test_workers_of_a_data_loader_raise(pipeline):
    loader = torch.utils.data.DataLoader(
        adapter.Loader(pipeline), batch_size=None, num_workers=1
    )

    with pytest.raises(infeed.errors.LoaderError, match="num_workers=0"):
        next(iter(loader))


def test_a_loader_is_pickled_with_its_settings(pipeline):
    loader = adapter.Loader(pipeline, batch_type="named")
    next(iter(loader))

    again = pickle.loads(pickle.dumps(loader))
    copied = copy.deepcopy(again)

    assert [b.x.tolist() for b in copied] == epoch(pipeline)


def test_another_object_than_a_pipeline_raises(pipeline):
    with pytest.raises(
        infeed.errors.ConfigError, match=r"Loader: pipeline must be an infeed"
    ):
        adapter.Loader(pipeline.open())
    with pytest.raises(infeed.errors.ConfigError, match="rank and world_size together"):
        adapter.Loader(pipeline, rank=1)


def test_a_closed_loader_raises(pipeline):
    loader = adapter.Loader(pipeline)
    with loader:
        next(iter(loader))

    with pytest.raises(infeed.errors.ClosedError, match="make another one"):
        next(iter(loader))


def test_a_fork_of_an_open_loader_raises_in_the_child(pipeline):
    loader = adapter.Loader(pipeline)
    batches = iter(loader)
    next(batches)

    def all_refused() -> bool:
        for use in (lambda: iter(loader), loader.state_dict, lambda: next(batches)):
            with pytest.raises(infeed.errors.ForkedError):
                use()
        return True

    assert result_in_fork(all_refused) == "True"
    assert len(list(batches)) == 2


def test_rank_and_world_size_are_those_of_torchrun(pipeline, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = epoch(pipeline)

    assert epoch(adapter.Loader(pipeline)) == [rows[2:] for rows in whole]
    assert epoch(adapter.Loader(pipeline, rank=0, world_size=1)) == whole
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(infeed.errors.ConfigError, match="RANK='first'"):
        len(adapter.Loader(pipeline))


def test_more_threads_than_cores_are_logged_once(pipeline, monkeypatch, caplog):
    monkeypatch.setattr(adapter, "_warned", False)
    monkeypatch.setattr(adapter, "usable_cores", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)

    with caplog.at_level(logging.WARNING, logger="infeed.torch"):
        len(adapter.Loader(pipeline, workers=1))
        assert caplog.messages == []
        len(adapter.Loader(pipeline, workers=2))
        len(adapter.Loader(pipeline, workers=2))

    (message,) = caplog.messages
    assert "with 3 threads and infeed prepares with 2 on 4 cores" in message
    assert "torch.set_num_threads" in message


def test_prefetch_moves_tensors_in_its_thread(pipeline):
    whole = epoch(pipeline)
    pair = torch.utils.data.TensorDataset(torch.arange(6), torch.ones(6))

    moved = [b["x"] for b in infeed.prefetch(adapter.Loader(pipeline), device="cpu")]
    named = list(infeed.prefetch(adapter.Loader(pipeline, "named"), device="meta"))
    plain = list(
        infeed.prefetch(torch.utils.data.DataLoader(pair, 3, num_workers=1), device=0)
        if torch.cuda.is_available()
        else infeed.prefetch(torch.utils.data.DataLoader(pair, 3, num_workers=1))
    )

    assert [rows.tolist() for rows in moved] == whole
    assert all(batch.x.device.type == "meta" for batch in named)
    assert [rows.tolist() for rows, _ in plain] == [[0, 1, 2], [3, 4, 5]]


def test_a_prefetch_has_the_state_of_the_items_that_its_loop_took(pipeline):
    whole = epoch(pipeline)
    ahead = infeed.prefetch(adapter.Loader(pipeline), batches=3, device="cpu")
    batches = iter(ahead)
    assert next(batches)["x"].tolist() == whole[0]
    state = json.loads(json.dumps(ahead.state_dict()))
    assert (state["epoch"], state["position"]) == (0, 4)

    again = infeed.prefetch(adapter.Loader(pipeline), device="cpu")
    again.load_state_dict(state)

    assert epoch(again) == whole[1:]
    assert again.state_dict()["epoch"] == 1


def test_prefetch_to_a_device_rejects_items_without_tensors():
    with pytest.raises(infeed.errors.ConfigError, match="of type dict has no tensor"):
        list(infeed.prefetch([{"x": 1}], device="cpu"))
    with pytest.raises(infeed.errors.ConfigError, match="prefetch: device='gpu'"):
        infeed.prefetch([], device="gpu")


def test_arguments_of_a_data_loader_raise_with_their_replacement(pipeline):
    with pytest.raises(
        infeed.errors.ConfigError, match=r"num_workers=4 .* use workers=n"
    ):
        adapter.Loader(pipeline, num_workers=4)
    with pytest.raises(TypeError, match=r"use infeed\.torch\.Loader\(pipeline\)"):
        list(torch.utils.data.DataLoader(pipeline))


def test_the_cpu_as_a_device_is_the_host(pipeline):
    with adapter.Loader(pipeline, device="cpu") as loader:
        assert loader.device is None
        assert next(iter(loader))["x"].device.type == "cpu"
