"""Memory over 20 epochs: under the byte budget, and flat.

Peak of the process from before the loader is opened, minus the resident size then.
"""

import infeed
from costs.figures import arguments, figure, forget_peak, memory_bytes, report
from infeed import sources
from infeed import transforms as T
from workloads import split_of

BUDGET = 512 << 20
EPOCHS = 20


def main() -> None:
    args = arguments()
    images, masks = split_of(args.segmentation)
    palette = args.segmentation / "class_dict.csv"
    pipeline = (
        infeed.Pipeline(sources.Pairs(image=str(images), mask=str(masks)))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.Crop(512, 512, at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=str(palette)),
        )
        .batch(3, drop_last=True)
    )
    before = memory_bytes("VmRSS")
    forget_peak()
    resident = []
    with pipeline.open(memory=BUDGET) as loader:
        for _ in range(EPOCHS):
            for batch in loader:
                batch["image"], batch["mask"]
            del batch
            resident.append(memory_bytes("VmRSS"))
    peak = memory_bytes("VmHWM") - before
    settled = max(resident[2:6])
    report(
        figure("peak with a budget of 512 MiB", peak / 2**20, BUDGET / 2**20, "MiB"),
        figure(
            "growth from the sixth to the last epochs",
            100 * (max(resident[-4:]) / settled - 1),
            2,
            "%",
        ),
    )


if __name__ == "__main__":
    main()
