"""What the adapters have in common: a pipeline that is opened when it is first needed.

Frameworks build their loader before they know which process they are in, begin an epoch
while a variable still holds the last one, and ask for the state of what was never
iterated. A `Feed` takes all three as they come.
"""

import inspect
import os
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from infeed import _check, _mistaken
from infeed._running import Moving, Run
from infeed._steps import Ahead, Steps
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, ForkedError
from infeed.loader import Loader
from infeed.pipeline import Pipeline

__all__ = ["Feed", "Form", "rank_within"]

_EXPECTED = "an infeed.Pipeline; it is opened when it is first needed"


class Feed:
    """A pipeline, the options it is opened with, and the loader once it is open.

    Holds no thread until it is asked for a batch, its length or its state; until then
    it can be pickled, and copied to the process that will use it.
    """

    def __init__(self, pipeline: Pipeline, options: Mapping[str, Any]):
        if not isinstance(pipeline, Pipeline):
            raise _check.refusal(type(self).__name__, "pipeline", _EXPECTED, pipeline)
        if options.get("devices") is not None:
            _check.device_names(options["devices"])
        known = set(inspect.signature(Pipeline.open).parameters) - {"self"}
        _mistaken.check_options(type(self).__name__, options, known)
        if options.get("device") == "cpu":
            options = {**options, "device": None}
        self.pipeline = pipeline
        self._options = dict(options)
        self._opened: Loader | None = None
        self._pid = os.getpid()
        self._closed = False
        self._running: weakref.ref[Steps | Ahead] | None = None
        # The thread of the last loop, where there is one. `Ahead` puts it here.
        self._ahead: list[Run] = []

    def __len__(self) -> int:
        """Steps of a whole epoch, also where a resumed one has fewer left."""
        return len(self.loader)

    @property
    def loader(self) -> Loader:
        """The open `infeed.Loader`, for its `stats`, `explain` and `quarantine`.

        Where batches are copied ahead of a loop, it has delivered one more than the
        loop took; `state_dict` counts those of the loop.

        Raises:
            ClosedError: It was closed.
            ForkedError: It was opened in the process that this one was forked from.
            InfeedError: As `Pipeline.open`.
        """
        if self._closed:
            raise ClosedError("the loader is closed; make another one")
        if self._opened is not None and os.getpid() != self._pid:
            raise ForkedError(
                "the loader was opened in another process, of which this one is a "
                "fork; make another one here"
            )
        if self._opened is None:
            rank, world_size = self._place()
            options = {"rank": rank, "world_size": world_size, **self._options}
            self._opened = self.pipeline.open(**self._settled(options))
            self._pid = os.getpid()
            self._told(self._opened)
        for run in self._ahead:
            if run.left:
                # Its thread may be in the middle of a batch, and takes no more then.
                run.iterable.end()
        return self._opened

    @property
    def device(self) -> str | None:
        """Name of the device that batches are delivered on; None: the host.

        Of several, the names with commas between.
        """
        device: str | None = self._options.get("device")
        devices = self._options.get("devices")
        return device if devices is None else ",".join(devices)

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or else of the next one, from 0."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Makes the next ``for`` the epoch of that number.

        Scripts written for a `DistributedSampler` call this at every epoch. It changes
        nothing where that epoch comes next anyway, or was resumed in its middle. A loop
        that has begun, for a look at a batch say, is ended, and its epoch begun again
        where it is that one.
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        running = self._loop()
        if self.epoch != epoch or (running is not None and running.begun):
            self._go_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: a small dictionary that JSON can hold.

        It counts the batches that were taken, not those under way. It is equal on all
        ranks but for ``bad``; see `infeed.Loader.state_dict`.
        """
        loader = self.loader
        for run in self._ahead:
            if not run.left:
                # As it was with the last batch that the loop took.
                return dict(run.state)
        return loader.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, strict: bool = True
    ) -> None:
        """Goes on where a run was: the next ``for`` delivers the rest of its epoch.

        Args:
            state_dict: What `state_dict` gave.
            strict: As for `infeed.Loader.load_state_dict`.

        Raises:
            ConfigError: The state is of another run; the message names what differs.
        """
        self._move(lambda loader: loader.load_state_dict(state_dict, strict=strict))

    def close(self) -> None:
        """Ends all threads and waits for them. Batches that are held stay valid."""
        self._closed = True
        for run in self._ahead:
            run.stop()
        if self._opened is not None:
            self._opened.close()
        for run in self._ahead:
            run.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """The description alone: a loader stays in the process that opened it."""
        return self.__dict__ | {"_opened": None, "_running": None, "_ahead": []}

    def _settled(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options, when the pipeline is opened."""
        return options

    def _begin(self, convert: Callable[[Batch], Any]) -> Iterator[Any]:
        """An epoch of converted batches. A loop that still runs is ended."""
        steps = Steps(self._freed(), convert)
        self._running = weakref.ref(steps)
        return steps

    def _begin_ahead(self, mover: Moving) -> Iterator[Any]:
        """The same, converted in a thread, one batch ahead of the loop."""
        ahead = Ahead(self._freed(), mover, self._ahead)
        self._running = weakref.ref(ahead)
        return ahead

    def _freed(self) -> Loader:
        """The loader, without a loop that runs."""
        loader, running = self.loader, self._loop()
        if running is not None:
            running.end()
        return loader

    def _go_to(self, epoch: int) -> None:
        """Puts the loader at the beginning of an epoch."""
        self._move(lambda loader: loader.seek(epoch))

    def _move(self, move: Callable[[Loader], None]) -> None:
        """Moves the loader. A loop that has begun is ended, and says so."""
        loader, running = self.loader, self._loop()
        if running is None:
            move(loader)
            return
        with running.lock:
            move(loader)
            if running.begun:
                running.end()

    def _loop(self) -> Steps | Ahead | None:
        """The loop that was begun last, if anybody holds it."""
        return None if self._running is None else self._running()

    def _place(self) -> tuple[int, int]:
        """Rank and world size, where the framework knows them."""
        return 0, 1

    def _told(self, loader: Loader) -> None:
        """What the user should be told about a loader that was just opened."""


class Form:
    """What a batch is: a dict of its fields, a tuple of them, or one with names."""

    def __init__(self, owner: object, form: str):
        self.kind = _check.choice(owner, "form", form, ("dict", "tuple", "named"))
        self._named: Any = None

    def __call__(self, fields: dict[str, Any]) -> Any:
        """The fields of a batch in this form.

        Raises:
            ConfigError: A field has a name that a named tuple cannot have.
        """
        if self.kind == "dict":
            return fields
        if self.kind == "tuple":
            return tuple(fields.values())
        if self._named is None:
            try:
                self._named = namedtuple("Batch", tuple(fields))  # type: ignore[misc]
            except ValueError as error:
                raise ConfigError(f'form="named": {error}; use form="dict"') from None
        return self._named(**fields)

    def __getstate__(self) -> dict[str, Any]:
        """Without the class, which is made where it is needed."""
        return {"kind": self.kind, "_named": None}


def rank_within(
    owner: object, rank: int | None, world_size: int | None, found: tuple[int, int]
) -> tuple[int, int]:
    """Rank and world size as given, or as the framework has them.

    Raises:
        ConfigError: One is given without the other.
    """
    if rank is None and world_size is None:
        return found
    if rank is None or world_size is None:
        raise ConfigError(
            f"{type(owner).__name__}: give rank and world_size together, or neither"
        )
    return rank, world_size
