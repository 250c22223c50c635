"""Types of arguments that experiments share."""

import argparse
import math

from infeed import _core
from infeed.errors import ConfigError


def positive(text: str) -> int:
    """Parses a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        expected = f"must be a whole number of at least 1, got {text}"
        raise argparse.ArgumentTypeError(expected)
    return value


def duration(text: str) -> float:
    """Parses a duration above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def gpu(text: str) -> int:
    """Parses the name of a GPU: 0 for ``cuda``, 1 for ``cuda:1``."""
    try:
        ordinal = _core.cuda_ordinal(text)
    except ConfigError:
        expected = f"must be cuda, cuda:1 and so on, got {text}"
        raise argparse.ArgumentTypeError(expected) from None
    if ordinal is None:
        raise argparse.ArgumentTypeError(
            "a simulated device computes nothing; use --on NAME to model a device, or "
            "`infeed experiment placement` with a simulated device"
        )
    return ordinal


def numbers(text: str) -> list[int]:
    """Parses whole numbers of at least 1, separated by commas."""
    return [positive(part) for part in text.split(",")]
