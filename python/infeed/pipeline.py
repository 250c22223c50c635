"""The description of a pipeline: built step by step, checked, saved, opened.

It says what is wanted and holds no progress. The engine's planner decides what runs.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from infeed import _check, _code, _core, _mistaken, sources, transforms
from infeed._functions import Output, Step, Trusted
from infeed._select import Filter, Selecting, Split, Weights
from infeed._select import seed as _seed
from infeed.batch import Batch
from infeed.errors import ConfigError
from infeed.feeders import Feeding
from infeed.loader import Loader
from infeed.preview import Preview

__all__ = ["Column", "Pipeline"]

Mode = Literal["rgb", "gray", "rgba", "stored", "stored16"]

_VERSION = 1
_NOTHING = Trusted({}, ())
_MODES = ("rgb", "gray", "rgba", "stored", "stored16")
_LAYOUTS = ("HWC", "CHW")
_PLACES = ("auto", "host", "device", "device-resize")
_TAILS = ("keep", "drop", "pad", "wrap")
_DTYPES = ("uint8", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Column:
    """What a batch holds under one name.

    Attributes:
        kind: ``"array"``, ``"bytes"``, ``"text"`` or ``"ragged"``.
        dtype: Type of the elements; None for bytes and text.
        shape: Shape in a full batch, rows first; an entry is None where it differs from
            batch to batch. None for what has no fixed shape.
    """

    kind: str
    dtype: str | None
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class _Decode:
    """How images are decoded."""

    orient: bool = False
    verify: bool = True
    dct_scale: bool = False
    max_pixels: int | None = None
    modes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("orient", "verify", "dct_scale"):
            _check.flag("decode", name, getattr(self, name))
        if self.max_pixels is not None:
            _check.integer("decode", "max_pixels", self.max_pixels, low=1)
        for field, mode in self.modes:
            _check.choice("decode", field, mode, _MODES)


@dataclass(frozen=True)
class _Batching:
    """How samples are grouped: exactly one of `size` and `per_rank`."""

    size: int | None = None
    per_rank: int | None = None
    drop_last: bool = False
    pad: bool = False
    tail: str | None = None

    def __post_init__(self) -> None:
        if (self.size is None) == (self.per_rank is None):
            raise _check.refusal(
                "batch", "size", "given, or per_rank, and not both", self.size
            )
        for name in ("size", "per_rank"):
            if getattr(self, name) is not None:
                _check.integer("batch", name, getattr(self, name), low=1)
        for name in ("drop_last", "pad"):
            _check.flag("batch", name, getattr(self, name))
        if self.tail is not None:
            _check.choice("batch", "tail", self.tail, _TAILS)


@dataclass(frozen=True, repr=False, init=False)
class Pipeline(Selecting):
    """What to read, in which order, what to make of it, and in which groups.

    Each method returns a new pipeline and leaves this one as it is::

        train = (
            infeed.Pipeline(sources.Folder("imagenet/train"))
            .shuffle(seed=0)
            .decode()
            .transform(T.RandomResizedCrop(224), T.RandomHorizontalFlip())
            .batch(256, drop_last=True)
        )
        for images, labels in train:
            ...

    Iterating gives one epoch of batches; the next ``for`` is the next epoch. The first
    one opens a loader with the defaults of `open`, which the pipeline keeps. Leaving
    the loop with ``break`` ends the epoch.

    Args:
        source: Where records come from, one of `infeed.sources`.

    Raises:
        ConfigError: ``source`` is none.
    """

    source: sources.Source
    _filters: tuple[Filter, ...] = ()
    _split: Split | None = None
    _take: int | None = None
    _weights: Weights | None = None
    _repeat: int | None = None
    _seed: int | None = None
    _window: int | str | None = None
    _decode: _Decode | None = None
    _transforms: tuple[transforms.Transform, ...] = ()
    _layout: str = "HWC"
    _dtype: str | None = None
    _batch: _Batching = _Batching(size=1)
    _python: tuple[Step, ...] = ()
    _keep: tuple[str, ...] = ()

    def __init__(self, source: sources.Source):
        if not isinstance(source, sources.Source):
            raise _mistaken.no_source(source)
        object.__setattr__(self, "source", source)

    def shuffle(self, seed: int = 0, *, window: int | str | None = None) -> Self:
        """Orders the records by a permutation, another one each epoch.

        The order is a function of ``seed``, epoch and position, the same on every run,
        for any number of workers and ranks. The seed also decides all random parameters
        of transforms.

        Shards are permuted, and records within a window of shards: wide enough to mix,
        narrow enough that shards are read as they lie. ``infeed inspect`` tells how
        well that mixes. Records that lie by themselves are always mixed all.

        Args:
            seed: Any integer from 0 to 2**64 - 1.
            window: Bytes of shards in a window, such as ``"1 GiB"``; one shard at
                least. ``"all"``: the whole dataset. None: 512 MiB, or 64 MiB where a
                shard or row group can only be read whole, since a window then has to
                fit in memory.
        """
        seed = _seed("shuffle", seed)
        if window is not None and window != "all":
            window = _check.size_bytes(window, "shuffle", "window")
        return self._with(_seed=seed, _window=window)

    def decode(
        self,
        *,
        orient: bool = False,
        verify: bool = True,
        dct_scale: bool = False,
        max_pixels: int | None = None,
        **modes: Mode,
    ) -> Self:
        """Decodes images to pixels.

        Args:
            orient: Whether images are turned as their EXIF data says.
            verify: Whether checksums that a format carries are verified.
            dct_scale: Whether JPEGs that are shrunk a lot may be decoded at a reduced
                scale. Faster, and not bit-equal, so never automatic.
            max_pixels: Images of more pixels are bad records; nothing is allocated for
                them. None is the engine's own limit.
            **modes: By field name: ``"rgb"``, ``"gray"``, ``"rgba"``, ``"stored"``
                (8-bit samples as they are, palette indices too) or ``"stored16"``.
                Images are rgb by default; masks are rgb where a transform looks up
                their colours, else stored.

        Raises:
            ConfigError: A parameter is not one of the above, or a transform or function
                comes before it.
        """
        if self._transforms or self._python:
            before = ".transform(...)" if self._transforms else self._python[0].call()
            raise ConfigError(
                f"decode: it runs before {before}; write .decode() before it"
            )
        asked = tuple(sorted(modes.items()))
        return self._with(_decode=_Decode(orient, verify, dct_scale, max_pixels, asked))

    def transform(
        self,
        *steps: transforms.Transform,
        layout: Literal["HWC", "CHW"] | None = None,
        dtype: Literal["uint8", "float32", "float16", "bfloat16"] | None = None,
        keep: Sequence[str] = (),
    ) -> Self:
        """Adds transforms, applied in order, and says how images are laid out.

        A transform that moves pixels moves images and masks, and no coordinates. Next
        to a field whose name and shape look like coordinates (``boxes``, ``keypoints``,
        ``polygon``; 2 to 5 numbers per row) it is an error when the pipeline is opened,
        unless the field is in ``keep``. The shape alone gives a warning.

        Args:
            *steps: Any of `infeed.transforms`.
            layout: Of images and one-hot masks in the batch. None leaves it, HWC at
                first.
            dtype: Of images in the batch. None leaves it: uint8 at first, float32 after
                ``ToFloat`` or ``Normalize``.
            keep: Names of fields that may stay as they are although pixels move.

        Raises:
            ConfigError: A step is no transform, ``layout`` or ``dtype`` is unknown, or
                a function comes before it: transforms run before functions.
        """
        for step in steps:
            if not isinstance(step, transforms.Transform):
                raise _mistaken.no_transform(step)
        if self._python:
            first = self._python[0].call()
            what = type(steps[0]).__name__ if steps else "layout and dtype"
            raise ConfigError(
                f"transform: {what} cannot run after {first}, since functions run "
                f"after all transforms; write .transform(...) before {first}, or do "
                "the same in the function"
            )
        changes: dict[str, Any] = {"_transforms": self._transforms + steps}
        if isinstance(keep, str):
            raise _check.refusal("transform", "keep", f"a list, ({keep!r},)", keep)
        kept = [_check.field("transform", "keep", name) for name in keep]
        new = (name for name in dict.fromkeys(kept) if name not in self._keep)
        changes["_keep"] = (*self._keep, *new)
        if layout is not None:
            changes["_layout"] = _check.choice("transform", "layout", layout, _LAYOUTS)
        if dtype is not None:
            changes["_dtype"] = _check.choice("transform", "dtype", dtype, _DTYPES)
        return self._with(**changes)

    def batch(
        self,
        size: int | None = None,
        *,
        per_rank: int | None = None,
        drop_last: bool = False,
        pad: bool = False,
        tail: Literal["keep", "drop", "pad", "wrap"] | None = None,
    ) -> Self:
        """Groups samples, and checks that the pipeline can work.

        Without it, each batch is one sample.

        Args:
            size: Samples of one step over all ranks together.
            per_rank: Samples of one step on each rank; the other spelling.
            drop_last: Whether samples that do not fill a last batch are left out; the
                other spelling of ``tail="drop"``.
            pad: Whether rows of different shape are padded with zeros to the largest of
                their batch.
            tail: What becomes of a last batch that is not full. ``"keep"``, the
                default: it is shorter, which several ranks cannot take. ``"drop"``: it
                is left out. ``"pad"``: it is filled up with rows of zeros, and a field
                ``valid`` of each batch says which rows hold a sample. ``"wrap"``: it is
                filled up with the epoch's first records once more, with random draws of
                their own. All but the first give every rank equal steps.

        Raises:
            ConfigError: The shape of a row does not follow from the description; the
                message names the transform to add.
        """
        grouped = self._with(_batch=_Batching(size, per_rank, drop_last, pad, tail))
        _core.check(grouped._json())
        return grouped

    def python(
        self,
        fn: Callable[..., Mapping[str, Any]],
        *,
        processes: int = 0,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
    ) -> Self:
        """Adds a function that each sample goes through, after decode and transforms.

        It gets a dictionary of NumPy arrays by field name, as they would lie in a row
        of the batch (a label is an array without axes), ``bytes`` and ``str``; they are
        its own to change. It returns a dictionary too, which is the sample from there
        on: arrays of the same type and shape for all samples, ``bytes`` or ``str``.

        A parameter ``rng``, or a second one without default, gets a
        ``numpy.random.Generator`` keyed by seed, epoch and position: the same numbers
        for any number of workers and processes.

        Workers call it under the interpreter's lock, so that Python code runs one
        sample at a time; `Loader.explain` tells what that costs. An exception makes a
        bad record. Call this before `batch` where it is what gives images one size.

        Args:
            fn: The function. If it can be imported by its name, `save` writes that.
            processes: How many processes of its own it runs in, each with its own
                interpreter; it must be picklable, so from a module, and what it
                captured is copied. One that dies is replaced and the sample tried once
                more, after which that is a bad record. 0 is this process.
            fields: Names of the fields that it is given; others pass it by and stay in
                the sample. None: it gets all, and what it does not return is gone.
            output: By field name what it returns: a type such as ``"int64"``, a type
                and shape such as ``("float32", (3, 224, 224))``, ``"bytes"`` or
                ``"text"``. None: found by calling it with the first record when the
                pipeline is opened.

        Raises:
            ConfigError: ``fn`` takes other arguments, or no other process can run it.
        """
        step = Step.checked(fn, processes=processes, fields=fields, output=output)
        return self._with(_python=(*self._python, step))

    def python_batch(
        self,
        fn: Callable[..., Mapping[str, Any]],
        *,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
    ) -> Self:
        """Adds a function that each finished batch goes through, on a worker.

        As `python`, with arrays ``[rows, ...]``, lists of ``bytes`` or ``str``, and
        ``(values, offsets)`` for ragged fields. It returns arrays of as many rows; an
        array that it changed in place, or a list as it came, goes on without a copy.

        Its generator is keyed by seed, epoch and the position of the batch's first row.
        Of several ranks each sees its own rows alone, so a state is refused by another
        number of them. An exception stops the run at this batch.

        Args:
            fn: The function.
            fields: As of `python`.
            output: As of `python`, for one row of the batch.

        Raises:
            ConfigError: ``fn`` takes other arguments.
        """
        step = Step.checked(fn, batch=True, fields=fields, output=output)
        return self._with(_python=(*self._python, step))

    @_mistaken.reject_others
    def open(
        self,
        *,
        workers: int | Literal["auto"] | Feeding = "auto",
        memory: int | str | None = None,
        rank: int = 0,
        world_size: int = 1,
        on_error: Literal["stop", "substitute", "skip"] = "stop",
        max_bad: int | None = None,
        io_threads: int | None = None,
        timeline: float | None = None,
        stall: float | None = 10.0,
        digest: Literal["ids", "pixels"] = "ids",
        digest_file: str | os.PathLike[str] | None = None,
        device: str | None = None,
        devices: Sequence[str] | None = None,
        placement: Literal["auto", "host", "device", "device-resize"] = "auto",
        decode: Literal["auto", "cpu", "gpu"] | float = "auto",
        slots: int = _core.SLOTS,
    ) -> Loader:
        """Lists the data, starts the threads and prepares the first batch.

        Args:
            workers: Threads that decode and transform. ``"auto"``: as many as make the
                training step shortest and no more, found while it runs; begins with the
                cores that this process may use, shared with other ranks. `Feeders`
                or `infeed.ray.Feeders`: other machines make batches too.
            memory: Budget for batches, read-ahead and decoding, in bytes or as
                ``"2GiB"``. None: what four batches and their making need, at most half
                of what this process may still use.
            rank: Number of this process among those that train together.
            world_size: How many those are.
            on_error: What a bad record does: ``"stop"`` raises at its place in the
                order; ``"substitute"`` takes another record, the same one on every run;
                ``"skip"`` makes the batch shorter (not where all must be full: with
                several ranks, or a ``tail`` that is not kept).
            max_bad: Stops the run when more records than this were bad; one that is bad
                in every epoch counts once.
            io_threads: Threads that read. None: 4 for files, 64 for what lies in a
                bucket or on a web server.
            stall: Seconds of waiting for one batch after which the ``infeed`` logger
                says who waits for whom. None: never.
            timeline: Seconds during which to record who does what when, for
                `Loader.explain`.
            digest: What `Loader.digest` covers: ``"ids"`` of records, or the delivered
                ``"pixels"`` as well, which workers hash; that time is writing's.
            digest_file: A file to which the digest of every step is written as it is
                delivered, for `infeed.verify`; one a rank. A file of the same run is
                gone on with.
            device: Where batches are delivered: ``"cuda"``, ``"cuda:1"``; ``"sim"``
                simulates a device, also with rates, as in
                ``"sim:bandwidth=2e9,latency=20us"``. None: on the host. Arrays of
                fixed shape go there, ahead of the step; lists and text stay.
            devices: Several devices, as for ``device``: each batch is cut into parts of
                as many rows, in order, one a device, and a step gives a tuple of them.
                Its size must divide. One loader prepares for all.
            placement: Who makes rows larger (floats of pixels, one-hot masks of class
                numbers): the ``"host"``, or the ``"device"``, so that bytes cross the
                bus; ``"device-resize"`` lets the device resize images, too. ``"auto"``
                tries these in turn while it runs, as far as they can help, and keeps
                whichever makes steps shortest. The bits are the same.
            decode: Who decodes baseline JPEGs: the ``"cpu"``, or the ``"gpu"``, whose
                pixels are near the CPU's and not the same, and which resizes them, too.
                Other files are the CPU's either way. A number between 0 and 1 is the
                share of records that are the GPU's, in sixteenths, each always the
                same. ``"auto"`` changes no bit, and so is ``"cpu"``. A state of the
                one is refused by the other.
            slots: Batches on the device at once, the training loop's own included, as
                long as that holds no more. At least 2.

        Raises:
            ConfigError: There is no such option, the arguments do not go together, the
                ranks do not divide the batch, or a feeder does not feed this run.
            DeviceError: The device cannot be opened, has no memory left, or has no
                decoder where ``decode`` asks for one.
            BudgetError: ``memory`` does not hold two batches.
            OpenError: The data cannot be listed.
        """
        feeders = workers if isinstance(workers, Feeding) else None
        feeding = None
        if feeders is not None:
            workers = feeders.workers or "auto"
            feeders._check_data(bool(self.source._buffers() or self._held()))
            feeding = (feeders._hosts(), feeders.local == "help", feeders.deadline)
        if workers != "auto":
            if isinstance(workers, str):
                expected = '"auto", an integer of at least 1, or feeders'
                raise _check.refusal("open", "workers", expected, workers)
            workers = _check.integer("open", "workers", workers, low=1)
        if max_bad is not None:
            max_bad = _check.integer("open", "max_bad", max_bad)
        if io_threads is not None:
            io_threads = _check.integer("open", "io_threads", io_threads, low=1)
        if timeline is not None:
            timeline = _check.number("open", "timeline", timeline, low=0)
        if stall is not None:
            stall = _check.number("open", "stall", stall, low=0)
        world_size = _check.integer("open", "world_size", world_size, low=1)
        rank = _check.integer("open", "rank", rank)
        if rank >= world_size:
            raise _check.refusal("open", "rank", f"below world_size={world_size}", rank)
        policies = ("stop", "substitute", "skip")
        if device is not None and not isinstance(device, str):
            raise _check.refusal("open", "device", 'a name such as "cuda:0"', device)
        if device == "cpu":
            # As scripts write it that take a GPU where there is one.
            device = None
        if devices is not None:
            if device is not None:
                raise ConfigError("open: give device or devices, not both")
            _check.device_names(devices)
        core = _core.Loader(
            self._json(),
            self._handles(),
            workers=None if workers == "auto" else workers,
            memory=None if memory is None else _check.size_bytes(memory),
            rank=rank,
            world_size=world_size,
            on_error=_check.choice("open", "on_error", on_error, policies),
            max_bad=max_bad,
            io_threads=io_threads,
            timeline_s=timeline,
            stall_s=stall,
            digest=_check.choice("open", "digest", digest, ("ids", "pixels")),
            digest_file=None if digest_file is None else os.fspath(digest_file),
            devices=[device] if device is not None else devices,
            placement=_check.choice("open", "placement", placement, _PLACES),
            decode=_check.decoding("open", decode),
            slots=_check.integer("open", "slots", slots, low=2),
            feeders=feeding,
        )
        parts = 0 if devices is None else len(devices)
        if feeders is None or feeding is None:
            return Loader(core, parts)
        # Own cores are at work by now.
        try:
            return Loader(core, parts, feeders._begin(self._json(), feeding[0]))
        except BaseException:
            core.close()
            raise

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._kept())

    def __len__(self) -> int:
        """Raises an error: a description has no length, and its loader has one.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a Pipeline has no length; len(pipeline.open()) is the number of steps. In "
            "place of torch.utils.data.DataLoader(pipeline) use "
            "infeed.torch.Loader(pipeline)"
        )

    def __bool__(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where the loader that iterating keeps is; see `Loader.state_dict`."""
        return self._kept().state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Goes on where a run was: the next ``for`` delivers the rest of its epoch.

        Args:
            state: What `state_dict` gave.
            strict: As for `Loader.load_state_dict`.

        Raises:
            ConfigError: As `Loader.load_state_dict`.
        """
        self._kept().load_state_dict(state, strict=strict)

    def _kept(self) -> Loader:
        """The loader that iterating uses, opened with the defaults if none is."""
        loader: Loader | None = self.__dict__.get("_loader")
        if loader is None or loader.closed:
            loader = self.open()
            object.__setattr__(self, "_loader", loader)
        return loader

    def preview(self, position: int, epoch: int = 0) -> Preview:
        """Shows what becomes of one sample, stage by stage, with its random draws.

        Runs on the calling thread and opens no loader.

        Args:
            position: Place in the order of the epoch, from 0.
            epoch: Number of the epoch, from 0.

        Raises:
            ConfigError: ``position`` is not below the number of records.
            DecodeError: The record is bad.
        """
        position = _check.integer("preview", "position", position)
        epoch = _check.integer("preview", "epoch", epoch)
        given = (self._json(), self._handles())
        record, stages = _core.preview(*given, position, epoch)
        return Preview(position, epoch, record, stages)

    def explain(
        self,
        *,
        placement: Literal["auto", "host", "device", "device-resize"] | None = None,
        decode: Literal["auto", "cpu", "gpu"] | float = "auto",
    ) -> str:
        """The plan: which records come, what is done where, without running it.

        Crops that the decoder makes and what one pass does together are named so.

        Args:
            placement: As for `open` with a device: what would be left to one, of any
                kind, is in the plan then. None: batches stay on the host.
            decode: As for `open`; other than ``"auto"`` it means a device, too. In the
                shell ``infeed explain --device cuda:0`` measures what it would gain.

        Raises:
            ConfigError: As `open`.
            OpenError: As `open`.
        """
        on_device = None
        if placement is not None or decode != "auto":
            asked = "auto" if placement is None else placement
            place = _check.choice("explain", "placement", asked, _PLACES)
            on_device = (place, _check.decoding("explain", decode))
        return _core.plan(self._json(), self._handles(), on_device)

    @property
    def shapes(self) -> Mapping[str, Column]:
        """What a full batch holds, by field name, in field order.

        Raises:
            ConfigError: As `open`.
            OpenError: As `open`; fields of a folder depend on what lies there.
        """
        rows = self._batch.size or self._batch.per_rank
        described = _core.describe(self._json(), self._handles())
        return {
            name: Column(kind, dtype, None if shape is None else (rows, *shape))
            for name, kind, dtype, shape in described
        }

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of a batch, in order."""
        return tuple(self.shapes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the description as TOML, which `load` and ``infeed bench`` read.

        Raises:
            ConfigError: The source, an array of weights or a function in no module is
                in memory, which no file describes; the message names it. Arrays mapped
                from files (``mmap_mode="r"``) are fine.
        """
        if isinstance(self.source, sources.Memory) and self.source._buffers():
            raise ConfigError(
                "save: the source holds data in memory, which a file cannot describe; "
                'load the arrays with np.load(path, mmap_mode="r")'
            )
        text = _core.toml_from_json(self._json())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        allow_functions: Sequence[str] = (),
    ) -> Self:
        """Reads a description from a file that `save` or a person wrote.

        A file can name Python functions. None is imported unless one of the two
        arguments allows it, so a file from a stranger cannot run code.

        Args:
            path: The file, or the folder of a packed dataset, which may have been
                moved, and may lie in a bucket: paths of its own pipeline mean that
                folder. Relative paths of any other file mean the current one.
            functions: Functions by the name that the file calls them.
            allow_functions: Names that may be imported, such as
                ``"mypackage.augment:blur"`` or ``"mypackage.augment:*"``. A ``*`` after
                the colon stands for functions that the module itself defines.

        Raises:
            ConfigError: The file does not describe a pipeline, or names a function that
                neither argument allows, or the dataset is not complete; the message
                names the place.
            OpenError: The file cannot be read.
        """
        trusted = Trusted.checked(functions, allow_functions)
        return cls._from_dict(json.loads(_core.load(os.fspath(path))), trusted=trusted)

    def __repr__(self) -> str:
        steps = [f"infeed.Pipeline({self.source!r})"]
        steps += self._selection_code()
        if self._seed is not None:
            window = f", window={self._window!r}" if self._window is not None else ""
            steps.append(f".shuffle(seed={self._seed}{window})")
        if self._decode is not None:
            settings = [
                f"{f.name}={_code.value(getattr(self._decode, f.name))}"
                for f in fields(self._decode)
                if f.name != "modes" and getattr(self._decode, f.name) != f.default
            ]
            settings += [
                f"{name}={_code.value(mode)}" for name, mode in self._decode.modes
            ]
            steps.append(_code.method("decode", settings))
        settings = [repr(step) for step in self._transforms]
        if self._layout != "HWC":
            settings.append(f"layout={_code.value(self._layout)}")
        if self._dtype is not None:
            settings.append(f"dtype={_code.value(self._dtype)}")
        if self._keep:
            settings.append(f"keep={_code.value(self._keep)}")
        if settings:
            steps.append(_code.method("transform", settings))
        if self._batch != _Batching(size=1):
            size, per_rank = self._batch.size, self._batch.per_rank
            settings = [f"{size}" if per_rank is None else f"per_rank={per_rank}"]
            settings += [
                f"{name}=True"
                for name in ("drop_last", "pad")
                if getattr(self._batch, name)
            ]
            if self._batch.tail is not None:
                settings.append(f"tail={_code.value(self._batch.tail)}")
            steps.append(_code.method("batch", settings))
        steps += [step.code() for step in self._python]
        if len(steps) == 1:
            return steps[0]
        return "(\n" + "".join(f"{_code.INDENT}{step}\n" for step in steps) + ")"

    def __getstate__(self) -> dict[str, Any]:
        """The description alone: a loader stays in the process that opened it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def _with(self, **changes: Any) -> Self:
        new = object.__new__(type(self))
        for name, item in (self.__getstate__() | changes).items():
            object.__setattr__(new, name, item)
        return new

    def _buffers(self) -> list[Any]:
        """What the description refers to by its place in this list."""
        functions = [step.given() for step in self._python if not step.importable]
        return [*self.source._buffers(), *self._held(), *functions]

    def _handles(self) -> list[Any]:
        """Everything that the engine needs next to the description: the buffers, and
        the functions that the description names.
        """
        named = [step.given() for step in self._python if step.importable]
        return [*self._buffers(), *named]

    def _json(self) -> str:
        return json.dumps(self._to_dict())

    def _to_dict(self) -> dict[str, Any]:
        description: dict[str, Any] = {
            "version": _VERSION,
            "source": self.source._to_dict(),
        }
        # Arrays of weights are numbered behind those of the source.
        first = len(self.source._buffers()) if self._held() else 0
        description |= self._selection_to_dict(first)
        if self._seed is not None:
            shuffle: dict[str, Any] = {"seed": self._seed}
            if self._window is not None:
                shuffle["window"] = self._window
            description["shuffle"] = shuffle
        if self._decode is not None:
            decode = _given(self._decode)
            decode["modes"] = dict(self._decode.modes)
            description["decode"] = decode
        description["transforms"] = [step._to_dict() for step in self._transforms]
        output = {"layout": self._layout, "dtype": self._dtype}
        description["output"] = {
            name: item for name, item in output.items() if item is not None
        }
        if self._keep:
            description["keep"] = list(self._keep)
        description["batch"] = _given(self._batch)
        if self._python:
            description["python"] = self._functions_to_dict()
        return description

    def _functions_to_dict(self) -> list[dict[str, Any]]:
        """The functions; those that cannot be imported are numbered behind all else."""
        held = [step for step in self._python if not step.importable]
        first = len(self._buffers()) - len(held) if held else 0
        numbers = {id(step): first + at for at, step in enumerate(held)}
        return [step.to_dict(numbers.get(id(step))) for step in self._python]

    @classmethod
    def _from_dict(
        cls,
        description: dict[str, Any],
        functions: tuple[Step, ...] | None = None,
        trusted: Trusted = _NOTHING,
    ) -> Self:
        """The pipeline described, with `functions` or those trusted that it names."""
        new = cls(sources.from_dict(description["source"]))
        new = new._selected_by(description)
        if (shuffle := description.get("shuffle")) is not None:
            new = new.shuffle(**shuffle)
        if (decode := description.get("decode")) is not None:
            settings = {k: v for k, v in decode.items() if k != "modes"}
            new = new.decode(**settings, **decode.get("modes", {}))
        steps = map(transforms.from_dict, description.get("transforms", []))
        keep = description.get("keep", ())
        new = new.transform(*steps, **description.get("output", {}), keep=keep)
        if functions is None:
            steps = description.get("python", ())
            functions = tuple(Step.from_dict(step, trusted) for step in steps)
        new = new._with(_python=functions)
        if (batch := description.get("batch")) is not None:
            new = new.batch(**batch)
        return new


def _given(settings: Any) -> dict[str, Any]:
    """The settings of a dataclass that are not None."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {name: item for name, item in values.items() if item is not None}
