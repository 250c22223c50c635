"""Tensors to a device, beside the step. Knows PyTorch by what was imported already."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from infeed.errors import ConfigError

__all__ = ["Mover"]


class Mover:
    """Moves what is in an item to one device, in the thread that makes items.

    On a CUDA device the copies have a stream of their own, so that they run beside the
    step's kernels; the thread waits for them, so that the loop gets data that is there.

    Raises:
        ConfigError: PyTorch was not imported, or has no such device.
    """

    def __init__(self, device: Any):
        torch = sys.modules.get("torch")
        if torch is None:
            raise ConfigError(
                f"prefetch: device={device!r} moves tensors of PyTorch, which was not "
                "imported; leave device out, or move items in the iterable"
            )
        self._torch: Any = torch
        try:
            self._device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"prefetch: device={device!r}: {error}") from None
        self._stream: Any = None

    def begun(self) -> "Mover":
        """One for a thread, with the current CUDA device of the thread that asks.

        Threads have a current device each: without its number, "cuda" would mean the
        first one there, whatever the training script has chosen.
        """
        device = self._device
        if device.type == "cuda" and device.index is None:
            device = self._torch.device("cuda", self._torch.cuda.current_device())
        mover = Mover(device)
        if device.type == "cuda":
            mover._stream = self._torch.cuda.Stream(device)
        return mover

    def moved(self, item: Any) -> Any:
        """The item with its tensors on the device, complete.

        Raises:
            ConfigError: There is no tensor in it.
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
                f"prefetch: device={str(self._device)!r} was named, but an item of "
                f"type {type(item).__qualname__} holds no tensor; leave device out"
            )
        return item

    def settled(self) -> None:
        """Nothing: `moved` waits for its copies."""

    def hand_over(self, item: Any) -> None:
        """Says, in the loop's thread, which stream works on what the other one made.

        The memory of a tensor that is dropped would else be used for the next copy
        while kernels that read it are still queued.
        """
        if self._stream is not None:
            stream = self._torch.cuda.current_stream(self._device)
            self._each(item, lambda tensor: tensor.record_stream(stream))

    def _each(self, item: Any, function: Callable[[Any], Any]) -> Any:
        """The item with the function's results in the places of its tensors."""
        if isinstance(item, self._torch.Tensor):
            return function(item)
        if isinstance(item, Mapping):
            return {key: self._each(value, function) for key, value in item.items()}
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(self._each(value, function) for value in item))
        if isinstance(item, list | tuple):
            return type(item)(self._each(value, function) for value in item)
        return item
