"""infeed in PyTorch: the batches of every DataLoader whose samples infeed can make.

The loader's sampler still chooses the samples, and its ``collate_fn`` still makes the
batch, so that trainers which replace samplers, skip batches or mix images work as
before.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.own_loops import is_own, own_loops
from infeed.errors import InfeedError
from infeed.seeding import restore_generators
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import (
    DIFFERENCE,
    FirstEpoch,
    Report,
    UnknownSamplesError,
    print_line,
    report,
    torch_adapter,
)
from infeed.trainers.torch_detection import describe_detection, is_detection
from infeed.trainers.torch_order import (
    keep_generators,
    read_epoch_order,
    sampler_of,
    worker_seed,
)
from infeed.trainers.torch_samples import (
    TITLE,
    DatasetSamples,
    describe_samples,
    read_samples,
    stack_of,
)

NAME = "torch"
_ORIGINAL = DataLoader.__iter__
# Share of the time of the report in which samples that are not shuffled are compared.
_STILL_SHARE = 1 / 3
# Attributes with the files or samples of a dataset: of wrapped ones, a `Subset`, timm.
_INNER = ("_dataset", "dataset", "reader")
# By identity of the dataset, until it is freed: its signature, and its samples or the
# reason why they stay.
_samples_by_dataset: dict[int, tuple[Any, DatasetSamples | str]] = {}
_reported: set[tuple[str, str]] = set()


def install() -> None:
    """Makes loops over DataLoaders take their batches from infeed."""
    DataLoader.__iter__ = _begin_loop


def uninstall() -> None:
    """Gives DataLoaders their own batches back."""
    DataLoader.__iter__ = _ORIGINAL
    _samples_by_dataset.clear()


class EpochIterator:
    """Iterator over the batches of an epoch.

    Args:
        batches: The batches.
        steps: Their number.
    """

    def __init__(self, batches: Iterator[Any], steps: int) -> None:
        self._batches, self._steps = batches, steps

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        """Returns the number of all batches of the epoch."""
        return self._steps


def _begin_loop(loader: Any) -> Iterator[Any]:
    """Begins an epoch of a DataLoader, as its method ``__iter__``."""
    settings = settings_of(NAME)
    if settings is None or is_own() or get_worker_info() is not None:
        return _own_epoch(loader)
    # Reading the dataset may begin a loop over another loader.
    with own_loops():
        try:
            return _epoch(loader, settings)
        except UnknownSamplesError as error:
            _say_once(type(loader.dataset).__name__, str(error))
    return _own_epoch(loader)


def _own_epoch(loader: Any) -> Iterator[Any]:
    """Returns PyTorch's own iterator over an epoch."""
    own: Iterator[Any] = _ORIGINAL(loader)
    return own


def _epoch(loader: Any, settings: Settings) -> Iterator[Any]:
    """Returns the batches of an epoch of a DataLoader.

    Raises:
        UnknownSamplesError: infeed cannot make them.
    """
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise UnknownSamplesError("it has no samples by number")
    if loader.batch_sampler is None:
        raise UnknownSamplesError("its loader has no batches (batch_size=None)")
    samples = _samples_of(loader, settings)
    if samples.has_pictures and stack_of(loader.collate_fn) is not None:
        raise UnknownSamplesError("its images of Pillow cannot be stacked")
    restore = keep_generators(loader)
    seed = worker_seed(loader)
    steps = len(loader)
    if loader.num_workers == 0:
        # PyTorch asks for the order with the first batch.
        return EpochIterator(_begin_late(loader, samples, seed, settings), steps)
    try:
        batches = _deliver(loader, samples, seed, settings)
    except UnknownSamplesError:
        # PyTorch draws the same numbers again.
        restore()
        raise
    return EpochIterator(batches, steps)


def _begin_late(
    loader: Any, samples: DatasetSamples, seed: int, settings: Settings
) -> Iterator[Any]:
    """Yields the batches of an epoch whose order is unknown before its first batch."""
    restore = keep_generators(loader)
    try:
        batches = _deliver(loader, samples, seed, settings)
    except UnknownSamplesError as error:
        _say_once(type(loader.dataset).__name__, str(error))
        restore()
        own = _own_epoch(loader)
        # The seed of its workers was drawn when the loop began.
        restore()
        yield from own
        return
    yield from batches


def _deliver(
    loader: Any, samples: DatasetSamples, seed: int, settings: Settings
) -> Iterator[Any]:
    """Begins an epoch, and returns its batches.

    Raises:
        UnknownSamplesError: The order is unknown, or the pipeline cannot be opened.
    """
    order = read_epoch_order(loader, len(samples.rows))
    key = len(order.numbers), order.size
    try:
        engine = samples.open(*key, settings)
        budget = engine.loader.stats()["budget_bytes"]
    except InfeedError as error:
        raise UnknownSamplesError(str(error)) from error
    report = functools.partial(
        samples.first_epoch.report, order.size, loader.num_workers, budget
    )
    report()
    engine.begin_epoch(seed, samples.rows[order.numbers].tolist())
    collate, taken = loader.collate_fn, itertools.count()
    pins = loader.pin_memory and torch.accelerator.is_available()

    def convert(batches: Sequence[Mapping[str, Any]]) -> Any:
        begin = next(taken) * order.size
        numbers = order.numbers[begin : begin + order.size]
        found = samples.convert(batches, numbers, collate)
        return torch.utils.data._utils.pin_memory.pin_memory(found) if pins else found

    def run() -> Iterator[Any]:
        try:
            batches = samples.group(engine, order.size)
            steps = math.ceil(len(order.numbers) / order.size)
            yield from samples.first_epoch.measure(batches, steps, convert, report)
            # A program may have one epoch.
            report()
        finally:
            samples.give_back(*key, engine)

    return run()


def _samples_of(loader: Any, settings: Settings) -> DatasetSamples:
    """Returns the samples of a loader's dataset, which it reads and compares first.

    Raises:
        UnknownSamplesError: infeed cannot make them.
    """
    dataset = loader.dataset
    signature = _signature(dataset)
    known, found = _samples_by_dataset.get(id(dataset), (None, ""))
    checks = () if isinstance(found, str) else found.checks
    if known != signature or not all(check() for check in checks):
        try:
            found = _compared_samples(loader, settings)
        except (InfeedError, UnknownSamplesError) as error:
            found = str(error)
        try:
            weakref.finalize(dataset, _samples_by_dataset.pop, id(dataset), None)
        except TypeError:
            found = "it cannot be referenced weakly"
        _samples_by_dataset[id(dataset)] = signature, found
    if isinstance(found, str):
        raise UnknownSamplesError(found)
    return found


def _compared_samples(loader: Any, settings: Settings) -> DatasetSamples:
    """Returns the samples of a loader's dataset after a comparison with its own.

    Raises:
        UnknownSamplesError: infeed cannot make them.
    """
    with restore_generators():
        read = read_samples(loader.dataset)
        describe = describe_samples
        if is_detection(loader.dataset, read):
            describe = describe_detection
        samples = describe(loader.dataset, read)
    if torch_adapter().process_rank()[0] == 0:
        found = _report(loader, read, samples, settings)
        if found.proof is not None and not found.proof.is_equivalent:
            raise UnknownSamplesError(DIFFERENCE)
        samples.first_epoch = FirstEpoch(TITLE, found.gain, print_line)
    return samples


def _signature(dataset: Any) -> tuple[Any, ...]:
    """Returns the identity of a dataset's attributes, and what changes in place.

    The latter are the settings of transforms, and lists such as files and labels.
    """
    attributes = getattr(dataset, "__dict__", {})
    found: list[Any] = [type(dataset)]
    for name, value in attributes.items():
        found.append((name, id(value)))
        if "transform" in name:
            found.append(repr(value))
        elif isinstance(value, list):
            with contextlib.suppress(TypeError):
                found.append(hash(tuple(value)))
        elif isinstance(value, np.ndarray | torch.Tensor):
            found.append(hash(np.asarray(value).tobytes()))
        elif name in _INNER:
            found.append(_signature(value))
    return tuple(found)


def _report(
    loader: Any, read: AdoptedDataset, samples: DatasetSamples, settings: Settings
) -> Report:
    """Prints what replaces a loader, and compares it."""
    size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size or 1
    sampler = sampler_of(loader)
    is_shuffled = not isinstance(sampler, torch.utils.data.SequentialSampler)
    seconds = settings.proof_seconds * (1 if is_shuffled else _STILL_SHARE)
    theirs = None
    if is_shuffled:
        options: dict[str, Any] = {"num_workers": loader.num_workers}
        if loader.num_workers:
            options["prefetch_factor"] = loader.prefetch_factor
            options["multiprocessing_context"] = loader.multiprocessing_context
        # Another loader, because a loop would change the state of the sampler.
        theirs = DataLoader(
            *(loader.dataset, size),
            shuffle=True,
            collate_fn=loader.collate_fn,
            worker_init_fn=loader.worker_init_fn,
            generator=torch.Generator(),
            **options,
        )
    name, count = type(loader.dataset).__name__, len(loader.dataset)
    scope = f"the batches of a DataLoader over {count} samples of {name}"
    return report(
        *(read, theirs, samples.pipeline(size)),
        dataclasses.replace(settings, proof_seconds=seconds),
        *(print_line, scope),
    )


def _say_once(name: str, reason: str) -> None:
    """Prints why the batches of a dataset stay with PyTorch."""
    if (name, reason) not in _reported:
        _reported.add((name, reason))
        print_line(f"infeed: the batches of {name} stay with {TITLE}: {reason}")
