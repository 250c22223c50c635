"""Loading and computing in turn, or loading the next batch while this one computes.

Loading is real work for a core: it inflates compressed bytes without Python's lock, as
decoders in C do. The step is a sleep in place of a device. The gain of overlapping is
predicted: t_load + t_step per batch becomes the longer of the two. The experiment also
measures t_load with n workers and no step, because cores that share hardware do not
double the rate.
"""

import argparse
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from infeed.experiments.arguments import duration, numbers, positive
from infeed.experiments.measuring import interleave, spread, time_of
from infeed.experiments.result import Result, Table, milliseconds
from infeed.watching.processor import usable_cores

SUMMARY = "loading and computing in turn, overlapped, and with n workers"

# Bytes that one call inflates: about a millisecond, short compared with a batch.
_CHUNK = 512 * 1024
_WIDTH = 72
# Number of batches in the drawing.
_DRAWN = 6


@dataclass(frozen=True)
class Span:
    """A thread's work on one batch, in seconds since the run began."""

    thread: str
    batch: int
    start_s: float
    end_s: float


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this experiment."""
    parser.add_argument(
        "--load-ms", type=duration, default=20, help="to load a batch (default 20)"
    )
    parser.add_argument(
        "--step-ms", type=duration, default=15, help="to compute on it (default 15)"
    )
    parser.add_argument(
        "--workers", type=numbers, help="threads that load (default 1,2 and the cores)"
    )
    parser.add_argument(
        "--batches", type=positive, help="batches a run (default 60)", default=60
    )
    parser.add_argument(
        "--turns", type=positive, help="runs of each (default 3)", default=3
    )


def run(options: argparse.Namespace) -> Result:
    """Measures each variant in turn, and predicts it."""
    cores = usable_cores()
    workers = options.workers or sorted({1, 2, max(1, int(cores))})
    batches, turns = options.batches, options.turns
    if options.quick:
        batches, turns = min(batches, 8), 1
    load = _loading(options.load_ms / 1e3)

    def step() -> None:
        time.sleep(options.step_ms / 1e3)

    step_s = time_of(step, 0.02 if options.quick else 0.5)

    spans: dict[str, list[Span]] = {}
    batches_run: int = batches

    def measure_with(name: str, count: int) -> Callable[[], float]:
        def measure() -> float:
            seen: list[Span] = []
            took_s = _loop(load, step, batches_run, count, seen)
            spans[name] = seen
            return took_s / batches_run

        return measure

    names = {"in turn": 0}
    for count in workers:
        names[f"{count} worker{'s' if count > 1 else ''}"] = count
    # Loading alone is measured between the loops, so that drift affects both equally.
    runs = {name: measure_with(name, n) for name, n in names.items()}
    rounds = 2 if options.quick else 10
    for count in sorted({1, *workers}):
        runs[f"{count} loading"] = partial(_loading_s, load, count, rounds)
    found = interleave(runs, turns)
    loads_s = {n: spread(found[f"{n} loading"])[1] for n in {1, *workers}}
    load_s = loads_s[1]

    table, figures = _table(names, found, load_s, step_s, loads_s)
    gain = (load_s + step_s) / max(load_s, step_s)
    first = f"{workers[0]} worker{'s' if workers[0] > 1 else ''}"
    measured = spread(found["in turn"])[1] / spread(found[first])[1]
    meaning = [
        f"Loading takes {milliseconds(load_s)} ms and the step "
        f"{milliseconds(step_s)} ms, so overlapping them can gain "
        f"({milliseconds(load_s)} + {milliseconds(step_s)}) / "
        f"{milliseconds(max(load_s, step_s))} = {gain:.2f}x; measured with {first}: "
        f"{measured:.2f}x. The gain is at most 2x, for equal times.",
        "More workers help until a batch is loaded in less time than a step takes, up "
        f"to the number of cores: {cores:.3g} here.",
    ]
    drawing = _drawing({name: spans[name] for name in ("in turn", *list(names)[1:])})
    question = "Does loading the next batch while this one computes pay, and how much?"
    data = {
        "load_s": load_s, "step_s": step_s, "cores": cores, "batches": batches,
        "turns": turns, "variants": figures,
    }  # fmt: skip
    return Result("overlap", question, [table], meaning, data, drawing)


def _loading(seconds: float) -> Callable[[], None]:
    """Returns work that takes one core about `seconds` without Python's lock."""
    packed = zlib.compress(os.urandom(_CHUNK // 8) * 8, 1)
    once_s = time_of(lambda: zlib.decompress(packed), 0.05)
    rounds = max(1, round(seconds / once_s))

    def load() -> None:
        for _ in range(rounds):
            zlib.decompress(packed)

    return load


def _loading_s(load: Callable[[], None], workers: int, rounds: int) -> float:
    """Returns the time per batch with workers that only load, in seconds."""
    with ThreadPoolExecutor(workers) as pool:
        # A pool starts its threads with the first work.
        list(pool.map(lambda _: load(), range(workers)))
        begun = time.perf_counter()
        list(pool.map(lambda _: load(), range(workers * rounds)))
        return (time.perf_counter() - begun) / (workers * rounds)


def _loop(
    load: Callable[[], None],
    step: Callable[[], None],
    batches: int,
    workers: int,
    spans: list[Span],
) -> float:
    """Runs the loop and returns its time; without workers it loads in turn."""
    begun = time.perf_counter()

    def add_span(name: str, work: Callable[[], None], batch: int) -> None:
        start = time.perf_counter()
        work()
        spans.append(Span(name, batch, start - begun, time.perf_counter() - begun))

    if workers == 0:
        for batch in range(batches):
            add_span("load", load, batch)
            add_span("step", step, batch)
        return time.perf_counter() - begun
    with ThreadPoolExecutor(workers, thread_name_prefix="load") as pool:

        def load_batch(batch: int) -> None:
            # Threads are named load_0, load_1 and so on.
            number = int(threading.current_thread().name.rpartition("_")[2])
            add_span(f"load {number + 1}", load, batch)

        for batch in _ahead(pool, load_batch, batches, workers + 1):
            add_span("step", step, batch)
        return time.perf_counter() - begun


def _ahead(
    pool: ThreadPoolExecutor, load: Callable[[int], None], batches: int, most: int
) -> Iterator[int]:
    """Yields batches in order, with a limited number in preparation."""
    waiting: deque[Future[None]] = deque()
    for batch in range(batches):
        waiting.append(pool.submit(load, batch))
        if len(waiting) == most:
            waiting.popleft().result()
            yield batch - most + 1
    while waiting:
        waiting.popleft().result()
        yield batches - len(waiting) - 1


def _table(
    names: dict[str, int],
    found: dict[str, list[float]],
    load_s: float,
    step_s: float,
    loads_s: dict[int, float],
) -> tuple[Table, list[dict[str, Any]]]:
    base_s = spread(found["in turn"])[1]
    rows = []
    figures: list[dict[str, Any]] = []
    for name, count in names.items():
        loading_s = loads_s.get(count, load_s)
        predicted_s = max(loading_s, step_s) if count else loading_s + step_s
        low_s, middle_s, high_s = spread(found[name])
        gain = (load_s + step_s) / predicted_s
        rows.append(
            [
                name,
                milliseconds(loading_s),
                milliseconds(predicted_s),
                milliseconds(middle_s),
                f"{milliseconds(low_s)}-{milliseconds(high_s)}",
                f"{gain:.2f}x",
                f"{base_s / middle_s:.2f}x",
            ]
        )
        figures.append(
            {
                "name": name,
                "loading_s": loading_s,
                "predicted_s": predicted_s,
                "measured_s": middle_s,
                "low_s": low_s,
                "high_s": high_s,
                "predicted_gain": gain,
                "measured_gain": base_s / middle_s,
            }
        )
    columns = ["variant", "loading ms", "predicted ms", "measured ms", "spread"]
    columns += ["predicted", "measured"]
    return Table(columns, rows, "a batch, and the gain over loading in turn"), figures


def _drawing(spans: dict[str, list[Span]]) -> list[str]:
    """Draws the work of each thread over time, with one scale for all variants."""
    first = {
        name: [span for span in seen if span.batch < _DRAWN]
        for name, seen in spans.items()
    }
    end_s = max(span.end_s for seen in first.values() for span in seen)
    lines = [
        f"The first {_DRAWN} batches, each as its number; a column is "
        f"{milliseconds(end_s / _WIDTH)} ms:"
    ]
    for name, seen in first.items():
        lines.append(f"  {name}")
        for thread in sorted({span.thread for span in seen}):
            cells = ["."] * _WIDTH
            for span in seen:
                if span.thread != thread:
                    continue
                begin = int(span.start_s / end_s * _WIDTH)
                stop = max(begin + 1, int(span.end_s / end_s * _WIDTH))
                for cell in range(begin, min(stop, _WIDTH)):
                    cells[cell] = str(span.batch)
            lines.append(f"    {thread:<7} {''.join(cells)}")
    return lines
