"""Arrays of a batch as tensors of PyTorch."""

from typing import Any

import torch

__all__ = ["tensor_of"]


def tensor_of(array: Any, own: bool | None = None) -> torch.Tensor:
    """Converts an array of a batch to a tensor.

    Args:
        array: The array.
        own: Whether the tensor is a copy in memory of PyTorch. False: it shares the
            memory of the batch. None: a copy on a GPU, because PyTorch ignores
            ``record_stream`` on memory that it did not allocate.
    """
    shared = torch.from_dlpack(array)
    is_copied = shared.is_cuda if own is None else own
    return shared.clone() if is_copied else shared
