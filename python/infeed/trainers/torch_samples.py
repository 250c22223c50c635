"""The samples of a dataset of PyTorch as infeed makes them, in the dataset's types."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from infeed import sources
from infeed._options import Column
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.datasets import read_native
from infeed.adopting.record_draws import RecordDraws
from infeed.adopting.samples import is_picture
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline
from infeed.trainers import Settings
from infeed.trainers.loader import (
    FirstEpoch,
    UnknownSamplesError,
    print_line,
    torch_adapter,
)

# Name of the trainer in reports.
TITLE = "PyTorch"


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
        checks: Each returns whether a function still calls the same transforms.
        first_epoch: Measures the first epoch.
        idle: Open loaders without a running epoch, by positions and batch size.
    """

    dataset: Callable[[], Any]
    records: Pipeline
    rows: npt.NDArray[np.int64]
    example: Any
    has_pictures: bool
    columns: tuple[str, ...]
    checks: tuple[Callable[[], bool], ...]
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
        self,
        batches: Sequence[Mapping[str, Any]],
        numbers: npt.NDArray[np.int64],
        collate: Any,
    ) -> Any:
        """Returns a batch of samples as the loader's ``collate_fn`` makes it.

        Args:
            batches: Batches of the engine that have these samples.
            numbers: Numbers of the samples.
            collate: The loader's ``collate_fn``.
        """
        (batch,) = batches
        columns = [batch[name] for name in self.columns]
        stack = stack_of(collate)
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
        pipeline = self.pipeline(size)
        return torch_adapter().Loader(pipeline, rank=0, world_size=1, **options)

    def pipeline(self, size: int) -> Pipeline:
        """Returns the pipeline for batches of this size."""
        return self.records.batch(size)

    def group(
        self, batches: Iterable[Mapping[str, Any]], size: int
    ) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yields the batches of the engine for each batch of this size."""
        return ([batch] for batch in batches)

    def give_back(self, positions: int, size: int, loader: Any) -> None:
        """Keeps a loader for the next epoch, and closes older ones."""
        kept = [*self.idle.items()][-1:]
        for _, other in [*self.idle.items()][:-1]:
            other.close()
        self.idle = dict([*kept, ((positions, size), loader)])


def read_samples(dataset: Any) -> AdoptedDataset:
    """Returns the pipeline of a dataset that infeed reads and transforms itself."""
    read = read_native(dataset)
    if isinstance(read, str):
        raise UnknownSamplesError(read)
    unknown = next((one for one in read.findings if one.became is None), None)
    if unknown is not None:
        raise UnknownSamplesError(f"{unknown.part}: {unknown.reason}")
    source = read.records.source
    if isinstance(source, sources.Items) and source._table() is None:
        raise UnknownSamplesError(
            f"{read.findings[0].part}: its own code reads each sample"
        )
    return read


def record_rows(read: AdoptedDataset) -> npt.NDArray[np.int64]:
    """Returns the number of each sample's record."""
    chosen = np.arange(len(read.dataset)) if read.chosen is None else read.chosen
    rows = chosen if read.order is None else read.order[chosen]
    return rows.astype(np.int64)


def describe_samples(dataset: Any, read: AdoptedDataset) -> DatasetSamples:
    """Returns the samples of a dataset, after comparing the layout of one of them."""
    rows = record_rows(read)
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
        rows,
        example,
        has_pictures=len(example) < len(whole),
        columns=_columns(example, shapes),
        checks=read.checks,
        first_epoch=FirstEpoch(TITLE, None, print_line),
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
        return _add_channel(value, example, 0).numpy()
    if isinstance(example, torch.Tensor):
        # An image of torchvision is a tensor of another class.
        return _add_channel(value, example, 0).as_subclass(type(example))
    return type(example)(value.item())


def _add_channel(value: torch.Tensor, example: Any, axis: int) -> torch.Tensor:
    """Returns a mask with the axis that torchvision gives to its only channel."""
    is_mask = example.ndim == value.ndim - axis + 1 and example.shape[0] == 1
    return value.unsqueeze(axis) if is_mask else value


def stack_of(collate: Any) -> Callable[[list[Any]], Any] | None:
    """Returns the type of a batch for a function that only stacks; None for others."""
    library = str(getattr(collate, "__module__", "")).partition(".")[0]
    return _STACKS.get(collate.__name__) if library in ("torch", "timm") else None


def _stack(column: Any, example: Any) -> Any:
    """Returns a column in the type that PyTorch gives to stacked values."""
    if isinstance(example, str):
        return column
    kinds = {int: torch.int64, float: torch.float64}
    column = column.to(kinds.get(type(example), column.dtype))
    return _add_channel(column, example, 1) if hasattr(example, "ndim") else column


def _layout(sample: Any) -> list[str]:
    """Describes the parts of a sample: type, and shape of arrays."""
    found = []
    for part in _parts(sample).values():
        text = type(part).__name__
        if hasattr(part, "shape"):
            text += f" {part.dtype} {tuple(part.shape)}"
        found.append(text)
    return found


# Functions that stack the parts of samples, by name, and their type of a batch.
_STACKS: dict[str, Callable[[list[Any]], Any]] = {
    default_collate.__name__: list,
    "fast_collate": tuple,
}
