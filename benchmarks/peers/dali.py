"""NVIDIA DALI on the CPU only: crops inside the decoders, fused crop-mirror-normalize.

Variants: "fast" for JPEGs with plain upsampling and the fast, less exact inverse DCT.
"""

from collections.abc import Iterator

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, types

from measure import Job, main
from workloads import CROP, MEAN, SIDE, STD, colour_codes

NORMALIZE = {
    "dtype": types.FLOAT,
    "mean": (MEAN * 255).tolist(),
    "std": (STD * 255).tolist(),
}


def running(job: Job, graph, *args) -> Iterator:
    # Reading sometimes needs another thread: one more than cores was best in a sweep on
    # two cores for whole files; for the others it made no difference.
    pipe = dali.pipeline_def(graph)(
        *args,
        batch_size=job.work.batch,
        num_threads=job.threads + (job.work.data == "segmentation"),
        device_id=None,
        prefetch_queue_depth=2,
        seed=1,
    )
    pipe.build()
    while True:
        x, y = pipe.run()
        yield np.asarray(x.as_tensor()), np.asarray(y.as_tensor())


def segmentation(job: Job) -> Iterator:
    def graph(pairs, codes):
        # Two readers with one seed draw the same order.
        order = {
            "random_shuffle": job.work.shuffled,
            "seed": 7,
            "initial_fill": len(pairs),
        }
        image, _ = fn.readers.file(files=[i for i, _ in pairs], name="images", **order)
        mask, _ = fn.readers.file(files=[m for _, m in pairs], name="masks", **order)
        window = {"start": [0, 0], "end": [CROP, CROP], "axes": [0, 1]}
        image = fn.decoders.image_slice(image, **window)
        mask = fn.cast(fn.decoders.image_slice(mask, **window), dtype=types.INT32)
        code = mask[:, :, 0] * 65536 + mask[:, :, 1] * 256 + mask[:, :, 2]
        hot = fn.expand_dims(code, axes=[2]) == types.Constant(codes.reshape(1, 1, -1))
        return fn.cast(image, dtype=types.FLOAT) / np.float32(255), fn.cast(
            hot, dtype=types.FLOAT
        )

    return running(job, graph, job.data.pairs(), colour_codes(job.data.colours()))


def classification(job: Job) -> Iterator:
    fast = job.variant == "fast"

    def graph(paths, labels):
        encoded, label = fn.readers.file(
            files=paths, labels=labels, random_shuffle=True, initial_fill=len(paths)
        )
        image = fn.decoders.image_random_crop(
            encoded,
            random_area=[0.08, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3],
            jpeg_fancy_upsampling=not fast,
            use_fast_idct=fast,
        )
        image = fn.resize(image, size=[SIDE, SIDE])
        flip = fn.random.coin_flip()
        return fn.crop_mirror_normalize(
            image, mirror=flip, output_layout="CHW", **NORMALIZE
        ), label

    return running(job, graph, *job.data.images())


class Rows:
    """Rows of the mapped array in a new random order each epoch, one per call."""

    def __init__(self, pixels: np.ndarray, labels: np.ndarray):
        self.pixels, self.labels = pixels, labels
        self.epoch, self.order = -1, None

    def __call__(self, info):
        if self.epoch != info.epoch_idx:
            self.epoch = info.epoch_idx
            self.order = np.random.default_rng(self.epoch).permutation(len(self.labels))
        row = self.order[info.idx_in_epoch % len(self.labels)]
        return self.pixels[row], self.labels[row : row + 1]


def decoded_rows(job: Job) -> Iterator:
    def graph(rows):
        image, label = fn.external_source(
            rows, num_outputs=2, batch=False, layout=["HWC", None]
        )
        flip = fn.random.coin_flip()
        if job.work.name == "decoded-uint8":
            return fn.flip(image, horizontal=flip), label
        return fn.crop_mirror_normalize(
            image, mirror=flip, output_layout="HWC", **NORMALIZE
        ), label

    return running(job, graph, Rows(*job.data.array()))


if __name__ == "__main__":
    main(
        ["nvidia-dali-cuda130", "numpy"],
        {
            "segmentation": segmentation,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
