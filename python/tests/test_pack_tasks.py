"""Shards written by several processes have the bytes of a single process."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import _core, packing, sources
from infeed import transforms as T
from infeed._pack_tasks import distribute

FORMATS = ["webdataset", "tfrecord", "arrow", "parquet", "npz"]


class KilledError(Exception):
    """The death of a worker, or of the process that starts tasks."""


class Workers:
    """Does tasks one by one, in an order drawn from a seed, some of them twice."""

    def __init__(self, out: Path, pipeline: infeed.Pipeline, options: dict, seed: int):
        what = (pipeline._json(), str(out), json.dumps(options))
        # Replaces two processes.
        self.parts = [_core.PackParts(*what, False) for _ in range(2)]
        self.rng = random.Random(seed)
        self.done: list[tuple] = []
        self.most = 0
        self.lives = 10**9
        self.tasks: dict[int, tuple] = {}
        self.results: dict[int, object] = {}

    def weigh(self, begin, end):
        return self._begin("weigh", begin, end)

    def shard(self, number, begin, end):
        return self._begin("shard", number, begin, end)

    def poll(self, tasks):
        self.most = max(self.most, len(tasks))
        task = self.rng.choice(tasks)
        name, *places = self.tasks[task]
        for parts in self.rng.sample(self.parts, k=self.rng.choice([1, 2])):
            self.results[task] = getattr(parts, name)(*places)
        return [task]

    def result(self, task):
        if self.lives == 0:
            raise KilledError
        self.lives -= 1
        self.done.append(self.tasks[task])
        return self.results[task]

    def _begin(self, *what):
        self.tasks[len(self.tasks)] = what
        return len(self.tasks) - 1


def pack_options(pipeline, **options) -> dict:
    return packing.options_from(pipeline, {"jobs": 1, **options})


def apart(pipeline, out, jobs=3, lives=None, seed=0, reported=None, **options):
    """Packs as `infeed.ray.pack` does; returns the workers and the result."""
    settings = pack_options(pipeline, **options)
    parts = _core.PackParts(pipeline._json(), str(out), json.dumps(settings), True)
    workers = Workers(out, pipeline, settings, seed)
    workers.lives = 10**9 if lives is None else lives
    reported = reported or (lambda totals: True)
    totals = distribute(parts, workers, jobs, settings["max_bad"], reported)
    return workers, totals, infeed.pack(pipeline, out, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def photos(classification) -> infeed.Pipeline:
    source = sources.Folder(classification.path)
    return infeed.Pipeline(source).decode().transform(T.CenterCrop(24)).batch(4)


@pytest.fixture
def many(tmp_path) -> infeed.Pipeline:
    """Seven hundred small images of many lengths, with some bad ones."""
    from PIL import Image

    rng = np.random.default_rng(1)
    for n in range(700):
        path = tmp_path / "many" / f"c{n % 3}" / f"{n:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if n in (0, 1, 64, 65, 300, 699):
            path.write_bytes(b"no image at all")
            continue
        size = (4, 4 + n % 23)
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    source = sources.Folder(tmp_path / "many")
    return infeed.Pipeline(source).decode().batch(8, pad=True)


@pytest.mark.parametrize("to", FORMATS)
def test_several_processes_write_the_bytes_of_one(photos, to, tmp_path):
    options = {"to": to, "fit": 24, "shard_size": 9000, "encode": "png"}
    if to == "npz":
        options |= {"encode": "keep", "rows": 4}
    infeed.pack(photos, tmp_path / "one", **options)

    for seed in range(3):
        out = tmp_path / f"many-{seed}"
        workers, totals, packed = apart(photos, out, seed=seed, **options)

        assert files(out) == files(tmp_path / "one")
        assert sum(name == "shard" for name, *_ in workers.done) > 2
        assert (totals.records, packed.records, packed.bad) == (30, 30, 0)
        assert totals.bytes_in == packed.bytes_in


@pytest.mark.parametrize("shuffle", [None, 7])
def test_bad_records_are_left_out_at_their_positions(many, shuffle, tmp_path):
    options = {"to": "webdataset", "shard_size": 20_000, "shuffle": shuffle}
    infeed.pack(many, tmp_path / "one", **options)

    workers, totals, packed = apart(many, tmp_path / "out", jobs=4, **options)

    assert files(tmp_path / "out") == files(tmp_path / "one")
    assert (packed.records, packed.bad, totals.bad) == (694, 6, 6)
    assert workers.most == 4
    weighed = [places for name, *places in workers.done if name == "weigh"]
    assert len(weighed) > 4
    assert sorted(weighed)[0][0] == 0
    assert sum(end - begin for begin, end in weighed) == 700


def test_a_run_killed_anywhere_and_repeated_ends_with_the_same_bytes(many, tmp_path):
    options = {"to": "tfrecord", "shard_size": 15_000}
    infeed.pack(many, tmp_path / "one", **options)
    expected = files(tmp_path / "one")

    for lives in (0, 1, 5, 12, 20):
        out = tmp_path / f"out-{lives}"
        with pytest.raises(KilledError):
            apart(many, out, lives=lives, seed=lives, **options)
        with pytest.raises(infeed.errors.ConfigError, match="not finished"):
            infeed.Pipeline.load(out)
        # A killed writer leaves such a file.
        (out / ".shard-000001.tfrecord.0123456789abcdef.part").write_bytes(b"half")
        kept = {p.name for p in out.glob("shard-*.noted")}

        workers, totals, _ = apart(many, out, seed=lives + 1, **options)

        assert files(out) == expected
        written = {
            f"shard-{n:06}.noted" for name, n, *_ in workers.done if name == "shard"
        }
        assert written.isdisjoint(kept)
        assert (totals.reused > 0) == (len(kept) > 0)


def test_one_process_continues_the_work_of_several(many, tmp_path):
    options = {"to": "webdataset", "shard_size": 15_000}
    infeed.pack(many, tmp_path / "one", **options)
    with pytest.raises(KilledError):
        apart(many, tmp_path / "out", lives=14, **options)

    packed = infeed.pack(many, tmp_path / "out", **options)

    assert files(tmp_path / "out") == files(tmp_path / "one")
    assert 0 < packed.reused < 694


def test_several_processes_continue_the_work_of_one(many, tmp_path):
    options = {"to": "webdataset", "shard_size": 15_000}
    infeed.pack(many, tmp_path / "one", **options)
    out = tmp_path / "out"
    infeed.pack(many, out, **options)
    # Complete except for two lost shards.
    (out / "shard-000003.tar").unlink()
    (out / "shard-000007.tar").unlink()

    apart(many, out, **options)

    assert files(out) == files(tmp_path / "one")


def test_only_a_damaged_shard_is_written_again(many, tmp_path):
    options = {"to": "webdataset", "shard_size": 15_000}
    infeed.pack(many, tmp_path / "one", **options)
    out = tmp_path / "out"

    def stop(totals):
        return totals.records < 690

    with pytest.raises(KilledError):
        apart(many, out, lives=30, **options)
    noted = sorted(out.glob("shard-*.noted"))
    assert len(noted) > 3
    cut = noted[1].with_suffix(".tar")
    cut.write_bytes(cut.read_bytes()[:-1])
    noted[2].write_bytes(noted[2].read_bytes()[:-2])

    workers, _, _ = apart(many, out, reported=stop, **options)

    assert files(out) == files(tmp_path / "one")
    kept = {int(path.stem[6:]) for path in noted[:1] + noted[3:]}
    assert kept.isdisjoint(n for name, n, *_ in workers.done if name == "shard")


def test_too_many_bad_records_raise_as_in_one_process(many, tmp_path):
    for limit, kind in [
        (0, infeed.errors.DecodeError),
        (3, infeed.errors.TooManyBadRecordsError),
    ]:
        options = {"to": "webdataset", "shard_size": 20_000, "max_bad": limit}
        reported = []
        for pack, out in [(infeed.pack, "one"), (apart, "out")]:
            with pytest.raises(kind) as error:
                pack(many, tmp_path / f"{out}-{limit}", **options)
            reported.append(str(error.value))
        assert reported[0] == reported[1]


def test_the_first_record_is_reported_if_all_are_bad(many, tmp_path):
    for path in (tmp_path / "many").rglob("*.png"):
        path.write_bytes(b"no image at all")

    with pytest.raises(infeed.errors.DecodeError, match="0000"):
        apart(many, tmp_path / "out", to="webdataset")


def test_a_source_that_changes_during_packing_raises(many, tmp_path):
    options = pack_options(many, to="webdataset", shard_size=15_000)
    what = (many._json(), str(tmp_path / "out"), json.dumps(options))
    parts = _core.PackParts(*what, True)
    ends = parts.ends(parts.weigh(0, 700))
    assert ends == sorted(set(ends))
    assert len(ends) > 5

    with pytest.raises(infeed.errors.ConfigError, match="has changed since"):
        parts.shard(0, 0, ends[1])
    assert list((tmp_path / "out").glob("*shard*")) == []
    with pytest.raises(infeed.errors.ConfigError, match="places"):
        parts.weigh(600, 701)


def test_formats_without_shards_and_folders_that_were_not_begun_raise(photos, tmp_path):
    options = json.dumps(pack_options(photos, to="folder"))
    with pytest.raises(infeed.errors.ConfigError, match="pack to shards"):
        _core.PackParts(photos._json(), str(tmp_path / "out"), options, True)
    options = pack_options(photos, to="webdataset")
    begun = (photos._json(), str(tmp_path / "out"), json.dumps(options))
    with pytest.raises(infeed.errors.ConfigError, match="no process is packing into"):
        _core.PackParts(*begun, False)
    _core.PackParts(*begun, True)
    other = json.dumps(options | {"shard_bytes": 1000})
    with pytest.raises(infeed.errors.ConfigError, match="shard_bytes"):
        _core.PackParts(begun[0], begun[1], other, False)
    shutil.rmtree(tmp_path / "out")
