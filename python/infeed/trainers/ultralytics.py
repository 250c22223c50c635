"""infeed in Ultralytics: the batches of trainings and their validations."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import ultralytics
from ultralytics.models import yolo
from ultralytics.models.yolo import classify, detect, obb, pose, segment
from ultralytics.utils import LOGGER

from infeed._options import Cache
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.adoption import Gain
from infeed.adopting.listed_datasets import read_ultralytics
from infeed.adopting.record_draws import batch_records
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
# Sampler of processes whose samples follow each other.
_CONTIGUOUS = "ContiguousDistributedSampler"


class InfeedLoaders:
    """Trainers and validators of Ultralytics whose loaders infeed replaces."""

    args: Any
    # Why the batches of the training stay with Ultralytics.
    _reason: str | None = None

    def replace_loader(
        self, make: Callable[[], Any], *, is_training: bool, is_first: bool
    ) -> Any:
        """Returns the loader that replaces one of Ultralytics, or that one.

        Args:
            make: Makes the loader of Ultralytics.
            is_training: Whether it is the loader of a training.
            is_first: Whether this is the process that reports.
        """
        settings = settings_of(NAME)
        if settings is None:
            return make()
        cache = self.args.cache
        # infeed keeps decoded images itself.
        self.args.cache = False
        try:
            loader = make()
        finally:
            self.args.cache = cache
        made = self._replace(loader, settings, is_training, is_first)
        if isinstance(made, TrainerLoader):
            return made
        if self._reason != made:
            of = "batches" if is_training else "batches of the validation"
            LOGGER.warning(f"infeed: {of} stay with Ultralytics: {made}")
        if is_training:
            self._reason = made
        return make() if cache else loader

    def _replace(
        self, loader: Any, settings: Settings, is_training: bool, is_first: bool
    ) -> "YoloLoader | str":
        """Returns the loader that replaces one, or the reason why there is none.

        Args:
            loader: The loader of Ultralytics.
            settings: Settings of `infeed.install`.
            is_training: Whether it is the loader of a training.
            is_first: Whether this is the process that reports.
        """
        found = _read(loader.dataset)
        if not isinstance(found, AdoptedDataset):
            return found
        if is_training and type(loader.sampler).__name__ == _CONTIGUOUS:
            return "rect=True on several GPUs"
        compared = None
        if is_first:
            pipeline, _ = _batches_of(found, loader, self)
            theirs = loader if is_training else None
            scope = f"the batches of this {'training' if is_training else 'validation'}"
            log = LOGGER.info
            compared = report(found, theirs, pipeline, settings, log, scope)
            loader.reset()
        if samples_differ(compared):
            return DIFFERENCE
        if not is_training:
            if not len(loader.sampler):
                return "this process has no sample"
            return ValidationLoader(self, loader, settings)
        # A prediction for several processes would need the rates of all.
        gain = compared.gain if compared and _world_of(self) == 1 else None
        return YoloLoader(self, loader, settings, gain)


class InfeedTraining(InfeedLoaders):
    """A trainer of Ultralytics with the batches of infeed.

    A trainer of your own can inherit from it, and then from one of Ultralytics.
    """

    def get_dataloader(
        self,
        dataset_path: str,
        batch_size: int = 16,
        rank: int = 0,
        mode: str = "train",
    ) -> Any:
        """Returns the loader of a training or a validation."""
        make = super().get_dataloader  # type: ignore[misc]
        return self.replace_loader(
            lambda: make(dataset_path, batch_size, rank, mode),
            is_training=mode == "train",
            is_first=rank in (-1, 0),
        )

    def run_callbacks(self, event: str) -> None:
        """Runs the callbacks, and prints how the first epoch waited."""
        super().run_callbacks(event)  # type: ignore[misc]
        loader = getattr(self, "train_loader", None)
        # The progress bar of the epoch has ended here.
        if event == "on_fit_epoch_end" and isinstance(loader, YoloLoader):
            loader.report_epoch()


class InfeedValidation(InfeedLoaders):
    """A validator of Ultralytics with the batches of infeed.

    A validator of your own can inherit from it, and then from one of Ultralytics.
    """

    def get_dataloader(self, dataset_path: str, batch_size: int) -> Any:
        """Returns the loader of a validation without a training."""
        make = super().get_dataloader  # type: ignore[misc]
        return self.replace_loader(
            lambda: make(dataset_path, batch_size), is_training=False, is_first=True
        )


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


class DetectionValidator(InfeedValidation, detect.DetectionValidator):
    """The validator of detectors."""


class SegmentationValidator(InfeedValidation, segment.SegmentationValidator):
    """The validator of models that segment instances."""


class PoseValidator(InfeedValidation, pose.PoseValidator):
    """The validator of models for poses."""


class OBBValidator(InfeedValidation, obb.OBBValidator):
    """The validator of detectors of rotated boxes."""


class ClassificationValidator(InfeedValidation, classify.ClassificationValidator):
    """The validator of classifiers."""


def _extend(task: str, name: str) -> type[Any] | None:
    """Returns a trainer that names why its batches stay; None if there is none."""
    original = getattr(getattr(yolo, task, None), name, None)
    if original is None:
        return None
    return type(name, (InfeedTraining, original), {"__module__": __name__})


SemanticSegmentationTrainer = _extend("semantic", "SemanticSegmentationTrainer")
DepthTrainer = _extend("depth", "DepthTrainer")


# The classes that `YOLO.train` and `YOLO.val` use: their module, and the class that
# replaces them.
_REPLACED = (
    (detect, DetectionTrainer),
    (segment, SegmentationTrainer),
    (pose, PoseTrainer),
    (obb, OBBTrainer),
    (classify, ClassificationTrainer),
    (detect, DetectionValidator),
    (segment, SegmentationValidator),
    (pose, PoseValidator),
    (obb, OBBValidator),
    (classify, ClassificationValidator),
    *(
        (getattr(yolo, task), made)
        for task, made in (
            ("semantic", SemanticSegmentationTrainer),
            ("depth", DepthTrainer),
        )
        if made is not None
    ),
)
_ORIGINALS = [getattr(module, made.__name__, None) for module, made in _REPLACED]


class YoloLoader(TrainerLoader):
    """The batches of a pipeline in the layout of Ultralytics, as `YoloBatches`.

    Args:
        trainer: The trainer, whose epoch selects the samples, or the validator.
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
        """Returns the pipeline of a loader, and the options of infeed's."""
        found = _read(self.dataset)
        if not isinstance(found, AdoptedDataset):
            raise ConfigError(f"infeed in Ultralytics: {found}")
        trainer = self._trainer
        pipeline, ranks = _batches_of(found, self, trainer)
        cache = self._settings.cache or _cache(trainer.args.cache, self.dataset)
        options = self._settings.options(cache) | ranks
        device = getattr(trainer, "device", None)
        if getattr(device, "type", "cpu") == "cuda":
            options["device"] = str(device)
        return pipeline, options

    def begin_epoch(self, loader: Any, epoch: int | None) -> None:
        """Begins an epoch of infeed's loader."""
        if not _is_ordered(self.sampler):
            super().begin_epoch(loader, epoch)
            return
        loader.begin_epoch(epoch or 0, list(self.sampler))

    def converter(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Returns the function that turns batches into those of Ultralytics."""
        if hasattr(self.dataset, "im_files"):
            return YoloBatches(self.dataset)
        return _class_batch


class ValidationLoader(YoloLoader):
    """The batches of validations."""

    def report_epoch(self) -> None:
        """Prints nothing: the times of the training are those that matter."""


def install() -> None:
    """Makes `YOLO.train` and `YOLO.val` use the classes of this module.

    Raises:
        ConfigError: This version has no class to replace.
    """
    for original, (_, made) in zip(_ORIGINALS, _REPLACED, strict=True):
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
    for module, made in _REPLACED:
        setattr(module, made.__name__, made)


def uninstall() -> None:
    """Makes `YOLO.train` and `YOLO.val` use their own classes."""
    for original, (module, made) in zip(_ORIGINALS, _REPLACED, strict=True):
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


def _batches_of(
    found: AdoptedDataset, loader: Any, trainer: Any
) -> tuple[Pipeline, dict[str, Any]]:
    """Returns the pipeline of a loader's batches, and its options about processes."""
    if not _is_ordered(loader.sampler):
        world = _world_of(trainer)
        records = found.records.shuffle(seed=int(trainer.args.seed))
        tail = _tail(loader, world)
        return batch_records(records, loader.batch_size * world, tail=tail), {}
    pipeline = batch_records(found.records, loader.batch_size, tail=_tail(loader))
    # The sampler has the samples of this process.
    count = len(loader.sampler)
    return pipeline, {"rank": 0, "world_size": 1, "epoch_records": count}


def _world_of(trainer: Any) -> int:
    """Returns the number of processes of a training."""
    return max(int(getattr(trainer, "world_size", 1) or 1), 1)


def _is_ordered(sampler: Any) -> bool:
    """Whether each epoch of a loader has the same order."""
    is_sequential = isinstance(sampler, torch.utils.data.SequentialSampler)
    return is_sequential or type(sampler).__name__ == _CONTIGUOUS


def _tail(loader: Any, world: int = 1) -> Literal["keep", "drop", "wrap"]:
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
