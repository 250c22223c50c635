"""Frameworks, imported if they are there; the tests of a file are skipped otherwise."""

import contextlib
import importlib
import importlib.util
import os
import warnings
from types import ModuleType

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# What frameworks warn about on their own account is not what is tested.
framework_test = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def needed(name: str) -> None:
    """Skips the file that asks if there is no module `name`; does not import it."""
    if importlib.util.find_spec(name) is None:
        reason = f"{name} is not installed; `make test-all` brings it"
        pytest.skip(reason, allow_module_level=True)


def imported(name: str) -> ModuleType:
    """The module `name`; without it, skips the file that asks."""
    needed(name.partition(".")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # TensorFlow's LLVM and that of PyTorch's compiler bear one order only.
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")
        return importlib.import_module(name)
