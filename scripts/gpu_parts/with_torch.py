"""Batches passed to PyTorch, and PyTorch's own copies for comparison."""

import time

from .data import FLOATS
from .findings import Findings, NotRun
from .steps import Settings


def torch_for(settings: Settings):
    """Returns PyTorch, if it is installed and finds the GPU.

    Raises:
        NotRun: PyTorch is not installed or finds no GPU.
    """
    try:
        import torch
    except ImportError as error:
        raise NotRun("PyTorch is not installed here") from error
    if not settings.is_simulated:
        if not torch.cuda.is_available():
            raise NotRun("PyTorch sees no GPU")
        torch.cuda.set_device(settings.device)
    return torch


def copies(findings: Findings, settings: Settings) -> None:
    """Measures PyTorch's copies to the device, over at least 20 ms after 200 ms of
    warm-up.
    """
    try:
        torch = torch_for(settings)
    except NotRun as reason:
        findings.note("copies of PyTorch", reason)
        return
    for megabytes in (1,) if settings.quick else (4, 16, 64, 256):
        size = megabytes << 20
        there = torch.empty(size, dtype=torch.uint8, device=settings.device)
        for kind in ("pinned", "pageable"):
            here = torch.ones(size, dtype=torch.uint8)
            if kind == "pinned":
                here = here.pin_memory()
            times = max(2, (2 << 30) // size)
            one_s = 0.0
            start = time.perf_counter()
            # The last round begins warm.
            for last in (False, True):
                while True:
                    one_s = time_copies(torch, there, here, times) / times
                    if last or time.perf_counter() - start > 0.2:
                        break
            rate = size / one_s / 1e9
            findings.figure(f"torch/copy/memory={kind}/bytes={size}", rate, "GB/s")


def time_copies(torch, there, here, times: int) -> float:
    """Returns the seconds of copies on the device's clock."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        there.copy_(here, non_blocking=True)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def handover(findings: Findings, settings: Settings) -> None:
    """Checks batches in PyTorch's tensors, at fixed addresses, in graphs, on two
    devices.
    """
    try:
        torch = torch_for(settings)
    except NotRun as reason:
        findings.not_run("PyTorch gets every batch as the host has it", reason)
        return
    if not settings.is_simulated:
        findings.check(
            "PyTorch gets every batch as the host has it",
            lambda: taken_over(torch, findings, settings),
        )
    from . import places

    places.measure(findings, settings)


def taken_over(torch, findings: Findings, settings: Settings) -> str:
    """Checks batches taken through DLPack on a stream with random delays."""
    import numpy as np

    import infeed
    from infeed import sources

    random = np.random.default_rng(0)
    count = 256 if settings.quick else 4096
    images = random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    source = sources.Memory(image=images, label=np.arange(count))
    pipeline = infeed.Pipeline(source).shuffle(seed=0)
    pipeline = pipeline.transform(FLOATS, layout="CHW").batch(64)
    with pipeline.open() as loader:
        expected = [(b["image"].copy(), b["label"].copy()) for b in loader]
    taking, wrong, kept = [], 0, []

    def differs(entry) -> bool:
        step, *found = entry
        pairs = zip(found, expected[step], strict=True)
        return any((ours.cpu().numpy() != theirs).any() for ours, theirs in pairs)

    with pipeline.open(device=settings.device) as loader:
        # As `infeed.torch` does, so that the device's clock measures the wait.
        loader._stream = torch.cuda.current_stream
        for step, batch in enumerate(loader):
            start = time.perf_counter()
            image = torch.from_dlpack(batch["image"])
            label = torch.from_dlpack(batch["label"])
            taking.append(time.perf_counter() - start)
            # Delays the stream by up to a few milliseconds, at random.
            torch.cuda._sleep(int(random.integers(0, 4_000_000)))
            kept.append((step, image.clone(), label.clone()))
            del image, label, batch
            if len(kept) > 8:
                wrong += differs(kept.pop(0))
        sent = loader.stats()["device"]
    wrong += sum(map(differs, kept))
    taking.sort()
    median = taking[len(taking) // 2] * 1e6 if taking else 0.0
    findings.figure("torch/from_dlpack of two arrays/median", median, "us")
    per_batch = sent["bytes"] / max(sent["batches"], 1)
    findings.figure("bytes over the bus per batch", per_batch, "B")
    findings.figure("gap on the device's clock", sent["gap_s"] * 1e3, "ms")
    if wrong or len(taking) != len(expected):
        raise AssertionError(
            f"{wrong} of {len(taking)} batches differ, {len(expected)} expected"
        )
    return f"{len(taking)} batches"
