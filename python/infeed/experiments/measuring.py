"""How experiments take their numbers, and how they say what is missing."""

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from infeed.errors import InfeedError


class MissingError(InfeedError, ImportError):
    """An experiment needs a package that is not installed."""


def needed(module: str, package: str, what: str) -> ModuleType:
    """The module, or the error that says how to get it.

    Raises:
        MissingError: It cannot be imported; the message names the command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingError(
            f"{what} needs {package}, which cannot be imported ({error}); "
            f"install it with  pip install {package.lower()}"
        ) from None


def installed(module: str) -> bool:
    """Whether a module is there, without importing it."""
    return importlib.util.find_spec(module) is not None


def time_of(work: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """Median time of a call, of as many as fit into `seconds`, after one to warm up."""
    return spread(times_of(work, seconds, least))[1]


def times_of(work: Callable[[], Any], seconds: float, least: int = 3) -> list[float]:
    """Times of as many calls as fit into `seconds`, after one to warm up."""
    work()
    took: list[float] = []
    begun = time.perf_counter()
    while len(took) < least or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return took


def interleaved(
    runs: Mapping[str, Callable[[], float]], turns: int
) -> dict[str, list[float]]:
    """Results of several measurements, taken in turn, so that all drift alike."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(turns):
        for place in range(len(names)):
            # Another one begins each time.
            name = names[(place + turn) % len(names)]
            found[name].append(runs[name]())
    return found


def spread(values: list[float]) -> tuple[float, float, float]:
    """Lowest, median and highest."""
    return min(values), statistics.median(values), max(values)
