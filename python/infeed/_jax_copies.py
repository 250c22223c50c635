"""Copies of a device's arrays by JAX, for the adapters that give JAX its batches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.sharding
import numpy as np

from infeed import _core
from infeed._copying import Copy, card_number, no_card
from infeed.errors import ConfigError, DeviceError

__all__ = ["Over", "copies", "named"]

# The axis of the mesh over devices of which nobody said more.
AXIS = "data"


def named(device: str) -> str:
    """The name of a device with its number: "cuda" is JAX's own choice of a card.

    Raises:
        DeviceError: There is such a card, but not for JAX.
    """
    number = card_number(device)
    if number is None:
        return device
    try:
        cards = jax.local_devices(backend="cuda")
    except RuntimeError:
        cards = []
    chosen = jax.config.jax_default_device
    if device != "cuda":
        cards = [card for card in cards if card.local_hardware_id == number]
    elif chosen in cards:
        cards = [chosen]
    if not cards:
        mend = "install JAX with CUDA (jax[cuda13]) and let it see the card"
        error = no_card(device, "JAX", jax.local_devices(), mend)
        if error is not None:
            raise error
        return device
    return f"cuda:{cards[0].local_hardware_id}"


class Over:
    """Devices that have a part each of every batch, and global arrays of those parts.

    Args:
        names: The devices, as `infeed.Pipeline.open` takes them.
        sharding: Of the arrays. None: rows over a mesh of these devices, in their
            order.
        rank: Which of the shares of a batch the parts are together.
        world_size: How many shares there are.

    Raises:
        ConfigError: The sharding is of other devices, or a device is named twice.
        DeviceError: JAX has not the device that is named.
    """

    def __init__(
        self, names: Sequence[str], sharding: Any, rank: int = 0, world_size: int = 1
    ):
        self.names = [named(name) for name in names]
        self._devices = [_device(name, at) for at, name in enumerate(self.names)]
        if None in self._devices:
            # The engine has no such card either, and says why when it is opened.
            return
        if len({device.platform for device in self._devices}) > 1:
            raise ConfigError(
                f"devices={list(names)}: JAX has {self._devices} for them, which make "
                "no array together; name cards, or simulated devices"
            )
        if len(set(self._devices)) < len(self._devices):
            raise ConfigError(
                f"devices={list(names)}: JAX has {self._devices} for them, and an "
                "array lies on a device once; name each once"
            )
        if sharding is None:
            mesh = jax.sharding.Mesh(np.array(self._devices), (AXIS,))
            spec = jax.sharding.PartitionSpec(AXIS)
            sharding = jax.sharding.NamedSharding(mesh, spec)
            # Of this process alone, whatever share of the rows it reads.
            rank, world_size = 0, 1
        elif sharding.addressable_devices != set(self._devices):
            ordered = sorted(sharding.addressable_devices, key=lambda one: one.id)
            raise ConfigError(
                f"devices={list(names)} are {self._devices}, and the sharding's in "
                f"this process {ordered}; name all of those and no others, or leave "
                "out devices, and JAX moves batches there itself"
            )
        self.sharding = sharding
        self._rank, self._world_size = rank, world_size

    def copies(self) -> list[Copy]:
        """For each device, what copies arrays there."""
        return [partial(copies, device=device) for device in self._devices]

    def joined(self, *parts: dict[str, Any]) -> dict[str, Any]:
        """The fields of all parts as one: arrays over the devices, lists end to end.

        Raises:
            ConfigError: A field is ragged; or the sharding wants other rows on a device
                than its part.
        """
        return {
            name: self._joined(name, [part[name] for part in parts])
            for name in parts[0]
        }

    def _joined(self, name: str, parts: list[Any]) -> Any:
        if isinstance(parts[0], list):
            return [value for part in parts for value in part]
        if isinstance(parts[0], tuple):
            raise ragged(name, "several devices need")
        rows, *others = parts[0].shape
        begin = self._rank * rows * len(parts)
        shape = (rows * len(parts) * self._world_size, *others)
        divides(name, shape, self.sharding)
        places = self.sharding.addressable_devices_indices_map(shape)
        for at, device in enumerate(self._devices):
            first = begin + at * rows
            wanted = [(first, first + rows), *((0, extent) for extent in others)]
            found = [
                part.indices(extent)[:2]
                for part, extent in zip(places[device], shape, strict=True)
            ]
            if found != wanted:
                raise ConfigError(
                    f"{name}: the sharding wants {_told(found)} of {shape} on "
                    f"{device}, and devices={self.names} brings {_told(wanted)}; shard "
                    "the rows alone, name the devices in their order, or leave out "
                    "devices, and JAX moves batches there itself"
                )
        return jax.make_array_from_single_device_arrays(shape, self.sharding, parts)


def _told(ranges: list[tuple[int, int]]) -> str:
    return f"[{', '.join(f'{begin}:{end}' for begin, end in ranges)}]"


def _device(name: str, at: int) -> Any:
    """JAX's card of that name, if it has it; of a simulated device, its CPU ``at``.

    Raises:
        DeviceError: It has not as many CPUs.
    """
    number = card_number(name)
    if number is None:
        cpus = jax.local_devices(backend="cpu")
        if at >= len(cpus):
            raise DeviceError(
                f"devices: {name} would be device {at} of JAX's CPU, which has "
                f"{len(cpus)}; call jax.config.update('jax_num_cpu_devices', {at + 1}) "
                "before anything else of JAX"
            )
        return cpus[at]
    try:
        cards = jax.local_devices(backend="cuda")
    except RuntimeError:
        cards = []
    found = [card for card in cards if card.local_hardware_id == number]
    return found[0] if found else None


def ragged(name: str, who: str) -> ConfigError:
    """The error of a field whose rows are of differing lengths."""
    return ConfigError(
        f"{name} is ragged, and {who} rows of one shape; use .batch(..., pad=True), or "
        "leave the field out"
    )


def divides(name: str, shape: tuple[int, ...], sharding: Any) -> None:
    """Refuses a batch whose rows the devices cannot share.

    Raises:
        ConfigError: As said.
    """
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ConfigError(
            f"{name}: a batch of shape {shape} does not divide among the devices of "
            f"the sharding; use a batch that does, and a tail that is dropped or "
            f"filled up ({error})"
        ) from None


def copies(
    arrays: Sequence[_core.DeviceArray], device: Any = None
) -> tuple[list[jax.Array], Callable[[], None]]:
    """Copies of arrays whose bytes are there, on their device, and what waits for them.

    64-bit types become 32-bit ones unless ``jax_enable_x64`` is set, as everywhere in
    JAX.

    Args:
        arrays: Of one batch, on one device.
        device: What JAX has for that device. None: what the arrays say.
    """
    lent = []
    for array in arrays:
        one = jax.dlpack.from_dlpack(array)
        # Without its device it would be computed with on the default one.
        lent.append(jax.device_put(one, device or next(iter(one.devices()))))
    if not lent:
        return [], lambda: None
    made, done = _copied(lent)

    def wait() -> None:
        done.block_until_ready()
        lent.clear()

    return made, wait


def _copies(lent: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
    """Copies, and a value that is there when they are.

    All results of one computation are there together. The copies themselves cannot be
    waited for: a step that donates its batch may have deleted them by then.
    """
    return [jnp.copy(array) for array in lent], jnp.zeros((), bool)


_copied = jax.jit(_copies)
