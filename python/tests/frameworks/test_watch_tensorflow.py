"""A watch around a tf.data dataset."""

import time

import numpy as np
import pytest
from requirements import framework_test, import_or_skip

import infeed

tf = import_or_skip("tensorflow")
pytestmark = framework_test


def dataset(pause_s=0.0):
    def row(n):
        if pause_s:
            time.sleep(pause_s)
        return np.float32([n, n])

    def map_row(n):
        x = tf.numpy_function(row, [n], tf.float32, stateful=False)
        return {"image": tf.ensure_shape(x, (2,)), "label": n}

    return tf.data.Dataset.range(48).map(map_row).batch(4).prefetch(2)


def test_batches_are_those_of_the_dataset():
    watch = infeed.watch(dataset())

    seen = [[b["label"].numpy().tolist() for b in watch] for _ in range(2)]

    rows = np.arange(48).reshape(12, 4).tolist()
    assert seen == [rows, rows]
    assert len(watch) == 12
    assert watch.report().figures.samples == 96


def test_a_slow_map_limits_the_loop():
    watch = infeed.watch(dataset(pause_s=0.01))

    for _ in watch:
        pass

    assert watch.report().verdict.limit == "loader"


def test_a_slow_step_limits_while_batches_are_prefetched():
    watch = infeed.watch(dataset(), ceiling=5)

    for _ in watch:
        time.sleep(0.2)

    assert watch.report().verdict.limit == "step"


def test_the_length_of_an_endless_dataset_raises_its_error():
    with pytest.raises(TypeError, match="infinite"):
        len(infeed.watch(dataset().repeat()))


def test_an_endless_dataset_can_be_limited():
    watch = infeed.watch(dataset().repeat(), batches=20)

    assert sum(1 for _ in watch) == 20
