"""Kinds of arguments that experiments take."""

import argparse
import math


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        expected = f"must be a whole number of at least 1, got {text}"
        raise argparse.ArgumentTypeError(expected)
    return value


def duration(text: str) -> float:
    """A duration of more than nothing."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def card(text: str) -> int:
    """Number of a card by its name: 0 of ``cuda``, 1 of ``cuda:1``."""
    kind, _, number = text.partition(":")
    if kind == "sim":
        expected = (
            "a simulated device has no arithmetic; --on NAME models a card that is not "
            "here, and `infeed experiment placement` takes a simulated one"
        )
        raise argparse.ArgumentTypeError(expected)
    if kind != "cuda" or not (number or "0").isdecimal():
        raise argparse.ArgumentTypeError(f"must be cuda, cuda:1 or so, got {text}")
    return int(number or "0")


def numbers(text: str) -> list[int]:
    """Whole numbers of at least 1 with commas between them."""
    return [positive(part) for part in text.split(",")]
