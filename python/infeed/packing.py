"""Packing: rewriting a dataset once into a format that is cheaper to read."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from infeed import _check, _core
from infeed import transforms as T
from infeed.pipeline import Pipeline

__all__ = ["Fidelity", "PackFormat", "PackProgress", "PackResult", "pack"]

PackFormat = Literal[
    "webdataset", "tfrecord", "arrow", "parquet", "npz", "folder", "arrays", "fast"
]

_FORMATS: tuple[str, ...] = get_args(PackFormat)

# Default width in MCUs of the tiles of JPEGs with restart markers.
_TILE = 4


@dataclass(frozen=True)
class PackProgress:
    """Progress of `pack`.

    Attributes:
        done: Records done, including bad ones.
        total: Records of the dataset.
        reused: Records that earlier calls had completed.
        bad: Bad records, which are left out.
        bytes_in: Size of the original records that are done, in bytes.
        bytes_out: Size of their packed form, in bytes.
        seconds: Time since the call began.
    """

    done: int
    total: int
    reused: int
    bad: int
    bytes_in: int
    bytes_out: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second that this call packed."""
        return (self.done - self.reused) / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float:
        """Remaining seconds at this rate; infinite before the first record."""
        return (self.total - self.done) / self.rate if self.rate > 0 else math.inf


@dataclass(frozen=True)
class Fidelity:
    """Similarity of images before and after a lossy encoding.

    Attributes:
        images: Images compared, spread evenly over the dataset.
        psnr_db: Mean PSNR in decibels.
        least_psnr_db: Lowest PSNR in decibels.
        ssim: Mean SSIM; 1 means equal.
        least_ssim: Lowest SSIM.
    """

    images: int
    psnr_db: float
    least_psnr_db: float
    ssim: float
    least_ssim: float


@dataclass(frozen=True)
class PackResult:
    """A packed dataset.

    Attributes:
        path: Folder of the dataset, which `Pipeline.load` accepts.
        pipeline: The pipeline over the packed dataset, without the transforms that
            were baked.
        records: Records in the dataset.
        bad: Bad records, which were left out; ``infeed-pack-bad.jsonl`` in the folder
            lists them with reasons.
        bytes_in: Size of the original records, in bytes.
        bytes_out: Size of the packed files, in bytes.
        seconds: Duration of this call.
        reused: Records that earlier calls had completed.
        unchanged: JPEGs that were copied without restart markers, because adding them
            would lose data.
        fidelity: Change of images by a lossy encoding; None without one.
    """

    path: str
    pipeline: Pipeline
    records: int
    bad: int
    bytes_in: int
    bytes_out: int
    seconds: float
    reused: int
    unchanged: int
    fidelity: Fidelity | None


def pack(
    pipeline: Pipeline,
    out: str | os.PathLike[str],
    *,
    to: PackFormat = "webdataset",
    bake: int = 0,
    resize_short: int | None = None,
    fit: int | tuple[int, int] | None = None,
    encode: str | None = None,
    mask: str | None = None,
    restart_index: bool | int = False,
    shuffle: int | None = None,
    shard_size: int | str = "256MB",
    rows: int | None = None,
    max_bad: int | None = None,
    verify: bool = False,
    jobs: int | None = None,
    progress: bool | Callable[[PackProgress], bool | None] = False,
) -> PackResult:
    """Rewrites the records of a pipeline's source once, below ``out``.

    The original data is never changed. If a call is stopped or killed, the same call
    continues it, and the result has the same bytes.

    Args:
        pipeline: Pipeline whose source is packed. Its decode options apply if images
            must be decoded.
        out: Folder: missing, empty, or of an earlier call with the same options. For
            shards also the URL of a bucket, such as ``"s3://packed/photos"``.
        to: ``"webdataset"``, ``"tfrecord"``, ``"arrow"``, ``"parquet"``: shards.
            ``"npz"``: compressed NumPy files of one batch each. ``"folder"``: image
            files. ``"arrays"``: one ``.npy`` file per field. ``"fast"``: WebDataset
            shards of lossless records, which are smaller and faster to decode.
        bake: Number of the pipeline's first transforms to apply while packing. They
            must be geometric and have no random parameters.
        resize_short: Length of the short side to resize images to, in pixels.
        fit: Size ``(height, width)`` of all images: the short side is resized to the
            longer of both, then the centre is cropped.
        encode: Encoding of images: ``"keep"``, ``"lossless"``, ``"raw"``,
            ``"jpeg:95"``, ``"png"``, ``"png-fast"``, ``"png-stored"``,
            ``"webp-lossless"`` or ``"png:FILTER:LEVEL"``. None: ``"lossless"`` with
            ``to="fast"``, else ``"keep"``.
        mask: Encoding of masks, which must be lossless. None: as for images.
        restart_index: Whether to add restart markers to JPEGs, without loss. A number
            is the width of a tile in MCUs.
        shuffle: Seed for the order of records in shards, which is that of the first
            epoch of a pipeline with this seed. None: the order of the source.
        shard_size: Size of a shard in bytes, or text such as ``"256MB"``.
        rows: Rows per ``.npz`` file. None: the pipeline's batch size.
        max_bad: Number of bad records that may be left out. None: no limit.
        verify: Whether to decode images that are copied, to find damaged pixels.
        jobs: Number of threads. None: the number of cores.
        progress: Function that is called a few times per second, and stops packing if
            it returns False. True: print a line to standard error.

    Raises:
        ConfigError: The options contradict each other, or ``out`` belongs to a call
            with other options.
        DecodeError: All records are bad; this is the first.
        InterruptedPackError: ``progress`` returned False.
        TooManyBadRecordsError: More than ``max_bad`` records are bad.
        WriteError: A file cannot be written; complete files stay.
    """
    arguments = locals()
    options = options_from(pipeline, arguments)
    path = os.fspath(out)
    report = print_progress if progress is True else progress or None
    begun = time.monotonic()

    def call(
        done: int, total: int, reused: int, bad: int, bytes_in: int, bytes_out: int
    ) -> bool | None:
        assert report is not None
        seconds = time.monotonic() - begun
        at = PackProgress(done, total, reused, bad, bytes_in, bytes_out, seconds)
        return report(at)

    found = json.loads(
        _core.pack(
            pipeline._json(),
            pipeline._handles(),
            path,
            json.dumps(options),
            None if report is None else call,
        )
    )
    if progress is True:
        print(file=sys.stderr)
    return _pack_result(path, found, pipeline)


# Options of `pack` with their defaults.
OPTIONS: Mapping[str, Any] = pack.__kwdefaults__ or {}


def options_from(pipeline: Pipeline, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `pack` for the engine. Missing ones have their default.

    Raises:
        ConfigError: An argument is invalid.
    """
    given = {**OPTIONS, **arguments}
    to = given["to"]
    _check.choice("pack", "to", to, _FORMATS)
    default = "keep"
    if to == "fast":
        to, default = "webdataset", "lossless"
    bake = _check.integer("pack", "bake", given["bake"])
    if bake > len(pipeline._transforms):
        most = f"at most {len(pipeline._transforms)}, the transforms of the pipeline"
        raise _check.error("pack", "bake", most, bake)
    steps: list[T.Transform] = list(pipeline._transforms[:bake])
    if given["resize_short"] is not None:
        short = _check.integer("pack", "resize_short", given["resize_short"], low=1)
        steps.append(T.Resize(short))
    if given["fit"] is not None:
        kind = int | tuple[int, int]
        sides = _check.convert(
            "pack", "fit", given["fit"], kind, 1, "an integer or (height, width)"
        )
        height, width = (sides, sides) if isinstance(sides, int) else sides
        steps += [T.Resize(max(height, width)), T.CenterCrop((height, width))]

    def count(name: str, low: int = 0) -> int | None:
        return _check_count(name, given[name], low)

    return {
        "to": to,
        "transforms": [step._to_dict() for step in steps],
        "image": default if given["encode"] is None else given["encode"],
        "mask": default if given["mask"] is None else given["mask"],
        "restart": _tile(given["restart_index"]),
        "workers": count("jobs", low=1),
        "shuffle": count("shuffle"),
        "shard_bytes": _check.size_bytes(given["shard_size"], "pack", "shard_size"),
        "rows": count("rows", low=1),
        "max_bad": count("max_bad"),
        "verify": _check.flag("pack", "verify", given["verify"]),
    }


def _tile(restart_index: bool | int) -> int | None:
    if restart_index is False:
        return None
    if restart_index is True:
        return _TILE
    return _check.integer("pack", "restart_index", restart_index, low=1)


def _check_count(name: str, value: int | None, low: int = 0) -> int | None:
    """Checks an optional integer that must be below 2**64."""
    if value is None:
        return None
    if _check.integer("pack", name, value, low) >= 2**64:
        raise _check.error("pack", name, "below 2**64", value)
    return int(value)


def _pack_result(path: str, found: dict[str, Any], packed: Pipeline) -> PackResult:
    """Returns the result for the engine's plain data."""
    near = found.pop("fidelity")
    if near is not None:
        # JSON has no infinity, which is the PSNR of equal images.
        near = {k: math.inf if v is None else v for k, v in near.items()}
    return PackResult(
        path=path,
        pipeline=Pipeline._from_dict(found.pop("pipeline"), packed._python),
        fidelity=None if near is None else Fidelity(**near),
        **found,
    )


def print_progress(at: PackProgress) -> None:
    """Prints the progress over the previous line."""
    left = at.seconds_left
    left_text = "" if math.isinf(left) else f"  {left:.0f} s left"
    bad = f"  {at.bad} bad" if at.bad else ""
    print(
        f"\r{at.done}/{at.total} records  {at.rate:.0f}/s{left_text}  "
        f"{at.bytes_in / 1e6:.1f} MB in  {at.bytes_out / 1e6:.1f} MB out{bad}",
        end="\x1b[K",
        file=sys.stderr,
        flush=True,
    )
