"""Copies of a device's arrays by JAX, for the adapters that give batches to JAX."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.sharding
import numpy as np

from infeed import _core
from infeed._device_copies import Copy, gpu_error
from infeed.errors import ConfigError, DeviceError

__all__ = ["DeviceArrays", "copy_arrays", "device_name"]

# The axis of the default mesh over devices.
AXIS = "data"


def device_name(device: str) -> str:
    """Returns the name of a device with its number: "cuda" is JAX's default GPU.

    Raises:
        DeviceError: The process sees the GPU, and JAX does not.
    """
    number = _core.cuda_ordinal(device)
    if number is None:
        return device
    try:
        gpus = jax.local_devices(backend="cuda")
    except RuntimeError:
        gpus = []
    chosen = jax.config.jax_default_device
    if device != "cuda":
        gpus = [gpu for gpu in gpus if gpu.local_hardware_id == number]
    elif chosen in gpus:
        gpus = [chosen]
    if not gpus:
        fix = "install JAX with CUDA (jax[cuda13]) and let it see the GPU"
        error = gpu_error(device, "JAX", jax.local_devices(), fix)
        if error is not None:
            raise error
        return device
    return f"cuda:{gpus[0].local_hardware_id}"


class DeviceArrays:
    """Devices that each receive a part of every batch, and global arrays of the parts.

    Args:
        names: Names of the devices, as in `infeed.Pipeline.open`.
        sharding: Sharding of the arrays. None: rows over a mesh of these devices, in
            their order.
        rank: Index of this process's share of a batch.
        world_size: Number of shares.

    Raises:
        ConfigError: The sharding has other devices, or a device is named twice.
        DeviceError: JAX does not see a device.
    """

    def __init__(
        self, names: Sequence[str], sharding: Any, rank: int = 0, world_size: int = 1
    ):
        self.names = [device_name(name) for name in names]
        self._devices = [_device(name, at) for at, name in enumerate(self.names)]
        if None in self._devices:
            # The engine does not see the GPU either, and reports the reason.
            return
        if len({device.platform for device in self._devices}) > 1:
            raise ConfigError(
                f"devices={list(names)}: JAX has {self._devices} for them, which "
                "cannot form one array; name only GPUs, or only simulated devices"
            )
        if len(set(self._devices)) < len(self._devices):
            raise ConfigError(
                f"devices={list(names)}: JAX has {self._devices} for them, and an "
                "array uses each device once; name each once"
            )
        if sharding is None:
            mesh = jax.sharding.Mesh(np.array(self._devices), (AXIS,))
            spec = jax.sharding.PartitionSpec(AXIS)
            sharding = jax.sharding.NamedSharding(mesh, spec)
            # Arrays of this process alone, whichever rows it reads.
            rank, world_size = 0, 1
        elif sharding.addressable_devices != set(self._devices):
            ordered = sorted(sharding.addressable_devices, key=lambda one: one.id)
            raise ConfigError(
                f"devices={list(names)} are {self._devices}, and the sharding has "
                f"{ordered} in this process; name exactly those, or leave out devices, "
                "and JAX copies batches there itself"
            )
        self.sharding = sharding
        self._rank, self._world_size = rank, world_size

    def copies(self) -> list[Copy]:
        """Returns the function that copies arrays, for each device."""
        return [partial(copy_arrays, device=device) for device in self._devices]

    def join(self, *parts: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of all parts: arrays over the devices, joined lists.

        Raises:
            ConfigError: A field is ragged, or the sharding has other rows on a device
                than its part.
        """
        return {
            name: self._join(name, [part[name] for part in parts]) for name in parts[0]
        }

    def _join(self, name: str, parts: list[Any]) -> Any:
        if isinstance(parts[0], list):
            return [value for part in parts for value in part]
        if isinstance(parts[0], tuple):
            raise ragged_error(name, "several devices need")
        rows, *others = parts[0].shape
        begin = self._rank * rows * len(parts)
        shape = (rows * len(parts) * self._world_size, *others)
        check_divides(name, shape, self.sharding)
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
                    f"{name}: the sharding has {_format_ranges(found)} of {shape} on "
                    f"{device}, and devices={self.names} deliver "
                    f"{_format_ranges(wanted)}; shard only the rows, name the devices "
                    "in their order, or leave out devices, and JAX copies batches "
                    "there itself"
                )
        return jax.make_array_from_single_device_arrays(shape, self.sharding, parts)


def _format_ranges(ranges: list[tuple[int, int]]) -> str:
    return f"[{', '.join(f'{begin}:{end}' for begin, end in ranges)}]"


def _device(name: str, at: int) -> Any:
    """Returns JAX's GPU of a name, if JAX sees it; for ``"sim"`` CPU number `at`.

    Raises:
        DeviceError: JAX has fewer CPUs.
    """
    number = _core.cuda_ordinal(name)
    if number is None:
        cpus = jax.local_devices(backend="cpu")
        if at >= len(cpus):
            raise DeviceError(
                f"devices: {name} needs device {at} of JAX's CPU, which has "
                f"{len(cpus)}; call jax.config.update('jax_num_cpu_devices', {at + 1}) "
                "before any other use of JAX"
            )
        return cpus[at]
    try:
        gpus = jax.local_devices(backend="cuda")
    except RuntimeError:
        gpus = []
    found = [gpu for gpu in gpus if gpu.local_hardware_id == number]
    return found[0] if found else None


def ragged_error(name: str, consumer: str) -> ConfigError:
    """Returns the error for a field whose rows differ in length."""
    return ConfigError(
        f"{name} is ragged, and {consumer} rows of one shape; use "
        ".batch(..., pad=True), or leave the field out"
    )


def check_divides(name: str, shape: tuple[int, ...], sharding: Any) -> None:
    """Checks that the devices can share the rows of a batch evenly.

    Raises:
        ConfigError: They cannot.
    """
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ConfigError(
            f"{name}: the devices of the sharding do not divide a batch of shape "
            f'{shape}; use another batch size, or tail="drop", "pad" or "wrap" '
            f"({error})"
        ) from None


def copy_arrays(
    arrays: Sequence[_core.DeviceArray], device: Any = None
) -> tuple[list[jax.Array], Callable[[], None]]:
    """Copies arrays that are complete, on their device.

    JAX converts 64-bit types to 32-bit ones unless ``jax_enable_x64`` is set.

    Args:
        arrays: Arrays of one batch on one device.
        device: JAX's device. None: the device of the arrays.

    Returns:
        The copies, and a function that waits for them.
    """
    imported = []
    for array in arrays:
        one = jax.dlpack.from_dlpack(array)
        # Without a committed device, JAX would compute on its default device.
        imported.append(jax.device_put(one, device or next(iter(one.devices()))))
    if not imported:
        return [], lambda: None
    made, done = _copied(imported)

    def wait() -> None:
        done.block_until_ready()
        imported.clear()

    return made, wait


def _copies(imported: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
    """Returns copies, and a value that is ready when they are.

    All results of one computation are ready together. The copies themselves cannot be
    waited for: a step that donates its batch may have deleted them.
    """
    return [jnp.copy(array) for array in imported], jnp.zeros((), bool)


_copied = jax.jit(_copies)
