"""Reads the datasets of Ultralytics: images, labels, and augmentation."""

import weakref
from typing import Any

from infeed import sources
from infeed.adopting.adopted_dataset import AdoptedDataset, library_of
from infeed.adopting.image_processors import UnknownStepError
from infeed.adopting.steps import Finding
from infeed.adopting.yolo_chain import flip_pairs, map_stride, read_chain
from infeed.adopting.yolo_labels import has_outlines, image_shapes, yolo_source
from infeed.adopting.yolo_samples import YoloSamples
from infeed.pipeline import Pipeline

# Boxes that Ultralytics keeps: more than two pixels, and a tenth of the area, or a
# hundredth of that around an outline.
_MIN_SIZE, _MIN_VISIBILITY, _MIN_OUTLINE = 2.0, 0.1, 0.01
# Corners of a rotated box.
_CORNERS = 4
# Labels and source of each dataset. A training reads its dataset several times.
_known_sources: weakref.WeakKeyDictionary[Any, tuple[Any, sources.Memory]] = (
    weakref.WeakKeyDictionary()
)


def read_yolo(dataset: Any) -> AdoptedDataset | str:
    """Reads a `YOLODataset` for detectors, segmenters or poses.

    Samples have the fields ``image``, RGB ``[3, height, width]``; ``boxes``, ``[n,
    4]``, left, top, right and bottom in pixels; ``labels``, ``[n]``; and ``number``,
    that of the sample. With batches of different shapes, ``canvas`` is the height and
    width of the image. Datasets for segmentation have ``outlines``, a map of objects;
    those for poses ``keypoints``, ``[n, points, 3]``; and those with rotated boxes
    ``corners``, ``[n, 4, 2]``, and ``outlines``, the corners of the visible part.

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
        image_shapes(dataset)
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
        min_size=_MIN_SIZE if dataset.augment else 0.0,
        min_area=1.0 if dataset.augment else 0.0,
        min_visibility=_least_visible(dataset),
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


def _least_visible(dataset: Any) -> float:
    """Returns the share of its area that a box keeps at least."""
    if not dataset.augment:
        # A validation has all boxes.
        return 0.0
    return _MIN_OUTLINE if has_outlines(dataset) else _MIN_VISIBILITY


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
    if getattr(dataset, "channels", 3) != 3:
        return f"its images have {dataset.channels} channels"
    if not isinstance(dataset.imgsz, int):
        return f"imgsz={dataset.imgsz}"
    segments = [label.get("segments", ()) for label in dataset.labels]
    if any(
        len(one) not in (0, len(label["cls"]))
        for one, label in zip(segments, dataset.labels, strict=True)
    ):
        return "some of its labels are outlines, and some are boxes"
    if dataset.use_obb and any(len(one) != _CORNERS for of in segments for one in of):
        return "its rotated boxes have no four corners"
    return ""
