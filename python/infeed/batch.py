"""Batches as NumPy arrays over the engine's memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from infeed import _core

__all__ = ["Batch"]


class Batch:
    """The samples of one step, one column per field.

    A batch is indexed by field name, and unpacks in field order:

        batch["image"]
        images, labels = batch

    Arrays share the engine's memory without a copy, and stay valid as long as the
    program holds them. The engine cannot reuse memory that is held, so a loop should
    release each batch before it takes the second one after it.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Batch):
        self._core = core

    def __getitem__(self, name: str) -> Any:
        """Returns the column of a field.

        Returns:
            An array with rows first for images, masks, tensors and scalars; a list for
            bytes and text; ``(values, offsets)`` for ragged fields, where row ``i`` is
            ``values[offsets[i]:offsets[i + 1]]``. For an array on a device the result
            is that of `array`, which any framework's ``from_dlpack`` accepts.

        Raises:
            KeyError: The batch has no such field.
            TypeError: The column is bfloat16, and the package ``ml_dtypes``, which adds
                that type to NumPy, is not installed.
        """
        column = self._core.column(name)
        if isinstance(column, _core.Array):
            return numpy_from(name, column)
        if isinstance(column, tuple):
            values, offsets = column
            return numpy_from(name, values), numpy_from(name, offsets)
        return column

    def array(self, name: str) -> _core.Array | _core.DeviceArray:
        """Returns the column of a field as the engine's array, for DLPack.

        ``torch.from_dlpack(batch.array("image"))`` shares its memory, as do the same
        functions of JAX, TensorFlow and CuPy. On a device, the consumer's stream waits
        for the copy to the device, and the host does not wait. After the last tensor is
        dropped, the engine reuses the memory once the work queued in that stream is
        done.

        Raises:
            KeyError: The batch has no such field.
            TypeError: The field is ragged, bytes or text.
        """
        column = self._core.column(name)
        if not isinstance(column, _core.Array | _core.DeviceArray):
            raise TypeError(f"{name} is not an array; use batch[{name!r}]")
        return column

    def columns(self) -> Iterator[tuple[str, Any]]:
        """Iterates over names and columns, for other frameworks.

        Like `items`, but arrays are those of `array`, of any type, and a ragged field
        is a pair of them.
        """
        return ((name, self._core.column(name)) for name in self.keys())

    def record_stream(self, stream: Any) -> None:
        """Marks the batch as in use by another stream.

        After the batch is dropped, the engine reuses its memory only once the work
        queued in that stream is done. The stream must not be destroyed before that.
        ``torch.Tensor.record_stream`` has no effect on memory that PyTorch did not
        allocate.

        Args:
            stream: A ``torch.cuda.Stream``, a CuPy stream, or a stream handle.

        Raises:
            TypeError: The batch is on the CPU, or the argument is not a stream.
        """
        self._core.record_stream(stream)

    @property
    def records(self) -> list[tuple[int, str]]:
        """Number and name of each row's record; (-1, "") for padding."""
        return self._core.records()

    @property
    def epoch(self) -> int:
        """Number of the batch's epoch, from 0."""
        return self._core.epoch

    @property
    def step(self) -> int:
        """Number of the step in its epoch, from 0."""
        return self._core.step

    def keys(self) -> tuple[str, ...]:
        """Returns the names of the fields, in order."""
        return self._core.names

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterates over names and columns, in order."""
        return ((name, self[name]) for name in self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self.keys())

    def __len__(self) -> int:
        """Returns the number of fields, as for a tuple; `rows` counts the samples."""
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
    """Returns a NumPy view of the column's memory."""
    array = np.asarray(column)
    if column.dtype != "bfloat16":
        return array
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"{name} is bfloat16, which NumPy has only with the package ml_dtypes; "
            f"install it, or use batch.array({name!r}) through DLPack"
        ) from None
    return array.view(ml_dtypes.bfloat16)
