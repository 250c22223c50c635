"""`infeed.codecs`: images and lossless records without a pipeline."""

import io
import struct
import threading

import numpy as np
import pytest
from PIL import Image, ImageOps

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


def exif_block(kind, number, order):
    """A TIFF structure with an orientation, as a number of a type of TIFF."""
    codes = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i"}
    value = struct.pack(order + codes[kind], number).ljust(4, b"\0")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    entry = struct.pack(order + "HHHI", 1, 0x112, kind, 1) + value
    return head + entry + struct.pack(order + "I", 0)


@pytest.mark.parametrize("container", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("kind", [1, 3, 4, 6, 8, 9])
def test_an_orientation_of_any_type_turns_as_with_pillow(container, kind):
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3), np.uint8)
    for order in "<>":
        for number in range(10):
            exif = b"Exif\0\0" + exif_block(kind, number, order)
            file = io.BytesIO()
            options = {"lossless": True} if container == "WEBP" else {}
            Image.fromarray(pixels).save(file, container, exif=exif, **options)
            image = ImageOps.exif_transpose(Image.open(file))

            found = codecs.decode(file.getvalue())
            height, width = codecs.image_size(file.getvalue())

            assert np.array_equal(found, np.asarray(image.convert("RGB")))
            assert (width, height) == image.size


def test_a_tiff_is_turned_with_and_without_orient_as_by_pillow():
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3), np.uint8)
    for number in range(1, 9):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "TIFF", tiffinfo={0x112: number})
        expected = np.asarray(Image.open(file))

        for orient in [False, True]:
            found = codecs.decode(file.getvalue(), orient=orient)
            assert np.array_equal(found, expected)
