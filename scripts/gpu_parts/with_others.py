"""Batches passed to JAX, TensorFlow and CuPy, and processes that end without closing
their loader.
"""

import importlib
import importlib.util
import sys

from . import process
from .findings import Findings, NotRun
from .steps import Settings
from .with_torch import torch_for

COUNT, ROWS = 512, 64


def pipeline_and_batches():
    """Returns batches of bytes, floats and labels, and an epoch of host arrays."""
    import numpy as np

    import infeed
    from infeed import sources
    from infeed import transforms as T

    random = np.random.default_rng(2)
    source = sources.Memory(
        image=random.integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8),
        raw=random.integers(0, 256, (COUNT, 40), dtype=np.uint8),
        label=np.arange(COUNT, dtype=np.int64),
    )
    pipeline = infeed.Pipeline(source).shuffle(seed=0)
    pipeline = pipeline.transform(T.ToFloat("image")).batch(ROWS)
    with pipeline.open() as loader:
        fields = pipeline.fields
        expected = [{name: np.array(b[name]) for name in fields} for b in loader]
    return pipeline, expected


def import_framework(name: str):
    """Imports a framework.

    Raises:
        NotRun: The framework is not installed.
    """
    if importlib.util.find_spec(name) is None:
        raise NotRun(f"{name} is not installed here")
    return importlib.import_module(name)


def jax(findings: Findings, settings: Settings) -> None:
    """Checks arrays of JAX, committed to the device."""

    def on_gpu(array) -> bool:
        return all(device.platform == "gpu" for device in array.devices())

    findings.check(
        "JAX gets every batch as the host has it",
        lambda: adapter_batches("jax", settings, on_gpu),
    )


def tensorflow(findings: Findings, settings: Settings) -> None:
    """Checks tensors of TensorFlow on the device, including bytes."""
    findings.check(
        "TensorFlow gets every batch as the host has it",
        lambda: adapter_batches("tensorflow", settings, lambda t: "GPU" in t.device),
    )


def adapter_batches(name: str, settings: Settings, on_gpu) -> str:
    """Compares an adapter's batches, kept until the epoch ends, with the host's."""
    import numpy as np

    framework = import_framework(name)
    if not settings.is_simulated and not gpu_of(framework):
        raise NotRun(f"{name} sees no GPU")
    adapter = importlib.import_module(f"infeed.{name}")
    pipeline, expected = pipeline_and_batches()
    with adapter.Loader(pipeline, device=settings.device) as loader:
        kept = list(loader)
    if len(kept) != len(expected):
        raise AssertionError(f"{len(kept)} batches, {len(expected)} expected")
    for step, (found, wanted) in enumerate(zip(kept, expected, strict=True)):
        for field, values in wanted.items():
            if not np.array_equal(np.asarray(found[field]), values):
                raise AssertionError(f"step {step}: {field} differs")
            if not settings.is_simulated and not on_gpu(found[field]):
                raise AssertionError(f"step {step}: {field} is not on the GPU")
    return f"{len(kept)} batches"


def gpu_of(framework) -> bool:
    """Whether JAX or TensorFlow sees a GPU."""
    if hasattr(framework, "config") and hasattr(
        framework.config, "get_visible_devices"
    ):
        for gpu in framework.config.get_visible_devices("GPU"):
            framework.config.experimental.set_memory_growth(gpu, True)
        return bool(framework.config.get_visible_devices("GPU"))
    return framework.default_backend() == "gpu"


def cupy(findings: Findings, settings: Settings) -> None:
    """Checks CuPy arrays over a batch's memory, and CuPy memory filled by infeed."""

    def ready():
        if settings.is_simulated:
            raise NotRun("the simulated device's memory is the host's")
        module = import_framework("cupy")
        if module.cuda.runtime.getDeviceCount() == 0:
            raise NotRun("CuPy sees no GPU")
        return module

    findings.check(
        "CuPy gets every batch as the host has it",
        lambda: cupy_takes(ready(), settings),
    )
    findings.check(
        "arrays of CuPy at fixed addresses get every batch",
        lambda: cupy_is_filled(ready(), settings),
    )


def cupy_takes(module, settings: Settings) -> str:
    """Takes batches through DLPack in a stream of CuPy."""
    pipeline, expected = pipeline_and_batches()
    kept, stream = [], module.cuda.Stream(non_blocking=True)
    with pipeline.open(device=settings.device, slots=2) as loader, stream:
        for batch in loader:
            one = {}
            for name in ("image", "raw", "label"):
                array = module.from_dlpack(batch.array(name))
                one[name] = array.copy()
                del array
            kept.append(one)
            del batch
        stream.synchronize()
        return equal(module, kept, expected)


def cupy_is_filled(module, settings: Settings) -> str:
    """Copies batches into the same arrays each step."""
    pipeline, expected = pipeline_and_batches()
    kept, stream = [], module.cuda.Stream(non_blocking=True)
    with pipeline.open(device=settings.device) as loader, stream:
        static = {
            name: module.empty(array.shape, array.dtype)
            for name, array in expected[0].items()
        }
        for _ in expected:
            loader.next_into(static, stream=stream.ptr)
            kept.append({name: array.copy() for name, array in static.items()})
        stream.synchronize()
        return equal(module, kept, expected)


def equal(module, kept: list[dict], expected: list[dict]) -> str:
    """Returns the number of batches.

    Raises:
        AssertionError: A batch differs from the host's.
    """
    wrong = sum(
        any((module.asnumpy(found[n]) != wanted[n]).any() for n in wanted)
        for found, wanted in zip(kept, expected, strict=True)
    )
    if wrong:
        raise AssertionError(f"{wrong} of {len(kept)} batches differ")
    return f"{len(kept)} batches"


# Batches are in flight, one is held, and nothing is closed.
EXIT = """
import sys, importlib
import numpy as np
import infeed
from infeed import sources
from infeed import transforms as T
name, device = sys.argv[1:]
source = sources.Memory(image=np.zeros((4096, 32, 32, 3), np.uint8))
pipeline = infeed.Pipeline(source).transform(T.ToFloat()).batch(16)
if name == "infeed":
    loader = pipeline.open(device=device)
else:
    loader = importlib.import_module("infeed." + name).Loader(pipeline, device=device)
steps = iter(loader)
held = [next(steps) for _ in range(3)]
print("ends now")
"""

EXIT_SECONDS = 30


def exits(findings: Findings, settings: Settings) -> None:
    """Checks interpreters that end while a loader is open and batches are in flight."""

    def ends(name: str) -> str:
        if name == "torch":
            torch_for(settings)
        elif (
            name == "jax"
            and not gpu_of(import_framework("jax"))
            and not settings.is_simulated
        ):
            raise NotRun("jax sees no GPU")
        output = settings.scratch / f"exit-{name}.txt"
        command = [sys.executable, "-c", EXIT, name, settings.device]
        ended = process.run(command, EXIT_SECONDS, output, own_group=False)
        text = process.tail(output)
        if ended.problem or "ends now" not in text:
            raise AssertionError(f"{ended.problem}: {text}")
        return "status 0"

    for name in ("infeed", "torch", "jax"):
        title = "a loader" if name == "infeed" else f"a loader for {name}"
        findings.check(
            f"a process ends without closing {title}", lambda name=name: ends(name)
        )
