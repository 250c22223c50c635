"""infeed for JAX: batches on one device, or as global arrays over a mesh."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.sharding
import numpy as np

from infeed import _jax_copies
from infeed._adapter import AdapterLoader, BatchType, rank_within
from infeed._device_copies import BatchCopier
from infeed.batch import Batch, numpy_from
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["Loader"]


class Loader(AdapterLoader):
    """The batches of a pipeline as JAX arrays.

        mesh = jax.make_mesh((jax.device_count(),), ("data",))
        over = jax.NamedSharding(mesh, jax.P("data"))
        for batch in infeed.jax.Loader(pipeline, over):
            state = train_step(state, batch)

    With a sharding each array is a global array: the whole batch over all processes.
    Each process reads and makes the rows on its own devices. Without a sharding, arrays
    are on one device.

    On the CPU, JAX arrays may share the batch's memory, which does not change while
    they are held. JAX converts 64-bit types to 32-bit ones unless ``jax_enable_x64`` is
    set.

    With a device name, ``"cuda"`` or ``"cuda:1"``, infeed copies batches to the GPU, in
    uint8 if it expands rows there. JAX copies them once more on the GPU, one batch
    ahead of the loop, and commits them to it. ``"sim"`` simulates a device, and the
    arrays are on the CPU.

    With ``devices=["cuda:0", "cuda:1"]`` each device receives its rows of every batch.
    The arrays are global arrays over all of them, sharded by rows or as ``device``
    sets.

    Each ``for`` loop is the next epoch. If another loop is in the middle of an epoch,
    that epoch ends, as after ``break``.

    Args:
        pipeline: The pipeline.
        device: JAX device, or sharding whose first axis is that of the rows, to which
            JAX copies the batches; or a device name as in `infeed.Pipeline.open`, to
            which infeed copies them. With ``devices``, the sharding over these. None:
            JAX's default device.
        batch_type: Type of a batch: ``"dict"`` of arrays by field name; ``"tuple"`` in
            field order; ``"named"``, a named tuple. Ragged fields are (values,
            offsets), on a single device only. Bytes and text are lists, with the rows
            that this process reads.
        rank: Index of the share of a batch that this process reads. None: that of its
            devices in the sharding, or ``jax.process_index()`` with a single device.
        world_size: Number of shares, as for ``rank``.
        **options: As in `infeed.Pipeline.open`, including ``devices``.

    Raises:
        ConfigError: An argument is invalid. Raised when the pipeline is opened, or at
            the first batch: the sharding and ``devices`` do not match.
        DeviceError: Raised when the pipeline is opened: JAX does not see the GPU.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        device: Any = None,
        batch_type: Literal["dict", "tuple", "named"] = "dict",
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ):
        if isinstance(device, str):
            options, device = options | {"device": device}, None
        super().__init__(pipeline, options)
        is_sharding = isinstance(device, jax.sharding.Sharding)
        if self._options.get("devices") and device is not None and not is_sharding:
            raise ConfigError(
                f"Loader: devices and device={device!r} are both set; use a sharding "
                "over the devices, or leave device out"
            )
        self._batch_type = BatchType(self, batch_type)
        self._device = device
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size
        self._found: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of a resumed one."""
        if self.device is None:
            return self._begin(self._convert_batch)
        steps, batch_type = len(self.loader), self._batch_type
        devices = self._options.get("devices")
        if devices is None:
            copies = BatchCopier(
                steps, batch_type, [_jax_copies.copy_arrays], _host_column
            )
        else:
            over = self._over(devices)

            # It must not refer to this object, which holds the loop that ends it.
            def join(*parts: dict[str, Any]) -> Any:
                return batch_type(over.join(*parts))

            copies = BatchCopier(steps, join, over.copies(), _host_column)
        return self._begin_ahead(copies)

    def _resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.device is None:
            return options
        if (devices := options.get("devices")) is not None:
            return options | {"devices": self._over(devices).names}
        return options | {"device": _jax_copies.device_name(self.device)}

    def _over(self, devices: Sequence[str]) -> _jax_copies.DeviceArrays:
        return _jax_copies.DeviceArrays(devices, self._device, *self._find_rank())

    def _convert_batch(self, batch: Batch) -> Any:
        return self._batch_type(
            {name: self._put(name, part) for name, part in batch.items()}
        )

    def _put(self, name: str, column: Any) -> Any:
        """Returns a column on its device; lists unchanged."""
        if isinstance(column, list):
            return column
        if not isinstance(self._device, jax.sharding.Sharding):
            # The array keeps the NumPy view, which keeps the memory.
            return jax.device_put(column, self._device)
        if isinstance(column, tuple):
            raise _jax_copies.ragged_error(name, "a sharding needs")
        _, world_size = self._find_rank()
        shape = (column.shape[0] * world_size, *column.shape[1:])
        _jax_copies.check_divides(name, shape, self._device)
        return jax.make_array_from_process_local_data(self._device, column, shape)

    def _find_rank(self) -> tuple[int, int]:
        if self._found is None:
            # Finding the devices of a process is slow, and the result is constant.
            given = self._rank is not None
            found = (0, 1) if given else _share(self._device)
            self._found = rank_within(self, self._rank, self._world_size, found)
        return self._found


def _host_column(name: str, column: Any) -> Any:
    """Returns a column in host memory, in a batch on a device."""
    if isinstance(column, list):
        return column
    if isinstance(column, tuple):
        return tuple(_host_column(name, part) for part in column)
    return jax.device_put(numpy_from(name, column))


def _share(device: Any) -> tuple[int, int]:
    """Returns the share of rows on this process's devices, and the number of shares.

    Several processes have the same rows if the mesh also splits other axes.

    Raises:
        ConfigError: The rows are not shared evenly, or not contiguous.
    """
    if not isinstance(device, jax.sharding.NamedSharding):
        return jax.process_index(), jax.process_count()
    spec = device.spec[0] if device.spec else None
    by_rows = jax.sharding.NamedSharding(device.mesh, jax.sharding.PartitionSpec(spec))
    # With one row per device, the rows divide for any axes of the mesh.
    count = len(device.device_set)
    places = by_rows.addressable_devices_indices_map((count,)).values()
    held = sorted({row for (rows,) in places for row in range(count)[rows]})
    share = len(held)
    if (
        not share
        or held != list(range(held[0], held[0] + share))
        or count % share
        or held[0] % share
    ):
        raise ConfigError(
            f"Loader: this process has rows {np.array(held)} of {count} in the "
            "sharding, which is not the share of a rank; order the devices of the mesh "
            "by process, or set rank and world_size"
        )
    return held[0] // share, count // share
