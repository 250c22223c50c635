"""The throughput of an infeed pipeline, measured next to a watched loader."""

import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from infeed import _check, sources, transforms
from infeed.errors import ConfigError, ShapeError
from infeed.pipeline import Pipeline
from infeed.watching import loaders
from infeed.watching.figures import Throughput
from infeed.watching.processor import usable_cores

# Default duration of the measurement, in seconds.
SECONDS = 5.0


def measure_throughput(pipeline: Pipeline, seconds: float = SECONDS) -> Throughput:
    """Measures a pipeline's throughput with a consumer that only takes batches.

    The pipeline runs alone, so it is slower next to a step that uses the processor.
    Stop other loaders first.

    Args:
        pipeline: The pipeline.
        seconds: Duration of the measurement after the first batch.

    Raises:
        ConfigError: ``pipeline`` is not a pipeline, cannot be opened, or has no batch.
        InfeedError: As in a loop over the pipeline.
    """
    if not isinstance(pipeline, Pipeline):
        raise _check.error("watch", "pipeline", "an infeed.Pipeline", pipeline)
    seconds = float(_check.number("watch", "seconds", seconds, low=0))
    opened = time.perf_counter()
    first: float | None = None
    samples = 0
    last = opened
    # Tuning of the number of workers would distort the measurement.
    cores = max(1, math.ceil(usable_cores()))
    with pipeline.open(workers=cores) as loader:
        while first is None or last - first < seconds:
            before = samples, first
            for batch in loader:
                last = time.perf_counter()
                if first is None:
                    first = last
                    continue
                samples += batch.rows
                if last - first >= seconds:
                    break
            if before == (samples, first):
                raise ConfigError(
                    "watch: the pipeline has no batch; its source has fewer records "
                    "than one batch"
                )
    took_s = max(last - (first or opened), 1e-9)
    first_s = (first or opened) - opened
    return Throughput(samples / took_s, samples, took_s, first_s, repr(pipeline))


@dataclass(frozen=True)
class BatchImages:
    """Shape and type of the images of a batch.

    Attributes:
        shape: Their four dimensions.
        is_float: Whether values are floats.
    """

    shape: tuple[int, ...]
    is_float: bool


def images_of(batch: Any) -> BatchImages | None:
    """Returns shape and type of the first images of a batch; None without images."""
    for array in loaders.arrays(batch):
        shape = loaders.shape_of(array) or ()
        if len(shape) == 4:
            return BatchImages(shape, "float" in str(array.dtype))
    return None


def pipeline_over(
    files: Any, images: BatchImages | None
) -> tuple[Pipeline, tuple[str, ...]]:
    """Returns a pipeline over `files` with batches of images, and its differences.

    Args:
        files: A folder of images, or the two folders of images and masks.
        images: Images of the watched loader, which determine size, layout and type.

    Raises:
        ConfigError: ``files`` has another type, or there are no images.
    """
    source = _source(files)
    if images is None:
        raise ConfigError(
            "watch: the batches have no images of four dimensions, from which a "
            "pipeline could follow; set one with watch(loader, pipeline=...)"
        )
    shape = images.shape
    planar = shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4)
    height, width = shape[2:4] if planar else shape[1:3]
    steps: list[transforms.Transform] = [transforms.Resize((height, width))]
    if images.is_float:
        steps.append(transforms.ToFloat())
    layout: Literal["CHW", "HWC"] = "CHW" if planar else "HWC"
    records = Pipeline(source)
    pipeline = records.decode().transform(*steps, layout=layout)
    if isinstance(source, sources.Pairs):
        try:
            pipeline.preview(0)
        except ShapeError:
            # A mask of colours, whose palette only the user knows.
            decoded = records.decode(mask="rgb")
            pipeline = decoded.transform(*steps, layout=layout)
    pipeline = pipeline.batch(shape[0])
    note = (
        f"that pipeline only decodes and resizes to {height}x{width} px; to include "
        "the loader's other work use watch(loader, pipeline=...)"
    )
    return pipeline, (note,)


def _source(files: Any) -> sources.Source:
    if isinstance(files, sources.Source):
        return files
    if isinstance(files, str | os.PathLike):
        return sources.Folder(_check.path("watch", "files", files))
    expected = "a folder, or the two folders (images, masks)"
    if not isinstance(files, Iterable):
        raise _check.error("watch", "files", expected, files)
    folders = list(files)
    if len(folders) != 2:
        raise _check.error("watch", "files", expected, files)
    image, mask = (_check.path("watch", "files", folder) for folder in folders)
    return sources.Pairs(image=image, mask=mask)
