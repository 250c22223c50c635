"""infeed in the trainers that people run, with one line.

    import infeed

    infeed.install("ultralytics")

A trainer then takes its batches from infeed. The environment variable
``INFEED_TRAINERS=off`` gives its own loader back.
"""

import importlib
import importlib.util
import os
from dataclasses import dataclass
from types import ModuleType

from infeed import _check
from infeed.errors import ConfigError

__all__ = ["install", "uninstall"]

# Name of a trainer, and the module that changes it.
_TRAINERS = {"ultralytics": "infeed.trainers.ultralytics"}
# Set to `off`, trainers keep their own loaders.
_SWITCH = "INFEED_TRAINERS"


@dataclass
class Settings:
    """Settings of `install`.

    Attributes:
        proof_seconds: Seconds for the comparison of samples and rates; 0: none.
        memory: Budget of the loader, as in `infeed.Pipeline.open`.
    """

    proof_seconds: float = 30.0
    memory: int | str | None = None


# Settings by name of the trainer.
_installed: dict[str, Settings] = {}


def install(
    trainer: str, *, proof_seconds: float = 30.0, memory: int | str | None = None
) -> None:
    """Makes a trainer take its batches from infeed.

    Before the training, the trainer prints the parts of its loader and what replaces
    them, a comparison of the samples, and the rates of both loaders. What infeed cannot
    replace stays with the trainer, and is printed too.

    Args:
        trainer: Name of the trainer: ``"ultralytics"``.
        proof_seconds: Most seconds for the comparison of samples and rates, about; 0:
            nothing is compared or measured.
        memory: Budget for batches, read-ahead and decoding, as in
            `infeed.Pipeline.open`.

    Raises:
        ConfigError: The name is unknown, the package is not installed, or its version
            has other parts.
    """
    if trainer not in _TRAINERS:
        known = ", ".join(map(repr, _TRAINERS))
        raise ConfigError(f"install: unknown trainer {trainer!r}; known are {known}")
    seconds = float(_check.number("install", "proof_seconds", proof_seconds, low=0))
    if memory is not None:
        _check.size_bytes(memory)
    module = _module(trainer)
    _installed[trainer] = Settings(seconds, memory)
    module.install()


def uninstall(trainer: str | None = None) -> None:
    """Gives a trainer its own loader back, from the next training on.

    Args:
        trainer: Name of the trainer. None: all.
    """
    for name in [trainer] if trainer is not None else list(_installed):
        if _installed.pop(name, None) is not None:
            _module(name).uninstall()


def settings_of(trainer: str) -> Settings | None:
    """Returns the settings of a trainer; None if it keeps its own loader.

    A process of a distributed training has the default settings.
    """
    if os.environ.get(_SWITCH, "").lower() in ("off", "0"):
        return None
    return _installed.get(trainer, Settings())


def _module(trainer: str) -> ModuleType:
    if importlib.util.find_spec(trainer) is None:
        raise ConfigError(
            f"install: the package {trainer} is not installed; run "
            f"pip install {trainer}"
        )
    return importlib.import_module(_TRAINERS[trainer])
