"""infeed as a source of Ray Data, and Ray Data as a source of infeed."""

import json
import shutil

import pytest
from installed import framework_test, needed
from running import run

needed("ray")
pytestmark = framework_test

# One Ray instance per test; each script prints a line.
BEGIN = """
import json, os, sys, warnings
from pathlib import Path

warnings.simplefilter("ignore")
import numpy as np
import pyarrow as pa
import ray

ray.init(num_cpus=2, object_store_memory=100_000_000, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
import infeed, infeed.ray
from infeed import sources
from infeed import transforms as T

photos = sources.Folder(sys.argv[1])
decoded = infeed.Pipeline(photos).decode().transform(T.Resize(48), T.CenterCrop(40))

def rows(pipeline):
    images, labels = [], []
    for batch in pipeline:
        images.append(batch["image"].copy())
        labels += batch["label"].tolist()
    return np.concatenate(images), labels

def refused(call, *arguments, **settings):
    try:
        call(*arguments, **settings)
    except infeed.InfeedError as error:
        return str(error)
    return "nothing"

def tell(**found):
    print(json.dumps(found))

"""


def reported(script: str, *arguments: object) -> dict:
    """Runs a script and returns its last line."""
    text = run(BEGIN + script, *arguments, timeout_s=400)
    return json.loads(text.splitlines()[-1])


def test_a_source_keeps_its_pixels_and_classes_through_ray(classification, tmp_path):
    found = reported(
        """
data = infeed.ray.read(photos, parallelism=3, ids=True)
table = pa.concat_tables(data.iter_batches(batch_size=None, batch_format="pyarrow"))
files = [Path(sys.argv[1]) / name for name in table["name"].to_pylist()]
same = [f.read_bytes() == b for f, b in zip(files, table["image"].to_pylist())]
back = infeed.ray.source(infeed.ray.read(photos, parallelism=3))
again = infeed.Pipeline(back).decode().transform(T.Resize(48), T.CenterCrop(40))
here, there = rows(decoded.batch(7)), rows(again.batch(7))
file = Path(back.files[0])
was_there = file.is_file()
loader = again.batch(7).open(workers=1)
del back, again
still = sum(batch.rows for batch in loader)
loader.close()
tell(
    types=[str(t) for t in table.schema.types], count=data.count(), same=sum(same),
    records=table["record"].to_pylist(), blocks=data.materialize().num_blocks(),
    pixels=bool((here[0] == there[0]).all()), labels=here[1] == there[1],
    shape=list(there[0].shape), was_there=was_there, is_there=file.parent.exists(),
    still=still,
)
""",
        classification.path,
    )

    assert found["types"] == ["binary", "int64", "int64", "string"]
    assert found["count"] == found["same"] == 30
    assert found["records"] == list(range(30))
    assert found["blocks"] >= 3
    assert found["pixels"]
    assert found["labels"]
    assert found["shape"] == [30, 40, 40, 3]
    assert found["was_there"]
    assert not found["is_there"]
    assert found["still"] == 30


def test_a_pipeline_yields_tensors_in_its_own_order(classification):
    found = reported(
        """
shuffled = decoded.shuffle(seed=3).transform(T.RandomHorizontalFlip(0.5))
here = rows(shuffled.batch(8))
tensors = infeed.ray.read(shuffled, parallelism=4)
schema = tensors.schema().base_schema
there = list(tensors.iter_batches(batch_size=None, batch_format="numpy"))
pixels = np.concatenate([batch["image"] for batch in there])
labels = np.concatenate([batch["label"] for batch in there]).tolist()
back = rows(infeed.Pipeline(infeed.ray.source(tensors)).batch(8))
batched = infeed.ray.read(shuffled.batch(8, tail="pad"), parallelism=2)
tell(
    type=str(schema.field("image").type), pixels=bool((here[0] == pixels).all()),
    labels=here[1] == labels, back=bool((here[0] == back[0]).all()),
    classes=here[1] == back[1], rows=batched.count(),
)
""",
        classification.path,
    )

    assert "fixed_shape_tensor" in found["type"]
    assert "40,40,3" in found["type"].replace(" ", "")
    assert found["pixels"]
    assert found["labels"]
    assert found["back"]
    assert found["classes"]
    assert found["rows"] == 30


def test_numbers_text_lists_and_memory_are_converted_both_ways(
    classification, tmp_path
):
    found = reported(
        """
values = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
lists = [np.arange(n % 4, dtype=np.int32) for n in range(10)]
memory = sources.Memory(
    box=values, label=np.arange(10), text=[f"row {n}" for n in range(10)], lists=lists
)
data = infeed.ray.read(memory, parallelism=2)
batch = next(iter(infeed.Pipeline(infeed.ray.source(data)).batch(10)))
numbers, offsets = batch["lists"]
of_ray = ray.data.range_tensor(12, shape=(2, 2)).map_batches(
    lambda rows: {"x": rows["data"].astype(np.int32), "n": rows["data"][:, 0, 0]}
)
kept = infeed.ray.source(of_ray, folder=sys.argv[2], fields=["x"])
own = next(iter(infeed.Pipeline(kept).batch(12)))
tell(
    box=bool((batch["box"] == values).all()), label=batch["label"].tolist(),
    text=batch["text"][3], numbers=numbers.tolist(), offsets=offsets.tolist(),
    own=own["x"][:, 1, 1].tolist(), names=list(own.keys()), kept=kept.files[0],
    twice=refused(infeed.ray.source, of_ray, folder=sys.argv[2]),
)
""",
        classification.path,
        tmp_path / "kept",
    )

    assert found["box"]
    assert found["label"] == list(range(10))
    assert found["text"] == "row 3"
    assert found["numbers"] == [x for n in range(10) for x in range(n % 4)]
    assert found["offsets"][-1] == len(found["numbers"])
    assert found["own"] == list(range(12))
    assert found["names"] == ["x"]
    assert found["kept"] == str(tmp_path / "kept" / "blocks.arrow")
    assert "exists already" in found["twice"]


def test_datasets_that_cannot_be_read_raise_with_a_fix(classification):
    found = reported(
        """
plain = infeed.Pipeline(photos).decode().batch(4, pad=True)
named = sources.Memory(record=np.arange(4))
half = decoded.transform(T.ToFloat(), dtype="bfloat16").batch(4)
shapes = ray.data.from_items([{"x": np.zeros((n + 1, 2))} for n in range(3)])
none = ray.data.range(4).filter(lambda row: False)
tell(
    shape=refused(infeed.ray.read, plain),
    ids=refused(infeed.ray.read, named, ids=True),
    half=refused(infeed.ray.read, half), other=refused(infeed.ray.read, "photos"),
    tasks=refused(infeed.ray.read, photos, parallelism=0),
    cpus=refused(infeed.ray.read, photos, cpus=0),
    tokens=refused(infeed.ray.read, decoded.batch(max_tokens=9, lengths=[1] * 30)),
    shapes=refused(infeed.ray.source, shapes), none=refused(infeed.ray.source, none),
)
""",
        classification.path,
    )

    for name, part in {
        "shape": "differs between rows",
        "ids": "leave ids out",
        "tokens": "without max_tokens",
        "half": "bfloat16, which Arrow does not have",
        "other": "source must be a pipeline or a source",
        "tasks": "parallelism must be",
        "cpus": "cpus must be",
        "shapes": "tensors of several shapes",
        "none": "has no rows",
    }.items():
        assert part in found[name], name


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_bad_record_raises_or_is_left_out(classification, tmp_path, on_error):
    shutil.copytree(classification.path, tmp_path / "photos")
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[17]
    bad.write_bytes(b"no image")

    found = reported(
        """
data = infeed.ray.read(decoded, parallelism=3, on_error=sys.argv[2])
try:
    tell(rows=data.materialize().count())
except Exception as error:
    tell(error=str(error))
""",
        tmp_path / "photos",
        on_error,
    )

    if on_error == "skip":
        assert found == {"rows": 29}
    else:
        assert bad.name in found["error"]
