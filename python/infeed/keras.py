"""infeed in Keras: a PyDataset for `model.fit`, on any of its backends."""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from infeed import _check
from infeed._copying import Copies
from infeed._feed import Feed
from infeed.batch import Batch, numpy_from
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["Dataset"]


class Dataset(Feed, keras.utils.PyDataset):
    """The batches of a pipeline as a PyDataset.

    ::

        model.fit(
            infeed.keras.Dataset(train),
            validation_data=infeed.keras.Dataset(validation),
            epochs=90,
        )

    The threads are infeed's, so `workers` is 1 and `use_multiprocessing` off. Arrays
    are NumPy's over the memory of the batch; what the backend copies it copies itself.

    With ``device="cuda"`` they are on the card already: arrays that JAX copies there
    one batch ahead, or tensors of PyTorch over the batch's memory. Keras on TensorFlow
    takes the data of ``fit`` on the host. ``"sim"`` simulates a device, and gives
    arrays on the CPU.

    With a `keras.distribution.DataParallel` on JAX, name all of its devices::

        keras.distribution.set_distribution(keras.distribution.DataParallel())
        model = ...
        model.fit(infeed.keras.Dataset(train, devices=["cuda:0", "cuda:1"]))

    The order is the pipeline's, another one each epoch where it shuffles. ``shuffle=``
    of ``fit`` has no say: batches are given in the order in which they are asked for,
    whatever number Keras asks for. Keras looks at batches before it trains, and may
    leave an epoch early; such an epoch is begun again, so that the first epoch of
    ``fit`` is the first one of the pipeline.

    Args:
        pipeline: What to read.
        inputs: Field that the model is given, or several, which it is given as a dict.
            None: the first field.
        targets: Field or fields of the targets. None: the second field of a pipeline
            with two; none if it has one.
        sample_weight: Field of the weights; ``"valid"`` where the last batch is padded.
        **options: As for `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is not one of the above, or which fields are inputs
            and targets does not follow; or a device is named, and Keras takes its data
            on the host.
        DeviceError: When it is opened: the backend has not the card that is named.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: str | Sequence[str] | None = None,
        targets: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        **options: Any,
    ):
        Feed.__init__(self, pipeline, options)
        if self.device is not None:
            _check_backend(self._options.get("devices"))
        keras.utils.PyDataset.__init__(self, workers=1, use_multiprocessing=False)
        self._parts = _parts(pipeline, inputs, targets, sample_weight)
        self._lock = threading.Lock()
        self._pass: Any = None
        self._taken = 0
        # Where the pass began that is under way, and whether another one begins now.
        self._start = 0
        self._anew = True

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, for Keras, which asks when it is about to begin one.

        That is the one sign that the last one was left early; count with ``len``.
        """
        with self._lock:
            self._anew = True
        return len(self)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The next batch, whatever ``index`` is."""
        with self._lock:
            if self._anew and 0 < self._taken < len(self):
                # It was left early.
                self._rewind(self._start)
            if self._pass is None or self._taken == len(self):
                self._start, self._taken = self.epoch, 0
                self._pass = self._begun()
            self._anew = False
            batch: tuple[Any, ...] = next(self._pass)
            self._taken += 1
            return batch

    def set_epoch(self, epoch: int) -> None:
        """Makes the epoch of that number the next one; nothing where it is that.

        Keras does not tell its data which epoch it is in. For a run that does not begin
        with the first one::

            follow = lambda epoch, logs: data.set_epoch(epoch)
            callbacks = [keras.callbacks.LambdaCallback(on_epoch_begin=follow)]
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        with self._lock:
            self._rewind(epoch)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, strict: bool = True
    ) -> None:
        """Goes on at the beginning of the epoch in which the state was taken.

        Not within it: Keras begins no epoch in its middle, and its own checkpoints
        (`BackupAndRestore`) are taken up at the beginning of theirs too.

        Args:
            state_dict: What `state_dict` gave.
            strict: As for `infeed.Loader.load_state_dict`.

        Raises:
            ConfigError: The state is of another run; the message names what differs.
        """
        with self._lock:
            begun = {**state_dict, "position": 0}
            super().load_state_dict(begun, strict=strict)
            self._pass, self._taken, self._anew = None, 0, True

    def _rewind(self, epoch: int) -> None:
        """Puts the loader at the beginning of an epoch, if it is not there."""
        state = self.state_dict()
        if (state["epoch"], state["position"]) != (epoch, 0):
            self._go_to(epoch)
        self._pass, self._taken, self._anew = None, 0, True

    def _begun(self) -> Iterator[Any]:
        """The next epoch, in the backend's arrays where they are on a device."""
        if self.device is None:
            return self._begin(self._converted)
        if keras.backend.backend() == "torch":
            return self._begin(self._lent)
        from infeed import _jax_copies

        # Nothing in it leads to this object, which holds the loop that ends its thread.
        form = functools.partial(_parted, self._parts)
        names = {name for part in self._parts for name in _fields(part)}
        steps = len(self.loader)
        devices = self._options.get("devices")
        if devices is None:
            copies = Copies(steps, form, [_jax_copies.copies], numpy_from, names)
            return self._begin_ahead(copies)
        over = _over(devices)

        def joined(*parts: dict[str, Any]) -> tuple[Any, ...]:
            return form(over.joined(*parts))

        copies = Copies(steps, joined, over.copies(), numpy_from, names)
        return self._begin_ahead(copies)

    def _settled(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.device is None:
            return options
        if (devices := options.get("devices")) is not None:
            return options | {"devices": _over(devices).names}
        if keras.backend.backend() == "jax":
            from infeed import _jax_copies

            return options | {"device": _jax_copies.named(self.device)}
        import torch

        # As PyTorch means it: the card that this process chose.
        if self.device == "cuda" and torch.cuda.is_available():
            return options | {"device": f"cuda:{torch.cuda.current_device()}"}
        return options

    def _lent(self, batch: Batch) -> tuple[Any, ...]:
        """A batch as tensors of PyTorch over its memory."""
        import torch

        names = {name for part in self._parts for name in _fields(part)}
        lent = {name: torch.from_dlpack(batch.array(name)) for name in names}
        return _parted(self._parts, lent)

    def _converted(self, batch: Batch) -> tuple[Any, ...]:
        return _parted(self._parts, batch)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an infeed.keras.Dataset stays in its process: its work is done by threads "
            "of infeed; leave use_multiprocessing off"
        )


def _check_backend(devices: Sequence[str] | None) -> None:
    """Refuses a device where Keras would bring its batches back to the host.

    Raises:
        ConfigError: As said.
    """
    backend = keras.backend.backend()
    if backend not in ("jax", "torch"):
        raise ConfigError(
            f"Dataset: Keras on {backend} takes the data of fit on the host; leave out "
            "device, train on JAX or PyTorch, or write the loop with infeed.tensorflow"
        )
    if devices is not None and backend == "torch":
        raise ConfigError(
            "Dataset: Keras on PyTorch trains on one card in a process; start one for "
            "each, with rank, world_size and device, or write the loop with "
            "infeed.torch, which takes devices"
        )
    distribution = keras.distribution.distribution()
    if devices is None and distribution is not None:
        raise ConfigError(
            "Dataset: a keras.distribution places batches itself, from the host; leave "
            "out device, or, on JAX, name all of its devices by devices=[...]"
        )
    if devices is not None and distribution is None:
        raise ConfigError(
            f"Dataset: devices={list(devices)} needs a distribution, or Keras trains "
            "on one of them; call keras.distribution.set_distribution("
            "keras.distribution.DataParallel()) before the model is made, or use device"
        )


def _over(devices: Sequence[str]) -> Any:
    """The devices, and how the distribution of Keras lays rows out over them.

    Raises:
        ConfigError: They are not the distribution's, or those are in several processes.
        DeviceError: JAX has not the device that is named.
    """
    from infeed import _jax_copies

    distribution = keras.distribution.distribution()
    sharding = distribution.get_data_layout((None,)).backend_layout
    if not sharding.is_fully_addressable:
        raise ConfigError(
            "Dataset: the distribution's devices are in several processes, of which "
            "Keras takes the rows of each from the host; leave out devices, or write "
            "the loop with infeed.jax"
        )
    return _jax_copies.Over(devices, sharding)


def _parted(parts: tuple[Any, ...], fields: Any) -> tuple[Any, ...]:
    """Inputs, targets and weights of a batch, or of a dict of its columns."""

    def taken(names: Any) -> Any:
        if isinstance(names, str):
            return fields[names]
        return {name: fields[name] for name in names}

    return tuple(taken(names) for names in parts)


def _fields(part: Any) -> tuple[str, ...]:
    """The fields of a part, which is one or several."""
    return (part,) if isinstance(part, str) else tuple(part)


def _parts(
    pipeline: Pipeline, inputs: Any, targets: Any, sample_weight: str | None
) -> tuple[Any, ...]:
    """Fields of inputs, targets and weights: a name, or several."""
    if not isinstance(pipeline, Pipeline):
        # `Feed` has refused it with its own words.
        return ()
    columns = pipeline.shapes
    fields = tuple(columns)
    given = inputs is not None or targets is not None or sample_weight is not None
    if not given and len(fields) > 2:
        padded = pipeline._batch.tail == "pad"
        weight = ', and sample_weight="valid"' if padded else ""
        raise ConfigError(
            f"Dataset: which of the fields {', '.join(fields)} are what? Name inputs "
            f"and targets{weight}"
        )
    if inputs is None:
        inputs = fields[0]
    if targets is None and not given and len(fields) == 2:
        targets = fields[1]
    if sample_weight is not None and targets is None:
        raise ConfigError("Dataset: sample_weight needs targets; name them too")
    parts = [part for part in (inputs, targets, sample_weight) if part is not None]
    for name in (name for part in parts for name in _fields(part)):
        if name not in columns:
            raise ConfigError(
                f"Dataset: there is no field {name!r}; there are {', '.join(fields)}"
            )
        if columns[name].kind != "array":
            raise ConfigError(
                f"Dataset: the field {name!r} is {columns[name].kind}, which Keras "
                "does not take; leave it out by naming inputs and targets"
            )
    return tuple(part if isinstance(part, str) else tuple(part) for part in parts)
