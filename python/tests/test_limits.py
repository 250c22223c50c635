"""Limits that hold for every file: its kind, its length, and links that lead to it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

import infeed
from infeed import _core, sources
from infeed.errors import ConfigError, OpenError

SPARSE_BYTES = 200 * 10**9

COMMAND = Path(sys.executable).with_name("infeed")

# Reads all records of a source, in a process that a time limit ends.
READ = """
import sys, infeed
from infeed import sources
try:
    pipeline = infeed.Pipeline(eval(sys.argv[1])).decode().batch(1, pad=True)
    with pipeline.open(workers=1, memory=sys.argv[2], on_error="skip") as loader:
        count = sum(len(batch.records) for batch in loader)
        print("read", count, [bad.reason for bad in loader.bad_records])
except infeed.InfeedError as error:
    print("error", error)
status = open("/proc/self/status").read().splitlines()
print("peak", *(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


class Reading(NamedTuple):
    """Output of reading a source in a child, and the peak of its memory in MiB."""

    output: str
    peak: int


def read(source: str, memory: str = "256MiB", limit_kib: int | None = None) -> Reading:
    command = [sys.executable, "-c", READ, source, memory]
    if limit_kib is not None:
        command = ["bash", "-c", f'ulimit -v {limit_kib}; exec "$@"', "bash", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    output, peak = done.stdout.rsplit("peak", 1)
    return Reading(output.strip(), int(peak) >> 10)


def image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48)).save(path)


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def folder(root: Path, **options: object) -> sources.Source:
    for name in "ab":
        image(root / f"x/{name}.png")
    return sources.Folder(root, **options)


def classes(root: Path, **options: object) -> sources.Source:
    names = write_file(root / "names.txt", "x\n")
    folder(root / "data")
    return sources.Folder(root / "data", classes=names, **options)


def csv(root: Path, **options: object) -> sources.Source:
    for name in "ab":
        image(root / f"images/{name}.png")
    rows = write_file(root / "list.csv", "path,label\na.png,0\nb.png,1\n")
    return sources.Folder(root / "images", labels=rows, **options)


def pairs(root: Path, **options: object) -> sources.Source:
    for name in "ab":
        image(root / f"images/{name}.png")
        Image.new("L", (64, 48)).save(write_file(root / f"masks/{name}.png", ""))
    return sources.Pairs(root / "images", root / "masks", **options)


def coco(root: Path, **options: object) -> sources.Source:
    size = {"height": 48, "width": 64}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9]}
    for name in "ab":
        image(root / f"images/{name}.png")
    content = {
        "images": [
            {"id": 1, "file_name": "a.png", **size},
            {"id": 2, "file_name": "b.png", **size},
        ],
        "annotations": [box],
        "categories": [{"id": 1, "name": "x"}],
    }
    file = write_file(root / "coco.json", json.dumps(content))
    return sources.Coco(root / "images", file, **options)


def yolo(root: Path, **options: object) -> sources.Source:
    for name in "ab":
        image(root / f"images/{name}.png")
        write_file(root / f"labels/{name}.txt", "0 0.5 0.5 0.2 0.2\n")
    return sources.Yolo(root / "images", **options)


def yolo_names(root: Path, **options: object) -> sources.Source:
    return yolo(root, classes=write_file(root / "names.txt", "x\n"), **options)


def yolo_yaml(root: Path, **options: object) -> sources.Source:
    return yolo(root, classes=write_file(root / "data.yaml", "names: [x]\n"), **options)


def labelme(root: Path, **options: object) -> sources.Source:
    shape = {"label": "x", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
    for name in "ab":
        image(root / f"{name}.png")
        write_file(root / f"{name}.json", json.dumps({"shapes": [shape]}))
    return sources.LabelMe(root, **options)


def voc(root: Path, **options: object) -> sources.Source:
    box = "<xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
    thing = f"<object><name>dog</name><bndbox>{box}</bndbox></object>"
    for name in "ab":
        image(root / f"JPEGImages/{name}.jpg")
        text = f"<annotation>{thing}</annotation>"
        write_file(root / f"Annotations/{name}.xml", text)
    write_file(root / "ImageSets/Main/train.txt", "a\nb\n")
    return sources.Voc(root, **options)


def shard(kind: type[sources.Source], name: str) -> Callable[..., sources.Source]:
    return lambda root, **options: kind(write_file(root / name, ""), **options)


def mds(root: Path, **options: object) -> sources.Source:
    write_file(root / "index.json", "")
    return sources.MDS(root, **options)


class File(NamedTuple):
    """A file of a source, and the result after it is replaced by another kind.

    ``error``: opening raises an error. ``bad``: the record is bad. ``left out``: the
    folder is read without the file.
    """

    make: Callable[..., sources.Source]
    name: str
    special: str
    sparse: str


FILES = {
    "image of a folder": File(folder, "x/a.png", "left out", "bad"),
    "image of a list": File(csv, "images/a.png", "bad", "bad"),
    "list": File(csv, "list.csv", "error", "error"),
    "names of classes": File(classes, "names.txt", "error", "error"),
    "image of a pair": File(pairs, "images/a.png", "error", "bad"),
    "mask": File(pairs, "masks/a.png", "error", "bad"),
    "image of COCO": File(coco, "images/a.png", "bad", "bad"),
    "annotations of COCO": File(coco, "coco.json", "error", "error"),
    "image of YOLO": File(yolo, "images/a.png", "left out", "bad"),
    "label of YOLO": File(yolo, "labels/a.txt", "error", "bad"),
    "names of YOLO": File(yolo_names, "names.txt", "error", "error"),
    "data.yaml": File(yolo_yaml, "data.yaml", "error", "error"),
    "image of LabelMe": File(labelme, "a.png", "left out", "bad"),
    "label of LabelMe": File(labelme, "a.json", "error", "bad"),
    "image of VOC": File(voc, "JPEGImages/a.jpg", "bad", "bad"),
    "label of VOC": File(voc, "Annotations/a.xml", "error", "bad"),
    "list of VOC": File(voc, "ImageSets/Main/train.txt", "error", "error"),
    "tar": File(shard(sources.WebDataset, "a.tar"), "a.tar", "error", "error"),
    "TFRecord": File(shard(sources.TFRecord, "a.tfrecord"), "a.tf*", "error", "error"),
    "MDS": File(mds, "index.json", "error", "error"),
    "Parquet": File(shard(sources.Parquet, "a.parquet"), "a.par*", "error", "error"),
    "Arrow": File(shard(sources.Arrow, "a.arrow"), "a.arrow", "error", "error"),
    "NPZ": File(shard(sources.Npz, "a.npz"), "a.npz", "error", "error"),
}

SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
    "pipe": (os.mkfifo, "it is a named pipe"),
}


def replace_file(root: Path, file: File) -> tuple[str, Path]:
    """Returns the code of a source and the path of its file, which is removed."""
    source = file.make(root)
    (path,) = root.glob(file.name)
    path.unlink()
    return repr(source), path


def check(reading: Reading, outcome: str, path: Path, what: str) -> None:
    output = reading.output
    assert reading.peak < 400, reading
    match outcome:
        case "error":
            assert output.startswith("error"), output
            assert path.name in output, output
            # Listing a folder leaves out the partner of a file.
            assert what in output or "have no" in output, output
        case "bad":
            assert output.startswith("read 1 ["), output
            assert path.name in output, output
            assert what in output, output
        case _:
            assert output == "read 1 []", output


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", FILES)
def test_a_link_to_a_device_or_a_pipe_is_found_at_once_as_any_file(
    tmp_path, name, kind
):
    file = FILES[name]
    source, path = replace_file(tmp_path, file)
    make, what = SPECIAL[kind]
    make(path)

    check(read(source), file.special, path, what)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_200_gigabytes_is_found_at_once_as_any_file(tmp_path, name):
    file = FILES[name]
    source, path = replace_file(tmp_path, file)
    path.touch()
    os.truncate(path, SPARSE_BYTES)

    check(read(source), file.sparse, path, "")


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("command", ["inspect", "bench"])
def test_commands_read_no_device_and_no_pipe_as_a_pipeline(tmp_path, command, kind):
    path = tmp_path / "pipeline.toml"
    make, what = SPECIAL[kind]
    make(path)

    done = subprocess.run(
        [COMMAND, command, path], capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 1
    assert f"cannot open {path}: {what}" in done.stderr


def test_a_pipeline_is_read_from_standard_input(tmp_path):
    source = folder(tmp_path / "data")
    infeed.Pipeline(source).decode().batch(1, pad=True).save(tmp_path / "p.toml")
    # Paths of a file are relative to its folder.
    text = (tmp_path / "p.toml").read_text().replace('"data"', f'"{tmp_path}/data"')

    done = subprocess.run(
        [COMMAND, "inspect", "/dev/stdin"],
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr


def test_boxes_of_a_record_count_in_the_memory_of_the_loader(tmp_path):
    yolo(tmp_path)
    write_file(tmp_path / "labels/a.txt", "0 .5 .5 .2 .2\n" * 300_000)
    source = repr(sources.Yolo(tmp_path / "images"))

    small = read(source, memory="96MiB")
    large = read(source, memory="1GiB")

    assert small.output.startswith("read 1 ["), small
    assert "a.png" in small.output
    assert "memory budget" in small.output
    assert small.peak < 250, small
    assert large.output == "read 2 []", large


def test_labels_beyond_a_limit_of_address_space_are_an_error(tmp_path):
    yolo(tmp_path)
    write_file(tmp_path / "labels/a.txt", "0 .5 .5 .2 .2\n" * 1_000_000)
    source = repr(sources.Yolo(tmp_path / "images"))

    limited = read(source, limit_kib=800_000)

    assert limited.output.startswith("error"), limited
    assert "a.txt: it has 14000000 bytes" in limited.output


def link_file(path: Path, store: Path) -> None:
    """Moves a file, and links to it from its former path."""
    target = store / path.parent.name / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize("make", [folder, pairs, yolo, labelme])
def test_without_follow_links_a_folder_is_read_without_linked_files(tmp_path, make):
    make(tmp_path / "root")
    for path in sorted((tmp_path / "root").rglob("a.*")):
        link_file(path, tmp_path / "store")

    def names(**options: bool) -> list[str]:
        pipeline = infeed.Pipeline(make(tmp_path / "root", **options)).decode()
        with pipeline.batch(1, pad=True).open(workers=1) as loader:
            records = [record for batch in loader for record in batch.records]
        return sorted(Path(name).name for _, name in records)

    assert names() == ["a.png", "b.png"]
    assert names(follow_links=False) == ["b.png"]


@pytest.mark.parametrize(
    "name", [name for name, file in FILES.items() if file.make in (csv, coco, voc)]
)
def test_without_follow_links_a_named_file_is_no_link(tmp_path, name):
    file = FILES[name]
    file.make(tmp_path / "root")
    (path,) = (tmp_path / "root").glob(file.name)
    link_file(path, tmp_path / "store")
    source = file.make(tmp_path / "root", follow_links=False)
    # Files that the user names are followed.
    is_named = path.name in ("list.csv", "coco.json")

    reading = read(repr(source))

    if is_named:
        assert reading.output == "read 2 []"
    else:
        check(reading, file.special, path, "is a symbolic link")


def test_without_follow_links_patterns_match_no_linked_shard(tmp_path):
    write_file(tmp_path / "store/a.tar", "")
    (tmp_path / "a.tar").symlink_to("store/a.tar")
    pattern = str(tmp_path / "*.tar")

    with pytest.raises(ConfigError, match="no file matches"):
        infeed.Pipeline(sources.WebDataset(pattern, follow_links=False)).open()
    with pytest.raises(OpenError, match=r"a\.tar"):
        infeed.Pipeline(sources.WebDataset(pattern)).open()


def test_without_follow_links_a_linked_index_of_mds_is_not_read(tmp_path):
    (tmp_path / "no_json").write_text("no JSON")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/index.json").symlink_to(tmp_path / "no_json")

    for follow_links, problem in [(False, "is a symbolic link"), (True, "expected")]:
        source = sources.MDS(tmp_path / "root", follow_links=follow_links)
        with pytest.raises(OpenError, match=problem):
            infeed.Pipeline(source).open()


SHARDS = [
    sources.WebDataset,
    sources.TFRecord,
    sources.Parquet,
    sources.Arrow,
    sources.Npz,
    sources.MDS,
]


@pytest.mark.parametrize("kind", SHARDS)
def test_follow_links_is_a_setting_of_shards_and_tables(kind):
    followed, excluded = kind("a"), kind("a", follow_links=False)

    assert followed != excluded
    assert eval(repr(excluded), {"sources": sources}) == excluded
    assert excluded._to_dict()["follow_links"] is False
    assert "follow_links" not in followed._to_dict()


MULTIPLIED = [
    lambda root: sources.Folder(root, labels="none"),
    lambda root: sources.Pairs(root, root),
    lambda root: sources.Yolo(root, labels=root),
    lambda root: sources.LabelMe(root),
    lambda root: sources.WebDataset(root / "**/*.tar"),
]


@pytest.mark.parametrize("make", MULTIPLIED)
def test_folders_that_links_multiply_are_an_error_with_two_of_the_paths(tmp_path, make):
    for level in range(26):
        folder = tmp_path / f"{level:02}"
        folder.mkdir()
        for name in "ab" if level < 25 else "":
            (folder / name).symlink_to(f"../{level + 1:02}")
    image(tmp_path / "25/x.png")

    reading = read(repr(make(tmp_path)))

    assert reading.output.startswith("error"), reading
    assert "links lead to one folder by more than 100 paths, such as" in reading.output
    assert reading.peak < 400


PIPES = """
import sys
from pathlib import Path
from infeed import _core
from infeed.errors import OpenError
from infeed.experiments import images, peers

root = Path(sys.argv[1])
for read in (
    lambda: _core.read_file(root / "a.jpg"),
    lambda: images.pixels([root / "a.jpg"]),
    lambda: peers.palette(root),
):
    try:
        read()
    except OpenError as error:
        print(error)
"""


def test_python_code_does_not_wait_for_a_pipe_among_the_files_of_a_dataset(tmp_path):
    for name in ("a.jpg", "class_dict.csv"):
        os.mkfifo(tmp_path / name)
    command = [sys.executable, "-c", PIPES, str(tmp_path)]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.count("it is a named pipe") for line in lines] == [1, 1, 1], lines
    assert "a.jpg" in lines[0], lines


def test_python_code_reads_the_bytes_of_a_file(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"\0pixels")

    assert _core.read_file(tmp_path / "a.jpg") == b"\0pixels"
    assert _core.read_file(str(tmp_path / "a.jpg")) == b"\0pixels"
    with pytest.raises(OpenError, match=r"gone\.jpg"):
        _core.read_file(tmp_path / "gone.jpg")
