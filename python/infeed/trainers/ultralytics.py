"""infeed in Ultralytics: the batches of a training for detection."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
import ultralytics
from ultralytics.models.yolo import detect
from ultralytics.utils import LOGGER

from infeed._options import Cache
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.adoption import Gain
from infeed.adopting.yolo_datasets import read_yolo
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import TrainerLoader, report

NAME = "ultralytics"
_TITLE = "Ultralytics"
# Versions whose training was tried.
_TRIED = "8.4"
# The class that `YOLO.train` uses.
_ORIGINAL = detect.DetectionTrainer


class DetectionTrainer(_ORIGINAL):  # type: ignore[misc, valid-type]
    """The trainer of Ultralytics with the batches of infeed.

    `install` makes it the class that ``YOLO.train`` uses. A trainer of your own can
    inherit from it.
    """

    def get_dataloader(
        self,
        dataset_path: str,
        batch_size: int = 16,
        rank: int = 0,
        mode: str = "train",
    ) -> Any:
        """Returns the loader of a training or a validation."""
        original = super().get_dataloader
        settings = settings_of(NAME)
        if mode != "train" or settings is None:
            return original(dataset_path, batch_size, rank, mode)
        cache = self.args.cache
        # infeed keeps decoded images itself.
        self.args.cache = False
        try:
            loader = original(dataset_path, batch_size, rank, mode)
        finally:
            self.args.cache = cache
        found = read_yolo(loader.dataset)
        if not isinstance(found, AdoptedDataset):
            LOGGER.warning(f"infeed: batches stay with Ultralytics: {found}")
            return original(dataset_path, batch_size, rank, mode) if cache else loader
        gain = None
        if rank in (-1, 0):
            pipeline = found.records.shuffle(seed=0).batch(loader.batch_size)
            log = LOGGER.info
            gain = report(found, loader, pipeline, settings, _TITLE, log).gain
            loader.reset()
        # A prediction for several processes would need the rates of all.
        return YoloLoader(self, loader, settings, gain if rank == -1 else None)

    def run_callbacks(self, event: str) -> None:
        """Runs the callbacks, and prints how the first epoch waited."""
        super().run_callbacks(event)
        loader = getattr(self, "train_loader", None)
        # The progress bar of the epoch has ended here.
        if event == "on_fit_epoch_end" and isinstance(loader, YoloLoader):
            loader.report_epoch()


class YoloLoader(TrainerLoader):
    """The batches of a pipeline in the layout of Ultralytics.

    A batch has ``img``, uint8 ``[n, 3, size, size]``; for all boxes ``batch_idx``
    ``[boxes]``, ``cls`` ``[boxes, 1]`` and ``bboxes`` ``[boxes, 4]``, centre, width and
    height as shares of the image, all float32; and for each image ``im_file``,
    ``ori_shape``, ``resized_shape`` and ``ratio_pad``.

    Args:
        trainer: The trainer, whose epoch selects the samples.
        original: The loader that it replaces, whose other attributes it has.
        settings: Settings of `infeed.install`.
        gain: Measured rates of both loaders; None: nothing is predicted.
    """

    def __init__(
        self,
        trainer: Any,
        original: Any,
        settings: Settings,
        gain: Gain | None = None,
    ) -> None:
        super().__init__(original, _TITLE, gain, LOGGER.info)
        self._trainer, self._settings = trainer, settings

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the batches of the trainer's epoch."""
        return self.iterate(getattr(self._trainer, "epoch", None))

    def reset(self) -> None:
        """Begins again with the dataset's present augmentation."""
        self.close()

    def describe(self) -> tuple[Pipeline, dict[str, Any]]:
        """Returns the pipeline of a training, and the options of its loader."""
        found = read_yolo(self.dataset)
        if not isinstance(found, AdoptedDataset):
            raise ConfigError(f"infeed in Ultralytics: {found}")
        arguments = self._trainer.args
        world = max(int(getattr(self._trainer, "world_size", 1) or 1), 1)
        pipeline = found.records.shuffle(seed=int(arguments.seed))
        pipeline = pipeline.batch(self.batch_size * world, tail=_tail(self, world))
        cache = self._settings.cache or _cache(arguments.cache, self.dataset)
        options = self._settings.options(cache)
        device = getattr(self._trainer, "device", None)
        if getattr(device, "type", "cpu") == "cuda":
            options["device"] = str(device)
        return pipeline, options

    def converter(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Returns the function that turns batches into those of Ultralytics."""
        dataset = self.dataset
        files, shapes = dataset.im_files, [label["shape"] for label in dataset.labels]
        size = dataset.imgsz

        def convert(batch: dict[str, Any]) -> dict[str, Any]:
            numbers = batch["number"].tolist()
            values, offsets = batch["boxes"]
            classes, _ = batch["labels"]
            counts = torch.as_tensor(offsets).to(torch.int64).diff()
            of_box = torch.arange(len(numbers), dtype=torch.float32)
            corners = torch.as_tensor(values).reshape(-1, 4).float() / size
            low, high = corners[:, :2], corners[:, 2:]
            found = [tuple(map(int, shapes[number])) for number in numbers]
            return {
                "img": batch["image"],
                "batch_idx": of_box.repeat_interleave(counts.cpu()),
                "cls": torch.as_tensor(classes).reshape(-1, 1).float(),
                "bboxes": torch.cat([(low + high) / 2, high - low], 1),
                "im_file": tuple(files[number] for number in numbers),
                "ori_shape": tuple(found),
                "resized_shape": ((size, size),) * len(numbers),
                "ratio_pad": tuple(_ratios(shape, size) for shape in found),
            }

        return convert


def install() -> None:
    """Makes `YOLO.train` use the trainer of this module.

    Raises:
        ConfigError: This version has no class to replace.
    """
    found = getattr(detect, "DetectionTrainer", None)
    if not isinstance(found, type) or not hasattr(found, "get_dataloader"):
        raise ConfigError(
            f"install: Ultralytics {ultralytics.__version__} has no DetectionTrainer "
            f"with get_dataloader; install a version {_TRIED}"
        )
    if not ultralytics.__version__.startswith(f"{_TRIED}."):
        LOGGER.warning(
            f"infeed: Ultralytics {ultralytics.__version__} was not tried; "
            f"{_TRIED}.190 was"
        )
    detect.DetectionTrainer = DetectionTrainer


def uninstall() -> None:
    """Makes `YOLO.train` use its own trainer."""
    detect.DetectionTrainer = _ORIGINAL


def _tail(loader: Any, world: int) -> Literal["keep", "drop", "wrap"]:
    """Returns what happens to a last batch that is not full.

    Ranks get equal numbers of samples, as from a `DistributedSampler`.
    """
    if loader.drop_last:
        return "drop"
    return "wrap" if world > 1 else "keep"


def _ratios(shape: tuple[int, ...], size: int) -> tuple[float, float]:
    """Returns the ratios of height and width of the resized image to the file."""
    ratio = size / max(shape)
    height, width = (min(int(np.ceil(side * ratio)), size) for side in shape)
    return height / shape[0], width / shape[1]


def _cache(cache: bool | str, dataset: Any) -> str | Cache | None:
    """Returns the cache of decoded images for the argument ``cache``."""
    if cache != "disk":
        return "auto" if cache else None
    return Cache(disk=pathlib.Path(dataset.im_files[0]).parent / ".infeed-cache")
