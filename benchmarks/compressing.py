#!/usr/bin/env python3
"""Measures the gain and cost of LZ4 on the wire of feeders.

Rows are pixels and classes of 224x224 px, in uint8. See README.md,
"Feeders". Needs lz4, NumPy and Pillow.
"""

import argparse
import random
import sys
import time
from pathlib import Path

import lz4.block
import numpy as np
from PIL import Image

SIDE = 224
SUFFIXES = {".jpg", ".jpeg", ".png"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--images", type=int, default=200, help="of each folder")
    args = parser.parse_args()
    print(f"{'':24}of the bytes  pack GB/s  unpack GB/s")
    for folder in args.folders:
        files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES)
        chosen = random.Random(0).sample(files, min(args.images, len(files)))
        rows = [row(file) for file in chosen]
        share, pack, unpack = measure(rows)
        print(f"{folder.name:24}{share:12.1%}{pack:11.2f}{unpack:13.2f}")
    return 0


def row(file: Path) -> bytes:
    with Image.open(file) as image:
        classes = image.mode in ("L", "P")
        image = image if classes else image.convert("RGB")
        # Interpolation between two classes has no meaning.
        how = Image.Resampling.NEAREST if classes else Image.Resampling.BILINEAR
        return np.asarray(image.resize((SIDE, SIDE), how)).tobytes()


def measure(rows: list[bytes]) -> tuple[float, float, float]:
    """Returns the compressed share of the bytes, and bytes per second of one thread,
    both ways.
    """
    total = sum(map(len, rows))
    begun = time.perf_counter()
    packed = [lz4.block.compress(row) for row in rows]
    between = time.perf_counter()
    for one in packed:
        lz4.block.decompress(one)
    ended = time.perf_counter()
    share = sum(map(len, packed)) / total
    return share, total / (between - begun) / 1e9, total / (ended - between) / 1e9


if __name__ == "__main__":
    sys.exit(main())
