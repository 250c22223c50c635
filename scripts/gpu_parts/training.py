"""A ResNet-50 fed by infeed and by PyTorch's DataLoader, compared with one resident
batch.

Every feed takes turns with the resident batch, so that drift of the machine's clocks
cancels. The resident batch compared with itself gives the noise of a ratio.
"""

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import infeed

from . import data
from .findings import Findings, NotRun
from .steps import Settings
from .with_torch import torch_for

# On the simulated device, the step only checks that all code runs.
SIZES = {
    "quick": {"batch": 4, "side": 32, "count": 32, "steps": 2, "skip": 1, "turns": 1},
    "normal": {
        "batch": 256,
        "side": 224,
        "count": 4096,
        "steps": 16,
        "skip": 6,
        "turns": 2,
    },
    "full": {
        "batch": 256,
        "side": 224,
        "count": 8192,
        "steps": 60,
        "skip": 10,
        "turns": 5,
    },
}


# Blocks and channels of a network that a CPU trains quickly.
STAGES_OF_A_CPU = ((1, 8), (1, 16))


def measure(findings: Findings, settings: Settings) -> None:
    """Measures the seconds of the same training step with each feed."""
    try:
        torch = torch_for(settings)
    except NotRun as reason:
        findings.not_run("a ResNet-50 trains on every feed", reason)
        return
    size = SIZES["quick" if settings.is_simulated else settings.effort]
    here = torch.device("cpu" if settings.is_simulated else settings.device)
    step = Step(torch, here)
    resident = forever(random_batch(torch, here, size))
    wait = torch.cuda.synchronize if here.type == "cuda" else lambda: None

    def seconds_of_a_step(batches: Iterator) -> float:
        for _ in range(size["skip"]):
            step(*next(batches))
        wait()
        start = time.perf_counter()
        for _ in range(size["steps"]):
            step(*next(batches))
        wait()
        return (time.perf_counter() - start) / size["steps"]

    # PyTorch selects algorithms, and the clocks rise.
    seconds_of_a_step(resident)
    for name, open_feed in feeds(torch, here, settings, size).items():

        def train_on(name=name, open_feed=open_feed) -> str:
            with ExitStack() as closing:
                batches = open_feed(closing)
                pairs = [
                    (seconds_of_a_step(resident), seconds_of_a_step(batches))
                    for _ in range(size["turns"])
                ]
            ms = statistics.median(feed_s for _, feed_s in pairs) * 1e3
            ratios = sorted(alone / feed_s for alone, feed_s in pairs)
            findings.figure(f"resnet50/step/{name}", ms, "ms")
            over = f"resnet50/over resident/{name}"
            findings.figure(over, statistics.median(ratios), "times the steps/s")
            spread = ratios[-1] - ratios[0]
            findings.figure(f"resnet50/spread of ratios/{name}", spread, "")
            if not step.finite:
                raise AssertionError("a loss is not a number")
            return f"{ms:.2f} ms a step; ratios {ratios[0]:.4f} to {ratios[-1]:.4f}"

        findings.check(f"a ResNet-50 trains on: {name}", train_on)


def forever(batch: tuple) -> Iterator:
    """Yields the same batch repeatedly."""
    while True:
        yield batch


def random_batch(torch, here, size: dict) -> tuple:
    """Returns normally distributed images, and labels."""
    shape = (size["batch"], 3, size["side"], size["side"])
    images = torch.randn(shape, device=here).to(torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.arange(size["batch"], device=here) % 1000


def feeds(torch, here, settings: Settings, size: dict) -> dict[str, Callable]:
    """Returns each feed by its name; a stack closes the opened ones."""
    pixels, classes = data.images(size["count"], size["side"])
    pipeline = data.in_memory(pixels, classes, size["batch"])
    made: list[Path] = []

    def photographs() -> Path:
        if not made:
            folder = settings.scratch / "photographs"
            made.append(data.photographs(folder, size["count"]))
        return made[0]

    def ours(pipeline, closing: ExitStack, **options) -> Iterator:
        import infeed.torch

        options = {"workers": workers(), **options}
        loader = infeed.torch.Loader(
            pipeline, "tuple", device=settings.device, **options
        )
        closing.callback(loader.close)
        for images, labels in data.forever(loader):
            # Channels last in memory, in PyTorch's shape.
            yield images.permute(0, 3, 1, 2), labels

    def in_memory(placement: str, **options) -> Callable:
        return lambda closing: ours(pipeline, closing, placement=placement, **options)

    def jpegs(**options) -> Callable:
        def open_feed(closing: ExitStack) -> Iterator:
            crops = data.crop_pipeline(photographs(), size["side"], size["batch"])
            if options.get("decode") == "gpu":
                # Opening raises an exception if the device has no decoder.
                try:
                    crops.open(device=settings.device, decode="gpu").close()
                except infeed.errors.DeviceError as error:
                    raise NotRun(str(error)) from error
            return ours(crops, closing, **options)

        return open_feed

    def theirs(floats: bool) -> Callable:
        def open_feed(closing: ExitStack) -> Iterator:
            from . import dataset

            return dataset.batches(
                pixels, classes, size["batch"], here, floats, workers()
            )

        return open_feed

    def their_jpegs(closing: ExitStack) -> Iterator:
        if importlib.util.find_spec("torchvision") is None:
            raise NotRun("torchvision is not installed here")
        from . import dataset

        return dataset.from_jpegs(
            photographs(), size["side"], size["batch"], here, workers()
        )

    # A device that slows down in the course of the step does not favour infeed.
    return {
        "resident again": lambda closing: forever(random_batch(torch, here, size)),
        "DataLoader, floats on the device": theirs(False),
        "infeed, floats on the device": in_memory("device"),
        "infeed, floats on the device, shared memory": in_memory("device", own=False),
        "infeed, floats on the host": in_memory("host"),
        "DataLoader, floats in its workers": theirs(True),
        "DataLoader from JPEGs": their_jpegs,
        "infeed from JPEGs": jpegs(placement="device"),
        "infeed from JPEGs, decoded on the device": jpegs(decode="gpu"),
    }


def workers() -> int:
    """Returns the workers of every loader: one per core except the training core."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


class Step:
    """One training step; records whether its loss was always finite."""

    def __init__(self, torch, here):
        from .resnet import STAGES, resnet

        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.torch = torch
        stages = STAGES if here.type == "cuda" else STAGES_OF_A_CPU
        self.model = resnet(stages).to(here, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, 0.9)
        self.worst = torch.zeros((), device=here)
        self.kind = here.type

    def __call__(self, images, labels) -> None:
        """Enqueues forward, backward and update."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.autocast(self.kind, self.torch.bfloat16):
            scores = self.model(images)
            loss = self.torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        self.optimizer.step()
        # A loss that is not finite stays in the sum.
        self.worst += loss.detach().float()

    @property
    def finite(self) -> bool:
        """Whether all losses so far are finite."""
        return bool(self.torch.isfinite(self.worst))
