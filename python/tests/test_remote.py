"""Data on a web server: batches as from a disk, and a fork that begins anew."""

import functools
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import sources, transforms


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that goes away is no news."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
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


def test_a_folder_on_a_web_server_gives_the_batches_of_the_folder_on_a_disk(
    served: tuple[str, Path],
) -> None:
    url, folder = served

    there, here = batches(url), batches(str(folder))

    assert len(there) == 3
    for (image, label), (own_image, own_label) in zip(there, here, strict=True):
        np.testing.assert_array_equal(image, own_image)
        np.testing.assert_array_equal(label, own_label)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning"
)
def test_a_fork_opens_anew_what_its_parent_has_read_before(
    served: tuple[str, Path],
) -> None:
    url, _ = served
    mine = batches(url)

    child = os.fork()
    if child == 0:
        # Whatever happens here, pytest goes on in the parent alone.
        same = False
        try:
            own = batches(url)
            same = all(
                np.array_equal(a[0], b[0]) for a, b in zip(mine, own, strict=True)
            )
        finally:
            os._exit(0 if same else 1)

    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
