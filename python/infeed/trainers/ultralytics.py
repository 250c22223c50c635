"""infeed in Ultralytics: the batches of a training."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import ultralytics
from ultralytics.models import yolo
from ultralytics.models.yolo import classify, detect, obb, pose, segment
from ultralytics.utils import LOGGER

from infeed._options import Cache
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.adoption import Gain
from infeed.adopting.listed_datasets import read_ultralytics
from infeed.adopting.yolo_datasets import read_yolo
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import (
    DIFFERENCE,
    TrainerLoader,
    report,
    samples_differ,
)
from infeed.trainers.yolo_batches import YoloBatches

NAME = "ultralytics"
_TITLE = "Ultralytics"
# Versions whose training was tried.
_TRIED = "8.4"


class InfeedTraining:
    """A trainer of Ultralytics with the batches of infeed.

    A trainer of your own can inherit from it, and then from one of Ultralytics.
    """

    args: Any

    def get_dataloader(
        self,
        dataset_path: str,
        batch_size: int = 16,
        rank: int = 0,
        mode: str = "train",
    ) -> Any:
        """Returns the loader of a training or a validation."""
        original = super().get_dataloader  # type: ignore[misc]
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
        found = _read(loader.dataset)
        if not isinstance(found, AdoptedDataset):
            LOGGER.warning(f"infeed: batches stay with Ultralytics: {found}")
            return original(dataset_path, batch_size, rank, mode) if cache else loader
        compared = None
        if rank in (-1, 0):
            pipeline = found.records.shuffle(seed=0).batch(loader.batch_size)
            log = LOGGER.info
            compared = report(found, loader, pipeline, settings, _TITLE, log)
            loader.reset()
        if samples_differ(compared):
            LOGGER.warning(f"infeed: batches stay with Ultralytics: {DIFFERENCE}")
            return original(dataset_path, batch_size, rank, mode) if cache else loader
        # A prediction for several processes would need the rates of all.
        gain = compared.gain if compared and rank == -1 else None
        return YoloLoader(self, loader, settings, gain)

    def run_callbacks(self, event: str) -> None:
        """Runs the callbacks, and prints how the first epoch waited."""
        super().run_callbacks(event)  # type: ignore[misc]
        loader = getattr(self, "train_loader", None)
        # The progress bar of the epoch has ended here.
        if event == "on_fit_epoch_end" and isinstance(loader, YoloLoader):
            loader.report_epoch()


class DetectionTrainer(InfeedTraining, detect.DetectionTrainer):
    """The trainer of detectors."""


class SegmentationTrainer(InfeedTraining, segment.SegmentationTrainer):
    """The trainer of models that segment instances."""


class PoseTrainer(InfeedTraining, pose.PoseTrainer):
    """The trainer of models for poses."""


class OBBTrainer(InfeedTraining, obb.OBBTrainer):
    """The trainer of detectors of rotated boxes."""


class ClassificationTrainer(InfeedTraining, classify.ClassificationTrainer):
    """The trainer of classifiers."""


def _extend(task: str, name: str) -> type[Any] | None:
    """Returns a trainer that names why its batches stay; None if there is none."""
    original = getattr(getattr(yolo, task, None), name, None)
    if original is None:
        return None
    return type(name, (InfeedTraining, original), {"__module__": __name__})


SemanticSegmentationTrainer = _extend("semantic", "SemanticSegmentationTrainer")
DepthTrainer = _extend("depth", "DepthTrainer")


# The trainers that `YOLO.train` uses: their module, and the class that replaces them.
_TRAINERS = (
    (detect, DetectionTrainer),
    (segment, SegmentationTrainer),
    (pose, PoseTrainer),
    (obb, OBBTrainer),
    (classify, ClassificationTrainer),
    *(
        (getattr(yolo, task), made)
        for task, made in (
            ("semantic", SemanticSegmentationTrainer),
            ("depth", DepthTrainer),
        )
        if made is not None
    ),
)
_ORIGINALS = [getattr(module, made.__name__, None) for module, made in _TRAINERS]


class YoloLoader(TrainerLoader):
    """The batches of a pipeline in the layout of Ultralytics, as `YoloBatches`.

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
        found = _read(self.dataset)
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
        if hasattr(self.dataset, "im_files"):
            return YoloBatches(self.dataset)
        return _class_batch


def install() -> None:
    """Makes `YOLO.train` use the trainers of this module.

    Raises:
        ConfigError: This version has no class to replace.
    """
    for original, (_, made) in zip(_ORIGINALS, _TRAINERS, strict=True):
        if not isinstance(original, type) or not hasattr(original, "get_dataloader"):
            raise ConfigError(
                f"install: Ultralytics {ultralytics.__version__} has no "
                f"{made.__name__} with get_dataloader; install a version {_TRIED}"
            )
    if not ultralytics.__version__.startswith(f"{_TRIED}."):
        LOGGER.warning(
            f"infeed: Ultralytics {ultralytics.__version__} was not tried; "
            f"{_TRIED}.190 was"
        )
    for module, made in _TRAINERS:
        setattr(module, made.__name__, made)


def uninstall() -> None:
    """Makes `YOLO.train` use its own trainers."""
    for original, (module, made) in zip(_ORIGINALS, _TRAINERS, strict=True):
        setattr(module, made.__name__, original)


def _read(dataset: Any) -> AdoptedDataset | str:
    """Returns the pipeline of a dataset, or the reason why there is none."""
    found = read_ultralytics(dataset) or read_yolo(dataset)
    if isinstance(found, AdoptedDataset):
        unknown = next((one for one in found.findings if one.became is None), None)
        return found if unknown is None else f"{unknown.part}: {unknown.reason}"
    return found or f"infeed has no {type(dataset).__name__}"


def _class_batch(batch: dict[str, Any]) -> dict[str, Any]:
    """Returns a batch of a classifier: pixels and classes."""
    return {"img": batch["image"], "cls": batch["label"]}


def _tail(loader: Any, world: int) -> Literal["keep", "drop", "wrap"]:
    """Returns what happens to a last batch that is not full.

    Ranks get equal numbers of samples, as from a `DistributedSampler`.
    """
    if loader.drop_last:
        return "drop"
    return "wrap" if world > 1 else "keep"


def _cache(cache: bool | str, dataset: Any) -> str | Cache | None:
    """Returns the cache of decoded images for the argument ``cache``."""
    if cache != "disk":
        return "auto" if cache else None
    if hasattr(dataset, "im_files"):
        folder = pathlib.Path(dataset.im_files[0]).parent
    else:
        # A folder in the root would be a class.
        folder = pathlib.Path(dataset.root).parent
    return Cache(disk=folder / ".infeed-cache")
