"""Loaders without a model: JPEGs by workers, the host's time of a step, automatic
placement, loaders that open and close next to a step, and leaks.
"""

import contextlib
import io
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import infeed

from . import data
from .findings import Findings, NotRun
from .steps import Settings
from .training import workers
from .with_torch import torch_for

SIZES = {
    "quick": {"batch": 8, "side": 32, "count": 64, "seconds": 0.3, "loaders": 8},
    "normal": {"batch": 256, "side": 224, "count": 4096, "seconds": 4.0, "loaders": 60},
    "full": {"batch": 256, "side": 224, "count": 8192, "seconds": 20.0, "loaders": 300},
}

# Loaders after which a process has all its memory.
SETTLED = 5

# Time in which the threads of a closed loader end.
THREADS_END_S = 5.0

# Largest growth of a process that is no leak. The allocator of the system rounds.
MOST_HOST_MIB = 64
MOST_GPU_MIB = 1


class Loop:
    """PyTorch, the sizes of a run, and the calls that every step makes."""

    def __init__(self, settings: Settings):
        self.torch = torch_for(settings)
        self.device = settings.device
        self.is_simulated = settings.is_simulated
        self.here = self.torch.device(
            "cpu" if settings.is_simulated else settings.device
        )
        self.size = SIZES["quick" if settings.is_simulated else settings.effort]

    def wait(self) -> None:
        """Waits for the device."""
        if not self.is_simulated:
            self.torch.cuda.synchronize()

    def pipeline(self, count: int, side: int, batch: int) -> infeed.Pipeline:
        """Returns a pipeline of images in memory."""
        return data.in_memory(*data.images(count, side), batch)

    def loader(self, closing: ExitStack, pipeline: infeed.Pipeline, **options):
        """Opens a loader of PyTorch, which the stack closes."""
        import infeed.torch

        options = {"device": self.device, "workers": workers(), **options}
        return closing.enter_context(infeed.torch.Loader(pipeline, "tuple", **options))

    def rate(self, batches: Iterator, skipped: int = 3) -> float:
        """Returns the images per second of an iterator."""
        for _ in range(skipped):
            next(batches)
        self.wait()
        taken, start = 0, time.perf_counter()
        while time.perf_counter() - start < self.size["seconds"]:
            batch = next(batches)
            del batch
            taken += 1
        self.wait()
        return taken * self.size["batch"] / (time.perf_counter() - start)

    def step_of(self, seconds: float) -> Callable[[], None]:
        """Returns a function that enqueues matrix products of this duration."""
        if self.is_simulated:
            return lambda: time.sleep(seconds)
        torch = self.torch
        left = torch.randn(4096, 4096, dtype=torch.bfloat16, device=self.here)
        one_s = 0.0
        # The first 300 products raise the clocks.
        for _ in range(2):
            self.wait()
            start = time.perf_counter()
            for _ in range(300):
                left @ left
            self.wait()
            one_s = (time.perf_counter() - start) / 300
        times = max(1, round(seconds / one_s))

        def step() -> None:
            for _ in range(times):
                left @ left

        return step

    def step_times(
        self, batches: Iterator, step: Callable[[], None], seconds: float
    ) -> list[float]:
        """Returns the duration of each step until the time is over."""
        taken, start = [], time.perf_counter()
        while time.perf_counter() - start < seconds:
            begun = time.perf_counter()
            batch = next(batches)
            step()
            del batch
            self.wait()
            taken.append(time.perf_counter() - begun)
        return taken


def loop_for(findings: Findings, settings: Settings, name: str) -> Loop | None:
    """Returns the loop, or reports a check that cannot run."""
    try:
        return Loop(settings)
    except NotRun as reason:
        findings.not_run(name, reason)
        return None


def jpegs(findings: Findings, settings: Settings) -> None:
    """Measures files to batches on the device, by workers: infeed and torchvision."""
    loop = loop_for(findings, settings, "JPEGs reach the device")
    if loop is None:
        return
    size = loop.size
    folder = data.photographs(settings.scratch / "fed-photographs", size["count"])
    pipeline = data.crop_pipeline(folder, size["side"], size["batch"])
    most = workers()
    numbers = sorted({n for n in (1, 2, 4, 8, 16, 32, 64) if n < most} | {most})
    variants = [(f"infeed/workers={n}", {"workers": n}) for n in numbers]
    variants += [(f"infeed/decode={d}", {"decode": d}) for d in ("gpu", 0.5)]
    for name, options in variants:
        with ExitStack() as closing:
            try:
                loader = loop.loader(closing, pipeline, **options)
            except infeed.errors.DeviceError as error:
                findings.note(f"feed/of=jpegs/by={name}", error)
                continue
            rate = loop.rate(data.forever(loader))
            findings.figure(f"feed/of=jpegs/by={name}", rate, "images/s")
    try:
        from . import dataset

        for n in sorted({1, 4, most} if not loop.is_simulated else {1}):
            batches = dataset.from_jpegs(
                folder, size["side"], size["batch"], loop.here, n
            )
            name = f"feed/of=jpegs/by=DataLoader/workers={n}"
            findings.figure(name, loop.rate(batches), "images/s")
            batches.close()
    except ImportError as error:
        findings.note("feed/of=jpegs/by=DataLoader", error)


def host_time(findings: Findings, settings: Settings) -> None:
    """Measures a loop that only takes small batches of two arrays."""
    loop = loop_for(findings, settings, "a loop takes batches")
    if loop is None:
        return
    pipeline = loop.pipeline(4096, 8, 16)
    for placement in ("device", "host"):
        with ExitStack() as closing:
            batches = data.forever(loop.loader(closing, pipeline, placement=placement))
            for _ in range(300):
                next(batches)
            taken, start = [], time.perf_counter()
            while time.perf_counter() - start < loop.size["seconds"] / 4:
                begun = time.perf_counter()
                batch = next(batches)
                del batch
                taken.append(time.perf_counter() - begun)
            name = f"host/python step/placement={placement}"
            findings.figure(f"{name}/median", statistics.median(taken) * 1e6, "us")
            rate = len(taken) / (time.perf_counter() - start)
            findings.figure(f"{name}/rate", rate, "steps/s")


def automatic(findings: Findings, settings: Settings) -> None:
    """Reports the choice of `placement="auto"` for short and for long steps."""
    loop = loop_for(findings, settings, "a placement is chosen")
    if loop is None:
        return
    size = loop.size
    pipeline = loop.pipeline(size["count"], size["side"], size["batch"])
    for step_ms in (3, 30):
        step = loop.step_of(step_ms / 1e3)
        with ExitStack() as closing:
            loader = loop.loader(closing, pipeline)
            batches = data.forever(loader)
            taken = loop.step_times(batches, step, 2.5 * size["seconds"])
            chosen = loader.loader.stats()["device"]["placement"]
        name = f"auto/step={step_ms} ms"
        later = taken[len(taken) // 2 :]
        findings.figure(f"{name}/median", statistics.median(later) * 1e3, "ms")
        findings.fact(name, chosen["text"])


def interference(findings: Findings, settings: Settings) -> None:
    """Measures steps while other loaders of the process open and close."""
    loop = loop_for(findings, settings, "loaders open and close next to a step")
    if loop is None:
        return
    size = loop.size
    pipeline = loop.pipeline(size["count"], size["side"], size["batch"])
    step, stop = loop.step_of(0.01), threading.Event()

    def others() -> None:
        while not stop.is_set():
            with pipeline.open(device=settings.device) as loader:
                for batch, _ in zip(loader, range(8), strict=False):
                    batch.array("image").synchronize()
                    del batch

    with ExitStack() as closing:
        batches = data.forever(loop.loader(closing, pipeline))
        loop.step_times(batches, step, size["seconds"] / 4)
        alone = loop.step_times(batches, step, size["seconds"])
        thread = threading.Thread(target=others)
        thread.start()
        disturbed = loop.step_times(batches, step, size["seconds"])
        stop.set()
        thread.join()
    for name, taken in (("none", alone), ("others", disturbed)):
        taken.sort()
        for point, share in (("median", 0.5), ("p99", 0.99)):
            ms = taken[int((len(taken) - 1) * share)] * 1e3
            findings.figure(f"step of 10 ms/next to={name}/{point}", ms, "ms")


def loader_threads() -> list[str]:
    """Returns the names of this process's threads that belong to a loader."""
    names = []
    for file in Path("/proc/self/task").glob("*/comm"):
        # The thread may have ended meanwhile.
        with contextlib.suppress(OSError):
            names.append(file.read_text().strip())
    # The threads of the simulated device belong to the process.
    return [n for n in names if n.startswith("infeed") and "-sim" not in n]


def leaks(findings: Findings, settings: Settings) -> None:
    """Checks the process after many loaders, of which some are outlived by a batch."""
    loop = loop_for(findings, settings, "loaders leave nothing behind")
    if loop is None:
        return
    pipeline = loop.pipeline(1024, 64, 64)

    def read_usage() -> dict[str, float]:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        free = 0 if loop.is_simulated else loop.torch.cuda.mem_get_info()[0]
        return {
            "host_mib": int(status["VmRSS"].split()[0]) / 1024,
            "gpu_mib": -free / 2**20,
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir("/proc/self/fd")),
        }

    def read_settled_usage() -> dict[str, float]:
        # Linux lists a thread for a moment after another thread has joined it.
        deadline = time.monotonic() + THREADS_END_S
        while loader_threads() and time.monotonic() < deadline:
            time.sleep(0.01)
        return read_usage()

    def check() -> str:
        held: object = None
        before: dict[str, float] = {}
        for number in range(loop.size["loaders"]):
            with ExitStack() as closing:
                loader = loop.loader(closing, pipeline, workers=2)
                for batch, _ in zip(loader, range(6), strict=False):
                    batch[0].float().mean()
                if number % 3 == 0:
                    held = batch
                del batch
            if number + 1 == SETTLED:
                before = read_settled_usage()
        del held
        loop.wait()
        grown = {
            name: value - before[name] for name, value in read_settled_usage().items()
        }
        text = json.dumps({name: round(value, 1) for name, value in grown.items()})
        if (
            grown["host_mib"] > MOST_HOST_MIB
            or grown["gpu_mib"] > MOST_GPU_MIB
            or grown["threads"] > 0
            or grown["descriptors"] > 0
        ):
            raise AssertionError(f"the process grew by {text}")
        return f"after {SETTLED} loaders, the process grew by {text}"

    title = f"{loop.size['loaders']} loaders leave nothing behind"
    findings.check(title, check)


def experiments(findings: Findings, settings: Settings) -> None:
    """Runs `infeed experiment` for the questions about devices."""
    from infeed.experiments import command

    seconds = 0.1 if settings.quick else 0.5
    quick = ["--quick"] if settings.quick else []
    for arguments in (
        ["transfer", "--sizes", "50,200,1000,4000", "--seconds", str(seconds)],
        ["placement", "--seconds", str(seconds)],
        ["placement", "--device", settings.device, "--seconds", str(2 * seconds)],
        ["overlap"],
    ):

        def run_experiment(arguments: list[str] = arguments) -> str:
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                status = command.main([*arguments, "--json", *quick])
            if status != 0:
                raise RuntimeError(f"status {status}")
            return " ".join(json.loads(text.getvalue())["meaning"])

        findings.check(f"infeed experiment {' '.join(arguments)}", run_experiment)
