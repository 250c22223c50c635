"""The recording of a watched loop: counters over time, and the verdict."""

import logging
import time

from infeed import _core
from infeed._versions import versions
from infeed.errors import WriteError

# Seconds between two samples of the counters, and between two writes of the file.
SAMPLE_S = 0.05
WRITE_S = 10.0
# Shortest time between two writes, in multiples of the last write's duration.
WRITE_COST = 200

_log = logging.getLogger("infeed")


class WatchRecording:
    """The file of a watched loop, written at intervals and at the end.

    It has no thread, because a loader may fork its workers. The loop calls it.

    Attributes:
        due_at: Time of `time.perf_counter` from which `add` should be called.
    """

    def __init__(self, path: str, loader: str):
        """Writes the file once.

        Raises:
            WriteError: The file cannot be written.
        """
        self._core = _core.WatchRecorder(path, loader, versions())
        self._warned = False
        self._cost_s = 0.0
        self._written_at = self.due_at = time.perf_counter()

    def add(self, batches: int, samples: int, waited_s: float, epochs: int) -> bool:
        """Adds the counters of the loop so far; returns whether to write the file."""
        self._core.add(batches, samples, waited_s, epochs)
        now = time.perf_counter()
        self.due_at = now + SAMPLE_S
        return now - self._written_at >= max(WRITE_S, WRITE_COST * self._cost_s)

    def may_write(self) -> bool:
        """Returns whether another write costs less than 1 % of the time."""
        passed_s = time.perf_counter() - self._written_at
        return passed_s >= WRITE_COST * self._cost_s

    def add_error(self, error: BaseException) -> None:
        """Counts an error of the loader by its type."""
        self._core.add_error(type(error).__name__)

    def write(self, measurements: str | None, begun: float, *, closed: bool) -> None:
        """Writes the file. An error is logged once; the next call tries again.

        Args:
            measurements: Measurements of the watch as JSON; None: those before.
            begun: Time at which the work for this write began.
            closed: Whether the watch is closed.
        """
        try:
            self._core.write(measurements, closed)
        except WriteError as error:
            if not self._warned:
                _log.warning("watch: %s; trying again", error)
            self._warned = True
        self._written_at = time.perf_counter()
        self._cost_s = self._written_at - begun
