#!/usr/bin/env python3
"""Measures reading alone: encoded records from files and shards, and a plain read.

Packs a folder of JPEGs once into each format, then measures each contender in a
separate process, in turn, several times: records per second up to, and without,
decoding. The bound is one thread that reads the tar shards from the first to the last
byte into a reused buffer. All data is in the page cache. README.md describes the peers'
environments.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import machine
from datasets import files_of, read_once

BATCH = 64
BUFFER = 8 << 20
SHARD = "64MB"
# Formats of `infeed pack`, and names of their folders below the data folder.
FORMATS = ("webdataset", "tfrecord", "parquet", "arrow")


def shards(root: Path, suffix: str) -> list[str]:
    return sorted(str(path) for path in root.glob(f"*{suffix}"))


def plain_read(data: Path, _shuffle: bool) -> Iterator[int]:
    """Reads with one thread, one buffer, no records: the rate of the page cache."""
    tars = shards(data / "webdataset", ".tar")
    records = json.loads((data / "webdataset/infeed-pack.json").read_text())["records"]
    buffer = memoryview(bytearray(BUFFER))
    total = sum(os.path.getsize(tar) for tar in tars)
    done = 0.0
    while True:
        for tar in tars:
            with open(tar, "rb", buffering=0) as file:
                while read := file.readinto(buffer):
                    done += read * records / total
                    if done >= BATCH:
                        yield int(done)
                        done -= int(done)


def through_infeed(file_format: str) -> Callable[[Path, bool], Iterator[int]]:
    def batches(data: Path, shuffle: bool) -> Iterator[int]:
        import infeed
        from infeed import sources

        source = {
            "files": lambda: sources.Folder(str(data / "files")),
            "webdataset": lambda: sources.WebDataset(str(data / "webdataset/*.tar")),
            "tfrecord": lambda: sources.TFRecord(str(data / "tfrecord/*.tfrecord")),
            "parquet": lambda: sources.Parquet(str(data / "parquet/*.parquet")),
            "arrow": lambda: sources.Arrow(str(data / "arrow/*.arrow")),
        }[file_format]()
        pipeline = infeed.Pipeline(source).batch(BATCH, drop_last=True)
        if shuffle:
            pipeline = pipeline.shuffle(seed=0)
        loader = pipeline.open(workers=machine.cores())
        while True:
            for batch in loader:
                yield batch.rows

    return batches


def through_webdataset(data: Path, shuffle: bool) -> Iterator[int]:
    import webdataset

    tars = shards(data / "webdataset", ".tar")
    while True:
        dataset = webdataset.WebDataset(tars, shardshuffle=len(tars) if shuffle else 0)
        for sample in dataset.shuffle(1000) if shuffle else dataset:
            assert sample["jpg"]
            yield 1


def through_streaming(data: Path, shuffle: bool) -> Iterator[int]:
    from streaming import StreamingDataset

    dataset = StreamingDataset(
        local=str(data / "mds"), shuffle=shuffle, batch_size=BATCH
    )
    while True:
        for sample in dataset:
            assert sample["image"]
            yield 1


def through_tf(data: Path, shuffle: bool) -> Iterator[int]:
    import tensorflow as tf

    files = shards(data / "tfrecord", ".tfrecord")
    dataset = tf.data.TFRecordDataset(files, num_parallel_reads=machine.cores())
    if shuffle:
        dataset = dataset.shuffle(1000)
    dataset = dataset.batch(BATCH).prefetch(tf.data.AUTOTUNE).repeat()
    for _ in dataset:
        yield BATCH


# Environment below --venvs ("": infeed's own), and the function that yields the numbers
# of records read.
CONTENDERS: dict[str, tuple[str, Callable[[Path, bool], Iterator[int]]]] = {
    "read": ("", plain_read),
    **{
        f"infeed {file_format}": ("", through_infeed(file_format))
        for file_format in ("files", *FORMATS)
    },
    "webdataset": ("torch", through_webdataset),
    "streaming": ("torch", through_streaming),
    "tf": ("tf", through_tf),
}


def one(args: argparse.Namespace) -> None:
    """Measures one contender in this process and prints its rate."""
    batches = CONTENDERS[args.one][1](args.data, args.shuffle)
    warm = time.perf_counter() + args.warm_up
    while time.perf_counter() < warm:
        next(batches)
    begun, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < args.seconds:
        done += next(batches)
    print(json.dumps({"rate": done / passed}), flush=True)
    os._exit(0)


def prepare(args: argparse.Namespace) -> None:
    """Packs the photos once into each format."""
    args.data.mkdir(parents=True, exist_ok=True)
    files = args.data / "files"
    if args.photos and not files.exists():
        files.symlink_to(args.photos.absolute())
    elif not files.exists():
        make = [args.infeed, "sample", "classification", str(files)]
        subprocess.run([*make, "--count", "1000"], check=True)
    for file_format in FORMATS:
        command = [args.infeed, "pack", str(files), str(args.data / file_format)]
        command += ["--to", file_format, "--shard-size", SHARD]
        subprocess.run(command, check=True, stdout=sys.stderr)
    if not (args.data / "mds").exists():
        write = (
            "import sys; from pathlib import Path; from streaming import MDSWriter\n"
            "root, out = map(Path, sys.argv[1:])\n"
            "kinds = dict(image='bytes', label='int')\n"
            "with MDSWriter(out=str(out), columns=kinds) as writer:\n"
            "    for file in sorted(root.rglob('*')):\n"
            "        if file.is_file():\n"
            "            writer.write(dict(image=file.read_bytes(), label=0))\n"
        )
        python = str(args.venvs / "torch/bin/python")
        command = [python, "-c", write, str(files.resolve()), str(args.data / "mds")]
        if subprocess.run(command).returncode:
            print("no MDS shards: the peer is not there", file=sys.stderr)
    for path in files_of(args.data):
        read_once(path)


def measure(name: str, args: argparse.Namespace, shuffle: bool) -> float | None:
    venv = CONTENDERS[name][0]
    python = args.venvs / venv / "bin/python" if venv else Path(sys.executable)
    command = [str(python), "-W", "ignore", __file__, "--one", name]
    command += ["--data", str(args.data), "--seconds", str(args.seconds)]
    command += ["--warm-up", str(args.warm_up)] + ["--shuffle"] * shuffle
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])["rate"]
    except (OSError, IndexError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error!r}", file=sys.stderr)
        return None


def main() -> int:
    args = parse()
    if args.one:
        one(args)
    prepare(args)
    names = args.contenders or list(CONTENDERS)
    rates: dict[tuple[str, bool], list[float]] = {}
    for turn in range(args.repeats):
        # Each turn starts with another contender, so that none always has the same
        # position.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for shuffle in (False, True) if name != "read" else (False,):
                rate = measure(name, args, shuffle)
                if rate is not None:
                    rates.setdefault((name, shuffle), []).append(rate)
                    print(f"{name} {shuffle=}: {rate:.0f}/s", file=sys.stderr)
    on = machine.describe()
    print(f"Machine: {on['processor']}, {on['cores']} cores, {on['system']}.")
    size = sum(path.stat().st_size for path in files_of(args.data / "files"))
    count = len(files_of(args.data / "files"))
    print(f"Data: {count} files, {size / 1e6:.0f} MB, in the page cache.\n")
    bound = median(rates.get(("read", False), [float("nan")]))
    print("| reader | in order, records/s | to a plain read | shuffled |")
    print("|---|--:|--:|--:|")
    for name in names:
        ordered = rates.get((name, False))
        if not ordered:
            continue
        mixed = rates.get((name, True))
        shown = f"{median(mixed):.0f}" if mixed else ""
        rate = median(ordered)
        print(f"| {name} | {rate:.0f} | {rate / bound:.2f} | {shown} |")
    return 0


def parse() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of JPEGs; else made up")
    parser.add_argument("--data", type=Path, default=here / ".data/reading")
    parser.add_argument("--venvs", type=Path, default=here / ".venvs")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--shuffle", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.data, args.venvs = args.data.absolute(), args.venvs.absolute()
    return args


if __name__ == "__main__":
    sys.exit(main())
