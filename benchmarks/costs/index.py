"""The index of a million files, with a warm directory cache: its time and its memory.

The measurement opens and closes a loader over a million files and one over a thousand;
the difference is the index. Opening reads and decodes one small batch.
"""

import time

import infeed
from costs.figures import arguments, figure, memory_bytes, report
from infeed import sources
from infeed import transforms as T


def measure_open(path) -> tuple[float, int]:
    """Returns the seconds to open a loader, and its resident bytes while open."""
    started = time.perf_counter()
    pipeline = (
        infeed.Pipeline(sources.Folder(str(path)))
        .decode()
        .transform(T.Resize([32, 32]))
        .batch(4, drop_last=True)
    )
    with pipeline.open():
        return time.perf_counter() - started, memory_bytes("VmRSS")


def main() -> None:
    args = arguments()
    root, few = args.data / "million", args.data / "thousand"
    for _ in root.glob("*/*"):
        pass  # the directory cache
    measure_open(few)
    few_s, few_bytes = measure_open(few)
    all_s, all_bytes = measure_open(root)
    report(
        figure("index of a million files, time", all_s - few_s, 3, "s"),
        figure(
            "index of a million files, memory", (all_bytes - few_bytes) / 1e6, 150, "MB"
        ),
    )


if __name__ == "__main__":
    main()
