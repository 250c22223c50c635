"""A watch passes batches on, measures times, and finds a known limit."""

import json
import re
import threading
import time
import types

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.watching import loop, sampler
from infeed.watching.batch_sizes import stacked_samples
from infeed.watching.durations import Durations
from infeed.watching.processor import _quotas_of


class SimulatedClock:
    """Time of a loop, which passes in ``sleep`` alone."""

    def __init__(self):
        self.now_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return 0.0


@pytest.fixture
def clock(monkeypatch) -> SimulatedClock:
    """The clock of loops that are watched without the lock."""
    clock = SimulatedClock()
    monkeypatch.setattr(loop, "time", clock)
    return clock


def batches(count: int = 40, rows: int = 4, pause_s: float = 0.0, sleep=time.sleep):
    """Yields arrays after a pause, like a loader that reads slowly."""
    for _ in range(count):
        if pause_s:
            sleep(pause_s)
        yield np.ones((rows, 2), np.float32)


def spin(seconds: float) -> None:
    """Computes in Python, holding the lock."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def watcher_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "infeed-watch"]


def test_a_slow_loader_is_the_limit_with_its_share_of_waiting(clock):
    watch = infeed.watch(batches(pause_s=0.02, sleep=clock.sleep), lock=False)

    for _ in watch:
        clock.sleep(0.002)

    report = watch.report()
    assert report.verdict.limit == "loader"
    assert report.verdict.next_limit == "step"
    assert report.figures.waiting == pytest.approx(0.02 / 0.022, rel=0.01)
    assert report.figures.samples == 160
    assert str(report).startswith("the loader limits this run: the loop waited")


def test_a_slow_step_limits_if_batches_are_ready(clock):
    watch = infeed.watch(batches(), lock=False)

    for _ in watch:
        clock.sleep(0.03)

    report = watch.report()
    assert report.verdict.limit == "step"
    assert report.figures.waiting == 0
    assert report.verdict.rate == pytest.approx(report.figures.rate)
    assert any("more workers" in line for line in report.verdict.not_worth)


def test_a_short_wait_for_a_loader_with_room_is_no_tie(clock):
    watch = infeed.watch(batches(pause_s=0.001, sleep=clock.sleep), lock=False)

    for _ in watch:
        clock.sleep(0.05)

    report = watch.report()
    assert report.figures.waiting == pytest.approx(1 / 51, rel=0.05)
    assert report.verdict.limit == "step"
    assert not report.verdict.tie
    assert "step limits" in str(report)


def test_a_loader_that_computes_in_python_limits_by_the_lock():
    def loader():
        for batch in batches():
            spin(0.02)
            yield batch

    watch = infeed.watch(loader())
    for _ in watch:
        time.sleep(0.002)

    report = watch.report()
    assert report.verdict.limit == "python"
    assert report.figures.lock.waiting > 0.6


def test_a_step_that_takes_less_time_alone_is_slowed_by_the_loader(clock):
    watch = infeed.watch(batches(40), ceiling=20, lock=False)

    for number, _ in enumerate(watch):
        clock.sleep(0.03 if number < 40 else 0.02)

    report = watch.report()
    assert report.verdict.limit == "interference"
    assert report.figures.slowdown == pytest.approx(0.5)
    assert "alone" in report.verdict.claim


def test_a_loader_that_sleeps_does_not_hold_the_lock():
    watch = infeed.watch(batches(pause_s=0.02))

    for _ in watch:
        pass

    assert watch.report().figures.lock.waiting < 0.4


def test_the_loop_sees_the_same_batches_in_every_epoch():
    data = [np.full((2, 3), n) for n in range(5)]
    watch = infeed.watch(data)

    seen = [list(watch) for _ in range(3)]

    assert all(a is b for epoch in seen for a, b in zip(epoch, data, strict=True))
    assert watch.report().figures.epochs == 3
    assert watch.report().figures.batches == 15
    assert len(watch) == 5


def test_an_iterator_can_be_watched_and_has_no_second_epoch():
    watch = infeed.watch(iter([1, 2, 3]))

    assert [list(iter(watch)), list(iter(watch))] == [[1, 2, 3], []]


def test_length_errors_of_the_loader_pass_through():
    with pytest.raises(TypeError, match="generator"):
        len(infeed.watch(batches()))


def test_an_error_of_the_loader_passes_through_unchanged():
    error = KeyError("record 7")

    def loader():
        yield 1
        raise error

    watch = infeed.watch(loader())
    with pytest.raises(KeyError) as caught:
        list(iter(watch))

    assert caught.value is error
    assert watch.report().figures.batches == 1
    assert watcher_threads() == []


def test_an_iterator_that_continues_after_an_error_still_does():
    class Stumbling:
        def __init__(self):
            self.count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            if self.count == 2:
                raise OSError("once")
            if self.count > 4:
                raise StopIteration
            return self.count

    running = iter(infeed.watch(Stumbling()))
    assert next(running) == 1
    with pytest.raises(OSError, match="once"):
        next(running)

    assert list(running) == [3, 4]


def test_an_object_that_is_not_iterable_raises_type_error():
    with pytest.raises(TypeError, match="not iterable"):
        iter(infeed.watch(7))


def test_a_break_keeps_the_report_and_ends_the_loader():
    ended = []

    class Loader:
        def __iter__(self):
            try:
                yield from batches()
            finally:
                ended.append(True)

    watch = infeed.watch(Loader())
    for number, _ in enumerate(watch):
        if number == 9:
            break

    assert ended == [True]
    assert watch.report().figures.batches == 10
    assert watch.report().figures.step.count == 9
    assert watcher_threads() == []


def test_no_thread_is_left_after_an_epoch_or_after_with():
    watch = infeed.watch(batches(3))
    for _ in watch:
        assert len(watcher_threads()) == 1
    assert watcher_threads() == []

    with infeed.watch(batches(3)) as watched:
        running = iter(watched)
        next(running)
        assert len(watcher_threads()) == 1
    assert watcher_threads() == []


def test_without_lock_there_is_no_thread():
    watch = infeed.watch(batches(20), lock=False)
    for _ in watch:
        assert watcher_threads() == []

    assert watch.report().to_dict()["lock"] is None


def test_the_ceiling_repeats_the_last_batch_of_the_first_epoch_on_request():
    data = [np.full((2,), n) for n in range(4)]
    watch = infeed.watch(data, ceiling=5)

    first = [int(batch[0]) for batch in watch]
    second = [int(batch[0]) for batch in watch]

    assert first[:4] == [0, 1, 2, 3]
    assert len(first) == 9
    assert set(first[4:]) == {3}
    assert second == [0, 1, 2, 3]
    figures = watch.report().figures
    assert figures.alone.step.count == 5
    assert figures.batches == 8
    assert figures.samples == 16


def test_the_ceiling_of_a_step_is_measured_outside_the_loop(clock):
    watch = infeed.watch(batches(), lock=False)
    for number, _ in enumerate(watch):
        clock.sleep(0.002)
        if number == 5:
            break
    seen = []

    def step(batch):
        seen.append(batch.shape)
        clock.sleep(0.005)

    alone = watch.ceiling(step, batches=8)

    assert alone.step.count == 8
    assert alone.step.p50_s == pytest.approx(0.005)
    assert len(seen) > 8
    assert set(seen) == {(4, 2)}
    assert watch.report().figures.alone is alone
    assert watch.report().figures.batches == 6


def test_other_attributes_are_those_of_the_loader():
    class Loader(list):
        def set_epoch(self, epoch):
            self.epoch = epoch

    loader = Loader([1, 2])
    watch = infeed.watch(loader)
    watch.set_epoch(3)

    assert loader.epoch == watch.epoch == 3
    assert not hasattr(watch, "missing")


def test_the_ceiling_needs_a_batch_first():
    with pytest.raises(infeed.errors.LoaderError, match="iterate first"):
        infeed.watch(batches()).ceiling(print)


def test_epochs_end_after_the_given_number_of_batches():
    watch = infeed.watch([1, 2, 3, 4], batches=2)

    assert [list(watch), list(watch)] == [[1, 2], [1, 2]]
    assert len(watch) == 2


def test_sync_is_called_before_a_step_ends():
    calls = []
    watch = infeed.watch([1, 2, 3], sync=lambda: calls.append(len(calls)))

    for _ in watch:
        pass

    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (np.zeros((3, 8, 8)), 3),
        ((np.zeros((5, 8)), np.zeros(5)), 5),
        ({"image": np.zeros((6, 2)), "label": np.zeros(6)}, 6),
        ({"image": np.zeros((6, 2)), "name": ["a"] * 6, "epoch": 1}, 6),
        (({"ids": np.zeros((6, 9))}, np.zeros(6)), 6),
        ([["a", "b"], np.zeros((2, 2))], 2),
        (["a", "b", "c"], 3),
        ([{"image": np.zeros((3, 8, 8))}] * 5, 5),
        (np.float32(1), None),
        ("text", None),
        (7, None),
        ([], None),
        # The axes of these arrays count different things.
        ((np.zeros((5, 8)), np.zeros(7)), None),
        ({"boxes": np.zeros((9, 4)), "image": np.zeros((2, 3, 8, 8))}, None),
        ((np.zeros((6, 2)), {"a": np.zeros(6), "b": np.zeros(5)}), None),
        # Either two samples of an image and a label, or the other way round.
        ([(np.zeros((3, 8, 8)), 0)] * 2, None),
        (((np.zeros(9), np.zeros(9)), (0, 1)), None),
        ([np.zeros((3, 8, 8)), np.zeros((3, 8, 8))], None),
    ],
)
def test_samples_are_counted_if_all_arrays_agree(batch, count):
    assert stacked_samples(batch) == count


def test_samples_are_counted_by_the_given_batch_size():
    watch = infeed.watch([1, 2], batch_size=8)
    list(iter(watch))
    assert watch.report().figures.samples == 16

    watch = infeed.watch(["ab", "c"], batch_size=len)
    list(iter(watch))
    assert watch.report().figures.samples == 3


def test_rates_are_batches_where_samples_cannot_be_counted(clock):
    watch = infeed.watch(range(10), lock=False)
    for _ in watch:
        clock.sleep(0.001)

    assert watch.report().figures.unit == "batches/s"
    assert "batches/s" in str(watch.report())


def test_a_dataset_indexed_by_batch_runs_to_its_end():
    class NumberedBatches:
        def __init__(self):
            self.ended = 0

        def __len__(self):
            return 3

        def __getitem__(self, number):
            return np.full((2,), number)

        def on_epoch_end(self):
            self.ended += 1

    loader = NumberedBatches()
    watch = infeed.watch(loader)

    seen = [[int(batch[0]) for batch in watch] for _ in range(2)]

    assert seen == [[0, 1, 2], [0, 1, 2]]
    assert loader.ended == 2


def test_a_pipeline_of_infeed_is_watched_as_any_loader():
    pixels = np.zeros((32, 8, 8, 3), np.uint8)
    pipeline = infeed.Pipeline(sources.Memory(image=pixels)).batch(4)
    watch = infeed.watch(pipeline)

    for _ in watch:
        pass

    assert watch.report().figures.samples == 32


def test_the_report_includes_infeed_over_the_same_files(classification):
    def loader():
        for _ in range(12):
            time.sleep(0.03)
            yield np.zeros((5, 3, 32, 40), np.float32), np.zeros(5)

    watch = infeed.watch(loader(), files=classification.path)
    for _ in watch:
        time.sleep(0.001)

    report = watch.report(seconds=0.3)
    throughput = report.figures.throughput
    assert throughput.samples_per_s > report.figures.rate
    assert "Resize((32, 40))" in throughput.pipeline
    assert 'layout="CHW"' in throughput.pipeline
    assert any(line.startswith("infeed: min(step") for line in report.verdict.advice)
    assert any("32x40" in line for line in report.verdict.advice)


def test_pairs_of_folders_and_pipelines_can_be_named_too(segmentation):
    batch = np.zeros((2, 16, 16, 3), np.uint8)
    folders = (segmentation.image, segmentation.mask)
    watch = infeed.watch([batch] * 5, files=folders)
    list(iter(watch))
    assert "Pairs" in watch.report(seconds=0.1).figures.throughput.pipeline

    pipeline = (
        infeed.Pipeline(sources.Folder(segmentation.image, labels="none"))
        .decode()
        .transform(T.Crop(8, 8))
        .batch(2)
    )
    watch = infeed.watch([batch] * 5, pipeline=pipeline)
    list(iter(watch))
    assert "Crop(8, 8)" in watch.report(seconds=0.1).figures.throughput.pipeline


def test_files_without_images_in_the_batches_need_a_pipeline(classification):
    watch = infeed.watch([np.zeros((4, 2))] * 3, files=classification.path)
    list(iter(watch))

    with pytest.raises(infeed.errors.ConfigError, match="pipeline="):
        watch.report()


@pytest.mark.parametrize(
    "settings",
    [
        {"batches": 0},
        {"ceiling": -1},
        {"batch_size": "four"},
        {"sync": 3},
        {"pipeline": "pipeline.toml"},
        {"lock": 1},
    ],
)
def test_invalid_settings_raise_with_their_name(settings):
    (name,) = settings
    with pytest.raises(infeed.errors.ConfigError, match=name):
        infeed.watch([1], **settings)


def test_a_report_without_batches_states_that():
    report = infeed.watch([]).report()

    assert "too short" in report.verdict.claim
    json.loads(report.json())


def test_the_report_is_one_screen_and_also_json():
    watch = infeed.watch(batches(pause_s=0.001), ceiling=5)
    for _ in watch:
        time.sleep(0.001)
    report = watch.report()

    assert len(str(report).splitlines()) <= 24
    assert all(len(line) <= 100 for line in str(report).splitlines())
    plain = json.loads(report.json(indent=2))
    assert plain == json.loads(json.dumps(report.to_dict()))
    assert sum(plain["shares"].values()) == pytest.approx(1)
    assert plain["verdict"]["limit"] == report.verdict.limit
    assert re.match(r"\d", plain["infeed"])


def test_quantiles_are_those_of_a_fair_sample():
    durations = Durations()
    for number in range(100_000):
        durations.add(float(number))

    assert durations.count == 100_000
    assert durations.total_s == sum(range(100_000))
    assert durations.quantile(0.5) == pytest.approx(50_000, rel=0.05)
    assert durations.quantile(0.99) == pytest.approx(99_000, rel=0.02)


def test_the_tightest_quota_above_a_process_counts(tmp_path):
    group = tmp_path / "job" / "step"
    group.mkdir(parents=True)
    (tmp_path / "job" / "cpu.max").write_text("150000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")

    assert _quotas_of(tmp_path, "/job/step") == [1.5]


def test_only_the_wait_for_a_core_of_a_request_is_subtracted(monkeypatch):
    now = late_s = 0.0

    def sleep(pause_s):
        nonlocal now
        now += pause_s + late_s

    class Queue:
        since_s = 0.0

        def waited_s(self):
            waited_s, self.since_s = self.since_s, 0.0
            return waited_s

    lock = sampler.LockSampler()
    clock = types.SimpleNamespace(perf_counter=lambda: now, sleep=sleep)
    monkeypatch.setattr(sampler, "time", clock)
    queue = Queue()
    for _ in range(100):
        queue.since_s += 0.001
        lock._request_lock(queue)
    late_s = 0.1
    lock._request_lock(queue)

    counts = lock.requests[sampler.WAIT]
    assert (counts.requests, counts.late) == (101, 1)
    assert counts.waited_s == pytest.approx(0.1, rel=0.05)
