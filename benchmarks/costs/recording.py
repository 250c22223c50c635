"""Cost of a recording: processor time of batches with and without one, in turn.

Processor time of the process includes the recorder's thread, and varies less than the
rate. A turn has the first and the last write of the file, and a long run has one write
every 10 s, so the figure is an upper bound. A watch is compared with one that records.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import infeed
from costs.figures import arguments, figure, report
from infeed import sources
from machine import cores

TURN_S, TURNS = 2.0, 25
BATCH, WIDTH = 64, 1000
WATCHED = 50_000


def main() -> None:
    arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        rows = np.zeros((BATCH * 1000, WIDTH), np.uint8)
        pipeline = infeed.Pipeline(sources.Memory(x=rows)).batch(BATCH)
        costs = in_turn(lambda record: loop_us(pipeline, path if record else None))
        watches = in_turn(lambda record: watch_us(path if record else None))
    loader = 100 * statistics.median(on / off - 1 for off, on in costs)
    watch = statistics.median(on - off for off, on in watches)
    report(
        figure("loader.record, processor time of a loop", loader, 1, "%"),
        figure("watch(record=), cost of an empty batch", watch, 1, "us"),
    )


def in_turn(measure: Callable[[bool], float]) -> Iterable[tuple[float, float]]:
    """Returns pairs of measurements without and with a recording."""
    pairs = []
    for turn in range(TURNS):
        # The order alternates, so that a drift of the machine cancels.
        both = {record: measure(record) for record in (turn % 2 == 0, turn % 2 == 1)}
        pairs.append((both[False], both[True]))
    return pairs


def loop_us(pipeline: infeed.Pipeline, path: Path | None) -> float:
    """Returns the processor time of a batch in microseconds."""
    batches, began = 0, time.perf_counter()
    with pipeline.open(workers=cores()) as loader:
        spent_s = time.process_time()
        if path is not None:
            loader.record(path)
        while time.perf_counter() - began < TURN_S:
            batches += sum(1 for _ in loader)
    return 1e6 * (time.process_time() - spent_s) / batches


def watch_us(path: Path | None) -> float:
    """Returns the processor time of an empty batch of a watch in microseconds."""
    watch = infeed.watch([None] * WATCHED, batch_size=1, lock=False, record=path)
    spent_s = time.process_time()
    for _ in watch:
        pass
    watch.close()
    return 1e6 * (time.process_time() - spent_s) / WATCHED


if __name__ == "__main__":
    main()
