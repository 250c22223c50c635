"""Reads the detection datasets of Ultralytics: labels, and augmentation."""

import copy
from collections.abc import Callable, Sequence
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

# Value of the pixels that no image covers.
_FILL = 114
# Boxes that Ultralytics keeps: more than two pixels, and a tenth of the area.
_MIN_SIZE, _MIN_VISIBILITY = 2.0, 0.1
# Positions from which the other images of a mosaic come, at least. Ultralytics keeps
# eight batches of images.
_WINDOW = 128


def read_yolo(dataset: Any) -> AdoptedDataset | str:
    """Reads a `YOLODataset` for the training of detectors.

    Samples have the fields ``image``, RGB ``[3, size, size]``; ``boxes``, ``[n, 4]``,
    left, top, right and bottom in pixels; ``labels``, ``[n]``; and ``number``, that of
    the sample.

    Returns:
        The dataset, or the reason why Ultralytics makes its samples.
    """
    if library_of(dataset) != "ultralytics" or not hasattr(dataset, "im_files"):
        return ""
    if reason := _find_problem(dataset):
        return reason
    chain = [
        step
        for step in _flat(dataset.transforms)
        if not _is_off(step, has_outlines=False)
    ]
    native, findings = list[Transform](), list[Finding]()
    try:
        for step in _parts(chain, dataset):
            name, became = step(dataset)
            native += became
            made = ", ".join(map(repr, became)) or "arrays of image, boxes and labels"
            findings.append(Finding(name, made))
    except UnknownStepError as error:
        return str(error)
    source, code = _source(dataset)
    records = Pipeline(source).decode(orient=True)
    records = records.boxes(
        "boxes",
        columns=("labels",),
        min_size=_MIN_SIZE,
        min_visibility=_MIN_VISIBILITY,
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

    Args:
        dataset: The dataset, whose labels are boxes.
    """
    boxes, classes = [], []
    for label in dataset.labels:
        height, width = label["shape"]
        found = np.asarray(label["bboxes"], np.float64).reshape(-1, 4)
        if label.get("normalized", True):
            found = found * [width, height, width, height]
        if label.get("bbox_format", "xywh") == "xywh":
            centre, half = found[:, :2], found[:, 2:] / 2
            found = np.concatenate([centre - half, centre + half], 1)
        boxes.append(found.astype(np.float32).reshape(-1))
        classes.append(np.asarray(label["cls"]).reshape(-1).astype(np.int64))
    return sources.Memory(
        image=list(dataset.im_files),
        boxes=ragged(boxes, np.float32),
        labels=ragged(classes, np.int64),
        number=np.arange(len(dataset.im_files)),
        kinds={"image": "image"},
    )


def _source(dataset: Any) -> tuple[sources.Memory, str]:
    return yolo_source(dataset), "yolo_source(dataset)"


def _find_problem(dataset: Any) -> str:
    """Returns the reason why infeed cannot make the samples of a dataset."""
    if type(dataset).__name__ != "YOLODataset":
        return f"infeed has no {type(dataset).__name__}"
    if not getattr(dataset, "augment", False):
        return "it has no augmentation: validation stays with Ultralytics"
    if getattr(dataset, "rect", False):
        return "rect=True: its batches have different shapes"
    for flag, task in (
        ("use_segments", "segment"),
        ("use_keypoints", "pose"),
        ("use_obb", "obb"),
    ):
        if getattr(dataset, flag, False):
            return f'task="{task}"'
    if getattr(dataset, "channels", 3) != 3:
        return f"its images have {dataset.channels} channels"
    if not isinstance(dataset.imgsz, int):
        return f"imgsz={dataset.imgsz}"
    if any(len(label.get("segments", ())) for label in dataset.labels):
        return (
            "its labels are outlines: Ultralytics makes the box of an object at the "
            "edge from the visible part of its outline"
        )
    if any("shape" not in label for label in dataset.labels):
        return "its labels have no sizes of images"
    return ""


def _flat(step: Any) -> list[Any]:
    """Returns the steps of a chain, also of nested ones."""
    if type(step).__name__ == "Compose":
        return [part for one in step.transforms for part in _flat(one)]
    return [step]


def _is_off(step: Any, *, has_outlines: bool) -> bool:
    """Whether a step never changes a sample."""
    name = type(step).__name__
    if name == "Albumentations":
        return getattr(step, "transform", None) is None
    if name == "CopyPaste":
        return not has_outlines or not _value(step, "p")
    if name in ("MixUp", "CutMix", "RandomFlip", "Mosaic"):
        return not _value(step, "p")
    if name == "RandomHSV":
        return not any(_value(step, gain) for gain in ("hgain", "sgain", "vgain"))
    return False


def _value(step: Any, name: str) -> Any:
    """Returns a parameter of a step."""
    if not hasattr(step, name):
        kind = type(step).__name__
        raise UnknownStepError(
            f"{kind} of this version of Ultralytics has no {name}; install a version "
            "that infeed knows"
        )
    return getattr(step, name)


# A part of the chain: its name, and the transforms for it.
_Part = Callable[[Any], tuple[str, list[Transform]]]


def _parts(chain: Sequence[Any], dataset: Any) -> list[_Part]:
    """Returns the parts of a chain in their order, each as a function of the dataset.

    Raises:
        UnknownStepError: A step is not known, or comes at another place.
    """
    names = [type(step).__name__ for step in chain]
    expected = ("Mosaic", "RandomPerspective", "RandomHSV", "RandomFlip", "Format")
    for name, step in zip(names, chain, strict=True):
        if name not in expected:
            raise UnknownStepError(f"{name}: {_setting(step)}")
    order = [expected.index(name) for name in names]
    if order != sorted(order) or "RandomPerspective" not in names:
        raise UnknownStepError(f"its steps have another order: {', '.join(names)}")
    parts: list[_Part] = []
    if names[0] != "Mosaic":
        parts.append(_fit)
    translators = {
        "Mosaic": _mosaic,
        "RandomPerspective": _perspective,
        "RandomHSV": _hsv,
        "RandomFlip": _flip,
        "Format": _format,
    }
    for name, step in zip(names, chain, strict=True):
        parts.append(_bind(translators[name], step))
    return parts


def _bind(
    translator: Callable[[Any, Any], tuple[str, list[Transform]]], step: Any
) -> _Part:
    return lambda dataset: translator(step, dataset)


def _setting(step: Any) -> str:
    """Returns the argument of the trainer that turns a step on."""
    arguments = {
        "MixUp": "mixup",
        "CutMix": "cutmix",
        "CopyPaste": "copy_paste",
    }
    name = type(step).__name__
    if name in arguments:
        return f"{arguments[name]}={step.p}"
    if name == "Albumentations":
        return "the package albumentations is installed, or augmentations= is set"
    return "infeed does not have it"


def _fit(dataset: Any) -> tuple[str, list[Transform]]:
    """The image in the middle of a square."""
    size = dataset.imgsz
    fit = T.LongestMaxSize(size, antialias=False)
    return "imgsz", [fit, T.CropOrPad(size, size, fill=_FILL)]


def _mosaic(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    if _value(step, "n") != 4:
        raise UnknownStepError(f"Mosaic: {step.n} images")
    window = max(_WINDOW, int(getattr(dataset, "max_buffer_length", 0)))
    if getattr(dataset, "cache", None) == "ram":
        window = len(dataset)
    mosaic = T.Mosaic(
        2 * _value(step, "imgsz"),
        p=float(_value(step, "p")),
        window=window,
        antialias=False,
    )
    return "Mosaic", [mosaic]


def _perspective(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    for name in ("shear", "perspective"):
        if _value(step, name):
            raise UnknownStepError(f"RandomPerspective: {name}={getattr(step, name)}")
    size = dataset.imgsz
    if _value(step, "size") != (size, size):
        raise UnknownStepError(f"RandomPerspective: size={step.size}")
    is_mosaic = any(
        type(one).__name__ == "Mosaic" and _value(one, "p")
        for one in _flat(dataset.transforms)
    )
    scale = _value(step, "scale")
    if not isinstance(scale, tuple | list):
        # A factor of zero leaves no pixel.
        scale = max(1 - scale, 1e-3), 1 + scale
    # A share of the size of the result; a mosaic has twice its sides.
    share = float(_value(step, "translate")) / (2 if is_mosaic else 1)
    affine = T.RandomAffine(
        float(_value(step, "degrees")),
        translate=(share, share),
        scale=(float(scale[0]), float(scale[1])),
        interpolation="bilinear",
        fill=_FILL,
    )
    return "RandomPerspective", [affine, *([T.CenterCrop(size)] if is_mosaic else [])]


def _hsv(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    gains = [float(_value(step, name)) for name in ("hgain", "sgain", "vgain")]
    return "RandomHSV", [T.RandomHSV(*gains)]


def _flip(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    direction, p = _value(step, "direction"), float(_value(step, "p"))
    kind = {"horizontal": T.RandomHorizontalFlip, "vertical": T.RandomVerticalFlip}
    if direction not in kind:
        raise UnknownStepError(f"RandomFlip: direction={direction}")
    return "RandomFlip", [kind[direction](p)]


def _format(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    if _value(step, "bgr"):
        raise UnknownStepError(f"Format: bgr={step.bgr}")
    if (_value(step, "bbox_format"), _value(step, "normalize")) != ("xywh", True):
        raise UnknownStepError("Format: boxes are not shares of the image")
    return "Format", []


class YoloSamples:
    """Samples of a `YOLODataset` with the names and units of the pipeline.

    It does not change the dataset: mosaics come from samples that it is given, and not
    from those that were read before.

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
        for step in _flat(steps):
            if type(step).__name__ == "Mosaic":
                step.buffer_enabled = True
        self._dataset.transforms = steps
        self._among = self._dataset.buffer

    def __len__(self) -> int:
        return len(self._dataset)

    def mix_among(self, numbers: Sequence[int]) -> None:
        """Sets the samples whose images mosaics have."""
        self._among = list(numbers)

    def __getitem__(self, number: int) -> dict[str, Array]:
        others = [other for other in self._among if other != number]
        self._dataset.buffer = others or [number]
        sample = self._dataset[number]
        image = np.asarray(sample["img"])
        height, width = image.shape[1:]
        boxes = np.asarray(sample["bboxes"], np.float64).reshape(-1, 4)
        boxes = boxes * [width, height, width, height]
        centre, half = boxes[:, :2], boxes[:, 2:] / 2
        return {
            "image": image,
            "boxes": np.concatenate([centre - half, centre + half], 1).astype("f4"),
            "labels": np.asarray(sample["cls"]).reshape(-1).astype(np.int64),
        }
