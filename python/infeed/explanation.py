"""What limits a run: the verdict, the stages, the timeline."""

import json
import os
import shutil
from typing import Any

from infeed import _core

__all__ = ["Explanation"]


class Explanation:
    """Why a training loop waits, from what its loader counted.

    Made by `Loader.explain`. ``print`` shows it; in a notebook it shows itself.
    """

    def __init__(self, core: _core.Explanation):
        self._core = core

    def to_dict(self) -> dict[str, Any]:
        """Everything in it: rates in samples per s, times in s, sizes in bytes.

        ``verdict`` holds ``limit``, ``rate``, ``next_limit`` and ``next_rate``;
        ``stages`` what each stage cost; ``stall`` where the consumer's time went. Of a
        loader on a device, ``transfers`` says what crossed to it and ``tried`` who
        makes rows larger, as `placement` has it; of one with feeders, ``feeding`` says
        what each of them did and what more would give.
        """
        found: dict[str, Any] = json.loads(self._core.json())
        return found

    @property
    def limit(self) -> str:
        """What limits, such as decode, storage, wire, copy, device or step."""
        limit: str = self.to_dict()["verdict"]["limit"]
        return limit

    @property
    def placement(self) -> dict[str, Any] | None:
        """Who makes rows larger in a loop that delivers on a device, by its own steps.

        The ``choice`` that runs now, whether it has ``settled``, ``step_s`` that a step
        took when that was found, ``others`` that were tried, each with how many times
        that its steps took, and a line of ``text`` that says why. None: batches stay on
        the host.
        """
        found: dict[str, Any] | None = self.to_dict().get("tried")
        return found

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page with plots that opens without a network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._core.html())

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the timeline as Chrome trace events, for Perfetto.

        It is empty unless the loader was opened with ``timeline``.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._core.trace())

    def __str__(self) -> str:
        return self._core.text(max(60, shutil.get_terminal_size((100, 24)).columns))

    def __repr__(self) -> str:
        return f"<infeed.Explanation, limit {self.limit}>"
