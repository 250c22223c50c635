"""`infeed.codecs`: images and lossless records without a pipeline."""

import io
import threading

import numpy as np
import pytest
from PIL import Image

from infeed import codecs


def photograph(quality=90):
    """A JPEG with some texture, as bytes."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (30, 40, 3), np.uint8)
    image = Image.fromarray(small).resize((400, 300), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def test_a_jpeg_and_its_record_decode_to_the_pixels_of_pillow():
    jpeg = photograph()
    record = codecs.encode(jpeg)
    expected = np.asarray(Image.open(io.BytesIO(jpeg)))

    assert len(record) < len(jpeg)
    assert np.array_equal(codecs.decode(jpeg), expected)
    assert np.array_equal(codecs.decode(record), expected)
    assert codecs.decode(record, "gray").shape == (300, 400, 1)
    assert codecs.restore(record) == jpeg


def test_a_decoded_array_can_be_written_and_threads_decode_at_once():
    record = codecs.encode(photograph())
    expected = codecs.decode(record)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(codecs.decode(record)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(np.array_equal(one, expected) for one in found)
    found[0][0, 0] = 0
    assert np.array_equal(found[1], expected)


def test_errors_name_the_problem_and_the_fix():
    record = bytearray(codecs.encode(photograph()))
    record[200] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        codecs.decode(bytes(record))
    with pytest.raises(ValueError, match="use one of rgb, gray"):
        codecs.decode(photograph(), "bgr")
    with pytest.raises(ValueError, match="keep the file"):
        codecs.encode(b"no image")
    with pytest.raises(ValueError, match="pixels"):
        codecs.decode(photograph(), max_pixels=100)
