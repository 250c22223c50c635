"""A watch around a PyTorch DataLoader."""

import multiprocessing
import time

import numpy as np
import pytest
from installed import framework_test, imported

import infeed

torch = imported("torch")
pytestmark = framework_test


class Numbers(torch.utils.data.Dataset):
    """Rows with their number, each after a pause; one of them may be broken."""

    def __init__(self, count=48, pause_s=0.0, broken=None):
        self.count, self.pause_s, self.broken = count, pause_s, broken

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        if n == self.broken:
            raise ValueError(f"record {n} is broken")
        time.sleep(self.pause_s)
        return np.full((3,), n, np.float32), n


def loader(workers=0, **settings):
    numbers = Numbers(**settings)
    return torch.utils.data.DataLoader(numbers, batch_size=4, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_loader(workers):
    plain = [labels.tolist() for _, labels in loader(workers)]
    watch = infeed.watch(loader(workers))

    watched = [[labels.tolist() for _, labels in watch] for _ in range(2)]

    assert watched == [plain, plain]
    assert len(watch) == 12
    assert watch.report().figures.samples == 96
    assert watch.report().figures.loader.startswith("torch.utils.data")


def test_slow_worker_processes_limit_the_loop():
    watch = infeed.watch(loader(workers=2, pause_s=0.02))

    for _ in watch:
        pass

    report = watch.report()
    assert report.verdict.limit == "loader"
    assert report.figures.waiting > 0.5
    last = str(report).splitlines()[-1]
    assert last.startswith("  adopt      `infeed adopt train.py:make_loader`")
    assert len(last) <= 100


def test_a_slow_step_limits_while_workers_are_ahead():
    # On a busy machine, a batch that is ready still takes some 10 ms to be received.
    watch = infeed.watch(loader(workers=2, count=24), ceiling=5)

    for _ in watch:
        time.sleep(0.5)

    report = watch.report()
    assert report.verdict.limit == "step"
    assert report.figures.alone.step.count == 5
    assert "infeed adopt" not in str(report)
    assert report.figures.alone.at_rest


def test_an_error_in_a_worker_passes_through():
    watch = infeed.watch(loader(workers=2, broken=9))

    with pytest.raises(ValueError, match="record 9 is broken"):
        list(iter(watch))

    assert watch.report().figures.batches == 2


def test_leaving_the_loop_ends_the_workers():
    # The error of another test may still hold its workers.
    before = set(multiprocessing.active_children())
    watch = infeed.watch(loader(workers=2))

    for _ in watch:
        assert len(set(multiprocessing.active_children()) - before) == 2
        break

    assert set(multiprocessing.active_children()) <= before


def test_processor_time_of_worker_processes_is_counted():
    class Spinning(Numbers):
        def __getitem__(self, n):
            until = time.process_time() + 0.03
            while time.process_time() < until:
                pass
            return n

    watch = infeed.watch(
        torch.utils.data.DataLoader(Spinning(), batch_size=4, num_workers=2)
    )
    for _ in watch:
        pass

    processor = watch.report().figures.processor
    assert processor.children > 0.3
    assert processor.loop < 0.3


class Pausing:
    """A step of the program that uses no core."""

    def __call__(self, row):
        time.sleep(0.03)
        return row


class Computing:
    """A step of the program that holds a core."""

    def __call__(self, row):
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        return row


class Steps(Numbers):
    """Rows that go through a step."""

    def __init__(self, step, **settings):
        super().__init__(**settings)
        self.step = step

    def __getitem__(self, n):
        row, label = super().__getitem__(n)
        return self.step(row), label


def watched(step, workers):
    """Returns a watch after an epoch of eight samples."""
    rows = torch.utils.data.DataLoader(
        Steps(step, count=8), batch_size=2, num_workers=workers
    )
    watch = infeed.watch(rows)
    for _ in watch:
        pass
    return watch


@pytest.mark.parametrize("workers", [0, 2])
def test_the_step_that_computes_is_named(workers):
    watch = watched(Computing(), workers)

    report = watch.report()

    calls = report.figures.calls
    assert (calls.workers, calls.samples) == (workers, 7)
    slowest = calls.parts[0]
    assert (slowest.name, slowest.kind) == ("Computing", "program")
    assert slowest.processor_s >= 0.03
    assert calls.idle_s < 0.5 * calls.wall_s
    assert any("a faster Computing: it takes" in line for line in report.verdict.advice)
    # One report measures it, and others repeat it.
    assert watch.report().figures.calls is calls


def test_a_dataset_that_sleeps_gets_more_workers():
    report = watched(Pausing(), workers=2).report()

    calls = report.figures.calls
    assert calls.parts[0].name == "Pausing"
    assert calls.idle_s >= 0.03
    assert report.verdict.advice[0].startswith("num_workers=")
    assert "instead of 2" in report.verdict.advice[0]


def test_functions_are_named_and_those_of_the_dataset_are_reading():
    def brighten(row):
        return Computing()(row) + 1

    class Reading(Numbers):
        def __getitem__(self, n):
            return read(n)

    def read(n):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return n

    calls = watched(lambda row: brighten(row), 0).report().figures.calls
    assert [part.kind for part in calls.parts][:1] == ["program"]
    assert calls.parts[0].name == "Computing"

    rows = torch.utils.data.DataLoader(Reading(count=8), batch_size=2)
    watch = infeed.watch(rows)
    list(iter(watch))
    (part, *_) = watch.report().figures.calls.parts
    assert (part.name, part.kind) == ("read()", "dataset")


@pytest.mark.parametrize("workers", [0, 1])
def test_measuring_the_calls_changes_nothing_in_the_process_of_the_loop(workers):
    class Counting(Numbers):
        read = 0

        def __getitem__(self, n):
            Counting.read += 1
            time.sleep(0.005)
            return n + torch.rand(1)

    watch = infeed.watch(
        torch.utils.data.DataLoader(Counting(count=8), 2, num_workers=workers)
    )
    list(iter(watch))
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    before = Counting.read

    assert watch.report().figures.calls is not None

    assert Counting.read == before
    assert (torch.rand(1), np.random.rand()) == expected


def test_a_dataset_that_fails_has_no_calls_and_no_error():
    watch = infeed.watch(loader(workers=0, count=8, pause_s=0.01))
    list(iter(watch))
    watch._loader.dataset.broken = 0

    report = watch.report()

    assert report.figures.calls is None
    assert report.verdict.limit == "loader"


def test_a_report_after_closing_predicts_the_rate_of_infeed(tmp_path):
    image = imported("PIL.Image")
    for n in range(8):
        image.new("RGB", (24, 24), (n, n, n)).save(tmp_path / f"{n}.png")

    class Images(Numbers):
        def __getitem__(self, n):
            time.sleep(0.01)
            return torch.zeros(3, 16, 16)

    rows = torch.utils.data.DataLoader(Images(count=8), batch_size=2)
    watch = infeed.watch(rows, files=tmp_path)
    list(iter(watch))
    watch.close()

    report = watch.report(seconds=0.1)

    assert report.figures.throughput.samples_per_s > 0
    assert "Resize((16, 16))" in report.figures.throughput.pipeline
