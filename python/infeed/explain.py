"""The explanation of a run: verdict, stages, timeline."""

import json
import os
import shutil
from typing import Any

from infeed import _core

__all__ = ["Explanation"]


class Explanation:
    """The limit of a training loop, from the counters of its loader.

    `Loader.explain` returns one. ``print`` shows it as text, and notebooks show it too.
    """

    def __init__(self, core: _core.Explanation):
        self._core = core

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain data: rates in samples/s, times in s, sizes in bytes.

        Keys include ``verdict`` (``limit``, ``rate``, ``next_limit``, ``next_rate``),
        ``stages`` (the cost of each stage), ``stall`` (the consumer's waiting time) and
        ``crossovers`` (for each resource the step time under which it is the slower).
        With a device there are also ``transfers`` (copies to the device) and ``tried``
        (see `placement`); with feeders, ``feeding`` (the work of each feeder, and the
        gain of more feeders).
        """
        found: dict[str, Any] = json.loads(self._core.json())
        return found

    @property
    def limit(self) -> str:
        """The limit, such as decode, storage, wire, copy, device or step."""
        limit: str = self.to_dict()["verdict"]["limit"]
        return limit

    @property
    def placement(self) -> dict[str, Any] | None:
        """The placement of transforms in a loop that delivers on a device.

        Keys: ``choice`` (the current placement), ``settled`` (whether it is final),
        ``step_s`` (seconds per step when it was chosen), ``others`` (each other tried
        placement, with its step time divided by that of the choice) and ``text`` (the
        reason). None if batches stay on the host.
        """
        found: dict[str, Any] | None = self.to_dict().get("tried")
        return found

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes an HTML page with plots that needs no network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._core.html())

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the timeline as Chrome trace events, for Perfetto.

        The timeline is empty unless the loader was opened with ``timeline``.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._core.trace())

    def __str__(self) -> str:
        return self._core.text(max(60, shutil.get_terminal_size((100, 24)).columns))

    def __repr__(self) -> str:
        return f"<infeed.explain.Explanation, limit {self.limit}>"
