"""infeed in TensorFlow: batches as tensors, and as a `tf.data.Dataset`."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from infeed import _core
from infeed._copying import Copies, card_number, no_card
from infeed._feed import Feed, Form
from infeed.batch import Batch
from infeed.errors import ClosedError, ConfigError, DeviceError
from infeed.pipeline import Column, Pipeline

__all__ = ["Loader"]


class Loader(Feed):
    """The batches of a pipeline as tensors of TensorFlow.

    ::

        loader = infeed.tensorflow.Loader(pipeline)
        model.fit(loader.dataset(), epochs=90)

        for batch in loader:  # a loop of one's own: no copy is made
            train_step(batch)

    Each ``for``, and each pass over `dataset`, is the next epoch; one that begins while
    another is in the middle of an epoch ends that epoch.

    Ragged fields are RaggedTensors; bytes and text are tensors of ``tf.string``.

    With ``device="cuda"`` the tensors of a loop are on the card: copies that TensorFlow
    makes there, one batch ahead of the loop. Ragged fields, bytes and text stay on the
    host. ``"sim"`` simulates a device, and gives tensors on the CPU.

    With ``devices=["cuda:0", "cuda:1"]`` a step is a tuple of what a batch is, one for
    each card, in their order: the values of the replicas of a `tf.distribute.Strategy`,
    whose ``experimental_distribute_values_from_function`` takes them.

    Args:
        pipeline: What to read.
        form: What a batch is: ``"dict"`` of tensors by field name; ``"tuple"`` in field
            order, as ``fit`` wants inputs and targets; ``"named"``, a tuple with names.
        **options: As for `infeed.Pipeline.open`.

    Raises:
        ConfigError: An argument is not one of the above.
        DeviceError: When it is opened: TensorFlow has not the card that is named.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        form: Literal["dict", "tuple", "named"] = "dict",
        **options: Any,
    ):
        super().__init__(pipeline, options)
        self._form = Form(self, form)

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of one whose state was loaded."""
        if self.device is None:
            return self._begin(self._converted)
        steps, form = len(self.loader), self._form
        devices = self._options.get("devices")
        if devices is None:
            return self._begin_ahead(Copies(steps, form, [_copies], _kept))

        # Nothing in it leads to this object, which holds the loop that ends its thread.
        def each(*parts: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(form(part) for part in parts)

        copies = Copies(steps, each, [_copies] * len(devices), _kept)
        return self._begin_ahead(copies)

    def dataset(self) -> Any:
        """A `tf.data.Dataset` of the batches, with the shapes that are known.

        Python runs once a batch, not once a sample, and a batch is copied once. What
        tf.data does after it, such as ``prefetch``, takes batches ahead of the loop,
        and `state_dict` counts those too.

        After `load_state_dict` its first pass is the rest of an epoch, so its length is
        not said: make it after loading.

        Raises:
            ConfigError: Batches are delivered on a device, and tf.data works on the
                host.
        """
        if self.device is not None:
            raise ConfigError(
                "dataset: tf.data works on the host, and batches would come back there "
                f"from {self.device}; iterate the loader, or leave out device (and "
                "have experimental_distribute_dataset share a dataset out to replicas)"
            )
        columns = self.pipeline.shapes
        rows = self._rows()
        signature = self._form(
            {name: _spec(column, rows) for name, column in columns.items()}
        )
        loader = weakref.ref(self)

        def batches() -> Iterator[Any]:
            # TensorFlow keeps this function for ever, and must not keep the loader.
            if (alive := loader()) is None:
                raise ClosedError("the loader of this dataset is gone; hold either")
            return alive._begin(alive._as_numpy)

        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        # What is made of it holds it, and it the loader.
        dataset._infeed_loader = self
        ragged = [name for name, column in columns.items() if column.kind == "ragged"]
        if ragged:

            def join(*batch: Any) -> Any:
                # Of tuples tf.data makes arguments, of other forms one argument.
                (parts,) = batch if self._form.kind != "tuple" else (batch,)
                if not isinstance(parts, dict):
                    parts = dict(zip(columns, parts, strict=True))
                joined = {name: _ragged(parts[name]) for name in ragged}
                return self._form({name: parts[name] for name in columns} | joined)

            dataset = dataset.map(join)
        if self.state_dict()["position"] == 0:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(self)))
        options = tf.data.Options()
        # Nothing may be taken ahead unasked, or the state would count it.
        options.experimental_optimization.inject_prefetch = False
        options.experimental_optimization.map_parallelization = False
        return dataset.with_options(options)

    def _settled(self, options: dict[str, Any]) -> dict[str, Any]:
        devices = options.get("devices") or [self.device]
        for device in devices:
            if device is not None:
                _check_card(device)
        return options

    def _rows(self) -> int | None:
        """Rows of every batch; None if they differ."""
        state = self.state_dict()
        full = state["drop_last"] or state.get("tail") in ("pad", "wrap")
        whole = full or state["records"] % state["batch"] == 0
        if not whole or self._options.get("on_error") == "skip":
            return None
        return int(state["batch"]) // int(self._options.get("world_size", 1))

    def _converted(self, batch: Batch) -> Any:
        return self._form({name: _tensor(part) for name, part in batch.columns()})

    def _as_numpy(self, batch: Batch) -> Any:
        def plain(part: Any) -> Any:
            return np.array(part, object) if isinstance(part, list) else part

        return self._form({name: plain(part) for name, part in batch.items()})


def _tensor(column: Any) -> Any:
    """A column over the same memory; bytes and text are copied."""
    if isinstance(column, list):
        return tf.constant(column, tf.string)
    if isinstance(column, tuple):
        return _ragged(tuple(_tensor(part) for part in column))
    # The capsule keeps the memory, and the tensor the capsule's.
    return tf.experimental.dlpack.from_dlpack(column.__dlpack__())


def _kept(_name: str, column: Any) -> Any:
    """A column that stayed on the host, beside tensors on a device."""
    return _tensor(column)


def _copies(
    arrays: Sequence[_core.DeviceArray],
) -> tuple[list[Any], Callable[[], None]]:
    """Copies of arrays whose bytes are there, on their device, and what waits for them.

    Nothing is passed on: an operation may run in a stream that nobody else can name.
    """
    lent = [tf.experimental.dlpack.from_dlpack(a.__dlpack__()) for a in arrays]
    made = [_copied(tensor) for tensor in lent]

    def wait() -> None:
        tf.test.experimental.sync_devices()
        lent.clear()

    return made, wait


# Types that `Snapshot` has a GPU kernel for: TensorFlow registers it for
# `TF_CALL_POD_TYPES` (snapshot_op.cc, register_types.h). `DeepCopy` has GPU kernels
# for five types only; TensorFlow silently runs the others on the CPU.
_SNAPSHOT_TYPES = frozenset(
    {
        *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16),
        *(tf.half, tf.bfloat16, tf.float32, tf.float64),
        *(tf.complex64, tf.complex128, tf.bool),
    }
)

# Types without such a kernel, and the type of the same width that is copied instead.
_COPIED_AS = {tf.uint32: tf.int32, tf.uint64: tf.int64}


def _copied(tensor: Any) -> Any:
    """Copies a tensor into TensorFlow's own memory on the same device.

    Not `tf.identity`, which shares the memory.

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


def _check_card(device: str) -> None:
    """Refuses a card that TensorFlow has not, or knows by another number.

    Raises:
        DeviceError: As said.
    """
    number = card_number(device)
    if number is None:
        return
    cards = tf.config.get_visible_devices("GPU")
    names = [card.name for card in cards]
    if number >= len(cards):
        mend = "install tensorflow[and-cuda] and let it see the card"
        error = no_card(device, "TensorFlow", names or "the CPU alone", mend)
        if error is not None:
            raise error
        return
    # It names a card by its place among those it may use.
    if names[number] != f"/physical_device:GPU:{number}":
        raise DeviceError(
            f"{device}: TensorFlow numbers {names}, which are the cards it may use, "
            "from 0; choose cards with CUDA_VISIBLE_DEVICES, which infeed goes by too, "
            "or leave out device"
        )


def _ragged(parts: Any) -> Any:
    values, offsets = parts
    return tf.RaggedTensor.from_row_splits(values, offsets, validate=False)


def _spec(column: Column, rows: int | None) -> Any:
    """What tf.data is told of a column before it has seen any."""
    if column.kind in ("bytes", "text"):
        return tf.TensorSpec([rows], tf.string)
    if column.kind == "ragged":
        offsets = None if rows is None else rows + 1
        values = tf.TensorSpec([None], tf.as_dtype(column.dtype))
        return values, tf.TensorSpec([offsets], tf.int64)
    shape = None if column.shape is None else [rows, *column.shape[1:]]
    return tf.TensorSpec(shape, tf.as_dtype(column.dtype))
