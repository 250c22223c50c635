"""The base class of framework loaders, which open a pipeline on first use.

Frameworks build their loader before they know which process will use it. They begin an
epoch while a variable still holds the last one. They ask for the state of a loader that
was never iterated. `AdapterLoader` supports all three.
"""

import inspect
import os
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from infeed import _check, _other_libraries
from infeed._closing import ClosedAtExit
from infeed._epochs import ConvertedEpoch, PrefetchedEpoch
from infeed._prefetch_thread import ItemConverter, PrefetchThread
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, ForkedError
from infeed.loader import Loader
from infeed.pipeline import Pipeline

__all__ = ["AdapterLoader", "BatchType", "rank_within"]

_EXPECTED = "an infeed.Pipeline; the loader opens it on first use"


class AdapterLoader(ClosedAtExit):
    """A pipeline, its options, and the loader once it is open.

    It has no thread until the first batch, length or state. Before that it can be
    pickled and copied to another process.
    """

    def __init__(self, pipeline: Pipeline, options: Mapping[str, Any]):
        if not isinstance(pipeline, Pipeline):
            raise _check.error(type(self).__name__, "pipeline", _EXPECTED, pipeline)
        if options.get("devices") is not None:
            _check.device_names(options["devices"])
        known = set(inspect.signature(Pipeline.open).parameters) - {"self"}
        _other_libraries.check_options(type(self).__name__, options, known)
        if options.get("device") == "cpu":
            options = {**options, "device": None}
        self.pipeline = pipeline
        self._options = dict(options)
        self._opened: Loader | None = None
        self._pid = os.getpid()
        self._closed = False
        self._running_epoch: weakref.ref[ConvertedEpoch | PrefetchedEpoch] | None = None
        # The thread of the last loop, if there is one; `PrefetchedEpoch` sets it.
        self._ahead: list[PrefetchThread] = []

    def __len__(self) -> int:
        """Returns the steps of a whole epoch, even if a resumed one has fewer left."""
        return len(self.loader)

    @property
    def loader(self) -> Loader:
        """The open `infeed.Loader`, for its `stats`, `explain` and `bad_records`.

        If batches are copied ahead of the loop, the loader has delivered one more than
        the loop took; `state_dict` counts those of the loop.

        Raises:
            ClosedError: The loader is closed.
            ForkedError: It was opened in the parent of this process, before the fork.
            InfeedError: As in `Pipeline.open`.
        """
        if self._closed:
            raise ClosedError("the loader is closed; make another one")
        if self._opened is not None and os.getpid() != self._pid:
            raise ForkedError(
                "the loader was opened in the parent of this process, before the fork; "
                "make another one in this process"
            )
        if self._opened is None:
            rank, world_size = self._find_rank()
            options = {"rank": rank, "world_size": world_size, **self._options}
            self._opened = self.pipeline.open(**self._resolve_options(options))
            self._pid = os.getpid()
            self._after_open(self._opened)
        for run in self._ahead:
            if run.has_ended:
                # Its thread may still take a batch, and takes no more after that.
                run.iterable.end()
        return self._opened

    @property
    def device(self) -> str | None:
        """Name of the device on which batches are delivered; None: host memory.

        The names of several devices are joined with commas.
        """
        device: str | None = self._options.get("device")
        devices = self._options.get("devices")
        return device if devices is None else ",".join(devices)

    @property
    def epoch(self) -> int:
        """Number of the current epoch, or of the next one between epochs, from 0."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for`` loop.

        Scripts written for a `DistributedSampler` call this before every epoch. It has
        no effect if that epoch comes next anyway, or was resumed in its middle. A
        running loop ends, for example one that only looked at a batch. If it was in
        that epoch, the epoch begins again.
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        running = self._loop()
        if self.epoch != epoch or (running is not None and running.has_begun):
            self._go_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the run: a small dictionary that JSON can hold.

        It counts the batches that the loop took, and not those in preparation. It is
        the same on all ranks except for ``bad``; see `infeed.Loader.state_dict`.
        """
        loader = self.loader
        for run in self._ahead:
            if not run.has_ended:
                # The state with the last batch that the loop took.
                return dict(run.state)
        return loader.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, strict: bool = True
    ) -> None:
        """Resumes a run: the next ``for`` loop delivers the rest of its epoch.

        Args:
            state_dict: Result of `state_dict`.
            strict: As in `infeed.Loader.load_state_dict`.

        Raises:
            ConfigError: The state belongs to another run; the message names the
                differences.
        """
        self._move(lambda loader: loader.load_state_dict(state_dict, strict=strict))

    def begin_epoch(self, epoch: int, records: Sequence[int], step: int = 0) -> None:
        """Makes the next ``for`` loop deliver these records, in this order.

        Only with ``epoch_records``; see `infeed.Loader.begin_epoch`.
        """
        self._move(lambda loader: loader.begin_epoch(epoch, records, step))

    def close(self, timeout: float | None = None) -> None:
        """Ends all threads and waits for them, as `infeed.Loader.close` does.

        Args:
            timeout: As in `infeed.Loader.close`.

        Raises:
            ConfigError: As in `infeed.Loader.close`.
        """
        self._closed = True
        for run in self._ahead:
            run.stop()
        if self._opened is not None:
            self._opened.close(timeout)
        for run in self._ahead:
            run.join(timeout)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the description without the loader, which stays in its process."""
        return self.__dict__ | {"_opened": None, "_running_epoch": None, "_ahead": []}

    def _resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options with which to open the pipeline."""
        return options

    def _begin(self, convert: Callable[[Batch], Any]) -> Iterator[Any]:
        """Begins an epoch of converted batches. A running loop ends."""
        steps = ConvertedEpoch(self._idle_loader(), convert)
        self._running_epoch = weakref.ref(steps)
        return steps

    def _begin_ahead(self, mover: ItemConverter) -> Iterator[Any]:
        """Begins an epoch whose batches a thread converts one ahead of the loop."""
        ahead = PrefetchedEpoch(self._idle_loader(), mover, self._ahead)
        self._running_epoch = weakref.ref(ahead)
        return ahead

    def _idle_loader(self) -> Loader:
        """Returns the loader, after ending a running loop."""
        loader, running = self.loader, self._loop()
        if running is not None:
            running.end()
        return loader

    def _go_to(self, epoch: int) -> None:
        """Moves the loader to the beginning of an epoch."""
        self._move(lambda loader: loader.seek(epoch))

    def _move(self, move: Callable[[Loader], None]) -> None:
        """Moves the loader. A loop that has begun ends with an error."""
        loader, running = self.loader, self._loop()
        if running is None:
            move(loader)
            return
        with running.lock:
            move(loader)
            if running.has_begun:
                running.end()

    def _loop(self) -> ConvertedEpoch | PrefetchedEpoch | None:
        """Returns the last loop, if the program still holds it."""
        return None if self._running_epoch is None else self._running_epoch()

    def _find_rank(self) -> tuple[int, int]:
        """Returns rank and world size, as far as the framework knows them."""
        return 0, 1

    def _after_open(self, loader: Loader) -> None:
        """Called with the loader after it was opened."""


class BatchType:
    """Type of a batch: a dict of its fields, a tuple, or a named tuple."""

    def __init__(self, owner: object, kind: str):
        self.kind = _check.choice(owner, "batch_type", kind, ("dict", "tuple", "named"))
        self._named: Any = None

    def __call__(self, fields: dict[str, Any]) -> Any:
        """Returns the fields of a batch as this type.

        Raises:
            ConfigError: A field name is not valid in a named tuple.
        """
        if self.kind == "dict":
            return fields
        if self.kind == "tuple":
            return tuple(fields.values())
        if self._named is None:
            try:
                self._named = namedtuple("Batch", tuple(fields))  # type: ignore[misc]
            except ValueError as error:
                raise ConfigError(
                    f'batch_type="named": {error}; use batch_type="dict"'
                ) from None
        return self._named(**fields)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the class of the named tuple, which is made when needed."""
        return {"kind": self.kind, "_named": None}


def rank_within(
    owner: object, rank: int | None, world_size: int | None, found: tuple[int, int]
) -> tuple[int, int]:
    """Returns rank and world size as set, or as found.

    Raises:
        ConfigError: Only one of them is set.
    """
    if rank is None and world_size is None:
        return found
    if rank is None or world_size is None:
        raise ConfigError(
            f"{type(owner).__name__}: set rank and world_size together, or neither"
        )
    return rank, world_size
