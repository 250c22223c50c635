"""Number of samples in the batches of any loader."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from infeed.watching.loaders import is_tensorflow, shape_of

# Returns the samples of a batch, by its number in the epoch; None: they are unknown.
BatchSizes = Callable[[int, Any], int | None]

# Channels of images, which are the first axis of an image without a batch axis.
_CHANNELS = (1, 3, 4)


def batch_sizes(loader: Any) -> BatchSizes:
    """Returns a function that counts the samples of each batch of one epoch.

    A DataLoader of PyTorch, also inside timm's `PrefetchLoader`, has a batch size and a
    sampler, so the number of indices of each batch is known whatever its function for
    batches returns. The batches of other loaders are counted by `stacked_samples`.
    """
    if type(loader).__module__.partition(".")[0] == "timm":
        loader = getattr(loader, "loader", loader)
    if is_tensorflow(loader):
        # tf.data stacks samples itself, also if they are nested.
        return lambda number, batch: _first_side(batch)
    if not hasattr(loader, "collate_fn") or not hasattr(loader, "dataset"):
        return lambda number, batch: stacked_samples(batch)
    # The batch size is that of the loader, or that of its batch sampler.
    batches = loader if _size_of(loader) else getattr(loader, "batch_sampler", None)
    size = _size_of(batches)
    if size is None:
        return lambda number, batch: stacked_samples(batch)
    return _OfIndices(size, _sampler_length(batches), _drops_last(batches))


def _size_of(batches: Any) -> int | None:
    size = getattr(batches, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else None


def _drops_last(batches: Any) -> bool:
    return bool(getattr(batches, "drop_last", False))


def _sampler_length(batches: Any) -> int | None:
    """Returns the number of indices of an epoch; None if the sampler does not know."""
    try:
        return len(batches.sampler)
    except (AttributeError, TypeError, NotImplementedError):
        return None


class _OfIndices:
    """Number of indices that the sampler returned for a batch.

    Args:
        size: Samples per batch.
        length: Number of indices of an epoch; None: unknown.
        drops_last: Whether a last batch that is not full is dropped.
    """

    def __init__(self, size: int, length: int | None, drops_last: bool) -> None:
        self._size, self._length, self._drops_last = size, length, drops_last

    def __call__(self, number: int, batch: Any) -> int:
        """Returns the samples of a batch."""
        if self._length is None:
            # An iterable dataset, or one of several processes that share each batch:
            # its batches may be smaller than the batch size.
            stacked = stacked_samples(batch)
            return min(stacked or self._size, self._size)
        full, rest = divmod(self._length, self._size)
        is_last = number == full and rest and not self._drops_last
        return rest if is_last else self._size


def stacked_samples(batch: Any) -> int | None:
    """Returns the samples of a batch whose columns all have this length.

    A column is an array, whose first axis counts samples, or a list. None: columns
    differ in length, or the batch may be a list of samples whose structure does not
    show whether an axis counts samples.
    """
    rows = getattr(batch, "rows", None)
    if isinstance(rows, int):
        return rows
    if (shape := shape_of(batch)) is not None:
        return shape[0] if shape else None
    if _is_mapping(batch):
        return _common_length(batch[key] for key in list(batch.keys()))
    if not isinstance(batch, tuple | list) or not batch:
        return None
    if all(map(_is_mapping, batch)):
        keys = {tuple(item.keys()) for item in batch}
        # Samples as dictionaries. Dictionaries with different keys are columns.
        return len(batch) if len(keys) == 1 else _common_length(batch)
    if all(isinstance(item, tuple | list) for item in batch) or _are_images(batch):
        # Either samples with their parts, or parts with their samples.
        return None
    found = _common_length(batch)
    is_list = isinstance(batch, list) and not any(map(_length, batch))
    return len(batch) if found is None and is_list else found


def _common_length(columns: Iterable[Any]) -> int | None:
    """Returns the length that all columns have. Numbers and texts have none."""
    found = {length for column in columns if (length := _length(column)) is not None}
    return found.pop() if len(found) == 1 else None


def _length(column: Any) -> int | None:
    """Returns the length of a column; None for a number, a text or another object.

    0 marks a column that disagrees with itself.
    """
    if (shape := shape_of(column)) is not None:
        return shape[0] if shape else None
    if _is_mapping(column):
        return stacked_samples(column) or 0
    return len(column) if isinstance(column, tuple | list) else None


def _first_side(batch: Any) -> int | None:
    """Returns the first side of the first array of a batch."""
    if (shape := shape_of(batch)) is not None:
        return shape[0] if shape else None
    columns: Iterable[Any] = ()
    if _is_mapping(batch):
        columns = (batch[key] for key in batch)
    elif isinstance(batch, tuple | list):
        columns = batch
    return next((found for one in columns if (found := _first_side(one))), None)


def _is_mapping(item: Any) -> bool:
    return isinstance(item, Mapping) or (
        hasattr(item, "keys") and hasattr(item, "__getitem__")
    )


def _are_images(items: Iterable[Any]) -> bool:
    """Whether all items may be images [C, H, W] without a batch axis."""
    shapes = [shape_of(item) for item in items]
    return all(s is not None and len(s) == 3 and s[0] in _CHANNELS for s in shapes)
