"""Data on a web server: the batches of a disk, and forks with new connections."""

import functools
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from children import result_in_fork

import infeed
from infeed import sources, transforms


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[str]] = []

    def log_request(self, *_: object) -> None:
        self.requests.append(f"{self.command} {self.path}")

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignores clients that disconnect."""


@pytest.fixture
def image_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A folder of images with a list of labels, and its URL."""
    from PIL import Image

    rng = np.random.default_rng(5)
    lines = ["path,label"]
    for n in range(12):
        pixels = rng.integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{n:02}.png")
        lines.append(f"{n:02}.png,{n}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", tmp_path
        server.shutdown()


def batches(root: str) -> list[tuple[np.ndarray, np.ndarray]]:
    pipeline = (
        infeed.Pipeline(sources.Folder(root, labels=f"{root}/labels.csv"))
        .shuffle(seed=1)
        .decode()
        .transform(transforms.CenterCrop(32))
        .batch(4)
    )
    with pipeline.open(workers=1) as loader:
        return [(batch["image"].copy(), batch["label"].copy()) for batch in loader]


def storage() -> dict[str, int]:
    """Returns this process's storage counters, from any loader."""
    with infeed.Pipeline(sources.Memory(x=[1])).batch(1).open() as loader:
        counted: dict[str, int] = loader.stats()["storage"]
    return counted


def test_a_folder_on_a_web_server_gives_the_batches_of_the_folder_on_a_disk(
    image_server: tuple[str, Path],
) -> None:
    url, folder = image_server

    before = storage()
    there = batches(url)
    after = storage()
    here = batches(str(folder))

    # The list of labels, and the images, some of which were read ahead.
    assert after["requests"] - before["requests"] >= 13
    read = sum(path.stat().st_size for path in folder.iterdir())
    assert after["bytes"] - before["bytes"] >= read
    assert after["cache_hits"] == before["cache_hits"]
    assert len(there) == 3
    for (image, label), (own_image, own_label) in zip(there, here, strict=True):
        np.testing.assert_array_equal(image, own_image)
        np.testing.assert_array_equal(label, own_label)


def test_a_second_read_is_served_from_the_cache(
    image_server: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    url, _ = image_server
    kept = tmp_path_factory.mktemp("kept") / "pieces of images"

    def count_image_requests() -> int:
        count = sum(a.startswith("GET") and a.endswith(".png") for a in Quiet.requests)
        Quiet.requests.clear()
        return count

    try:
        infeed.remote.cache(kept, limit="1 GB")
        count_image_requests()
        first = batches(url)
        # Images read ahead for later epochs may be requested before they are cached.
        assert count_image_requests() >= 12
        second = batches(url)
        assert count_image_requests() == 0
    finally:
        infeed.remote.cache(None)
    batches(url)

    assert count_image_requests() >= 12
    for (image, _), (again, _) in zip(first, second, strict=True):
        np.testing.assert_array_equal(image, again)
    assert any(path.is_file() for path in kept.rglob("*"))


def test_an_invalid_cache_raises(
    image_server: tuple[str, Path], tmp_path: Path
) -> None:
    for arguments, part in [
        ((5,), "cache: folder must be a path"),
        (("kept", "much"), "cache: limit must be a size"),
        (("kept", 0), "cache: limit must be an integer of at least 1"),
        (("kept", 2**64), "cache: limit must be below"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=part):
            infeed.remote.cache(*arguments)
    (tmp_path / "file").write_text("")
    try:
        infeed.remote.cache(tmp_path / "file" / "below")
        with pytest.raises(infeed.errors.OpenError, match="below"):
            batches(image_server[0])
    finally:
        infeed.remote.cache(None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning"
)
def test_a_forked_child_opens_its_own_connections(
    image_server: tuple[str, Path],
) -> None:
    url, _ = image_server
    mine = batches(url)

    def same() -> bool:
        own = batches(url)
        return all(np.array_equal(a[0], b[0]) for a, b in zip(mine, own, strict=True))

    assert result_in_fork(same) == "True"
