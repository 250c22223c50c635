"""Writes the conformance images and the pixels a decoder must give for them.

    pip install numpy pillow
    python make.py path/to/cjpeg  # of libjpeg-turbo: samplings Pillow cannot write

PNG files come from the writer below, their reference from the samples it was given.
JPEG, WebP, BMP, GIF and TIFF references are Pillow's. `expected.json` lists, for each
file and colour mode, where in `expected.bin` the pixels lie (rows without padding,
16-bit samples little-endian).
"""

import io
import json
import pathlib
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 29, 37
RNG = np.random.default_rng(7)

blob = bytearray()
places: dict[bytes, int] = {}
cases = []


def expect(file, mode, pixels, orient=False):
    pixels = np.ascontiguousarray(pixels)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    data = pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    if data not in places:
        places[data] = len(blob)
        blob.extend(data)
    height, width, channels = pixels.shape
    cases.append(
        {
            "file": file,
            "mode": mode,
            "orient": orient,
            "height": height,
            "width": width,
            "channels": channels,
            "depth": 8 * pixels.itemsize,
            "offset": places[data],
        }
    )


def luma(rgb):
    r, g, b = (rgb[..., i].astype(np.int64) for i in range(3))
    return ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16).astype(np.uint8)


# ---- PNG ----


def chunk(kind, data):
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def packed_rows(samples, bits):
    """Rows of bytes from samples [h, w, channels]."""
    flat = samples.reshape(samples.shape[0], -1)
    if bits == 16:
        return [row.astype(">u2").tobytes() for row in flat]
    if bits == 8:
        return [row.astype(np.uint8).tobytes() for row in flat]
    weights = (1 << np.arange(bits)[::-1]).astype(np.uint8)
    return [
        np.packbits((row[:, None].astype(np.uint8) & weights > 0).reshape(-1)).tobytes()
        for row in flat
    ]


def filter_rows(rows, distance, first_filter):
    """Each row with the filter type after that of the row before: all five in turn."""
    out = bytearray()
    previous = bytes(len(rows[0]))
    for y, row in enumerate(rows):
        kind = (first_filter + y) % 5
        line = bytearray([kind])
        for x, value in enumerate(row):
            a = row[x - distance] if x >= distance else 0
            b = previous[x]
            c = previous[x - distance] if x >= distance else 0
            p = a + b - c
            pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
            paeth = a if pa <= pb and pa <= pc else b if pb <= pc else c
            line.append((value - [0, a, b, (a + b) // 2, paeth][kind]) & 255)
        out += line
        previous = row
    return bytes(out)


PASSES = [
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
]


def png(samples, color, bits, interlaced, palette=None, trns=None, extra=(), idat=997):
    height, width, channels = samples.shape
    distance = max(1, channels * bits // 8)
    passes = PASSES if interlaced else [(0, 0, 1, 1)]
    data = bytearray()
    for number, (y0, x0, dy, dx) in enumerate(passes):
        part = samples[y0::dy, x0::dx]
        if part.size:
            data += filter_rows(packed_rows(part, bits), distance, number + 1)
    stream = zlib.compress(bytes(data), 6)
    out = b"\x89PNG\r\n\x1a\n"
    out += chunk(
        b"IHDR",
        struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced)),
    )
    for kind, payload in extra:
        out += chunk(kind, payload)
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if trns is not None:
        out += chunk(b"tRNS", trns)
    for at in range(0, len(stream), idat):
        out += chunk(b"IDAT", stream[at : at + idat])
    return out + chunk(b"IEND", b"")


def picture(height, width, channels, top):
    """Gradients, an edge and noise, in 0..=top."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for c in range(channels):
        plane = (
            0.5
            + 0.35 * np.sin(x / (5 + c) + c) * np.cos(y / (7 - c))
            + 0.1 * (x + c * y > width)
        )
        plane = plane + RNG.normal(0, 0.04, plane.shape)
        planes.append(np.clip(plane, 0, 1) * top)
    return np.stack(planes, -1).round().astype(np.uint16)


def high(samples, bits):
    """Samples of any depth as 8 bits."""
    if bits == 16:
        return (samples >> 8).astype(np.uint8)
    return (samples * (255 // ((1 << bits) - 1))).astype(np.uint8)


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
COMBINATIONS = (
    [(0, b) for b in (1, 2, 4, 8, 16)]
    + [(2, 8), (2, 16)]
    + [(3, b) for b in (1, 2, 4, 8)]
)
COMBINATIONS += [(4, 8), (4, 16), (6, 8), (6, 16)]


def png_cases(color, bits, with_trns, size=(HEIGHT, WIDTH), tag=""):
    channels = CHANNELS[color]
    samples = picture(*size, channels, (1 << bits) - 1)
    palette = trns = None
    alpha = None
    if color == 3:
        count = min(1 << bits, 200)
        samples = np.minimum(samples, count - 1)
        palette = RNG.integers(0, 256, (count, 3))
        rgb = palette[samples[..., 0]].astype(np.uint8)
        if with_trns:
            table = RNG.integers(0, 256, max(1, count // 2)).astype(np.uint8)
            trns = table.tobytes()
            alpha = np.concatenate([table, np.full(256, 255, np.uint8)])[
                samples[..., 0]
            ]
    else:
        eight = high(samples, bits)
        rgb = np.repeat(eight[..., :1], 3, -1) if channels < 3 else eight[..., :3]
        if channels in (2, 4):
            alpha = eight[..., -1]
        elif with_trns:
            key = samples[size[0] // 2, size[1] // 2]
            trns = key.astype(">u2").tobytes()
            alpha = np.where((samples == key).all(-1), 0, 255).astype(np.uint8)
    if alpha is None:
        alpha = np.full(size, 255, np.uint8)
    gray = rgb[..., 0] if color in (0, 4) else luma(rgb)
    for interlaced in (False, True):
        options = ("t" if with_trns else "") + ("i" if interlaced else "")
        name = f"c{color}b{bits:02}{options}{tag}.png"
        data = png(samples, color, bits, interlaced, palette, trns)
        (HERE / name).write_bytes(data)
        if bits <= 8:
            theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            assert (theirs == rgb).all(), f"Pillow reads {name} otherwise"
        expect(name, "rgb", rgb)
        expect(name, "gray", gray)
        expect(name, "rgba", np.concatenate([rgb, alpha[..., None]], -1))
        if bits <= 8:
            expect(name, "stored", samples.astype(np.uint8))
        expect(name, "stored16", samples.astype(np.uint16))


def tiff_orientation(value):
    return b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0" + struct.pack(
        "<HHI", value, 0, 0
    )


def all_png():
    for color, bits in COMBINATIONS:
        png_cases(color, bits, False)
        if color in (0, 2, 3):
            png_cases(color, bits, True)
    # Sizes at which passes are empty or one pixel wide.
    for size in ((1, 1), (2, 3), (5, 1), (3, 5)):
        png_cases(2, 8, False, size, f"_{size[0]}x{size[1]}")
        png_cases(0, 1, False, size, f"_{size[0]}x{size[1]}")
    samples = picture(13, 18, 3, 255)
    data = png(samples, 2, 8, False, extra=[(b"eXIf", tiff_orientation(6))])
    (HERE / "orientation6.png").write_bytes(data)
    expect("orientation6.png", "rgb", samples.astype(np.uint8))
    expect(
        "orientation6.png", "rgb", np.rot90(samples, -1).astype(np.uint8), orient=True
    )


# ---- JPEG ----


def jpeg_expect(name, data, orient=False):
    (HERE / name).write_bytes(data)
    opened = Image.open(io.BytesIO(data))
    if orient:
        opened = ImageOps.exif_transpose(opened)
    rgb = np.asarray(opened.convert("RGB"))
    expect(name, "rgb", rgb, orient)
    if orient:
        return
    expect(
        name,
        "rgba",
        np.concatenate([rgb, np.full((*rgb.shape[:2], 1), 255, np.uint8)], -1),
    )
    if opened.mode == "CMYK":
        expect(name, "gray", luma(rgb))
    else:
        y = Image.open(io.BytesIO(data))
        y.draft("L", None)  # the Y channel itself
        expect(name, "gray", np.asarray(y))
    expect(
        name,
        "stored",
        np.asarray(opened if opened.mode == "L" else opened.convert("RGB")),
    )


def all_jpeg(cjpeg):
    base = picture(45, 67, 3, 255).astype(np.uint8)
    color = Image.fromarray(base)

    def save(image, **options):
        out = io.BytesIO()
        image.save(out, "JPEG", **options)
        return out.getvalue()

    for number, sampling in enumerate(("4:4:4", "4:2:2", "4:2:0")):
        name = sampling.replace(":", "")
        quality = (95, 75, 40)[number]
        jpeg_expect(f"s{name}.jpg", save(color, quality=quality, subsampling=sampling))
        jpeg_expect(
            f"s{name}p.jpg",
            save(color, quality=quality, subsampling=sampling, progressive=True),
        )
    jpeg_expect("s420r.jpg", save(color, quality=85, restart_marker_blocks=3))
    jpeg_expect(
        "s420o.jpg", save(color, quality=100, optimize=True, subsampling="4:2:0")
    )
    jpeg_expect("gray.jpg", save(color.convert("L"), quality=90))
    jpeg_expect("grayp.jpg", save(color.convert("L"), quality=60, progressive=True))
    jpeg_expect("rgb.jpg", save(color, quality=90, keep_rgb=True))
    jpeg_expect("cmyk.jpg", save(color.convert("CMYK"), quality=90))
    inks = np.concatenate([255 - base, picture(45, 67, 1, 200).astype(np.uint8)], -1)
    jpeg_expect(
        "cmykp.jpg", save(Image.fromarray(inks, "CMYK"), quality=80, progressive=True)
    )

    ppm = io.BytesIO()
    color.save(ppm, "PPM")
    for name, sample, options in (
        ("s440", "1x2", []),
        ("s411", "4x1", []),
        ("s441", "1x4", []),
        ("s410", "4x2", []),
        ("s440p", "1x2", ["-progressive"]),
        ("s411p", "4x1", ["-progressive"]),
        ("s420a", "2x2", ["-arithmetic"]),
        ("s411r", "4x1", ["-restart", "1"]),
        ("s444n", "1x2,1x2,1x2", []),
        ("s422n", "2x2,1x2,1x2", []),
        ("s3121", "3x1,1x1,1x1", []),
    ):
        done = subprocess.run(
            [cjpeg, "-quality", "80", "-sample", sample, *options],
            input=ppm.getvalue(),
            stdout=subprocess.PIPE,
            check=True,
        )
        jpeg_expect(f"{name}.jpg", done.stdout)

    for value in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = value
        data = save(color.crop((0, 0, 23, 19)), quality=90, exif=exif)
        jpeg_expect(f"orientation{value}.jpg", data)
        jpeg_expect(f"orientation{value}.jpg", data, orient=True)


# ---- the rest ----


def other(name, image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    (HERE / name).write_bytes(out.getvalue())
    opened = Image.open(io.BytesIO(out.getvalue()))
    expect(name, "rgb", np.asarray(opened.convert("RGB")))
    if opened.mode in ("RGBA", "LA"):
        expect(name, "rgba", np.asarray(opened.convert("RGBA")))
    if opened.mode == "I;16":
        cases.pop()
        expect(name, "stored16", np.asarray(opened).astype(np.uint16))


def all_other():
    color = Image.fromarray(picture(HEIGHT, WIDTH, 3, 255).astype(np.uint8))
    alpha = Image.fromarray(picture(HEIGHT, WIDTH, 4, 255).astype(np.uint8), "RGBA")
    gray = color.convert("L")
    other("lossy.webp", color, format="WEBP", quality=70)
    other("lossless.webp", color, format="WEBP", lossless=True)
    other("alpha.webp", alpha, format="WEBP", lossless=True, exact=True)
    other("rgb.bmp", color, format="BMP")
    other("gray.bmp", gray, format="BMP")
    other("palette.bmp", color.quantize(50), format="BMP")
    other("palette.gif", color.quantize(50), format="GIF")
    other("rgb.tif", color, format="TIFF")
    other("lzw.tif", color, format="TIFF", compression="tiff_lzw")
    other("gray.tif", gray, format="TIFF", compression="tiff_adobe_deflate")
    sixteen = picture(HEIGHT, WIDTH, 1, 65535)[..., 0]
    other("gray16.tif", Image.fromarray(sixteen), format="TIFF")


all_png()
all_jpeg(sys.argv[1])
all_other()
(HERE / "expected.bin").write_bytes(blob)
lines = ",\n".join(json.dumps(case) for case in cases)
(HERE / "expected.json").write_text(f"[\n{lines}\n]\n")
print(len(cases), "cases,", len(blob), "bytes of pixels")
