"""infeed in PyTorch: batches as tensors, and infeed's order for another loader."""

import collections
import logging
import os
from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.distributed
import torch.utils.data

from infeed import _check
from infeed._feed import Feed, rank_within
from infeed.batch import Batch
from infeed.errors import ConfigError, LoaderError
from infeed.loader import Loader as EngineLoader
from infeed.pipeline import Pipeline
from infeed.watching.load import usable_cores

__all__ = ["Loader"]

logger = logging.getLogger("infeed.torch")

_FORMS = ("dict", "tuple", "named")


class Loader(Feed, torch.utils.data.IterableDataset):
    """The batches of a pipeline as tensors, which share its memory without a copy.

    Takes the place of a DataLoader::

        loader = infeed.torch.Loader(pipeline)
        for epoch in range(90):
            for batch in loader:
                loss = model(batch["image"].to("cuda"))

    One object is the whole adapter, because every framework on top of PyTorch asks for
    the same few methods: ``len``, `set_epoch`, and `state_dict` with `load_state_dict`,
    which torchdata, Lightning, Accelerate and distributed checkpoints save and load by
    themselves or once it is registered. It is an ``IterableDataset`` as well, for
    ``torch.utils.data.DataLoader(loader, batch_size=None)``, whose workers it does not
    need and refuses.

    It takes a pipeline rather than an open loader, since which rank this process is may
    be known only later: the pipeline is opened when the first batch, the length or the
    state is asked for.

    Each ``for`` is the next epoch; a ``for`` that begins while another one is in the
    middle of an epoch ends that epoch, as leaving it with ``break`` does.

    A tensor stays valid while it is held, and its batch's memory with it.

    Args:
        pipeline: What to read.
        form: What a batch is: ``"dict"`` of tensors by field name; ``"tuple"`` in field
            order; ``"named"``, a tuple with names. Ragged fields are (values, offsets);
            bytes and text are lists.
        rank: Number of this process among those that train together. None: that of
            ``torch.distributed`` if its process group is there, else what ``torchrun``
            says in RANK, else 0.
        world_size: How many those are; as ``rank``.
        **options: As for `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is not one of the above.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        form: Literal["dict", "tuple", "named"] = "dict",
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ):
        super().__init__(pipeline, options)
        self._form = _check.choice("Loader", "form", form, _FORMS)
        self._named: Any = None
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of one whose state was loaded.

        Raises:
            LoaderError: It is called in a worker process of a DataLoader.
        """
        if torch.utils.data.get_worker_info() is not None:
            raise LoaderError(
                "infeed.torch.Loader in a worker of a DataLoader: each worker would "
                "give all batches; use num_workers=0, the work is done by its threads"
            )
        return self._begin(self._converted)

    def _converted(self, batch: Batch) -> Any:
        fields = {name: _tensors(column) for name, column in batch.columns()}
        if self._form == "dict":
            return fields
        if self._form == "tuple":
            return tuple(fields.values())
        if self._named is None:
            self._named = _named(tuple(fields))
        return self._named(**fields)

    def _place(self) -> tuple[int, int]:
        return rank_within(self, self._rank, self._world_size, process_rank())

    def _told(self, loader: EngineLoader) -> None:
        _warn_of_threads(loader.stats()["workers"])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_named": None}


def process_rank() -> tuple[int, int]:
    """Rank and world size of this process, of the process group or as torchrun says."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return 0, 1
    try:
        return int(rank), int(world_size)
    except ValueError:
        raise ConfigError(
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} are no numbers; mend the "
            "environment, or give rank and world_size"
        ) from None


def _tensors(column: Any) -> Any:
    """A column over the same memory: arrays as tensors, lists as they are."""
    if isinstance(column, list):
        return column
    if isinstance(column, tuple):
        return tuple(torch.from_dlpack(part) for part in column)
    return torch.from_dlpack(column)


def _named(fields: tuple[str, ...]) -> Any:
    """A class of named tuples of these fields."""
    try:
        return collections.namedtuple("Batch", fields)
    except ValueError as error:
        raise ConfigError(f'Loader: form="named": {error}; use form="dict"') from None


_warned = False


def _warn_of_threads(workers: int) -> None:
    """Says once when PyTorch's pool and infeed's workers are more than the cores.

    Where there is an accelerator PyTorch's pool has little to do, and nothing is said.
    """
    global _warned
    threads, cores = torch.get_num_threads(), usable_cores()
    if _warned or threads + workers <= cores or torch.accelerator.is_available():
        return
    _warned = True
    logger.warning(
        "PyTorch computes with %d threads and infeed prepares with %d on %g cores, so "
        "they slow each other; try torch.set_num_threads(n) and open with workers=m, n "
        "+ m = %g, and see which gives the shorter epoch",
        threads,
        workers,
        cores,
        max(cores, 2),
    )
