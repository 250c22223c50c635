"""Samples of any dataset as named arrays, to compare them with those of a pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# A sample: its arrays by name. The first one with pixels is the image.
Sample = dict[str, Array]

# Keys under which datasets return their images.
_IMAGES = ("image", "img", "pixel_values")


def read_sample(dataset: Any, number: int) -> Sample:
    """Returns a sample of a dataset as named arrays, the image first.

    A tuple of image and target, a dictionary, or one array are known. A target may be a
    number, an array, a dictionary, or a list of annotations as in COCO files. Values
    that are no numbers, such as texts, are left out.
    """
    found = {name: array_of(value) for name, value in parts_of(dataset[number]).items()}
    return {name: array for name, array in found.items() if array is not None}


def parts_of(item: Any) -> dict[str, Any]:
    """Returns the parts of an item by name, the image first."""
    if isinstance(item, Mapping):
        parts = {str(name): value for name, value in item.items()}
        for name in reversed(_IMAGES):
            if name in parts:
                parts = {name: parts.pop(name), **parts}
        return parts
    return _of_tuple(item) if isinstance(item, tuple | list) else {"image": item}


def _of_tuple(item: Sequence[Any]) -> dict[str, Any]:
    # The names that `sources.Items` gives.
    names = ["image", "label", *(f"field{at}" for at in range(2, len(item)))]
    parts: dict[str, Any] = {}
    for name, value in zip(names, item, strict=False):
        if isinstance(value, Mapping):
            parts |= {str(key): entry for key, entry in value.items()}
        elif isinstance(value, list) and all(isinstance(v, Mapping) for v in value):
            parts |= _annotations(value)
        else:
            parts[name] = value
    return parts


def _annotations(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the boxes and labels of annotations as in COCO files."""
    if not all("bbox" in one and "category_id" in one for one in given):
        return {}
    boxes = np.array([one["bbox"] for one in given], np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    labels = np.array([one["category_id"] for one in given], np.int64)
    return {"boxes": boxes, "labels": labels}


def array_of(value: Any) -> Array | None:
    """Returns a number, array, tensor or Pillow image as an array; None for others."""
    if value is None or isinstance(value, str | bytes):
        return None
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array if array.dtype.kind in "biuf" else None


def row_of(column: Any) -> Array | None:
    """Returns the only row of a column of a batch; None for bytes and texts."""
    if isinstance(column, tuple):
        values, offsets = column
        return np.array(values[int(offsets[0]) : int(offsets[1])])
    return None if isinstance(column, list) else np.array(column[0])


def ragged(lists: Sequence[Array], dtype: Any) -> tuple[Array, Array]:
    """Returns values and offsets, also of lists that are all empty or of one length."""
    offsets = np.zeros(len(lists) + 1, np.uint64)
    np.cumsum([len(one) for one in lists], out=offsets[1:])
    return np.concatenate([*lists, np.zeros(0, dtype)]).astype(dtype), offsets


def same_samples(one: Sample, other: Sample) -> bool:
    """Whether two samples have the same fields and values; NaN equals NaN."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )


def has_pixels(array: Array) -> bool:
    """Whether an array can be shown as an image; boxes [n, 4] cannot."""
    is_boxes = array.ndim == 2 and array.shape[1] == 4
    return array.ndim in (2, 3) and min(array.shape) > 0 and not is_boxes


def has_object_masks(arrays: Sequence[Array]) -> bool:
    """Whether arrays are masks of objects, [objects, height, width]; keypoints are not.

    An image may have no object. One mask in each is a mask of classes with a channel.
    """
    are_masks = all(
        array.ndim == 3 and array.dtype.kind in "biu" and min(array.shape[1:]) >= 8
        for array in arrays
    )
    return are_masks and any(len(array) != 1 for array in arrays)


class NamedSamples:
    """The samples of a dataset as dictionaries, which `sources.Items` takes.

    Args:
        dataset: A dataset whose targets are dictionaries.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Returns Pillow images as they are, and all other numbers as arrays."""
        found = {}
        for name, value in parts_of(self.dataset[number]).items():
            array = array_of(value)
            if array is not None:
                found[name] = value if is_picture(value) else array
        return found


def is_picture(value: Any) -> bool:
    """Whether a value is an image of Pillow."""
    return type(value).__module__.startswith("PIL.")
