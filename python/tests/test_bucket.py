"""Packing into a bucket writes the same bytes as packing into a folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import Bucket, bucket
from test_pack_tasks import Died, apart, files

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


def loaded(path: str | Path) -> list[int]:
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
    assert loaded(URL) == loaded(tmp_path / "one")
    first = next(iter(packed.pipeline))
    assert first["label"].tolist() == loaded(URL)[:4]
    for name in ("shard-000000.tar", "shard-000000.idx", "infeed-pack.json"):
        assert f"PUT packed/of/photos/{name}" in there.asked


@pytest.mark.parametrize("lives", [1, 3, 6])
def test_a_killed_call_is_continued(photos, there, tmp_path, lives):
    options = {"to": "tfrecord", "resize_short": 64, "shard_size": 9_000}
    infeed.pack(photos, tmp_path / "one", **options)
    with pytest.raises(Died):
        apart(photos, URL, lives=lives, **options)
    with pytest.raises(infeed.ConfigError, match="not finished"):
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
        with pytest.raises(infeed.ConfigError, match=part):
            infeed.pack(photos, url, to=to)

    assert list(below(there)) == ["readme"]
