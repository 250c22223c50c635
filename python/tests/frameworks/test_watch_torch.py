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
