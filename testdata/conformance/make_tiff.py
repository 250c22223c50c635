"""Adds TIFF files of many kinds, and Pillow's pixels of them, to what `make.py` wrote.

    pip install numpy pillow
    python make_tiff.py  # after make.py; run again, it replaces its own files

Files come from the writer below where Pillow does not write the kind. Files named
`tiff_x_*.tif` are valid, but cannot be decoded; they have no pixels in `expected.json`.
"""

import io
import json
import pathlib
import struct

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 29, 37
RNG = np.random.default_rng(11)
SHORT, LONG, LONG8 = 3, 4, 16
GRAY_INVERTED, GRAY, RGB, PALETTE, CMYK, YCBCR, LAB = 0, 1, 2, 3, 5, 6, 8

cases = json.loads((HERE / "expected.json").read_text())
blob = bytearray((HERE / "expected.bin").read_bytes())
ours = [case for case in cases if case["file"].startswith("tiff_")]
cases = [case for case in cases if case not in ours]
if ours:
    del blob[min(case["offset"] for case in ours) :]


def expect(file, mode, pixels):
    pixels = np.ascontiguousarray(pixels)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    height, width, channels = pixels.shape
    cases.append(
        {
            "file": file,
            "mode": mode,
            "orient": False,
            "height": height,
            "width": width,
            "channels": channels,
            "depth": 8 * pixels.itemsize,
            "offset": len(blob),
        }
    )
    blob.extend(pixels.astype(pixels.dtype.newbyteorder("<")).tobytes())


def pack(samples, bits, order):
    """Bytes of samples [h, w, channels]; each row begins at a byte."""
    flat = samples.reshape(samples.shape[0], -1)
    if bits == 16:
        return flat.astype(order + "u2").tobytes()
    if bits == 32:
        return flat.astype(order + "f4").tobytes()
    single = flat[..., None] >> np.arange(bits)[::-1] & 1
    return np.packbits(single.reshape(flat.shape[0], -1), axis=1).tobytes()


def tiff(
    samples,
    bits,
    meaning,
    order="<",
    big=False,
    tile=None,
    strip=HEIGHT,
    planar=False,
    extra=(),
    colors=None,
    tags=(),
):
    """A TIFF without compression, of samples [h, w, channels]."""
    height, width, channels = samples.shape
    planes = np.split(samples, channels, axis=2) if planar else [samples]
    chunks = []
    for plane in planes:
        if tile:
            down, across = -height % tile[0], -width % tile[1]
            plane = np.pad(plane, ((0, down), (0, across), (0, 0)), mode="edge")
        high, wide = tile or (strip, width)
        chunks += [
            pack(plane[y : y + high, x : x + wide], bits, order)
            for y in range(0, plane.shape[0], high)
            for x in range(0, plane.shape[1], wide)
        ]
    word = "Q" if big else "I"
    long = LONG8 if big else LONG
    entries = {
        256: (LONG, [width]),
        257: (LONG, [height]),
        258: (SHORT, [bits] * channels),
        259: (SHORT, [1]),
        262: (SHORT, [meaning]),
        277: (SHORT, [channels]),
        284: (SHORT, [2 if planar else 1]),
        **({338: (SHORT, list(extra))} if extra else {}),
        **({320: (SHORT, list(colors))} if colors is not None else {}),
        **({339: (SHORT, [3] * channels)} if bits == 32 else {}),
        **{tag: (SHORT, [value]) for tag, value in tags},
    }
    offsets, lengths = (324, 325) if tile else (273, 279)
    if tile:
        entries |= {322: (LONG, [tile[1]]), 323: (LONG, [tile[0]])}
    else:
        entries |= {278: (LONG, [strip])}
    entries |= {offsets: (long, [0] * len(chunks))}
    entries |= {lengths: (long, [len(chunk) for chunk in chunks])}

    def build(base):
        """The file, if its chunks begin at byte `base`."""
        places = base + np.cumsum([0] + [len(chunk) for chunk in chunks[:-1]])
        entries[offsets] = (long, [int(place) for place in places])
        count, first = ("Q", 16) if big else ("H", 8)
        table = struct.pack(order + count, len(entries))
        size = struct.calcsize("<" + word)
        values_at = first + len(table) + len(entries) * (4 + 2 * size) + size
        values = b""
        for tag, (kind, numbers) in sorted(entries.items()):
            letter = {SHORT: "H", LONG: "I", LONG8: "Q"}[kind]
            raw = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
            if len(raw) > size:
                place = struct.pack(order + word, values_at + len(values))
                values += raw + b"\0" * (len(raw) % 2)
                raw = place
            table += struct.pack(order + "HH" + word, tag, kind, len(numbers))
            table += raw.ljust(size, b"\0")
        mark = b"II" if order == "<" else b"MM"
        head = struct.pack(order + "HHHQ", 43, 8, 0, 16) if big else b""
        head = head or struct.pack(order + "HI", 42, 8)
        whole = mark + head + table + b"\0" * size + values
        return whole, b"".join(chunks)

    length = len(build(0)[0])
    return b"".join(build(length))


def add(name, data, stored=None, stored16=None, same=None):
    """Writes a file and expects Pillow's pixels, and the samples that were written.

    `same` holds the same pixels in a file that Pillow reads, if it does not read this.
    """
    (HERE / name).write_bytes(data)
    opened = Image.open(io.BytesIO(same or data))
    if stored16 is None:
        expect(name, "rgb", np.asarray(opened.convert("RGB")))
        if not opened.mode.startswith("CMYK"):
            expect(name, "gray", np.asarray(opened.convert("L")))
    if opened.mode in ("RGBA", "LA"):
        expect(name, "rgba", np.asarray(opened.convert("RGBA")))
    if stored is not None:
        expect(name, "stored", stored.astype(np.uint8))
    if stored16 is not None:
        expect(name, "stored16", stored16.astype(np.uint16))


def noise(bits, channels=1):
    return RNG.integers(0, 1 << bits, (HEIGHT, WIDTH, channels), np.int64)


def save(image, **options):
    out = io.BytesIO()
    image.save(out, format="TIFF", **options)
    return out.getvalue()


for old in HERE.glob("tiff_*.tif"):
    old.unlink()
for bits in (1, 2, 4, 8):
    image = noise(bits)
    colors = RNG.integers(0, 1 << 16, 3 << bits)
    for order, letter in (("<", "l"), (">", "b")):
        name = f"tiff_p{bits}_{letter}.tif"
        add(name, tiff(image, bits, PALETTE, order, colors=colors), image)
    if bits < 8:
        add(f"tiff_g{bits}.tif", tiff(image, bits, GRAY, strip=8), image)
        inverted = tiff(image, bits, GRAY_INVERTED)
        add(f"tiff_g{bits}_inverted.tif", inverted, (1 << bits) - 1 - image)
add("tiff_g4_tiled.tif", tiff(image := noise(4), 4, GRAY, tile=(16, 16)), image)
colors = RNG.integers(0, 1 << 16, 3 << 8)
image = noise(8)
little = tiff(image, 8, PALETTE, big=True, colors=colors)
add("tiff_big_l.tif", little, image)
big = tiff(image, 8, PALETTE, ">", big=True, colors=colors)
add("tiff_big_b.tif", big, image, same=little)
color = noise(8, 3)
add("tiff_big_rgb.tif", tiff(color, 8, RGB, big=True, strip=10), color)
add("tiff_planar.tif", tiff(color, 8, RGB, planar=True, strip=10), color)
add("tiff_planar_tiled.tif", tiff(color, 8, RGB, planar=True, tile=(16, 16)), color)
add("tiff_tiled.tif", tiff(color, 8, RGB, tile=(32, 16)), color)
four = noise(8, 4)
add("tiff_rgba.tif", tiff(four, 8, RGB, extra=[2]), four)
chunky = tiff(four, 8, RGB, extra=[0])
add("tiff_rgbx.tif", chunky, four[..., :3])
planar = tiff(four, 8, RGB, extra=[0], planar=True)
add("tiff_rgbx_planar.tif", planar, four[..., :3], same=chunky)
add("tiff_la.tif", tiff(two := noise(8, 2), 8, GRAY, extra=[2]), two)
add("tiff_cmyk.tif", tiff(four, 8, CMYK))
wide = noise(16, 3)
for order, letter in (("<", "l"), (">", "b")):
    data = tiff(wide, 16, RGB, order, planar=True, tile=(16, 16))
    add(f"tiff_rgb16_planar_{letter}.tif", data, stored16=wide)
palette = Image.fromarray(color.astype(np.uint8)).quantize(50)
data = save(palette, compression="tiff_lzw")
add("tiff_p8_lzw.tif", data, np.asarray(palette))
bilevel = Image.fromarray((noise(1)[..., 0] * 255).astype(np.uint8)).convert("1")
add("tiff_g1_fax4.tif", save(bilevel, compression="group4"))

# JPEG decoders differ by rounding, so there are no expected pixels.
data = save(Image.fromarray(color.astype(np.uint8)), compression="jpeg")
(HERE / "tiff_jpeg.tif").write_bytes(data)

# Valid kinds that are rejected.
floats = RNG.random((HEIGHT, WIDTH, 1))
gray = Image.fromarray(noise(8)[..., 0].astype(np.uint8))
for name, data in {
    "float": tiff(floats, 32, GRAY),
    "lab": tiff(color, 8, LAB),
    "lzma": save(gray, compression="lzma"),
    "ycbcr": tiff(color, 8, YCBCR),
    "reversed": tiff(noise(1), 1, GRAY, tags=[(266, 2)]),
}.items():
    (HERE / f"tiff_x_{name}.tif").write_bytes(data)
    assert Image.open(io.BytesIO(data)).getpixel((3, 3)) is not None

(HERE / "expected.bin").write_bytes(blob)
lines = ",\n".join(json.dumps(case) for case in cases)
(HERE / "expected.json").write_text(f"[\n{lines}\n]\n")
print(len(cases), "cases,", len(blob), "bytes of pixels")
