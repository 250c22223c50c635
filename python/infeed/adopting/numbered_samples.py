"""Samples of a dataset from a function of their number, which can run in processes."""

import contextlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed._fields import Field
from infeed._functions import FunctionAdapter
from infeed.adopting.samples import array_of, is_picture

# Samples that are read to find out which values differ in size: the first ones, and
# others that are spread over the dataset. Sizes may repeat in steps.
_FIRST, _SPREAD = 4, 5
# Names of pixels, whose sides differ. Other arrays with a first axis that differs are
# lists of rows, such as boxes.
_PIXELS = ("image", "img", "pixel_values", "mask")
# Bytes of a pickled dataset that each process may hold.
_MOST_BYTES = 256 << 20

FieldOutput = str | tuple[str, tuple[int, ...]] | Field


class NumberedSamples:
    """A function for `Pipeline.python` that returns the sample with a ``number``.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``.
        names: Keys of its samples, or a name for each part of a tuple.
    """

    def __init__(self, dataset: Any, names: Sequence[str]) -> None:
        self.dataset, self.names = dataset, tuple(names)

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Returns texts as they are, and numbers as arrays."""
        parts = _name_parts(self.dataset[int(sample["number"])], self.names)
        found = {name: _value(parts[name]) for name in self.names if name in parts}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class SampleFields:
    """The fields of the samples of a dataset.

    Attributes:
        output: Type and shape by name, as for `Pipeline.python`.
        pads: Whether the samples of a batch must be padded to one size.
        is_complete: Whether all values are numbers, arrays or texts.
    """

    output: Mapping[str, FieldOutput]
    pads: bool
    is_complete: bool

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of lists of numbers or rows, which differ in length."""
        return tuple(name for name, of in self.output.items() if isinstance(of, Field))


def read_fields(dataset: Any) -> SampleFields:
    """Returns the fields of a dataset, as some of its samples show them."""
    if not len(dataset):
        return SampleFields({}, False, False)
    first = dataset[0]
    names = _names(first)
    read = [_name_parts(first, names)]
    spread = np.linspace(0, len(dataset) - 1, _SPREAD, dtype=int).tolist()
    for number in sorted({*range(1, min(_FIRST, len(dataset))), *spread[1:]}):
        # A sample that cannot be read is an error of the run, which names it.
        with contextlib.suppress(Exception):
            read.append(_name_parts(dataset[number], names))
    found = {name: _output([parts.get(name) for parts in read], name) for name in names}
    output = {name: of[0] for name, of in found.items() if of is not None}
    pads = any(of[1] for of in found.values() if of is not None)
    return SampleFields(output, pads, len(output) == len(names))


def process_problem(function: Any) -> str | None:
    """Returns the reason why no process can call a function; None if one can."""
    if _is_large(function):
        return f"each process would have a copy of more than {_MOST_BYTES >> 20} MiB"
    return FunctionAdapter(function, False).process_problem()


class _TooLargeError(Exception):
    """A pickled object has too many bytes."""


class _ByteCounter:
    """Counts the bytes of a pickled object, and keeps none of them."""

    def __init__(self) -> None:
        self._bytes = 0

    def write(self, data: Any) -> int:
        self._add(len(data))
        return len(data)

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        self._add(buffer.raw().nbytes)

    def _add(self, count: int) -> None:
        self._bytes += count
        if self._bytes > _MOST_BYTES:
            raise _TooLargeError


def _is_large(function: Any) -> bool:
    counter = _ByteCounter()
    try:
        # Counts the values of lambdas and of functions inside functions, too.
        from cloudpickle import Pickler
    except ImportError:
        from pickle import Pickler
    try:
        Pickler(counter, 5, buffer_callback=counter.buffer).dump(function)
    except _TooLargeError:
        return True
    except Exception:
        # `FunctionAdapter` describes the error.
        return False
    return False


def _output(values: Sequence[Any], name: str) -> tuple[FieldOutput, bool] | None:
    """Returns the type and shape of values, and whether a batch pads them.

    None if a value is no number, array or text, or if values differ in more than size.
    """
    if all(isinstance(value, str) for value in values):
        return "text", False
    arrays = [array for array in map(array_of, values) if array is not None]
    if len(arrays) < len(values) or any(map(is_picture, values)):
        return None
    # An empty list has no type, and its items have no shape.
    sized = [array for array in arrays if array.ndim == 0 or len(array)]
    types = {(array.dtype.name, array.ndim) for array in sized}
    if len(types) != 1:
        return None
    dtype, shape = sized[0].dtype.name, sized[0].shape
    shapes = {array.shape for array in sized}
    is_list = name == "boxes" or any(isinstance(value, list) for value in values)
    if len(shapes) == 1 and len(sized) == len(arrays) and not is_list:
        return ((dtype, shape) if shape else dtype), False
    if _is_list_of_rows(name, shapes):
        return Field(kind="ragged", dtype=dtype, shape=shape[1:]), False
    return (dtype, shape), True


def _is_list_of_rows(name: str, shapes: set[tuple[int, ...]]) -> bool:
    is_image = name in _PIXELS and all(len(shape) > 1 for shape in shapes)
    return not is_image and len({shape[1:] for shape in shapes}) == 1


def _names(item: Any) -> tuple[str, ...]:
    """Returns the names of a sample's parts, as `sources.Items` gives them."""
    if isinstance(item, Mapping):
        return tuple(map(str, item))
    if not isinstance(item, tuple | list):
        return ("item",)
    is_mask = len(item) > 1 and len(getattr(item[1], "shape", ())) > 1
    names = ["image", "mask" if is_mask else "label"]
    return tuple([*names, *(f"field{at}" for at in range(2, len(item)))][: len(item)])


def _name_parts(item: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {str(name): value for name, value in item.items()}
    parts = item if isinstance(item, tuple | list) else (item,)
    return dict(zip(names, parts, strict=False))


def _value(value: Any) -> Any:
    return value if isinstance(value, str) else array_of(value)
