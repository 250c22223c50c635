"""`watch`: the waiting time of a loop over any loader, and the step's slowdown by it.

`loop` measures times, `batch_sizes` counts samples, `sampler` requests the
interpreter's lock, `processor` reads processor times, `dataset_calls` measures the
dataset of a DataLoader, `figures` and `report` hold the numbers, the engine draws the
conclusion, `throughput` measures infeed, and `recording` writes a file.
"""

from infeed.watching.loop import Watch, watch
from infeed.watching.report import WatchReport
from infeed.watching.throughput import measure_throughput

__all__ = ["Watch", "WatchReport", "measure_throughput", "watch"]
