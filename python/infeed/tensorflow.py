"""infeed for TensorFlow: batches as tensors, and as a `tf.data.Dataset`."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from infeed import _core
from infeed._adapter import AdapterLoader, BatchType
from infeed._device_copies import BatchCopier, gpu_error
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, DeviceError
from infeed.pipeline import Column, Pipeline

__all__ = ["Loader"]


class Loader(AdapterLoader):
    """The batches of a pipeline as TensorFlow tensors.

        loader = infeed.tensorflow.Loader(pipeline)
        model.fit(loader.dataset(), epochs=90)

        for batch in loader:  # a custom loop: no copy is made
            train_step(batch)

    Each ``for`` loop, and each pass over `dataset`, is the next epoch. If another one
    is in the middle of an epoch, that epoch ends.

    Ragged fields are RaggedTensors; bytes and text are tensors of ``tf.string``.

    With ``device="cuda"`` the tensors of a loop are on the GPU: copies that TensorFlow
    makes there, one batch ahead of the loop. Ragged fields, bytes and text stay in host
    memory. ``"sim"`` simulates a device, and the tensors are on the CPU.

    With ``devices=["cuda:0", "cuda:1"]`` each step returns a tuple with one batch per
    GPU, in their order. ``experimental_distribute_values_from_function`` of a
    `tf.distribute.Strategy` accepts them as the values of its replicas.

    Args:
        pipeline: The pipeline.
        batch_type: Type of a batch: ``"dict"`` of tensors by field name; ``"tuple"`` in
            field order, as ``fit`` expects inputs and targets; ``"named"``, a named
            tuple.
        **options: As in `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is invalid.
        DeviceError: Raised when the pipeline is opened: TensorFlow does not see the
            GPU.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        batch_type: Literal["dict", "tuple", "named"] = "dict",
        **options: Any,
    ):
        super().__init__(pipeline, options)
        self._batch_type = BatchType(self, batch_type)

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of a resumed one."""
        if self.device is None:
            return self._begin(self._convert_batch)
        steps, batch_type = len(self.loader), self._batch_type
        devices = self._options.get("devices")
        if devices is None:
            return self._begin_ahead(
                BatchCopier(steps, batch_type, [_copies], _host_column)
            )

        # It must not refer to this object, which holds the loop that ends its thread.
        def each(*parts: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(batch_type(part) for part in parts)

        copies = BatchCopier(steps, each, [_copies] * len(devices), _host_column)
        return self._begin_ahead(copies)

    def dataset(self) -> Any:
        """Returns a `tf.data.Dataset` of the batches, with their known shapes.

        Python runs once per batch, and a batch is copied once. Later steps of tf.data,
        such as ``prefetch``, take batches ahead of the loop, and `state_dict` counts
        those too.

        After `load_state_dict` the first pass is the rest of an epoch, so the dataset
        has no known length. Make the dataset after loading a state.

        Raises:
            ConfigError: Batches are delivered on a device, and tf.data works in host
                memory.
        """
        if self.device is not None:
            raise ConfigError(
                f"dataset: tf.data works in host memory, and batches are on "
                f"{self.device}; iterate over the loader, or leave out device (and let "
                "experimental_distribute_dataset distribute a dataset to replicas)"
            )
        columns = self.pipeline.shapes
        rows = self._rows()
        signature = self._batch_type(
            {name: _spec(column, rows) for name, column in columns.items()}
        )
        loader = weakref.ref(self)

        def batches() -> Iterator[Any]:
            # TensorFlow keeps this function for ever, so it must not hold the loader.
            if (alive := loader()) is None:
                raise ClosedError(
                    "the loader of this dataset was dropped; keep a reference to it"
                )
            return alive._begin(alive._as_numpy)

        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        # Datasets derived from this one hold it, and so the loader.
        dataset._infeed_loader = self
        ragged = [name for name, column in columns.items() if column.kind == "ragged"]
        if ragged:

            def join(*batch: Any) -> Any:
                # tf.data passes tuples as several arguments, other types as one.
                (parts,) = batch if self._batch_type.kind != "tuple" else (batch,)
                if not isinstance(parts, dict):
                    parts = dict(zip(columns, parts, strict=True))
                joined = {name: _ragged_tensor(parts[name]) for name in ragged}
                return self._batch_type(
                    {name: parts[name] for name in columns} | joined
                )

            dataset = dataset.map(join)
        if self.state_dict()["position"] == 0:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(self)))
        options = tf.data.Options()
        # tf.data must not prefetch by itself, because the state would count it.
        options.experimental_optimization.inject_prefetch = False
        options.experimental_optimization.map_parallelization = False
        return dataset.with_options(options)

    def _resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        devices = options.get("devices") or [self.device]
        for device in devices:
            if device is not None:
                _check_gpu(device)
        return options

    def _rows(self) -> int | None:
        """Returns the rows of every batch; None if they differ."""
        if self.pipeline._batch.max_tokens is not None:
            return None
        state = self.state_dict()
        full = state["drop_last"] or state.get("tail") in ("pad", "wrap")
        whole = full or state["records"] % state["batch"] == 0
        if not whole or self._options.get("on_error") == "skip":
            return None
        return int(state["batch"]) // int(self._options.get("world_size", 1))

    def _convert_batch(self, batch: Batch) -> Any:
        return self._batch_type({name: _tensor(part) for name, part in batch.columns()})

    def _as_numpy(self, batch: Batch) -> Any:
        def plain(part: Any) -> Any:
            return np.array(part, object) if isinstance(part, list) else part

        return self._batch_type({name: plain(part) for name, part in batch.items()})


def _tensor(column: Any) -> Any:
    """Returns a column over the same memory; bytes and text are copied."""
    if isinstance(column, list):
        return tf.constant(column, tf.string)
    if isinstance(column, tuple):
        return _ragged_tensor(tuple(_tensor(part) for part in column))
    # The tensor holds the capsule, which holds the memory.
    return tf.experimental.dlpack.from_dlpack(column.__dlpack__())


def _host_column(_name: str, column: Any) -> Any:
    """Returns a column in host memory, in a batch on a device."""
    return _tensor(column)


def _copies(
    arrays: Sequence[_core.DeviceArray],
) -> tuple[list[Any], Callable[[], None]]:
    """Copies arrays that are complete, on their device.

    The imported tensors themselves are never returned, because TensorFlow may run an
    operation in a stream that is not known here.

    Returns:
        The copies, and a function that waits for them.
    """
    imported = [tf.experimental.dlpack.from_dlpack(a.__dlpack__()) for a in arrays]
    made = [_copy_tensor(tensor) for tensor in imported]

    def wait() -> None:
        tf.test.experimental.sync_devices()
        imported.clear()

    return made, wait


# Types with a GPU kernel of `Snapshot`: TensorFlow registers it for
# `TF_CALL_POD_TYPES` (snapshot_op.cc, register_types.h). `DeepCopy` has GPU kernels
# for five types only, and TensorFlow silently runs the others on the CPU.
_SNAPSHOT_TYPES = frozenset(
    {
        *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16),
        *(tf.half, tf.bfloat16, tf.float32, tf.float64),
        *(tf.complex64, tf.complex128, tf.bool),
    }
)

# Types without such a kernel, and the type of the same width to copy them as.
_COPIED_AS = {tf.uint32: tf.int32, tf.uint64: tf.int64}


def _copy_tensor(tensor: Any) -> Any:
    """Copies a tensor into TensorFlow's own memory on the same device.

    `tf.identity` would share the memory.

    Raises:
        DeviceError: TensorFlow has no GPU kernel for the type, or made the copy on
            another device.
    """
    bits = _COPIED_AS.get(tensor.dtype, tensor.dtype)
    if bits not in _SNAPSHOT_TYPES:
        raise DeviceError(
            f"cannot copy {tensor.dtype.name} on {tensor.device}: TensorFlow has no "
            "GPU kernel for this type; convert the field, or leave out device"
        )
    with tf.device(tensor.device):
        if bits == tensor.dtype:
            copied = tf.raw_ops.Snapshot(input=tensor)
        else:
            # `Bitcast` has a GPU kernel for every type and shares the memory.
            copied = tf.raw_ops.Snapshot(input=tf.bitcast(tensor, bits))
            copied = tf.bitcast(copied, tensor.dtype)
    if copied.device != tensor.device:
        raise DeviceError(
            f"TensorFlow copied a {tensor.dtype.name} tensor from {tensor.device} to "
            f"{copied.device}; convert the field to another type, or leave out device"
        )
    return copied


def _check_gpu(device: str) -> None:
    """Checks that TensorFlow sees a GPU, and with the same number.

    Raises:
        DeviceError: It does not.
    """
    number = _core.cuda_ordinal(device)
    if number is None:
        return
    gpus = tf.config.get_visible_devices("GPU")
    names = [gpu.name for gpu in gpus]
    if number >= len(gpus):
        fix = "install tensorflow[and-cuda] and let it see the GPU"
        error = gpu_error(device, "TensorFlow", names or "the CPU alone", fix)
        if error is not None:
            raise error
        return
    # TensorFlow numbers the GPUs that it may use from 0.
    if names[number] != f"/physical_device:GPU:{number}":
        raise DeviceError(
            f"{device}: TensorFlow sees {names} and numbers them from 0; choose GPUs "
            "with CUDA_VISIBLE_DEVICES, which infeed follows too, or leave out device"
        )


def _ragged_tensor(parts: Any) -> Any:
    values, offsets = parts
    return tf.RaggedTensor.from_row_splits(values, offsets, validate=False)


def _spec(column: Column, rows: int | None) -> Any:
    """Returns the signature of a column for tf.data."""
    if column.kind in ("bytes", "text"):
        return tf.TensorSpec([rows], tf.string)
    if column.kind == "ragged":
        offsets = None if rows is None else rows + 1
        values = tf.TensorSpec(column.shape or [None], tf.as_dtype(column.dtype))
        return values, tf.TensorSpec([offsets], tf.int64)
    shape = None if column.shape is None else [rows, *column.shape[1:]]
    return tf.TensorSpec(shape, tf.as_dtype(column.dtype))
