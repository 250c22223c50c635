"""Copies of a loader's device batches into the memory of a framework.

A framework that does not pass a CUDA stream, or reads in another stream than it passes,
receives copies, because the engine could not know when to reuse a batch's memory. A
thread waits for the batch on the device. The framework imports the batch with DLPack,
and copies it with its own operation, in any stream. The batch is released after the
copies are complete. The loop may use the copies earlier, because the framework orders
its operations after them.
"""

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from infeed import _core
from infeed.batch import Batch
from infeed.errors import DeviceError

__all__ = ["BatchCopier", "Copy", "gpu_error"]

# Copies arrays that are complete on the device. Returns the copies, and a function that
# waits for them and then releases the imported arrays.
Copy = Callable[[Sequence[_core.DeviceArray]], tuple[list[Any], Callable[[], None]]]


class BatchCopier:
    """Converts each batch of an epoch to copies in the framework's memory.

    Args:
        steps: Number of batches in a whole epoch.
        make_batch: Function that makes the batch from its fields; with several devices,
            from the fields of each.
        copies: For each device, the function that copies its arrays.
        convert_host: Function that converts a column in host memory for the framework.
        names: Fields to convert. None: all.
    """

    def __init__(
        self,
        steps: int,
        make_batch: Callable[..., Any],
        copies: Sequence[Copy],
        convert_host: Callable[[str, Any], Any],
        names: Collection[str] | None = None,
    ):
        self._steps = steps
        self._make_batch = make_batch
        self._copies = copies
        self._convert_host = convert_host
        self._names = names
        # Functions that wait for the copies of the last batch, and its parts.
        self._begun: list[tuple[Callable[[], None], Batch]] = []
        self._failed: BaseException | None = None

    def convert(self, batch: Batch | tuple[Batch, ...]) -> tuple[Any, bool]:
        """Returns the converted batch, and whether it is the last one of its epoch.

        Raises:
            BaseException: The exception of the previous batch's copies.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        parts = batch if isinstance(batch, tuple) else (batch,)
        fields = [
            self._copy_fields(part, copy)
            for part, copy in zip(parts, self._copies, strict=True)
        ]
        return self._make_batch(*fields), parts[0].step + 1 == self._steps

    def _copy_fields(self, batch: Batch, copy: Copy) -> dict[str, Any]:
        """Returns the fields of a batch on one device, with copies of its arrays."""
        columns = {
            name: column
            for name, column in batch.columns()
            if self._names is None or name in self._names
        }
        arrays = {
            name: column
            for name, column in columns.items()
            if isinstance(column, _core.DeviceArray)
        }
        for array in arrays.values():
            array.synchronize()
        copies, made = copy(list(arrays.values()))
        # `finish` waits for these even if copies on the next device fail.
        self._begun.append((made, batch))
        copied = dict(zip(arrays, copies, strict=True))
        return {
            name: copied[name] if name in copied else self._convert_host(name, column)
            for name, column in columns.items()
        }

    def finish(self) -> None:
        """Waits until the copies are complete, and releases the batch."""
        for made, _ in self._begun:
            try:
                made()
            except BaseException as error:
                # The loop already has the copies, so the next batch raises the error.
                self._failed = error
        self._begun = []

    def deliver(self, item: Any) -> None:
        """Does nothing: the framework owns the copies."""


def gpu_error(device: str, framework: str, has: object, fix: str) -> DeviceError | None:
    """Returns the error for a framework that does not see a GPU.

    None if the process sees no GPU at all: the engine's own error has the reason.
    """
    if not json.loads(_core.gpus())["gpus"]:
        return None
    return DeviceError(
        f"{device}: {framework} does not see this GPU, but {has}; {fix}, or leave out "
        "device"
    )
