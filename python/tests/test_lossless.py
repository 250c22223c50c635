"""The reference decoders of `docs/formats`, with the golden records."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "testdata/lossless"
CONFORMANCE = ROOT / "testdata/conformance"


@pytest.fixture(scope="module")
def planes():
    """The reference decoder of pixel planes."""
    pytest.importorskip("zstandard")
    path = ROOT / "docs/formats/decode_planes.py"
    spec = importlib.util.spec_from_file_location("decode_planes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored_pixels(record: Path) -> np.ndarray:
    """Returns the samples of a record's PNG, from another decoder."""
    if (png := record.with_suffix(".png")).exists():
        pixels = np.asarray(Image.open(png))
        return pixels.reshape(*pixels.shape[:2], -1)
    cases = json.loads((CONFORMANCE / "expected.json").read_text())
    (case,) = (
        case
        for case in cases
        if case["file"] == record.with_suffix(".png").name
        and case["mode"] == ("stored16" if "b16" in record.name else "stored")
    )
    shape = case["height"], case["width"], case["channels"]
    dtype = "<u2" if case["depth"] == 16 else "u1"
    blob = (CONFORMANCE / "expected.bin").read_bytes()
    return np.frombuffer(blob, dtype, np.prod(shape), case["offset"]).reshape(shape)


def test_the_reference_decoder_gives_the_stored_pixels(planes):
    codings = set()
    records = sorted(GOLDEN.glob("*.ifl"))
    records = [path for path in records if path.read_bytes()[4:5] == b"P"]

    for path in records:
        found = planes.decode(path.read_bytes())
        codings.add(found.coding)
        np.testing.assert_array_equal(found.samples, stored_pixels(path), path.name)

    assert len(records) >= 15
    assert codings == {planes.STORED, planes.MINUS_GREEN, planes.YCOCG, planes.TABLE}


def test_the_reference_decoder_rejects_damage(planes):
    record = (GOLDEN / "gradient.ifl").read_bytes()

    for at in (0, 4, 5, 8, 20, len(record) // 2, len(record) - 1):
        damaged = record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
        with pytest.raises(ValueError, match=r"no record|checksum"):
            planes.decode(damaged)
    with pytest.raises(ValueError, match="checksum"):
        planes.decode(record + b"\0")
