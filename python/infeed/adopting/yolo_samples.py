"""Samples of a dataset of Ultralytics, to compare them with those of a pipeline."""

import copy
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from infeed.adopting.samples import Array
from infeed.adopting.yolo_chain import flat_steps


class YoloSamples:
    """Samples of a `YOLODataset` with the names and units of the pipeline.

    It does not change the dataset: the other images of mosaics and of `MixUp` come from
    samples that it is given, and not from those that were read before.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = copy.copy(dataset)
        # Reads of this copy are not kept.
        self._dataset.cache = "ram"
        self._dataset.ims = [None] * len(dataset)
        self._dataset.buffer = list(range(len(dataset)))
        steps = copy.deepcopy(dataset.transforms, {id(dataset): self._dataset})
        *steps, self._format = flat_steps(steps)
        for step in steps:
            if type(step).__name__ == "Mosaic":
                step.buffer_enabled = True
            elif type(step).__name__ == "MixUp":
                step.get_indexes = self._choose_other
        self._steps = steps
        self._among = self._dataset.buffer

    def __len__(self) -> int:
        return len(self._dataset)

    def mix_among(self, numbers: Sequence[int]) -> None:
        """Sets the samples whose images others have."""
        self._among = list(numbers)

    def _choose_other(self) -> int:
        """Returns the number of another sample."""
        others: list[int] = self._dataset.buffer
        return random.choice(others)

    def __getitem__(self, number: int) -> dict[str, Array]:
        others = [other for other in self._among if other != number]
        self._dataset.buffer = others or [number]
        sample = self._dataset.get_image_and_label(number)
        for step in self._steps:
            sample = step(sample)
        boxes = _visible_boxes(sample["instances"], sample["img"].shape[:2])
        sample = self._format(sample)
        image = np.asarray(sample["img"])
        height, width = image.shape[1:]
        sides = [width, height]
        found = np.asarray(sample["bboxes"], np.float64)
        if not self._dataset.use_obb:
            centre, half = found[:, :2] * sides, found[:, 2:] * sides / 2
            boxes = np.concatenate([centre - half, centre + half], 1)
        arrays = {
            "image": image,
            "boxes": boxes.astype(np.float32),
            "labels": np.asarray(sample["cls"]).reshape(-1).astype(np.int64),
        }
        if "masks" in sample:
            arrays["outlines"] = np.asarray(sample["masks"])[0].astype(np.int32)
        if "keypoints" in sample:
            points = np.array(sample["keypoints"], np.float32)
            points[..., :2] *= sides
            points[points[..., 2] == 0] = 0
            arrays["keypoints"] = points.reshape(
                len(points), math.prod(points.shape[1:])
            )
        return arrays


def _visible_boxes(instances: Any, size: tuple[int, int]) -> Array:
    """Returns the boxes of a sample of height and width: corners, in pixels."""
    found = copy.deepcopy(instances)
    found.convert_bbox("xyxy")
    found.denormalize(*size[::-1])
    return np.asarray(found.bboxes, np.float64)
