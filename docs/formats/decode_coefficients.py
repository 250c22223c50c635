#!/usr/bin/env python3
"""Reference decoder of lossless records of JPEGs: a record to coefficients.

`python decode_coefficients.py RECORD` prints the size and the number of nonzero
coefficients. The layout is described in `jpeg-coefficients.md`; the names here are
those of the description. This decoder is written to be read, not to be fast.
"""

import struct
import sys
import zlib
from dataclasses import dataclass

import numpy as np
import zstandard

KINDS, CLASSES, STREAMS, MAX_BITS, LONG, ESCAPE = 12, 2, 8, 11, 238, 255
COUNT, DC, MASKS, LOW, HIGH = 0, 1, 2, 10, 11

# Position in row order of each coefficient in zigzag order.
ZIGZAG = sorted(
    range(64),
    key=lambda i: (i // 8 + i % 8, i // 8 if (i // 8 + i % 8) % 2 else i % 8),
)

# The Huffman tables of ITU-T T.81, Annex K.3: the body of a DHT segment.
HUFFMAN_TABLES = bytes.fromhex("""
0000010501010101010100000000000000000102030405060708090a0b100002010303020403
050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552
d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455
565758595a636465666768696a737475767778797a838485868788898a92939495969798999a
a2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2
e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa0100030101010101010101010000000000000102
030405060708090a0b1100020102040403040705040400010277000102031104052131061241
510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728
292a35363738393a434445464748494a535455565758595a636465666768696a737475767778
797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9ba
c2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa
""")


@dataclass
class Record:
    """A decoded record."""

    flags: int
    head: bytes  # segments of a JPEG with one scan, up to the scan data
    tail: bytes  # bytes after the scan data
    width: int
    height: int
    # For each component: blocks down, blocks across, 64 coefficients in row order.
    components: list[np.ndarray]


def decode(record: bytes) -> Record:
    """Decodes a record; raises ValueError if it is damaged."""
    magic, kind, version, flags, checksum = struct.unpack("<4sBBHI", record[:12])
    if magic != b"\x93IFL" or kind != ord("J") or version != 1:
        raise ValueError("no record of JPEG coefficients, version 1")
    if zlib.crc32(record[4:8] + record[12:]) != checksum:
        raise ValueError("the checksum does not match")
    reader = Reader(record[12:])
    length = reader.varint()
    head = reader.take(reader.varint())
    if len(head) != length:
        # A raw dictionary: the tables of ITU-T T.81, Annex K.3, as in a DHT segment.
        dictionary = zstandard.ZstdCompressionDict(
            HUFFMAN_TABLES, dict_type=zstandard.DICT_TYPE_RAWCONTENT
        )
        head = zstandard.ZstdDecompressor(dictionary).decompress(head, length)
    tail = reader.take(reader.varint())
    width, height, sampling = frame(head)
    across = -(-width // (8 * max(h for h, _ in sampling)))
    down = -(-height // (8 * max(v for _, v in sampling)))

    strip_rows = reader.varint()
    shared = int.from_bytes(reader.take(3), "little")
    codes: list[dict[str, int]] = []
    for segment in range(KINDS * CLASSES):
        if shared >> segment & 1:
            codes.append(codes[-1])
        else:
            codes.append(reader.code(MASKS <= segment % KINDS < LOW))
    strips = range(-(-down // strip_rows))
    parts = STREAMS + 2 * CLASSES
    lengths = [[reader.varint() for _ in range(parts)] for _ in strips]
    components = [np.zeros((down * v, across * h, 64), np.int16) for h, v in sampling]
    for strip in strips:
        first = strip * strip_rows
        rows = range(first, min(first + strip_rows, down))
        bodies = [reader.take(length) for length in lengths[strip]]
        decode_strip(bodies, codes, sampling, rows, across, components)
    if reader.bytes:
        raise ValueError("bytes after the last strip")
    return Record(flags, head, tail, width, height, components)


class Reader:
    """Reads fields from the start of bytes."""

    def __init__(self, data: bytes) -> None:
        self.bytes = data

    def take(self, length: int) -> bytes:
        """Returns the next bytes."""
        if length > len(self.bytes):
            raise ValueError("the record ends early")
        part, self.bytes = self.bytes[:length], self.bytes[length:]
        return part

    def varint(self) -> int:
        """Reads a number in LEB128."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def code(self, is_mask: bool) -> dict[str, int]:
        """Reads a code: from the bits of a code word to the symbol."""
        last = self.take(1)[0]
        bits = "".join(f"{byte:08b}" for byte in self.bytes[:256])
        at = 1
        if bits[0] == "1":
            self.take(1)
            return {"": last}
        lengths = []
        predicted = [4, 5, 6, 7, 8, 8, 8, 8, 8]
        for value in range(last + 1):
            near = value.bit_count() if is_mask else 0
            length = predicted[near]
            if bits[at] == "0":
                at += 1
            elif bits[at + 1] == "1":
                length = int(bits[at + 2 : at + 6], 2)
                at += 6
            else:
                length += -1 if bits[at + 2] == "1" else 1
                at += 3
            predicted[near] = length
            lengths.append(length)
        self.take(-(-at // 8))
        return canonical(lengths)


def canonical(lengths: list[int]) -> dict[str, int]:
    """Returns the code words of symbols with these lengths; 0 is no code word."""
    words = {}
    next_word = 0
    for bits in range(1, MAX_BITS + 1):
        for symbol, length in enumerate(lengths):
            if length == bits:
                words[f"{next_word:0{bits}b}"] = symbol
                next_word += 1
        next_word <<= 1
    if next_word != 2 << MAX_BITS:
        raise ValueError("a code that is not complete")
    return words


class Streams:
    """The bit streams of a strip."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bits = ["".join(f"{byte:08b}" for byte in body) for body in bodies]
        self.at = [0] * STREAMS

    def segment(self, words: dict[str, int], count: int) -> list[int]:
        """Decodes symbols, one from each stream in turn."""
        symbols = []
        for i in range(count):
            stream = i % STREAMS
            start = end = self.at[stream]
            while (symbol := words.get(self.bits[stream][start:end])) is None:
                end += 1
                if end - start > MAX_BITS:
                    raise ValueError("a code word that does not exist")
            self.at[stream] = end
            symbols.append(symbol)
        return symbols


def decode_strip(bodies, codes, sampling, rows, across, components) -> None:
    """Decodes the rows of MCUs of a strip into the components."""
    streams = Streams(bodies[:STREAMS])
    members = [[0], list(range(1, len(sampling)))]
    mcus = len(rows) * across
    blocks = [mcus * sum(sampling[c][0] * sampling[c][1] for c in m) for m in members]

    def segments(kind: int, counts: list[int]) -> list[list[int]]:
        return [
            streams.segment(codes[group * KINDS + kind], counts[group])
            for group in range(CLASSES)
        ]

    counts = segments(COUNT, blocks)
    dcs = segments(DC, blocks)
    masks = [[0] * n for n in blocks]
    for byte in range(8):
        having = [[i for i, n in enumerate(c) if n > byte] for c in counts]
        found = segments(MASKS + byte, [len(h) for h in having])
        for group in range(CLASSES):
            for i, value in zip(having[group], found[group], strict=True):
                masks[group][i] |= value << (8 * byte)
    low = segments(LOW, [sum((m & 0xFE).bit_count() for m in g) for g in masks])
    high = segments(HIGH, [sum((m >> 8).bit_count() for m in g) for g in masks])

    for group in range(CLASSES):
        dc_long = Reader(bodies[STREAMS + group])
        ac_long = Reader(bodies[STREAMS + CLASSES + group])
        symbols = [iter(low[group]), iter(high[group])]
        previous = dict.fromkeys(members[group], 0)
        block = 0
        for row in rows:
            for column in range(across):
                for component in members[group]:
                    h, v = sampling[component]
                    for y in range(row * v, row * v + v):
                        for x in range(column * h, column * h + h):
                            step = dc_step(dcs[group][block], dc_long)
                            previous[component] += step
                            out = components[component][y, x]
                            out[0] = previous[component]
                            for at in range(1, 64):
                                if masks[group][block] >> at & 1:
                                    code = next(symbols[at >= 8])
                                    out[ZIGZAG[at]] = coefficient(code, ac_long)
                            block += 1


def dc_step(code: int, long: Reader) -> int:
    """Returns the difference of a DC coefficient."""
    if code == ESCAPE:
        return struct.unpack("<h", long.take(2))[0]
    if code >= LONG:
        code = LONG + (code - LONG) * 256 + long.take(1)[0]
    return (code >> 1) ^ -(code & 1)


def coefficient(code: int, long: Reader) -> int:
    """Returns a coefficient."""
    if code == ESCAPE:
        return struct.unpack("<h", long.take(2))[0]
    magnitude = code >> 1
    if code >= LONG:
        magnitude = LONG // 2 + (code - LONG) // 2 * 256 + long.take(1)[0]
    return -magnitude if code & 1 else magnitude


def frame(head: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """Returns width, height and sampling factors (across, down) of the components."""
    at = 2
    while at < len(head):
        while head[at + 1] == 0xFF:
            at += 1
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if marker in (0xC0, 0xC1):
            height, width, count = struct.unpack(">HHB", head[at + 5 : at + 10])
            factors = [head[at + 11 + 3 * i] for i in range(count)]
            sampling = [(f >> 4, f & 15) for f in factors]
            return width, height, sampling if count > 1 else [(1, 1)]
        at += 2 + length
    raise ValueError("no frame header")


def main() -> None:
    """Prints a summary of a record."""
    with open(sys.argv[1], "rb") as file:
        found = decode(file.read())
    nonzero = [int(np.count_nonzero(c)) for c in found.components]
    print(f"{found.width} x {found.height}, nonzero coefficients {nonzero}")


if __name__ == "__main__":
    main()
