"""A ResNet-50 fed by infeed, by PyTorch's DataLoader, and by one batch that stays."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import infeed.torch
from infeed import transforms as T

from . import data
from .resnet import resnet50

# Of a card; the simulated device only shows that all of it runs.
FULL = {"batch": 256, "side": 224, "count": 4096, "steps": 30, "skip": 10, "turns": 3}
SMALL = {"batch": 4, "side": 32, "count": 32, "steps": 2, "skip": 1, "turns": 1}

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


class Decoded(Dataset):
    """Images in memory, as a Dataset has them: one at a time."""

    def __init__(self, pixels, classes, floats: bool):
        self.pixels, self.classes, self.floats = pixels, classes, floats
        self.mean = torch.tensor(T.IMAGENET_MEAN).view(3, 1, 1) * 255
        self.std = torch.tensor(T.IMAGENET_STD).view(3, 1, 1) * 255

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, at: int):
        image = torch.from_numpy(self.pixels[at]).permute(2, 0, 1)
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        if self.floats:
            image = ((image.float() - self.mean) / self.std).to(torch.bfloat16)
        return image.contiguous(), self.classes[at]


def measure(device: str, seconds: float) -> dict:
    """Steps a second of the same training step, fed in different ways, in turn."""
    simulated = device.split(":")[0] == "sim"
    size = SMALL if simulated else FULL
    here = torch.device("cpu" if simulated else device)
    started = time.perf_counter()
    with ExitStack() as closing, tempfile.TemporaryDirectory() as scratch:
        feeds, missing = contenders(device, here, size, Path(scratch), closing)
        step = training_step(here)
        taken: dict[str, list[float]] = {name: [] for name in feeds}
        for _ in range(size["turns"]):
            for name, batches in feeds.items():
                taken[name] += turn(step, batches, here, size)
    ms = {name: data.median(times) * 1e3 for name, times in taken.items()}
    figures = [
        data.figure(f"resnet50/fed by={name}/step", value, "ms")
        for name, value in ms.items()
    ]
    resident = ms["one batch that stays"]
    for name, value in ms.items():
        if name != "one batch that stays":
            ratio = resident / value
            figures.append(
                data.figure(f"resnet50/steps a second over resident/{name}", ratio, "")
            )
    check = {
        "name": "a ResNet-50 trains on what every loader feeds",
        "passed": step.finite,
        "detail": f"batch {size['batch']}, {len(feeds)} ways to feed it",
        "seconds": time.perf_counter() - started,
    }
    return {"checks": [check], "figures": figures, "not_measured": missing}


def contenders(device, here, size, scratch: Path, closing: ExitStack):
    """Who feeds, by name; and who is not here, with the reason."""
    pixels, classes = data.images(size["count"], size["side"])
    pipeline = data.in_memory(pixels, classes, size["batch"])
    photographs = data.photographs(scratch / "photographs", size["count"])
    crops = data.cropped(photographs, size["side"], size["batch"])

    def ours(pipeline, **options) -> Batches:
        loader = infeed.torch.Loader(pipeline, "tuple", device=device, **options)
        closing.callback(loader.close)
        # Channels last in memory is what the network wants, under PyTorch's shape.
        for images, labels in data.forever(loader):
            yield images.permute(0, 3, 1, 2), labels

    def theirs(floats: bool) -> Batches:
        loader = DataLoader(
            Decoded(pixels, classes, floats),
            size["batch"],
            shuffle=True,
            drop_last=True,
            pin_memory=here.type == "cuda",
            num_workers=0 if here.type == "cpu" else workers(),
            persistent_workers=here.type == "cuda",
        )
        for images, labels in data.forever(loader):
            images = images.to(here, non_blocking=True)
            labels = labels.to(here, non_blocking=True)
            if not floats:
                images = on_card(images)
            yield images.contiguous(memory_format=torch.channels_last), labels

    def stays() -> Batches:
        batch = [tensor.clone() for tensor in next(ours(pipeline))]
        batch[0] = batch[0].contiguous(memory_format=torch.channels_last)
        while True:
            yield batch[0], batch[1]

    feeds: dict[str, Batches] = {
        "one batch that stays": stays(),
        "infeed, floats on the device": ours(pipeline, placement="device"),
        "infeed, floats on the host": ours(pipeline, placement="host"),
        "infeed from JPEGs": ours(crops, placement="device"),
        "DataLoader, floats on the device": theirs(False),
        "DataLoader, floats in its workers": theirs(True),
    }
    missing = {}
    try:
        # A device without a decoder says so when it is opened.
        crops.open(device=device, decode="gpu").close()
        feeds["infeed from JPEGs, decoded on the device"] = ours(crops, decode="gpu")
    except infeed.DeviceError as error:
        missing["a ResNet-50 fed from JPEGs decoded on the device"] = str(error)
    try:
        feeds["DALI"] = dali(photographs, here, size)
    except ImportError:
        missing["a ResNet-50 fed by DALI"] = "DALI is not installed here"
    return feeds, missing


def workers() -> int:
    """Processes of a DataLoader: one a core, but for the one that trains."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def on_card(images: torch.Tensor) -> torch.Tensor:
    """Bytes [N, 3, H, W] as normalized bfloat16, by PyTorch's own operations."""
    mean = torch.tensor(T.IMAGENET_MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(T.IMAGENET_STD, device=images.device).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).to(torch.bfloat16)


def dali(photographs: Path, here: torch.device, size: dict) -> Batches:
    """DALI's pipeline for photographs, decoded by its mixed backend."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIClassificationIterator

    @pipeline_def(
        batch_size=size["batch"], num_threads=workers(), device_id=here.index or 0
    )
    def described():
        jpegs, labels = fn.readers.file(
            file_root=str(photographs), random_shuffle=True, name="reader"
        )
        images = fn.decoders.image_random_crop(jpegs, device="mixed")
        images = fn.resize(images, size=[size["side"], size["side"]])
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT16,
            output_layout="HWC",
            mean=[255 * value for value in T.IMAGENET_MEAN],
            std=[255 * value for value in T.IMAGENET_STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu()

    iterator = DALIClassificationIterator(described(), reader_name="reader")

    def batches() -> Batches:
        while True:
            for (batch,) in iterator:
                images = batch["data"].to(torch.bfloat16).permute(0, 3, 1, 2)
                yield images, batch["label"].squeeze(1).long()
            iterator.reset()

    return batches()


class Step:
    """One step of training, and whether its loss was a number every time."""

    def __init__(self, here: torch.device):
        self.model = resnet50().to(here, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, 0.9)
        self.losses: list[torch.Tensor] = []
        self.kind = here.type

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Enqueues forward, backward and update."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.kind, torch.bfloat16):
            scores = self.model(images)
            loss = torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())

    @property
    def finite(self) -> bool:
        """Whether all losses so far are numbers."""
        return bool(torch.isfinite(torch.stack(self.losses)).all())


def training_step(here: torch.device) -> Step:
    """The step, with PyTorch's choice of algorithms made by trial."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    return Step(here)


def turn(
    step: Callable[[torch.Tensor, torch.Tensor], Any],
    batches: Batches,
    here: torch.device,
    size: dict,
) -> list[float]:
    """Seconds a step over some steps, after others that empty what was made ahead."""
    wait = torch.cuda.synchronize if here.type == "cuda" else lambda: None
    for _ in range(size["skip"]):
        step(*next(batches))
    wait()
    start = time.perf_counter()
    for _ in range(size["steps"]):
        step(*next(batches))
    wait()
    return [(time.perf_counter() - start) / size["steps"]]
