"""Ray Data: infeed's sources and pipelines as its datasets, and its own as sources."""

import importlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import ray

from infeed import _check, sources
from infeed._fields import Fields
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

if TYPE_CHECKING:
    import ray.data

__all__ = ["read", "source"]

# The file of `source`, in its folder.
_FILE = "blocks.arrow"


def read(
    source: Pipeline | sources.Source,
    *,
    parallelism: int | None = None,
    on_error: Literal["stop", "substitute", "skip"] = "stop",
    ids: bool = False,
    cpus: float = 1,
) -> "ray.data.Dataset":
    """Reads a pipeline or a source as a dataset of Ray Data.

    ::

        photos = infeed.ray.read(sources.WebDataset("s3://bucket/{0000..0099}.tar"))
        decoded = infeed.ray.read(pipeline)

    A source gives its records as they are: encoded images and bytes as binary, text as
    string, numbers as numbers, lists of any length as lists, and arrays of one shape as
    Arrow's canonical fixed-shape tensors. A pipeline gives what its first epoch would
    deliver: decoded, transformed, shuffled with its seed. Either keeps its order: Ray
    Data is asked for it (``execution_options.preserve_order`` of the dataset's context,
    which may be taken back).

    Each task opens the source on its machine and reads a range of it, so paths and URLs
    must mean the same on all. What lies in the memory of this process is put into Ray's
    object store, once, and read from there.

    Args:
        source: The pipeline, or the source.
        parallelism: Tasks at least. None: as Ray Data sees fit.
        on_error: What a bad record does, as for `Pipeline.open`.
        ids: Whether columns ``record`` and ``name`` say which record a row is.
        cpus: What a task asks of Ray, and how many threads decode in it, at least one.

    Raises:
        ConfigError: A field has no one shape, or a type that Arrow has not; or as
            `Pipeline.open`.
        OpenError: The data cannot be listed.
    """
    _has_data("read")
    from infeed.ray.reading import InfeedDatasource

    datasource = InfeedDatasource(source, on_error=on_error, ids=ids, cpus=cpus)
    if parallelism is not None:
        parallelism = _check.integer("read", "parallelism", parallelism, low=1)
    dataset = ray.data.read_datasource(
        datasource,
        override_num_blocks=parallelism,
        ray_remote_args={"num_cpus": cpus},
    )
    # Else blocks come as their tasks end.
    dataset.context.execution_options.preserve_order = True
    return dataset


def source(
    dataset: "ray.data.Dataset",
    *,
    folder: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
) -> sources.Arrow:
    """Makes a source of a dataset of Ray Data.

    ::

        rows = ray.data.read_parquet("s3://bucket/rows").map(clean)
        pipeline = infeed.Pipeline(infeed.ray.source(rows)).decode().batch(64)

    Training asks for rows again and in another order each epoch, which a stream of
    blocks cannot give. So the dataset is run once, here and now, and its blocks, in
    their order, are written to one Arrow file on this machine's disk, which is mapped:
    one block is in memory at a time, and the disk holds all of it. What Ray itself
    holds while it runs is in its object store, as of any dataset.

    What a column becomes is as for `sources.Arrow`. Tensors of Ray Data are written as
    Arrow's own, of one shape.

    Args:
        dataset: The dataset. It is run as it is iterated over, in the order of its
            blocks.
        folder: Where the file is written, and stays, as ``blocks.arrow``, which
            `sources.Arrow` opens another time. None: a temporary folder, removed with
            the source.
        fields: As for `sources.Arrow`.

    Raises:
        ConfigError: The dataset has no rows, a column is nothing that a file can hold,
            or the folder has such a file.
        OSError: The disk refused.
    """
    _has_data("source")
    from infeed.ray import blocks

    if folder is not None and (Path(folder) / _FILE).exists():
        raise ConfigError(
            f"source: {Path(folder) / _FILE} is there already; open it with "
            "sources.Arrow, or name another folder"
        )
    place = Path(tempfile.mkdtemp(prefix="infeed-ray-") if folder is None else folder)
    place.mkdir(parents=True, exist_ok=True)
    part = place / f".{_FILE}.part"
    try:
        blocks.write(part, dataset)
        part.rename(place / _FILE)
        made = sources.Arrow(os.path.abspath(place / _FILE), fields)
    except BaseException:
        part.unlink(missing_ok=True)
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    if folder is None:
        # What is mapped stays readable for those that have it open.
        weakref.finalize(made, _remove, place, os.getpid())
    return made


def _remove(place: Path, owner: int) -> None:
    # A fork that ends leaves what is its parent's.
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


def _has_data(name: str) -> None:
    """Refuses a Ray without Ray Data, which takes long to import."""
    try:
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ImportError(
            f"infeed.ray.{name} needs Ray Data, which is not installed: "
            "pip install 'infeed[ray]'"
        ) from error
