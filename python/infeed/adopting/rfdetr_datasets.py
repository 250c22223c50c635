"""Reads the detection datasets of RF-DETR: labels, and augmentation."""

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from infeed import sources
from infeed import transforms as T
from infeed.adopting.adopted_dataset import AdoptedDataset, library_of
from infeed.adopting.image_processors import UnknownStepError
from infeed.adopting.samples import Array, ragged
from infeed.adopting.steps import Finding
from infeed.pipeline import Pipeline
from infeed.transforms import Transform

# Numbers of a polygon of three corners.
_LEAST_NUMBERS = 6
_CLASSES = ("CocoDetection", "YoloDetection")


def read_rfdetr(dataset: Any) -> AdoptedDataset | str:
    """Reads a `CocoDetection` or `YoloDetection` of RF-DETR.

    Samples have the fields ``image``, normalized RGB ``[3, height, width]``; ``boxes``,
    ``[n, 4]``, left, top, right and bottom in pixels; ``labels`` and ``area``, ``[n]``,
    the area as annotated in pixels of the file; and ``number``, that of the sample.
    Datasets for segmentation have ``masks``, ``[n, height, width]``, 0 and 1.

    Returns:
        The dataset, or the reason why RF-DETR makes its samples.
    """
    name = type(dataset).__name__
    if library_of(dataset) != "rfdetr" or name not in _CLASSES:
        return ""
    if getattr(dataset, "include_keypoints", False):
        return "its samples have keypoints"
    if has_masks(dataset) and not hasattr(dataset, "cat2label"):
        return "its samples have masks of YOLO"
    findings, native = list[Finding](), list[Transform]()
    try:
        for step in getattr(dataset._transforms, "transforms", [dataset._transforms]):
            became = _translate(step)
            native += became
            made = ", ".join(map(repr, became)) or "arrays of image, boxes and labels"
            findings.append(Finding(type(step).__name__, made))
        if not any(isinstance(step, T.Normalize) for step in native):
            return "it has no Normalize: a GPU makes the augmentation"
        source = rfdetr_source(dataset)
    except UnknownStepError as error:
        return str(error)
    # RF-DETR decodes JPEGs at a lower scale where they shrink a lot.
    reduces = getattr(dataset, "_draft_size", None) is not None
    records = Pipeline(source).decode(dct_scale=reduces)
    records = records.boxes(
        "boxes",
        columns=("labels", "area"),
        masks="masks" if has_masks(dataset) else None,
        min_size=0.0,
        min_area=0.0,
    )
    records = records.transform(*native, layout="CHW")
    finding = Finding(
        f"{name} of {len(dataset)} images", "sources.Memory, labels as it read them"
    )
    return AdoptedDataset(
        RfdetrSamples(dataset),
        records,
        (finding, *findings),
        "dict",
        names={
            repr(source): (
                "rfdetr_source(dataset)",
                f"dataset: the {name} of the adopted loader",
            )
        },
        variables={"dataset": dataset},
    )


def rfdetr_source(dataset: Any) -> sources.Memory:
    """Returns the images and labels of a dataset, one record for each sample.

    Args:
        dataset: A `CocoDetection` or `YoloDetection` of RF-DETR.
    """
    read = _read_coco if hasattr(dataset, "cat2label") else _read_yolo
    samples = [read(dataset, number) for number in range(len(dataset))]
    boxes, labels, areas, masks = [], [], [], []
    for number, (_, found, classes, area) in enumerate(samples):
        has_area = np.all(found[:, 2:] > found[:, :2], axis=1)
        boxes.append(found[has_area].reshape(-1))
        labels.append(classes[has_area])
        areas.append(area[has_area])
        if has_masks(dataset):
            masks.append(_masks_of(dataset, number, np.flatnonzero(has_area)))
    return sources.Memory(
        image=[path for path, *_ in samples],
        boxes=ragged(boxes, np.float32),
        labels=ragged(labels, np.int64),
        area=ragged(areas, np.float32),
        number=np.arange(len(samples)),
        kinds={"image": "image"},
        **({"masks": masks} if masks else {}),
    )


def has_masks(dataset: Any) -> bool:
    """Whether the samples of a dataset of RF-DETR have masks."""
    return bool(getattr(dataset, "include_masks", False))


# Path of an image, corners of its boxes, their labels, and their areas.
_Labelled = tuple[str, Array, Array, Array]


def _read_coco(dataset: Any, number: int) -> _Labelled:
    coco, image = dataset.coco, dataset.ids[number]
    found = _annotations(dataset, number)
    boxes = np.array([one["bbox"] for one in found], np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    mapped = dataset.cat2label
    labels = [one["category_id"] for one in found]
    labels = labels if mapped is None else [mapped[label] for label in labels]
    path = os.path.join(dataset.root, coco.imgs[image]["file_name"])
    areas = np.array([one["area"] for one in found], np.float32)
    return path, boxes, np.array(labels, np.int64), areas


def _annotations(dataset: Any, number: int) -> list[Any]:
    """Returns the annotations of a sample, without crowds."""
    found = dataset.coco.imgToAnns.get(dataset.ids[number], ())
    return [one for one in found if not one.get("iscrowd")]


def _masks_of(dataset: Any, number: int, kept: Array) -> str:
    """Returns the masks of those annotations of a sample as JSON that are kept.

    Raises:
        UnknownStepError: A polygon has too few corners.
    """
    entry = dataset.coco.imgs[dataset.ids[number]]
    size = [int(entry["height"]), int(entry["width"])]
    # Annotations without a segmentation have empty masks.
    empty = {"counts": [size[0] * size[1]], "size": size}
    masks = [one.get("segmentation") or empty for one in _annotations(dataset, number)]
    masks = [masks[at] for at in kept.tolist()]
    for mask in masks:
        if isinstance(mask, list) and any(len(one) < _LEAST_NUMBERS for one in mask):
            raise UnknownStepError(
                f"a polygon of {entry['file_name']} has less than three corners"
            )
    return json.dumps(masks)


def _read_yolo(dataset: Any, number: int) -> _Labelled:
    found = dataset.sv_dataset.get_image_info(number)
    boxes = np.asarray(found.xyxy, np.float32).reshape(-1, 4)
    labels = np.asarray(found.class_id, np.int64).reshape(-1)
    entry = dataset.coco.imgs[dataset.ids[number]]
    inside = boxes.clip(0, [entry["width"], entry["height"]] * 2)
    areas = (inside[:, 2:] - inside[:, :2]).prod(1)
    return str(found.image_path), boxes, labels, areas


def _translate(step: Any) -> list[Transform]:
    """Returns the transforms for a step of the chain.

    Raises:
        UnknownStepError: infeed does not have it.
    """
    name, library = type(step).__name__, library_of(step)
    if name in ("ToImage", "ToDtype") and library == "torchvision":
        return []
    if library != "rfdetr" or name not in _STEPS:
        raise UnknownStepError(f"{name}: infeed does not have it")
    try:
        return _STEPS[name](step)
    except AttributeError as error:
        raise UnknownStepError(
            f"{name} of this version of RF-DETR has other settings: {error}; install a "
            "version that infeed knows"
        ) from None


def _compose(step: Any) -> list[Transform]:
    return [made for one in step.transforms for made in _translate(one)]


def _series(step: Any) -> Transform:
    """Returns a step as one transform."""
    found = _translate(step)
    return found[0] if len(found) == 1 else T.RandomApply(tuple(found), p=1.0)


def _select(step: Any) -> list[Transform]:
    both = (_series(step.transform1), _series(step.transform2))
    p = float(step.p)
    return [T.RandomChoice(both, p=None if p == 0.5 else (p, 1 - p))]


def _choose(transforms: tuple[Transform, ...]) -> list[Transform]:
    """Returns the transforms that apply one of some, each with the same probability."""
    return list(transforms) if len(transforms) == 1 else [T.RandomChoice(transforms)]


def _shortest(step: Any) -> list[Transform]:
    return _choose(tuple(T.Resize(n, max_size=step.max_size) for n in step.sizes))


def _normalize(step: Any) -> list[Transform]:
    inner = step._normalize
    mean, std = (tuple(map(float, values)) for values in (inner.mean, inner.std))
    return [T.Normalize(mean=mean, std=std)]


_STEPS: dict[str, Callable[[Any], list[Transform]]] = {
    "Compose": _compose,
    "RandomSelect": _select,
    "RandomChoice": lambda step: _choose(tuple(map(_series, step.transforms))),
    "RandomResize": _shortest,
    "Resize": lambda step: [T.Resize(tuple(step.size))],
    "RandomSizedCrop": lambda step: [
        T.RandomSizedCrop(tuple(step.size), tuple(step.min_max_height))
    ],
    "RandomHorizontalFlip": lambda step: [T.RandomHorizontalFlip(float(step.p))],
    "Normalize": _normalize,
}


class RfdetrSamples:
    """Samples of a dataset of RF-DETR with the names and units of the pipeline.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> dict[str, Array]:
        image, target = self._dataset[number]
        height, width = image.shape[1:]
        boxes = np.asarray(target["boxes"], np.float32) * [width, height, width, height]
        centre, half = boxes[:, :2], boxes[:, 2:] / 2
        masks = {"masks": np.asarray(target["masks"])} if "masks" in target else {}
        return {
            "image": np.asarray(image),
            "boxes": np.concatenate([centre - half, centre + half], 1).astype("f4"),
            "labels": np.asarray(target["labels"]),
            **{name: one.astype(np.uint8) for name, one in masks.items()},
        }
