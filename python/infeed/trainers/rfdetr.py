"""infeed in RF-DETR: the batches of a training for detection."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import rfdetr
import torch
from rfdetr import training
from rfdetr.training import cli, module_data
from rfdetr.utilities import tensors
from rfdetr.utilities.logger import get_logger

from infeed.adopting.adoption import Gain
from infeed.adopting.recognize import RecognizedLoader, recognize
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import (
    DIFFERENCE,
    TrainerLoader,
    report,
    samples_differ,
)

NAME = "rfdetr"
_TITLE = "RF-DETR"
# Versions whose training was tried.
_TRIED = "1.11"
# The class that `RFDETR.train` uses, and the modules that have its name.
_ORIGINAL = module_data.RFDETRDataModule
_USERS = (training, cli, rfdetr)
_CLASS = "RFDETRDataModule"


class RFDETRDataModule(_ORIGINAL):  # type: ignore[misc, valid-type]
    """The data module of RF-DETR with the training batches of infeed.

    `install` makes it the class that ``RFDETR.train`` uses. A data module of your own
    can inherit from it.
    """

    _infeed: "RfdetrLoader | None" = None

    def train_dataloader(self) -> Any:
        """Returns the loader of a training."""
        loader = super().train_dataloader()
        settings = settings_of(NAME)
        # Pictures of some samples are made before there is a trainer.
        if settings is None or self.trainer is None:
            return loader
        logger = get_logger()
        draft = getattr(self._dataset_train, "_draft_size", None)
        if settings.cache is not None:
            # The cache keeps whole images.
            self._dataset_train._draft_size = None
        found = _recognize(loader)
        if isinstance(found, str):
            logger.warning(f"infeed: batches stay with RF-DETR: {found}")
            self._dataset_train._draft_size = draft
            return loader
        compared = None
        if self.trainer.is_global_zero:
            compared = report(
                found.read, loader, found.pipeline, settings, _TITLE, logger.info
            )
            # The measurement has started its processes.
            loader = super().train_dataloader()
        if samples_differ(compared):
            logger.warning(f"infeed: batches stay with RF-DETR: {DIFFERENCE}")
            self._dataset_train._draft_size = draft
            return loader
        # A prediction for several processes would need the rates of all.
        gain = compared.gain if compared and self.trainer.world_size == 1 else None
        self._infeed = RfdetrLoader(self, loader, found.pipeline, settings, gain)
        return self._infeed

    def teardown(self, stage: str) -> None:
        """Prints how the first epoch waited, and ends the threads of the loader."""
        super().teardown(stage)
        loader, self._infeed = self._infeed, None
        if loader is not None:
            loader.report_epoch()
            loader.close()


class RfdetrLoader(TrainerLoader):
    """The batches of a pipeline in the layout of RF-DETR.

    A batch has the images as a `NestedTensor`, float32 ``[n, 3, size, size]``, and for
    each image a dictionary: ``boxes`` ``[boxes, 4]``, centre, width and height as
    shares of the image, float32; ``labels`` and ``iscrowd`` ``[boxes]``, int64;
    ``area`` ``[boxes]``, that of the box in pixels, float32; ``image_id`` ``[1]``,
    ``orig_size`` and ``size`` ``[2]``, height and width, int64.

    Args:
        module: The data module, whose trainer has the epoch and the ranks.
        original: The loader that it replaces, whose other attributes it has.
        batches: Pipeline of the batches of one process.
        settings: Settings of `infeed.install`.
        gain: Measured rates of both loaders; None: nothing is predicted.
    """

    def __init__(
        self,
        module: Any,
        original: Any,
        batches: Pipeline,
        settings: Settings,
        gain: Gain | None = None,
    ) -> None:
        super().__init__(original, _TITLE, gain, get_logger().info)
        self._module, self._batches, self._settings = module, batches, settings
        self._is_restored = False
        # Lightning would look for a sampler of PyTorch.
        self.sampler = self.batch_sampler = None

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of the trainer's epoch, or the rest of a restored one."""
        self.report_epoch()
        is_restored, self._is_restored = self._is_restored, False
        yield from self.iterate(
            None if is_restored else self._module.trainer.current_epoch
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, which Lightning keeps in its checkpoints."""
        state: dict[str, Any] = self._open().state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the batch of a checkpoint, also with other batches."""
        self._open().load_state_dict(state, strict=False)
        self._is_restored = True

    def describe(self) -> tuple[Pipeline, dict[str, Any]]:
        """Returns the pipeline of a training, and the options of its loader."""
        trainer, seed = self._module.trainer, self._module.train_config.seed
        size = self.batch_size * int(trainer.world_size)
        # The samples fill the last batch.
        pipeline = self._batches.shuffle(seed=seed or 0).batch(size, tail="drop")
        options = self._settings.options(self._settings.cache)
        device = trainer.strategy.root_device
        if device.type == "cuda":
            options["device"] = str(device)
        return pipeline, options

    def converter(self) -> Callable[[dict[str, Any]], Any]:
        """Returns the function that turns batches into those of RF-DETR."""
        model, settings = self._module.model_config, self._module.train_config
        block = model.patch_size * model.num_windows
        dataset = self._module._dataset_train
        ids, entries = dataset.ids, dataset.coco.imgs

        def convert(batch: dict[str, Any]) -> Any:
            images = batch["image"]
            height, width = images.shape[2:]
            values, offsets = batch["boxes"]
            corners = torch.as_tensor(values).reshape(-1, 4)
            labels = torch.as_tensor(batch["labels"][0])
            low, high = corners[:, :2], corners[:, 2:]
            area = (high - low).prod(1)
            of_image = torch.tensor([width, height] * 2).to(corners)
            boxes = torch.cat([(low + high) / 2, high - low], 1) / of_image
            ends = torch.as_tensor(offsets).tolist()
            targets = []
            for row, number in enumerate(batch["number"].tolist()):
                part = slice(int(ends[row]), int(ends[row + 1]))
                entry = entries[ids[number]]
                targets.append(
                    {
                        "boxes": boxes[part],
                        "labels": labels[part],
                        "image_id": torch.tensor([ids[number]]),
                        "area": area[part],
                        "iscrowd": torch.zeros_like(labels[part]),
                        "orig_size": torch.tensor([entry["height"], entry["width"]]),
                        "size": torch.tensor([height, width]),
                    }
                )
            if settings.pad_targets_to is not None:
                count = settings.pad_targets_to
                targets = list(tensors.pad_targets_to_fixed_count(targets, count))
            nested = tensors.nested_tensor_from_tensor_list(images, block_size=block)
            packs = settings.pack_targets
            return nested, tensors.pack_targets(targets) if packs else tuple(targets)

        return convert


def install() -> None:
    """Makes `RFDETR.train` use the data module of this module.

    Raises:
        ConfigError: This version has no class to replace.
    """
    found = version(NAME)
    if not hasattr(getattr(training, _CLASS, None), "train_dataloader"):
        raise ConfigError(
            f"install: RF-DETR {found} has no {_CLASS} with train_dataloader; "
            f"install a version {_TRIED}"
        )
    if not found.startswith(f"{_TRIED}."):
        get_logger().warning(f"infeed: RF-DETR {found} was not tried; {_TRIED}.2 was")
    _replace(RFDETRDataModule)


def uninstall() -> None:
    """Makes `RFDETR.train` use its own data module."""
    _replace(_ORIGINAL)


def _replace(data_module: type[Any]) -> None:
    for user in _USERS:
        # RF-DETR imports some names when they are first used.
        if _CLASS in vars(user):
            setattr(user, _CLASS, data_module)


def _recognize(loader: Any) -> RecognizedLoader | str:
    """Returns the pipeline for a loader, or the reason why it stays."""
    try:
        found = recognize(loader)
    except ConfigError as error:
        return str(error)
    if found.read.is_python:
        return found.read.findings[0].reason
    shape = found.pipeline.shapes["image"].shape or ()
    if None in shape[1:]:
        return (
            'its images differ in size: multi_scale="per-sample" or '
            "square_resize_div_64=False"
        )
    return found
