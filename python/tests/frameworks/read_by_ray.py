"""Reads and writes Ray datasets in one Ray instance.

`test_ray_data` runs it with a folder of photographs, a copy with a bad record, and a
folder to write to; it prints JSON at the end.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray

import infeed
import infeed.ray
from infeed import sources
from infeed import transforms as T


def decode_photos(photos):
    made = infeed.Pipeline(sources.Folder(photos)).decode()
    return made.transform(T.Resize(48), T.CenterCrop(40))


def rows(made):
    """Returns all images and labels of a pipeline."""
    images, labels = [], []
    for batch in made:
        images.append(batch["image"].copy())
        labels += batch["label"].tolist()
    return np.concatenate(images), labels


def error_of(call, *arguments, **settings):
    """Returns the error that a call raises, as text."""
    try:
        call(*arguments, **settings)
    except infeed.InfeedError as error:
        return str(error)
    return "nothing"


def source(photos):
    """A source read by Ray, and back."""
    own = sources.Folder(photos)
    data = infeed.ray.read(own, parallelism=3, ids=True)
    blocks = list(data.iter_batches(batch_size=None, batch_format="pyarrow"))
    table = pa.concat_tables(blocks)
    files = [Path(photos) / name for name in table["name"].to_pylist()]
    contents = table["image"].to_pylist()
    equal = [f.read_bytes() == b for f, b in zip(files, contents, strict=True)]
    back = infeed.ray.source(infeed.ray.read(own, parallelism=3))
    again = infeed.Pipeline(back).decode().transform(T.Resize(48), T.CenterCrop(40))
    here, there = rows(decode_photos(photos).batch(7)), rows(again.batch(7))
    file = Path(back.files[0])
    was_there = file.is_file()
    loader = again.batch(7).open(workers=1)
    del back, again
    still = sum(batch.rows for batch in loader)
    loader.close()
    return {
        "types": [str(t) for t in table.schema.types],
        "count": data.count(),
        "equal": sum(equal),
        "records": table["record"].to_pylist(),
        "blocks": data.materialize().num_blocks(),
        "pixels": bool((here[0] == there[0]).all()),
        "labels": here[1] == there[1],
        "shape": list(there[0].shape),
        "was_there": was_there,
        "is_there": file.parent.exists(),
        "still": still,
    }


def read_shuffled(photos):
    """A shuffled pipeline read by Ray."""
    made = decode_photos(photos).shuffle(seed=3).transform(T.RandomHorizontalFlip(0.5))
    here = rows(made.batch(8))
    tensors = infeed.ray.read(made, parallelism=4)
    schema = tensors.schema().base_schema
    there = list(tensors.iter_batches(batch_size=None, batch_format="numpy"))
    pixels = np.concatenate([batch["image"] for batch in there])
    labels = np.concatenate([batch["label"] for batch in there]).tolist()
    back = rows(infeed.Pipeline(infeed.ray.source(tensors)).batch(8))
    batched = infeed.ray.read(made.batch(8, tail="pad"), parallelism=2)
    return {
        "type": str(schema.field("image").type),
        "pixels": bool((here[0] == pixels).all()),
        "labels": here[1] == labels,
        "back": bool((here[0] == back[0]).all()),
        "classes": here[1] == back[1],
        "rows": batched.count(),
    }


def memory(folder):
    """Numbers, text and lists read by Ray, and tensors of Ray."""
    values = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    own = sources.Memory(
        box=values,
        label=np.arange(10),
        text=[f"row {n}" for n in range(10)],
        lists=[np.arange(n % 4, dtype=np.int32) for n in range(10)],
    )
    data = infeed.ray.read(own, parallelism=2)
    batch = next(iter(infeed.Pipeline(infeed.ray.source(data)).batch(10)))
    numbers, offsets = batch["lists"]
    of_ray = ray.data.range_tensor(12, shape=(2, 2)).map_batches(
        lambda each: {"x": each["data"].astype(np.int32), "n": each["data"][:, 0, 0]}
    )
    kept = infeed.ray.source(of_ray, folder=folder, fields=["x"])
    tensors = next(iter(infeed.Pipeline(kept).batch(12)))
    return {
        "box": bool((batch["box"] == values).all()),
        "label": batch["label"].tolist(),
        "text": batch["text"][3],
        "numbers": numbers.tolist(),
        "offsets": offsets.tolist(),
        "tensors": tensors["x"][:, 1, 1].tolist(),
        "names": list(tensors.keys()),
        "kept": kept.files[0],
        "twice": error_of(infeed.ray.source, of_ray, folder=folder),
    }


def unreadable(photos):
    """Errors of pipelines and datasets that cannot be read."""
    made = decode_photos(photos)
    plain = infeed.Pipeline(sources.Folder(photos)).decode().batch(4, pad=True)
    named = sources.Memory(record=np.arange(4))
    half = made.transform(T.ToFloat(), dtype="bfloat16").batch(4)
    tokens = made.batch(max_tokens=9, lengths=[1] * 30)
    shapes = ray.data.from_items([{"x": np.zeros((n + 1, 2))} for n in range(3)])
    none = ray.data.range(4).filter(lambda row: False)
    read, own = infeed.ray.read, sources.Folder(photos)
    return {
        "shape": error_of(read, plain),
        "ids": error_of(read, named, ids=True),
        "half": error_of(read, half),
        "other": error_of(read, "photos"),
        "tasks": error_of(read, own, parallelism=0),
        "cpus": error_of(read, own, cpus=0),
        "tokens": error_of(read, tokens),
        "shapes": error_of(infeed.ray.source, shapes),
        "none": error_of(infeed.ray.source, none),
    }


def bad_record(photos, on_error):
    """A dataset with one bad record."""
    data = infeed.ray.read(decode_photos(photos), parallelism=3, on_error=on_error)
    try:
        return {"rows": data.materialize().count()}
    except Exception as error:
        return {"error": str(error)}


def main():
    photos, damaged, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    ray.init(num_cpus=2, object_store_memory=100_000_000, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    scenarios = {
        "source": lambda: source(photos),
        "shuffled": lambda: read_shuffled(photos),
        "memory": lambda: memory(folder),
        "unreadable": lambda: unreadable(photos),
        "stop": lambda: bad_record(damaged, "stop"),
        "skip": lambda: bad_record(damaged, "skip"),
    }
    found = {}
    for name, scenario in scenarios.items():
        began = time.monotonic()
        found[name] = scenario()
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
