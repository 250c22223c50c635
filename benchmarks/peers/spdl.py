"""SPDL: a pipeline of threads, images decoded and cropped by FFmpeg's filters."""

import random
from collections.abc import Iterator

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from measure import Job, epochs, main
from peers.randomness import random_window
from workloads import BIAS, CROP, SCALE, SIDE, normalize, one_hot

AHEAD = 4  # batches in the sink


def stack(samples: list) -> tuple[np.ndarray, np.ndarray]:
    images, targets = zip(*samples, strict=True)
    return np.stack(images), np.stack(targets)


def by_sample(job: Job, samples: list, one) -> Iterator:
    def epoch(number: int) -> Iterator:
        order = list(samples)
        if job.work.shuffled:
            random.Random(number).shuffle(order)
        pipeline = (
            PipelineBuilder()
            .add_source(order)
            .pipe(one, concurrency=job.threads, output_order="input")
            .aggregate(job.work.batch, drop_last=True)
            .pipe(stack)
            .add_sink(AHEAD)
            .build(num_threads=job.threads + 1)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epochs(epoch)


def segmentation(job: Job) -> Iterator:
    colours = job.data.colours()
    crop = spdl.io.get_video_filter_desc(
        filter_desc=f"crop={CROP}:{CROP}:0:0", pix_fmt="rgb24"
    )

    def one(pair):
        image, mask = (
            spdl.io.to_numpy(spdl.io.load_image(p, filter_desc=crop)) for p in pair
        )
        return np.float32(image) / np.float32(255), one_hot(mask, colours)

    return by_sample(job, job.data.pairs(), one)


def classification(job: Job) -> Iterator:
    def one(sample):
        path, label = sample
        packets = spdl.io.demux_image(path)
        top, left, h, w = random_window(packets.codec.height, packets.codec.width)
        steps = [
            f"crop={w}:{h}:{left}:{top}:exact=1",
            f"scale={SIDE}:{SIDE}:flags=bilinear",
        ]
        if random.random() < 0.5:
            steps.append("hflip")
        filters = spdl.io.get_video_filter_desc(
            filter_desc=",".join(steps), pix_fmt="rgb24"
        )
        frames = spdl.io.decode_packets(packets, filter_desc=filters)
        return normalize(spdl.io.to_numpy(spdl.io.convert_frames(frames))), label

    return by_sample(job, list(zip(*job.data.images(), strict=True)), one)


def decoded_rows(job: Job) -> Iterator:
    """Loads whole batches with one thread each, so that nothing is stacked."""
    pixels, labels = job.data.array()
    size = job.work.batch
    dtype = np.float32 if job.work.name == "decoded" else np.uint8

    def load(rows):
        out = np.empty((len(rows), SIDE, SIDE, 3), dtype)
        for image, row in zip(out, rows, strict=True):
            source = pixels[row]
            source = source[:, ::-1] if random.random() < 0.5 else source
            if dtype is np.uint8:
                image[:] = source
            else:
                np.multiply(source, SCALE, out=image, dtype=np.float32)
        if dtype is np.float32:
            out += BIAS
        return out, labels[rows]

    def epoch(number: int) -> Iterator:
        order = np.random.default_rng(number).permutation(len(labels))
        batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        pipeline = (
            PipelineBuilder()
            .add_source(batches)
            .pipe(load, concurrency=job.threads)
            .add_sink(2)
            .build(num_threads=job.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epochs(epoch)


if __name__ == "__main__":
    main(
        ["spdl", "numpy"],
        {
            "segmentation": segmentation,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
