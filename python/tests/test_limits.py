"""Limits that hold for every file: its kind, its length, and links that lead to it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import InfeedError, sources

SPARSE_BYTES = 200 * 10**9

# Opens a source in a child, which a time limit ends, and reads all records.
READ = """
import sys, infeed
from infeed import sources
try:
    pipeline = infeed.Pipeline(eval(sys.argv[1]))
    fields = pipeline.describe() if False else None
    decoded = pipeline.decode() if sys.argv[2] == "decode" else pipeline
    with decoded.batch(1, pad=True).open(
        workers=1, memory="256MiB", on_error="skip"
    ) as loader:
        count = sum(len(batch.records) for batch in loader)
        print("read", count, [bad.reason for bad in loader.bad_records], flush=True)
except infeed.InfeedError as error:
    print(type(error).__name__, error, flush=True)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", int(peak.split()[1]) >> 10)
"""


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE_BYTES)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "pipe": (os.mkfifo, "a named pipe"),
    "sparse": (sparse, "200000000000"),
}


def image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48)).save(path)
    return path


def child(source: str, decode: bool = True) -> tuple[str, int]:
    """Returns the output of reading a source in a child, and its peak in MiB."""
    command = [sys.executable, "-c", READ, source, "decode" if decode else ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    output, peak = done.stdout.rsplit("peak", 1)
    return output.strip(), int(peak)


def coco(root: Path) -> dict[str, object]:
    entry = {"id": 1, "file_name": "a.png", "height": 48, "width": 64}
    other = {"id": 2, "file_name": "b.png", "height": 48, "width": 64}
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9]}
    return {
        "images": [entry, other],
        "annotations": [annotation],
        "categories": [{"id": 1, "name": "x"}],
    }


def voc(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"JPEGImages/{name}.jpg")
        text = "<annotation><object><name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
        text += "<xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
        (root / "Annotations").mkdir(exist_ok=True)
        (root / f"Annotations/{name}.xml").write_text(text)
    (root / "ImageSets/Main").mkdir(parents=True)
    (root / "ImageSets/Main/train.txt").write_text("a\nb\n")
    return f"sources.Voc({str(root)!r})"


def yolo(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"images/{name}.png")
        (root / "labels").mkdir(exist_ok=True)
        (root / f"labels/{name}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (root / "names.txt").write_text("x\n")
    (root / "data.yaml").write_text("names: [x]\n")
    return f"sources.Yolo({str(root / 'images')!r})"


def labelme(root: Path) -> str:
    shape = {"label": "x", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
    for name in ("a", "b"):
        image(root / f"{name}.png")
        (root / f"{name}.json").write_text(json.dumps({"shapes": [shape]}))
    return f"sources.LabelMe({str(root)!r})"


def coco_source(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"images/{name}.png")
    (root / "c.json").write_text(json.dumps(coco(root)))
    return f"sources.Coco({str(root / 'images')!r}, {str(root / 'c.json')!r})"


def listed(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"images/{name}.png")
    (root / "list.csv").write_text("path,label\na.png,0\nb.png,1\n")
    list_ = str(root / "list.csv")
    return f"sources.Folder({str(root / 'images')!r}, labels={list_!r})"


def folder(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"x/{name}.png")
    return f"sources.Folder({str(root)!r})"


def pairs(root: Path) -> str:
    for name in ("a", "b"):
        image(root / f"images/{name}.png")
        image(root / f"masks/{name}.png")
    parts = str(root / "images"), str(root / "masks")
    return f"sources.Pairs{parts!r}"


def shard(name: str) -> Callable[[Path], str]:
    kinds = {
        "tar": "WebDataset",
        "tfrecord": "TFRecord",
        "parquet": "Parquet",
        "arrow": "Arrow",
        "npz": "Npz",
    }
    kind = kinds[name]

    def make(root: Path) -> str:
        root.mkdir(parents=True, exist_ok=True)
        (root / f"a.{name}").touch()
        return f"sources.{kind}({str(root / f'a.{name}')!r})"

    return make


def mds(root: Path) -> str:
    root.mkdir(parents=True, exist_ok=True)
    (root / "index.json").touch()
    return f"sources.MDS({str(root)!r})"


def classes(option: str, name: str) -> Callable[[Path], str]:
    return lambda root: yolo(root)[:-1] + f", {option}={str(root / name)!r})"


def folder_classes(root: Path) -> str:
    source = folder(root / "data")
    (root / "names.txt").write_text("x\n")
    return source[:-1] + f", classes={str(root / 'names.txt')!r})"


# How a source is made, the file that is replaced, and whether it belongs to one record.
FILES: dict[str, tuple[Callable[[Path], str], str, bool]] = {
    "image of a folder": (folder, "x/a.png", True),
    "image of a list": (listed, "images/a.png", True),
    "list": (listed, "list.csv", False),
    "names of a folder": (folder_classes, "names.txt", False),
    "mask": (pairs, "masks/a.png", True),
    "image of COCO": (coco_source, "images/a.png", True),
    "file of COCO": (coco_source, "c.json", False),
    "label of YOLO": (yolo, "labels/a.txt", True),
    "image of YOLO": (yolo, "images/a.png", True),
    "names of YOLO": (classes("classes", "names.txt"), "names.txt", False),
    "data.yaml": (classes("classes", "data.yaml"), "data.yaml", False),
    "label of LabelMe": (labelme, "a.json", True),
    "label of VOC": (voc, "Annotations/a.xml", True),
    "list of VOC": (voc, "ImageSets/Main/train.txt", False),
    "image of VOC": (voc, "JPEGImages/a.jpg", True),
    "tar": (shard("tar"), "a.tar", False),
    "TFRecord": (shard("tfrecord"), "a.tfrecord", False),
    "Parquet": (shard("parquet"), "a.parquet", False),
    "Arrow": (shard("arrow"), "a.arrow", False),
    "NPZ": (shard("npz"), "a.npz", False),
    "MDS": (mds, "index.json", False),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
def test_a_device_a_pipe_or_a_huge_file_is_an_error_at_once_that_names_it(
    tmp_path, file, kind
):
    make, name, is_record = FILES[file]
    source = make(tmp_path)
    path = tmp_path / ("data/" + name if file == "names of a folder" else name)
    path = path if path.exists() else tmp_path / name
    path.unlink()
    replace, what = KINDS[kind]
    replace(path)

    output, peak = child(source, decode="png" in name or "jpg" in name or is_record)

    assert peak < 400, output
    left_out = file in ("image of a folder", "image of YOLO") and kind != "sparse"
    if left_out:
        # A warning names what a folder has in place of an image.
        assert output.startswith("read 1 []"), output
    elif file == "mask" and kind != "sparse":
        assert "ConfigError" in output and "has no mask" in output.replace(
            "have no mask", "has no mask"
        ), output
    elif is_record and (kind == "sparse" or "image" in file):
        assert output.startswith("read 1 ["), output
        assert path.name in output and (what in output or kind == "sparse"), output
    else:
        assert output.startswith(("OpenError", "ConfigError")), output
        assert path.name in output, output
        assert what in output or kind == "sparse", output
