"""Finds out which transforms a function of the program calls.

`trace_image` calls a function of an image, and `trace_rows` one of rows, such as that
of `datasets.Dataset.with_transform`. If a result has the unique values of transforms,
it was made by these transforms. A function that does anything else to an image, or
draws random numbers itself, is not traced.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.adopting.image_observer import ImageObserver, UntracedError, observe_call
from infeed.adopting.samples import array_of, is_picture

# Values of other columns that a call has, beside one image.
_VALUES = 32
# Sides of the image with which a function of an image is called.
_HEIGHT, _WIDTH = 240, 320
# Modes of images that a function may ask for.
_MODES = ("RGB", "L", "RGBA")


def calls_same(one: Sequence[Any], other: Sequence[Any], texts: Sequence[str]) -> bool:
    """Whether two traces found the same transforms, with settings as in the texts."""
    same = [*map(id, one)] == [*map(id, other)]
    return same and [*map(repr, other)] == [*texts]


@dataclass(frozen=True)
class TracedFunction:
    """The columns that a function returns.

    Attributes:
        image: Name of the column of images that it reads.
        result: Name of the column with the result of the transforms.
        steps: The transforms, in their order.
        mode: Mode of the images: ``"RGB"`` or ``"gray"``.
        kept: Columns that it returns as they are, by name of the result.
        pictures: Columns of images that it returns as they are.
    """

    image: str
    result: str
    steps: tuple[Any, ...]
    mode: str
    kept: Mapping[str, str]
    pictures: tuple[str, ...]


def trace_rows(
    function: Callable[[dict[str, Any]], Any],
    rows: Mapping[str, Sequence[Any]],
    values: Mapping[str, Sequence[Any]],
) -> TracedFunction:
    """Returns the columns that a function of rows returns.

    Args:
        function: The function.
        rows: Some rows, as lists by column.
        values: Further values of columns of numbers, which it must return as they are.

    Raises:
        UntracedError: It does more than to call transforms with images.
    """
    images = [name for name, column in rows.items() if is_picture(column[0])]
    if len(images) != 1:
        raise UntracedError(f"its rows have {len(images)} columns of images")
    (image,) = images
    first = rows[image][0]
    found = _call(function, rows, image)
    calls = [rows]
    # Equal images with each of the other values, and in other modes.
    for begin in range(0, max(map(len, values.values()), default=0), _VALUES):
        part = {
            name: column[begin : begin + _VALUES] for name, column in values.items()
        }
        count = max(map(len, part.values()))
        calls.append(
            {
                name: [*part.get(name, ()), *[column[0]] * count][:count]
                for name, column in rows.items()
            }
        )
    if found.asks_mode:
        row = {name: column[:1] for name, column in rows.items()}
        calls += [row | {image: [first.convert(mode)]} for mode in _MODES]
    for call in calls:
        found = found.narrow(_call(function, call, image))
    if found.mode not in ("RGB", "L"):
        raise UntracedError(f"its images have the mode {found.mode}")
    mode = "gray" if found.mode == "L" else "RGB"
    (result,) = found.results
    kept = {name: _only(name, columns) for name, columns in found.kept.items()}
    return TracedFunction(image, result, found.steps, mode, kept, found.pictures)


def example_images(is_tensor: bool = False) -> list[Any]:
    """Returns two RGB images: Pillow images, or tensors [C, H, W] of uint8."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (2, _HEIGHT, _WIDTH, 3), np.uint8)
    if not is_tensor:
        return [*map(importlib.import_module("PIL.Image").fromarray, pixels)]
    torch = importlib.import_module("torch")
    return [torch.from_numpy(one).permute(2, 0, 1) for one in pixels]


def trace_image(
    function: Callable[[Any], Any], is_tensor: bool = False
) -> tuple[Any, ...]:
    """Returns the transforms that a function of an image calls, in their order.

    Args:
        function: The function, whose images are RGB.
        is_tensor: Whether its images are tensors. Otherwise: Pillow images.

    Raises:
        UntracedError: It does more than to call transforms.
    """
    found = []
    for one in example_images(is_tensor):
        observer = ImageObserver()
        given = observer.image(one)
        made = observe_call(observer, function, given)
        if made is given:
            # It is called for something else than its result.
            raise UntracedError("it calls no transform")
        origin = observer.origin_of(made)
        if origin is None or origin.mode != "RGB":
            raise UntracedError("it changes values itself")
        found.append(origin.steps)
    if [*map(id, found[0])] != [*map(id, found[1])]:
        raise UntracedError("it makes its transforms in each call, or has several")
    return found[0]


def _only(name: str, columns: frozenset[str]) -> str:
    """Returns the column that is returned under a name.

    Raises:
        UntracedError: Several columns are equal.
    """
    if name in columns:
        return name
    if len(columns) != 1:
        raise UntracedError(f"{name} is any of {', '.join(sorted(columns))}")
    return next(iter(columns))


@dataclass
class _Call:
    """Result of a call of a function.

    Attributes:
        steps: The transforms that made the result.
        mode: Mode of the images that they received.
        results: Columns with their result.
        kept: Columns with the returned values, by name of the result.
        pictures: Columns of images that are returned as they are.
        asks_mode: Whether the function asked for the mode of an image.
    """

    steps: tuple[Any, ...]
    mode: str
    results: tuple[str, ...]
    kept: Mapping[str, frozenset[str]]
    pictures: tuple[str, ...]
    asks_mode: bool

    def narrow(self, other: "_Call") -> "_Call":
        """Returns the call with the columns that another call returns too.

        Raises:
            UntracedError: The other call did something else.
        """
        mine, others = list(map(id, self.steps)), list(map(id, other.steps))
        is_like = mine == others and (
            (self.mode, self.results, self.kept.keys(), self.pictures)
            == (other.mode, other.results, other.kept.keys(), other.pictures)
        )
        kept = {
            name: columns & other.kept.get(name, frozenset())
            for name, columns in self.kept.items()
        }
        if not is_like or not all(kept.values()):
            raise UntracedError("it treats rows differently")
        return replace(self, kept=kept)


def _call(
    function: Callable[[dict[str, Any]], Any],
    rows: Mapping[str, Sequence[Any]],
    image: str,
) -> _Call:
    """Calls a function with rows, and finds the origin of what it returns."""
    observer = ImageObserver()
    traced = [observer.image(one) for one in rows[image]]
    given = {name: list(column) for name, column in rows.items()} | {image: traced}
    returned = observe_call(observer, function, given)
    if not isinstance(returned, Mapping):
        raise UntracedError(f"it returns a {type(returned).__name__}")
    results, pictures = [], []
    kept: dict[str, frozenset[str]] = {}
    made: set[tuple[tuple[int, ...], str]] = set()
    steps: tuple[Any, ...] = ()
    mode = ""
    for name, column in returned.items():
        if isinstance(column, list) and all(map(_is_same, column, traced)):
            pictures.append(name)
            continue
        if not hasattr(column, "__len__") or len(column) != len(traced):
            raise UntracedError(f"{name} has another number of rows")
        if same := _same_columns(column, rows):
            kept[name] = same
            continue
        origins = [observer.origin(value, row) for row, value in enumerate(column)]
        made |= {(tuple(map(id, one.steps)), one.mode) for one in origins}
        steps, mode = origins[0].steps, origins[0].mode
        results.append(name)
    if len(results) != 1:
        raise UntracedError(f"it transforms {len(results)} columns")
    if len(made) != 1:
        raise UntracedError("it makes its transforms in each call, or has several")
    return _Call(
        *(steps, mode, tuple(results), kept, tuple(pictures)), observer.asks_mode
    )


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _same_columns(column: Any, rows: Mapping[str, Sequence[Any]]) -> frozenset[str]:
    """Returns the columns of rows that have the values of a returned one."""
    array = None if isinstance(column, list) else array_of(column)
    if array is not None and array.ndim == 1 and array.dtype.kind in "iu":
        column = array.tolist()
    if not _is_plain(column):
        return frozenset()
    return frozenset(
        name for name, values in rows.items() if list(column) == list(values)
    )


def _is_plain(column: Any) -> bool:
    """Whether a column is a list of numbers, texts and lists of them."""
    if isinstance(column, list | tuple):
        return all(map(_is_plain, column))
    return column is None or isinstance(column, int | float | str | bytes)
