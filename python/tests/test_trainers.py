"""`install` without the packages of trainers."""

import functools
import importlib.util

import pytest

import infeed
from infeed.errors import ConfigError
from infeed.trainers import loader


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


def test_workers_are_checked_before_the_trainer_is_imported():
    with pytest.raises(ConfigError, match="workers"):
        infeed.install("ultralytics", workers=0)


def test_nothing_is_uninstalled_where_nothing_was_installed():
    infeed.uninstall()


@pytest.fixture
def first_epoch():
    """Returns a first epoch, its lines, and a function that runs its steps."""
    lines = []
    measured = loader.FirstEpoch("a trainer", None, lines.append)

    def run(steps):
        report = functools.partial(measured.report, 8, 2, 1 << 20)
        for batch in measured.measure(range(steps), steps, str, report):
            yield batch, len(lines)
        report()

    return run, lines


def test_a_long_first_epoch_is_reported_after_its_first_steps(first_epoch, monkeypatch):
    run, lines = first_epoch
    monkeypatch.setattr(loader, "_EARLY_S", 0.0)

    reported = [count for _, count in run(30)]

    assert reported == [0] * loader._EARLY_STEPS + [1] * 10
    assert len(lines) == 1
    assert "infeed: a step of the first 20 took" in lines[0]


def test_a_short_first_epoch_is_reported_after_its_end(first_epoch):
    run, lines = first_epoch

    batches = list(run(30))

    assert batches == [(str(number), 0) for number in range(30)]
    assert len(lines) == 1
    assert "infeed: a step of the first epoch took" in lines[0]
