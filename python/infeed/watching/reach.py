"""What an infeed pipeline over the same files would reach."""

import math
import os
import time
from collections.abc import Iterable
from typing import Any, Literal

from infeed import _check, sources, transforms
from infeed.errors import ConfigError, ShapeError
from infeed.pipeline import Pipeline
from infeed.watching import loaders
from infeed.watching.figures import Reach
from infeed.watching.load import usable_cores

# The longest run that a report makes by itself.
SECONDS = 5.0


def what_infeed_reaches(pipeline: Pipeline, seconds: float = SECONDS) -> Reach:
    """Runs a pipeline for a while with a consumer that only takes batches.

    It runs alone, so that beside a step that uses the processor it gives less. Stop
    other loaders before.

    Args:
        pipeline: What to run.
        seconds: How long, after the first batch.

    Raises:
        ConfigError: ``pipeline`` is none, or cannot be opened, or gives no batch.
        InfeedError: As iterating over it.
    """
    if not isinstance(pipeline, Pipeline):
        raise _check.refusal("watch", "pipeline", "an infeed.Pipeline", pipeline)
    seconds = float(_check.number("watch", "seconds", seconds, low=0))
    opened = time.perf_counter()
    first: float | None = None
    samples = 0
    last = opened
    # A number that is tuned meanwhile would be a part of what is measured.
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
                    "watch: an epoch of the pipeline gives no batch; its source holds "
                    "fewer records than a batch takes"
                )
    took_s = max(last - (first or opened), 1e-9)
    first_s = (first or opened) - opened
    return Reach(samples / took_s, samples, took_s, first_s, repr(pipeline))


def pipeline_over(files: Any, batch: Any) -> tuple[Pipeline, tuple[str, ...]]:
    """The pipeline over `files` whose batches look like `batch`, and what it is not.

    Args:
        files: A folder of images, or the two folders of images and masks.
        batch: A batch of the loader that is watched; its first images say what size,
            layout and type they should have.

    Raises:
        ConfigError: ``files`` is neither, or the batch shows no size of images.
    """
    source = _source(files)
    for array in loaders.arrays(batch):
        shape = loaders.shape_of(array) or ()
        if len(shape) == 4:
            break
    else:
        raise ConfigError(
            "watch: the batches hold no images of four dimensions, whose size a "
            "pipeline could take over; name the pipeline: watch(loader, pipeline=...)"
        )
    planar = shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4)
    height, width = shape[2:4] if planar else shape[1:3]
    steps: list[transforms.Transform] = [transforms.Resize((height, width))]
    if "float" in str(array.dtype):
        steps.append(transforms.ToFloat())
    layout: Literal["CHW", "HWC"] = "CHW" if planar else "HWC"
    records = Pipeline(source)
    pipeline = records.decode().transform(*steps, layout=layout)
    if isinstance(source, sources.Pairs):
        try:
            pipeline.preview(0)
        except ShapeError:
            # Classes shown as colours, of which only the user has the palette.
            decoded = records.decode(mask="rgb")
            pipeline = decoded.transform(*steps, layout=layout)
    pipeline = pipeline.batch(shape[0])
    note = (
        f"that pipeline decodes and resizes to {height}x{width} px; what else the "
        "loader does to a sample goes into watch(loader, pipeline=...)"
    )
    return pipeline, (note,)


def _source(files: Any) -> sources.Source:
    if isinstance(files, sources.Source):
        return files
    if isinstance(files, str | os.PathLike):
        return sources.Folder(_check.path("watch", "files", files))
    expected = "a folder, or the two folders (images, masks)"
    if not isinstance(files, Iterable):
        raise _check.refusal("watch", "files", expected, files)
    folders = list(files)
    if len(folders) != 2:
        raise _check.refusal("watch", "files", expected, files)
    image, mask = (_check.path("watch", "files", folder) for folder in folders)
    return sources.Pairs(image=image, mask=mask)
