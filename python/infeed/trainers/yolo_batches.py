"""Batches of infeed in the layout of Ultralytics."""

import math
from typing import Any

import numpy as np
import torch
from ultralytics.utils import ops

from infeed.adopting.yolo_labels import image_shapes

# Most objects of an image whose map Ultralytics keeps in 8 bits.
_MOST_SMALL = 255


class YoloBatches:
    """Converts the batches of a pipeline to those of Ultralytics.

    A batch has ``img``, uint8 ``[n, 3, height, width]``; for all boxes ``batch_idx``
    ``[boxes]``, ``cls`` ``[boxes, 1]`` and ``bboxes`` ``[boxes, 4]``, centre, width and
    height as shares of the image, all float32; and for each image ``im_file``,
    ``ori_shape``, ``resized_shape`` and ``ratio_pad``. According to the task:

    - segmentation: ``masks``, ``[n, height / 4, width / 4]``, the number of the object
      of each pixel in its image from 1, or 0; and ``sem_masks``, its class, float32.
    - poses: ``keypoints``, float32 ``[boxes, points, 3]``, shares and visibility.
    - rotated boxes: ``bboxes`` has a fifth column, the angle in radians.

    Args:
        dataset: The dataset of Ultralytics.
    """

    def __init__(self, dataset: Any) -> None:
        self._files, self._size = dataset.im_files, dataset.imgsz
        self._shapes = image_shapes(dataset)
        self._is_augmented = dataset.augment
        self._has_masks = dataset.use_segments
        self._has_points, self._is_rotated = dataset.use_keypoints, dataset.use_obb

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Returns a batch of Ultralytics."""
        height, width = batch["image"].shape[-2:]
        sides = torch.tensor([width, height])
        numbers = batch["number"].tolist()
        values, offsets = batch["boxes"]
        classes = torch.as_tensor(batch["labels"][0]).reshape(-1, 1).float()
        ends = torch.as_tensor(offsets).to(torch.int64).cpu()
        of_box = torch.arange(len(numbers), dtype=torch.float32)
        corners = torch.as_tensor(values).reshape(-1, 4).float() / sides.repeat(2)
        low, high = corners[:, :2], corners[:, 2:]
        shapes = [self._shapes[number] for number in numbers]
        made = {
            "img": batch["image"],
            "batch_idx": of_box.repeat_interleave(ends.diff()),
            "cls": classes,
            "bboxes": torch.cat([(low + high) / 2, high - low], 1),
            "im_file": tuple(self._files[number] for number in numbers),
            "ori_shape": tuple(shapes),
            "resized_shape": ((height, width),) * len(numbers),
            "ratio_pad": tuple(
                self._ratio_pad(shape, (height, width)) for shape in shapes
            ),
        }
        if self._has_masks:
            masks = torch.as_tensor(batch["outlines"])
            made["masks"], made["sem_masks"] = _masks(masks, classes[:, 0], ends)
        if self._has_points:
            points = torch.as_tensor(batch["keypoints"][0]).float()
            made["keypoints"] = points / torch.tensor([width, height, 1.0])
        if self._is_rotated:
            boxes = rotated_boxes(batch["corners"][0], batch["outlines"][0])
            boxes[:, :4] /= np.tile([width, height], 2)
            made["bboxes"] = torch.from_numpy(boxes)
        return made

    def _ratio_pad(self, shape: tuple[int, int], canvas: tuple[int, int]) -> Any:
        """Returns where an image is on its canvas, as Ultralytics does.

        Ratios of height and width of the resized image to the file, and in a validation
        the pixels left of it and above it.
        """
        ratio = self._size / max(shape)
        resized = [min(math.ceil(side * ratio), self._size) for side in shape]
        ratios = resized[0] / shape[0], resized[1] / shape[1]
        if self._is_augmented:
            return ratios
        top, left = ((canvas[at] - resized[at]) // 2 for at in range(2))
        return ratios, (left, top)


def _masks(
    masks: torch.Tensor, classes: torch.Tensor, ends: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the objects of the pixels, and their classes.

    Args:
        masks: Number of the object of each pixel from 1, or 0, ``[n, h, w]``.
        classes: Class of each object of the batch.
        ends: Position of the first object of each image, and the number of all.
    """
    ends, classes = ends.to(masks.device), classes.to(masks.device)
    counts = ends.diff()
    if not len(classes):
        return masks.to(torch.uint8), masks.float()
    # As in Ultralytics, the background has the class of the last object.
    objects = torch.where(masks > 0, masks, counts[:, None, None])
    found = classes[(ends[:-1, None, None] + objects - 1).clamp(min=0)]
    found = found * (counts > 0)[:, None, None]
    small = int(counts.max()) <= _MOST_SMALL
    return masks.to(torch.uint8) if small else masks, found


def rotated_boxes(corners: Any, outlines: Any) -> np.ndarray:
    """Returns rotated boxes: centre, longer and shorter side, and angle in radians.

    A box has the direction of its four corners, and surrounds the visible part. The
    angle is that of the longer side, -pi/4 to 3 pi/4, as in Ultralytics.

    Args:
        corners: Corners of each box, ``[n, 4, 2]``, also outside the image.
        outlines: Corners of the visible part of each, with a row of NaN after each.
    """
    corners = np.asarray(corners, np.float32).reshape(-1, 4, 2)
    if not len(corners):
        return np.zeros((0, 5), np.float32)
    angles = ops.xyxyxyxy2xywhr(corners)[:, 4]
    visible = np.asarray(outlines, np.float64).reshape(-1, 2)
    is_end = np.isnan(visible[:, 0])
    of_box = np.cumsum(is_end)[~is_end]
    visible = visible[~is_end]
    across = np.stack([np.cos(angles), np.sin(angles)], 1)
    down = np.stack([-np.sin(angles), np.cos(angles)], 1)
    low, high = (np.full((len(corners), 2), far) for far in (np.inf, -np.inf))
    for side, axis in enumerate((across, down)):
        along = (visible * axis[of_box]).sum(1)
        np.minimum.at(low[:, side], of_box, along)
        np.maximum.at(high[:, side], of_box, along)
    sides, middle = high - low, (high + low) / 2
    centre = middle[:, :1] * across + middle[:, 1:] * down
    # The part that is left may be longer on the other side.
    is_turned = sides[:, 0] < sides[:, 1]
    sides[is_turned] = sides[is_turned, ::-1]
    angles = angles + np.where(is_turned, math.pi / 2, 0)
    angles = np.where(angles >= 3 * math.pi / 4, angles - math.pi, angles)
    found = np.concatenate([centre, sides, angles[:, None]], 1)
    return np.asarray(found, np.float32)
