"""NVIDIA's JPEG decoders without infeed: engines, images per second, and the effect on
matrix products at the same time.

The step of JPEG decoding measures the rates through the engine; these are the rates of
the library alone.

Source of the calls: ``nvjpeg.h`` of CUDA 12 and 13, which agree on them.
"""

import ctypes
import os
import statistics
import threading
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_uint, c_void_p

from . import data
from .findings import Findings, NotRun
from .steps import Settings
from .with_torch import torch_for

# Files, files of a batch, and rounds over all files.
COUNT, BATCH, TURNS = 512, 64, 3

# Numbers of `nvjpegBackend_t`.
BACKENDS = {"the engine": 3, "the GPU's cores": 2, "both, Huffman on the host": 1}

# `NVJPEG_OUTPUT_RGBI`: interleaved red, green and blue.
INTERLEAVED = 5

# Names of `nvjpegChromaSubsampling_t`.
SUBSAMPLINGS = {0: "444", 1: "422", 2: "420", 3: "440", 4: "411", 5: "410", 6: "gray"}

# Codes of `nvjpegStatus_t` that depend on the machine.
STATUS = {
    1: "it is not initialised",
    2: "an argument is not valid",
    3: "the JPEG is broken",
    4: "it does not decode such a JPEG",
    6: "the GPU did not execute it",
    7: "the GPU is not one of its architectures",
    9: "this GPU or library has no such decoder",
}


class Image(ctypes.Structure):
    """`nvjpegImage_t`: addresses on the GPU, and bytes from row to row."""

    _fields_ = [("channel", c_void_p * 4), ("pitch", c_size_t * 4)]


class LibraryError(RuntimeError):
    """A call of the library that failed."""


class Library:
    """The library's functions; each raises an exception when it fails."""

    def __init__(self, settings: Settings) -> None:
        tried = []
        for name in candidates(settings):
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError as error:
                tried.append(f"{name}: {error}")
        raise LibraryError("; ".join(tried))

    def __call__(self, function: str, *arguments) -> None:
        """Calls a function.

        Raises:
            LibraryError: The function returns another status than success.
        """
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise LibraryError(f"{function}: {STATUS.get(status, f'status {status}')}")


def candidates(settings: Settings) -> list[str]:
    """Returns files of the library, the most specific first."""
    if "INFEED_NVJPEG" in os.environ:
        return [os.environ["INFEED_NVJPEG"]]
    names = ["libnvjpeg.so.13", "libnvjpeg.so.12"]
    found = [folder / name for name in names for folder in settings.libraries]
    return [str(file) for file in found if file.exists()] + names


class Decoder:
    """One of the library's decoders, for batches of one size."""

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
        except LibraryError:
            self.close()
            raise

    def header(self, jpeg: bytes) -> tuple[str, tuple[int, int]]:
        """Returns the subsampling of a JPEG, and its height and width."""
        components, subsampling = c_int(), c_int()
        widths, heights = (c_int * 4)(), (c_int * 4)()
        self.library(
            "nvjpegGetImageInfo",
            *(self.handle, jpeg, c_size_t(len(jpeg)), byref(components)),
            *(byref(subsampling), widths, heights),
        )
        name = SUBSAMPLINGS.get(subsampling.value, "unknown")
        return name, (heights[0], widths[0])

    def decode(self, jpegs: list[bytes], images: list, stream: int) -> None:
        """Decodes a batch into images uint8 [H, W, 3], in a stream."""
        count = len(jpegs)
        pointers = [
            ctypes.cast(ctypes.c_char_p(jpeg), POINTER(c_ubyte)) for jpeg in jpegs
        ]
        bytes_of = (POINTER(c_ubyte) * count)(*pointers)
        lengths = (c_size_t * count)(*map(len, jpegs))
        out = (Image * count)()
        for image, tensor in zip(out, images, strict=True):
            image.channel[0], image.pitch[0] = tensor.data_ptr(), 3 * tensor.shape[1]
        self.library(
            "nvjpegDecodeBatched",
            *(self.handle, self.state, bytes_of, lengths, out, c_void_p(stream)),
        )

    def close(self) -> None:
        """Frees its memory."""
        if self.state:
            self.library("nvjpegJpegStateDestroy", self.state)
        if self.handle:
            self.library("nvjpegDestroy", self.handle)
        self.state, self.handle = c_void_p(), c_void_p()


def measure(findings: Findings, settings: Settings) -> None:
    """Measures engines, rates of each decoder, and matrix products at the same time."""
    try:
        torch = torch_for(settings)
        library = Library(settings)
    except (NotRun, LibraryError) as error:
        findings.note("nvJPEG alone", error)
        return
    folder = data.photographs(settings.scratch / "for-nvjpeg", COUNT)
    jpegs = [file.read_bytes() for file in sorted(folder.glob("*/*"))]
    for name, backend in BACKENDS.items():
        try:
            decoder = Decoder(library, backend, BATCH)
        except LibraryError as error:
            findings.note(f"nvJPEG by {name}", error)
            continue
        try:
            if name == "the engine":
                engines(findings, decoder)
                parsing(findings, decoder, jpegs)
            for subsampling, group in groups(decoder, jpegs).items():
                by = f"{name}/subsampling={subsampling}"
                rates(findings, torch, by, decoder, group, settings.device)
        except LibraryError as error:
            findings.note(f"nvJPEG by {name}", error)
        finally:
            decoder.close()


def groups(decoder: Decoder, jpegs: list[bytes]) -> dict[str, list[bytes]]:
    """Returns the JPEGs by subsampling, without groups that fill no batch.

    The engine decodes a batch only if all its JPEGs have the same subsampling.
    """
    found: dict[str, list[bytes]] = {}
    for jpeg in jpegs:
        found.setdefault(decoder.header(jpeg)[0], []).append(jpeg)
    return {name: group for name, group in found.items() if len(group) >= BATCH}


def engines(findings: Findings, decoder: Decoder) -> None:
    """Reports the engines of the GPU, and the cores of each."""
    engines, cores = c_uint(), c_uint()
    decoder.library(
        "nvjpegGetHardwareDecoderInfo", decoder.handle, byref(engines), byref(cores)
    )
    findings.figure("nvjpeg/engines", engines.value, "")
    findings.figure("nvjpeg/cores of an engine", cores.value, "")


def parsing(findings: Findings, decoder: Decoder, jpegs: list[bytes]) -> None:
    """Reports the time in which the library parses the headers of a file. infeed's
    sender parses every file, because these headers set the bytes that the GPU writes.
    """
    stream = c_void_p()
    decoder.library("nvjpegJpegStreamCreate", decoder.handle, byref(stream))
    taken = []
    for jpeg in jpegs:
        start = time.perf_counter()
        decoder.library(
            "nvjpegJpegStreamParse",
            *(decoder.handle, jpeg, c_size_t(len(jpeg)), c_int(0), c_int(0), stream),
        )
        taken.append(time.perf_counter() - start)
    decoder.library("nvjpegJpegStreamDestroy", stream)
    median_s = statistics.median(taken)
    findings.figure("nvjpeg/parse the headers of a file", median_s * 1e6, "us")


def rates(
    findings: Findings, torch, name: str, decoder: Decoder, jpegs: list, device: str
) -> None:
    """Reports images per second, the slowest batches, and the slowdown of matrix
    products.
    """
    ready = []
    for first in range(0, len(jpegs) - BATCH + 1, BATCH):
        batch = jpegs[first : first + BATCH]
        sizes = [decoder.header(jpeg)[1] for jpeg in batch]
        images = [
            torch.empty((*size, 3), dtype=torch.uint8, device=device) for size in sizes
        ]
        ready.append((batch, images))

    def once() -> list[float]:
        taken = []
        stream = torch.cuda.current_stream()
        for batch, images in ready:
            start = time.perf_counter()
            decoder.decode(batch, images, stream.cuda_stream)
            stream.synchronize()
            taken.append(time.perf_counter() - start)
        return taken

    once()
    taken = sorted(seconds for _ in range(TURNS) for seconds in once())
    by = f"nvjpeg/by={name}"
    findings.figure(by, BATCH * len(taken) / sum(taken), "images/s")
    findings.figure(f"{by}/batch/median", statistics.median(taken) * 1e3, "ms")
    findings.figure(f"{by}/batch/p99", taken[int(len(taken) * 0.99)] * 1e3, "ms")
    alone = products(torch, device)
    stop = threading.Event()
    stopped: list[BaseException] = []

    def run_during_products() -> None:
        try:
            torch.cuda.set_device(device)
            with torch.cuda.stream(torch.cuda.Stream(device)):
                while not stop.is_set():
                    once()
        except Exception as error:
            stopped.append(error)

    thread = threading.Thread(target=run_during_products)
    thread.start()
    disturbed = products(torch, device)
    stop.set()
    thread.join()
    for error in stopped:
        raise error
    findings.figure(
        f"{by}/bf16 products at the same time", alone / disturbed, "of their rate"
    )


def products(torch, device: str) -> float:
    """Returns the seconds of a matrix product on the GPU."""
    left = torch.randn(4096, 4096, dtype=torch.bfloat16, device=device)
    right = torch.randn(4096, 4096, dtype=torch.bfloat16, device=device)
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    # The first 200 products raise the clocks.
    for times in (200, 400):
        start.record()
        for _ in range(times):
            left @ right
        end.record()
        end.synchronize()
    return start.elapsed_time(end) / 1e3
