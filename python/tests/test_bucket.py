"""Packing into a bucket writes the bytes of packing into a folder; lists end."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import Bucket, bucket
from children import interrupt_script
from conftest import wait_until
from feeding import COMMAND
from test_pack_tasks import KilledError, apart, files

import infeed
from infeed import sources
from infeed import transforms as T

URL = "s3://packed/of/photos"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that replaces S3."""
    with bucket() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def photos(classification) -> infeed.Pipeline:
    source = sources.Folder(classification.path)
    return infeed.Pipeline(source).decode().transform(T.CenterCrop(24)).batch(4)


def below(there: Bucket) -> dict[str, bytes]:
    return there.below("packed/of/photos/")


def load_labels(path: str | Path) -> list[int]:
    return [n for batch in infeed.Pipeline.load(path) for n in batch["label"].tolist()]


def test_a_bucket_gets_the_bytes_that_a_folder_gets(photos, there, tmp_path):
    options = {"to": "webdataset", "resize_short": 64, "shard_size": 20_000}
    infeed.pack(photos, tmp_path / "one", **options)
    bar = []

    packed = infeed.pack(
        photos, f"{URL}/", progress=lambda at: bar.append(at.done), **options
    )

    assert below(there) == files(tmp_path / "one")
    assert (packed.records, packed.bad, bar[-1]) == (30, 0, 30)
    assert load_labels(URL) == load_labels(tmp_path / "one")
    first = next(iter(packed.pipeline))
    assert first["label"].tolist() == load_labels(URL)[:4]
    for name in ("shard-000000.tar", "shard-000000.idx", "infeed-pack.json"):
        assert f"PUT packed/of/photos/{name}" in there.requests


@pytest.mark.parametrize("lives", [1, 3, 6])
def test_a_killed_call_is_continued(photos, there, tmp_path, lives):
    options = {"to": "tfrecord", "resize_short": 64, "shard_size": 9_000}
    infeed.pack(photos, tmp_path / "one", **options)
    with pytest.raises(KilledError):
        apart(photos, URL, lives=lives, **options)
    with pytest.raises(infeed.errors.ConfigError, match="not finished"):
        infeed.Pipeline.load(URL)
    begun = below(there)
    assert "infeed-pack.begun" in begun

    crew, sums, packed = apart(photos, URL, seed=lives, **options)

    assert below(there) == files(tmp_path / "one")
    noted = {name for name in begun if name.endswith(".noted")}
    written = {f"shard-{n:06}.noted" for kind, n, *_ in crew.done if kind == "shard"}
    assert written.isdisjoint(noted)
    assert (sums.records, packed.records) == (30, 30)


def test_packing_into_an_unsuitable_or_foreign_bucket_raises(photos, there):
    there.objects["packed/of/photos/readme"] = b"foreign"

    for url, to, part in [
        (URL, "folder", "written to folders"),
        (URL, "arrow", "not empty"),
        ("https://host/x", "arrow", "cannot write to a web server"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=part):
            infeed.pack(photos, url, to=to)

    assert list(below(there)) == ["readme"]


def names_of(page: int) -> list[str]:
    return [f"{page}_{number}.png" for number in range(1000)]


@pytest.mark.parametrize(
    ("pages", "variables", "message"),
    [
        (
            lambda page: (names_of(page), str(page)),
            {"INFEED_REMOTE_LIST_OBJECTS": "5000"},
            r"s3://many/d/ has more than 5000 objects; .*INFEED_REMOTE_LIST_OBJECTS",
        ),
        (
            lambda page: (names_of(page), str(page)),
            {"INFEED_REMOTE_LIST_S": "0.001"},
            r"s3://many/d/ has not ended after 0.001 s, with \d+ objects so far",
        ),
        (
            lambda page: (names_of(page), "same"),
            {},
            "s3://many/d/ does not end: .* same page again, after 1000 objects",
        ),
        (
            lambda page: (names_of(0), str(page)),
            {},
            "s3://many/d/ does not end: .* same objects again, after 1000 objects",
        ),
    ],
    ids=["objects", "time", "same page", "same objects"],
)
def test_a_list_without_an_end_raises(there, monkeypatch, pages, variables, message):
    there.endless = pages
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(infeed.errors.OpenError, match=message):
        infeed.Pipeline(sources.Folder("s3://many/d", labels="none")).batch(1).open()


LIST = """
import sys
import infeed
from infeed import sources
print("ready", flush=True)
pipeline = infeed.Pipeline(sources.Folder("s3://many/d", labels="none")).batch(1)
try:
    if sys.argv[1] == "open":
        pipeline.open()
    elif sys.argv[1] == "pack":
        infeed.pack(pipeline, sys.argv[2], to="webdataset")
    else:
        pipeline.preview(0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("call", ["open", "pack", "preview"])
def test_ctrl_c_ends_a_list_without_an_end(there, tmp_path, call):
    there.endless = lambda page: (names_of(page), str(page))

    out = str(tmp_path / "out")

    printed = interrupt_script(LIST, call, out, holds=lambda: len(there.requests) > 2)

    assert printed == ["interrupted"]


def test_ctrl_c_ends_a_command_that_lists(there):
    there.endless = lambda page: (names_of(page), str(page))
    command = [*COMMAND, "inspect", "s3://many/d"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert wait_until(lambda: len(there.requests) > 2)
        process.send_signal(signal.SIGINT)
        reported = process.stderr.read()

    assert process.returncode == 130
    assert "interrupted: " in reported
    assert "s3://many/d: it was interrupted" in reported


def test_an_answer_that_is_longer_than_a_page_is_not_kept(there, monkeypatch):
    # Longer than the limit of a page, in one name.
    there.endless = lambda page: (["x" * (65 << 20)], "next")
    monkeypatch.setenv("INFEED_REMOTE_ATTEMPTS", "1")

    with pytest.raises(infeed.errors.OpenError, match="length limit exceeded"):
        infeed.Pipeline(sources.Folder("s3://many/d", labels="none")).batch(1).open()
