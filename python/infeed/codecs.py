"""Encoded images and lossless records, for programs that use another loader."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from infeed import _core

__all__ = ["ColorMode", "decode", "encode", "image_size", "restore"]

ColorMode = Literal["rgb", "gray", "rgba", "stored", "stored16"]


def decode(
    data: bytes,
    mode: ColorMode = "rgb",
    *,
    orient: bool = True,
    max_pixels: int = 1 << 28,
) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Decodes a JPEG, PNG, WebP, TIFF, BMP, PNM, GIF or lossless record.

    Releases the GIL. The pixels are those of a pipeline with the same mode.

    Args:
        data: The bytes of a file.
        mode: ``"rgb"``, ``"gray"``, ``"rgba"``, or the samples as the file has them:
            ``"stored"`` in 8 bits, ``"stored16"`` in 16.
        orient: Apply the EXIF orientation. A TIFF has it in any case.
        max_pixels: Largest number of pixels; a larger image is an error.

    Returns:
        An array ``[height, width, channels]``, uint8, or uint16 for ``"stored16"``.

    Raises:
        ValueError: The bytes are damaged, too large, or of another format.
    """
    pixels, shape, size = _core.decode_image(bytes(data), mode, orient, max_pixels)
    if size == 2:
        return np.frombuffer(pixels, np.uint16).reshape(shape)
    return np.frombuffer(pixels, np.uint8).reshape(shape)


def image_size(
    data: bytes, *, orient: bool = True, max_pixels: int = 1 << 28
) -> tuple[int, int]:
    """Returns height and width of an image, without decoding its pixels.

    Args:
        data: The bytes of a file or lossless record.
        orient: Return the size after the turn of the EXIF orientation. A TIFF is
            turned in any case.
        max_pixels: Largest number of pixels; a larger image is an error.

    Raises:
        ValueError: The header is damaged, or of another format.
    """
    return _core.image_size(bytes(data), orient, max_pixels)


def encode(data: bytes) -> bytes:
    """Makes a lossless record from a file.

    The record decodes to the same pixels, in fewer bytes and several times faster.
    Releases the GIL.

    Args:
        data: The bytes of a JPEG or PNG.

    Raises:
        ValueError: The record would be larger than the file, or the file cannot become
            a record; keep the file.
    """
    return _core.encode_lossless(bytes(data))[0]


def restore(data: bytes) -> bytes:
    """Restores the file of a lossless record.

    Args:
        data: A lossless record.

    Returns:
        The file, byte for byte if the original was a sequential JPEG; otherwise, as for
        every PNG, a file with the same pixels and metadata.

    Raises:
        ValueError: The record is damaged.
    """
    return _core.restore_lossless(bytes(data))[0]
