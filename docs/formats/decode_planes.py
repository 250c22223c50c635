#!/usr/bin/env python3
"""Reference decoder of lossless records of PNGs: a record to samples.

`python decode_planes.py RECORD` prints the size and the coding. The layout is described
in `pixel-planes.md`; the names here are those of the description. This decoder is
written to be read, not to be fast.
"""

import struct
import sys
import zlib
from dataclasses import dataclass

import numpy as np
import zstandard

# Channels of each colour type of PNG.
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

STORED, MINUS_GREEN, YCOCG, TABLE = range(4)
NONE, UP = range(2)
SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_STRIP = 1 << 20


@dataclass
class Record:
    """A decoded record."""

    head: bytes  # the PNG up to its first IDAT
    tail: bytes  # the PNG after its last IDAT
    coding: int
    # The samples as the PNG stores them, uint8 or uint16 [height, width, channels].
    samples: np.ndarray


class Reader:
    """Reads bytes and numbers one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, length: int) -> bytes:
        """Returns the next bytes."""
        if length > len(self.data):
            raise ValueError("the record ends early")
        taken, self.data = self.data[:length], self.data[length:]
        return taken

    def byte(self) -> int:
        """Returns the next byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """Returns the next number of at most 32 bits, in LEB128."""
        value = 0
        for at in range(5):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * at
            if byte < 0x80 and value < 1 << 32:
                return value
        raise ValueError("a number of more than 32 bits")


def decode(record: bytes) -> Record:
    """Decodes a record; raises ValueError if it is damaged."""
    magic, kind, version, flags, checksum = struct.unpack("<4sBBHI", record[:12])
    if magic != b"\x93IFL" or kind != ord("P") or version != 1 or flags != 0:
        raise ValueError("no record of pixel planes, version 1")
    if zlib.crc32(record[4:8] + record[12:]) != checksum:
        raise ValueError("a checksum that does not match")
    body = Reader(record[12:])
    head = body.take(body.varint())
    tail = body.take(body.varint())
    width, height, channels, size = shape(head)

    coding = body.byte()
    if coding > TABLE or (coding in (MINUS_GREEN, YCOCG) and channels < 3):
        raise ValueError("an unknown coding of planes")
    dtype = np.dtype(np.uint8 if size == 1 else np.uint16)
    table = None
    if coding == TABLE:
        pixel = channels * size
        if pixel < 2:
            raise ValueError("a table of pixels of one byte")
        data = body.take((body.byte() + 1) * pixel)
        table = np.frombuffer(data, dtype.newbyteorder(">")).reshape(-1, channels)
        planes = read_planes(body, width, height, 1, np.dtype(np.uint8))
    else:
        planes = read_planes(body, width, height, channels, dtype)
    if body.data:
        raise ValueError("bytes after the strips")

    if table is not None:
        if planes[0].max() >= len(table):
            raise ValueError("a pixel's index is not in the palette")
        samples = table[planes[0]].astype(dtype)
    else:
        restore_colors(coding, planes)
        samples = np.stack(planes, axis=-1)
    return Record(head, tail, coding, samples)


def shape(head: bytes) -> tuple[int, int, int, int]:
    """Returns width, height, channels and bytes of a sample from IHDR."""
    if head[:8] != SIGNATURE or head[12:16] != b"IHDR":
        raise ValueError("a record without a PNG")
    width, height, bits, color = struct.unpack(">IIBB", head[16:26])
    if width == 0 or height == 0 or color not in CHANNELS:
        raise ValueError("an invalid IHDR")
    return width, height, CHANNELS[color], 2 if bits == 16 else 1


def read_planes(
    body: Reader, width: int, height: int, channels: int, dtype: np.dtype
) -> list[np.ndarray]:
    """Reads the strips; returns the samples of each channel, [height, width]."""
    rows = body.varint()
    row_bytes = width * channels * dtype.itemsize
    if not 1 <= rows <= height or (rows > 1 and rows * row_bytes > MAX_STRIP):
        raise ValueError("strips of an invalid number of rows")
    tops = range(0, height, rows)
    directory = []
    for _ in range(len(tops) * channels):
        predictor = body.byte()
        if predictor > UP:
            raise ValueError("an unknown predictor")
        directory.append((predictor, [body.varint() for _ in range(dtype.itemsize)]))

    planes = [np.empty((height, width), dtype) for _ in range(channels)]
    entries = iter(directory)
    for top in tops:
        # The planes of all channels come first, so that a reader can skip a strip.
        for plane in planes:
            strip = plane[top : top + rows]
            predictor, lengths = next(entries)
            data = [expand(body.take(n), strip.size) for n in lengths]
            code = np.zeros(strip.size, dtype)
            for part in data:
                code = (code.astype(np.uint32) << 8).astype(dtype) | part
            code = code.reshape(strip.shape)
            strip[:] = code if predictor == NONE else add_up(code)
    return planes


def expand(stored: bytes, length: int) -> np.ndarray:
    """Returns the bytes of a plane, which is one zstd frame if it is shorter."""
    if len(stored) < length:
        stream = zstandard.ZstdDecompressor().decompressobj()
        data = stream.decompress(stored)
        if len(data) != length or not stream.eof or stream.unused_data:
            raise ValueError("a plane that cannot be expanded")
        stored = data
    elif len(stored) > length:
        raise ValueError("a plane that cannot be expanded")
    return np.frombuffer(stored, np.uint8)


def add_up(code: np.ndarray) -> np.ndarray:
    """Undoes the prediction of a strip."""
    difference = code
    if code.dtype == np.uint16:
        difference = (code >> 1) ^ (-(code & 1).astype(np.int32)).astype(np.uint16)
    difference = difference.astype(np.uint64)
    difference[0] = np.cumsum(difference[0])
    return np.cumsum(difference, axis=0).astype(code.dtype)


def restore_colors(coding: int, planes: list[np.ndarray]) -> None:
    """Undoes the colour transform; sums are modulo 256 or 65536."""
    signed = np.int8 if planes[0].dtype == np.uint8 else np.int16

    def half(plane: np.ndarray) -> np.ndarray:
        halves: np.ndarray = np.right_shift(plane.view(signed), 1)
        return halves.view(plane.dtype)

    if coding == MINUS_GREEN:
        planes[0] = planes[0] + planes[1]
        planes[2] = planes[2] + planes[1]
    elif coding == YCOCG:
        co, y, cg = planes[:3]
        t = y - half(cg)
        b = t - half(co)
        planes[:3] = [b + co, cg + t, b]


def main() -> None:
    """Prints a summary of a record."""
    with open(sys.argv[1], "rb") as file:
        found = decode(file.read())
    height, width, channels = found.samples.shape
    coding = ["stored", "minus green", "YCoCg", "table"][found.coding]
    print(f"{width} x {height}, {channels} channels, coding: {coding}")


if __name__ == "__main__":
    main()
