"""The framing of TFRecord files, and the subset of `tf.train.Example` used here.

A record is its length, the checksum of the length, the bytes and their checksum. All
numbers are little-endian, and checksums are CRC-32C, rotated and offset. Source: the
comment in TensorFlow's `record_writer.h`, and the wire format of protocol buffers.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from infeed.errors import DecodeError

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8


def _tables() -> list[list[int]]:
    """Returns tables for eight bytes. Source: slicing-by-8 (Kounavis, Berry)."""
    first = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(7):
        last = tables[-1]
        tables.append([first[value & 255] ^ (value >> 8) for value in last])
    return tables


_TABLES = _tables()


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C of `data`."""
    t0, t1, t2, t3, t4, t5, t6, t7 = _TABLES
    crc = 0xFFFFFFFF
    whole = len(data) // 8 * 8
    for low, high in struct.iter_unpack("<II", data[:whole]):
        low ^= crc
        crc = (
            t7[low & 255]
            ^ t6[low >> 8 & 255]
            ^ t5[low >> 16 & 255]
            ^ t4[low >> 24]
            ^ t3[high & 255]
            ^ t2[high >> 8 & 255]
            ^ t1[high >> 16 & 255]
            ^ t0[high >> 24]
        )
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def mask_crc(crc: int) -> int:
    """Returns a checksum in its stored form."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def write(file: BinaryIO, records: Iterable[bytes]) -> None:
    """Appends records to a file."""
    for record in records:
        length = struct.pack("<Q", len(record))
        file.write(length + struct.pack("<I", mask_crc(crc32c(length))))
        file.write(record + struct.pack("<I", mask_crc(crc32c(record))))


def read(data: bytes, *, verify: bool) -> Iterator[bytes]:
    """Yields the records of a file.

    Args:
        data: Bytes of the file.
        verify: Whether to verify the checksum of each record; those of lengths always
            are.

    Raises:
        DecodeError: The file is truncated, or a checksum is wrong.
    """
    place = 0
    while place < len(data):
        head = data[place : place + 12]
        if len(head) < 12:
            raise DecodeError(f"the record at byte {place} is cut short")
        length, check = struct.unpack("<QI", head)
        if mask_crc(crc32c(head[:8])) != check:
            raise DecodeError(f"the length of the record at byte {place} is damaged")
        record = data[place + 12 : place + 12 + length]
        tail = data[place + 12 + length : place + 16 + length]
        if len(tail) < 4:
            raise DecodeError(f"the record at byte {place} is cut short")
        if verify and mask_crc(crc32c(record)) != struct.unpack("<I", tail)[0]:
            raise DecodeError(f"the record at byte {place} is damaged")
        yield record
        place += 16 + length


def example(**fields: bytes) -> bytes:
    """Returns a `tf.train.Example` of byte strings."""
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _field(1, _field(1, value))))
        for name, value in fields.items()
    )
    return _field(1, entries)


def fields_of(record: bytes) -> dict[str, bytes]:
    """Returns the byte strings of a `tf.train.Example` that `example` made."""
    found = {}
    for _, features in _parse(record):
        for _, entry in _parse(features):
            parts = dict(_parse(entry))
            ((_, values),) = _parse(parts[2])
            ((_, value),) = _parse(values)
            found[parts[1].decode()] = value
    return found


def _field(number: int, payload: bytes) -> bytes:
    """Encodes a field of bytes in the wire format."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and bytes of each field of a message of byte fields."""
    place = 0
    while place < len(data):
        key, place = _varint_at(data, place)
        length, place = _varint_at(data, place)
        yield key >> 3, data[place : place + length]
        place += length


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
