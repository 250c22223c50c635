"""Warnings about data of files that their pixels do not have."""

import io
import logging
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from infeed import Pipeline, codecs, pack, sources
from infeed import transforms as T
from infeed.errors import ConfigError

CONFORMANCE = Path(__file__).parents[2] / "testdata/conformance"
LOW = (np.arange(64 * 32) % 4096).astype(np.uint16).reshape(32, 64)


def png16(samples: np.ndarray) -> bytes:
    """Returns a PNG of 16 bits; Pillow writes only gray ones."""
    height, width, channels = samples.shape
    color = {1: 0, 3: 2}[channels]
    rows = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    parts = [
        chunk(b"IHDR", head),
        chunk(b"IDAT", zlib.compress(raw)),
        chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def by_pillow(path, mode: str) -> np.ndarray:
    """Returns the pixels that Pillow gives."""
    with Image.open(path) as image:
        return np.asarray(image.convert(mode))


def warnings(caplog, pipeline, epochs=1, **options):
    """Returns the warnings of a loader, and the arrays of its images."""
    caplog.clear()
    with (
        caplog.at_level(logging.WARNING, logger="infeed"),
        pipeline.open(**options) as loader,
    ):
        arrays = [np.array(b["image"][0]) for _ in range(epochs) for b in loader]
    return [record.getMessage() for record in caplog.records], arrays


@pytest.fixture
def folder(tmp_path):
    """A folder with an 8-bit image before two images of 12 bits in 16-bit files."""
    Image.new("L", (64, 32), 9).save(tmp_path / "0.png")
    for name in ("1.png", "2.png"):
        Image.fromarray(LOW).save(tmp_path / name)
    return Pipeline(sources.Folder(tmp_path, labels="none"))


@pytest.mark.parametrize("workers", [1, 4])
def test_lost_low_bytes_are_warned_about_once_and_name_the_first_record(
    folder, caplog, tmp_path, workers
):
    texts, _ = warnings(caplog, folder.decode(), epochs=3, workers=workers)

    assert len(texts) == 1, texts
    assert texts[0] == (
        f"field `image` of {tmp_path / '1.png'} (record 1): values 0 to 2047 of 65535 "
        'become 0 to 7 of 255; use .decode(image="stored16") to keep 16 bits'
    )


def test_images_that_lose_nothing_cause_no_warning(folder, caplog, tmp_path):
    texts, arrays = warnings(caplog, folder.decode(image="stored16"))
    assert texts == []
    assert all(array.dtype == np.uint16 for array in arrays)
    assert np.array_equal(arrays[1].squeeze(), LOW)

    for name in ("1.png", "2.png"):
        Image.fromarray((LOW % 256).astype(np.uint16) * 257).save(tmp_path / name)
    texts, _ = warnings(caplog, folder.decode())
    assert texts == []


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_stored16_keeps_16_bits_of_rgb(caplog, tmp_path, kind):
    if kind == "png":
        colors = np.stack([LOW, LOW * 3, 65535 - LOW], axis=2)
        (tmp_path / "a.png").write_bytes(png16(colors))
    else:
        file = (CONFORMANCE / "tiff_rgb16_planar_l.tif").read_bytes()
        (tmp_path / "a.tif").write_bytes(file)
        colors = np.array(codecs.decode(file, mode="stored16"))
    pipeline = Pipeline(sources.Folder(tmp_path, labels="none"))

    texts, [array] = warnings(caplog, pipeline.decode(image="stored16"))
    assert texts == []
    assert array.dtype == np.uint16
    assert np.array_equal(array, colors)

    flipped = pipeline.decode(image="stored16").transform(T.RandomHorizontalFlip(1.0))
    _, [array] = warnings(caplog, flipped)
    assert np.array_equal(array, colors[:, ::-1])

    texts, [array] = warnings(caplog, pipeline.decode())
    assert np.array_equal(array, colors >> 8)
    assert f"values {colors.min()} to {colors.max()} of 65535 become" in texts[0]


@pytest.mark.parametrize("file_format", ["folder", "arrays", "webdataset"])
def test_packing_warns_about_lost_low_bytes_and_keeps_them_on_request(
    folder, caplog, tmp_path_factory, file_format
):
    out = tmp_path_factory.mktemp("packed")
    with caplog.at_level(logging.WARNING, logger="infeed"):
        encode = None if file_format == "arrays" else "png"
        pack(folder.decode(), out / "lossy", to=file_format, encode=encode)
    [text] = [record.getMessage() for record in caplog.records]
    assert "1.png (record 1): values 0 to 2047 of 65535 become 0 to 7" in text
    caplog.clear()

    with caplog.at_level(logging.WARNING, logger="infeed"):
        kept = pack(folder.decode(image="stored16"), out / "kept", to=file_format)
    assert caplog.records == []
    _, arrays = warnings(caplog, kept.pipeline)
    assert np.array_equal(arrays[1].squeeze(), LOW)


def test_a_transform_of_8_bits_is_rejected_with_the_fix(folder):
    pipeline = folder.decode(image="stored16").transform(T.ColorJitter(0.4))
    with pytest.raises(ConfigError, match=r"ColorJitter.*16 bits.*\.decode\(image="):
        pipeline.open()


def test_only_the_first_frame_of_an_animation_is_used_and_a_warning_says_so(
    caplog, tmp_path
):
    frames = [Image.new("RGB", (20, 16), color) for color in ("red", "blue")]
    for name in ("a.gif", "b.webp", "c.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    pipeline = Pipeline(sources.Folder(tmp_path, labels="none")).decode()

    texts, arrays = warnings(caplog, pipeline)

    assert len(texts) == 1
    assert "a.gif (record 0): the file is an animation" in texts[0]
    for array in arrays:
        assert np.abs(array.astype(int) - [255, 0, 0]).max() <= 3


def gif(transparent, *, frame=(5, 2)):
    """Returns a GIF of 12 x 10 pixels with a frame of 4 x 3 pixels."""
    image = Image.new("P", (4, 3))
    image.putpalette([0, 0, 0, 10, 20, 200, 250, 10, 10, 10, 250, 10])
    image.putdata([2, 3, 2, 3, 3, 3, 2, 2, 0, 1, 2, 3])
    file = io.BytesIO()
    options = {} if transparent is None else {"transparency": transparent}
    image.save(file, "GIF", optimize=False, **options)
    data = bytearray(file.getvalue())
    data[6:10] = struct.pack("<HH", 12, 10)
    at = data.index(b",\0\0\0\0\x04\0\x03\0")
    data[at + 1 : at + 5] = struct.pack("<HH", *frame)
    return bytes(data)


@pytest.mark.parametrize("mode", ["rgb", "rgba"])
@pytest.mark.parametrize("transparent", [None, 1, 3])
def test_gif_frames_smaller_than_their_canvas_are_read_like_pillow(
    tmp_path, caplog, transparent, mode
):
    for name, frame in [("a.gif", (5, 2)), ("b.gif", (10, 9))]:
        (tmp_path / name).write_bytes(gif(transparent, frame=frame))
    pipeline = Pipeline(sources.Folder(tmp_path, labels="none")).decode(image=mode)

    _, arrays = warnings(caplog, pipeline)

    for name, array in zip(("a.gif", "b.gif"), arrays, strict=True):
        assert np.array_equal(array, by_pillow(tmp_path / name, mode.upper())), name


def test_pnm_files_are_read_like_pillow(tmp_path, caplog):
    rng = np.random.default_rng(1)
    gray = rng.integers(0, 256, (5, 7), np.uint8).tobytes()
    color = rng.integers(0, 256, (5, 7, 3), np.uint8).tobytes()
    for name, data in {
        "a.pgm": b"P5\n7 5\n255\n" + gray,
        "b.ppm": b"P6\n# GTSRB\n7 5\n255\n" + color,
        "c.pgm": b"P5 7 5 100 " + bytes(value % 101 for value in gray),
        "d.pnm": b"P2\n7 5\n15\n" + b" ".join(b"%d" % (value % 16) for value in gray),
        "e.ppm": b"P3\n7 5\n255\n" + b"\n".join(b"%d" % value for value in color),
        "f.pbm": b"P4\n7 5\n" + gray[:5],
    }.items():
        (tmp_path / name).write_bytes(data)
    pipeline = Pipeline(sources.Folder(tmp_path, labels="none")).decode()

    _, arrays = warnings(caplog, pipeline)

    for path, array in zip(sorted(tmp_path.iterdir()), arrays, strict=True):
        assert np.array_equal(array, by_pillow(path, "RGB")), path.name


@pytest.fixture
def shard(tmp_path):
    """A shard with images in `png`, and bytes in `bin`: images from record 20 on."""
    file = io.BytesIO()
    Image.new("L", (4, 3), 9).save(file, "PNG")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(40):
            late = file.getvalue() if number >= 20 else b"nothing"
            for extension, content in [("png", file.getvalue()), ("bin", late)]:
                member = tarfile.TarInfo(f"{number:02}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return str(tmp_path / "a.tar")


def test_images_in_a_field_of_bytes_are_not_left_undecoded_without_a_word(
    shard, caplog
):
    def find_losses(fields, decoded=True):
        pipeline = Pipeline(sources.WebDataset(shard, fields))
        pipeline = pipeline.decode() if decoded else pipeline
        pipeline = pipeline.batch(2, pad=True)
        texts, _ = warnings(caplog, pipeline, epochs=2, workers=2)
        return texts

    named = {"image": "png", "late": "bin"}

    texts = find_losses(named)

    assert len(texts) == 1, texts
    assert "field `late` of" in texts[0]
    assert "record 20" in texts[0]
    assert "is a PNG image" in texts[0]
    assert 'kind="image"' in texts[0]
    assert find_losses(named, decoded=False) == []
    declared = sources.Field("bin", kind="bytes")
    assert find_losses(dict(named, late=declared)) == []
