"""Compares decoded pixels with those of the image decoders of torchcodec.

    python benchmarks/parity_torchcodec.py FOLDER [--images 300]

Prints the table of docs/reference/parity.md. Needs torch, torchcodec, numpy, pillow and
infeed in one environment. FOLDER has JPEG photographs, which are compared as they are
and after Pillow has saved them in other formats. Of a file with several images, the
first one is compared.
"""

import argparse
import io
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchcodec
from PIL import Image
from torchcodec.decoders import decode_image

from infeed import codecs

# EXIF tag of the orientation.
ORIENTATION = 0x0112


@dataclass
class Case:
    """A kind of files.

    Attributes:
        name: Its name in the table.
        encode: Returns the file of a photograph. None: the photograph's own file.
        mode: Mode of torchcodec.
        own_mode: Mode of infeed.
    """

    name: str
    encode: Callable[[Image.Image], bytes] | None
    mode: str = "RGB"
    own_mode: codecs.ColorMode = "rgb"


def save(kind: str, mode: str = "RGB", **options: Any) -> Callable[..., bytes]:
    """Returns a function that saves an image in this format and mode."""

    def encode(image: Image.Image) -> bytes:
        file = io.BytesIO()
        found = image.convert(mode)
        if mode in ("RGBA", "LA"):
            found.putalpha(_ramp(image.size))
        found.save(file, kind, **options)
        return file.getvalue()

    return encode


def _ramp(size: tuple[int, int]) -> Image.Image:
    """Returns a gray image that is dark on the left and bright on the right."""
    width, height = size
    row = np.linspace(0, 255, width).astype(np.uint8)
    return Image.fromarray(np.tile(row, (height, 1)))


def save_turned(kind: str, **options: Any) -> Callable[[Image.Image], bytes]:
    """Returns a function that saves an image with an orientation from 2 to 8."""

    def encode(image: Image.Image) -> bytes:
        exif = Image.Exif()
        exif[ORIENTATION] = 2 + sum(image.size) % 7
        return save(kind, exif=exif.tobytes(), **options)(image)

    return encode


def save_16_bits(is_gray: bool) -> Callable[[Image.Image], bytes]:
    """Returns a function that saves a PNG with random low bytes of its samples."""

    def encode(image: Image.Image) -> bytes:
        high = np.asarray(image.convert("L" if is_gray else "RGB"), np.uint16)
        low = np.random.default_rng(0).integers(0, 256, high.shape, np.uint16)
        rows = ((high << 8) | low).astype(">u2").reshape(image.height, -1)
        data = b"".join(b"\0" + row.tobytes() for row in rows)
        colours = 0 if is_gray else 2
        header = struct.pack(">2I5B", *image.size, 16, colours, 0, 0, 0)
        chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + _checksum(kind + data)
            for kind, data in chunks
        )

    return encode


def _checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def save_palette(kind: str, **options: Any) -> Callable[[Image.Image], bytes]:
    """Returns a function that saves an image with a palette of 200 colours."""

    def encode(image: Image.Image) -> bytes:
        file = io.BytesIO()
        image.convert("RGB").quantize(200).save(file, kind, **options)
        return file.getvalue()

    return encode


def save_frames(kind: str) -> Callable[[Image.Image], bytes]:
    """Returns a function that saves an image and its mirror image in one file."""

    def encode(image: Image.Image) -> bytes:
        other = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        options = {"save_all": True, "append_images": [other]}
        return save(kind, **options)(image)

    return encode


def cases() -> list[Case]:
    """Returns all cases."""
    jpeg, gray_jpeg = save("JPEG", quality=90), save("JPEG", "L", quality=90)
    return [
        Case("JPEG, files of the folder", None),
        Case("JPEG, 4:4:4", save("JPEG", quality=90, subsampling="4:4:4")),
        Case("JPEG, 4:2:2", save("JPEG", quality=90, subsampling="4:2:2")),
        Case("JPEG, 4:2:0", save("JPEG", quality=90, subsampling="4:2:0")),
        Case("JPEG, progressive", save("JPEG", quality=90, progressive=True)),
        Case("JPEG, gray", gray_jpeg),
        Case("JPEG, CMYK", save("JPEG", "CMYK", quality=90)),
        Case("JPEG, EXIF orientation", save_turned("JPEG", quality=90)),
        Case("PNG, 8 bits", save("PNG", compress_level=1)),
        Case("PNG, gray", save("PNG", "L", compress_level=1)),
        Case("PNG, 1 bit", save("PNG", "1", compress_level=1)),
        Case("PNG, alpha", save("PNG", "RGBA", compress_level=1)),
        Case("PNG, gray with alpha", save("PNG", "LA", compress_level=1)),
        Case("PNG, palette", save_palette("PNG", compress_level=1)),
        Case(
            "PNG, palette with transparency",
            save_palette("PNG", compress_level=1, transparency=0),
        ),
        Case("PNG, EXIF orientation", save_turned("PNG", compress_level=1)),
        Case("PNG, 16 bits", save_16_bits(is_gray=False)),
        Case("PNG, 16 bits, gray", save_16_bits(is_gray=True)),
        Case("WebP", save("WEBP", quality=90, method=0)),
        Case("WebP, lossless", save("WEBP", lossless=True, quality=0, method=0)),
        Case("WebP, alpha", save("WEBP", "RGBA", quality=90, method=0)),
        Case("WebP, EXIF orientation", save_turned("WEBP", quality=90, method=0)),
        Case("WebP, animated: first image", save_frames("WEBP")),
        Case("GIF", save_palette("GIF")),
        Case("GIF, transparency", save_palette("GIF", transparency=0)),
        Case(
            "GIF, transparency and another background",
            save_palette("GIF", transparency=0, background=1),
        ),
        Case("GIF, animated: first image", save_frames("GIF")),
        Case('JPEG, `mode="GRAY"`', jpeg, "GRAY", "gray"),
        Case('JPEG, gray, `mode="GRAY"`', gray_jpeg, "GRAY", "gray"),
        Case('PNG, `mode="GRAY"`', save("PNG", compress_level=1), "GRAY", "gray"),
        Case(
            'PNG, alpha, `mode="RGB_ALPHA"`',
            save("PNG", "RGBA", compress_level=1),
            *("RGB_ALPHA", "rgba"),
        ),
        Case(
            'WebP, alpha, `mode="RGB_ALPHA"`',
            save("WEBP", "RGBA", quality=90, method=0),
            *("RGB_ALPHA", "rgba"),
        ),
    ]


def row(case: Case, paths: Iterable[Path]) -> str:
    """Returns the line of the table for one case."""
    largest, total, differ, values = 0, 0, 0, 0
    for path in paths:
        data = path.read_bytes()
        if case.encode is not None:
            image = Image.open(io.BytesIO(data)).convert("RGB")
            # The colour profile of a photograph does not fit all formats.
            image.info.clear()
            data = case.encode(image)
        theirs = decode_image(data, mode=case.mode)
        ours = codecs.decode(data, case.own_mode).astype(np.int16)
        if theirs.ndim == 4:
            theirs = theirs[0]
        apart = np.abs(ours - theirs.permute(1, 2, 0).numpy())
        largest = max(largest, int(apart.max()))
        total += int(apart.sum())
        differ += int(np.count_nonzero(apart))
        values += apart.size
    if not differ:
        return f"| {case.name} | 0 | 0 | 0 % |"
    mean, share = f"{total / values:.2g}", f"{100 * differ / values:.2g} %"
    return f"| {case.name} | {largest} | {mean} | {share} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of JPEGs")
    parser.add_argument("--images", type=int, default=300, help="how many of them")
    arguments = parser.parse_args()
    paths = sorted(
        path
        for path in arguments.folder.rglob("*")
        if path.suffix.lower() in (".jpg", ".jpeg")
    )[: arguments.images]
    versions = {"torchcodec": torchcodec, "torch": torch, "Pillow": PIL}
    print(
        f"{len(paths)} photographs:",
        ", ".join(
            f"{name} {str(module.__version__).partition('+')[0]}"
            for name, module in versions.items()
        ),
    )
    print("| file | largest | mean | values that differ |")
    print("|---|--:|--:|--:|")
    for case in cases():
        print(row(case, paths), flush=True)


if __name__ == "__main__":
    main()
