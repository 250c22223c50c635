"""A Python function for `free_threads.py`: processes import it from a module."""

import numpy as np


def tokenize(sample):
    """Does about 1 ms of work in pure Python."""
    text = bytes(sample["text"]).decode()
    counts: dict[str, int] = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return {"count": np.int64(len(counts)), "longest": np.int64(max(map(len, counts)))}
