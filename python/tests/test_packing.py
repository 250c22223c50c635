"""`infeed.pack`: equal batches afterwards, progress, and continued calls."""

import json
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T


@pytest.fixture
def photos(classification) -> infeed.Pipeline:
    source = sources.Folder(classification.path)
    return infeed.Pipeline(source).decode().transform(T.CenterCrop(24)).batch(4)


def test_a_packed_folder_loads_with_the_rest_of_the_pipeline(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    packed = infeed.pack(photos, tmp_path / "out", to="folder", encode="png", bake=1)

    assert packed.bad == 0
    loaded = infeed.Pipeline.load(tmp_path / "out")
    for before, after in zip(photos, loaded, strict=True):
        np.testing.assert_array_equal(before.array("image"), after.array("image"))


def test_every_format_is_written_and_reported(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    for file_format in ("tfrecord", "arrow", "parquet", "npz", "arrays", "webdataset"):
        out = tmp_path / "{v1} [2], *" / file_format

        packed = infeed.pack(photos, out, to=file_format, fit=24, rows=4)

        assert packed.records == 30
        assert json.loads((out / "infeed-pack.json").read_text())["to"] == file_format
        with infeed.Pipeline.load(out).open() as loader:
            assert sum(batch.rows for batch in loader) == 30


def test_fast_shards_have_lossless_records(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    packed = infeed.pack(photos, tmp_path / "out", to="fast")

    stated = json.loads((tmp_path / "out" / "infeed-pack.json").read_text())
    assert (stated["to"], stated["image"]) == ("webdataset", "lossless")
    for before, after in zip(photos, packed.pipeline, strict=True):
        np.testing.assert_array_equal(before.array("image"), after.array("image"))


def test_progress_is_reported_and_can_stop_packing(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    seen: list[infeed.packing.PackProgress] = []

    with pytest.raises(
        infeed.errors.InterruptedPackError, match="run the same command again"
    ):
        infeed.pack(photos, tmp_path / "out", to="folder", progress=lambda at: False)
    infeed.pack(photos, tmp_path / "out", to="folder", progress=seen.append)

    assert seen[0].done == 0
    assert seen[-1].done == seen[-1].total
    assert seen[-1].bytes_in > 0


def test_an_exception_in_progress_reaches_the_caller(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    def fails(at: infeed.packing.PackProgress) -> None:
        raise KeyError(at.total)

    with pytest.raises(KeyError):
        infeed.pack(photos, tmp_path / "out", to="folder", progress=fails)


def test_wrong_options_raise_with_the_valid_ones(
    photos: infeed.Pipeline, tmp_path: Path
) -> None:
    for options, part in [
        ({"to": "zip"}, "webdataset"),
        ({"to": "folder", "encode": "gif"}, "jpeg:QUALITY"),
        ({"to": "folder", "bake": 5}, "at most 1"),
        ({"to": "folder", "shuffle": 1}, "pack to shards"),
        ({"to": "webdataset", "shard_size": "many"}, "pack: shard_size must be a size"),
        ({"shard_size": 0}, "pack: shard_size must be an integer of at least 1"),
        ({"to": "npz", "rows": 0}, "pack: rows must be an integer of at least 1"),
        ({"to": "npz", "rows": 2.0}, "pack: rows must be"),
        ({"jobs": -1}, "pack: jobs must be an integer of at least 1"),
        ({"max_bad": "none"}, "pack: max_bad must be an integer of at least 0"),
        ({"shuffle": 2**64}, "pack: shuffle must be below"),
        ({"restart_index": 0}, "pack: restart_index must be"),
        ({"resize_short": (3, 4)}, "pack: resize_short must be an integer"),
        ({"fit": "wide"}, "pack: fit must be an integer or"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=part):
            infeed.pack(photos, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_numpy_numbers_are_accepted(photos: infeed.Pipeline, tmp_path: Path) -> None:
    two = np.int64(2)

    packed = infeed.pack(
        photos,
        tmp_path / "out",
        to="npz",
        rows=two,
        jobs=two,
        max_bad=two,
        fit=np.int32(8),
        shard_size=np.int64(1 << 20),
    )

    assert packed.records > 0


@pytest.mark.parametrize(
    "file_format", ["tfrecord", "arrow", "parquet", "npz", "webdataset", "mds"]
)
def test_opening_a_truncated_shard_reports_the_file_and_a_fix(
    photos: infeed.Pipeline, tmp_path: Path, file_format: str
) -> None:
    out = tmp_path / "out"
    if file_format == "mds":
        write_mds(out)
        pipeline = infeed.Pipeline(sources.MDS(out)).batch(1)
    else:
        infeed.pack(photos, out, to=file_format, fit=24, rows=4)
        pipeline = infeed.Pipeline.load(out)
    shard = max(out.iterdir(), key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:-700])

    with pytest.raises(infeed.errors.OpenError) as caught:
        pipeline.open()

    assert shard.name in str(caught.value)
    fix = "; copy the file again, or leave it out of the dataset"
    assert str(caught.value).endswith(fix)


def write_mds(folder: Path) -> None:
    """Writes one shard of 100 records with one number each."""
    folder.mkdir()
    config = {
        "column_encodings": ["int"],
        "column_names": ["x"],
        "column_sizes": [8],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    rows = np.arange(100, dtype="<i8").tobytes()
    begin = 4 + 4 * 101
    offsets = np.arange(begin, begin + 8 * 101, 8, dtype="<u4").tobytes()
    content = np.uint32(100).tobytes() + offsets + rows
    (folder / "shard.00000.mds").write_bytes(content)
    raw = {"basename": "shard.00000.mds", "bytes": len(content), "hashes": {}}
    shard = config | {"raw_data": raw, "samples": 100, "zip_data": None}
    index = {"shards": [shard], "version": 2}
    (folder / "index.json").write_text(json.dumps(index))
