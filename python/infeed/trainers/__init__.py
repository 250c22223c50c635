"""infeed in the trainers that people run, with one line.

    import infeed

    infeed.install("ultralytics")

A trainer then takes its batches from infeed. The environment variable
``INFEED_TRAINERS=off`` gives its own loader back.
"""

import dataclasses
import importlib
import importlib.util
import json
import os
from types import ModuleType
from typing import Any

from infeed import _check
from infeed._options import Cache
from infeed.errors import ConfigError

__all__ = ["install", "uninstall"]

# Name of a trainer, and what pip installs.
_TRAINERS = {
    "keras": "keras",
    "rfdetr": "rfdetr[train]",
    "torch": "torch",
    "ultralytics": "ultralytics",
}
# Set to `off`, trainers keep their own loaders.
_SWITCH = "INFEED_TRAINERS"
# Has the settings by name of the trainer, which the processes of a distributed training
# inherit.
_INSTALLED = "INFEED_INSTALLED_TRAINERS"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of `install`.

    Attributes:
        proof_seconds: Seconds for the comparison of samples and rates; 0: none.
        memory: Budget of the loader, as in `infeed.Pipeline.open`.
        cache: Bytes of decoded images to keep, as in `infeed.Pipeline.open`.
        workers: Threads of the loader; None: found while it runs.
    """

    proof_seconds: float = 30.0
    memory: int | str | None = None
    cache: int | str | None = None
    workers: int | None = None

    def options(self, cache: int | str | Cache | None) -> dict[str, Any]:
        """Returns the options of a loader that uses this cache."""
        options: dict[str, Any] = {"memory": self.memory}
        given = {"cache": cache, "workers": self.workers}
        return options | {name: one for name, one in given.items() if one is not None}


def install(
    trainer: str,
    *,
    proof_seconds: float = 30.0,
    memory: int | str | None = None,
    cache: int | str | None = None,
    workers: int | None = None,
) -> None:
    """Makes a trainer take its batches from infeed.

    Before the training, the trainer prints the parts of its loader and what replaces
    them, a comparison of the samples, and the rates of both loaders. What infeed cannot
    replace stays with the trainer, and is printed too.

    Args:
        trainer: Name of the trainer: ``"ultralytics"``, ``"rfdetr"``, or ``"torch"``
            for all loops over a ``torch.utils.data.DataLoader``, also those in
            Lightning, Accelerate, Hugging Face's Trainer and timm, or ``"keras"`` for
            datasets of tf.data that ``fit`` receives.
        proof_seconds: Most seconds for the comparison of samples and rates, about; 0:
            nothing is compared or measured.
        memory: Budget for batches, read-ahead and decoding, as in
            `infeed.Pipeline.open`. The loaders of a training and of its validation have
            one each.
        cache: Bytes of decoded images of each loader that are kept for later epochs,
            such as ``"64GiB"``, or ``"auto"``. All processes of a machine share them.
            None: as the trainer's own arguments say.
        workers: Threads that make batches, at least 1. None: their number is found
            while the training runs, up to the cores that other processes leave.

    Raises:
        ConfigError: The name is unknown, the package is not installed, or its version
            has other parts.
    """
    if trainer not in _TRAINERS:
        known = ", ".join(map(repr, _TRAINERS))
        raise ConfigError(f"install: unknown trainer {trainer!r}; known are {known}")
    seconds = float(_check.number("install", "proof_seconds", proof_seconds, low=0))
    if workers is not None:
        workers = _check.integer("install", "workers", workers, low=1)
    for size in (memory, None if cache == "auto" else cache):
        if size is not None:
            _check.size_bytes(size)
    module = _module(trainer)
    settings = Settings(seconds, memory, cache, workers)
    _write_installed(_read_installed() | {trainer: settings})
    module.install()


def uninstall(trainer: str | None = None) -> None:
    """Gives a trainer its own loader back, from the next training on.

    Args:
        trainer: Name of the trainer. None: all.
    """
    installed = _read_installed()
    for name in [trainer] if trainer is not None else list(installed):
        if installed.pop(name, None) is not None:
            _module(name).uninstall()
    _write_installed(installed)


def settings_of(trainer: str) -> Settings | None:
    """Returns the settings of a trainer; None if it keeps its own loader."""
    if os.environ.get(_SWITCH, "").lower() in ("off", "0"):
        return None
    return _read_installed().get(trainer, Settings())


def _read_installed() -> dict[str, Settings]:
    """Returns the settings of the installed trainers by name."""
    found = json.loads(os.environ.get(_INSTALLED, "{}"))
    return {name: Settings(**settings) for name, settings in found.items()}


def _write_installed(installed: dict[str, Settings]) -> None:
    values = {name: dataclasses.asdict(found) for name, found in installed.items()}
    os.environ[_INSTALLED] = json.dumps(values)


def _module(trainer: str) -> ModuleType:
    """Returns the module that changes a trainer."""
    fix = f"run pip install {_TRAINERS[trainer]!r}"
    if importlib.util.find_spec(trainer) is None:
        raise ConfigError(f"install: the package {trainer} is not installed; {fix}")
    try:
        return importlib.import_module(f"infeed.trainers.{trainer}")
    except ImportError as error:
        raise ConfigError(
            f"install: {trainer} is not complete: {error}; {fix}"
        ) from error
