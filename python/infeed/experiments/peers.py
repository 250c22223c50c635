"""The loaders that `keras` compares, each run in its own process.

``python -m infeed.experiments.peers`` with a job as JSON on the standard input;
one line of JSON comes back. Batches are crops of images as floats and of masks as
one-hot floats of their classes, shuffled.
"""

import csv
import io
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import infeed
from infeed import _core, sources
from infeed import transforms as T
from infeed.experiments.images import pillow
from infeed.experiments.measuring import MissingError, require

# Worker threads of the generator.
KERAS_WORKERS = 8


def infeed_loader(job: dict[str, Any]) -> Any:
    """Returns an infeed pipeline over the files."""
    root = Path(job["data"])
    return (
        infeed.Pipeline(
            sources.Pairs(image=str(root / "images"), mask=str(root / "masks"))
        )
        .shuffle(seed=0)
        .decode()
        .transform(
            T.Crop(job["side"], job["side"], at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=str(root / "class_dict.csv")),
        )
        .batch(job["batch"], drop_last=True)
    )


def keras_generator(job: dict[str, Any]) -> Any:
    """Returns a PyDataset over Pillow and NumPy, with 8 workers."""
    keras: Any = _keras()
    image = pillow()
    colours = np.array(_colours(job), np.uint8)
    side, rows = int(job["side"]), int(job["batch"])

    def sample(paths: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
        arrays = []
        for path in paths:
            with image.open(io.BytesIO(_core.read_file(path))) as opened:
                arrays.append(np.asarray(opened.convert("RGB"))[:side, :side])
        planes = [np.all(np.equal(arrays[1], c), axis=-1) for c in colours]
        hot = np.stack(planes, axis=-1).astype(np.float32)
        return arrays[0].astype(np.float32) / np.float32(255), hot

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches by number."""

        def __init__(self) -> None:
            super().__init__(workers=KERAS_WORKERS, max_queue_size=10)
            self.pairs: list[tuple[str, str]] = _pairs(job)
            random.Random(0).shuffle(self.pairs)

        def __len__(self) -> int:
            return len(self.pairs) // rows

        def __getitem__(self, n: int) -> tuple[np.ndarray, np.ndarray]:
            chosen = self.pairs[n * rows : (n + 1) * rows]
            images, masks = zip(*map(sample, chosen), strict=True)
            return np.stack(images), np.stack(masks)

        def on_epoch_end(self) -> None:
            random.shuffle(self.pairs)

    return Batches()


def tf_files(job: dict[str, Any]) -> Any:
    """Returns tf.data over the files: parallel map and prefetch, autotuned."""
    tf = _tensorflow()
    pairs = _pairs(job)
    ds = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs, strict=True))))

    def sample(image: Any, mask: Any) -> Any:
        return _tf_sample(tf, job, tf.io.read_file(image), tf.io.read_file(mask))

    ds = ds.shuffle(len(pairs)).map(sample, num_parallel_calls=tf.data.AUTOTUNE)
    return ds.batch(job["batch"], drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def tf_records(job: dict[str, Any]) -> Any:
    """Returns tf.data over TFRecords of the same encoded files."""
    tf = _tensorflow()
    shards = _shards(tf, job)
    features = {
        name: tf.io.FixedLenFeature([], tf.string) for name in ("image", "mask")
    }

    def sample(record: Any) -> Any:
        found = tf.io.parse_single_example(record, features)
        return _tf_sample(tf, job, found["image"], found["mask"])

    ds = tf.data.TFRecordDataset(shards, num_parallel_reads=len(shards))
    ds = ds.shuffle(256).map(sample, num_parallel_calls=tf.data.AUTOTUNE)
    return ds.batch(job["batch"], drop_remainder=True).prefetch(tf.data.AUTOTUNE)


PEERS = {
    "keras": keras_generator,
    "tf-files": tf_files,
    "tf-records": tf_records,
    "infeed": infeed_loader,
}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Runs epochs of a loader under a watch; the step is a sleep."""
    _prepare(job)
    begun = time.perf_counter()
    loader = PEERS[job["peer"]](job)
    prepared_s = time.perf_counter() - begun
    watch = infeed.watch(_Endless(loader), batches=job["steps"])
    epochs = []
    for _ in range(job["epochs"]):
        start = time.perf_counter()
        for batch in watch:
            _check(job, batch)
            time.sleep(job["step_s"])
        epochs.append(time.perf_counter() - start)
    figures = watch.report().figures
    return {
        "prepared_s": prepared_s,
        "first_batch_s": figures.first_batch_s,
        "epochs_s": epochs,
        "waiting": figures.waiting,
        "steps_per_s": figures.step.count / figures.loop_s if figures.loop_s else 0.0,
        "cores": figures.processor.busy,
        "versions": _versions(),
    }


def _prepare(job: dict[str, Any]) -> None:
    """Imports and writes the loader's needs before the measurement."""
    if job["peer"] == "keras":
        _keras()
    elif job["peer"] != "infeed":
        tf = _tensorflow()
        if job["peer"] == "tf-records":
            _shards(tf, job)


class _Endless:
    """Continues from epoch to epoch, as `fit` does with fewer steps than batches."""

    def __init__(self, loader: Any):
        self._loader = loader
        self._running_epoch = self._batches()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._running_epoch)

    def _batches(self) -> Iterator[Any]:
        from infeed.watching.loaders import iterator

        while True:
            yield from iterator(self._loader)


def _check(job: dict[str, Any], batch: Any) -> None:
    """Reads one element of each array, and checks the shapes."""
    image, mask = batch
    rows, side = job["batch"], job["side"]
    shapes = tuple(image.shape), tuple(mask.shape)
    if shapes != ((rows, side, side, 3), (rows, side, side, len(job["palette"]))):
        raise ValueError(f"{job['peer']} gave batches of {shapes}")
    image[0, 0, 0, 0], mask[0, 0, 0, 0]


def _keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return require("keras", "keras", "the Keras generator")


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return require("tensorflow", "tensorflow-cpu", "tf.data")


def _tf_sample(tf: Any, job: dict[str, Any], image: Any, mask: Any) -> Any:
    side = job["side"]
    image = tf.io.decode_png(image, channels=3)[:side, :side]
    mask = tf.cast(tf.io.decode_png(mask, channels=3)[:side, :side], tf.int32)
    codes = tf.constant([r << 16 | g << 8 | b for r, g, b in _colours(job)], tf.int32)
    code = mask[..., 0] * 65536 + mask[..., 1] * 256 + mask[..., 2]
    hot = tf.cast(tf.equal(code[..., None], codes), tf.float32)
    image = tf.ensure_shape(
        tf.image.convert_image_dtype(image, tf.float32), (side, side, 3)
    )
    return image, tf.ensure_shape(hot, (side, side, len(job["palette"])))


def _shards(tf: Any, job: dict[str, Any]) -> list[str]:
    """Writes TFRecords next to the data, once."""
    folder = Path(job["records"])
    paths = [str(folder / f"train-{n}.tfrecord") for n in range(4)]
    if not folder.exists():
        folder.mkdir()
        for n, path in enumerate(paths):
            with tf.io.TFRecordWriter(path) as writer:
                for pair in _pairs(job)[n :: len(paths)]:
                    writer.write(_example(tf, *(_core.read_file(p) for p in pair)))
    return paths


def _example(tf: Any, image: bytes, mask: bytes) -> bytes:
    def feature(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {"image": feature(image), "mask": feature(mask)}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialized: bytes = example.SerializeToString()
    return serialized


def _pairs(job: dict[str, Any]) -> list[tuple[str, str]]:
    root = Path(job["data"])
    masks = {path.stem: path for path in (root / "masks").iterdir()}
    images = sorted((root / "images").iterdir())
    return [(str(path), str(masks[path.stem])) for path in images]


def _colours(job: dict[str, Any]) -> list[list[int]]:
    colours: list[list[int]] = job["palette"]
    return colours


def palette(data: Path) -> list[list[int]]:
    """Returns the colours of a dataset's classes."""
    text = _core.read_file(data / "class_dict.csv").decode()
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    return [[int(row[c]) for c in "rgb"] for row in rows]


def _versions() -> dict[str, str]:
    names = ("tensorflow", "keras", "numpy", "infeed")
    modules = {name: sys.modules.get(name) for name in names}
    return {name: m.__version__ for name, m in modules.items() if m is not None}


if __name__ == "__main__":
    try:
        print(json.dumps(measure(json.load(sys.stdin))), flush=True)
        status = 0
    except MissingError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        status = 0
    # Loaders with daemon threads may take seconds to end.
    os._exit(status)
