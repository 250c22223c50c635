"""Frameworks, imported if they are there; the tests of a file are skipped otherwise."""

import os
import warnings
from types import ModuleType

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# What frameworks warn about on their own account is not what is tested.
framework_test = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def imported(name: str) -> ModuleType:
    """The module `name`; without it, skips the file that asks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            name, reason=f"{name} is not installed; `make test-all` brings it"
        )
