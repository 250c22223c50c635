"""The reference decoders in docs/formats read the golden records."""

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
zstandard = pytest.importorskip("zstandard")


def load(name):
    """Imports a reference decoder."""
    spec = importlib.util.spec_from_file_location(
        name, ROOT / f"docs/formats/{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inverse_dct(blocks):
    """The inverse DCT of T.81, A.3.3, in floating point. Shape [..., 8, 8]."""
    k = np.arange(8)
    basis = np.cos((2 * k[:, None] + 1) * k[None, :] * np.pi / 16) / 2
    basis[:, 0] /= np.sqrt(2)
    return np.einsum("xu,...uv,yv->...xy", basis, blocks, basis)


def luma(record):
    """The samples of the first component of a decoded record."""
    quantisation = tables(record.head)[0]
    blocks = record.components[0] * quantisation
    down, across, _ = blocks.shape
    samples = inverse_dct(blocks.reshape(down, across, 8, 8)) + 128
    plane = samples.transpose(0, 2, 1, 3).reshape(8 * down, 8 * across)
    return plane[: record.height, : record.width].round().clip(0, 255)


def tables(head):
    """The quantisation tables of a JPEG, in row order."""
    zigzag = load("decode_coefficients").ZIGZAG
    found, at = {}, 2
    while head[at + 1] != 0xDA:
        length = int.from_bytes(head[at + 2 : at + 4], "big")
        body = head[at + 4 : at + 2 + length]
        while head[at + 1] == 0xDB and body:
            table = np.zeros(64, np.int64)
            table[zigzag] = list(body[1:65])
            found[body[0] & 15] = table
            body = body[65:]
        at += 2 + length
    return found


@pytest.mark.parametrize("name", ["s420r", "s444p", "gray", "s3121"])
def test_reference_decoder_gives_the_coefficients_of_the_jpeg(name):
    decoder = load("decode_coefficients")
    record = decoder.decode((ROOT / f"testdata/lossless/{name}.ifl").read_bytes())
    jpeg = (ROOT / f"testdata/conformance/{name}.jpg").read_bytes()

    image = Image.open(io.BytesIO(jpeg))
    image.draft("L", image.size)
    expected = np.asarray(image.convert("L")).astype(int)

    assert (record.width, record.height) == image.size
    # libjpeg computes with integers.
    assert np.abs(luma(record) - expected).max() <= 1


def test_reference_decoder_rejects_damaged_records():
    decoder = load("decode_coefficients")
    record = bytearray((ROOT / "testdata/lossless/gray.ifl").read_bytes())
    record[40] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        decoder.decode(bytes(record))


def test_reference_decoders_are_short():
    for path in (ROOT / "docs/formats").glob("*.py"):
        assert len(path.read_text().splitlines()) < 300
