"""Packing: a dataset rewritten once into a form that is cheaper to read."""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from infeed import _check, _core
from infeed import transforms as T
from infeed.pipeline import Pipeline

__all__ = ["Fidelity", "Form", "PackProgress", "Packed", "line", "options_from", "pack"]

Form = Literal["webdataset", "tfrecord", "arrow", "parquet", "npz", "folder", "arrays"]

_FORMS = ("webdataset", "tfrecord", "arrow", "parquet", "npz", "folder", "arrays")

# Width of the tiles of JPEGs with restart markers, in MCUs, where none is asked for.
_TILE = 4


@dataclass(frozen=True)
class PackProgress:
    """How far packing is.

    Attributes:
        done: Records that are done, bad ones included.
        total: Records there are.
        reused: Of those done, how many were complete before this call.
        bad: Of those done, how many are bad and were left out.
        bytes_in: Bytes of the original records that are done.
        bytes_out: Bytes that hold them now.
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
        """Records a second that this call made."""
        return (self.done - self.reused) / max(self.seconds, 1e-9)

    @property
    def left(self) -> float:
        """Seconds that are left at this rate; infinite before the first record."""
        return (self.total - self.done) / self.rate if self.rate > 0 else math.inf


@dataclass(frozen=True)
class Fidelity:
    """How near images are to what they were before they were encoded with loss.

    Attributes:
        images: Images that were compared, spread evenly over the dataset.
        psnr_db: Mean PSNR in decibels.
        least_psnr_db: PSNR of the image that changed most.
        ssim: Mean SSIM; 1 is equal.
        least_ssim: SSIM of the image that changed most.
    """

    images: int
    psnr_db: float
    least_psnr_db: float
    ssim: float
    least_ssim: float


@dataclass(frozen=True)
class Packed:
    """A dataset that was packed.

    Attributes:
        path: Its folder, which `Pipeline.load` takes.
        pipeline: The pipeline that was given, over the packed dataset: what was done
            once is left out.
        records: Records in it.
        bad: Records that were bad and left out; ``infeed-pack-bad.jsonl`` in the folder
            says which and why.
        bytes_in: Bytes of the original records.
        bytes_out: Bytes of the files that hold them now.
        seconds: Time this call took.
        reused: Records that were complete before this call.
        unmarked: JPEGs that were to get restart markers, cannot without loss, and were
            copied.
        fidelity: What a lossy encoding did to the images; None where there was none.
    """

    path: str
    pipeline: Pipeline
    records: int
    bad: int
    bytes_in: int
    bytes_out: int
    seconds: float
    reused: int
    unmarked: int
    fidelity: Fidelity | None


def pack(
    pipeline: Pipeline,
    out: str | os.PathLike[str],
    *,
    to: Form = "webdataset",
    bake: int = 0,
    resize_short: int | None = None,
    fit: int | tuple[int, int] | None = None,
    encode: str = "keep",
    mask: str = "keep",
    restart_index: bool | int = False,
    shuffle: int | None = None,
    shard_size: int | str = "256MB",
    rows: int | None = None,
    max_bad: int | None = None,
    verify: bool = False,
    jobs: int | None = None,
    progress: bool | Callable[[PackProgress], bool | None] = False,
) -> Packed:
    """Rewrites the records of a pipeline's source once, below ``out``.

    The original is never touched. A call that was stopped, killed even, is taken up by
    the same call again, and ends with the same bytes.

    Args:
        pipeline: Whose source is packed, decoded as it says where it must be.
        out: The folder, missing, empty, or of an earlier call with the same options.
            For shards also a URL of a bucket, such as ``"s3://packed/photos"``.
        to: ``"webdataset"``, ``"tfrecord"``, ``"arrow"``, ``"parquet"``: shards.
            ``"npz"``: a compressed NumPy file a batch. ``"folder"``: image files.
            ``"arrays"``: one ``.npy`` a field.
        bake: How many of the pipeline's first transforms are done once, here. They must
            be fixed changes of geometry.
        resize_short: Length that the shorter side of every image gets.
        fit: Size ``(height, width)`` that every image gets: the shorter side is resized
            to the longer of these, and the middle cut out.
        encode: How images are encoded: ``"keep"``, ``"raw"``, ``"jpeg:95"``, ``"png"``,
            ``"png-fast"``, ``"png-stored"``, ``"webp-lossless"`` or
            ``"png:FILTER:LEVEL"``.
        mask: The same for masks; never with loss.
        restart_index: Whether JPEGs get restart markers, without loss; a number is the
            width of a tile in MCUs.
        shuffle: Seed of the order of shards' records: that of the first epoch of a
            pipeline shuffled with it. None: the order of the source.
        shard_size: Bytes at which a shard ends, or a text such as ``"256MB"``.
        rows: Rows of an ``.npz`` file. None: the pipeline's batch.
        max_bad: Bad records that may be left out before the call ends. None: any
            number.
        verify: Whether images that are copied are decoded first, to find those of which
            only the pixels are bad.
        jobs: Threads. None: as many as cores.
        progress: Called a few times a second; False stops. True: a line on the
            standard error.

    Raises:
        ConfigError: The options cannot work, or ``out`` is not of such a call.
        DecodeError: All records are bad; this is the first.
        InterruptedPackError: ``progress`` said stop.
        TooManyBadError: There are more than ``max_bad``.
        WriteError: The disk refused; what was written stays.
    """
    options = options_from(
        pipeline,
        to=to,
        bake=bake,
        resize_short=resize_short,
        fit=fit,
        encode=encode,
        mask=mask,
        restart_index=restart_index,
        shuffle=shuffle,
        shard_size=shard_size,
        rows=rows,
        max_bad=max_bad,
        verify=verify,
        jobs=jobs,
    )
    path = os.fspath(out)
    report = line if progress is True else progress or None
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
    return _packed(path, found, pipeline)


def options_from(
    pipeline: Pipeline,
    *,
    to: Form = "webdataset",
    bake: int = 0,
    resize_short: int | None = None,
    fit: int | tuple[int, int] | None = None,
    encode: str = "keep",
    mask: str = "keep",
    restart_index: bool | int = False,
    shuffle: int | None = None,
    shard_size: int | str = "256MB",
    rows: int | None = None,
    max_bad: int | None = None,
    verify: bool = False,
    jobs: int | None = None,
) -> dict[str, Any]:
    """The arguments of `pack` as the engine takes them.

    Raises:
        ConfigError: One cannot be.
    """
    _check.choice("pack", "to", to, _FORMS)
    bake = _check.integer("pack", "bake", bake)
    if bake > len(pipeline._transforms):
        most = f"at most {len(pipeline._transforms)}, the transforms of the pipeline"
        raise _check.refusal("pack", "bake", most, bake)
    steps: list[T.Transform] = list(pipeline._transforms[:bake])
    if resize_short is not None:
        short = _check.integer("pack", "resize_short", resize_short, low=1)
        steps.append(T.Resize(short))
    if fit is not None:
        sides = _check.sides("pack", "fit", fit)
        height, width = (sides, sides) if isinstance(sides, int) else sides
        steps += [T.Resize(max(height, width)), T.CenterCrop((height, width))]
    return {
        "to": to,
        "transforms": [step._to_dict() for step in steps],
        "image": encode,
        "mask": mask,
        "restart": _tile(restart_index),
        "workers": _counted("jobs", jobs, low=1),
        "shuffle": _counted("shuffle", shuffle),
        "shard_bytes": _check.size_bytes(shard_size, "pack", "shard_size"),
        "rows": _counted("rows", rows, low=1),
        "max_bad": _counted("max_bad", max_bad),
        "verify": _check.flag("pack", "verify", verify),
    }


def _tile(restart_index: bool | int) -> int | None:
    if restart_index is False:
        return None
    if restart_index is True:
        return _TILE
    return _check.integer("pack", "restart_index", restart_index, low=1)


def _counted(name: str, value: int | None, low: int = 0) -> int | None:
    """An integer that the engine can count with, where one is given."""
    if value is None:
        return None
    if _check.integer("pack", name, value, low) >= 2**64:
        raise _check.refusal("pack", name, "below 2**64", value)
    return int(value)


def _packed(path: str, found: dict[str, Any], packed: Pipeline) -> Packed:
    """The result, from plain data."""
    near = found.pop("fidelity")
    if near is not None:
        # JSON has no infinity, the PSNR of equal images.
        near = {k: math.inf if v is None else v for k, v in near.items()}
    return Packed(
        path=path,
        pipeline=Pipeline._from_dict(found.pop("pipeline"), packed._python),
        fidelity=None if near is None else Fidelity(**near),
        **found,
    )


def line(at: PackProgress) -> None:
    """Writes how far it is over the line that said so before."""
    left = "" if math.isinf(at.left) else f"  {at.left:.0f} s left"
    bad = f"  {at.bad} bad" if at.bad else ""
    print(
        f"\r{at.done}/{at.total} records  {at.rate:.0f}/s{left}  "
        f"{at.bytes_in / 1e6:.1f} MB in  {at.bytes_out / 1e6:.1f} MB out{bad}",
        end="\x1b[K",
        file=sys.stderr,
        flush=True,
    )
