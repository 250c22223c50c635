"""Batches at fixed addresses, in captured graphs, and on several devices."""

from collections.abc import Callable

import numpy as np
import torch

import infeed.torch
from infeed import sources
from infeed import transforms as T

from .findings import Findings, NotRun
from .steps import Settings

ROWS, SIDE, COUNT = 64, 32, 2048


def measure(findings: Findings, settings: Settings) -> None:
    """Compares the contents of a user's own tensors, graphs and devices with the
    host's.
    """
    pipeline, device = make_pipeline(), settings.device
    with pipeline.open() as loader:
        expected = [(b["image"].copy(), b["label"].copy()) for b in loader]
    checks: list[tuple[str, Callable]] = [
        ("tensors at fixed addresses get every batch", fill_fixed_tensors),
        ("a captured graph reads every batch where it was", replay_graph),
        ("a batch dropped during a capture gives its slot back", drop_batches),
        ("an array taken with stream=-1 is there", read_unsynchronized),
        ("a second stream reads tensors after they are dropped", prefetch_tensors),
        ("two devices have every batch between them", share_batches),
    ]
    for name, check in checks:

        def run_check(check: Callable = check) -> str:
            if settings.is_simulated and check not in (
                fill_fixed_tensors,
                share_batches,
            ):
                raise NotRun("the simulated device has no streams of PyTorch")
            alone = not settings.is_simulated and torch.cuda.device_count() < 2
            if check is share_batches and alone:
                raise NotRun("there is one GPU here")
            wrong, steps = check(pipeline, device, expected)
            text = f"{wrong} of {steps} steps are wrong"
            if wrong or not steps:
                raise AssertionError(text)
            return text

        findings.check(name, run_check)


def make_pipeline() -> infeed.Pipeline:
    """Returns normalized images in batches of one size."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    source = sources.Memory(image=images, label=np.arange(COUNT))
    floats = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)
    made = infeed.Pipeline(source).shuffle(seed=0).transform(floats, layout="CHW")
    return made.batch(ROWS, tail="drop")


def tensors(device: str) -> dict[str, torch.Tensor]:
    """Returns tensors for a batch."""
    here = "cpu" if device.split(":")[0] == "sim" else device
    image = torch.zeros(ROWS, 3, SIDE, SIDE, device=here)
    return {"image": image, "label": torch.zeros(ROWS, dtype=torch.int64, device=here)}


def late(device: str, step: int) -> None:
    """Delays the stream by a few milliseconds, which differ from step to step."""
    if device.split(":")[0] != "sim":
        torch.cuda._sleep((step * 7919 % 5) * 1_000_000)


def differ(found: tuple, expected: tuple) -> bool:
    """Whether tensors differ from the host's arrays."""
    pairs = zip(found, expected, strict=True)
    return any((ours.cpu().numpy() != theirs).any() for ours, theirs in pairs)


def fill_fixed_tensors(pipeline, device: str, expected: list) -> tuple[int, int]:
    """Copies every step to the same tensors, while the stream is late."""
    static, kept = tensors(device), []
    with infeed.torch.Loader(pipeline, device=device) as loader:
        for step in range(len(expected)):
            late(device, step)
            loader.next_into(static)
            kept.append(tuple(static[name].clone() for name in ("image", "label")))
    wrong = sum(map(differ, kept, expected))
    return wrong, len(kept)


def replay_graph(pipeline, device: str, expected: list) -> tuple[int, int]:
    """Replays a graph, captured once, on the tensors that each step is copied to."""
    static, kept = tensors(device), []
    image, label = static["image"], static["label"]
    # The first kernels are loaded outside of the capture.
    torch.cat([image.mul(2).flatten(), label.float()])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (image.mul(2), label.add(1))
    with infeed.torch.Loader(pipeline, device=device) as loader:
        for step in range(len(expected)):
            late(device, step)
            loader.next_into(static)
            graph.replay()
            kept.append(tuple(part.clone() for part in out))
    wanted = [(image * np.float32(2), label + 1) for image, label in expected]
    wrong = sum(map(differ, kept, wanted))
    return wrong, len(kept)


def drop_batches(pipeline, device: str, expected: list) -> tuple[int, int]:
    """Drops batches while their stream is captured; their slots must be reused."""
    side = torch.cuda.Stream(device)
    with pipeline.open(device=device) as loader:
        steps = iter(loader)
        with torch.cuda.stream(side):
            for _ in range(4):
                batch = next(steps)
                array = batch.array("label")
                label = torch.from_dlpack(array)
                label.add(1)
                graph = torch.cuda.CUDAGraph()
                spare = torch.zeros(8, device=device)
                with torch.cuda.graph(graph, stream=side):
                    spare.add(1)
                    del label, array, batch
        torch.cuda.synchronize()
        for _ in range(4):
            next(steps)
        sent = loader.stats()["device"]
    return int(sent["slots"] > 5), 8


def read_unsynchronized(pipeline, device: str, expected: list) -> tuple[int, int]:
    """A consumer that does not wait receives the right bytes."""
    wrong = steps = 0
    with pipeline.open(device=device) as loader:
        for batch, wanted in zip(loader, expected, strict=True):
            arrays = [batch.array(name) for name in ("image", "label")]
            capsules = [array.__dlpack__(stream=-1) for array in arrays]
            found = tuple(torch.utils.dlpack.from_dlpack(c) for c in capsules)
            wrong += differ(found, wanted)
            steps += 1
            del found, capsules, arrays
    return wrong, steps


def prefetch_tensors(pipeline, device: str, expected: list) -> tuple[int, int]:
    """A late second stream reads tensors that the loop drops after `record_stream`."""
    side, kept = torch.cuda.Stream(device), []
    with infeed.torch.Loader(pipeline, "tuple", device=device) as loader:
        for step, batch in enumerate(loader):
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                late(device, step)
                kept.append(tuple(part.clone() for part in batch))
            for part in batch:
                part.record_stream(side)
    torch.cuda.synchronize()
    return sum(map(differ, kept, expected)), len(kept)


def share_batches(pipeline, device: str, expected: list) -> tuple[int, int]:
    """Compares the rows of a batch on two devices, in order."""
    names = ["sim", "sim"] if device.split(":")[0] == "sim" else ["cuda:0", "cuda:1"]
    wrong = steps = 0
    with infeed.torch.Loader(pipeline, devices=names) as loader:
        for parts, wanted in zip(loader, expected, strict=True):
            columns = ("image", "label")
            found = tuple(torch.cat([p[n].cpu() for p in parts]) for n in columns)
            wrong += differ(found, wanted)
            steps += 1
    return wrong, steps
