"""Images in folders, with the boxes of their annotations."""

from dataclasses import dataclass
from typing import Literal

from infeed import _check
from infeed.sources.base import Source


@dataclass(frozen=True, repr=False)
class Coco(Source):
    """Images with the boxes of a COCO annotation file for object detection.

    Records are the entries of ``images``, in the order of ids, also those without
    boxes. The fields are ``image``; per box ``boxes`` (left, top, right, bottom in
    pixels), ``labels``, ``area``, ``iscrowd`` and, if asked for, ``keypoints`` and
    ``masks``; and ``image_id``. Boxes, keypoints and masks move with their image;
    `Pipeline.boxes` changes which boxes stay, and `Pipeline.points` sets pairs of
    keypoints. A record is bad if its image is missing, or has another size than the
    file states.

    Args:
        images: Folder or URL of the images.
        annotations: Path or URL of the JSON file.
        labels: ``"id"``: the id of the category, as in the file. ``"index"``: its index
            in the order of ids, from 0.
        keypoints: Number of keypoints of an object, such as 17: each has x, y and
            visibility. Objects without keypoints have invisible ones. None means that
            keypoints are not read.
        masks: Whether to read the mask of each box, from polygons or run lengths.
            Batches hold uint8 masks of 0 and 1, ``[n, height, width]``. Without
            ``decode()``, the field is a JSON text.
        panoptic: Folder or URL of the PNG files of a panoptic segmentation, whose
            annotation file has ``segments_info``. The boxes are then those of the
            segments, with masks from the PNG files, and a record whose PNG has other
            segments is bad. None means annotations of single objects.
        follow_links: Whether to follow symbolic links below ``images`` and
            ``panoptic``. If not, a record whose file is linked is bad.

    Raises:
        ConfigError: Raised when the pipeline is opened: the file is truncated, or an
            entry is invalid; the message names it.
        OpenError: Raised when the pipeline is opened: the file cannot be read.
    """

    images: str
    annotations: str
    labels: Literal["id", "index"] = "id"
    keypoints: int | None = None
    masks: bool = False
    panoptic: str | None = None
    follow_links: bool = True

    def __post_init__(self) -> None:
        for name in ("images", "annotations"):
            object.__setattr__(self, name, _check.path(self, name, getattr(self, name)))
        _check.choice(self, "labels", self.labels, ("id", "index"))
        if self.keypoints is not None:
            _check.integer(self, "keypoints", self.keypoints, low=1)
        _check.flag(self, "masks", self.masks)
        if self.panoptic is not None:
            path = _check.path(self, "panoptic", self.panoptic)
            object.__setattr__(self, "panoptic", path)
        _check.flag(self, "follow_links", self.follow_links)


@dataclass(frozen=True, repr=False)
class Yolo(Source):
    """Images of a folder with the boxes of YOLO text files.

    Each line of a text file is a box: class, centre x, centre y, width, height, in
    shares of the image's sides. A line with the outline of an object gives the box
    around it. Labels for poses are not read. An image without a text file has no
    boxes. The fields are ``image``, and per box ``boxes`` (in the format and unit of
    the files) and ``labels`` (the class). The boxes move with their image;
    `Pipeline.boxes` changes which of them stay.

    Args:
        images: Folder or URL of the images.
        labels: Folder of the text files, with the paths of the images below it. None
            means ``images`` with its last folder ``images`` replaced by ``labels``.
        classes: Path of a text file with the name of a class in each line, or of a
            ``data.yaml`` with the key ``names``. None means that classes have no names.
        corners: Whether to read rotated boxes: a field ``corners`` has x and y of the
            four corners of each box, in shares of the image's sides. They move with the
            image, also outside it.
        follow_links: As in `Folder`. If not, a linked text file is an error.

    Raises:
        ConfigError: Raised when the pipeline is opened: there are no images or no
            labels, or a line is invalid or a label for a pose; the message names it.
        OpenError: Raised when the pipeline is opened: a file cannot be read.
    """

    images: str
    labels: str | None = None
    classes: str | None = None
    corners: bool = False
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", _check.path(self, "images", self.images))
        for name in ("labels", "classes"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, _check.path(self, name, given))
        _check.flag(self, "corners", self.corners)
        _check.flag(self, "follow_links", self.follow_links)


@dataclass(frozen=True, repr=False)
class Voc(Source):
    """Images with the boxes of a dataset in the format of Pascal VOC.

    Records are the lines of ``ImageSets/Main/<image_set>.txt``. An image has the
    extension ``.jpg`` or, without that file, any other. A record is bad if its image
    has another size than its annotation states. The fields are
    ``image``, and per box ``boxes`` (left, top, right, bottom in pixels, from 0),
    ``labels`` (index of the class) and ``difficult``. The boxes move with their image;
    `Pipeline.boxes` changes which of them stay.

    Args:
        path: Folder with ``Annotations``, ``ImageSets`` and ``JPEGImages``, such as
            ``VOCdevkit/VOC2012``.
        image_set: Name of the list, such as ``"trainval"``.
        classes: Names of the classes, in the order of labels. None means the 20 classes
            of the challenge, in alphabetical order.
        follow_links: Whether to follow symbolic links below ``path``. If not, a linked
            image is a bad record, and a linked list or annotation is an error.

    Raises:
        ConfigError: Raised when the pipeline is opened: the list is empty, or an
            annotation is invalid; the message names it.
        OpenError: Raised when the pipeline is opened: a file cannot be read.
    """

    path: str
    image_set: str = "train"
    classes: tuple[str, ...] | None = None
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _check.path(self, "path", self.path))
        _check.field(self, "image_set", self.image_set)
        _check.flag(self, "follow_links", self.follow_links)
        if self.classes is not None:
            kind = tuple[str, ...]
            classes = _check.convert(self, "classes", self.classes, kind)
            object.__setattr__(self, "classes", classes)


@dataclass(frozen=True, repr=False)
class LabelMe(Source):
    """Images of a folder with the rectangles and polygons of LabelMe files.

    An image without a JSON file has no boxes. Shapes with the same label and
    ``group_id`` are one object. A record is bad if its image has another size than its
    file states. The fields are ``image``, and per object
    ``boxes`` (left, top, right, bottom in pixels), ``labels`` (index of the class) and,
    if asked for, ``masks``. They move with their image; `Pipeline.boxes` changes which
    boxes stay.

    Args:
        images: Folder or URL of the images.
        labels: Folder of the JSON files, with the paths of the images below it. None
            means that each file is next to its image.
        classes: Names of the classes, in the order of labels. None means the sorted
            names of all shapes.
        masks: Whether to read the mask of each shape, as `Coco` does.
        follow_links: As in `Folder`. If not, a linked JSON file is an error.

    Raises:
        ConfigError: Raised when the pipeline is opened: there are no images or no
            shapes, or a shape is invalid; the message names it.
        OpenError: Raised when the pipeline is opened: a file cannot be read.
    """

    images: str
    labels: str | None = None
    classes: tuple[str, ...] | None = None
    masks: bool = False
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", _check.path(self, "images", self.images))
        if self.labels is not None:
            path = _check.path(self, "labels", self.labels)
            object.__setattr__(self, "labels", path)
        if self.classes is not None:
            kind = tuple[str, ...]
            classes = _check.convert(self, "classes", self.classes, kind)
            object.__setattr__(self, "classes", classes)
        _check.flag(self, "masks", self.masks)
        _check.flag(self, "follow_links", self.follow_links)
