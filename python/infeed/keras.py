"""infeed for Keras: a PyDataset for `model.fit`, on any backend."""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from infeed import _check
from infeed._adapter import AdapterLoader
from infeed._device_copies import BatchCopier
from infeed.batch import Batch, numpy_from
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["Dataset"]


class Dataset(AdapterLoader, keras.utils.PyDataset):
    """The batches of a pipeline as a PyDataset.

        model.fit(
            infeed.keras.Dataset(train),
            validation_data=infeed.keras.Dataset(validation),
            epochs=90,
        )

    infeed's own threads make the batches, so `workers` is 1 and `use_multiprocessing`
    is off. Arrays are NumPy arrays over the batch's memory, which the backend copies.

    With ``device="cuda"`` the arrays are on the GPU: JAX arrays, copied there one batch
    ahead, or PyTorch tensors, as from `infeed.torch.Loader`. Keras on TensorFlow takes
    the data of ``fit`` from host memory only. ``"sim"`` simulates a device, and the
    arrays are on the CPU.

    With a `keras.distribution.DataParallel` on JAX, name all of its devices:

        keras.distribution.set_distribution(keras.distribution.DataParallel())
        model = ...
        model.fit(infeed.keras.Dataset(train, devices=["cuda:0", "cuda:1"]))

    The order is that of the pipeline. The argument ``shuffle`` of ``fit`` has no
    effect: batches come in order, whichever index Keras asks for. Keras may look at
    batches before it trains, and may leave an epoch early. Such an epoch begins again,
    so the first epoch of ``fit`` is the first epoch of the pipeline.

    Args:
        pipeline: The pipeline.
        inputs: Field that the model receives; or several fields, which it receives as a
            dict. None: the first field.
        targets: Field or fields of the targets. None: the second field, if there are
            two; no targets, if there is one.
        sample_weight: Field of the weights; use ``"valid"`` with ``tail="pad"``.
        **options: As in `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is invalid, inputs and targets are ambiguous, or a
            device is set and Keras takes its data from host memory.
        DeviceError: Raised when the pipeline is opened: the backend does not see the
            GPU.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: str | Sequence[str] | None = None,
        targets: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        **options: Any,
    ):
        AdapterLoader.__init__(self, pipeline, options)
        if self.device is not None:
            _check_backend(self._options.get("devices"))
        keras.utils.PyDataset.__init__(self, workers=1, use_multiprocessing=False)
        self._parts = _parts(pipeline, inputs, targets, sample_weight)
        self._lock = threading.Lock()
        self._pass: Any = None
        self._taken = 0
        # Epoch of the current pass, and whether the next batch begins a pass.
        self._start = 0
        self._begins_pass = True

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch. Keras reads it before it begins an epoch.

        No other call shows that the last epoch was left early. Use ``len`` to count.
        """
        with self._lock:
            self._begins_pass = True
        return len(self)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Returns the next batch, for any `index`."""
        with self._lock:
            if self._begins_pass and 0 < self._taken < len(self):
                # Keras left the epoch early.
                self._rewind(self._start)
            if self._pass is None or self._taken == len(self):
                self._start, self._taken = self.epoch, 0
                self._pass = self._begin_epoch()
            self._begins_pass = False
            batch: tuple[Any, ...] = next(self._pass)
            self._taken += 1
            return batch

    def set_epoch(self, epoch: int) -> None:
        """Sets the next epoch; no effect if it comes next anyway.

        Keras does not pass the epoch to its data. For a run that does not begin with
        epoch 0, use a callback:

            follow = lambda epoch, logs: data.set_epoch(epoch)
            callbacks = [keras.callbacks.LambdaCallback(on_epoch_begin=follow)]
        """
        epoch = _check.integer("set_epoch", "epoch", epoch)
        with self._lock:
            self._rewind(epoch)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, strict: bool = True
    ) -> None:
        """Resumes at the beginning of the state's epoch.

        It does not resume in the middle, because Keras begins all epochs at their
        start, also after its own checkpoints (`BackupAndRestore`).

        Args:
            state_dict: Result of `state_dict`.
            strict: As in `infeed.Loader.load_state_dict`.

        Raises:
            ConfigError: The state belongs to another run; the message names the
                differences.
        """
        with self._lock:
            begun = _check.state("load_state_dict", state_dict) | {"position": 0}
            super().load_state_dict(begun, strict=strict)
            self._pass, self._taken, self._begins_pass = None, 0, True

    def _rewind(self, epoch: int) -> None:
        """Moves the loader to the beginning of an epoch, if it is elsewhere."""
        state = self.state_dict()
        if (state["epoch"], state["position"]) != (epoch, 0):
            self._go_to(epoch)
        self._pass, self._taken, self._begins_pass = None, 0, True

    def _begin_epoch(self) -> Iterator[Any]:
        """Begins the next epoch; on a device, in arrays of the backend."""
        if self.device is None:
            return self._begin(self._convert_batch)
        if keras.backend.backend() == "torch":
            return self._begin(self._as_tensors)
        from infeed import _jax_copies

        # It must not refer to this object, which holds the loop that ends its thread.
        split_batch = functools.partial(_split_batch, self._parts)
        names = {name for part in self._parts for name in _fields(part)}
        steps = len(self.loader)
        devices = self._options.get("devices")
        if devices is None:
            copies = BatchCopier(
                steps, split_batch, [_jax_copies.copy_arrays], numpy_from, names
            )
            return self._begin_ahead(copies)
        over = _over(devices)

        def join(*parts: dict[str, Any]) -> tuple[Any, ...]:
            return split_batch(over.join(*parts))

        copies = BatchCopier(steps, join, over.copies(), numpy_from, names)
        return self._begin_ahead(copies)

    def _resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.device is None:
            return options
        if (devices := options.get("devices")) is not None:
            return options | {"devices": _over(devices).names}
        if keras.backend.backend() == "jax":
            from infeed import _jax_copies

            return options | {"device": _jax_copies.device_name(self.device)}
        import torch

        # In PyTorch "cuda" means the GPU that this process has chosen.
        if self.device == "cuda" and torch.cuda.is_available():
            return options | {"device": f"cuda:{torch.cuda.current_device()}"}
        return options

    def _as_tensors(self, batch: Batch) -> tuple[Any, ...]:
        """Returns a batch as PyTorch tensors."""
        from infeed._torch_tensors import tensor_of

        names = {name for part in self._parts for name in _fields(part)}
        tensors = {name: tensor_of(batch.array(name)) for name in names}
        return _split_batch(self._parts, tensors)

    def _convert_batch(self, batch: Batch) -> tuple[Any, ...]:
        return _split_batch(self._parts, batch)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an infeed.keras.Dataset cannot be sent to another process: its threads "
            "make the batches; leave use_multiprocessing off"
        )


def _check_backend(devices: Sequence[str] | None) -> None:
    """Checks that Keras on this backend can take batches from a device.

    Raises:
        ConfigError: It would copy them back to host memory.
    """
    backend = keras.backend.backend()
    if backend not in ("jax", "torch"):
        raise ConfigError(
            f"Dataset: Keras on {backend} takes the data of fit from host memory; "
            "leave out device, train on JAX or PyTorch, or write a loop with "
            "infeed.tensorflow"
        )
    if devices is not None and backend == "torch":
        raise ConfigError(
            "Dataset: Keras on PyTorch trains on one GPU per process; start a process "
            "for each, with rank, world_size and device, or write a loop with "
            "infeed.torch, which supports devices"
        )
    distribution = keras.distribution.distribution()
    if devices is None and distribution is not None:
        raise ConfigError(
            "Dataset: a keras.distribution copies batches from host memory itself; "
            "leave out device, or, on JAX, name all of its devices in devices=[...]"
        )
    if devices is not None and distribution is None:
        raise ConfigError(
            f"Dataset: devices={list(devices)} needs a distribution, otherwise Keras "
            "trains on one of them; call keras.distribution.set_distribution("
            "keras.distribution.DataParallel()) before making the model, or use device"
        )


def _over(devices: Sequence[str]) -> Any:
    """Returns the devices, with the sharding of Keras's distribution.

    Raises:
        ConfigError: The devices are not those of the distribution, or the distribution
            spans several processes.
        DeviceError: JAX does not see a device.
    """
    from infeed import _jax_copies

    distribution = keras.distribution.distribution()
    sharding = distribution.get_data_layout((None,)).backend_layout
    if not sharding.is_fully_addressable:
        raise ConfigError(
            "Dataset: the distribution spans several processes, and Keras then takes "
            "rows from host memory; leave out devices, or write a loop with infeed.jax"
        )
    return _jax_copies.DeviceArrays(devices, sharding)


def _split_batch(parts: tuple[Any, ...], fields: Any) -> tuple[Any, ...]:
    """Returns inputs, targets and weights of a batch, or of a dict of its columns."""

    def take(names: Any) -> Any:
        if isinstance(names, str):
            return fields[names]
        return {name: fields[name] for name in names}

    return tuple(take(names) for names in parts)


def _fields(part: Any) -> tuple[str, ...]:
    """Returns the fields of a part, which is a name or several names."""
    return (part,) if isinstance(part, str) else tuple(part)


def _parts(
    pipeline: Pipeline, inputs: Any, targets: Any, sample_weight: str | None
) -> tuple[Any, ...]:
    """Returns the fields of inputs, targets and weights: a name, or several names."""
    if not isinstance(pipeline, Pipeline):
        # `AdapterLoader` has raised an error already.
        return ()
    columns = pipeline.shapes
    fields = tuple(columns)
    given = inputs is not None or targets is not None or sample_weight is not None
    if not given and len(fields) > 2:
        padded = pipeline._batch.tail == "pad"
        weight = ', and sample_weight="valid"' if padded else ""
        raise ConfigError(
            f"Dataset: inputs and targets are ambiguous for the fields "
            f"{', '.join(fields)}; set inputs and targets{weight}"
        )
    if inputs is None:
        inputs = fields[0]
    if targets is None and not given and len(fields) == 2:
        targets = fields[1]
    if sample_weight is not None and targets is None:
        raise ConfigError("Dataset: sample_weight needs targets; set targets too")
    parts = [part for part in (inputs, targets, sample_weight) if part is not None]
    for name in (name for part in parts for name in _fields(part)):
        if name not in columns:
            raise ConfigError(
                f"Dataset: no field {name!r}; the fields are {', '.join(fields)}"
            )
        if columns[name].kind != "array":
            raise ConfigError(
                f"Dataset: the field {name!r} is {columns[name].kind}, which Keras "
                "does not accept; set inputs and targets without it"
            )
    return tuple(part if isinstance(part, str) else tuple(part) for part in parts)
