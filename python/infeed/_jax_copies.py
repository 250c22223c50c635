"""Copies of a device's arrays by JAX, for the adapters that give JAX its batches."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from infeed import _core
from infeed._copying import card_number, no_card

__all__ = ["copies", "named"]


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


def copies(
    arrays: Sequence[_core.DeviceArray],
) -> tuple[list[jax.Array], Callable[[], None]]:
    """Copies of arrays whose bytes are there, on their device, and what waits for them.

    64-bit types become 32-bit ones unless ``jax_enable_x64`` is set, as everywhere in
    JAX.
    """
    lent = []
    for array in arrays:
        one = jax.dlpack.from_dlpack(array)
        # Without its device it would be computed with on the default one.
        lent.append(jax.device_put(one, next(iter(one.devices()))))
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
