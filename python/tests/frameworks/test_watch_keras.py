"""A watch around a Keras PyDataset, run with the workers that `model.fit` would use."""

import threading
import time

import numpy as np
import pytest
from requirements import framework_test, import_or_skip

import infeed

keras = import_or_skip("keras")
pytestmark = framework_test


class Numbers(keras.utils.PyDataset):
    """Batches with their number, and the thread that made them."""

    def __init__(self, pause_s=0.0, broken=None, **settings):
        super().__init__(**settings)
        self.pause_s, self.broken = pause_s, broken
        self.threads, self.epochs = set(), 0

    def __len__(self):
        return 12

    def __getitem__(self, n):
        if n == self.broken:
            raise ValueError(f"batch {n} is broken")
        self.threads.add(threading.get_ident())
        time.sleep(self.pause_s)
        return np.full((4, 3), n, np.float32), np.full((4,), n)

    def on_epoch_end(self):
        self.epochs += 1


@pytest.mark.parametrize("workers", [1, 4])
def test_batches_are_in_order_with_the_workers_that_the_dataset_sets(workers):
    data = Numbers(workers=workers, pause_s=0.01)
    watch = infeed.watch(data)

    seen = [[int(labels[0]) for _, labels in watch] for _ in range(2)]

    assert seen == [list(range(12))] * 2
    assert len(watch) == 12
    assert data.epochs == 2
    assert watch.report().figures.samples == 96
    if workers == 1:
        assert data.threads == {threading.get_ident()}
    else:
        assert len(data.threads) > 1
        assert threading.get_ident() not in data.threads


def test_an_endless_dataset_continues():
    class Endless(Numbers):
        __len__ = None
        num_batches = None

    watch = infeed.watch(Endless(workers=2), batches=30)

    assert [int(labels[0]) for _, labels in watch] == list(range(30))


def test_slow_workers_limit_the_loop():
    watch = infeed.watch(Numbers(workers=2, pause_s=0.05))

    for _ in watch:
        pass

    assert watch.report().verdict.limit == "loader"


def test_an_error_of_the_dataset_passes_through():
    watch = infeed.watch(Numbers(workers=4, broken=3))

    with pytest.raises(ValueError, match="batch 3 is broken"):
        list(iter(watch))

    assert watch.report().figures.batches == 3


def test_leaving_the_loop_early_ends_the_workers():
    watch = infeed.watch(Numbers(workers=4))
    before = set(threading.enumerate())

    for _ in watch:
        break

    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert watch.report().figures.batches == 1
