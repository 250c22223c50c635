"""Imports frameworks; skips tests, by name, if one is not installed."""

import contextlib
import importlib
import importlib.util
import os
import warnings
from types import ModuleType
from typing import NoReturn

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Warnings of the frameworks themselves are not tested.
framework_test = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def require(name: str) -> None:
    """Skips the test or file that calls it if module `name` is not installed.

    Does not import the module.
    """
    if importlib.util.find_spec(name) is None:
        _skip(name)


def import_or_skip(name: str) -> ModuleType:
    """Imports module `name`; skips the calling test or file if a framework is not
    installed: the module itself, or one that it imports.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # TensorFlow's LLVM and that of PyTorch's compiler work in one order of imports
        # only.
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            absent = (error.name or name).partition(".")[0]
            # A missing module of this project is a defect, not an absent framework.
            if absent == "infeed":
                raise
            _skip(absent)


def _skip(name: str) -> NoReturn:
    # `absent_frameworks` in conftest.py counts these by name.
    reason = f"{name} is not installed; `make test-frameworks` installs it"
    pytest.skip(reason, allow_module_level=True)
