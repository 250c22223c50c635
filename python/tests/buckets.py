"""A bucket in this process, with the requests that packing and reading use."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

# Names and token of the page with a number.
_Pages = Callable[[int], tuple[list[str], str]]

_TIME = "Thu, 01 Jan 2026 00:00:00 GMT"


class Bucket(ThreadingHTTPServer):
    """Objects by key, with Amazon S3's requests but without checks of signatures."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.lock = threading.Lock()
        # Makes the page with this number of a list that has no end; None: all objects.
        self.endless: _Pages | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Returns the environment variables that make this the S3 endpoint."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "us-east-1",
        }

    def below(self, prefix: str) -> dict[str, bytes]:
        """Returns the objects below a folder, by name."""
        with self.lock:
            return {
                key.removeprefix(prefix): held
                for key, held in sorted(self.objects.items())
                if key.startswith(prefix)
            }

    def handle_error(self, *_: object) -> None:
        """Ignores clients that disconnect."""


@contextmanager
def bucket() -> Iterator[Bucket]:
    """Serves a bucket during the block."""
    with Bucket() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, *_: object) -> None:
        pass

    def _give(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        length = headers.pop("length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _parse_request(self) -> tuple[str, dict[str, str], bytes]:
        """Returns key, query and body of a request."""
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = unquote(url.path).lstrip("/")
        with self.server.lock:
            self.server.requests.append(f"{self.command} {key}")
        return key, {name: values[0] for name, values in query.items()}, body

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        key, query, _ = self._parse_request()
        if "list-type" in query:
            self._list(key.rstrip("/") + "/", query)
            return
        with self.server.lock:
            held = self.server.objects.get(key)
        if held is None:
            self._give(404)
            return
        known = {"ETag": _tag(held), "Last_Modified": _TIME}
        if self.command == "HEAD":
            self._give(200, length=str(len(held)), **known)
            return
        if (span := self.headers.get("Range")) is None:
            self._give(200, held, **known)
            return
        first, last = span.removeprefix("bytes=").split("-")
        begin, end = int(first), min(int(last) + 1, len(held))
        reported = f"bytes {begin}-{end - 1}/{len(held)}"
        self._give(206, held[begin:end], Content_Range=reported, **known)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        if self.server.endless is not None:
            self._page(prefix, self.server.endless)
            return
        lines, folders = [], set()
        for name, held in self.server.below(bucket).items():
            if not name.startswith(prefix):
                continue
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                continue
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(held)}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(_tag(held))}</ETag></Contents>"
            )
        common = (
            f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>"
            for f in sorted(folders)
        )
        self._xml("ListBucketResult", "".join([*lines, *common]))

    def _page(self, prefix: str, endless: _Pages) -> None:
        names, token = endless(len(self.server.requests))
        entries = (
            f"<Contents><Key>{prefix}{name}</Key><Size>9</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in names
        )
        more = "<IsTruncated>true</IsTruncated>"
        more += f"<NextContinuationToken>{token}</NextContinuationToken>"
        self._xml("ListBucketResult", more + "".join(entries))

    def do_PUT(self) -> None:
        key, query, body = self._parse_request()
        with self.server.lock:
            if "uploadId" in query:
                parts = self.server.uploads[query["uploadId"]]
                parts[int(query["partNumber"])] = body
            elif self.headers.get("If-None-Match") and key in self.server.objects:
                self._give(412)
                return
            else:
                self.server.objects[key] = body
        self._give(200, ETag=_tag(body))

    def do_POST(self) -> None:
        key, query, body = self._parse_request()
        with self.server.lock:
            if "delete" in query:
                for name in ElementTree.fromstring(body).iter():
                    if name.tag.endswith("Key"):
                        self.server.objects.pop(f"{key.rstrip('/')}/{name.text}", None)
                answer = ("DeleteResult", "<Deleted><Key>all</Key></Deleted>")
            elif "uploadId" in query:
                parts = self.server.uploads.pop(query["uploadId"])
                whole = b"".join(parts[number] for number in sorted(parts))
                self.server.objects[key] = whole
                tag = f"<ETag>{escape(_tag(whole))}</ETag>"
                answer = ("CompleteMultipartUploadResult", tag)
            else:
                name = f"upload-{len(self.server.requests)}"
                self.server.uploads[name] = {}
                reported = f"<UploadId>{name}</UploadId>"
                answer = ("InitiateMultipartUploadResult", reported)
        self._xml(*answer)

    def do_DELETE(self) -> None:
        key, query, _ = self._parse_request()
        with self.server.lock:
            if "uploadId" in query:
                self.server.uploads.pop(query["uploadId"], None)
            else:
                self.server.objects.pop(key, None)
        self._give(204)

    def _xml(self, name: str, inner: str) -> None:
        self._give(200, f"<{name}>{inner}</{name}>".encode())


def _tag(held: bytes) -> str:
    return f'"{hashlib.md5(held, usedforsecurity=False).hexdigest()}"'
