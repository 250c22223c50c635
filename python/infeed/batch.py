"""A batch as Python users see it: NumPy arrays over the engine's memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from infeed import _core

__all__ = ["Batch"]


class Batch:
    """The samples of one step, one column a field.

    Indexes by name and unpacks in field order::

        batch["image"]
        images, labels = batch

    Arrays share the engine's memory, without a copy, and stay valid for as long as they
    are held. Memory that is held cannot be used for coming batches, so a loop should
    let go of a batch before it takes the next but one.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Batch):
        self._core = core

    def __getitem__(self, name: str) -> Any:
        """The column of a field.

        Returns:
            For images, masks, tensors and scalars an array, rows first; for bytes and
            text a list; for ragged fields ``(values, offsets)``, where row ``i`` is
            ``values[offsets[i]:offsets[i + 1]]``. An array on a device is what `array`
            gives, for ``from_dlpack`` of any framework.

        Raises:
            KeyError: There is no such field.
            TypeError: The column is bfloat16, which NumPy has only with the package
                ``ml_dtypes``; `array` gives it to other frameworks.
        """
        column = self._core.column(name)
        if isinstance(column, _core.Array):
            return numpy_from(name, column)
        if isinstance(column, tuple):
            values, offsets = column
            return numpy_from(name, values), numpy_from(name, offsets)
        return column

    def array(self, name: str) -> _core.Array | _core.DeviceArray:
        """The column of a field as it is in the engine, for DLPack.

        ``torch.from_dlpack(batch.array("image"))`` shares its memory; so do the
        counterparts of JAX, TensorFlow and CuPy. On a device the consumer's stream
        waits for the bytes there, and the host does not; the memory is used again once
        what that stream had to do when the last tensor was dropped is done.

        Raises:
            KeyError: There is no such field.
            TypeError: It is a list of bytes or text, or ragged.
        """
        column = self._core.column(name)
        if not isinstance(column, _core.Array | _core.DeviceArray):
            raise TypeError(f"{name} is no array; take batch[{name!r}]")
        return column

    def columns(self) -> Iterator[tuple[str, Any]]:
        """Names and columns as they are in the engine, for other frameworks.

        Like `items`, but an array is what `array` gives, of any type; a ragged field is
        a pair of those.
        """
        return ((name, self._core.column(name)) for name in self.keys())

    def record_stream(self, stream: Any) -> None:
        """Says that a stream uses the batch besides the one that took it over.

        Its memory is not used again before what that stream has to do when the batch
        is dropped is done. ``torch.Tensor.record_stream`` does nothing for memory that
        is not PyTorch's.

        Args:
            stream: Such as ``torch.cuda.Stream``, a stream of CuPy, or a handle.

        Raises:
            TypeError: The batch is on the CPU, or it is no stream.
        """
        self._core.record_stream(stream)

    @property
    def records(self) -> list[tuple[int, str]]:
        """Number and name of the record behind each row; -1 and "" of padding."""
        return self._core.records()

    @property
    def epoch(self) -> int:
        """Number of the epoch it belongs to, from 0."""
        return self._core.epoch

    @property
    def step(self) -> int:
        """Its place in the epoch, from 0."""
        return self._core.step

    def keys(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return self._core.names

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and columns, in order."""
        return ((name, self[name]) for name in self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self.keys())

    def __len__(self) -> int:
        """Number of fields, so that unpacking and ``len`` agree; see `rows`."""
        return len(self.keys())

    @property
    def rows(self) -> int:
        """Number of samples."""
        return self._core.rows

    def __repr__(self) -> str:
        columns = []
        for name in self.keys():
            column = self._core.column(name)
            if isinstance(column, _core.Array | _core.DeviceArray):
                columns.append(f"{name}: {column.dtype} {list(column.shape)}")
            else:
                columns.append(f"{name}: {type(column).__name__} of {self.rows}")
        return f"<infeed.Batch {', '.join(columns)}>"


def numpy_from(name: str, column: _core.Array) -> np.ndarray:
    """A view of the column's memory."""
    array = np.asarray(column)
    if column.dtype != "bfloat16":
        return array
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"{name} is bfloat16, which NumPy has only with the package ml_dtypes; "
            f"install it, or take batch.array({name!r}) through DLPack"
        ) from None
    return array.view(ml_dtypes.bfloat16)
