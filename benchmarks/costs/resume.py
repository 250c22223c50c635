"""First batch of a resumed run compared with that of a fresh run, for 100 000 files."""

import statistics
import time

import infeed
from costs.figures import arguments, figure, report
from infeed import sources
from infeed import transforms as T

REPEATS = 7


def main() -> None:
    args = arguments()
    pipeline = (
        infeed.Pipeline(sources.Folder(str(args.data / "hundred-thousand")))
        .shuffle(seed=0)
        .decode()
        .transform(T.RandomResizedCrop(224))
        .batch(64, drop_last=True)
    )
    with pipeline.open() as loader:
        state = loader.state_dict()
        state["position"] = 1000 * 64
        state["epoch"] = 3

    def first(resumed: bool) -> float:
        begun = time.perf_counter()
        with pipeline.open() as loader:
            if resumed:
                loader.load_state_dict(state)
            next(iter(loader))["image"]
            return time.perf_counter() - begun

    first(False)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPEATS):
        for resumed in times:
            times[resumed].append(first(resumed))
    ratio = statistics.median(times[True]) / statistics.median(times[False])
    report(figure("first batch, resumed mid-epoch to fresh", ratio, 1.5, "x"))


if __name__ == "__main__":
    main()
