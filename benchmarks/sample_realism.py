"""Compares the output of `infeed sample` with real photographs.

For each pair of folders: bytes per pixel (mean over all bytes and pixels, and the
spread over files) and decode rate in megapixels per second on one core, with the files
in memory. Pillow decodes, so that the comparison does not depend on infeed. Real and
synthetic files take turns, so that a busy machine slows both equally.

    infeed sample classification /tmp/photos --count 300
    infeed sample segmentation /tmp/streets --count 46
    python benchmarks/sample_realism.py --pair PHOTOGRAPHS /tmp/photos \
        --pair CAMVID/train /tmp/streets/images \
        --pair CAMVID/train_labels /tmp/streets/masks

Exits with status 1 if a ratio is outside 0.8 to 1.25.
"""

import argparse
import io
import itertools
import statistics
import sys
import time
from pathlib import Path

from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png"}
TOLERANCE = 1.25


class Folder:
    """The image files of a folder, in memory, and the time spent on decoding them."""

    def __init__(self, root: Path, limit: int) -> None:
        paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES)
        if not paths:
            sys.exit(f"{root}: no images")
        # A stride over the sorted names, so that every class is included.
        stride = max(1, len(paths) // limit)
        self.root = root
        self.files = [p.read_bytes() for p in paths[::stride][:limit]]
        self.pixels: list[int] = []
        for data in self.files:
            width, height = Image.open(io.BytesIO(data)).size
            self.pixels.append(width * height)
        self.seconds = 0.0
        self.decoded = 0

    def decode(self, index: int) -> None:
        start = time.process_time()
        image = Image.open(io.BytesIO(self.files[index]))
        image.load()
        self.seconds += time.process_time() - start
        self.decoded += self.pixels[index]

    @property
    def bytes_per_pixel(self) -> float:
        return sum(map(len, self.files)) / sum(self.pixels)

    @property
    def megapixels_per_second(self) -> float:
        return self.decoded / self.seconds / 1e6

    def line(self) -> str:
        each = sorted(len(f) / p for f, p in zip(self.files, self.pixels, strict=True))
        low, high = each[len(each) // 10], each[len(each) * 9 // 10]
        kilobytes = statistics.mean(map(len, self.files)) / 1e3
        return (
            f"{len(self.files):5d} files {kilobytes:8.1f} kB "
            f"{self.bytes_per_pixel:7.4f} B/px (p10 {low:.4f}, p90 {high:.4f}) "
            f"{self.megapixels_per_second:6.1f} Mpx/s  {self.root}"
        )


def compare(real: Folder, made: Folder, rounds: int) -> bool:
    for _ in range(rounds):
        turns = itertools.zip_longest(range(len(real.files)), range(len(made.files)))
        for r, m in turns:
            if r is not None:
                real.decode(r)
            if m is not None:
                made.decode(m)
    weight = made.bytes_per_pixel / real.bytes_per_pixel
    rate = made.megapixels_per_second / real.megapixels_per_second
    print(f"real   {real.line()}\nsample {made.line()}")
    print(f"ratio  bytes per pixel {weight:.2f}, decode rate {rate:.2f}\n")
    return all(1 / TOLERANCE <= ratio <= TOLERANCE for ratio in (weight, rate))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pair",
        nargs=2,
        type=Path,
        action="append",
        required=True,
        metavar=("REAL", "SAMPLE"),
        help="two folders to compare; may be repeated",
    )
    parser.add_argument("--limit", type=int, default=300, help="files of each folder")
    parser.add_argument("--rounds", type=int, default=2, help="decodes of each file")
    args = parser.parse_args()
    pairs = [[Folder(root, args.limit) for root in pair] for pair in args.pair]
    alike = [compare(real, made, args.rounds) for real, made in pairs]
    return 0 if all(alike) else 1


if __name__ == "__main__":
    sys.exit(main())
