"""Recordings of loops: their contents, their verdict, and their end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.errors import ClosedError, ConfigError, WriteError


def pipeline(folder: Path) -> infeed.Pipeline:
    made = infeed.Pipeline(sources.Folder(folder)).shuffle(seed=0).decode()
    return made.transform(T.RandomResizedCrop(24), T.ToFloat()).batch(4)


def read(path: Path) -> dict:
    recording = json.loads(path.read_text())
    assert (recording["format"], recording["version"]) == ("infeed recording", 1)
    return recording


def explain(path: Path, *options: str) -> str:
    """Returns the output of `infeed explain`."""
    code = "import infeed._cli as c, sys; sys.exit(c.main())"
    command = [sys.executable, "-c", code, "explain", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def kinds(recording: dict) -> dict[str, int]:
    return {event["kind"]: event["count"] for event in recording["events"]}


@pytest.mark.parametrize("device", [None, "sim"])
def test_a_recording_has_the_verdict_of_the_loader(classification, tmp_path, device):
    path = tmp_path / "run.json"
    with pipeline(classification.path).open(device=device) as loader:
        loader.record(path)
        for _ in range(3):
            for _ in loader:
                # Time after the last batch counts as step. A short step might not limit
                # both times.
                time.sleep(0.01)
        live = loader.explain().to_dict()

    found = read(path)
    verdict = found["explanation"]["verdict"]
    assert found["closed"]
    assert verdict["limit"] == live["verdict"]["limit"]
    assert found["explanation"]["run"]["batches"] == live["run"]["batches"]
    assert sum(found["windows"]["batches"]) == live["run"]["batches"]
    assert kinds(found)["epochs ended"] == 3
    assert found["versions"].keys() >= {"numpy", "python"}
    assert ("transfers" in found["explanation"]) == (device is not None)
    assert verdict["claim"][:40] in explain(path)


def test_a_recording_has_no_path_unless_it_is_allowed(classification, tmp_path):
    folder = shutil.copytree(classification.path, tmp_path / "private-photos")
    bad = folder / "hidden-class"
    bad.mkdir()
    (bad / "hidden-name.jpg").write_bytes(b"\xff\xd8\xff no JPEG")
    names = ["private-photos", "hidden-class", "hidden-name", ".jpg", "secret-"]
    names += [str(tmp_path), str(Path.home())]
    texts = []
    for paths in (False, True):
        path = tmp_path / "run.json"
        run = pipeline(folder).filter(not_name="secret-*")
        with run.open(on_error="substitute") as loader:
            loader.record(path, paths=paths)
            for _ in loader:
                pass
        assert any(kind.startswith("bad records (") for kind in kinds(read(path)))
        texts.append(path.read_text())

    assert [name for name in names if name in texts[0]] == []
    for name in (str(folder), "hidden-name.jpg", "secret-*"):
        assert name in texts[1]


def test_a_killed_process_leaves_a_recording(classification, tmp_path):
    path = tmp_path / "run.json"
    code = f"""
import infeed, os, signal
from infeed import sources
loader = infeed.Pipeline(sources.Folder({str(classification.path)!r})).decode().open()
loader.record({str(path)!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == -signal.SIGKILL
    assert not read(path)["closed"]
    assert "not closed" in explain(path)


def test_a_process_that_ends_without_close_completes_its_recordings(tmp_path):
    code = f"""
import infeed, numpy
from infeed import sources
pipeline = infeed.Pipeline(sources.Memory(x=numpy.arange(20))).batch(4)
loader = pipeline.open()
loader.record({str(tmp_path / "loader.json")!r})
watch = infeed.watch([1] * 20, record={str(tmp_path / "watch.json")!r})
for _ in loader: pass
for _ in watch: pass
"""
    subprocess.run([sys.executable, "-c", code], check=True)

    assert read(tmp_path / "loader.json")["closed"]
    watched = read(tmp_path / "watch.json")
    assert watched["closed"]
    assert watched["watch"]["measured"]["batches"] == 20


def test_another_call_ends_the_first_recording(tmp_path):
    run = infeed.Pipeline(sources.Memory(x=np.arange(20))).batch(4)
    with run.open() as loader:
        loader.record(tmp_path / "first.json")
        for _ in loader:
            pass
        loader.record(tmp_path / "second.json")
        assert read(tmp_path / "first.json")["closed"]

    second = read(tmp_path / "second.json")
    assert second["closed"]
    assert sum(second["windows"]["batches"]) == 0


def test_wrong_arguments_are_errors(tmp_path):
    run = infeed.Pipeline(sources.Memory(x=np.arange(20))).batch(4)
    with run.open() as loader:
        with pytest.raises(ConfigError, match="path"):
            loader.record(3)
        with pytest.raises(ConfigError, match="paths"):
            loader.record(tmp_path / "run.json", paths="no")
        with pytest.raises(WriteError, match="no-folder"):
            loader.record(tmp_path / "no-folder" / "run.json")
    with pytest.raises(ClosedError):
        loader.record(tmp_path / "run.json")
    with pytest.raises(ConfigError, match="record"):
        infeed.watch([1], record=3)
    with pytest.raises(WriteError, match="no-folder"):
        infeed.watch([1], record=tmp_path / "no-folder" / "run.json")


class Slow:
    """A loader of another library."""

    def __init__(self, wait_s: float):
        self.wait_s = wait_s

    def __iter__(self):
        for _ in range(20):
            time.sleep(self.wait_s)
            yield np.zeros((4, 2), np.float32)


def test_a_watch_records_any_loader(tmp_path):
    path = tmp_path / "run.json"
    watch = infeed.watch(Slow(0.004), record=path)
    for _ in range(2):
        for _ in watch:
            time.sleep(0.002)
    report = watch.report()
    watch.close()

    found = read(path)
    assert found["closed"]
    assert found["loader"].endswith("Slow")
    assert found["watch"]["verdict"]["claim"] == report.verdict.claim
    assert found["watch"]["verdict"]["evidence"] == report.verdict.evidence
    assert kinds(found) == {"epochs ended": 2}
    assert sum(found["windows"]["samples"]) == 160
    waited_s = report.figures.wait.total_s + report.figures.seam_s
    assert sum(found["windows"]["waited_s"]) == pytest.approx(waited_s, rel=0.2)
    assert report.verdict.claim in explain(path)


def test_a_watch_that_is_dropped_completes_its_recording(tmp_path):
    path = tmp_path / "run.json"

    for _ in infeed.watch(Slow(0.0), record=path):
        pass

    assert read(path)["closed"]


def test_errors_of_a_loader_are_events_with_their_type(tmp_path):
    def failing():
        yield 1
        raise RuntimeError("cannot read /home/ann/photo.jpg")

    path = tmp_path / "run.json"
    watch = infeed.watch(failing(), record=path)
    with pytest.raises(RuntimeError):
        for _ in watch:
            pass
    watch.close()

    assert kinds(read(path))["errors of the loader (RuntimeError)"] == 1
    assert "ann" not in path.read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_write(tmp_path):
    path = tmp_path / "run.json"
    code = f"""
import infeed, os, sys
watch = infeed.watch([1] * 20, record={str(path)!r})
for _ in watch: pass
watch.close()
watch = infeed.watch([1] * 20, record={str(path)!r})
before = open({str(path)!r}).read()
if os.fork() == 0:
    for _ in watch: pass
    sys.exit()
os.wait()
assert open({str(path)!r}).read() == before
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    assert read(path)["closed"]
