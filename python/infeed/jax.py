"""infeed in JAX: batches on one device, or as global arrays over a mesh."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.sharding
import numpy as np

from infeed import _jax_copies
from infeed._copying import Copies
from infeed._feed import Feed, Form, rank_within
from infeed.batch import Batch, numpy_from
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline

__all__ = ["Loader"]


class Loader(Feed):
    """The batches of a pipeline as arrays of JAX.

    ::

        mesh = jax.make_mesh((jax.device_count(),), ("data",))
        over = jax.NamedSharding(mesh, jax.P("data"))
        for batch in infeed.jax.Loader(pipeline, over):
            state = train_step(state, batch)

    With a sharding each array is a global one, of the whole batch over all processes;
    each process reads and makes the rows that lie on its own devices. Without one, it
    lies on one device.

    On the CPU, arrays of JAX may use the memory of the batch itself; it stays as it is
    for as long as they are held. JAX makes 64-bit types 32-bit ones unless
    ``jax_enable_x64`` is set.

    With the name of a device, ``"cuda"`` or ``"cuda:1"``, batches come over infeed's
    own bus, as bytes where rows are finished on the card, and are given as copies that
    JAX makes there, one batch ahead of the loop; they are committed to that card.
    ``"sim"`` simulates a device, and gives arrays on the CPU.

    With ``devices=["cuda:0", "cuda:1"]`` each of them gets its rows of every batch, and
    an array is a global one over all of them, by rows or as the sharding says.

    Each ``for`` is the next epoch; a ``for`` that begins while another one is in the
    middle of an epoch ends that epoch, as leaving it with ``break`` does.

    Args:
        pipeline: What to read.
        device: A device of JAX, or a sharding whose first axis is that of the rows,
            and JAX moves the batches there; or the name of a device, as
            `infeed.Pipeline.open` takes it, and infeed does. Beside ``devices``, the
            sharding of what infeed brings there. None: JAX's default device.
        form: What a batch is: ``"dict"`` of arrays by field name; ``"tuple"`` in field
            order; ``"named"``, a tuple with names. Ragged fields are (values, offsets),
            on one device only; bytes and text are lists, of the rows that this process
            reads.
        rank: Which of the shares of a batch this process reads. None: that of its
            devices in the sharding, or ``jax.process_index()`` on one device.
        world_size: How many shares there are; as ``rank``.
        **options: As for `infeed.Pipeline.open`, ``devices`` among them.

    Raises:
        ConfigError: An argument is not one of the above; when it is opened, or at the
            first batch: the sharding and ``devices`` do not go together.
        DeviceError: When it is opened: JAX has not the card that is named.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        device: Any = None,
        form: Literal["dict", "tuple", "named"] = "dict",
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
                f"Loader: devices are named, and {device!r} besides; give a sharding "
                "over them, or nothing"
            )
        self._form = Form(self, form)
        self._device = device
        rank_within(self, rank, world_size, (0, 1))
        self._rank, self._world_size = rank, world_size
        self._found: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of one whose state was loaded."""
        if self.device is None:
            return self._begin(self._converted)
        steps, form = len(self.loader), self._form
        devices = self._options.get("devices")
        if devices is None:
            copies = Copies(steps, form, [_jax_copies.copies], _kept)
        else:
            over = self._over(devices)

            # Nothing in it leads to this object, which holds the loop that ends it.
            def joined(*parts: dict[str, Any]) -> Any:
                return form(over.joined(*parts))

            copies = Copies(steps, joined, over.copies(), _kept)
        return self._begin_ahead(copies)

    def _settled(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.device is None:
            return options
        if (devices := options.get("devices")) is not None:
            return options | {"devices": self._over(devices).names}
        return options | {"device": _jax_copies.named(self.device)}

    def _over(self, devices: Sequence[str]) -> _jax_copies.Over:
        return _jax_copies.Over(devices, self._device, *self._place())

    def _converted(self, batch: Batch) -> Any:
        return self._form({name: self._put(name, part) for name, part in batch.items()})

    def _put(self, name: str, column: Any) -> Any:
        """A column where it belongs; lists as they are."""
        if isinstance(column, list):
            return column
        if not isinstance(self._device, jax.sharding.Sharding):
            # The array that is put keeps the view, which keeps the memory.
            return jax.device_put(column, self._device)
        if isinstance(column, tuple):
            raise _jax_copies.ragged(name, "a sharding needs")
        _, world_size = self._place()
        shape = (column.shape[0] * world_size, *column.shape[1:])
        _jax_copies.divides(name, shape, self._device)
        return jax.make_array_from_process_local_data(self._device, column, shape)

    def _place(self) -> tuple[int, int]:
        if self._found is None:
            # Which devices are whose takes a while to tell, and does not change.
            given = self._rank is not None
            found = (0, 1) if given else _share(self._device)
            self._found = rank_within(self, self._rank, self._world_size, found)
        return self._found


def _kept(name: str, column: Any) -> Any:
    """A column that stayed on the host, beside arrays on a device."""
    if isinstance(column, list):
        return column
    if isinstance(column, tuple):
        return tuple(_kept(name, part) for part in column)
    return jax.device_put(numpy_from(name, column))


def _share(device: Any) -> tuple[int, int]:
    """Which share of the rows lies on the devices of this process, of how many.

    Several processes hold the same rows where the mesh splits something else.

    Raises:
        ConfigError: The rows are not shared evenly, in runs.
    """
    if not isinstance(device, jax.sharding.NamedSharding):
        return jax.process_index(), jax.process_count()
    spec = device.spec[0] if device.spec else None
    by_rows = jax.sharding.NamedSharding(device.mesh, jax.sharding.PartitionSpec(spec))
    # As many rows as devices: they divide, whichever axes of the mesh split them.
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
            f"Loader: this process holds rows {np.array(held)} of {count} in the "
            "sharding, which is no share that a rank could read; order the devices of "
            "the mesh by process, or give rank and world_size"
        )
    return held[0] // share, count // share
