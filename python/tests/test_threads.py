"""Several Python threads: loaders side by side, shared loaders, functions, codecs.

The tests pass with the GIL, and without it in a free-threaded Python.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import infeed
from infeed import codecs, sources
from infeed import transforms as T

THREADS = 6


def brighten(sample, rng):
    """Adds noise in pure Python and NumPy."""
    noise = rng.integers(0, 9, sample["image"].shape, dtype=np.uint8)
    total = sum(int(value) for value in sample["image"][0, :, 0])
    return {"image": sample["image"] // 2 + noise, "total": np.int64(total)}


def pipeline(folder: str) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=2)
        .decode()
        .transform(T.RandomResizedCrop(24), T.RandomHorizontalFlip())
        .python(brighten)
        .batch(4)
    )


def epoch(folder: str) -> list[dict[str, np.ndarray]]:
    with pipeline(folder).open(workers=2) as loader:
        return [{k: np.array(v) for k, v in batch.items()} for batch in loader]


def in_threads(call, *arguments):
    """Calls from several threads at the same time, and returns the results."""
    start = threading.Barrier(THREADS)

    def body(_):
        start.wait()
        return call(*arguments)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(body, range(THREADS)))


def test_loaders_in_several_threads_give_the_same_batches(classification):
    expected = epoch(classification.path)

    for found in in_threads(epoch, classification.path):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            for name in expected[0]:
                np.testing.assert_array_equal(one[name], other[name])


def test_threads_that_share_an_iterator_receive_each_batch_once(classification):
    expected = [tuple(batch.records) for batch in pipeline(classification.path)]
    with pipeline(classification.path).open(workers=2) as loader:
        batches = iter(loader)
        lock = threading.Lock()
        found = []

        def take():
            for batch in batches:
                with lock:
                    found.append(tuple(batch.records))

        in_threads(take)

    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_counters_are_read_while_other_threads_iterate(classification):
    with pipeline(classification.path).open(workers=2) as loader:
        done = threading.Event()
        seen = []

        def watch():
            while not done.is_set():
                seen.append(loader.stats()["samples"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(3):
            for batch in loader:
                batch["image"].sum()
        done.set()
        watcher.join()

    assert seen == sorted(seen)


def test_codecs_decode_in_several_threads(classification):
    file = min(Path(classification.path).rglob("*.jpg")).read_bytes()
    expected = codecs.decode(file)

    for image in in_threads(lambda: [codecs.decode(file) for _ in range(20)]):
        np.testing.assert_array_equal(image[-1], expected)


def test_a_batch_is_read_and_dropped_by_several_threads(classification):
    batch = next(iter(pipeline(classification.path)))
    expected = batch["image"].copy()

    for image in in_threads(lambda: batch["image"] + 0):
        np.testing.assert_array_equal(image, expected)
