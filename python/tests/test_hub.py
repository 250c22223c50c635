"""Datasets of the Hub give the batches of the same files on a disk."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hubs import Hub, hub

import infeed
from infeed import sources
from infeed import transforms as T

DATASET = "tests/photos"
URL = f"hf://datasets/{DATASET}"


@pytest.fixture
def there(
    classification, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Hub, Path]]:
    """A dataset with a folder of images, tar shards and Parquet files."""
    photos = pipeline(sources.Folder(classification.path))
    for to, size in [("webdataset", 20_000), ("parquet", 20_000), ("folder", None)]:
        options = {} if size is None else {"shard_size": size}
        infeed.pack(photos, tmp_path / to, to=to, resize_short=32, **options)
    with hub(DATASET, tmp_path) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield server, tmp_path


def pipeline(source: sources.Source) -> infeed.Pipeline:
    return infeed.Pipeline(source).decode().transform(T.CenterCrop(24)).batch(4)


def batches(source: sources.Source) -> list[dict[str, np.ndarray]]:
    with pipeline(source).shuffle(seed=1).open(workers=1) as loader:
        return [
            {name: batch[name].copy() for name in ("image", "label")}
            for batch in loader
        ]


def test_a_dataset_of_the_hub_gives_the_batches_of_its_files(there):
    server, folder = there

    for make in (
        lambda root: sources.Folder(f"{root}/folder"),
        lambda root: sources.WebDataset(f"{root}/webdataset/*.tar"),
        lambda root: sources.Parquet(f"{root}/parquet/*.parquet"),
    ):
        expected, found = batches(make(folder)), batches(make(URL))
        assert len(found) == len(expected) > 4
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one["image"], other["image"])
            np.testing.assert_array_equal(one["label"], other["label"])

    revisions = [request for request in server.requests if "/revision/" in request]
    assert len(revisions) == 1, "one commit for the whole process"
    resolved = [request for request in server.requests if "/resolve/" in request]
    shards = [path for path in server.held if path.endswith((".tar", ".parquet"))]
    assert len(resolved) <= len(server.held) + len(shards)


def test_packing_into_the_hub_raises_with_the_fix(there, classification):
    photos = pipeline(sources.Folder(classification.path))

    with pytest.raises(infeed.errors.ConfigError, match=r"read-only.*hf upload"):
        infeed.pack(photos, f"{URL}/packed", to="webdataset")


def test_a_list_without_an_end_raises(there, monkeypatch):
    server, _ = there
    server.is_endless = True
    monkeypatch.setenv("INFEED_REMOTE_LIST_OBJECTS", "4500")

    with pytest.raises(
        infeed.errors.OpenError, match=r"photos.* more than 4500 objects"
    ):
        batches(sources.Folder(f"{URL}/folder", labels="none"))

    listed = [request for request in server.requests if "/tree/" in request]
    assert len(listed) == 5
