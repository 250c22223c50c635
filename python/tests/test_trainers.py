"""`install` without the packages of trainers."""

import importlib.util

import pytest

import infeed
from infeed.errors import ConfigError


def test_an_unknown_trainer_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown trainer 'yolo'.*'ultralytics'"):
        infeed.install("yolo")


@pytest.mark.parametrize(
    ("trainer", "fix"),
    [
        ("keras", "pip install 'keras'"),
        ("torch", "pip install 'torch'"),
        ("ultralytics", "pip install 'ultralytics'"),
        ("rfdetr", r"pip install 'rfdetr\[train\]'"),
    ],
)
def test_a_trainer_that_is_not_installed_is_named_with_the_fix(trainer, fix):
    if importlib.util.find_spec(trainer) is not None:
        pytest.skip("it is installed")
    with pytest.raises(ConfigError, match=fix):
        infeed.install(trainer)


def test_settings_are_checked_before_the_trainer_is_imported():
    with pytest.raises(ConfigError, match="proof_seconds"):
        infeed.install("ultralytics", proof_seconds=-1)


def test_nothing_is_uninstalled_where_nothing_was_installed():
    infeed.uninstall()
