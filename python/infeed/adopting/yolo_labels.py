"""The images and labels of the datasets of Ultralytics."""

import concurrent.futures
import weakref
from typing import Any

import numpy as np

from infeed import codecs, sources
from infeed.adopting.image_processors import UnknownStepError
from infeed.adopting.samples import Array, ragged

# Ends an outline.
_END = np.full((1, 2), np.nan)
# Bytes of a file that usually have its size.
_HEADER_BYTES = 1 << 16
# Files of each dataset, and the sizes of their images.
_known_shapes: weakref.WeakKeyDictionary[Any, tuple[Any, list[tuple[int, int]]]] = (
    weakref.WeakKeyDictionary()
)


def yolo_source(dataset: Any) -> sources.Memory:
    """Returns the images and labels of a `YOLODataset`, one record for each sample.

    Coordinates are pixels of the image.

    Args:
        dataset: The dataset.
    """
    boxes, classes, outlines, corners, keypoints = [], [], [], [], []
    is_outlined = has_outlines(dataset)
    for label, shape in zip(dataset.labels, image_shapes(dataset), strict=True):
        height, width = shape
        sides = np.array([width, height], np.float64)
        if not label.get("normalized", True):
            sides = np.ones(2)
        found = np.asarray(label["bboxes"], np.float64).reshape(-1, 2, 2) * sides
        low, high = found[:, 0], found[:, 1]
        if label.get("bbox_format", "xywh") == "xywh":
            low, high = low - high / 2, low + high / 2
        boxes.append(np.concatenate([low, high], 1).astype("f4").reshape(-1))
        classes.append(np.asarray(label["cls"]).reshape(-1).astype(np.int64))
        if is_outlined:
            polygons = [
                np.asarray(one, np.float64).reshape(-1, 2) * sides
                for one in label["segments"]
            ]
            outlines.append(
                _join_points([part for one in polygons for part in (one, _END)])
            )
        if dataset.use_obb:
            corners.append(_join_points(polygons))
        if dataset.use_keypoints:
            points = np.array(label["keypoints"], np.float64).reshape(-1, 3)
            points[:, :2] *= sides
            keypoints.append(points.astype("f4").reshape(-1))
    fields = {"boxes": boxes, "outlines": outlines, "corners": corners}
    fields |= {"keypoints": keypoints}
    canvas = {"canvas": canvases(dataset)} if dataset.rect else {}
    return sources.Memory(
        image=list(dataset.im_files),
        labels=ragged(classes, np.int64),
        number=np.arange(len(dataset.im_files)),
        kinds={"image": "image"},
        **canvas,
        **{name: ragged(lists, np.float32) for name, lists in fields.items() if lists},
    )


def _join_points(parts: list[Array]) -> Array:
    """Returns the numbers of lists of points."""
    return np.concatenate([np.zeros((0, 2)), *parts]).astype("f4").reshape(-1)


def has_outlines(dataset: Any) -> bool:
    """Whether the labels of a `YOLODataset` are outlines, also if it makes no masks."""
    return any(len(label.get("segments", ())) for label in dataset.labels)


def canvases(dataset: Any) -> Array:
    """Returns height and width of the result of each image, ``[n, 2]``."""
    shapes = np.asarray(dataset.batch_shapes, np.int64)
    found: Array = shapes[np.asarray(dataset.batch)]
    return found


def image_shapes(dataset: Any) -> list[tuple[int, int]]:
    """Returns height and width of each image as viewers show it, in pixels.

    Datasets for batches of different shapes have no sizes in their labels any more.
    They come from the files then, which takes about 0.1 ms for each.

    Raises:
        UnknownStepError: The size of an image cannot be read.
    """
    files, found = _known_shapes.get(dataset, (None, []))
    if files is not dataset.im_files:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = list(pool.map(_shape_of, dataset.labels, dataset.im_files))
        _known_shapes[dataset] = dataset.im_files, found
    return found


def _shape_of(label: dict[str, Any], file: str) -> tuple[int, int]:
    """Returns height and width of an image."""
    if "shape" in label:
        height, width = map(int, label["shape"])
        return height, width
    try:
        with open(file, "rb") as opened:
            begin = opened.read(_HEADER_BYTES)
            try:
                return codecs.image_size(begin)
            except ValueError:
                # Metadata may be longer.
                return codecs.image_size(begin + opened.read())
    except (OSError, ValueError) as error:
        raise UnknownStepError(f"the size of {file} is unknown: {error}") from error
