"""Ray Data: pipelines and sources as Ray datasets, and Ray datasets as sources."""

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

# Name of the file that `source` writes.
_FILE = "blocks.arrow"


def read(
    source: Pipeline | sources.Source,
    *,
    parallelism: int | None = None,
    on_error: Literal["stop", "substitute", "skip"] = "stop",
    ids: bool = False,
    cpus: float = 1,
) -> "ray.data.Dataset":
    """Reads a pipeline or a source as a Ray Data dataset.

        photos = infeed.ray.read(sources.WebDataset("s3://bucket/{0000..0099}.tar"))
        decoded = infeed.ray.read(pipeline)

    A source yields its stored records: encoded images and bytes as binary, text as
    string, numbers as numbers, lists of any length as lists, and arrays of one shape as
    Arrow's fixed-shape tensors. A pipeline yields the rows of its first epoch: decoded,
    transformed, and shuffled with its seed. Both keep their order, because
    ``execution_options.preserve_order`` of the dataset's context is set; you may unset
    it.

    Each task opens the source on its machine and reads a range of it, so paths and URLs
    must be the same on all machines. Data in the memory of this process is copied once
    to Ray's object store, and read from there.

    Args:
        source: The pipeline or source.
        parallelism: Lowest number of tasks. None: Ray Data's choice.
        on_error: Treatment of bad records, as in `Pipeline.open`.
        ids: Whether to add columns ``record`` and ``name`` that identify the record.
        cpus: CPUs that a task requests from Ray, and its number of decoding threads, at
            least one.

    Raises:
        ConfigError: A field has no fixed shape, or a type that Arrow does not have; or
            as in `Pipeline.open`.
        OpenError: The data cannot be listed.
    """
    _import_ray_data("read")
    from infeed.ray.reading import InfeedDatasource

    datasource = InfeedDatasource(source, on_error=on_error, ids=ids, cpus=cpus)
    if parallelism is not None:
        parallelism = _check.integer("read", "parallelism", parallelism, low=1)
    dataset = ray.data.read_datasource(
        datasource,
        override_num_blocks=parallelism,
        ray_remote_args={"num_cpus": cpus},
    )
    # Without this, blocks come in the order in which tasks end.
    dataset.context.execution_options.preserve_order = True
    return dataset


def source(
    dataset: "ray.data.Dataset",
    *,
    folder: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
) -> sources.Arrow:
    """Makes a source of a Ray Data dataset.

        rows = ray.data.read_parquet("s3://bucket/rows").map(clean)
        pipeline = infeed.Pipeline(infeed.ray.source(rows)).decode().batch(64)

    Training needs the rows in another order in each epoch, which a stream of blocks
    does not offer. So this call runs the dataset once, and writes its blocks in order
    to one Arrow file on a local disk, which is mapped. One block is in memory at a
    time, and the disk holds all of them. Ray's own blocks are in its object store, as
    for any dataset.

    The kinds of columns are those of `sources.Arrow`. Ray Data's tensors are written as
    Arrow's fixed-shape tensors.

    Args:
        dataset: The dataset, run in the order of its blocks.
        folder: Folder for the file ``blocks.arrow``, which stays and can be opened with
            `sources.Arrow` later. None: a temporary folder, removed with the source.
        fields: As in `sources.Arrow`.

    Raises:
        ConfigError: The dataset has no rows, an Arrow file cannot hold a column, or the
            folder already has such a file.
        OSError: The file cannot be written.
    """
    _import_ray_data("source")
    from infeed.ray import blocks

    if folder is not None and (Path(folder) / _FILE).exists():
        raise ConfigError(
            f"source: {Path(folder) / _FILE} exists already; open it with "
            "sources.Arrow, or choose another folder"
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
        # A mapped file stays readable after its removal.
        weakref.finalize(made, _remove, place, os.getpid())
    return made


def _remove(place: Path, owner: int) -> None:
    # A forked child must not remove its parent's files.
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


def _import_ray_data(name: str) -> None:
    """Imports Ray Data, or explains that it is not installed."""
    try:
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ImportError(
            f"infeed.ray.{name} needs Ray Data, which is not installed: "
            "pip install 'infeed[ray]'"
        ) from error
