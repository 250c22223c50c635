"""tf.data as its performance guide recommends: parallel map and prefetch, autotuned.

It reads crops of JPEGs through `decode_and_crop_jpeg`. Batches are channels last,
TensorFlow's layout. Variants: "fast" for JPEGs with the fast, less exact inverse DCT.
One iterator runs over a repeated dataset, because destroying an epoch's iterator can
stall for seconds while the autotuner's thread ends.
"""

import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from measure import Job, main
from workloads import BIAS, CROP, SCALE, SIDE, colour_codes

AUTO = tf.data.AUTOTUNE


def finish(job: Job, ds: tf.data.Dataset, one) -> Iterator:
    ds = ds.map(one, num_parallel_calls=AUTO, deterministic=not job.work.shuffled)
    ds = ds.batch(job.work.batch, drop_remainder=True).prefetch(AUTO)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.threads
    return iter(ds.with_options(options))


def segmentation(job: Job) -> Iterator:
    pairs = job.data.pairs()
    codes = tf.constant(colour_codes(job.data.colours()))

    def one(image_path, mask_path):
        image = tf.io.decode_png(tf.io.read_file(image_path), channels=3)[:CROP, :CROP]
        mask = tf.io.decode_png(tf.io.read_file(mask_path), channels=3)[:CROP, :CROP]
        mask = tf.cast(mask, tf.int32)
        code = mask[..., 0] * 65536 + mask[..., 1] * 256 + mask[..., 2]
        hot = tf.cast(tf.equal(code[..., None], codes), tf.float32)
        return tf.image.convert_image_dtype(image, tf.float32), hot

    ds = tf.data.Dataset.from_tensor_slices(
        ([i for i, _ in pairs], [m for _, m in pairs])
    )
    ds = ds.shuffle(len(pairs)) if job.work.shuffled else ds
    return finish(job, ds.repeat(), one)


def classification(job: Job) -> Iterator:
    dct = "INTEGER_FAST" if job.variant == "fast" else "INTEGER_ACCURATE"

    def one(path, label):
        encoded = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(encoded),
            tf.zeros([1, 0, 4], tf.float32),
            min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(
            encoded, window, channels=3, dct_method=dct
        )
        image = tf.image.random_flip_left_right(tf.image.resize(image, (SIDE, SIDE)))
        return image * SCALE + BIAS, label

    paths, labels = job.data.images()
    ds = tf.data.Dataset.from_tensor_slices((paths, labels))
    return finish(job, ds.shuffle(len(paths)).repeat(), one)


def decoded_rows(job: Job) -> Iterator:
    """Fetches rows from the mapped array by batch: one call into Python per batch."""
    pixels, labels = job.data.array()
    floats = job.work.name == "decoded"

    def fetch(rows):
        return pixels[rows], labels[rows]

    def batch(rows):
        x, y = tf.numpy_function(fetch, [rows], (tf.uint8, tf.int64), stateful=False)
        x = tf.image.random_flip_left_right(
            tf.ensure_shape(x, (job.work.batch, SIDE, SIDE, 3))
        )
        return (tf.cast(x, tf.float32) * SCALE + BIAS if floats else x), y

    ds = tf.data.Dataset.range(len(labels)).shuffle(len(labels)).repeat()
    ds = ds.batch(job.work.batch, drop_remainder=True)
    return iter(
        ds.map(batch, num_parallel_calls=AUTO, deterministic=False).prefetch(AUTO)
    )


if __name__ == "__main__":
    main(
        ["tensorflow-cpu", "numpy"],
        {
            "segmentation": segmentation,
            "classification": classification,
            "decoded": decoded_rows,
        },
    )
