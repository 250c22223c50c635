"""Steps of the loaders of `gains.py`, in a module that worker processes can import."""

import time
from typing import Any


class Slow:
    """A step in Python that computes."""

    def __call__(self, image: Any) -> Any:
        total = 0
        for n in range(150_000):
            total += n * n
        return image


class Sleeping:
    """A step that waits, as for another service."""

    def __call__(self, image: Any) -> Any:
        time.sleep(0.05)
        return image
