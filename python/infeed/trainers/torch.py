"""infeed in PyTorch: the batches of every DataLoader whose samples infeed can make.

The loader's sampler still chooses the samples, and its ``collate_fn`` still makes the
batch, so that trainers which replace samplers, skip batches or mix images work as
before.
"""

import importlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

from infeed import sources
from infeed._options import Column
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.datasets import read_dataset
from infeed.adopting.own_loops import is_own, own_loops
from infeed.adopting.record_draws import RecordDraws
from infeed.adopting.samples import is_picture
from infeed.errors import ConfigError, InfeedError
from infeed.pipeline import Pipeline
from infeed.seeding import restore_generators
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import FirstEpoch, Report, print_line, report

NAME = "torch"
_TITLE = "PyTorch"
_ORIGINAL = DataLoader.__iter__
# Epochs of the engine are numbers of 32 bits.
_EPOCHS = 1 << 32
# Separates the random draws of ranks, which may have equal seeds.
_RANK = 0x9E3779B9
# Classes of batch samplers that have no end.
_ENDLESS = ("_RepeatSampler",)
# Share of the time of the report in which samples that are not shuffled are compared.
_STILL_SHARE = 1 / 3

Batches = Sequence[Sequence[int]]


def install() -> None:
    """Makes loops over DataLoaders take their batches from infeed."""
    DataLoader.__iter__ = _begin_loop


def uninstall() -> None:
    """Gives DataLoaders their own batches back."""
    DataLoader.__iter__ = _ORIGINAL
    _samples_by_dataset.clear()


class UnknownSamplesError(Exception):
    """The batches of a loader stay with PyTorch; the text is the reason."""


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


@dataclass(frozen=True)
class EpochOrder:
    """The samples of an epoch.

    Attributes:
        numbers: Numbers of the samples in their order.
        size: Samples of a batch; the last one may have fewer.
    """

    numbers: npt.NDArray[np.int64]
    size: int


class SampleRow(dict[str, Any]):
    """A row of a batch as a dictionary, which reads other entries from the dataset.

    Attributes:
        read: Returns the dataset's own sample.
    """

    read: Callable[[], Mapping[str, Any]]

    def __missing__(self, name: str) -> Any:
        return self.read()[name]


@dataclass
class DatasetSamples:
    """The samples of a dataset as infeed makes them.

    Attributes:
        dataset: Returns the dataset; None if it is freed.
        records: Pipeline of single samples.
        rows: Number of each sample's record.
        example: A sample of the dataset, without images of Pillow.
        has_pictures: Whether the dataset's samples have such images.
        columns: Name of the column for each part of a sample.
        first_epoch: Measures the first epoch.
        idle: Open loaders without a running epoch, by positions and batch size.
    """

    dataset: Callable[[], Any]
    records: Pipeline
    rows: npt.NDArray[np.int64]
    example: Any
    has_pictures: bool
    columns: tuple[str, ...]
    first_epoch: FirstEpoch
    idle: dict[tuple[int, int], Any] = field(default_factory=dict)

    def row(self, columns: Sequence[Any], row: int, number: int) -> Any:
        """Returns a row of a batch as the dataset's sample with this number."""
        examples = _parts(self.example).values()
        parts = [
            _part(column[row], example)
            for column, example in zip(columns, examples, strict=True)
        ]
        if isinstance(self.example, dict):
            found = SampleRow(zip(self.example, parts, strict=True))
            found.read = lambda: self.dataset()[number]
            return found
        return type(self.example)(parts)

    def convert(
        self, batch: Mapping[str, Any], numbers: npt.NDArray[np.int64], collate: Any
    ) -> Any:
        """Returns a batch of samples as the loader's ``collate_fn`` makes it."""
        columns = [batch[name] for name in self.columns]
        stack = _stack_of(collate)
        if stack is None:
            rows = enumerate(numbers.tolist())
            return collate([self.row(columns, *row) for row in rows])
        examples = _parts(self.example).values()
        stacked = [
            _stack(column, example)
            for column, example in zip(columns, examples, strict=True)
        ]
        if isinstance(self.example, dict):
            return dict(zip(self.example, stacked, strict=True))
        return stack(stacked)

    def open(self, positions: int, size: int, settings: Settings) -> Any:
        """Returns a loader for epochs of this many positions, an idle one if it can."""
        idle = self.idle.pop((positions, size), None)
        if idle is not None:
            return idle
        options = settings.options(settings.cache) | {"epoch_records": positions}
        pipeline = self.records.batch(size)
        return _adapter().Loader(pipeline, rank=0, world_size=1, **options)

    def give_back(self, positions: int, size: int, loader: Any) -> None:
        """Keeps a loader for the next epoch, and closes older ones."""
        kept = [*self.idle.items()][-1:]
        for _, other in [*self.idle.items()][:-1]:
            other.close()
        self.idle = dict([*kept, ((positions, size), loader)])


# By identity of the dataset, until it is freed: its signature, and its samples or the
# reason why they stay.
_samples_by_dataset: dict[int, tuple[Any, DatasetSamples | str]] = {}
_reported: set[tuple[str, str]] = set()
# Seed of the persistent workers of a loader, and its number of epochs.
_persistent: weakref.WeakKeyDictionary[Any, tuple[int, int]] = (
    weakref.WeakKeyDictionary()
)


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
    if samples.has_pictures and _stack_of(loader.collate_fn) is not None:
        raise UnknownSamplesError("its images of Pillow cannot be stacked")
    restore = _keep_generators(loader)
    seed = _worker_seed(loader)
    steps = len(loader)
    if loader.num_workers == 0:
        # PyTorch asks for the order with the first batch.
        return EpochIterator(_begin_late(loader, samples, seed, settings), steps)
    try:
        order = _order(loader, len(samples.rows))
    except UnknownSamplesError:
        # PyTorch draws the same numbers again.
        restore()
        raise
    return EpochIterator(_deliver(loader, samples, order, seed, settings), steps)


def _begin_late(
    loader: Any, samples: DatasetSamples, seed: int, settings: Settings
) -> Iterator[Any]:
    """Yields the batches of an epoch whose order is unknown before its first batch."""
    restore = _keep_generators(loader)
    try:
        order = _order(loader, len(samples.rows))
    except UnknownSamplesError as error:
        _say_once(type(loader.dataset).__name__, str(error))
        restore()
        own = _own_epoch(loader)
        # The seed of its workers was drawn when the loop began.
        restore()
        yield from own
        return
    yield from _deliver(loader, samples, order, seed, settings)


def _deliver(
    loader: Any,
    samples: DatasetSamples,
    order: EpochOrder,
    seed: int,
    settings: Settings,
) -> Iterator[Any]:
    """Begins an epoch, and returns its batches."""
    key = len(order.numbers), order.size
    engine = samples.open(*key, settings)
    budget = engine.loader.stats()["budget_bytes"]
    samples.first_epoch.report(order.size, loader.num_workers, budget)
    engine.begin_epoch(seed, samples.rows[order.numbers].tolist())
    collate, taken = loader.collate_fn, itertools.count()
    pins = loader.pin_memory and torch.accelerator.is_available()

    def convert(batch: Mapping[str, Any]) -> Any:
        begin = next(taken) * order.size
        numbers = order.numbers[begin : begin + order.size]
        found = samples.convert(batch, numbers, collate)
        return torch.utils.data._utils.pin_memory.pin_memory(found) if pins else found

    def run() -> Iterator[Any]:
        try:
            yield from samples.first_epoch.measure(engine, len(engine), convert)
        finally:
            samples.give_back(*key, engine)

    return run()


def _keep_generators(loader: Any) -> Callable[[], None]:
    """Returns a function that restores the generators from which a loader draws."""
    sampler = getattr(_sampler_of(loader), "generator", None)
    generators = [torch.default_generator]
    generators += [
        one for one in (loader.generator, sampler) if isinstance(one, torch.Generator)
    ]
    states = [one.get_state() for one in generators]

    def restore() -> None:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    return restore


def _worker_seed(loader: Any) -> int:
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
    rank, _ = _adapter().process_rank()
    number: int = (seed + rank * _RANK + epoch) % _EPOCHS
    return number


def _order(loader: Any, samples: int) -> EpochOrder:
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


def _samples_of(loader: Any, settings: Settings) -> DatasetSamples:
    """Returns the samples of a loader's dataset, which it reads and compares first.

    Raises:
        UnknownSamplesError: infeed cannot make them.
    """
    dataset = loader.dataset
    signature = _signature(dataset)
    known, found = _samples_by_dataset.get(id(dataset), (None, ""))
    if known != signature:
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
        read = _read(loader.dataset)
        samples = _describe(loader.dataset, read)
    if _adapter().process_rank()[0] == 0:
        found = _report(loader, read, samples.records, settings)
        if found.proof is not None and not found.proof.is_equivalent:
            raise UnknownSamplesError("the samples of infeed differ")
        samples.first_epoch = FirstEpoch(_TITLE, found.gain, print_line)
    return samples


def _read(dataset: Any) -> AdoptedDataset:
    """Returns the pipeline of a dataset that infeed reads and transforms itself."""
    read = read_dataset(dataset)
    unknown = next((one for one in read.findings if one.became is None), None)
    if unknown is not None:
        raise UnknownSamplesError(f"{unknown.part}: {unknown.reason}")
    source = read.records.source
    if isinstance(source, sources.Items) and source._table() is None:
        raise UnknownSamplesError(
            f"{read.findings[0].part}: its own code reads each sample"
        )
    return read


def _describe(dataset: Any, read: AdoptedDataset) -> DatasetSamples:
    """Returns the samples of a dataset, after comparing the layout of one of them."""
    chosen = np.arange(len(read.dataset)) if read.chosen is None else read.chosen
    rows = chosen if read.order is None else read.order[chosen]
    whole = example = dataset[0]
    if isinstance(whole, dict):
        # A function of the program may leave them out.
        example = {name: part for name, part in whole.items() if not is_picture(part)}
    try:
        shapes = read.records.batch(1).shapes
    except ConfigError:
        shapes = {}
    if not shapes or not all(map(_has_size, shapes.values())):
        raise UnknownSamplesError("its samples differ in size")
    samples = DatasetSamples(
        weakref.ref(dataset),
        # The draws of transforms belong to a seed, and to the number of the epoch.
        read.records.shuffle(seed=0),
        rows.astype(np.int64),
        example,
        has_pictures=len(example) < len(whole),
        columns=_columns(example, shapes),
        first_epoch=FirstEpoch(_TITLE, None, print_line),
    )
    with RecordDraws(read.records, len(read.dataset), [int(rows[0])]) as draws:
        (found,) = draws.of(0)
    # Texts are no arrays.
    columns = [
        torch.as_tensor(found[name])[None] if name in found else [part]
        for name, part in zip(samples.columns, _parts(example).values(), strict=True)
    ]
    theirs, ours = map(_layout, (example, samples.row(columns, 0, 0)))
    if theirs != ours:
        raise UnknownSamplesError(f"a sample is {theirs}, and from infeed {ours}")
    return samples


def _columns(example: Any, batch: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the name of the column for each part of a sample."""
    if type(example) not in (tuple, list, dict):
        raise UnknownSamplesError(f"its samples are a {type(example).__name__}")
    if isinstance(example, dict):
        if set(example) != set(batch):
            raise UnknownSamplesError(
                f"its samples have {', '.join(example)}, and infeed {', '.join(batch)}"
            )
        return tuple(example)
    if len(example) != len(batch):
        raise UnknownSamplesError(
            f"its samples have {len(example)} parts, and infeed {', '.join(batch)}"
        )
    return tuple(batch)


def _parts(sample: Any) -> dict[Any, Any]:
    return sample if isinstance(sample, dict) else dict(enumerate(sample))


def _has_size(column: Column) -> bool:
    """Whether all rows of a column are arrays of one shape, or texts."""
    return column.kind == "text" or None not in (column.shape or (1, None))[1:]


def _part(value: Any, example: Any) -> Any:
    """Returns a value of a batch in the type of an example."""
    if isinstance(example, str):
        return value
    if isinstance(example, np.ndarray):
        return value.numpy()
    if isinstance(example, torch.Tensor):
        # An image of torchvision is a tensor of another class.
        return value.as_subclass(type(example))
    return type(example)(value.item())


def _stack_of(collate: Any) -> Callable[[list[Any]], Any] | None:
    """Returns the type of a batch for a function that only stacks; None for others."""
    library = str(getattr(collate, "__module__", "")).partition(".")[0]
    return _STACKS.get(collate.__name__) if library in ("torch", "timm") else None


def _stack(column: Any, example: Any) -> Any:
    """Returns a column in the type that PyTorch gives to stacked values."""
    if isinstance(example, str):
        return column
    kinds = {int: torch.int64, float: torch.float64}
    return column.to(kinds.get(type(example), column.dtype))


def _layout(sample: Any) -> list[str]:
    """Describes the parts of a sample: type, and shape of arrays."""
    found = []
    for part in _parts(sample).values():
        text = type(part).__name__
        if hasattr(part, "shape"):
            text += f" {part.dtype} {tuple(part.shape)}"
        found.append(text)
    return found


def _signature(dataset: Any) -> tuple[Any, ...]:
    """Returns the identity of a dataset's attributes, and the text of its steps."""
    attributes = getattr(dataset, "__dict__", {})
    found: list[Any] = [type(dataset)]
    for name, value in attributes.items():
        found.append((name, id(value)))
        if "transform" in name:
            found.append(repr(value))
    if (inner := attributes.get("dataset")) is not None:
        found.append(_signature(inner))
    return tuple(found)


def _sampler_of(loader: Any) -> Any:
    """Returns the sampler of a loader, also inside batch samplers of Accelerate."""
    batches = loader.batch_sampler
    while (inner := getattr(batches, "batch_sampler", None)) is not None:
        batches = inner
    return getattr(batches, "sampler", loader.sampler)


def _report(
    loader: Any, read: AdoptedDataset, records: Pipeline, settings: Settings
) -> Report:
    """Prints what replaces a loader, and compares it."""
    size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size or 1
    sampler = _sampler_of(loader)
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
    return report(
        *(read, theirs, records.batch(size)),
        Settings(seconds, settings.memory, settings.cache),
        *(
            _TITLE,
            print_line,
            f"the batches of a DataLoader over {count} samples of {name}",
        ),
    )


def _say_once(name: str, reason: str) -> None:
    """Prints why the batches of a dataset stay with PyTorch."""
    if (name, reason) not in _reported:
        _reported.add((name, reason))
        print_line(f"infeed: the batches of {name} stay with {_TITLE}: {reason}")


def _adapter() -> Any:
    """Returns infeed's module for PyTorch."""
    return importlib.import_module("infeed.torch")


# Functions that stack the parts of samples, by name, and their type of a batch.
_STACKS: dict[str, Callable[[list[Any]], Any]] = {
    default_collate.__name__: list,
    "fast_collate": tuple,
}
