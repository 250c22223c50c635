"""The cache of decoded records, in one process and shared by several."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import stage_functions
from conftest import photograph
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T

on_linux = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists(), reason="processes share through /proc"
)

# Loads an epoch per line of its input, as one of several ranks. Prints its counters and
# the memory of caches: its proportional share, and all that it maps.
RANK = """
import json, re, sys
import infeed
from infeed import sources, transforms as T
folder, rank, ranks = sys.argv[1], *map(int, sys.argv[2:])
pipeline = infeed.Pipeline(sources.Folder(folder)).shuffle(seed=3).decode()
pipeline = pipeline.transform(T.RandomResizedCrop(24)).batch(per_rank=2, drop_last=True)
def memory(name):
    found, of_cache = 0, False
    for line in open("/proc/self/smaps"):
        if re.match("[0-9a-f]+-", line):
            of_cache = "memfd:infeed-cache" in line
        elif of_cache and line.startswith(name + ":"):
            found += int(line.split()[1]) << 10
    return found
with pipeline.open(rank=rank, world_size=ranks, workers=1, cache="64MiB") as loader:
    print("open", flush=True)
    for line in sys.stdin:
        sums = [int(images.sum(dtype="int64")) for images, _ in loader]
        stats = loader.stats()["cache"]
        found = {"sums": sums, "pss": memory("Pss"), "rss": memory("Rss"), **stats}
        print(json.dumps(found), flush=True)
"""


def pipeline_of(folder: Path) -> infeed.Pipeline:
    """Images of the records after a fixed resize and a random crop."""
    pipeline = infeed.Pipeline(sources.Folder(str(folder))).shuffle(seed=3).decode()
    return pipeline.transform(T.Resize(40), T.RandomCrop(32)).batch(4)


@contextmanager
def rank_process(folder: Path, rank: int, ranks: int) -> Iterator[subprocess.Popen]:
    """Starts a rank, and returns it once its loader is open."""
    process = subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), str(rank), str(ranks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def epochs_of(processes: list[subprocess.Popen]) -> list[dict]:
    """Runs an epoch in all ranks at once, and returns what they print."""
    for process in processes:
        process.stdin.write("epoch\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in processes]


def test_epochs_are_equal_with_and_without_a_cache(classification):
    def run(cache: str | None) -> tuple[list[np.ndarray], str, dict | None]:
        pipeline = pipeline_of(classification.path)
        with pipeline.open(workers=2, cache=cache, digest="pixels") as loader:
            arrays = [images for _ in range(3) for images, _ in loader]
            return arrays, loader.digest(), loader.stats()["cache"]

    plain, digest, none = run(None)
    assert none is None
    for limit in ("64KiB", "64MiB", "auto"):
        cached, same, stats = run(limit)
        assert same == digest
        assert len(cached) == len(plain)
        assert all(map(np.array_equal, cached, plain))
        assert stats["used_bytes"] <= stats["limit_bytes"]
        assert stats["full"] == (limit == "64KiB")
        assert stats["hits"] > 0 or stats["full"]


def test_a_running_loader_is_explained_by_its_last_epochs(classification):
    with pipeline_of(classification.path).open(workers=2, cache="64MiB") as loader:
        for _ in range(4):
            batches = sum(1 for _ in loader)
        explained = loader.explain()
        assert loader.stats()["batches"] == 4 * batches
    report = explained.to_dict()
    assert report["run"]["batches"] <= 2 * batches
    [note] = [note for note in report["notes"] if "from the cache of" in note]
    assert "of the samples of the last and the current epoch" in note


@pytest.mark.parametrize("limit", ["half", 0, -1, 1.5])
def test_a_limit_that_is_no_size_raises_an_error(classification, limit):
    with pytest.raises(infeed.errors.ConfigError, match="cache"):
        pipeline_of(classification.path).open(cache=limit)


def test_records_that_python_returns_are_not_cached(classification):
    images = [path.read_bytes() for path, _ in classification.files]
    items = [{"image": image} for image in images]
    pipeline = infeed.Pipeline(sources.Items(items)).decode()
    pipeline = pipeline.transform(T.RandomResizedCrop(24)).batch(4)

    with pytest.raises(infeed.errors.ConfigError, match="come from Python"):
        pipeline.open(cache="1GiB")
    with pipeline.open(cache="auto") as loader:
        assert loader.stats()["cache"] is None


class Volumes:
    """Items that are slow to make, and a count of those that were made."""

    def __init__(self, offset: int = 0):
        self.offset, self.made = offset, 0

    def __len__(self) -> int:
        # More than the loader reads ahead.
        return 800

    def __getitem__(self, number: int) -> dict:
        self.made += 1
        values = np.arange(24, dtype="float32") * number + self.offset
        return {"volume": values.reshape(2, 3, 4), "label": number}


def volumes_of(pipeline: infeed.Pipeline, cache: object) -> tuple[list, dict | None]:
    with pipeline.shuffle(seed=3).batch(40).open(workers=2, cache=cache) as loader:
        arrays = [array for _ in range(3) for batch in loader for array in batch]
        return arrays, loader.stats()["cache"]


def test_items_that_never_change_are_made_once(tmp_path):
    expected, _ = volumes_of(infeed.Pipeline(sources.Items(Volumes())), None)

    def run(volumes: Volumes, version: int, cache: object) -> dict:
        source = sources.Items(volumes, deterministic=True, version=version)
        arrays, stats = volumes_of(infeed.Pipeline(source), cache)
        same = [*map(np.array_equal, arrays, expected)]
        assert all(same) == (volumes.offset == 0)
        return stats

    volumes = Volumes()
    stats = run(volumes, 1, "64MiB")
    assert stats["records"] == 800
    # Item 0 shows the fields; those at the start of the second epoch may be read early.
    assert 801 <= volumes.made < 1500

    def on_disk() -> infeed.Cache:
        return infeed.Cache(memory=None, disk=str(tmp_path), limit="64MiB")

    run(Volumes(), 1, on_disk())
    again = Volumes()
    assert run(again, 1, on_disk())["misses"] == 0
    assert again.made == 1
    for other, version in ((Volumes(), 2), (Volumes(offset=1), 1)):
        assert run(other, version, on_disk())["misses"] >= 800


def small(sample):
    return stage_functions.halve(sample)


def test_results_of_deterministic_functions_are_kept(classification, tmp_path):
    def run(function, cache: object, **version: object) -> tuple[list, dict | None]:
        pipeline = infeed.Pipeline(sources.Folder(str(classification.path)))
        pipeline = pipeline.shuffle(seed=3).decode().transform(T.Resize([20, 30]))
        pipeline = pipeline.python(function, **version).batch(4)
        with pipeline.open(workers=2, cache=cache) as loader:
            arrays = [array for _ in range(3) for batch in loader for array in batch]
            return arrays, loader.stats()["cache"]

    def on_disk() -> infeed.Cache:
        return infeed.Cache(memory="64MiB", disk=str(tmp_path), limit="64MiB")

    expected, _ = run(stage_functions.halve, None)
    first = {"deterministic": True, "version": 1}
    for function, cache, version, is_kept in [
        (stage_functions.halve, on_disk(), first, False),
        (stage_functions.halve, on_disk(), first, True),
        (stage_functions.halve, on_disk(), first | {"version": 2}, False),
        (small, on_disk(), first, False),
        (small, on_disk(), first, True),
        (lambda sample: small(sample), "64MiB", first, False),
        (stage_functions.halve, "64KiB", first, False),
        (stage_functions.halve, on_disk(), {}, False),
    ]:
        arrays, stats = run(function, cache, **version)
        assert all(map(np.array_equal, arrays, expected))
        assert (stats["misses"] == 0) == is_kept, (function, cache, version)
        assert stats["hits"] > 0
    with pytest.raises(infeed.errors.ConfigError, match="only this process has"):
        run(lambda sample: small(sample), on_disk(), **first)


def test_functions_after_the_kept_ones_run_in_each_epoch(classification):
    def run(cache: str | None, version: dict) -> tuple[list, dict | None]:
        pipeline = infeed.Pipeline(sources.Folder(str(classification.path)))
        pipeline = pipeline.shuffle(seed=3).decode().transform(T.Resize([20, 30]))
        pipeline = pipeline.python(small, **version).python(stage_functions.noisy)
        with pipeline.batch(4).open(workers=2, cache=cache) as loader:
            arrays = [array for _ in range(3) for batch in loader for array in batch]
            return arrays, loader.stats()["cache"]

    expected, _ = run(None, {})
    for cache in ("64MiB", "32KiB"):
        arrays, stats = run(cache, {"deterministic": True, "version": 1})
        assert all(map(np.array_equal, arrays, expected))
        assert stats["hits"] > 0
        assert stats["full"] == (cache == "32KiB")


def test_mosaics_use_records_of_a_folder_that_may_be_lost(classification, tmp_path):
    pipeline = infeed.Pipeline(sources.Folder(str(classification.path)))
    pipeline = pipeline.shuffle(seed=3).decode()
    pipeline = pipeline.transform(T.Resize(30), T.Mosaic([40, 48])).batch(4)

    def run(cache: infeed.Cache | None) -> tuple[list, dict | None]:
        with pipeline.open(workers=2, cache=cache) as loader:
            arrays = [array for _ in range(3) for batch in loader for array in batch]
            return arrays, loader.stats()["cache"]

    expected, _ = run(None)
    cache = infeed.Cache(memory=None, disk=str(tmp_path), limit="64MiB")
    for misses in (range(1, 10_000), range(1), range(10, 361)):
        arrays, stats = run(cache)
        assert all(map(np.array_equal, arrays, expected))
        assert stats["misses"] in misses
        # The next run finds a third of them damaged, and a third missing.
        pieces = sorted((tmp_path / "pieces").glob("*/*"))
        assert len(pieces) == len(classification.files)
        for number, piece in enumerate(pieces if misses == range(1) else []):
            if number % 3 == 0:
                piece.unlink()
            elif number % 3 == 1:
                piece.write_bytes(piece.read_bytes()[:-1] + b"?")


def test_settings_of_deterministic_functions_are_checked():
    pipeline = infeed.Pipeline(sources.Items([1, 2]))
    error = pytest.raises(infeed.errors.ConfigError, match="version must be")
    with error:
        pipeline.python(small, deterministic=True)
    with pytest.raises(infeed.errors.ConfigError, match="deterministic must be"):
        pipeline.python(small, version=1)
    with pytest.raises(infeed.errors.ConfigError, match="draws random numbers"):
        pipeline.python(stage_functions.noisy, deterministic=True, version=1)
    with error:
        sources.Items([1, 2], deterministic=True)


def test_boxes_move_by_the_transforms_that_the_cache_holds(tmp_path):
    images, annotations = [], []
    for number in range(12):
        image = Image.fromarray(photograph(number, 40 + number, 60))
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8  # the orientation
        name = f"{number}.jpg"
        image.save(tmp_path / name, exif=exif)
        # Annotations state the size of the image as viewers show it.
        sides = (image.height, image.width)[:: -1 if number % 8 >= 4 else 1]
        size = dict(zip(("height", "width"), sides, strict=True))
        images.append({"id": number, "file_name": name} | size)
        for side in (5, 9 + number, 20):
            box = {"bbox": [side, 3, side, 30], "area": 30 * side, "iscrowd": 0}
            entry = {"id": len(annotations), "image_id": number, "category_id": 1}
            annotations.append(entry | box)
    document = {"images": images, "annotations": annotations}
    document["categories"] = [{"id": 1, "name": "thing"}]
    (tmp_path / "all.json").write_text(json.dumps(document))
    source = sources.Coco(str(tmp_path), str(tmp_path / "all.json"))
    pipeline = infeed.Pipeline(source).shuffle(seed=1).decode(orient=True)
    pipeline = pipeline.transform(T.Resize(36), T.CenterCrop(30), T.RandomCrop(20))
    pipeline = pipeline.transform(T.RandomHorizontalFlip()).batch(3, ragged="pad")

    def run(cache: str | None) -> tuple[list[np.ndarray], int]:
        with pipeline.open(workers=2, cache=cache) as loader:
            batches = [batch for _ in range(3) for batch in loader]
            arrays = [array for batch in batches for array in batch]
            return arrays, (loader.stats()["cache"] or {"hits": 0})["hits"]

    plain, _ = run(None)
    cached, hits = run("64MiB")
    assert hits > 0
    assert sum(array.size for array in plain) > 0
    assert all(map(np.array_equal, plain, cached))


def test_loaders_with_other_labels_or_fields_share_nothing(classification, tmp_path):
    files = [path for path, _ in classification.files][:12]
    names = [path.relative_to(classification.path) for path in files]
    labels = tmp_path / "labels.csv"

    def open_with_label(label: int) -> infeed.Loader:
        rows = [f"{name},{label}" for name in names]
        labels.write_text("\n".join(["path,label", *rows]))
        source = sources.Folder(str(classification.path), labels=str(labels))
        pipeline = infeed.Pipeline(source).decode().transform(T.Resize([20, 20]))
        return pipeline.batch(4).open(cache="64MiB")

    with open_with_label(1) as first, open_with_label(2) as second:
        for loader, expected in ((first, 1), (second, 2), (first, 1), (second, 2)):
            for batch in loader:
                assert batch["label"].tolist() == [expected] * 4

    shard = tmp_path / "shard.tar"
    with tarfile.open(shard, "w") as tar:
        for number, path in enumerate(files):
            for member, file in (("a.jpg", path), ("b.jpg", files[-1 - number])):
                tar.add(file, f"{number:04}.{member}")

    def of_member(member: str) -> infeed.Loader:
        source = sources.WebDataset(str(shard), fields={"image": member})
        pipeline = infeed.Pipeline(source).decode().transform(T.Resize([20, 20]))
        return pipeline.batch(4).open(cache="64MiB")

    with of_member("a.jpg") as first, of_member("b.jpg") as second:
        ones = [batch["image"] for _ in range(2) for batch in first][3:]
        others = [batch["image"] for _ in range(2) for batch in second][3:]
        assert np.array_equal(np.concatenate(ones), np.concatenate(others)[::-1])


@on_linux
def test_four_ranks_share_one_copy(classification):
    records = len(classification.files)
    with ExitStack() as stack:
        ranks = [rank_process(classification.path, rank, 4) for rank in range(4)]
        processes = [stack.enter_context(rank) for rank in ranks]
        for _ in range(4):
            reports = epochs_of(processes)

    # An epoch leaves out the records that do not fill a step.
    [used] = {report["used_bytes"] for report in reports}
    assert records - 8 <= reports[0]["records"] <= records
    assert all(report["hits"] > 0 for report in reports)
    assert sum(report["misses"] for report in reports) < 2 * records
    # Each process maps the pages that it used; together they hold them once.
    assert sum(report["pss"] for report in reports) <= 1.1 * used + (1 << 20)
    assert sum(report["rss"] for report in reports) > 1.5 * used


@on_linux
def test_a_killed_process_leaves_the_others_running_and_nothing_behind(classification):
    before = set(os.listdir("/dev/shm"))
    with rank_process(classification.path, 0, 1) as other:
        [expected] = epochs_of([other])
        for _ in range(3):
            with rank_process(classification.path, 0, 1) as killed:
                killed.stdin.write("epoch\n" * 50)
                killed.stdin.flush()
                killed.stdout.readline()
                killed.send_signal(signal.SIGKILL)
                killed.wait()
        [again] = epochs_of([other])
        assert again["records"] == expected["records"]

        # The first process ends too: the next one shares with the one that is left.
        with rank_process(classification.path, 0, 1) as last:
            other.send_signal(signal.SIGKILL)
            other.wait()
            [report] = epochs_of([last])
            assert report["misses"] == 0
            assert report["sums"] == expected["sums"]
    assert set(os.listdir("/dev/shm")) <= before


@on_linux
def test_a_process_killed_while_it_fills_the_cache_changes_no_sample(classification):
    with rank_process(classification.path, 0, 1) as plain:
        [expected] = epochs_of([plain])
    for _ in range(5):
        with rank_process(classification.path, 0, 1) as other:
            with rank_process(classification.path, 0, 1) as killed:
                killed.stdin.write("epoch\n")
                killed.stdin.flush()
                killed.kill()
            [report] = epochs_of([other])
            assert report["sums"] == expected["sums"]


# Loads two epochs with a folder, and prints sums and counters.
WITH_FOLDER = """
import json, sys
import infeed
from infeed import sources, transforms as T
folder, disk = sys.argv[1:]
pipeline = infeed.Pipeline(sources.Folder(folder)).shuffle(seed=3).decode()
pipeline = pipeline.transform(T.Resize(40), T.RandomCrop(32)).batch(4)
cache = infeed.Cache(memory="64MiB", disk=disk, limit="1GiB")
with pipeline.open(workers=2, cache=cache) as loader:
    sums = [int(images.sum(dtype="int64")) for _ in range(2) for images, _ in loader]
    print(json.dumps({"sums": sums, **loader.stats()["cache"]}), flush=True)
"""


def run_with_folder(dataset: Path, disk: Path) -> dict:
    command = [sys.executable, "-c", WITH_FOLDER, str(dataset), str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_folder_keeps_records_for_the_next_program(classification, tmp_path):
    first = run_with_folder(classification.path, tmp_path / "cache")
    second = run_with_folder(classification.path, tmp_path / "cache")

    count = len(classification.files)
    assert first["sums"] == second["sums"]
    assert first["misses"] >= count
    assert first["disk"]["hits"] == 0
    assert second["misses"] == 0
    assert second["disk"]["hits"] >= count
    assert second["disk"] == {**second["disk"], "damaged": 0, "full": False}


def test_a_link_that_points_to_other_files_gets_none_of_the_first(tmp_path):
    sums = []
    for name, level in [("first", 10), ("second", 200)]:
        folder = tmp_path / name / "class"
        folder.mkdir(parents=True)
        for n in range(4):
            path = folder / f"{n}.bmp"
            Image.fromarray(np.full((48, 48, 3), level, np.uint8)).save(path)
            # Equal sizes and times.
            os.utime(path, (1_000_000_000, 1_000_000_000))
        link = tmp_path / "data"
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / name)
        sums.append(run_with_folder(link, tmp_path / "cache")["sums"])

    assert [len(set(of)) for of in sums] == [1, 1]
    assert sums[1][0] == 20 * sums[0][0]


def test_a_program_that_is_killed_leaves_a_folder_that_works(classification, tmp_path):
    disk = tmp_path / "cache"
    expected = run_with_folder(classification.path, tmp_path / "other")["sums"]
    for delay in (0.3, 0.5, 0.7):
        command = [sys.executable, "-c", WITH_FOLDER, str(classification.path), disk]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(delay)
            process.kill()

    found = run_with_folder(classification.path, disk)

    assert found["sums"] == expected
    assert found["disk"]["damaged"] == 0


def test_the_command_lists_verifies_and_removes_what_a_folder_holds(
    classification, tmp_path
):
    disk = tmp_path / "cache"
    run_with_folder(classification.path, disk)
    count = len(classification.files)

    def infeed_cache(*arguments: object) -> tuple[int, str, str]:
        code = "import sys; from infeed import _cli; sys.exit(_cli.main())"
        command = [sys.executable, "-c", code, "cache", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    status, out, _ = infeed_cache("ls", disk, "--json")
    (group,) = json.loads(out)["groups"]
    assert status == 0
    assert (group["kind"], group["pieces"]) == ("decoded", count)
    assert group["name"] == str(classification.path)
    assert infeed_cache("verify", disk)[0] == 0

    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.tex").write_text("precious")
    (disk / "pieces" / "zz").symlink_to(victim)
    (disk / "readme.txt").write_text("precious")
    others = "2 files that infeed did not write stay: pieces/zz, readme.txt"
    status, out, _ = infeed_cache("verify", disk)
    assert status == 0
    assert others in out

    damaged = next((disk / "pieces").glob("*/*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    status, _, err = infeed_cache("verify", disk)
    assert status == 1
    assert "1 pieces were damaged" in err

    status, _, err = infeed_cache("rm", disk, "/data/none")
    assert status == 1
    assert "has nothing of /data/none" in err
    status, out, _ = infeed_cache("rm", disk, group["name"])
    assert (status, out.split()[:2]) == (0, ["removed", str(count - 1)])
    assert others in out
    assert (victim / "thesis.tex").exists()
    assert (disk / "readme.txt").exists()
    assert "is empty" in infeed_cache("ls", disk)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": None}, "set memory, disk, or both"),
        ({"memory": "much"}, "memory"),
        ({"disk": 5}, "disk"),
        ({"disk": "s3://bucket/cache"}, "disk must be a local folder, not a URL"),
        ({"memory": None, "disk": "file:///cache"}, "disk must be a local folder"),
        ({"disk": "other://x"}, "disk must be a local folder"),
        ({"disk": "d", "limit": 0}, "limit"),
    ],
)
def test_options_of_a_cache_that_cannot_work_raise_an_error(arguments, message):
    with pytest.raises(infeed.errors.ConfigError, match=message):
        infeed.Cache(**arguments)


def test_the_cache_of_remote_data_is_a_local_folder(monkeypatch):
    with pytest.raises(
        infeed.errors.ConfigError, match="folder must be a local folder"
    ):
        infeed.remote.cache("s3://bucket/cache")
    monkeypatch.setenv("INFEED_CACHE_DIR", "s3://bucket/cache")
    with pytest.raises(infeed.errors.ConfigError, match="is a URL; use a local folder"):
        infeed.Pipeline(sources.WebDataset("http://127.0.0.1:1/x.tar")).batch(1).open()


@on_linux
def test_a_limit_above_the_available_memory_is_a_warning(classification, caplog):
    for limit, expected in (("64MiB", 0), ("10TiB", 1)):
        with pipeline_of(classification.path).open(cache=limit):
            pass
        warnings = [text for text in caplog.messages if "may take" in text]
        assert len(warnings) == expected, caplog.messages
    assert f"may take {10 << 20} MiB" in warnings[0]


# Loads an epoch with a folder, as another user.
AS_OTHER_USER = """
import logging, os, sys
import infeed
from infeed import sources, transforms as T
dataset, disk = sys.argv[1:]
logging.basicConfig(format="warning: %(message)s", stream=sys.stdout)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
pipeline = infeed.Pipeline(sources.Folder(dataset)).shuffle(seed=3).decode()
pipeline = pipeline.transform(T.Resize(40), T.RandomCrop(32)).batch(4)
cache = infeed.Cache(memory=None, disk=disk, limit="1GiB")
with pipeline.open(workers=2, cache=cache) as loader:
    for _ in range(2):
        for images, _ in loader:
            print(int(images.sum(dtype="int64")))
    print(loader.stats()["cache"]["disk"]["hits"])
"""


@on_linux
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("kind", ["full", "empty", "closed", "closed parent"])
def test_a_folder_of_another_user_is_read_or_left_out(classification, kind):
    # Folders of pytest are closed to other users.
    with tempfile.TemporaryDirectory() as root:
        top = Path(root)
        dataset = top / "data"
        shutil.copytree(classification.path, dataset)
        dataset.chmod(0o755)
        disk = top / "parent" / "cache"
        disk.mkdir(parents=True)
        expected = run_with_folder(classification.path, top / "other")["sums"]
        if kind == "full":
            run_with_folder(dataset, disk)
        top.chmod(0o755)
        disk.chmod(0o700 if kind == "closed" else 0o755)
        disk.parent.chmod(0o700 if kind == "closed parent" else 0o755)
        command = [sys.executable, "-c", AS_OTHER_USER, str(dataset), str(disk)]
        before = sorted(path for path in disk.rglob("*"))

        ended = subprocess.run(command, capture_output=True, text=True)

        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()
        warnings = [line for line in lines if line.startswith("warning: ")]
        *sums, hits = [int(line) for line in lines if line not in warnings]
        assert sums == expected
        assert sorted(path for path in disk.rglob("*")) == before
        if kind == "full":
            # All records are there, so there is nothing to write.
            assert hits >= 2 * len(classification.files)
            assert warnings == []
        else:
            [warning] = warnings
            assert str(disk) in warning
            assert "ermission denied" in warning
            assert hits == 0
