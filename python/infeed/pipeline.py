"""The description of a pipeline: built step by step, checked, saved and opened.

A description has no state of a run. The engine's planner decides how it is executed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from infeed import _check, _code, _core, _other_libraries, sources, transforms
from infeed._functions import AllowedFunctions, FunctionStep, Output
from infeed._options import (
    SINGLE,
    BatchOptions,
    BoxesOptions,
    Cache,
    Column,
    DeclaredFields,
    DecodeOptions,
    PointsOptions,
    set_values,
)
from infeed._select import RecordSelection, lengths_of_records
from infeed._select import seed as _seed
from infeed.batch import Batch
from infeed.errors import ConfigError
from infeed.feeders import FeederGroup
from infeed.kinds import Kind
from infeed.loader import Loader
from infeed.preview import Preview

__all__ = ["Column", "Pipeline"]

Mode = Literal["rgb", "gray", "rgba", "stored", "stored16"]

_VERSION = 1
_NOTHING = AllowedFunctions({}, ())
_LAYOUTS = ("HWC", "CHW")
_PLACEMENTS = ("auto", "host", "device", "device-resize")
_DTYPES = ("uint8", "float32", "float16", "bfloat16")


@dataclass(frozen=True, repr=False, init=False)
class Pipeline(RecordSelection, DeclaredFields):
    """Data source, order, transforms and batches of a training or validation set.

    Each method returns a new pipeline and does not change this one:

        train = (
            infeed.Pipeline(sources.Folder("imagenet/train"))
            .shuffle(seed=0)
            .decode()
            .transform(T.RandomResizedCrop(224), T.RandomHorizontalFlip())
            .batch(256, drop_last=True)
        )
        for images, labels in train:
            ...

    Each ``for`` loop over a pipeline is one epoch of batches. The first loop opens a
    loader with the defaults of `open`, and later loops use it too. ``break`` ends the
    epoch.

    Args:
        source: One of `infeed.sources`.

    Raises:
        ConfigError: ``source`` is not a source.
    """

    source: sources.Source
    _seed: int | None = None
    _window: int | str | None = None
    _decode: DecodeOptions | None = None
    _boxes: tuple[BoxesOptions, ...] = ()
    _points: tuple[PointsOptions, ...] = ()
    _kinds: tuple[tuple[str, Kind], ...] = ()
    _transforms: tuple[transforms.Transform, ...] = ()
    _layout: str = "HWC"
    _dtype: str | None = None
    _batch: BatchOptions = SINGLE
    _python: tuple[FunctionStep, ...] = ()
    _keep: tuple[str, ...] = ()
    _fuse: bool = False

    def __init__(self, source: sources.Source):
        if not isinstance(source, sources.Source):
            raise _other_libraries.source_error(source)
        object.__setattr__(self, "source", source)

    def shuffle(self, seed: int = 0, *, window: int | str | None = None) -> Self:
        """Shuffles the records with a new permutation for each epoch.

        The order is a function of ``seed``, epoch and position. It does not depend on
        the run, or on the number of workers and ranks. The seed also determines all
        random parameters of transforms.

        Records in shards are shuffled in windows: the shards are permuted, and then the
        records within a window of shards. A larger window mixes better, and a smaller
        one reads shards more sequentially. ``infeed inspect`` reports how well a window
        mixes. Records in separate files are always shuffled over the whole dataset.

        Args:
            seed: Integer from 0 to 2**64 - 1.
            window: Size of a window in bytes, such as ``"1 GiB"``, at least one shard.
                ``"all"``: the whole dataset. None: 512 MiB, or 64 MiB if a shard or row
                group can only be read as a whole and a window must fit into memory.
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
            orient: Whether to rotate and mirror images by their EXIF orientation. A
                TIFF is turned in any case, as by Pillow.
            verify: Whether to verify the checksums of image formats.
            dct_scale: Whether JPEGs may be decoded at a reduced scale before a resize
                that shrinks them. This is faster but changes pixels, so it is never
                automatic.
            max_pixels: Limit of pixels per image. A larger image is a bad record, and
                no memory is allocated for it. None: the engine's limit.
            **modes: Mode by field name: ``"rgb"``, ``"gray"``, ``"rgba"``, ``"stored"``
                (the stored 8-bit samples, or palette indices) or ``"stored16"``. The
                default is rgb for images. For masks it is rgb if a transform looks up
                their colours, else stored.

        Raises:
            ConfigError: An argument is invalid, or a transform or function precedes it.
        """
        if self._transforms or self._python:
            before = ".transform(...)" if self._transforms else self._python[0].call()
            raise ConfigError(
                f"decode: decoding comes before {before}; write .decode() before it"
            )
        modes_of_fields = tuple(sorted(modes.items()))
        return self._with(
            _decode=DecodeOptions(
                orient, verify, dct_scale, max_pixels, modes_of_fields
            )
        )

    def transform(
        self,
        *steps: transforms.Transform,
        layout: Literal["HWC", "CHW"] | None = None,
        dtype: Literal["uint8", "float32", "float16", "bfloat16"] | None = None,
        keep: Sequence[str] = (),
        fuse: bool | None = None,
    ) -> Self:
        """Adds transforms, applied in order, and sets the layout and type of images.

        Transforms that move pixels also move what `boxes` and `points` declare, and no
        other coordinates. If the name and shape of another field look like coordinates
        (``boxes``, ``keypoints``, ``polygon``; 2 to 5 numbers per row), opening the
        pipeline raises an error, unless the field is in ``keep``. If only the shape
        does, it logs a warning.

        Args:
            *steps: Transforms of `infeed.transforms`.
            layout: Layout of images and one-hot masks in the batch. None: no change;
                the default is HWC.
            dtype: Type of images in the batch. None: no change; the default is uint8,
                or float32 after ``ToFloat`` or ``Normalize``.
            keep: Names of fields that stay unchanged when pixels move or mix.
            fuse: Whether chains of random warps, and of linear changes of colours, each
                run as one step. It is faster, and the pixels differ from those of the
                single steps. It holds for all transforms of the pipeline. None: no
                change; the default is False.

        Raises:
            ConfigError: A step is not a transform, ``layout`` or ``dtype`` is invalid,
                or a function precedes it: transforms run before functions.
        """
        for step in steps:
            if not isinstance(step, transforms.Transform):
                raise _other_libraries.transform_error(step)
        if self._python:
            first = self._python[0].call()
            part = type(steps[0]).__name__ if steps else "layout and dtype"
            raise ConfigError(
                f"transform: {part} cannot run after {first}, because functions run "
                f"after all transforms; write .transform(...) before {first}, or do "
                "the same work in the function"
            )
        changes: dict[str, Any] = {"_transforms": self._transforms + steps}
        if isinstance(keep, str):
            raise _check.error("transform", "keep", f"a list, ({keep!r},)", keep)
        kept = [_check.field("transform", "keep", name) for name in keep]
        new = (name for name in dict.fromkeys(kept) if name not in self._keep)
        changes["_keep"] = (*self._keep, *new)
        if fuse is not None:
            changes["_fuse"] = _check.flag("transform", "fuse", fuse)
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
        max_tokens: int | None = None,
        lengths: Sequence[int] | np.ndarray | None = None,
        multiple_of: int | None = None,
        drop_last: bool = False,
        pad: bool = False,
        ragged: Literal["offsets", "pad"] | None = None,
        tail: Literal["keep", "drop", "pad", "wrap"] | None = None,
    ) -> Self:
        """Groups samples into batches, and checks the pipeline.

        Without it, each batch is one sample.

        Args:
            size: Samples per step over all ranks together; with ``max_tokens``, their
                maximum number.
            per_rank: Samples per step on each rank; use it instead of ``size``.
            max_tokens: Maximum of a step over all ranks together: its samples times the
                length of the longest one. Batches have samples of similar length, and
                the more samples the shorter they are. The sizes of the batches are the
                same in every epoch.
            lengths: With ``max_tokens``: one length per record of the source, selected
                or not. A pipeline file can only name an int64 array that is mapped from
                a file (``np.load(path, mmap_mode="r")``).
            multiple_of: With ``max_tokens``: the number of samples is a multiple of
                this, such as the number of ranks. None: 1.
            drop_last: Whether to drop a last batch that is not full; the same as
                ``tail="drop"``.
            pad: Whether to pad rows of different shapes with zeros to the largest row
                of their batch.
            ragged: Form of lists of different lengths, such as boxes. ``"offsets"``,
                the default: ``(values, offsets)``. ``"pad"``: one array with zeros
                after shorter lists, and a field ``<name>_count`` with the lengths.
            tail: Treatment of a last batch that is not full. ``"keep"``, the default,
                delivers it shorter; several ranks do not support that. ``"drop"``
                leaves it out. ``"pad"`` fills it with rows of zeros, and adds a field
                ``valid`` to all batches that marks the rows with a sample. ``"wrap"``
                fills it with the first records of the epoch, with other random draws.
                All but ``"keep"`` give each rank the same number of steps.

        Raises:
            ConfigError: The shape of a row does not follow from the description; the
                message names a transform that sets it. Raised when the pipeline is
                opened: a record is too long for ``max_tokens``, or the lengths are not
                one per record.
        """
        options = BatchOptions(
            size, per_rank, drop_last, pad, ragged, tail, max_tokens, multiple_of
        )
        kept = self._batch_lengths if max_tokens is not None else None
        column = kept if lengths is None else lengths_of_records(lengths)
        grouped = self._with(_batch=options, _batch_lengths=column)
        _core.check(grouped._json())
        return grouped

    def python(
        self,
        fn: Callable[..., Mapping[str, Any]],
        *,
        processes: int = 0,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
        deterministic: bool = False,
        version: int | None = None,
    ) -> Self:
        """Adds a function on samples, called after decode and transforms.

        The function receives a dictionary by field name: NumPy arrays with the shape of
        a row (a label has no axes), ``bytes`` and ``str``. It may change the arrays. It
        returns a dictionary that replaces the sample: arrays with the same type and
        shape for all samples, ``bytes`` or ``str``.

        A parameter ``rng``, or a second parameter without a default, receives a
        ``numpy.random.Generator`` that is seeded by seed, epoch and position. Its
        numbers do not depend on the number of workers and processes.

        Worker threads call the function under the interpreter's lock, so Python code
        runs for one sample at a time; `Loader.explain` reports the cost. A sample whose
        function raises an exception is a bad record. If the function sets the size of
        images, call this before `batch`.

        Args:
            fn: The function. If it can be imported by name, `save` writes the name.
            processes: Number of worker processes for the function, each with its own
                interpreter. The function must be picklable, so defined in a module, and
                captured values are copied. If a process dies, another one replaces it
                and repeats the sample; if that one dies too, the sample is a bad
                record. 0: this process.
            fields: Names of the fields that the function receives; the sample keeps the
                others. None: all fields, and the result is the whole sample.
            output: Result of the function by field name: a type such as ``"int64"``, a
                type and shape such as ``("float32", (3, 224, 224))``, ``"bytes"``,
                ``"text"``, or for lists of rows
                ``sources.Field(kind="ragged", dtype="float32", shape=(4,))``. None: a
                call with the first record finds it when the pipeline is opened.
            deterministic: Whether the function returns the same values whenever it gets
                the same sample. A cache keeps them, if no transform is random and all
                functions before are deterministic. Needs ``version``.
            version: Version of the results, from 0. Change it when the function, or
                anything that it uses, changes.

        Raises:
            ConfigError: ``fn`` takes other arguments, or cannot run in a process.
        """
        step = FunctionStep.from_arguments(
            fn,
            processes=processes,
            fields=fields,
            output=output,
            deterministic=deterministic,
            version=version,
        )
        return self._with(_python=(*self._python, step))

    def python_batch(
        self,
        fn: Callable[..., Mapping[str, Any]],
        *,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
    ) -> Self:
        """Adds a function on whole batches, called on a worker thread.

        It works like `python`, with arrays ``[rows, ...]``, lists of ``bytes`` or
        ``str``, and ``(values, offsets)`` for ragged fields. It returns arrays with the
        same number of rows. An array that it changed in place, and a list that it
        returns unchanged, are not copied.

        Its generator is seeded by seed, epoch and the position of the batch's first
        row. With several ranks each call sees the rows of one rank, so a state cannot
        be loaded with another number of ranks. An exception stops the run.

        Args:
            fn: The function.
            fields: As in `python`.
            output: As in `python`, for one row of the batch.

        Raises:
            ConfigError: ``fn`` takes other arguments.
        """
        step = FunctionStep.from_arguments(fn, batch=True, fields=fields, output=output)
        return self._with(_python=(*self._python, step))

    @_other_libraries.reject_others
    def open(
        self,
        *,
        workers: int | Literal["auto"] | FeederGroup = "auto",
        memory: int | str | None = None,
        cache: int | str | Cache | None = None,
        rank: int = 0,
        world_size: int = 1,
        on_error: Literal["stop", "substitute", "skip"] = "stop",
        max_bad: int | None = None,
        io_threads: int | None = None,
        timeline: float | None = None,
        stall: float | None = 10.0,
        digest: Literal["ids", "pixels"] = "ids",
        device: str | None = None,
        devices: Sequence[str] | None = None,
        placement: Literal["auto", "host", "device", "device-resize"] = "auto",
        decode: Literal["auto", "cpu", "gpu"] | float = "auto",
        slots: int = _core.SLOTS,
        epoch_records: int | None = None,
    ) -> Loader:
        """Lists the data, starts the threads and prepares the first batch.

        Args:
            workers: Number of threads that decode and transform. ``"auto"`` starts with
                the cores that this process may use, shared with the other ranks, and
                changes the number while the loop runs, up to the point where more
                threads do not shorten the step. With `Feeders` or `infeed.ray.Feeders`,
                other machines make batches too.
            memory: Budget for batches, read-ahead and decoding, such as ``"2GiB"``.
                None: computed from the sizes of all records, or of 10 000, at most
                half of the free memory.
            cache: Memory for decoded records of later epochs, or an `infeed.Cache`.
                ``"auto"`` is half of the free memory. Loaders of equal data share it.
            rank: Number of this process among the training processes, from 0.
            world_size: Number of training processes.
            on_error: Treatment of a bad record. ``"stop"`` raises an error at its
                position. ``"substitute"`` takes another record, the same one on every
                run. ``"skip"`` makes the batch shorter; it cannot be used with several
                ranks or a ``tail`` other than ``"keep"``.
            max_bad: Number of bad records after which one more stops the run. A record
                that is bad in every epoch counts once.
            io_threads: Number of threads that read. None: 4 for files, 64 for object
                storage and web servers.
            stall: Seconds of waiting for one batch after which the ``infeed`` logger
                reports which stage waits for which. None: never.
            timeline: Seconds of timeline to record, for `Loader.explain`.
            digest: Content of `Loader.digest`: ``"ids"`` covers records, ``"pixels"``
                also covers the delivered bytes, which the workers hash.
            device: Device on which batches are delivered: ``"cuda"``, ``"cuda:1"``, or
                ``"sim"``, which simulates a device, also with rates, such as
                ``"sim:bandwidth=2e9,latency=20us"``. None: host memory. Arrays of fixed
                shape are copied to the device ahead of the step; ragged fields, bytes
                and text stay in host memory.
            devices: Several devices, named as in ``device``. Each batch is split into
                equal parts, one per device in order, and each step returns a tuple of
                the parts. The batch size must be divisible by their number.
            placement: Where rows are expanded to floats or one-hot masks: on the
                ``"host"``, or on the ``"device"``, so that fewer bytes are copied;
                ``"device-resize"`` also resizes images there. ``"auto"`` tries the
                useful ones while the loop runs, and keeps the one with the shortest
                step. All placements give the same bits.
            decode: Decoder of baseline JPEGs: ``"cpu"``, or ``"gpu"``, which also
                resizes them; its pixels are close to the CPU's but not equal. The CPU
                decodes all other files. A number between 0 and 1 is the share of
                records that the GPU decodes, in sixteenths, always the same ones.
                ``"auto"`` does not change bits, so it means ``"cpu"``. A state cannot
                be loaded with another decoder.
            slots: Number of batches on the device at once, including the one in the
                training loop, at least 2.
            epoch_records: Number of records of an epoch, which the program chooses with
                `Loader.begin_epoch`. None: the pipeline has the order.

        Raises:
            ConfigError: An option is unknown, arguments contradict each other, the
                number of ranks does not divide the batch, or a feeder cannot serve this
                run.
            DeviceError: The device cannot be opened, is out of memory, or has no
                decoder that ``decode`` needs.
            BudgetError: ``memory``, or what open loaders leave, is too small for two
                batches.
            OpenError: The data cannot be listed.
        """
        feeders = workers if isinstance(workers, FeederGroup) else None
        feeding = None
        if feeders is not None:
            workers = feeders.workers or "auto"
            feeders._check_data(bool(self.source._buffers() or self._memory_arrays()))
            feeding = (
                feeders._hosts(),
                feeders.local == "help",
                feeders.deadline,
                feeders.encrypt,
            )
        if workers != "auto":
            if isinstance(workers, str):
                expected = '"auto", an integer of at least 1, or feeders'
                raise _check.error("open", "workers", expected, workers)
            workers = _check.integer("open", "workers", workers, low=1)
        max_bad = _check.convert("open", "max_bad", max_bad, int | None)
        io_threads = _check.convert("open", "io_threads", io_threads, int | None, 1)
        if timeline is not None:
            timeline = _check.number("open", "timeline", timeline, low=0)
        if stall is not None:
            stall = _check.number("open", "stall", stall, low=0)
        world_size = _check.integer("open", "world_size", world_size, low=1)
        rank = _check.integer("open", "rank", rank)
        if rank >= world_size:
            raise _check.error("open", "rank", f"below world_size={world_size}", rank)
        number = _check.convert("open", "epoch_records", epoch_records, int | None, 1)
        policies = ("stop", "substitute", "skip")
        if device is not None and not isinstance(device, str):
            raise _check.error("open", "device", 'a name such as "cuda:0"', device)
        if device == "cpu":
            # Scripts often choose "cpu" if there is no GPU.
            device = None
        if devices is not None:
            if device is not None:
                raise ConfigError("open: device and devices are both set; set one")
            _check.device_names(devices)
        core = _core.Loader(
            self._json(),
            self._handles(),
            workers=None if workers == "auto" else workers,
            memory=None if memory is None else _check.size_bytes(memory),
            cache=Cache.of(cache),
            rank=rank,
            world_size=world_size,
            on_error=_check.choice("open", "on_error", on_error, policies),
            max_bad=max_bad,
            io_threads=io_threads,
            timeline_s=timeline,
            stall_s=stall,
            digest=_check.choice("open", "digest", digest, ("ids", "pixels")),
            devices=[device] if device is not None else devices,
            placement=_check.choice("open", "placement", placement, _PLACEMENTS),
            decode=_check.decoder("open", decode),
            slots=_check.integer("open", "slots", slots, low=2),
            feeders=feeding,
            epoch_records=number,
        )
        parts = 0 if devices is None else len(devices)
        if feeders is None or feeding is None:
            return Loader(core, parts)
        # The loader's threads run already, so an error must close it.
        try:
            return Loader(core, parts, feeders._begin(self._json(), feeding[0]))
        except BaseException:
            core.close()
            raise

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._default_loader())

    def __len__(self) -> int:
        """Raises an error: only an open loader has a length.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a Pipeline has no length; len(pipeline.open()) is the number of steps. "
            "Instead of torch.utils.data.DataLoader(pipeline) use "
            "infeed.torch.Loader(pipeline)"
        )

    def __bool__(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the loop; see `Loader.state_dict`."""
        return self._default_loader().state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resumes a run: the next ``for`` loop delivers the rest of its epoch.

        Args:
            state: Result of `state_dict`.
            strict: As in `Loader.load_state_dict`.

        Raises:
            ConfigError: As in `Loader.load_state_dict`.
        """
        self._default_loader().load_state_dict(state, strict=strict)

    def _default_loader(self) -> Loader:
        """Returns the loader that ``for`` uses; opens it with defaults if needed."""
        loader: Loader | None = self.__dict__.get("_loader")
        if loader is None or loader.closed:
            loader = self.open()
            object.__setattr__(self, "_loader", loader)
        return loader

    def preview(self, position: int, epoch: int = 0) -> Preview:
        """Runs one sample through all stages and returns the result of each stage.

        It runs on the calling thread and opens no loader.

        Args:
            position: Position in the order of the epoch, from 0.
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
        """Returns the plan as text, without running the pipeline.

        It lists the stages of each field, with crops that the decoder makes and passes
        that are merged.

        Args:
            placement: Plan for a device with this placement; see `open`. None: batches
                on the host.
            decode: As in `open`; another value than ``"auto"`` plans for a device.
                ``infeed explain --device cuda:0`` in the shell measures the gain.

        Raises:
            ConfigError: As in `open`.
            OpenError: As in `open`.
        """
        on_device = None
        if placement is not None or decode != "auto":
            requested = "auto" if placement is None else placement
            place = _check.choice("explain", "placement", requested, _PLACEMENTS)
            on_device = (place, _check.decoder("explain", decode))
        return _core.plan(self._json(), self._handles(), on_device)

    @property
    def shapes(self) -> Mapping[str, Column]:
        """Columns of a full batch, by field name, in order.

        Raises:
            ConfigError: As in `open`.
            OpenError: As in `open`; the fields of a folder depend on its files.
        """
        differ = self._batch.max_tokens is not None
        rows = None if differ else self._batch.size or self._batch.per_rank
        described = _core.describe(self._json(), self._handles())
        return {
            name: Column.of_row(kind, dtype, rows, shape)
            for name, kind, dtype, shape in described
        }

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of a batch, in order."""
        return tuple(self.shapes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the description as TOML, which `load` and ``infeed bench`` read.

        Relative paths refer to the current folder. In the file they are relative to the
        folder of the file.

        Raises:
            OpenError: The file cannot be written.
            ConfigError: The source, an array of weights or a function exists only in
                memory; the message names it. Arrays that are mapped from files
                (``mmap_mode="r"``) can be saved.
        """
        if isinstance(self.source, sources.Memory) and self.source._buffers():
            raise ConfigError(
                "save: the source holds data in memory, which a file cannot describe; "
                'load the arrays with np.load(path, mmap_mode="r")'
            )
        _core.save(self._json(), os.fspath(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        allow_functions: Sequence[str] = (),
    ) -> Self:
        """Reads a description from a file.

        A file can name Python functions. infeed imports a function only if one of the
        two arguments allows it, so a file from an untrusted source cannot run code.

        Args:
            path: Path of the file, or of the folder or bucket of a packed dataset.
                Paths in the file are relative to the folder of the file, so file and
                data can be moved together.
            functions: Functions by the name that the file uses.
            allow_functions: Names that may be imported, such as
                ``"mypackage.augment:blur"`` or ``"mypackage.augment:*"``. A ``*`` after
                the colon allows all functions that the module itself defines.

        Raises:
            ConfigError: The file does not describe a pipeline, names a function that
                neither argument allows, or belongs to an incomplete dataset.
            OpenError: The file cannot be read.
        """
        trusted = AllowedFunctions.from_arguments(functions, allow_functions)
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
        steps += self._declared_code()
        settings = [repr(step) for step in self._transforms]
        if self._layout != "HWC":
            settings.append(f"layout={_code.value(self._layout)}")
        if self._dtype is not None:
            settings.append(f"dtype={_code.value(self._dtype)}")
        if self._keep:
            settings.append(f"keep={_code.value(self._keep)}")
        if self._fuse:
            settings.append("fuse=True")
        if settings:
            steps.append(_code.method("transform", settings))
        # Before `.batch`, a function may bring all images to one size.
        steps += [step.code() for step in self._python if not step.batch]
        if self._batch != SINGLE:
            lengths = self._batch_lengths
            summary = None if lengths is None else lengths.summary()
            steps.append(self._batch.code(summary))
        steps += [step.code() for step in self._python if step.batch]
        if len(steps) == 1:
            return steps[0]
        return "(\n" + "".join(f"{_code.INDENT}{step}\n" for step in steps) + ")"

    def __getstate__(self) -> dict[str, Any]:
        """Returns the description without the loader, which stays in its process."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def _with(self, **changes: Any) -> Self:
        new = object.__new__(type(self))
        for name, item in (self.__getstate__() | changes).items():
            object.__setattr__(new, name, item)
        return new

    def _buffers(self) -> list[Any]:
        """Returns the buffers that the description refers to by number."""
        functions = [step.handle() for step in self._python if not step.importable]
        return [*self.source._buffers(), *self._memory_arrays(), *functions]

    def _handles(self) -> list[Any]:
        """Returns the buffers, and the functions that the description names."""
        named = [step.handle() for step in self._python if step.importable]
        return [*self._buffers(), *named]

    def _json(self) -> str:
        return json.dumps(self._to_dict())

    def _to_dict(self) -> dict[str, Any]:
        description: dict[str, Any] = {
            "version": _VERSION,
            "source": self.source._to_dict(),
        }
        # Buffers of the selection are numbered after those of the source.
        first = len(self.source._buffers()) if self._memory_arrays() else 0
        description |= self._selection_to_dict(first)
        if self._seed is not None:
            shuffle: dict[str, Any] = {"seed": self._seed}
            if self._window is not None:
                shuffle["window"] = self._window
            description["shuffle"] = shuffle
        if self._decode is not None:
            decode = set_values(self._decode)
            decode["modes"] = dict(self._decode.modes)
            description["decode"] = decode
        description |= self._declared_to_dict()
        description["transforms"] = [step._to_dict() for step in self._transforms]
        output = {"layout": self._layout, "dtype": self._dtype}
        description["output"] = {
            name: item for name, item in output.items() if item is not None
        }
        if self._keep:
            description["keep"] = list(self._keep)
        if self._fuse:
            description["fuse"] = True
        description["batch"] = set_values(self._batch)
        if self._python:
            description["python"] = self._functions_to_dict()
        return description

    def _functions_to_dict(self) -> list[dict[str, Any]]:
        """Returns the functions. Numbers of those without a name follow the buffers."""
        held = [step for step in self._python if not step.importable]
        first = len(self._buffers()) - len(held) if held else 0
        numbers = {id(step): first + at for at, step in enumerate(held)}
        return [step.to_dict(numbers.get(id(step))) for step in self._python]

    @classmethod
    def _from_dict(
        cls,
        description: dict[str, Any],
        functions: tuple[FunctionStep, ...] | None = None,
        trusted: AllowedFunctions = _NOTHING,
    ) -> Self:
        """Builds a pipeline with `functions`, or the allowed ones that it names."""
        new = cls(sources.from_dict(description["source"]))
        new = new._selected_by(description)
        if (shuffle := description.get("shuffle")) is not None:
            new = new.shuffle(**shuffle)
        if (decode := description.get("decode")) is not None:
            settings = {k: v for k, v in decode.items() if k != "modes"}
            new = new.decode(**settings, **decode.get("modes", {}))
        new = new._declared_by(description)
        steps = map(transforms.from_dict, description.get("transforms", []))
        settings = {
            key: description[key] for key in ("keep", "fuse") if key in description
        }
        new = new.transform(*steps, **description.get("output", {}), **settings)
        if functions is None:
            steps = description.get("python", ())
            functions = tuple(FunctionStep.from_dict(step, trusted) for step in steps)
        new = new._with(_python=functions)
        if (batch := description.get("batch")) is not None:
            new = new.batch(**batch)
        return new
