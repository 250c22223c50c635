"""A Hub in this process, with the requests that reading a dataset needs."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAGE = 3


class Hub(ThreadingHTTPServer):
    """The files of one dataset, at one commit, behind redirects to `Files`."""

    def __init__(self, dataset: str, folder: Path, files: str) -> None:
        super().__init__(("127.0.0.1", 0), _HubHandler)
        self.dataset = dataset
        self.files = files
        self.held = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        self.requests: list[str] = []
        # Whether lists have no end.
        self.is_endless = False

    @property
    def url(self) -> str:
        """Returns the address, for `HF_ENDPOINT`."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Ignores clients that disconnect."""


class Files(ThreadingHTTPServer):
    """The host of the bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FilesHandler)
        self.held: dict[str, bytes] = {}

    def handle_error(self, *_: object) -> None:
        """Ignores clients that disconnect."""


@contextmanager
def hub(dataset: str, folder: Path) -> Iterator[Hub]:
    """Serves a folder as a dataset during the block."""
    with (
        Files() as files,
        Hub(dataset, folder, f"http://127.0.0.1:{files.server_port}") as server,
    ):
        files.held = server.held
        for one in (files, server):
            threading.Thread(target=one.serve_forever, daemon=True).start()
        yield server
        for one in (files, server):
            one.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _give(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError


class _HubHandler(_Handler):
    server: Hub

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        self.server.requests.append(f"{self.command} {path}")
        api = f"/api/datasets/{self.server.dataset}"
        resolved = f"/datasets/{self.server.dataset}/resolve/{COMMIT}/"
        if path == f"{api}/revision/main":
            self._give(200, json.dumps({"sha": COMMIT}).encode())
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            folder = path.removeprefix(f"{api}/tree/{COMMIT}").strip("/")
            self._tree(folder, "true" in query.get("recursive", []), query)
        elif (name := path.removeprefix(resolved)) in self.server.held:
            self._give(
                302,
                Location=f"{self.server.files}/{url.path.removeprefix(resolved)}?key=1",
                X_Linked_Etag=f'"{_oid(self.server.held[name])}"',
                X_Linked_Size=str(len(self.server.held[name])),
            )
        else:
            self._give(404, X_Error_Code="EntryNotFound")

    def _tree(self, folder: str, deep: bool, query: dict[str, list[str]]) -> None:
        prefix = f"{folder}/" if folder else ""
        if self.server.is_endless:
            number = len(self.server.requests)
            files = [f"{prefix}{number}_{n}.png" for n in range(1000)]
            entries = [{"type": "file", "path": path, "size": 9} for path in files]
            address = f"{self.server.url}{self.path.split('?')[0]}?cursor={number}"
            link = f'<{address}>; rel="next"'
            self._give(200, json.dumps(entries).encode(), Link=link)
            return
        found: dict[str, dict[str, object]] = {}
        for path, held in self.server.held.items():
            rest = path.removeprefix(prefix)
            if not path.startswith(prefix):
                continue
            if deep or "/" not in rest:
                known = {"oid": "pointer", "size": len(held), "path": path}
                large = {"oid": _oid(held), "size": len(held)}
                found[path] = {"type": "file", "lfs": large, **known}
            else:
                below = prefix + rest.split("/")[0]
                found[below] = {"type": "directory", "path": below, "size": 0}
        after = int(query.get("cursor", ["0"])[0])
        page = list(found.values())[after : after + PAGE]
        headers = {}
        if after + PAGE < len(found):
            cursor = f"recursive={str(deep).lower()}&cursor={after + PAGE}"
            address = f"{self.server.url}{self.path.split('?')[0]}?{cursor}"
            headers["Link"] = f'<{address}>; rel="next"'
        self._give(200, json.dumps(page).encode(), **headers)


class _FilesHandler(_Handler):
    server: Files

    def do_GET(self) -> None:
        held = self.server.held[unquote(urlsplit(self.path).path).lstrip("/")]
        if (span := self.headers.get("Range")) is None:
            self._give(200, held)
            return
        first, last = span.removeprefix("bytes=").split("-")
        begin, end = int(first), min(int(last) + 1, len(held))
        reported = f"bytes {begin}-{end - 1}/{len(held)}"
        self._give(206, held[begin:end], Content_Range=reported)


def _oid(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()
