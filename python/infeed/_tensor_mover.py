"""Copies of PyTorch tensors to a device, if the program has imported PyTorch."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from infeed.errors import ConfigError

__all__ = ["TensorMover"]


class TensorMover:
    """Copies the tensors of items to a device, in the thread that makes the items.

    On a CUDA device the copies use their own stream, so that they run at the same time
    as the step's kernels. The thread waits for them, so the loop gets complete data.

    Raises:
        ConfigError: The program has not imported PyTorch, or the device is invalid.
    """

    def __init__(self, device: Any):
        torch = sys.modules.get("torch")
        if torch is None:
            raise ConfigError(
                f"prefetch: device={device!r} applies to PyTorch tensors, and PyTorch "
                "is not imported; leave device out, or copy items in the iterable"
            )
        self._torch: Any = torch
        try:
            self._device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"prefetch: device={device!r}: {error}") from None
        self._stream: Any = None

    def for_thread(self) -> "TensorMover":
        """Returns a mover for a new thread, with the caller's current CUDA device.

        Each thread has its own current device. Without a number, "cuda" would mean the
        first GPU in the new thread, and not the one that the script has chosen.
        """
        device = self._device
        if device.type == "cuda" and device.index is None:
            device = self._torch.device("cuda", self._torch.cuda.current_device())
        mover = TensorMover(device)
        if device.type == "cuda":
            mover._stream = self._torch.cuda.Stream(device)
        return mover

    def convert(self, item: Any) -> Any:
        """Returns the item with its tensors on the device.

        Raises:
            ConfigError: The item has no tensor.
        """
        found = 0

        def move(tensor: Any) -> Any:
            nonlocal found
            found += 1
            return tensor.to(self._device, non_blocking=True)

        if self._stream is None:
            item = self._each(item, move)
        else:
            with self._torch.cuda.stream(self._stream):
                item = self._each(item, move)
            self._stream.synchronize()
        if not found:
            raise ConfigError(
                f"prefetch: device={str(self._device)!r} is set, and an item of type "
                f"{type(item).__qualname__} has no tensor; leave device out"
            )
        return item

    def finish(self) -> None:
        """Does nothing: `convert` waits for its copies."""

    def deliver(self, item: Any) -> None:
        """Marks the tensors as in use by the loop's current stream.

        Otherwise the memory of a dropped tensor would be reused for the next copy
        while queued kernels still read it.
        """
        if self._stream is not None:
            stream = self._torch.cuda.current_stream(self._device)
            self._each(item, lambda tensor: tensor.record_stream(stream))

    def _each(self, item: Any, function: Callable[[Any], Any]) -> Any:
        """Returns the item with each tensor replaced by the function's result."""
        if isinstance(item, self._torch.Tensor):
            return function(item)
        if isinstance(item, Mapping):
            return {key: self._each(value, function) for key, value in item.items()}
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(self._each(value, function) for value in item))
        if isinstance(item, list | tuple):
            return type(item)(self._each(value, function) for value in item)
        return item
