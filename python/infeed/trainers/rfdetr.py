"""infeed in RF-DETR: the batches for detection and instance segmentation."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Literal

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
# The use of each dataset.
_WORK = {"train": "training", "val": "validation", "test": "test"}


class RFDETRDataModule(_ORIGINAL):  # type: ignore[misc, valid-type]
    """The data module of RF-DETR with the batches of infeed.

    `install` makes it the class that ``RFDETR.train`` uses. A data module of your own
    can inherit from it.
    """

    # Loaders that need to be closed, by the name of the dataset.
    _replaced: "dict[str, RfdetrLoader] | None" = None

    def train_dataloader(self) -> Any:
        """Returns the loader of a training."""
        return self._replace(super().train_dataloader, "train")

    def val_dataloader(self) -> Any:
        """Returns the loader of validations."""
        return self._replace(super().val_dataloader, "val")

    def test_dataloader(self) -> Any:
        """Returns the loader of a test."""
        return self._replace(super().test_dataloader, "test")

    def _replace(self, make: Callable[[], Any], name: str) -> Any:
        """Returns the loader that replaces one of RF-DETR, or that one.

        Args:
            make: Makes the loader of RF-DETR.
            name: The dataset: ``"train"``, ``"val"`` or ``"test"``.
        """
        loader = make()
        settings = settings_of(NAME)
        # Pictures of some samples are made before there is a trainer.
        if settings is None or self.trainer is None:
            return loader
        logger = get_logger()
        dataset = getattr(self, f"_dataset_{name}")
        draft = getattr(dataset, "_draft_size", None)
        if settings.cache is not None and draft is not None:
            # The cache keeps whole images.
            dataset._draft_size = None
        found = _recognize(loader)
        is_training = name == "train"
        compared = None
        if not isinstance(found, str) and self.trainer.is_global_zero:
            theirs = loader if is_training else None
            compared = report(
                found.read,
                theirs,
                found.pipeline,
                settings,
                logger.info,
                f"the batches of this {_WORK[name]}",
            )
            # The measurement has started its processes.
            loader = make()
        if not isinstance(found, str) and samples_differ(compared):
            found = DIFFERENCE
        if isinstance(found, str):
            of = "batches" if is_training else f"batches of the {_WORK[name]}"
            logger.warning(f"infeed: {of} stay with RF-DETR: {found}")
            if draft is not None:
                dataset._draft_size = draft
            return loader
        # A prediction for several processes would need the rates of all.
        gain = compared.gain if compared and self.trainer.world_size == 1 else None
        kind = RfdetrLoader if is_training else OrderedLoader
        made = kind(self, dataset, loader, found.pipeline, settings, gain)
        self._replaced = {**(self._replaced or {}), name: made}
        return made

    def teardown(self, stage: str) -> None:
        """Prints how the first epoch waited, and ends the threads of the loaders."""
        super().teardown(stage)
        loaders, self._replaced = self._replaced or {}, None
        for loader in loaders.values():
            loader.report_epoch()
            loader.close()


class RfdetrLoader(TrainerLoader):
    """The batches of a pipeline in the layout of RF-DETR.

    A batch has the images as a `NestedTensor`, float32 ``[n, 3, size, size]``, and for
    each image a dictionary: ``boxes`` ``[boxes, 4]``, centre, width and height as
    shares of the image, float32; ``labels`` and ``iscrowd`` ``[boxes]``, int64;
    ``area`` ``[boxes]``, that of the box in pixels, float32; ``masks`` ``[boxes, size,
    size]``, bool, for models with masks; ``image_id`` ``[1]``,
    ``orig_size`` and ``size`` ``[2]``, height and width, int64.

    Args:
        module: The data module, whose trainer has the epoch and the ranks.
        dataset: The dataset.
        original: The loader that it replaces, whose other attributes it has.
        batches: Pipeline of the batches of one process.
        settings: Settings of `infeed.install`.
        gain: Measured rates of both loaders; None: nothing is predicted.
    """

    # Whether areas are those of annotations, in pixels of the resized image. After a
    # crop, they are those of boxes.
    has_whole_images = False

    def __init__(
        self,
        module: Any,
        dataset: Any,
        original: Any,
        batches: Pipeline,
        settings: Settings,
        gain: Gain | None = None,
    ) -> None:
        super().__init__(original, _TITLE, gain, get_logger().info)
        self._module, self._batches, self._settings = module, batches, settings
        self._dataset = dataset
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
        trainer = self._module.trainer
        pipeline = self.arrange(self._batches, int(trainer.world_size))
        options = self._settings.options(self._settings.cache)
        device = trainer.strategy.root_device
        if device.type == "cuda":
            options["device"] = str(device)
        return pipeline, options

    def arrange(self, records: Pipeline, world: int) -> Pipeline:
        """Returns the batches of all processes, whose number is `world`."""
        records = records.shuffle(seed=self._module.train_config.seed or 0)
        # The samples fill the last batch.
        return records.batch(self.batch_size * world, tail="drop")

    def converter(self) -> Callable[[dict[str, Any]], Any]:
        """Returns the function that turns batches into those of RF-DETR."""
        model, settings = self._module.model_config, self._module.train_config
        block = model.patch_size * model.num_windows
        ids, entries = self._dataset.ids, self._dataset.coco.imgs

        def convert(batch: dict[str, Any]) -> Any:
            images = batch["image"]
            height, width = images.shape[2:]
            values, offsets = batch["boxes"]
            corners = torch.as_tensor(values).reshape(-1, 4)
            labels = torch.as_tensor(batch["labels"][0])
            low, high = corners[:, :2], corners[:, 2:]
            is_whole = self.has_whole_images
            area = batch["area"][0] if is_whole else (high - low).prod(1)
            area = torch.as_tensor(area)
            of_image = torch.tensor([width, height] * 2).to(corners)
            boxes = torch.cat([(low + high) / 2, high - low], 1) / of_image
            ends = torch.as_tensor(offsets).tolist()
            masks = {}
            if "masks" in batch:
                masks["masks"] = torch.as_tensor(batch["masks"][0]).bool()
            targets = []
            for row, number in enumerate(batch["number"].tolist()):
                part = slice(int(ends[row]), int(ends[row + 1]))
                entry = entries[ids[number]]
                share = width / entry["width"] * (height / entry["height"])
                targets.append(
                    {
                        "boxes": boxes[part],
                        "labels": labels[part],
                        "image_id": torch.tensor([ids[number]]),
                        "area": area[part] * (share if is_whole else 1.0),
                        "iscrowd": torch.zeros_like(labels[part]),
                        **{name: one[part] for name, one in masks.items()},
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


class OrderedLoader(RfdetrLoader):
    """The batches of validations or tests, in the order of the dataset."""

    has_whole_images = True

    def __iter__(self) -> Iterator[Any]:
        """Yields all batches."""
        yield from self.iterate(0)

    def arrange(self, records: Pipeline, world: int) -> Pipeline:
        """Returns the batches of all processes, whose number is `world`."""
        # As with a sampler of PyTorch, all processes have equal numbers of samples.
        tail: Literal["keep", "wrap"] = "wrap" if world > 1 else "keep"
        return records.batch(self.batch_size * world, tail=tail)

    def report_epoch(self) -> None:
        """Prints nothing: the times of the training are those that matter."""


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
