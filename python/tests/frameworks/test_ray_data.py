"""infeed as a source of Ray Data, and Ray Data as a source of infeed."""

import json
import shutil
from pathlib import Path

import pytest
from requirements import framework_test, require
from running import run

require("ray")
pytestmark = framework_test

SCRIPT = Path(__file__).parent / "read_by_ray.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ray_data")


@pytest.fixture(scope="module")
def bad(classification, folder) -> Path:
    """A bad record in a copy of the photographs."""
    shutil.copytree(classification.path, folder / "photos")
    path = sorted((folder / "photos").rglob("*.jpg"))[17]
    path.write_bytes(b"no image")
    return path


@pytest.fixture(scope="module")
def on_ray(classification, folder, bad) -> dict[str, dict]:
    """Results of one Ray instance, one per scenario."""
    arguments = (classification.path, folder / "photos", folder / "kept")
    printed = run(SCRIPT.read_text(), *arguments, timeout_s=400)
    return json.loads(printed.splitlines()[-1])


def test_a_source_keeps_its_pixels_and_classes_through_ray(on_ray):
    found = on_ray["source"]

    assert found["types"] == ["binary", "int64", "int64", "string"]
    assert found["count"] == found["equal"] == 30
    assert found["records"] == list(range(30))
    assert found["blocks"] >= 3
    assert found["pixels"]
    assert found["labels"]
    assert found["shape"] == [30, 40, 40, 3]
    assert found["was_there"]
    assert not found["is_there"]
    assert found["still"] == 30


def test_a_pipeline_yields_tensors_in_its_own_order(on_ray):
    found = on_ray["shuffled"]

    assert "fixed_shape_tensor" in found["type"]
    assert "40,40,3" in found["type"].replace(" ", "")
    assert found["pixels"]
    assert found["labels"]
    assert found["back"]
    assert found["classes"]
    assert found["rows"] == 30


def test_numbers_text_lists_and_memory_are_converted_and_back(on_ray, folder):
    found = on_ray["memory"]

    assert found["box"]
    assert found["label"] == list(range(10))
    assert found["text"] == "row 3"
    assert found["numbers"] == [x for n in range(10) for x in range(n % 4)]
    assert found["offsets"][-1] == len(found["numbers"])
    assert found["tensors"] == list(range(12))
    assert found["names"] == ["x"]
    assert found["kept"] == str(folder / "kept" / "blocks.arrow")
    assert "exists already" in found["twice"]


def test_datasets_that_cannot_be_read_raise_with_a_fix(on_ray):
    found = on_ray["unreadable"]

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


def test_a_bad_record_raises_and_is_named(on_ray, bad):
    assert bad.name in on_ray["stop"]["error"]


def test_a_bad_record_is_left_out(on_ray):
    assert on_ray["skip"] == {"rows": 29}
