"""A device slower than the cores: the waiting time, and the time of an epoch.

The step takes a third longer than the cores need for a batch, which is measured first.
"""

import time

import infeed
from costs.figures import arguments, figure, report
from infeed import sources
from infeed import transforms as T
from machine import cores

SLACK = 4 / 3
SPAN_S = 8


def main() -> None:
    args = arguments()
    pipeline = (
        infeed.Pipeline(sources.Folder(str(args.classification)))
        .shuffle(seed=0)
        .decode()
        .transform(T.RandomResizedCrop(224), T.RandomHorizontalFlip())
        .batch(16, drop_last=True)
    )
    with pipeline.open(workers=cores()) as loader:
        started, batches = time.perf_counter(), 0
        while time.perf_counter() - started < 2:
            batches += sum(1 for _ in loader)
        step_s = SLACK * (time.perf_counter() - started) / batches
        waited, steps = 0.0, 0
        began = now = time.perf_counter()
        while now - began < SPAN_S:
            # The wait between epochs counts like any other.
            for _ in loader:
                waited += time.perf_counter() - now
                time.sleep(step_s)
                now = time.perf_counter()
                steps += 1
        total = now - began
    report(
        figure(
            "consumer waits, step a third above the cores' need",
            100 * waited / total,
            1,
            "%",
        ),
        figure("epoch time against steps x step", total / (steps * step_s), 1.02, "x"),
    )


if __name__ == "__main__":
    main()
