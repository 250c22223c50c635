"""The datasets of the workloads: given by the user, or made once.

Standard library only. All data is read once before the measurement, so that every
loader finds it in the page cache.
"""

import argparse
import os
import random
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The dataset of each workload.
READS = {
    "segmentation": "segmentation",
    "segmentation-ordered": "segmentation",
    "segmentation-lossless": "segmentation_records",
    "whole-png": "segmentation",
    "classification": "classification",
    "classification-lossless": "classification_records",
    "classification-uint8": "classification",
    "classification-uint8-lossless": "classification_records",
    "decoded": "decoded",
    "decoded-uint8": "decoded",
}
COUNTS = {"segmentation": 60, "classification": 1000}
ROWS, SIDE = 20_000, 224


@dataclass(frozen=True)
class Paths:
    """Paths of the datasets."""

    segmentation: Path
    classification: Path
    decoded: Path
    # The same files as lossless records.
    segmentation_records: Path
    classification_records: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the paths of the data."""
    parser.add_argument(
        "--data",
        type=Path,
        default=HERE / ".data",
        help="where data sets not given are made (default benchmarks/.data; 4 GB)",
    )
    parser.add_argument(
        "--segmentation",
        type=Path,
        metavar="DIR",
        help="images/ and masks/ (or NAME/, NAME_labels/) of RGB PNGs of 512 pixels a "
        "side or more, and class_dict.csv",
    )
    parser.add_argument(
        "--classification",
        type=Path,
        metavar="DIR",
        help="holds JPEGs, in folders by class or flat",
    )
    parser.add_argument(
        "--infeed", default="infeed", help="the command that makes samples"
    )


def prepare(args: argparse.Namespace) -> Paths:
    """Makes missing datasets, reads everything once, and returns the paths."""
    segmentation = (args.segmentation or args.data / "segmentation").absolute()
    classification = (args.classification or args.data / "classification").absolute()
    paths = Paths(
        segmentation,
        classification,
        (args.data / "decoded.npy").absolute(),
        (args.data / f"{segmentation.name}-records").absolute(),
        (args.data / f"{classification.name}-records").absolute(),
    )
    args.data.mkdir(parents=True, exist_ok=True)
    for kind in sorted({READS[w] for w in args.workloads}):
        path = getattr(paths, kind)
        original = kind.removesuffix("_records")
        source = getattr(paths, original)
        if not source.exists():
            make(original, source, args)
        if path != source:
            pack(source, path, args)
        read_once(path)
    return paths


def pack(source: Path, path: Path, args: argparse.Namespace) -> None:
    """Makes lossless records of the files in a folder; continues an unfinished run."""
    command = [args.infeed, "pack", str(source), str(path), "--to", "folder"]
    subprocess.run([*command, "--image", "lossless"], check=True)
    palette = source / "class_dict.csv"
    if palette.exists():
        (path / palette.name).write_bytes(palette.read_bytes())


def make(kind: str, path: Path, args: argparse.Namespace) -> None:
    if kind == "decoded":
        make_decoded(path)
        return
    if getattr(args, kind):
        raise SystemExit(f"{path} does not exist")
    count = str(COUNTS[kind])
    subprocess.run(
        [args.infeed, "sample", kind, str(path), "--count", count, "--seed", "0"],
        check=True,
    )


def make_decoded(path: Path, rows: int = ROWS) -> None:
    """Writes random pixels: nothing is compressed, so their values do not matter."""
    shape = (rows, SIDE, SIDE, 3)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    unfinished = path.with_suffix(".unfinished")
    source = random.Random(0)
    with open(unfinished, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        for _ in range(rows):
            out.write(source.randbytes(SIDE * SIDE * 3))
    unfinished.rename(path)


def files_of(path: Path) -> list[Path]:
    """Returns a file, or the files below a folder, including linked folders."""
    if path.is_file():
        return [path]
    walk = os.walk(path, followlinks=True)
    return [Path(folder, name) for folder, _, names in walk for name in names]


def read_once(path: Path) -> None:
    for file in files_of(path):
        with open(file, "rb", buffering=0) as data:
            while data.read(1 << 22):
                pass


def describe(paths: Paths) -> dict:
    """Returns files, bytes and path of each dataset that exists."""
    found = {}
    for kind, path in vars(paths).items():
        if path.exists():
            files = files_of(path)
            total = sum(f.stat().st_size for f in files)
            found[kind] = {"path": str(path), "files": len(files), "bytes": total}
    return found
