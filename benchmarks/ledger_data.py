"""The datasets of the ledger: given folders, and samples that are made once.

Pillow converts a sample to the formats that `infeed sample` does not write. Without
Pillow, these datasets are left out and reported.
"""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import datasets


@dataclass(frozen=True)
class Dataset:
    """A dataset with the remedies whose predictions are compared with measurements."""

    name: str
    remedies: tuple[str, ...]
    # Writes the dataset to a path; None if the user gave a folder.
    make: Callable[[str, Path], None] | None
    # Whether the widths of the intervals were chosen without it.
    held_out: bool = False
    # Options of `infeed explain`.
    options: tuple[str, ...] = ()
    # Path of a given folder, or of the dataset that this one uses with other options.
    path: Path | None = None
    extension: str = ""

    def prepare(self, infeed: str, folder: Path) -> Path:
        """Returns the path of the dataset, which it writes if it is missing."""
        path = self.path or folder / f"{self.name.partition(',')[0]}{self.extension}"
        if not path.exists():
            if self.make is None:
                raise SystemExit(f"{path} does not exist")
            unfinished = path.with_name(f"unfinished-{path.name}")
            self.make(infeed, unfinished)
            unfinished.rename(path)
        return path


def sample(*arguments: str) -> Callable[[str, Path], None]:
    """Returns a function that runs `infeed sample`."""
    kind, *options = arguments

    def make(infeed: str, path: Path) -> None:
        command = [infeed, "sample", kind, str(path), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return make


def convert(suffix: str, mode: str, **options: object) -> Callable[[str, Path], None]:
    """Returns a function that writes sample photographs in another format and mode."""

    def make(infeed: str, path: Path) -> None:
        # Without Pillow, the caller reports the ImportError.
        from PIL import Image

        photos = path.with_name("unfinished-photographs")
        sample(*PHOTOS)(infeed, photos)
        for file in sorted(photos.rglob("*.jpg")):
            with Image.open(file) as image:
                target = path / file.relative_to(photos).with_suffix(suffix)
                target.parent.mkdir(parents=True, exist_ok=True)
                image.convert(mode).save(target, **options)
            file.unlink()
        for folder in sorted(photos.rglob("*"), reverse=True):
            folder.rmdir()
        photos.rmdir()

    return make


def repeat(infeed: str, path: Path) -> None:
    """Writes 16 copies of sample photographs: more bytes than a small memory holds."""
    first = path / "0"
    sample("classification", "--count", "1000")(infeed, first)
    for copy in range(1, 16):
        for file in first.rglob("*.jpg"):
            target = path / file.relative_to(first).parent / f"{copy}-{file.name}"
            target.parent.mkdir(exist_ok=True)
            shutil.copy(file, target)
    for folder in sorted(first.iterdir()):
        for file in folder.iterdir():
            file.rename(path / folder.name / f"0-{file.name}")
        folder.rmdir()
    first.rmdir()


def write_shards(infeed: str, path: Path) -> None:
    """Writes sample photographs as tar shards."""
    photos = path.with_name("jpeg-medium")
    if not photos.exists():
        sample("classification", "--count", "1000")(infeed, photos)
    command = [infeed, "pack", str(photos), str(path), "--to", "webdataset"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


PHOTOS = ("classification", "--count", "240", "--seed", "1")
JPEG = ("lossless", "decoded", "resize", "workers-1")
# Smaller than what `decoded` and `resize` keep.
SMALL_JPEG = ("lossless", "restart-index", "workers-1")
PNG_PAIRS = ("lossless", "decoded", "png-up", "jpeg-95", "workers-1")
PNG = ("lossless", "decoded", "workers-1")
WEBP = ("decoded", "resize", "workers-1")

SAMPLES = [
    Dataset(
        "jpeg-small",
        SMALL_JPEG,
        sample("classification", "--count", "2000", "--size", "240x180"),
    ),
    Dataset("jpeg-medium", JPEG, sample("classification", "--count", "1000")),
    Dataset(
        "jpeg-medium, cached",
        ("cache-decoded",),
        sample("classification", "--count", "1000"),
    ),
    Dataset(
        "jpeg-large",
        JPEG,
        sample("classification", "--count", "160", "--size", "1600x1200"),
    ),
    Dataset(
        "png-pairs",
        PNG_PAIRS,
        sample("segmentation", "--count", "60"),
    ),
    Dataset("jpeg-many", JPEG, repeat),
    Dataset("png-rgb", PNG, convert(".png", "RGB")),
    Dataset("png-rgba", PNG, convert(".png", "RGBA"), held_out=True),
    Dataset("png-gray", PNG, convert(".png", "L"), held_out=True),
    Dataset("png-palette", PNG, convert(".png", "P")),
    Dataset("webp", WEBP, convert(".webp", "RGB", quality=90)),
    Dataset("shards", ("workers-1",), write_shards, held_out=True),
    Dataset(
        "arrays",
        ("uint8", "workers-1"),
        lambda _, path: datasets.make_decoded(path, rows=10_000),
        extension=".npy",
    ),
    Dataset(
        "jpeg-medium, 1 GbE",
        JPEG,
        sample("classification", "--count", "1000"),
        options=("--on", "1gbe"),
    ),
]


def user_folder(name: str, path: Path, remedies: tuple[str, ...]) -> Dataset:
    """Returns a folder of the user, which is held out."""
    return Dataset(name, remedies, None, held_out=True, path=path)


photos = partial(user_folder, "given photographs", remedies=JPEG)
streets = partial(user_folder, "given pairs", remedies=PNG_PAIRS)
