#!/usr/bin/env python3
"""Shared parts of soak.py, chaos.py and feeders_faults.py: data, feeders, a web server.

Needs the `infeed` package and Python's standard library. `campaign.py FOLDER SEED
SHARE` serves a folder; SHARE of 100 requests get a wrong answer.
"""

import argparse
import csv
import hashlib
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import infeed
from infeed import _core, sources
from infeed import transforms as T

TOKEN = "0123456789abcdef0123456789abcdef"
COMMAND = [sys.executable, "-c", "import infeed._cli as c, sys; sys.exit(c.main())"]

# Faults of answers of the web server.
FAULTS = ["cut", "delay", "500", "503", "whole", "other range", "short"]
DELAY_S = 0.3

# Records of a tar shard.
SHARD_RECORDS = 25


def cases(parser: argparse.ArgumentParser) -> None:
    """Adds the options that replay a case."""
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument(
        "--case", type=int, metavar="N", help="tries case N of this seed, and no other"
    )


def chance_of(seed: int, case: int) -> random.Random:
    """Returns the source of all choices of a case."""
    return random.Random(f"{seed}/{case}")


@dataclass
class Tally:
    """Cases that were tried, and the findings."""

    tried: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int = 1) -> None:
        self.tried[kind] = self.tried.get(kind, 0) + count

    def text(self) -> str:
        rows = [f"{count:8}  {kind}" for kind, count in sorted(self.tried.items())]
        rows += [f"FINDING: {finding}" for finding in self.findings]
        rows.append(f"{len(self.findings)} findings")
        return "\n".join(rows)


# Data.


def photos(folder: Path, count: int) -> None:
    """Makes photographs in folders by class.

    Raises:
        SystemExit: They could not be made.
    """
    made = ["sample", "classification", str(folder), "--count", str(count)]
    if _core.main(["infeed", *made, "--size", "160x120"]) != 0:
        sys.exit("no photographs were made")


def damage_files(folder: Path, chance: random.Random, share: float) -> int:
    """Truncates some files, which makes them bad records; returns their number."""
    files = sorted(folder.rglob("*.jpg"))
    chosen = chance.sample(files, max(1, int(share * len(files))))
    for file in chosen:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
    return len(chosen)


def write_list(folder: Path) -> None:
    """Writes `labels.csv`, the list of files of a web server's folder."""
    with (folder / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        classes = sorted({path.parent.name for path in folder.glob("*/*.jpg")})
        for path in sorted(folder.glob("*/*.jpg")):
            name = path.relative_to(folder).as_posix()
            rows.writerow([name, classes.index(path.parent.name)])


def tars(folder: Path, out: Path) -> int:
    """Puts all files, including bad ones, into tar shards; returns the number of
    shards.
    """
    out.mkdir(parents=True)
    files = sorted(folder.glob("*/*.jpg"))
    classes = sorted({path.parent.name for path in files})
    shards = range(0, len(files), SHARD_RECORDS)
    for number, first in enumerate(shards):
        with tarfile.open(out / f"shard-{number:04}.tar", "w") as archive:
            for at in range(first, min(first + SHARD_RECORDS, len(files))):
                label = str(classes.index(files[at].parent.name)).encode()
                for ending, content in (
                    ("jpg", files[at].read_bytes()),
                    ("cls", label),
                ):
                    member = tarfile.TarInfo(f"{at:09}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return len(shards)


@dataclass
class Data:
    """One dataset in several formats."""

    root: Path
    shards: int
    parquet: int

    def source(self, kind: str, at: str | None = None) -> sources.Source:
        """Returns the dataset in one format, from a web server if `at` is its URL."""
        below = at or str(self.root)
        if kind == "folder":
            if at is None:
                return sources.Folder(str(self.root / "photos"))
            return self.source("list", at)
        if kind == "list":
            photos = f"{below}/photos"
            return sources.Folder(photos, labels=f"{photos}/labels.csv")
        if kind == "tar":
            last = self.shards - 1
            return sources.WebDataset(f"{below}/tar/shard-{{0000..{last:04}}}.tar")
        last = self.parquet - 1
        return sources.Parquet(f"{below}/parquet/shard-{{000000..{last:06}}}.parquet")


def data(root: Path, count: int, chance: random.Random, bad: float) -> Data:
    """Makes the dataset below `root`, with bad records except in Parquet."""
    photos(root / "photos", count)
    pipeline = infeed.Pipeline(sources.Folder(str(root / "photos")))
    infeed.pack(pipeline, root / "parquet", to="parquet", shard_size="300KB")
    if bad:
        damage_files(root / "photos", chance, bad)
    write_list(root / "photos")
    shards = tars(root / "photos", root / "tar")
    return Data(root, shards, len(list((root / "parquet").glob("*.parquet"))))


def add_transforms(pipeline: infeed.Pipeline, chance: random.Random) -> infeed.Pipeline:
    """Adds transforms that end in images of one size."""
    side = chance.choice([32, 48, 64])
    first: list[T.Transform] = [
        T.RandomResizedCrop(side),
        T.Resize((side, side)),
        T.CenterCrop(side),
        T.RandomCrop(side),
    ]
    steps = [chance.choice(first)]
    others = [
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
        T.ColorJitter(0.3, 0.3, 0.3, 0.1),
        T.RandomErasing(p=0.5),
    ]
    steps += [step for step in others if chance.random() < 0.35]
    if chance.random() < 0.3:
        steps.append(T.ToFloat())
    layouts: list[Literal["HWC", "CHW"]] = ["HWC", "CHW"]
    return pipeline.transform(*steps, layout=chance.choice(layouts))


def hashes(folder: Path) -> dict[str, str]:
    """Returns the hash of each file below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def endless(loader: infeed.Loader) -> Iterator[Any]:
    """Yields the batches of one epoch after another."""
    while True:
        yield from loader


# Feeders.


@dataclass
class Feeder:
    """A feeder on a loopback address. It can be killed, stopped and restarted."""

    pipeline: Path
    token: Path
    address: str
    # Prefix of the command, such as `ip netns exec NAME`.
    inside: list[str] = field(default_factory=list)
    workers: int = 1
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        options = ["--listen", self.address, "--workers", str(self.workers)]
        options += ["--token-file", str(self.token)]
        self.process = subprocess.Popen(
            [*self.inside, *COMMAND, "feed", str(self.pipeline), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | self.env,
        )
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith("feeding at"):
            sys.exit(f"the feeder at {self.address} did not start")

    @property
    def runs(self) -> bool:
        return self.process is not None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def pause(self) -> None:
        """Stops the process without closing its connections."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def feeders(
    pipeline: infeed.Pipeline, work: Path, count: int, env: dict[str, str] | None = None
) -> Iterator[list[Feeder]]:
    """Starts feeders of a pipeline on loopback addresses."""
    path, token = work / "feeders.toml", work / "token"
    pipeline.save(path)
    token.write_text(TOKEN)
    group = [
        Feeder(path, token, f"127.0.0.1:{free_port()}", env=env or {})
        for _ in range(count)
    ]
    try:
        for feeder in group:
            feeder.start()
        yield group
    finally:
        for feeder in group:
            feeder.kill()


# A web server.


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with ranges and tags; some answers are wrong."""

    protocol_version = "HTTP/1.1"
    server: "FaultyServer"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(None)

    def do_GET(self) -> None:
        self.answer(self.server.next_fault())

    def answer(self, fault: str | None) -> None:
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            return self.send(404, b"")
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        requested_range = self.headers.get("Range")
        begin, end = 0, len(content)
        if requested_range and fault != "whole":
            first, _, final = requested_range.removeprefix("bytes=").partition("-")
            begin = int(first)
            end = min(end, int(final) + 1) if final else end
            if begin >= len(content):
                return self.send(416, b"")
        if fault == "delay":
            time.sleep(DELAY_S)
        if fault in ("500", "503"):
            return self.send(int(fault), b"")
        status = 206 if requested_range and fault != "whole" else 200
        if status == 206:
            moved = int(fault == "other range")
            span = f"{begin + moved}-{end - 1 + moved}"
            headers["Content-Range"] = f"bytes {span}/{len(content)}"
        body = content[begin:end]
        if fault == "short":
            body = body[: len(body) // 2]
        self.send(status, body, headers, cut=fault == "cut")

    def send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)


class FaultyServer(ThreadingHTTPServer):
    """Serves a folder; a share of the reads fails."""

    daemon_threads = True

    def __init__(self, folder: Path, seed: int, share: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.chance = random.Random(seed)
        self.share = share

    def next_fault(self) -> str | None:
        if self.chance.random() * 100 >= self.share:
            return None
        return self.chance.choice(FAULTS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client closed the connection.
        pass


@contextmanager
def web(folder: Path, seed: int, share: int) -> Iterator[str]:
    """Serves a folder from another process; yields its URL."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(seed), str(share)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("share", type=int, help="of 100 reads that go wrong")
    args = parser.parse_args()
    server = FaultyServer(args.folder, args.seed, args.share)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
