"""Time to the first batch from a cold process with 100 000 files, imports included."""

import time

import infeed
from costs.figures import arguments, figure, report
from infeed import sources
from infeed import transforms as T


def main() -> None:
    args = arguments()
    pipeline = (
        infeed.Pipeline(sources.Folder(str(args.data / "hundred-thousand")))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.RandomResizedCrop(224),
            T.RandomHorizontalFlip(),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(64, drop_last=True)
    )
    with pipeline.open() as loader:
        batch = next(iter(loader))
        batch["image"]
        done = time.time()
    taken = done - args.started
    report(figure("first batch, cold process, 100 000 files", taken, 0.5, "s"))


if __name__ == "__main__":
    main()
