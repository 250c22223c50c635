"""Time to the first batch from a cold process with 100 000 files, imports included."""

import time

import infeed
from infeed import sources
from infeed import transforms as T

from costs.figures import arguments, figure, many_files, report

COUNT = 100_000


def main() -> None:
    args = arguments()
    root = args.data / "hundred-thousand"
    made_now = not root.exists()
    many_files(root, COUNT, args.classification)
    imported = time.time()
    pipeline = (
        infeed.Pipeline(sources.Folder(str(root)))
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
    # Making the files is no part of it.
    began = imported if made_now else args.started
    report(figure("first batch, cold process, 100 000 files", done - began, 0.5, "s"))


if __name__ == "__main__":
    main()
