"""infeed itself, through its public API.

Variants: "" as documented; "unverified" without the check of PNG checksums, which the
bare loop omits, too; "arrow" from Arrow files packed once instead of .npy.
"""

import struct
from collections.abc import Iterator

import numpy as np

import infeed
from infeed import sources
from infeed import transforms as T
from measure import Job, epochs, main
from workloads import CROP, SIDE, files_below, split_of

SEED = 0
NORMALIZE = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)


def open_pipeline(
    job: Job, pipeline: infeed.Pipeline, fields: tuple[str, str]
) -> Iterator:
    if job.work.shuffled:
        pipeline = pipeline.shuffle(seed=SEED)
    loader = pipeline.batch(job.work.batch, drop_last=True).open(workers=job.threads)
    return epochs(
        lambda _: ([np.asarray(batch[f]) for f in fields] for batch in loader)
    )


def segmentation(job: Job) -> Iterator:
    images, masks = split_of(job.data.records or job.data.segmentation)
    palette = job.data.segmentation / "class_dict.csv"
    pipeline = (
        infeed.Pipeline(sources.Pairs(image=str(images), mask=str(masks)))
        .decode(verify=job.variant != "unverified")
        .transform(
            T.Crop(CROP, CROP, at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=str(palette)),
        )
    )
    return open_pipeline(job, pipeline, ("image", "mask"))


def whole_png(job: Job) -> Iterator:
    images, _ = split_of(job.data.segmentation)
    # A batch needs one size; a crop to the size of all images removes nothing.
    with open(files_below(images)[0], "rb") as first:
        width, height = struct.unpack(">II", first.read(24)[16:])
    pipeline = (
        infeed.Pipeline(sources.Folder(str(images), labels="none"))
        .decode(verify=job.variant != "unverified")
        .transform(T.Crop(height, width, at="top_left"))
    )
    return open_pipeline(job, pipeline, ("image", "image"))


def classification(job: Job) -> Iterator:
    path = job.data.records or job.data.classification
    pipeline = infeed.Pipeline(sources.Folder(str(path))).decode()
    crop = (T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip())
    if "uint8" in job.work.name:
        pipeline = pipeline.transform(*crop)
    else:
        pipeline = pipeline.transform(*crop, NORMALIZE, layout="CHW")
    labelled = any(p.is_dir() for p in job.data.classification.iterdir())
    return open_pipeline(job, pipeline, ("image", "label" if labelled else "image"))


def decoded_rows(job: Job) -> Iterator:
    pixels, labels = job.data.array()
    finish = [NORMALIZE] if job.work.name == "decoded" else []
    source: sources.Source = sources.Memory(image=pixels, label=labels)
    if job.variant == "arrow":
        packed = job.data.decoded.with_suffix(".arrow-shards")
        infeed.pack(infeed.Pipeline(source), packed, to="arrow", encode="raw")
        source = sources.Arrow(str(packed / "*.arrow"))
    pipeline = infeed.Pipeline(source).transform(T.RandomHorizontalFlip(), *finish)
    return open_pipeline(job, pipeline, ("image", "label"))


if __name__ == "__main__":
    main(
        ["infeed", "numpy"],
        {
            "segmentation": segmentation,
            "whole-png": whole_png,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
