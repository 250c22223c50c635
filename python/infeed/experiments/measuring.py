"""Measuring functions for experiments, and the error for missing packages."""

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


def require(module: str, package: str, user: str) -> ModuleType:
    """Imports a module.

    Raises:
        MissingError: It cannot be imported; the message has the command to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingError(
            f"{user} needs {package}, which cannot be imported ({error}); "
            f"install it with  pip install {package.lower()}"
        ) from None


def is_installed(module: str) -> bool:
    """Whether a module is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


def time_of(work: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """Returns the median time of the calls that fit into `seconds`, after a first."""
    return spread(times_of(work, seconds, least))[1]


def times_of(work: Callable[[], Any], seconds: float, least: int = 3) -> list[float]:
    """Returns the times of the calls that fit into `seconds`, after a first one."""
    work()
    took: list[float] = []
    begun = time.perf_counter()
    while len(took) < least or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return took


def interleave(
    runs: Mapping[str, Callable[[], float]], turns: int
) -> dict[str, list[float]]:
    """Runs several measurements in turn, so that drift affects all of them equally."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(turns):
        for place in range(len(names)):
            # Each turn starts with another measurement.
            name = names[(place + turn) % len(names)]
            found[name].append(runs[name]())
    return found


def spread(values: list[float]) -> tuple[float, float, float]:
    """Returns lowest, median and highest value."""
    return min(values), statistics.median(values), max(values)
