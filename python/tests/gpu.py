"""A GPU for tests, as a framework uses it: streams, memory, tensors through DLPack.

It calls the CUDA driver that this process loads: in tests the fake driver
(crates/fake-cuda), which this module builds; under `scripts/gpu-check` NVIDIA's.
"""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import numpy as np

import infeed

CHECKOUT = Path(__file__).parents[2]

# Device type in DLPack.
CUDA = 2

KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}


def fake_driver() -> Path:
    """Builds the fake driver from this checkout and returns its path."""
    # As `make test` does: `--package` would compile dependencies with other features.
    command = ["cargo", "test", "--no-run", "--test", "ptx_kernels"]
    command += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, check=True, text=True
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "fake_cuda":
            for file in message.get("filenames", []):
                if file.endswith(".so"):
                    return Path(file)
    raise AssertionError("cargo names no library")


def environment(
    library: Path, folder: Path, packages: Path | None = None, **settings: object
) -> dict[str, str]:
    """Returns the environment of a process with the fake CUDA driver and nvJPEG.

    nvJPEG is given by its file, or found in a folder of packages.
    """
    found = folder / "driver"
    found.mkdir(exist_ok=True)
    if not (found / "libcuda.so.1").exists():
        (found / "libcuda.so.1").symlink_to(library)
    before = os.environ.get("LD_LIBRARY_PATH")
    paths = [str(found), before] if before else [str(found)]
    variables = dict(os.environ)
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    imported = [str(Path(__file__).parent), str(Path(infeed.__file__).parents[1])]
    if packages is None:
        variables["INFEED_NVJPEG"] = str(library)
    else:
        imported.append(str(packages))
    variables["PYTHONPATH"] = os.pathsep.join(imported)
    variables.update({f"FAKE_CUDA_{name}": str(v) for name, v in settings.items()})
    return variables


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    """`DLManagedTensor`."""


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ManagedTensor))
_ManagedTensor._fields_ = [
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _DELETER),
]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = (
    ctypes.c_void_p,
    [ctypes.py_object, ctypes.c_char_p],
)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
# Capsules store a pointer to the name and not a copy.
_TAKEN_NAME = b"used_dltensor"


class TakenBatch:
    """A tensor imported through DLPack. Dropping it releases it."""

    _managed = None

    def __init__(self, array, stream):
        capsule = array.__dlpack__(stream=stream)
        address = _pointer(capsule, b"dltensor")
        assert _rename(capsule, _TAKEN_NAME) == 0
        self._managed = ctypes.cast(address, ctypes.POINTER(_ManagedTensor))
        tensor = self._managed.contents.tensor
        self.shape = tuple(tensor.shape[: tensor.ndim])
        if tensor.strides:
            steps = np.cumprod([1, *self.shape[:0:-1]])[::-1]
            assert tensor.strides[: tensor.ndim] == list(steps), "row-major"
        self.gpu = tensor.device_id
        self.address = tensor.data + tensor.byte_offset
        assert tensor.device_type == CUDA
        kind = KINDS.get(tensor.code, "V") if tensor.code != 4 else "u"
        self.dtype = np.dtype(f"{kind}{tensor.bits // 8}")
        self.bytes = int(np.prod(self.shape)) * self.dtype.itemsize

    def release(self):
        """Releases the tensor: no more work on it will be queued."""
        managed, self._managed = self._managed, None
        if managed:
            managed.contents.deleter(managed)

    def __del__(self):
        self.release()


class Gpu:
    """A GPU, opened by its primary context, which is current on this thread."""

    def __init__(self, ordinal: int = 0):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.ordinal = ordinal
        self.call("cuInit", 0)
        context = ctypes.c_size_t()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.context = context
        self.use()
        self._pinned: list[np.ndarray] = []

    def use(self):
        """Makes the GPU current on this thread."""
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        """Calls the driver; an error fails the test."""
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name} returned {code}"

    def stream(self, ordered: bool = False) -> int:
        """Makes a stream; an `ordered` one waits for the default stream."""
        stream = ctypes.c_size_t()
        self.call("cuStreamCreate", ctypes.byref(stream), 0 if ordered else 1)
        return stream.value

    def end(self, stream: int):
        """Destroys a stream."""
        self.call("cuStreamDestroy_v2", ctypes.c_size_t(stream))

    def wait(self, stream: int):
        """Waits until all work in a stream is done."""
        self.call("cuStreamSynchronize", ctypes.c_size_t(stream))

    def hang(self, stream: int):
        """Enqueues work that never ends."""
        self.call("fake_hang", ctypes.c_size_t(stream))

    def pinned_array(self, shape, dtype) -> np.ndarray:
        """Returns a pinned array, which the GPU writes in the order of a stream."""
        array = np.zeros(shape, dtype)
        address, size = (
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
        )
        self.call("cuMemHostRegister_v2", address, size, 1)
        self._pinned.append(array)
        return array

    def fetch(self, taken: TakenBatch, stream: int, into: np.ndarray | None = None):
        """Copies a tensor in the order of a stream; pinned memory is filled later."""
        if into is None:
            into = np.zeros(taken.shape, taken.dtype)
        assert into.nbytes == taken.bytes
        self.call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(into.ctypes.data),
            ctypes.c_uint64(taken.address),
            ctypes.c_size_t(taken.bytes),
            ctypes.c_size_t(stream),
        )
        return into

    def tensor(self, shape, dtype) -> "Tensor":
        """Allocates memory of the GPU, as a framework's tensor."""
        return Tensor(self, shape, np.dtype(dtype))

    def begin_capture(self, stream: int):
        """Starts to capture the stream's work in a graph."""
        self.call("cuStreamBeginCapture_v2", ctypes.c_size_t(stream), 0)

    def end_capture(self, stream: int):
        """Ends the capture; fails if other work has invalidated it."""
        graph = ctypes.c_size_t()
        self.call("cuStreamEndCapture", ctypes.c_size_t(stream), ctypes.byref(graph))
        # The fake driver returns no graph.
        if graph.value and not is_fake():
            self.call("cuGraphDestroy", graph)

    def close(self):
        """Releases everything that this object opened and pinned."""
        self.use()
        for array in self._pinned:
            self.call("cuMemHostUnregister", ctypes.c_void_p(array.ctypes.data))
        self._pinned.clear()
        self.call("cuDevicePrimaryCtxRelease_v2", self.ordinal)


class Tensor:
    """Memory of a GPU, with the interface that CuPy and Numba offer."""

    def __init__(self, gpu: Gpu, shape, dtype: np.dtype):
        self._gpu, self.shape, self.dtype = gpu, tuple(shape), dtype
        self.bytes = int(np.prod(shape)) * dtype.itemsize
        address = ctypes.c_uint64()
        gpu.use()
        gpu.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self.bytes))
        self.address = address.value

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }

    def free(self):
        """Frees the memory after its last use."""
        self._gpu.use()
        self._gpu.call("cuMemFree_v2", ctypes.c_uint64(self.address))


def is_fake() -> bool:
    """Whether this process uses the fake driver, which reports calls and misuse."""
    return hasattr(ctypes.CDLL("libcuda.so.1"), "fake_report")


def count() -> int:
    """Returns the number of GPUs."""
    cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGetCount(ctypes.byref(found)) == 0
    return found.value


def report() -> dict:
    """Returns the fake driver's report of calls, live objects and misuse."""
    text = ctypes.create_string_buffer(1 << 16)
    code = ctypes.CDLL("libcuda.so.1").fake_report(text, ctypes.c_size_t(len(text)))
    assert code == 0, code
    return json.loads(text.value)
