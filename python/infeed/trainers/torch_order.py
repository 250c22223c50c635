"""The order of an epoch of a DataLoader, and the numbers that it draws."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from infeed.trainers.loader import UnknownSamplesError, torch_adapter

# Epochs of the engine are numbers of 32 bits.
_EPOCHS = 1 << 32
# Separates the random draws of ranks, which may have equal seeds.
_RANK = 0x9E3779B9
# Classes of batch samplers that have no end.
_ENDLESS = ("_RepeatSampler",)
# Seed of the persistent workers of a loader, and its number of epochs.
_persistent: weakref.WeakKeyDictionary[Any, tuple[int, int]] = (
    weakref.WeakKeyDictionary()
)

Batches = Sequence[Sequence[int]]


@dataclass(frozen=True)
class EpochOrder:
    """The samples of an epoch.

    Attributes:
        numbers: Numbers of the samples in their order.
        size: Samples of a batch; the last one may have fewer.
    """

    numbers: npt.NDArray[np.int64]
    size: int


def keep_generators(loader: Any) -> Callable[[], None]:
    """Returns a function that restores the generators from which a loader draws."""
    sampler = getattr(sampler_of(loader), "generator", None)
    generators = [torch.default_generator]
    generators += [
        one for one in (loader.generator, sampler) if isinstance(one, torch.Generator)
    ]
    states = [one.get_state() for one in generators]

    def restore() -> None:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    return restore


def worker_seed(loader: Any) -> int:
    """Draws the seed of an epoch's random numbers as PyTorch does for its workers.

    PyTorch draws that of persistent workers once.
    """
    is_persistent = loader.persistent_workers and loader.num_workers > 0
    epoch = 0
    if is_persistent and loader in _persistent:
        seed, epoch = _persistent[loader]
    else:
        drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        seed = int(drawn)
    if is_persistent:
        _persistent[loader] = seed, epoch + 1
    rank, _ = torch_adapter().process_rank()
    number: int = (seed + rank * _RANK + epoch) % _EPOCHS
    return number


def read_epoch_order(loader: Any, samples: int) -> EpochOrder:
    """Returns the order of an epoch of a loader over this many samples."""
    batches = _all_batches(loader)
    return EpochOrder(_numbers_of(batches, samples), _size_of(batches))


def _all_batches(loader: Any) -> Batches:
    """Returns the numbers of the samples of each batch of an epoch."""
    if type(loader.batch_sampler).__name__ in _ENDLESS:
        raise UnknownSamplesError("its sampler has no end")
    try:
        steps = len(loader.batch_sampler)
    except TypeError:
        raise UnknownSamplesError("its sampler has no length") from None
    batches = [list(one) for one in itertools.islice(loader.batch_sampler, steps + 1)]
    if len(batches) != steps:
        raise UnknownSamplesError(
            f"its sampler has {steps} batches, and yields {len(batches)} or more"
        )
    if not batches:
        raise UnknownSamplesError("an epoch has no batch")
    return batches


def _size_of(batches: Batches) -> int:
    """Returns the batch size; only the last batch may be smaller."""
    size = len(batches[0])
    is_even = all(len(one) == size for one in batches[:-1])
    if not is_even or not 0 < len(batches[-1]) <= size:
        raise UnknownSamplesError("its batches differ in size")
    return size


def _numbers_of(batches: Batches, samples: int) -> npt.NDArray[np.int64]:
    """Returns the numbers of all samples of an epoch in their order."""
    try:
        numbers = np.array([*itertools.chain.from_iterable(batches)])
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise UnknownSamplesError("its sampler yields more than numbers of samples")
    if numbers.min() < 0 or numbers.max() >= samples:
        raise UnknownSamplesError("its sampler yields numbers without a sample")
    return numbers.astype(np.int64)


def sampler_of(loader: Any) -> Any:
    """Returns the sampler of a loader, also inside batch samplers of Accelerate."""
    batches = loader.batch_sampler
    while (inner := getattr(batches, "batch_sampler", None)) is not None:
        batches = inner
    return getattr(batches, "sampler", loader.sampler)
