"""infeed in PyTorch: batches as tensors, and infeed's order for another loader."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed
import torch.utils.data

from infeed import _check, _core
from infeed._feed import Feed, Form, rank_within
from infeed.batch import Batch
from infeed.errors import ConfigError, IteratorError, LoaderError
from infeed.loader import Filled
from infeed.loader import Loader as EngineLoader
from infeed.pipeline import Pipeline
from infeed.watching.load import usable_cores

__all__ = ["Loader", "Sampler"]

logger = logging.getLogger("infeed.torch")


class Loader(Feed, torch.utils.data.IterableDataset):
    """The batches of a pipeline as tensors, which share its memory without a copy.

    Takes the place of a DataLoader::

        loader = infeed.torch.Loader(pipeline)
        for epoch in range(90):
            for batch in loader:
                loss = model(batch["image"].to("cuda"))

    With ``device="cuda"`` the tensors are on the card already, sent ahead of the step
    and ordered before what the current stream does with them. With ``devices=["cuda:0",
    "cuda:1"]`` a step is a tuple of what a batch is, one for each card.

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
        self._form = Form(self, form)
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

    def next_into(
        self, tensors: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]
    ) -> Filled:
        """Copies fields of the next batch into tensors, in the current stream.

        As `infeed.Loader.next_into`: for a captured graph, or what
        ``torch.compile(mode="reduce-overhead")`` made, which find their input where it
        was. Of several ``devices``, for each of them tensors that are there, in its
        current stream. A ``for`` that runs is ended.
        """
        running = self._loop()
        if running is not None:
            running.end()
        return self.loader.next_into(tensors)

    def _converted(self, batch: Batch | tuple[Batch, ...]) -> Any:
        if isinstance(batch, tuple):
            return tuple(self._converted(part) for part in batch)
        return self._form({name: _tensors(column) for name, column in batch.columns()})

    def _place(self) -> tuple[int, int]:
        return rank_within(self, self._rank, self._world_size, process_rank())

    def _settled(self, options: dict[str, Any]) -> dict[str, Any]:
        # As PyTorch means it: the card that this process chose, as ranks do.
        if options.get("device") == "cuda" and torch.cuda.is_available():
            return options | {"device": f"cuda:{torch.cuda.current_device()}"}
        return options

    def _told(self, loader: EngineLoader) -> None:
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
    """infeed's order, for a DataLoader over a dataset of one's own.

    ::

        sampler = infeed.torch.Sampler(len(dataset), batch=256, seed=0)
        loader = DataLoader(dataset, sampler.per_rank, sampler=sampler, num_workers=8)

    The records, and how ranks share them, are those of ``.shuffle(seed).batch(batch)``
    over as many records. Each ``for`` is the next epoch; no `set_epoch` is needed.

    The state counts the records that were handed out. torchdata's StatefulDataLoader
    saves it with each batch; PyTorch's own DataLoader asks for records ahead of its
    batches, so with it take `at` the number of steps instead. Trainers that put in a
    sampler of their own must be told not to (Lightning: ``use_distributed_sampler``).

    Args:
        records: Number of records of the dataset.
        batch: Samples of one step over all ranks together.
        seed: Of the shuffle. None: the records as they are.
        drop_last: Whether samples that do not fill a last batch are left out.
        tail: What becomes of a last batch that is not full, as in `Pipeline.batch`:
            ``"keep"``, ``"drop"`` or ``"wrap"``. There is no record to hand out for
            padding.
        rank: As for `Loader`.
        world_size: As for `Loader`.

    Raises:
        ConfigError: An argument is not one of the above.
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
            raise _check.refusal("Sampler", "seed", "below 2**64", seed)
        self._seed = seed
        self._tail = _tail(_check.flag("Sampler", "drop_last", drop_last), tail)
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size
        self._epoch = self._handed = 0
        self._running: object = None
        # Whether the next loop is over the epoch of the one that has begun.
        self._again = False

    def __iter__(self) -> Iterator[int]:
        """The records of this rank in the next epoch, or in the rest of a resumed one.

        Raises:
            ConfigError: The ranks do not share a batch evenly.
        """
        rank, _ = self._shared()
        if self._running is not None:
            # The last epoch is over, or was left; or it is to be this one again.
            again = self._again and self._handed < len(self)
            self._epoch, self._handed = self._epoch + (not again), 0
        self._again = False
        self._running = running = object()
        rows, epoch = self.per_rank, self._epoch
        # A resumed epoch begins with a batch, whatever was handed out of it.
        first = self._handed // rows
        self._handed = first * rows
        for step in range(first, self._steps):
            begin = step * self._batch + rank * rows
            for record in self._between(epoch, begin, begin + rows):
                self._handed += 1
                yield record
                if self._running is not running:
                    raise IteratorError(
                        "another loop over this sampler has begun, or its state was "
                        "loaded; make one sampler for each loop"
                    )

    def __len__(self) -> int:
        """Records of this rank in a whole epoch."""
        if self._tail != "keep":
            return self._steps * self.per_rank
        # A tail that is short exists on a single rank only.
        full, tail = divmod(self._records, self._batch)
        return full * self.per_rank + tail

    @property
    def per_rank(self) -> int:
        """Samples of one step on this rank: the batch size of its DataLoader."""
        return self._batch // self._shared()[1]

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or else of the next one, from 0."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Makes the next ``for`` the epoch of that number; nothing where it is that.

        A loop that has begun in that epoch may go on: trainers begin it first.
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        self._again = epoch == self.epoch
        if not self._again:
            self._epoch, self._handed, self._running = epoch, 0, None

    def at(self, epoch: int, step: int) -> dict[str, Any]:
        """The state after so many steps of an epoch, for `load_state_dict`."""
        epoch = _check.integer("at", "epoch", epoch)
        step = _check.integer("at", "step", step)
        if step > self._steps:
            raise _check.refusal("at", "step", f"at most {self._steps}", step)
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
        """Where it is: equal on all ranks, and for any number of them."""
        over = self._handed == len(self)
        step = self._steps if over else self._handed // self.per_rank
        return self.at(self._epoch, step)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next ``for`` gives the rest of the epoch in which the state was taken.

        Raises:
            ConfigError: The state is of another order; the message names what differs.
        """
        own = {"tail": None} | self.at(0, 0)
        state_dict = {"tail": None} | dict(state_dict)
        if set(state_dict) != set(own):
            raise ConfigError(
                "load_state_dict: give what Sampler.state_dict() returned"
            )
        differs = [
            f"{name} is {own[name]}, was {state_dict[name]}"
            for name in own
            if name not in ("epoch", "position") and own[name] != state_dict[name]
        ]
        if differs:
            raise ConfigError(
                f"load_state_dict: the state is of another order ({'; '.join(differs)})"
            )
        position = _check.integer("state", "position", state_dict["position"])
        step, within = divmod(position, self._batch)
        if within or step >= self._steps:
            raise _check.refusal("state", "position", "that of a batch", position)
        self._epoch = _check.integer("state", "epoch", state_dict["epoch"])
        self._handed, self._running = step * self.per_rank, None
        self._again = False

    @property
    def _steps(self) -> int:
        full, tail = divmod(self._records, self._batch)
        return full + (tail > 0 and self._tail != "drop")

    def _between(self, epoch: int, begin: int, end: int) -> Iterator[int]:
        """The records at positions of an epoch, which are taken anew beyond its end."""
        count = self._records
        last = end if self._tail == "wrap" else min(end, count)
        while begin < last:
            start = begin % count
            stop = min(start + last - begin, count)
            yield from _core.order(count, self._seed, epoch, start, stop)
            begin += stop - start

    def _shared(self) -> tuple[int, int]:
        """Rank and world size, that share each batch evenly."""
        found = process_rank()
        rank, world_size = rank_within(self, self._rank, self._world_size, found)
        if self._batch % world_size:
            raise ConfigError(
                f"Sampler: batch={self._batch} does not divide among {world_size} ranks"
            )
        uneven = self._records % self._batch and self._tail == "keep"
        if world_size > 1 and uneven:
            raise ConfigError(
                f"Sampler: the last batch of {self._records} records in batches of "
                f"{self._batch} is uneven among {world_size} ranks; use drop_last=True "
                'or tail="wrap"'
            )
        return rank, world_size


def _tail(drop_last: bool, tail: str | None) -> str:
    """What becomes of the last batch, by whichever spelling.

    Raises:
        ConfigError: It is padding, or the two contradict each other.
    """
    if tail is None:
        return "drop" if drop_last else "keep"
    if tail == "pad":
        raise ConfigError(
            "Sampler: a sampler hands out records, and there is none for padding; use "
            'tail="wrap" or "drop"'
        )
    _check.choice("Sampler", "tail", tail, ("keep", "drop", "wrap"))
    if drop_last and tail != "drop":
        raise ConfigError(
            f'Sampler: drop_last leaves the last batch out and tail="{tail}" does not; '
            "give one of them"
        )
    return tail


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
