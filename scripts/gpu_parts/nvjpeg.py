"""What NVIDIA's JPEG decoder would give here: images a second, regions, other pixels.

infeed decodes on the processor; this tells whether a card could help. The library is
loaded where PyTorch, a CUDA toolkit or ``INFEED_NVJPEG`` has it.

Source of the calls: ``nvjpeg.h`` of CUDA 12 and 13, which agree on them.
"""

import ctypes
import ctypes.util
import os
import site
import tempfile
import threading
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from pathlib import Path

import torch

from . import data

FULL = {"count": 1024, "batch": 64, "turns": 4}

# Ways to decode, as `nvjpegBackend_t` numbers them.
BACKENDS = {"the engine": 3, "the card's cores": 2, "both, Huffman on the host": 1}

# `NVJPEG_OUTPUT_RGBI`: red, green and blue side by side.
INTERLEAVED = 5

# `NVJPEG_SCALE_1_BY_2`.
HALF = 1

# `nvjpegStatus_t`, as far as they say something about the machine.
STATUS = {
    1: "it is not initialised",
    2: "an argument is not valid",
    3: "the JPEG is broken",
    4: "it does not decode such a JPEG",
    6: "the card did not execute it",
    7: "the card is not one of its architectures",
    9: "this card or library has no such decoder",
}


class Image(ctypes.Structure):
    """`nvjpegImage_t`: addresses on the card, and bytes from row to row."""

    _fields_ = [("channel", c_void_p * 4), ("pitch", c_size_t * 4)]


class Refused(RuntimeError):
    """A call of the library that failed."""


class Library:
    """The library's functions, each of which raises when it fails."""

    def __init__(self) -> None:
        tried = []
        for name in candidates():
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError as error:
                tried.append(f"{name}: {error}")
        raise Refused("; ".join(tried) or "libnvjpeg is nowhere to be found")

    def __call__(self, function: str, *arguments) -> None:
        """Calls one.

        Raises:
            Refused: It says something other than success.
        """
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise Refused(f"{function}: {STATUS.get(status, f'status {status}')}")


def candidates() -> list[str]:
    """Where the library may be, the surest place first."""
    found = [os.environ["INFEED_NVJPEG"]] if "INFEED_NVJPEG" in os.environ else []
    for folder in [*site.getsitepackages(), str(Path(torch.__file__).parents[1])]:
        found += map(str, Path(folder).glob("nvidia/*/lib/libnvjpeg.so*"))
    for folder in Path("/usr/local").glob("cuda*"):
        found += map(str, folder.glob("lib64/libnvjpeg.so.*"))
    named = ctypes.util.find_library("nvjpeg")
    return found + ([named] if named else ["libnvjpeg.so.13", "libnvjpeg.so.12"])


class Decoder:
    """One way to decode batches of a size."""

    def __init__(self, library: Library, backend: int, batch: int):
        self.library, self.batch = library, batch
        self.handle, self.state = c_void_p(), c_void_p()
        library("nvjpegCreateEx", c_int(backend), None, None, 0, byref(self.handle))
        try:
            library("nvjpegJpegStateCreate", self.handle, byref(self.state))
            threads = len(os.sched_getaffinity(0))
            library(
                "nvjpegDecodeBatchedInitialize",
                *(self.handle, self.state, c_int(batch), c_int(threads)),
                c_int(INTERLEAVED),
            )
        except Refused:
            self.close()
            raise

    def size(self, jpeg: bytes) -> tuple[int, int]:
        """Height and width that a JPEG says it has."""
        components, subsampling = c_int(), c_int()
        widths, heights = (c_int * 4)(), (c_int * 4)()
        self.library(
            "nvjpegGetImageInfo",
            *(self.handle, jpeg, c_size_t(len(jpeg)), byref(components)),
            *(byref(subsampling), widths, heights),
        )
        return heights[0], widths[0]

    def decode(
        self,
        jpegs: list[bytes],
        images: list[torch.Tensor],
        settings: "list[Settings] | None" = None,
    ) -> None:
        """Decodes a batch into images uint8 [H, W, 3], in PyTorch's stream."""
        count = len(jpegs)
        pointers = [
            ctypes.cast(ctypes.c_char_p(jpeg), POINTER(c_ubyte)) for jpeg in jpegs
        ]
        bytes_of = (POINTER(c_ubyte) * count)(*pointers)
        lengths = (c_size_t * count)(*map(len, jpegs))
        out = (Image * count)()
        for image, tensor in zip(out, images, strict=True):
            image.channel[0], image.pitch[0] = tensor.data_ptr(), 3 * tensor.shape[1]
        stream = c_void_p(torch.cuda.current_stream().cuda_stream)
        first = (self.handle, self.state, bytes_of, lengths, out)
        if settings is None:
            self.library("nvjpegDecodeBatched", *first, stream)
        else:
            each = (c_void_p * count)(*(one.handle for one in settings))
            self.library("nvjpegDecodeBatchedEx", *first, each, stream)

    def close(self) -> None:
        """Gives back what it holds."""
        if self.state:
            self.library("nvjpegJpegStateDestroy", self.state)
        if self.handle:
            self.library("nvjpegDestroy", self.handle)
        self.state, self.handle = c_void_p(), c_void_p()


class Settings:
    """What of an image is decoded: a region, or all of it smaller."""

    def __init__(self, decoder: Decoder, size: tuple[int, int], part: str):
        library, (height, width) = decoder.library, size
        created = c_void_p()
        library("nvjpegDecodeParamsCreate", decoder.handle, byref(created))
        self.handle = created.value
        library("nvjpegDecodeParamsSetOutputFormat", created, c_int(INTERLEAVED))
        if part == "the middle quarter":
            self.size = (height // 2, width // 2)
            corner = (c_int(width // 4), c_int(height // 4))
            sides = (c_int(width // 2), c_int(height // 2))
            library("nvjpegDecodeParamsSetROI", created, *corner, *sides)
        else:
            self.size = (-(-height // 2), -(-width // 2))
            library("nvjpegDecodeParamsSetScaleFactor", created, c_int(HALF))


def measure(device: str, seconds: float) -> dict:
    """Rates of each decoder, what it does to work beside it, and its pixels."""
    torch.cuda.set_device(device)
    missing: dict[str, str] = {}
    figures: list[dict] = []
    try:
        library = Library()
    except Refused as error:
        return {"not_measured": {"nvJPEG": f"no library here: {error}"}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = data.photographs(Path(scratch) / "photographs", FULL["count"])
        files = sorted(folder.glob("*/*"))
        jpegs = [file.read_bytes() for file in files]
        figures.append(host_rate(folder))
        for name, backend in BACKENDS.items():
            try:
                decoder = Decoder(library, backend, FULL["batch"])
            except Refused as error:
                missing[f"nvJPEG by {name}"] = str(error)
                continue
            try:
                figures += rates(name, decoder, jpegs, device)
                figures += pixels(name, decoder, folder, jpegs, device)
                if name == "the engine":
                    figures += engines(decoder)
                    for part in ("the middle quarter", "half the size"):
                        figures.append(parts(part, decoder, jpegs, device))
            except Refused as error:
                missing[f"nvJPEG by {name}"] = str(error)
            finally:
                decoder.close()
    return {"figures": figures, "not_measured": missing}


def host_rate(folder: Path) -> dict:
    """Images a second that all cores of the host decode."""
    pipeline = data.decoded(folder, FULL["batch"])
    with pipeline.open() as loader:
        for _ in loader:
            pass
        start, images = time.perf_counter(), 0
        for batch in loader:
            images += batch.rows
        rate = images / (time.perf_counter() - start)
    return data.figure("decode/by=the host's cores", rate, "images/s")


def engines(decoder: Decoder) -> list[dict]:
    """Engines of the card, and cores of each."""
    engines, cores = c_uint(), c_uint()
    decoder.library(
        "nvjpegGetHardwareDecoderInfo", decoder.handle, byref(engines), byref(cores)
    )
    return [
        data.figure("nvjpeg/engines", engines.value, ""),
        data.figure("nvjpeg/cores an engine", cores.value, ""),
    ]


def parts(part: str, decoder: Decoder, jpegs: list[bytes], device: str) -> dict:
    """Images a second of which a part is wanted."""
    ready = []
    for batch, _ in batches_of(decoder, jpegs, device):
        settings = [Settings(decoder, decoder.size(jpeg), part) for jpeg in batch]
        images = [
            torch.empty((*one.size, 3), dtype=torch.uint8, device=device)
            for one in settings
        ]
        ready.append((batch, images, settings))
    for turn in range(FULL["turns"] + 1):
        if turn == 1:
            torch.cuda.synchronize()
            start = time.perf_counter()
        for batch, images, settings in ready:
            decoder.decode(batch, images, settings)
    torch.cuda.synchronize()
    count = FULL["turns"] * len(ready) * decoder.batch
    rate = count / (time.perf_counter() - start)
    return data.figure(f"nvjpeg/by=the engine/of={part}", rate, "images/s")


def batches_of(decoder: Decoder, jpegs: list[bytes], device: str):
    """Batches of JPEGs with memory for what they hold."""
    for first in range(0, len(jpegs) - decoder.batch + 1, decoder.batch):
        batch = jpegs[first : first + decoder.batch]
        sizes = [decoder.size(jpeg) for jpeg in batch]
        yield (
            batch,
            [
                torch.empty((*size, 3), dtype=torch.uint8, device=device)
                for size in sizes
            ],
        )


def rates(name: str, decoder: Decoder, jpegs: list[bytes], device: str) -> list[dict]:
    """Images a second, the slowest batches, and what products of matrices lose."""
    ready = list(batches_of(decoder, jpegs, device))

    def once() -> list[float]:
        taken = []
        for batch, images in ready:
            start = time.perf_counter()
            decoder.decode(batch, images)
            torch.cuda.current_stream().synchronize()
            taken.append(time.perf_counter() - start)
        return taken

    once()
    taken = sorted(time for _ in range(FULL["turns"]) for time in once())
    alone = products(device)
    stop = threading.Event()
    stopped: list[BaseException] = []

    def beside() -> None:
        try:
            torch.cuda.set_device(device)
            with torch.cuda.stream(torch.cuda.Stream(device)):
                while not stop.is_set():
                    once()
        except Exception as error:
            stopped.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    disturbed = products(device)
    stop.set()
    thread.join()
    for error in stopped:
        raise error
    per_batch = sum(taken) / len(taken)
    by = f"nvjpeg/by={name}"
    return [
        data.figure(by, decoder.batch / per_batch, "images/s"),
        data.figure(f"{by}/batch/median", data.median(taken) * 1e3, "ms"),
        data.figure(f"{by}/batch/p99", taken[int(len(taken) * 0.99)] * 1e3, "ms"),
        data.figure(
            f"{by}/bf16 products beside it", alone / disturbed, "of their rate"
        ),
    ]


def products(device: str) -> float:
    """Seconds that products of matrices take on the card."""
    left = torch.randn(4096, 4096, dtype=torch.bfloat16, device=device)
    right = torch.randn(4096, 4096, dtype=torch.bfloat16, device=device)
    for _ in range(20):
        left @ right
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(400):
        left @ right
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def pixels(
    name: str, decoder: Decoder, folder: Path, jpegs: list[bytes], device: str
) -> list[dict]:
    """How far its pixels are from those that infeed decodes."""
    batch, images = next(batches_of(decoder, jpegs, device))
    decoder.decode(batch, images)
    torch.cuda.synchronize()
    worst, total, count = 0, 0.0, 0
    with data.decoded(folder, 1).open() as loader:
        for ours, theirs in zip(loader, images, strict=False):
            one = torch.from_numpy(ours["image"][0]).int()
            apart = (one - theirs.cpu().int()).abs()
            worst = max(worst, int(apart.max()))
            total += float(apart.sum())
            count += apart.numel()
    by = f"nvjpeg/by={name}/pixels apart from libjpeg-turbo's"
    return [
        data.figure(f"{by}/most", worst, "levels"),
        data.figure(f"{by}/mean", total / max(count, 1), "levels"),
    ]
