"""infeed for PyTorch: batches as tensors, and infeed's order for other loaders."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed
import torch.utils.data

from infeed import _check, _core
from infeed._adapter import AdapterLoader, BatchType, rank_within
from infeed._torch_tensors import tensor_of
from infeed.batch import Batch
from infeed.errors import ConfigError, IteratorError, LoaderError
from infeed.loader import BatchInfo
from infeed.loader import Loader as EngineLoader
from infeed.pipeline import Pipeline
from infeed.watching.processor import usable_cores

__all__ = ["Loader", "Sampler"]

logger = logging.getLogger("infeed.torch")


class Loader(AdapterLoader, torch.utils.data.IterableDataset):
    """The batches of a pipeline as tensors.

    It replaces a DataLoader:

        loader = infeed.torch.Loader(pipeline)
        for epoch in range(90):
            for batch in loader:
                loss = model(batch["image"].to("cuda"))

    With ``device="cuda"`` the tensors are on the GPU, copied ahead of the step. Work in
    the current stream waits for the copy. With ``devices=["cuda:0", "cuda:1"]`` each
    step returns a tuple with one batch per GPU.

    Frameworks on top of PyTorch use the same few methods: ``len``, `set_epoch`,
    `state_dict` and `load_state_dict`. torchdata, Lightning, Accelerate and distributed
    checkpoints call the last two, some after the loader was registered. The loader is
    also an ``IterableDataset`` for ``torch.utils.data.DataLoader(loader,
    batch_size=None)``. Worker processes of a DataLoader raise an error.

    The loader opens the pipeline at the first batch, length or state, because the rank
    of the process may be unknown before.

    Each ``for`` loop is the next epoch. If another loop is in the middle of an epoch,
    that epoch ends, as after ``break``.

    On the host, tensors share the memory of the batch without a copy. On a GPU, they
    are copies in memory of PyTorch, made in the current stream: PyTorch silently
    ignores ``record_stream`` on other memory, so a prefetcher that reads batches in a
    second stream would lose them. The copy is one pass over the batch on the GPU, and
    frees the loader's memory before the step. A tensor stays valid as long as the
    program holds it.

    Args:
        pipeline: The pipeline.
        batch_type: Type of a batch: ``"dict"`` of tensors by field name; ``"tuple"`` in
            field order; ``"named"``, a named tuple. Ragged fields are (values,
            offsets); bytes and text are lists.
        own: Whether tensors are copies in memory of PyTorch. False: they share the
            memory of the batch; where another stream than the current one reads them,
            ``wait_stream`` is needed before they are dropped. None: copies on a GPU.
        rank: Number of this process among the training processes. None: that of the
            ``torch.distributed`` process group if it exists, else the environment
            variable RANK that ``torchrun`` sets, else 0.
        world_size: Number of training processes, as for ``rank``.
        **options: As in `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        batch_type: Literal["dict", "tuple", "named"] = "dict",
        *,
        own: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ):
        super().__init__(pipeline, options)
        self._batch_type = BatchType(self, batch_type)
        self._own = own if own is None else _check.flag("Loader", "own", own)
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of a resumed one.

        Raises:
            LoaderError: The process is a worker of a DataLoader.
        """
        if torch.utils.data.get_worker_info() is not None:
            raise LoaderError(
                "infeed.torch.Loader in a worker of a DataLoader: each worker would "
                "deliver all batches; use num_workers=0, infeed has its own threads"
            )
        return self._begin(self._convert_batch)

    def next_into(
        self, tensors: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]
    ) -> BatchInfo:
        """Copies fields of the next batch into tensors, in the current stream.

        See `infeed.Loader.next_into`. Use it where the input must stay at one address,
        such as with a captured graph or ``torch.compile(mode="reduce-overhead")``. With
        ``devices``, pass a list of mappings; each device uses its current stream. A
        running ``for`` loop ends.
        """
        running = self._loop()
        if running is not None:
            running.end()
        return self.loader.next_into(tensors)

    def _convert_batch(self, batch: Batch | tuple[Batch, ...]) -> Any:
        if isinstance(batch, tuple):
            return tuple(self._convert_batch(part) for part in batch)
        own = self._own
        return self._batch_type({name: _tensors(c, own) for name, c in batch.columns()})

    def _find_rank(self) -> tuple[int, int]:
        return rank_within(self, self._rank, self._world_size, process_rank())

    def _resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        # In PyTorch "cuda" means the GPU that this process has chosen.
        if options.get("device") == "cuda" and torch.cuda.is_available():
            return options | {"device": f"cuda:{torch.cuda.current_device()}"}
        return options

    def _after_open(self, loader: EngineLoader) -> None:
        stats = loader.stats()
        _warn_of_threads(stats["workers"])
        names = [device["name"] for device in stats["devices"]]
        if not names or not all(name.startswith("cuda") for name in names):
            return
        if self._options.get("devices") is not None:
            loader._stream = lambda: [torch.cuda.current_stream(n) for n in names]
        else:
            loader._stream = lambda: torch.cuda.current_stream(names[0])


class Sampler(torch.utils.data.Sampler):
    """infeed's order of records, for a DataLoader over another dataset.

        sampler = infeed.torch.Sampler(len(dataset), batch=256, seed=0)
        loader = DataLoader(dataset, sampler.per_rank, sampler=sampler, num_workers=8)

    Order, and division among ranks, are those of ``.shuffle(seed).batch(batch)`` over
    the same number of records. Each ``for`` loop is the next epoch, without a call of
    `set_epoch`.

    The state counts the records that were yielded. torchdata's StatefulDataLoader saves
    it with each batch. PyTorch's own DataLoader takes records ahead of its batches, so
    use `state_at` with the number of steps instead. Configure trainers that replace the
    sampler not to do so (Lightning: ``use_distributed_sampler=False``).

    Args:
        records: Number of records in the dataset.
        batch: Samples per step over all ranks together.
        seed: Seed of the shuffle. None: no shuffle.
        drop_last: Whether to drop a last batch that is not full.
        tail: Treatment of a last batch that is not full, as in `Pipeline.batch`:
            ``"keep"``, ``"drop"`` or ``"wrap"``. ``"pad"`` is not possible, because a
            sampler yields records only.
        rank: As in `Loader`.
        world_size: As in `Loader`.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        records: int,
        batch: int,
        seed: int | None = None,
        *,
        drop_last: bool = False,
        tail: Literal["keep", "drop", "wrap"] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        self._records = _check.integer("Sampler", "records", records, low=1)
        self._batch = _check.integer("Sampler", "batch", batch, low=1)
        if seed is not None and _check.integer("Sampler", "seed", seed) >= 2**64:
            raise _check.error("Sampler", "seed", "below 2**64", seed)
        self._seed = seed
        self._tail = _tail(_check.flag("Sampler", "drop_last", drop_last), tail)
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size
        self._epoch = self._handed = 0
        self._running_epoch: object = None
        # Whether the next loop repeats the epoch that has begun.
        self._again = False

    def __iter__(self) -> Iterator[int]:
        """Yields the records of this rank in the next epoch, or the rest of one.

        Raises:
            ConfigError: The ranks cannot share a batch evenly.
        """
        rank, _ = self._rank_and_size()
        if self._running_epoch is not None:
            # The last epoch has ended, or this loop begins it again.
            again = self._again and self._handed < len(self)
            self._epoch, self._handed = self._epoch + (not again), 0
        self._again = False
        self._running_epoch = running = object()
        rows, epoch = self.per_rank, self._epoch
        # A resumed epoch begins with a whole batch.
        first = self._handed // rows
        self._handed = first * rows
        for step in range(first, self._steps):
            begin = step * self._batch + rank * rows
            for record in self._between(epoch, begin, begin + rows):
                self._handed += 1
                yield record
                if self._running_epoch is not running:
                    raise IteratorError(
                        "another loop over this sampler has begun, or a state was "
                        "loaded; make one sampler for each loop"
                    )

    def __len__(self) -> int:
        """Returns the number of records of this rank in a whole epoch."""
        if self._tail != "keep":
            return self._steps * self.per_rank
        # Only a single rank can have a short last batch.
        full, tail = divmod(self._records, self._batch)
        return full * self.per_rank + tail

    @property
    def per_rank(self) -> int:
        """Samples per step on this rank: the batch size for its DataLoader."""
        return self._batch // self._rank_and_size()[1]

    @property
    def epoch(self) -> int:
        """Number of the current epoch, or of the next one between epochs, from 0."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for`` loop; no effect if it comes next anyway.

        A loop that is in that epoch may continue, because trainers begin it first.
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        self._again = epoch == self.epoch
        if not self._again:
            self._epoch, self._handed, self._running_epoch = epoch, 0, None

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Returns the state before a step of an epoch, for `load_state_dict`."""
        epoch = _check.integer("state_at", "epoch", epoch)
        step = _check.integer("state_at", "step", step)
        if step > self._steps:
            raise _check.error("state_at", "step", f"at most {self._steps}", step)
        if step == self._steps:
            epoch, step = epoch + 1, 0
        state = {
            "order": _core.ORDER,
            "seed": self._seed,
            "records": self._records,
            "batch": self._batch,
            "drop_last": self._tail == "drop",
            "epoch": epoch,
            "position": step * self._batch,
        }
        return state | ({"tail": "wrap"} if self._tail == "wrap" else {})

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, which does not depend on rank and world size."""
        over = self._handed == len(self)
        step = self._steps if over else self._handed // self.per_rank
        return self.state_at(self._epoch, step)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resumes: the next ``for`` loop yields the rest of the state's epoch.

        Raises:
            ConfigError: The state has another order; the message names the differences.
        """
        own = {"tail": None} | self.state_at(0, 0)
        state_dict = {"tail": None} | _check.state("load_state_dict", state_dict)
        if set(state_dict) != set(own):
            raise ConfigError(
                "load_state_dict: state_dict must be the result of Sampler.state_dict()"
            )
        differs = [
            f"{name} is {own[name]}, was {_check.display(state_dict[name])}"
            for name in own
            if name not in ("epoch", "position") and own[name] != state_dict[name]
        ]
        if differs:
            raise ConfigError(
                f"load_state_dict: the state has another order ({'; '.join(differs)}); "
                "make the sampler with the arguments of the saved run"
            )
        position = _check.integer("state", "position", state_dict["position"])
        step, within = divmod(position, self._batch)
        if within or step >= self._steps:
            raise _check.error("state", "position", "the start of a batch", position)
        self._epoch = _check.integer("state", "epoch", state_dict["epoch"])
        self._handed, self._running_epoch = step * self.per_rank, None
        self._again = False

    @property
    def _steps(self) -> int:
        full, tail = divmod(self._records, self._batch)
        return full + (tail > 0 and self._tail != "drop")

    def _between(self, epoch: int, begin: int, end: int) -> Iterator[int]:
        """Yields the records at positions of an epoch, from 0 again beyond its end."""
        count = self._records
        last = end if self._tail == "wrap" else min(end, count)
        while begin < last:
            start = begin % count
            stop = min(start + last - begin, count)
            yield from _core.order(count, self._seed, epoch, start, stop)
            begin += stop - start

    def _rank_and_size(self) -> tuple[int, int]:
        """Returns rank and world size, after checking that they divide each batch."""
        found = process_rank()
        rank, world_size = rank_within(self, self._rank, self._world_size, found)
        if self._batch % world_size:
            raise ConfigError(
                f"Sampler: batch={self._batch} is not divisible by {world_size} ranks; "
                f"use a multiple of {world_size}"
            )
        uneven = self._records % self._batch and self._tail == "keep"
        if world_size > 1 and uneven:
            raise ConfigError(
                f"Sampler: {world_size} ranks cannot share the last batch of "
                f"{self._records} records in batches of {self._batch}; use "
                'drop_last=True or tail="wrap"'
            )
        return rank, world_size


def _tail(drop_last: bool, tail: str | None) -> str:
    """Returns the treatment of the last batch, from either argument.

    Raises:
        ConfigError: It is padding, or the arguments contradict each other.
    """
    if tail is None:
        return "drop" if drop_last else "keep"
    if tail == "pad":
        raise ConfigError(
            'Sampler: tail="pad" is not possible, because a sampler yields records '
            'only; use tail="wrap" or "drop"'
        )
    _check.choice("Sampler", "tail", tail, ("keep", "drop", "wrap"))
    if drop_last and tail != "drop":
        raise ConfigError(
            f'Sampler: drop_last drops the last batch and tail="{tail}" does not; set '
            "one of them"
        )
    return tail


def process_rank() -> tuple[int, int]:
    """Returns rank and world size of the process group, or of torchrun's variables."""
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
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} are not numbers; correct the "
            "environment variables, or set rank and world_size"
        ) from None


def _tensors(column: Any, own: bool | None) -> Any:
    """Converts a column: arrays to tensors, lists unchanged."""
    if isinstance(column, list):
        return column
    if isinstance(column, tuple):
        return tuple(tensor_of(part, own) for part in column)
    return tensor_of(column, own)


_warned = False


def _warn_of_threads(workers: int) -> None:
    """Logs once if PyTorch's threads and infeed's workers exceed the cores.

    With an accelerator PyTorch's threads have little work, and nothing is logged.
    """
    global _warned
    threads, cores = torch.get_num_threads(), usable_cores()
    # A single thread is the loop's own, which waits while the workers are behind.
    fit = threads < 2 or threads + workers <= cores
    if _warned or fit or torch.accelerator.is_available():
        return
    _warned = True
    logger.warning(
        "PyTorch computes with %d threads and infeed prepares with %d on %g cores, so "
        "they slow each other down; try torch.set_num_threads(n) and workers=m for "
        "infeed, n + m = %g, and keep the values with the shortest epoch",
        threads,
        workers,
        cores,
        max(cores, 2),
    )
