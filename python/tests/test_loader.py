"""Epochs, their ends, and the reports of a running loader."""

import json
import logging
import re
import threading
import time
import urllib.request

import numpy as np
import pytest
from test_examples import classification_pipeline

import infeed
from infeed import sources


@pytest.fixture
def numbers() -> infeed.Pipeline:
    """Twelve scalars, four a batch, in order."""
    return infeed.Pipeline(sources.Memory(x=np.arange(12))).batch(4)


def drain(batches) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


WHOLE = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_each_loop_is_one_epoch(numbers):
    with numbers.open() as loader:
        assert len(loader) == 3
        for epoch in range(3):
            assert loader.epoch == epoch
            steps = [(b.epoch, b.step, b["x"].tolist()) for b in loader]
            assert steps == [(epoch, step, WHOLE[step]) for step in range(3)]


def test_break_ends_the_epoch(numbers):
    with numbers.open() as loader:
        for batch in loader:
            assert batch.epoch == 0
            break

        assert [(batch.epoch, batch.step) for batch in loader] == [
            (1, 0),
            (1, 1),
            (1, 2),
        ]


def test_an_unused_iterator_ends_no_epoch(numbers):
    with numbers.open() as loader:
        iter(loader)

        assert [batch.epoch for batch in loader] == [0, 0, 0]


def test_a_pipeline_keeps_its_loader_from_loop_to_loop(numbers):
    assert [batch.epoch for batch in numbers] == [0, 0, 0]
    for _ in numbers:
        break
    assert [batch.epoch for batch in numbers] == [2, 2, 2]


@pytest.mark.parametrize("of", ["pipeline", "loader"])
def test_a_second_iterator_at_the_same_time_is_an_error(numbers, of):
    over = numbers if of == "pipeline" else numbers.open()
    first = iter(over)
    next(first)

    with pytest.raises(infeed.errors.IteratorError, match="another loop"):
        iter(over)

    assert drain(first) == WHOLE[1:]
    assert drain(over) == WHOLE


def test_an_exception_in_the_loop_ends_the_epoch(numbers):
    with numbers.open() as loader:
        with pytest.raises(ZeroDivisionError):
            sum(1 / 0 for _ in loader)

        assert [batch.epoch for batch in loader] == [1, 1, 1]


@pytest.fixture
def interrupted_loop(ctrl_c):
    """A loader, its iterator that Ctrl-C interrupted, and what it delivered before."""
    may_block, is_blocked, may_work = (threading.Event() for _ in range(3))

    def waits(fields):
        if may_block.is_set():
            is_blocked.set()
            may_work.wait(60)
        return fields

    def interrupt():
        # Half a second later, the main thread has taken the batches that were ready.
        if is_blocked.wait(60):
            ctrl_c(0.5)

    # Far more batches than the loader prepares ahead.
    pipeline = infeed.Pipeline(sources.Memory(x=np.arange(4000))).python(waits).batch(4)
    with pipeline.open(workers=2) as loader:
        batches = iter(loader)
        delivered = [next(batches)["x"].tolist()]
        may_block.set()
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt) as error:
            delivered.extend(batch["x"].tolist() for batch in batches)
        may_work.set()
        # The error is held, as in a notebook.
        yield loader, batches, delivered, error


def test_a_loop_may_continue_after_an_interrupt(interrupted_loop):
    loader, batches, delivered, _ = interrupted_loop
    state = loader.state_dict()
    whole = np.arange(4000).reshape(-1, 4).tolist()

    assert (loader.epoch, delivered + drain(batches)) == (0, whole)
    loader.load_state_dict(state)
    assert delivered + drain(loader) == whole


def test_an_interrupted_loop_ends_when_another_one_begins(interrupted_loop):
    loader, batches, _, _ = interrupted_loop

    assert [(batch.epoch, batch.step) for batch in loader] == [
        (1, step) for step in range(1000)
    ]
    assert drain(batches) == []
    assert {batch.epoch for batch in loader} == {2}


def test_the_last_batch_is_short_or_left_out(numbers):
    assert drain(numbers.batch(5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert drain(numbers.batch(5, drop_last=True)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert len(numbers.batch(5).open()) == 3


def test_a_closed_loader_raises(numbers):
    loader = numbers.open()
    with loader:
        pass

    assert loader.closed
    loader.close()
    with pytest.raises(infeed.errors.ClosedError, match="closed"):
        iter(loader)


def test_closing_in_the_middle_of_an_epoch_ends_its_iterator(numbers):
    loader = numbers.open()
    batches = iter(loader)
    next(batches)

    loader.close()

    with pytest.raises(infeed.errors.ClosedError):
        next(batches)


def test_stats_count_samples_and_bytes_by_stage(classification):
    with classification_pipeline(classification).open() as loader:
        for _ in loader:
            pass
        stats = loader.stats()

    stages = {stage["name"]: stage for stage in stats["stages"]}
    files = sum(path.stat().st_size for path, _ in classification.files)
    assert set(stages) >= {"read", "decode", "transform", "write"}
    assert stages["write"]["samples"] >= 24
    assert stages["read"]["bytes_out"] >= files / 2
    assert stages["decode"]["wall_s"] > 0
    assert set(stages["decode"]) == {
        "name",
        "samples",
        "wall_s",
        "cpu_s",
        "wait_s",
        "bytes_in",
        "bytes_out",
    }


def test_held_batches_do_not_change_and_cause_one_warning(caplog):
    pixels = np.arange(400 * 64, dtype=np.int64).reshape(400, 64)
    pipeline = infeed.Pipeline(sources.Memory(x=pixels)).batch(4)

    with caplog.at_level(logging.WARNING, logger="infeed"), pipeline.open() as loader:
        held = [batch["x"] for batch in loader]

    assert (np.concatenate(held) == pixels).all()
    assert (
        len([r for r in caplog.records if "the consumer holds" in r.getMessage()]) == 1
    )


def test_released_batches_cause_no_warning(caplog):
    pipeline = infeed.Pipeline(sources.Memory(x=np.zeros((400, 64)))).batch(4)

    with caplog.at_level(logging.WARNING, logger="infeed"), pipeline.open() as loader:
        for batch in loader:
            batch["x"].sum()

    assert caplog.records == []


def test_the_share_of_a_rank_is_logged_once(numbers, caplog):
    with (
        caplog.at_level(logging.INFO, logger="infeed"),
        numbers.open(rank=1, world_size=2) as loader,
    ):
        assert drain(loader) == [[2, 3], [6, 7], [10, 11]]

    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("global batch 4 = 2 x 2") == 1


def test_messages_reach_the_logger_of_their_module(numbers, caplog):
    with caplog.at_level(logging.INFO, logger="infeed"), numbers.open():
        pass

    assert "infeed.loader" in {record.name for record in caplog.records}


@pytest.mark.parametrize("taken", range(4))
def test_a_run_continues_where_its_state_was_taken(numbers, taken):
    shuffled = numbers.shuffle(seed=3)
    with shuffled.open() as loader:
        whole = [drain(loader), drain(loader)]
    with shuffled.open(workers=1) as loader:
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))

    with shuffled.open(workers=2) as loader:
        loader.load_state_dict(state)
        rest = drain(loader)
        following = drain(loader)

    if taken == 3:
        assert rest == whole[1]
    else:
        assert rest == whole[0][taken:]
        assert following == whole[1]


def test_a_pipeline_continues_from_a_state(numbers):
    batches = iter(numbers)
    next(batches)
    state = numbers.state_dict()
    again = numbers.batch(4)

    again.load_state_dict(state)

    assert drain(again) == WHOLE[1:]


def test_a_state_of_another_run_raises_with_what_differs(numbers):
    state = numbers.open().state_dict()

    with pytest.raises(infeed.errors.ConfigError, match=r"global batch is 3, was 4"):
        numbers.batch(3).open().load_state_dict(state)
    with pytest.raises(infeed.errors.ConfigError, match="seed is 1, was none"):
        numbers.shuffle(seed=1).open().load_state_dict(state)
    with pytest.raises(infeed.errors.ConfigError, match="not a loader state"):
        numbers.open().load_state_dict({"epoch": 3})


def test_a_pipeline_accepts_a_state_of_another_run_on_request(numbers, caplog):
    state = numbers.shuffle(seed=1).state_dict() | {"position": 4}

    with caplog.at_level(logging.WARNING, logger="infeed.loader"):
        numbers.load_state_dict(state, strict=False)

    assert any("seed is none, was 1" in message for message in caplog.messages)
    assert drain(numbers) == WHOLE[1:]


def test_seek_ends_the_running_loop_and_continues_at_a_step(numbers):
    with numbers.open() as loader:
        batches = iter(loader)
        next(batches)

        loader.seek(3, 1)

        assert list(batches) == []
        assert [(batch.epoch, batch.step) for batch in loader] == [(3, 1), (3, 2)]
        assert loader.state_dict()["epoch"] == 4
        for place, part in [
            ((0, 3), "epoch 0 has no step 3; it has 3"),
            ((2**63, 0), "has no step"),
            ((2**64, 0), "epoch must be below"),
            ((0, -1), "step must be an integer of at least 0"),
        ]:
            with pytest.raises(infeed.errors.ConfigError, match=part):
                loader.seek(*place)


def test_metrics_are_served_until_the_loader_closes(numbers):
    with numbers.open() as loader:
        list(loader)
        address = loader.serve_metrics(name="train")
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            text = answer.read().decode()
    assert 'infeed_samples_total{loader="train"} 12' in text
    assert re.search(r"^infeed_storage_requests_total \d+$", text, re.MULTILINE)
    assert 'infeed_device_bytes_total{loader="train"' not in text

    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/metrics")


def test_a_stall_is_logged_with_the_stages_that_wait(classification, caplog):
    caplog.set_level(logging.WARNING, logger="infeed")
    with classification_pipeline(classification).open(workers=1, stall=1e-4) as loader:
        for _ in range(3):
            list(loader)

    reported = [line for line in caplog.messages if "the consumer has waited" in line]
    assert reported
    assert all("workers" in line for line in reported)


def test_a_running_loader_is_explained(numbers, tmp_path):
    with numbers.open(timeline=1.0) as loader:
        with pytest.raises(infeed.errors.ConfigError, match="not delivered a batch"):
            loader.explain()
        for _ in loader:
            time.sleep(0.02)
        found = loader.explain("numbers")

    assert found.limit == "step"
    assert "the step limits this run" in str(found)
    found.save_html(tmp_path / "report.html")
    found.save_trace(tmp_path / "trace.json")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "step" for event in events)


def test_the_plan_is_explained_without_running(numbers):
    assert numbers.explain() == "x: copied -> int64 [], 8 B per sample\n"


def test_the_number_of_workers_is_tuned_unless_it_is_set(numbers):
    with numbers.open() as default, numbers.open(workers="auto") as auto:
        for loader in (default, auto):
            assert drain(loader) == WHOLE
            stats = loader.stats()
            tuned = stats["tuned"]
            assert 1 <= stats["workers"] <= tuned["most"]
            assert tuned["cores"] >= 1
            assert not tuned["settled"]
            assert tuned["text"].startswith(f"workers: {stats['workers']} on ")
            assert any(
                "workers: " in note for note in loader.explain().to_dict()["notes"]
            )
    with numbers.open(workers=3) as fixed:
        assert drain(fixed) == WHOLE
        assert (fixed.stats()["workers"], fixed.stats()["tuned"]) == (3, None)


def test_choices_are_logged_once(numbers, caplog):
    with caplog.at_level(logging.INFO, logger="infeed"), numbers.open() as loader:
        end = time.monotonic() + 60
        while not loader.stats()["tuned"]["settled"] and time.monotonic() < end:
            for _ in loader:
                time.sleep(0.01)
        text = loader.stats()["tuned"]["text"]

    records = [record for record in caplog.records if record.getMessage() == text]
    assert [record.name for record in records] == ["infeed.loader"]
    assert "is the limit" in text
