"""The same images as PNG, JPEG, TFRecord, WebDataset tar, raw and compressed NumPy.

Measures sizes, reading speed (cold and warm), decoding speed of one core with Pillow,
and the throughput of an infeed pipeline on all cores. TFRecord and tar files contain
the JPEGs. For a cold read the system drops the files' pages first (`posix_fadvise`);
caches below the system, such as those of a virtual machine's host, may still be warm.
"""

import argparse
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from infeed import sources
from infeed import transforms as T
from infeed.errors import ConfigError
from infeed.experiments import tfrecord
from infeed.experiments.arguments import duration, positive
from infeed.experiments.images import files_below, pillow, pixels, sample
from infeed.experiments.measuring import interleave, spread
from infeed.experiments.result import Result, Table, rate, size
from infeed.pipeline import Pipeline
from infeed.watching.throughput import measure_throughput

SUMMARY = "the same images in six formats: size, reading cold and warm, decoding"

# Size of reads in bytes; larger than a typical buffer.
_READ = 1 << 20


@dataclass(frozen=True)
class Format:
    """Images in one file format.

    Attributes:
        name: Name in the table.
        files: The files.
        extract: Function from the bytes of files to the bytes of each image.
        decode: Function from the bytes of an image to its pixels.
        pipeline: infeed's pipeline.
        note: Note for the reader.
    """

    name: str
    files: list[Path]
    extract: Callable[[list[bytes]], Iterator[bytes]]
    decode: Callable[[bytes], np.ndarray]
    pipeline: Pipeline
    note: str

    @property
    def bytes(self) -> int:
        """Size on disk in bytes."""
        return sum(file.stat().st_size for file in self.files)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this experiment."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="a folder of images (default: made-up photographs)",
    )  # fmt: skip
    parser.add_argument(
        "--images", type=positive, default=100, help="how many (default 100)"
    )
    parser.add_argument(
        "--quality", type=positive, default=90, help="of the JPEGs (default 90)"
    )
    parser.add_argument(
        "--seconds", type=duration, default=3, help="infeed runs on each (default 3)"
    )
    parser.add_argument(
        "--turns", type=positive, default=3, help="measurements of each (default 3)"
    )
    parser.add_argument(
        "--at", type=Path, metavar="DIR",
        help="where the files are written: the storage to measure (default: where "
        "temporary files go)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> Result:
    """Writes the images in each format and measures the formats in turn."""
    pillow()
    count, turns, seconds = options.images, options.turns, options.seconds
    if options.quick:
        count, turns, seconds = min(count, 4), 1, 0.1
    with tempfile.TemporaryDirectory(prefix="infeed-formats-", dir=options.at) as place:
        images = _images(options, Path(place), count)
        formats = _write_formats(images, Path(place), options.quality)
        pixel_bytes = sum(image.nbytes for image in images)

        def measure(work: Callable[[Format], float]) -> dict[str, list[float]]:
            runs = {f.name: partial(work, f) for f in formats}
            return interleave(runs, turns)

        cold = measure(lambda f: _read_s(f, cold=True))
        warm = measure(lambda f: _read_s(f, cold=False))
        decode = measure(_decode_s)
        infeed_rates = measure(lambda f: _infeed_rate(f, seconds))
        figures = []
        for f in formats:
            figures.append(
                {
                    "name": f.name,
                    "files": len(f.files),
                    "bytes": f.bytes,
                    "cold_bytes_per_s": f.bytes / spread(cold[f.name])[1],
                    "warm_bytes_per_s": f.bytes / spread(warm[f.name])[1],
                    "cold_samples_per_s": len(images) / spread(cold[f.name])[1],
                    "decode_samples_per_s": len(images) / spread(decode[f.name])[1],
                    "infeed_samples_per_s": spread(infeed_rates[f.name])[1],
                    "infeed_spread": spread(infeed_rates[f.name])[::2],
                    "note": f.note,
                }
            )
    height, width, _ = images[0].shape
    data = {
        "images": len(images), "height": height, "width": width,
        "pixel_bytes": pixel_bytes, "quality": options.quality, "formats": figures,
    }  # fmt: skip
    question = (
        f"{len(images)} images of {height}x{width} px: what does the format change?"
    )
    return Result("formats", question, [_table(figures)], _meaning(figures, data), data)


def _images(options: argparse.Namespace, place: Path, count: int) -> list[np.ndarray]:
    if options.data is None:
        size = ("--size", "96x72") if options.quick else ()
        made = sample("segmentation", place / "made", count, *size) / "images"
        return pixels(files_below(made))
    files = files_below(options.data)[:count]
    if not files:
        raise ConfigError(
            f"formats: {options.data} has no images that Pillow reads; choose another"
            " folder"
        )
    return pixels(files)


def _write_formats(images: list[np.ndarray], place: Path, quality: int) -> list[Format]:
    """Writes the images in each format."""
    image = pillow()

    def encode(pixels: np.ndarray, kind: str, **settings: Any) -> bytes:
        file = io.BytesIO()
        image.fromarray(pixels).save(file, kind, **settings)
        return file.getvalue()

    def decode(data: bytes) -> np.ndarray:
        with image.open(io.BytesIO(data)) as opened:
            return np.asarray(opened.convert("RGB"))

    shape = images[0].shape

    def raw(data: bytes) -> np.ndarray:
        # Copied like a batch, because the other decoders write new memory too.
        return np.frombuffer(data, np.uint8).reshape(shape).copy()

    def inflate(data: bytes) -> np.ndarray:
        with np.load(io.BytesIO(data)) as archive:
            return np.asarray(archive["image"][0])

    jpegs = [encode(pixels, "JPEG", quality=quality) for pixels in images]
    pngs = [encode(pixels, "PNG") for pixels in images]
    paths = {
        "png": _folder(place / "png", pngs, "png"),
        "jpeg": _folder(place / "jpeg", jpegs, "jpg"),
        "tfrecord": [place / "images.tfrecord"],
        "tar": [place / "images.tar"],
        "npy": [place / "images.npy"],
        "npz": _folder(place / "npz", map(_npz, images), "npz"),
    }
    with open(paths["tfrecord"][0], "wb") as file:
        tfrecord.write(file, (tfrecord.example(image=jpeg) for jpeg in jpegs))
    with tarfile.open(paths["tar"][0], "w") as tar:
        for number, jpeg in enumerate(jpegs):
            entry = tarfile.TarInfo(f"{number:06}.jpg")
            entry.size = len(jpeg)
            tar.addfile(entry, io.BytesIO(jpeg))
    np.save(paths["npy"][0], np.stack(images))
    for files in paths.values():
        for path in files:
            _flush(path)
    rows = np.load(paths["npy"][0], mmap_mode="r")

    def records(data: list[bytes]) -> Iterator[bytes]:
        # Verifying checksums in Python would dominate the measurement.
        for record in tfrecord.read(data[0], verify=False):
            yield tfrecord.fields_of(record)["image"]

    def members(data: list[bytes]) -> Iterator[bytes]:
        with tarfile.open(fileobj=io.BytesIO(data[0])) as tar:
            for member in tar:
                opened = tar.extractfile(member)
                if opened is not None:
                    yield opened.read()

    def chunks(data: list[bytes]) -> Iterator[bytes]:
        # As np.load maps it: the pixels follow the header.
        whole = memoryview(data[0])[-len(images) * images[0].nbytes :]
        for number in range(len(images)):
            yield bytes(whole[number * images[0].nbytes :][: images[0].nbytes])

    def decoding(source: Any) -> Pipeline:
        # All images have one size already, so this crop only fixes the shape of a row.
        crop = T.Crop(shape[0], shape[1], at="top_left")
        return Pipeline(source).decode().transform(crop).batch(16)

    pngs_below, jpegs_below = (
        sources.Folder(str(place / name), labels="none") for name in ("png", "jpeg")
    )
    examples = sources.TFRecord(str(paths["tfrecord"][0]))
    tar_members = sources.WebDataset(str(paths["tar"][0]))
    mapped = Pipeline(sources.Memory(image=rows)).batch(16)
    archives = Pipeline(sources.Npz([str(path) for path in paths["npz"]])).batch(16)
    return [
        Format("PNG", paths["png"], iter, decode, decoding(pngs_below), ""),
        Format(
            "JPEG", paths["jpeg"], iter, decode, decoding(jpegs_below),
            f"quality {quality}",
        ),
        Format(
            "TFRecord", paths["tfrecord"], records, decode, decoding(examples),
            "of the JPEGs",
        ),
        Format(
            "tar", paths["tar"], members, decode, decoding(tar_members),
            "of the JPEGs",
        ),
        Format(".npy", paths["npy"], chunks, raw, mapped, "one array, mapped"),
        Format(".npz", paths["npz"], iter, inflate, archives, "one batch each"),
    ]  # fmt: skip


def _folder(folder: Path, images: Any, suffix: str) -> list[Path]:
    folder.mkdir()
    paths = []
    for number, data in enumerate(images):
        paths.append(folder / f"{number:06}.{suffix}")
        paths[-1].write_bytes(data)
    return paths


def _npz(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    # A batch of one image.
    np.savez_compressed(file, image=pixels[np.newaxis])
    return file.getvalue()


def _flush(path: Path) -> None:
    """Writes pages to disk: the system cannot drop other pages."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _forget(path: Path) -> None:
    """Asks the system to drop a file's pages."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _read_s(f: Format, *, cold: bool) -> float:
    """Returns the time to read all files, one after another, in seconds."""
    for path in f.files:
        if cold:
            _forget(path)
        else:
            path.read_bytes()
    begun = time.perf_counter()
    for path in f.files:
        with open(path, "rb", buffering=0) as file:
            while file.read(_READ):
                pass
    return time.perf_counter() - begun


def _decode_s(f: Format) -> float:
    """Returns one core's time from file bytes in memory to pixels, in seconds."""
    data = [path.read_bytes() for path in f.files]
    begun = time.perf_counter()
    for image in f.extract(data):
        f.decode(image)
    return time.perf_counter() - begun


def _infeed_rate(f: Format, seconds: float) -> float:
    """Returns the throughput of an infeed pipeline in samples/s."""
    return measure_throughput(f.pipeline, seconds).samples_per_s


def _table(figures: list[dict[str, Any]]) -> Table:
    columns = [
        "format", "size", "files", "cold MB/s", "warm MB/s", "cold images/s",
        "decode images/s", "infeed images/s",
    ]  # fmt: skip
    rows = [
        [
            f["name"],
            size(f["bytes"]),
            str(f["files"]),
            rate(f["cold_bytes_per_s"] / 1e6),
            rate(f["warm_bytes_per_s"] / 1e6),
            rate(f["cold_samples_per_s"]),
            rate(f["decode_samples_per_s"]),
            rate(f["infeed_samples_per_s"]),
        ]
        for f in figures
    ]
    title = "read by one thread, decoded by one core, and infeed on all cores (warm)"
    return Table(columns, rows, title)


def _meaning(figures: list[dict[str, Any]], data: dict[str, Any]) -> list[str]:
    by_name = {f["name"]: f for f in figures}
    png, jpeg, npy = by_name["PNG"], by_name["JPEG"], by_name[".npy"]
    tar = by_name["tar"]
    faster = jpeg["decode_samples_per_s"] / png["decode_samples_per_s"]
    needed = jpeg["decode_samples_per_s"] * npy["bytes"] / data["images"]
    meaning = [f"{f['name']}: {f['note']}." for f in figures if f["note"]]
    meaning += [
        f"JPEG is {png['bytes'] / jpeg['bytes']:.1f}x smaller than PNG and is decoded "
        f"{faster:.1f}x as fast, but loses detail: never use it for masks.",
        f"Packing changes reading, not decoding: {size(tar['bytes'])} in one file are "
        f"read cold at {rate(tar['cold_bytes_per_s'] / 1e6)} MB/s, in {jpeg['files']} "
        f"files at {rate(jpeg['cold_bytes_per_s'] / 1e6)} MB/s.",
        f"Pixels need no decoding but {npy['bytes'] / jpeg['bytes']:.0f}x the bytes of "
        f"JPEG. Use them if storage delivers {rate(needed / 1e6)} MB/s for each core "
        "that would decode, or if they stay in memory.",
    ]
    alike = [
        f["name"]
        for f in figures
        if f["cold_bytes_per_s"] > 0.7 * f["warm_bytes_per_s"]
    ]
    if alike:
        meaning.append(
            f"Cold reads of {', '.join(alike)} were about as fast as warm ones: these "
            "files are in memory, or in a cache below the system. Choose a folder on "
            "other storage with --at."
        )
    return meaning
