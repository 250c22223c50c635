"""Reads the datasets of Ultralytics: images, labels, and augmentation."""

import weakref
from typing import Any

import numpy as np

from infeed import sources
from infeed.adopting.adopted_dataset import AdoptedDataset, library_of
from infeed.adopting.image_processors import UnknownStepError
from infeed.adopting.samples import Array, ragged
from infeed.adopting.steps import Finding
from infeed.adopting.yolo_chain import flip_pairs, map_stride, read_chain
from infeed.adopting.yolo_samples import YoloSamples
from infeed.pipeline import Pipeline

# Boxes that Ultralytics keeps: more than two pixels, and a tenth of the area, or a
# hundredth of that around an outline.
_MIN_SIZE, _MIN_VISIBILITY, _MIN_OUTLINE = 2.0, 0.1, 0.01
# Corners of a rotated box.
_CORNERS = 4
# Ends an outline.
_END = np.full((1, 2), np.nan)
# Labels and source of each dataset. A training reads its dataset several times.
_known_sources: weakref.WeakKeyDictionary[Any, tuple[Any, sources.Memory]] = (
    weakref.WeakKeyDictionary()
)


def read_yolo(dataset: Any) -> AdoptedDataset | str:
    """Reads a `YOLODataset` for the training of detectors, segmenters or poses.

    Samples have the fields ``image``, RGB ``[3, size, size]``; ``boxes``, ``[n, 4]``,
    left, top, right and bottom in pixels; ``labels``, ``[n]``; and ``number``, that of
    the sample. Datasets for segmentation have ``outlines``, a map of objects; those for
    poses ``keypoints``, ``[n, points, 3]``; and those with rotated boxes ``corners``,
    ``[n, 4, 2]``, and ``outlines``, the corners of the visible part.

    Returns:
        The dataset, or the reason why Ultralytics makes its samples.
    """
    if library_of(dataset) != "ultralytics" or not hasattr(dataset, "im_files"):
        return ""
    if reason := _find_problem(dataset):
        return reason
    try:
        native, findings = read_chain(dataset)
        pairs, stride = flip_pairs(dataset), map_stride(dataset)
    except UnknownStepError as error:
        return str(error)
    source, code = _source(dataset)
    outlines = "outlines" if has_outlines(dataset) else None
    columns = ["labels"]
    records = Pipeline(source).decode(orient=True)
    if dataset.use_keypoints:
        columns.append("keypoints")
        count = dataset.data["kpt_shape"][0]
        records = records.points("keypoints", count=count, edges=True, pairs=pairs)
    if dataset.use_obb:
        columns.append("corners")
        records = records.points(
            "corners", count=_CORNERS, edges=True, visibility=False
        )
    records = records.boxes(
        "boxes",
        columns=columns,
        outlines=outlines,
        map_stride=stride,
        min_size=_MIN_SIZE,
        min_visibility=_MIN_OUTLINE if outlines else _MIN_VISIBILITY,
    )
    records = records.transform(*native, layout="CHW")
    meaning = "dataset: the YOLODataset of the adopted loader"
    name = f"{type(dataset).__name__} of {len(dataset)} images"
    return AdoptedDataset(
        YoloSamples(dataset),
        records,
        (Finding(name, "sources.Memory, labels as it read them"), *findings),
        "dict",
        names={repr(source): (code, meaning)},
        variables={"dataset": dataset},
    )


def yolo_source(dataset: Any) -> sources.Memory:
    """Returns the images and labels of a `YOLODataset`, one record for each sample.

    Coordinates are pixels of the image.

    Args:
        dataset: The dataset.
    """
    boxes, classes, outlines, corners, keypoints = [], [], [], [], []
    is_outlined = has_outlines(dataset)
    for label in dataset.labels:
        height, width = label["shape"]
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
    return sources.Memory(
        image=list(dataset.im_files),
        labels=ragged(classes, np.int64),
        number=np.arange(len(dataset.im_files)),
        kinds={"image": "image"},
        **{name: ragged(lists, np.float32) for name, lists in fields.items() if lists},
    )


def _join_points(parts: list[Array]) -> Array:
    """Returns the numbers of lists of points."""
    return np.concatenate([np.zeros((0, 2)), *parts]).astype("f4").reshape(-1)


def has_outlines(dataset: Any) -> bool:
    """Whether the labels of a `YOLODataset` are outlines, also if it makes no masks."""
    return any(len(label.get("segments", ())) for label in dataset.labels)


def _source(dataset: Any) -> tuple[sources.Memory, str]:
    """Returns the source of a dataset, which is made once, and its code."""
    labels, source = _known_sources.get(dataset, (None, None))
    if source is None or labels is not dataset.labels:
        source = yolo_source(dataset)
        _known_sources[dataset] = dataset.labels, source
    return source, "yolo_source(dataset)"


def _find_problem(dataset: Any) -> str:
    """Returns the reason why infeed cannot make the samples of a dataset."""
    if type(dataset).__name__ != "YOLODataset":
        return f"infeed has no {type(dataset).__name__}"
    if not getattr(dataset, "augment", False):
        return "it has no augmentation: validation stays with Ultralytics"
    if getattr(dataset, "rect", False):
        return "rect=True: its batches have different shapes"
    if getattr(dataset, "channels", 3) != 3:
        return f"its images have {dataset.channels} channels"
    if not isinstance(dataset.imgsz, int):
        return f"imgsz={dataset.imgsz}"
    if any("shape" not in label for label in dataset.labels):
        return "its labels have no sizes of images"
    segments = [label.get("segments", ()) for label in dataset.labels]
    if any(
        len(one) not in (0, len(label["cls"]))
        for one, label in zip(segments, dataset.labels, strict=True)
    ):
        return "some of its labels are outlines, and some are boxes"
    if dataset.use_obb and any(len(one) != _CORNERS for of in segments for one in of):
        return "its rotated boxes have no four corners"
    return ""
