"""Batches of a device as memory of a framework's own, by copies that are complete.

A framework that names no stream, or another one than it reads in, cannot be lent the
memory of a batch: nobody would know when it may be written again. It gets copies. The
bytes of a batch are waited for, in a thread; the framework imports them by DLPack and
copies them by an operation of its own, in whatever stream it likes; and the batch is
let go of once the copies are made. The loop may have them before that, since what it
does with them comes after them in the framework's own order.
"""

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from infeed import _core
from infeed.batch import Batch
from infeed.errors import DeviceError

__all__ = ["Copies", "Copy", "card_number", "no_card"]

# Takes arrays whose bytes are there; gives the copies, and what waits until they are
# made, which holds what was imported until then.
Copy = Callable[[Sequence[_core.DeviceArray]], tuple[list[Any], Callable[[], None]]]


class Copies:
    """Makes of each batch of an epoch what a loop is given: copies, in their form.

    Args:
        steps: Batches of a whole epoch.
        form: What a batch is: called with its fields, of several devices with those of
            each.
        copies: Copies arrays that are on a device; one for each device.
        kept: Makes what the framework wants of a column that stayed on the host.
        names: The fields that are wanted. None: all.
    """

    def __init__(
        self,
        steps: int,
        form: Callable[..., Any],
        copies: Sequence[Copy],
        kept: Callable[[str, Any], Any],
        names: Collection[str] | None = None,
    ):
        self._steps = steps
        self._form = form
        self._copies = copies
        self._kept = kept
        self._names = names
        # What waits for the copies of the last batch, and its parts.
        self._begun: list[tuple[Callable[[], None], Batch]] = []
        self._failed: BaseException | None = None

    def moved(self, batch: Batch | tuple[Batch, ...]) -> tuple[Any, bool]:
        """The batch in its form, and whether it is the last one of its epoch.

        Raises:
            BaseException: What went wrong while copies of the batch before were made.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        parts = batch if isinstance(batch, tuple) else (batch,)
        fields = [
            self._copied(part, copy)
            for part, copy in zip(parts, self._copies, strict=True)
        ]
        return self._form(*fields), parts[0].step + 1 == self._steps

    def _copied(self, batch: Batch, copy: Copy) -> dict[str, Any]:
        """The fields of a batch on one device, the arrays among them copied there."""
        columns = {
            name: column
            for name, column in batch.columns()
            if self._names is None or name in self._names
        }
        arrays = {
            name: column
            for name, column in columns.items()
            if isinstance(column, _core.DeviceArray)
        }
        for array in arrays.values():
            array.synchronize()
        copies, made = copy(list(arrays.values()))
        # Also where copies on the next device fail, these are waited for.
        self._begun.append((made, batch))
        copied = dict(zip(arrays, copies, strict=True))
        return {
            name: copied[name] if name in copied else self._kept(name, column)
            for name, column in columns.items()
        }

    def settled(self) -> None:
        """Waits until the copies are made, and lets go of the batch."""
        for made, _ in self._begun:
            try:
                made()
            except BaseException as error:
                # The loop has the copies; who uses them is told, and so is who goes on.
                self._failed = error
        self._begun = []

    def hand_over(self, item: Any) -> None:
        """Nothing: copies are the framework's own."""


def card_number(device: str) -> int | None:
    """The number in ``"cuda:1"``; 0 in ``"cuda"``. None: it is no card, or no name."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        return None
    return int(number or "0")


def no_card(device: str, framework: str, has: object, mend: str) -> DeviceError | None:
    """The error of a framework that has no such card.

    None where nobody has: then the error of the engine, which says why, is better.
    """
    if not json.loads(_core.cards())["cards"]:
        return None
    return DeviceError(
        f"{device}: {framework} has no such card in this process, but {has}; {mend}, "
        "or leave out device"
    )
