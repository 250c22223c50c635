"""Options of the methods of a pipeline, and columns of its batches."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_type_hints

from infeed import _check, _code
from infeed.errors import ConfigError
from infeed.kinds import Kind

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

_MODES = ("rgb", "gray", "rgba", "stored", "stored16")
_RAGGED = ("offsets", "pad")
_TAILS = ("keep", "drop", "pad", "wrap")


@dataclass(frozen=True)
class Column:
    """One column of a batch.

    Attributes:
        kind: ``"array"``, ``"bytes"``, ``"text"`` or ``"ragged"``.
        dtype: Type of the elements; None for bytes and text.
        shape: Shape in a full batch, rows first. A side that differs between batches is
            None. For lists of boxes or other rows, the shape of all rows together.
            The whole shape is None for bytes, text and lists of numbers.
    """

    kind: str
    dtype: str | None
    shape: tuple[int | None, ...] | None

    @classmethod
    def of_row(
        cls,
        kind: str,
        dtype: str | None,
        rows: int | None,
        shape: Sequence[int | None] | None,
    ) -> Self:
        """Returns the column for a row, or the item of a list, of this shape."""
        if shape is None:
            return cls(kind, dtype, None)
        return cls(kind, dtype, (None if kind == "ragged" else rows, *shape))


@dataclass(frozen=True)
class Cache:
    """The cache of decoded records, for ``open(cache=...)``.

        cache = infeed.Cache(memory="64GiB", disk="/nvme/cache", limit="1TiB")
        with pipeline.open(cache=cache) as loader:
            ...

    Attributes:
        memory: Most memory: bytes, a text such as ``"64GiB"``, or ``"auto"`` for half
            of the free memory. None: records are kept on the disk only.
        disk: Local folder that keeps decoded records for later runs, created if
            missing. Datasets and processes may share it, also with
            `infeed.remote.cache`. None: no folder.
        limit: Most bytes of everything in the folder.

    Raises:
        ConfigError: A value is not a size or a path, or there is neither memory nor
            disk.
    """

    memory: int | str | None = "auto"
    disk: str | os.PathLike[str] | None = None
    limit: int | str = "32GiB"

    def __post_init__(self) -> None:
        if self.memory is None and self.disk is None:
            raise ConfigError("Cache: set memory, disk, or both")
        self._core()

    @classmethod
    def of(
        cls, cache: "int | str | Cache | None"
    ) -> tuple[int | None, str | None, int] | None:
        """Returns the ``cache`` of `open` as the engine takes it."""
        if cache is None:
            return None
        if not isinstance(cache, Cache):
            return (_cache_bytes("open", "cache", cache), None, 0)
        return cache._core()

    def _core(self) -> tuple[int | None, str | None, int]:
        folder = self.disk
        if folder is not None:
            folder = _check.local_folder("Cache", "disk", folder)
        memory = self.memory
        return (
            None if memory is None else _cache_bytes("Cache", "memory", memory),
            folder,
            _check.size_bytes(self.limit, "Cache", "limit"),
        )


def _cache_bytes(owner: str, name: str, limit: int | str) -> int:
    """Returns the bytes of a limit; 0 for ``"auto"``."""
    return 0 if limit == "auto" else _check.size_bytes(limit, owner, name)


@dataclass(frozen=True)
class DecodeOptions:
    """Options of `Pipeline.decode`."""

    orient: bool = False
    verify: bool = True
    dct_scale: bool = False
    max_pixels: int | None = None
    modes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("orient", "verify", "dct_scale"):
            _check.flag("decode", name, getattr(self, name))
        if self.max_pixels is not None:
            _check.integer("decode", "max_pixels", self.max_pixels, low=1)
        for field, mode in self.modes:
            _check.choice("decode", field, mode, _MODES)


@dataclass(frozen=True)
class BoxesOptions:
    """Options of `Pipeline.boxes`."""

    field: str
    format: BoxFormat = "xyxy"
    normalized: bool = False
    oriented: bool | None = None
    columns: tuple[str, ...] = ()
    masks: str | None = None
    outlines: str | None = None
    map_stride: int | None = None
    min_size: float = 1.0
    min_area: float = 1.0
    min_visibility: float = 0.0

    def __post_init__(self) -> None:
        _convert_fields(self, "boxes")

    def code(self) -> str:
        """Returns the call of the method that sets these options."""
        return _code_of(self, "boxes")


@dataclass(frozen=True)
class PointsOptions:
    """Options of `Pipeline.points`."""

    field: str
    count: int | None = None
    visibility: bool = True
    normalized: bool = False
    edges: bool = False
    oriented: bool | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        _convert_fields(self, "points")

    def code(self) -> str:
        """Returns the call of the method that sets these options."""
        return _code_of(self, "points")


class DeclaredFields:
    """The methods of a pipeline that declare the content of fields."""

    _boxes: tuple[BoxesOptions, ...]
    _points: tuple[PointsOptions, ...]
    _kinds: tuple[tuple[str, Kind], ...]

    def _with(self, **changes: Any) -> Self:
        """Returns a copy with other settings."""
        raise NotImplementedError

    def boxes(
        self,
        field: str = "boxes",
        *,
        format: BoxFormat = "xyxy",
        normalized: bool = False,
        oriented: bool | None = None,
        columns: Sequence[str] = (),
        masks: str | None = None,
        outlines: str | None = None,
        map_stride: int | None = None,
        min_size: float = 1.0,
        min_area: float = 1.0,
        min_visibility: float = 0.0,
    ) -> Self:
        """Declares a field of boxes, which move with their image.

        Geometric transforms move the boxes with the pixels by the same draw, and clip
        them to the image, as those of torchvision v2 do. Boxes that are too small
        afterwards are dropped, as by ``SanitizeBoundingBoxes``, with their rows in
        ``columns``. Batches hold the boxes as float32, in the same format and unit.

        The number of boxes may differ by record. A batch holds ``(values, offsets)``,
        or padded arrays with ``.batch(..., ragged="pad")``.

        Args:
            field: Name of the field: a list of numbers, four for each box, or an array
                ``[n, 4]``.
            format: Meaning of the four numbers: ``"xyxy"`` (left, top, right, bottom),
                ``"xywh"`` (left, top, width, height) or ``"cxcywh"`` (centre, width,
                height).
            normalized: Whether coordinates are shares of the image's width and height,
                0 to 1. Otherwise they are pixels.
            oriented: Whether coordinates refer to the image as viewers show it, in its
                EXIF orientation; set it together with ``decode(orient=True)``.
                Otherwise they refer to the stored pixels, and ``decode(orient=True)``
                turns the boxes with the image. None means True for the boxes of
                ``Coco``, ``Yolo``, ``Voc`` and ``LabelMe``, and otherwise False.
            columns: Names of fields with one number, or one row, per box, such as
                labels. Their values do not change.
            masks: Name of the field with the mask of each box: a text with a JSON list
                of the ``segmentation`` of COCO, or uint8 or bool numbers
                ``[n, height, width]``. Masks move with the pixels, by nearest
                neighbour. Batches hold them as uint8, 0 and 1.
            outlines: Name of the field with the outline of each box: a text with a JSON
                list of the polygons of COCO, or floats, x and y of each corner in the
                unit of the boxes, with two NaN after each outline. Corners move with
                the pixels, and a box becomes the box around the visible part of its
                outline. Batches hold the corners of this part, float32
                ``[corners, 2]``, with a row of NaN after each outline.
            map_stride: Pixels of the image per pixel of a map, on each axis. Batches
                then hold a map instead of corners, int32 ``[n, H // map_stride, W //
                map_stride]``: the number of the sample's box from 1, or 0.
            min_size: Minimum width and height of a box in the result, in pixels.
            min_area: Minimum area of a box in the result, in square pixels.
            min_visibility: Minimum share of a box's area that is still in the image.

        Raises:
            ConfigError: An argument is invalid.
        """
        names = _check.convert("boxes", "columns", columns, tuple[str, ...])
        shapes = (masks, outlines, map_stride)
        sizes = (min_size, min_area, min_visibility)
        declared = BoxesOptions(
            field, format, normalized, oriented, names, *shapes, *sizes
        )
        return self._with(_boxes=(*self._boxes, declared))

    def points(
        self,
        field: str = "keypoints",
        *,
        count: int | None = None,
        visibility: bool = True,
        normalized: bool = False,
        edges: bool = False,
        oriented: bool | None = None,
        pairs: Sequence[tuple[int, int]] = (),
    ) -> Self:
        """Declares a field of points, such as keypoints, which move with their image.

        Geometric transforms move the points with the pixels by the same draw, as those
        of torchvision v2 do: a point is the column and row of a pixel. A point outside
        the image becomes invisible and stays so, with zeros as coordinates. Batches
        hold the points as float32, in the same unit.

        A field that is also in ``columns`` of `boxes` has the points of one object for
        each box, and loses those of dropped boxes.

        Args:
            field: Name of the field: a list of numbers, or an array with the numbers of
                a point in each row.
            count: Number of points of an object. None means the second last dimension
                of an array, and 1 for lists.
            visibility: Whether each point has a third number, its visibility (0 for
                invisible), as in COCO. Without it, points outside the image keep their
                coordinates.
            normalized: Whether coordinates are shares of the image's width and height,
                0 to 1. Otherwise they are pixels.
            edges: Whether points lie on the edges of pixels, as the corners of rotated
                boxes do: a flip maps ``x`` to ``width - x``. Otherwise a point is a
                pixel, and a flip maps ``x`` to ``width - 1 - x``.
            oriented: Whether coordinates refer to the image as viewers show it, in its
                EXIF orientation. Otherwise they refer to the stored pixels, and
                ``decode(orient=True)`` turns the points with the image. None means True
                for the points of ``Coco`` and ``Yolo``, and otherwise False.
            pairs: Numbers of points of an object, from 0, that change places when a
                flip mirrors the image, such as left and right hand.

        Raises:
            ConfigError: An argument is invalid.
        """
        declared = PointsOptions(
            field, count, visibility, normalized, edges, oriented, tuple(pairs)
        )
        return self._with(_points=(*self._points, declared))

    def declare(self, **kinds: Kind) -> Self:
        """Declares the kind of data in fields that the source stores as bytes.

        Args:
            **kinds: Kind by field name: an object of a class in `infeed.kinds`.

        Raises:
            ConfigError: An argument is no kind.
        """
        for name, kind in kinds.items():
            if not isinstance(kind, Kind):
                raise _check.error("declare", name, "one of infeed.kinds", kind)
        declared = dict(self._kinds) | kinds
        return self._with(_kinds=tuple(sorted(declared.items())))

    def _declared_code(self) -> list[str]:
        """Returns the calls that declare fields."""
        calls = [declared.code() for declared in self._boxes]
        calls += [declared.code() for declared in self._points]
        if self._kinds:
            kinds = [f"{name}={kind!r}" for name, kind in self._kinds]
            calls.append(_code.method("declare", kinds))
        return calls

    def _declared_to_dict(self) -> dict[str, Any]:
        """Returns the declarations for a description."""
        parts = {
            "boxes": [set_values(declared) for declared in self._boxes],
            "points": [set_values(declared) for declared in self._points],
            "declare": {name: kind._to_dict() for name, kind in self._kinds},
        }
        return {name: part for name, part in parts.items() if part}

    def _declared_by(self, description: dict[str, Any]) -> Self:
        """Returns the pipeline with the declarations of a description."""
        new = self
        for declared in description.get("boxes", ()):
            new = new.boxes(**declared)
        for declared in description.get("points", ()):
            new = new.points(**declared)
        kinds = description.get("declare", {})
        return new.declare(**{k: Kind._from_dict(v) for k, v in kinds.items()})


def _convert_fields(options: Any, owner: str) -> None:
    """Converts the fields of a declaration to their types."""
    for name, kind in get_type_hints(type(options)).items():
        value = _check.convert(owner, name, getattr(options, name), kind)
        object.__setattr__(options, name, value)


def _code_of(options: Any, method: str) -> str:
    """Returns the call of a method with a declaration's field and its other options."""
    given = [(f, getattr(options, f.name)) for f in fields(options)[1:]]
    settings = [
        f"{f.name}={_code.value(item)}" for f, item in given if item != f.default
    ]
    return _code.method(method, [_code.value(options.field), *settings])


@dataclass(frozen=True)
class BatchOptions:
    """Options of `Pipeline.batch`.

    One of `size`, `per_rank` and `max_tokens` is set, or `size` and `max_tokens`.
    """

    size: int | None = None
    per_rank: int | None = None
    drop_last: bool = False
    pad: bool = False
    ragged: str | None = None
    tail: str | None = None
    max_tokens: int | None = None
    multiple_of: int | None = None

    def __post_init__(self) -> None:
        sizes = [self.size, self.per_rank]
        if self.max_tokens is None and sizes.count(None) != 1:
            raise _check.error(
                "batch", "size", "set, or per_rank, and not both", self.size
            )
        if self.max_tokens is None and self.multiple_of is not None:
            expected = "left out without max_tokens"
            raise _check.error("batch", "multiple_of", expected, self.multiple_of)
        for name in ("size", "per_rank", "max_tokens", "multiple_of"):
            if getattr(self, name) is not None:
                _check.integer("batch", name, getattr(self, name), low=1)
        for name in ("drop_last", "pad"):
            _check.flag("batch", name, getattr(self, name))
        if self.ragged is not None:
            _check.choice("batch", "ragged", self.ragged, _RAGGED)
        if self.tail is not None:
            _check.choice("batch", "tail", self.tail, _TAILS)

    def code(self, lengths: str | None) -> str:
        """Formats the call; `lengths` describes the array of lengths."""
        settings = [] if self.size is None else [f"{self.size}"]
        for name in ("drop_last", "pad"):
            settings += [f"{name}=True"] if getattr(self, name) else []
        for name in ("per_rank", "max_tokens", "multiple_of", "ragged", "tail"):
            if (value := getattr(self, name)) is not None:
                settings.append(f"{name}={_code.value(value)}")
        if lengths is not None:
            settings.append(f"lengths=<{lengths}>")
        return _code.method("batch", settings)


SINGLE = BatchOptions(size=1)


def set_values(settings: Any) -> dict[str, Any]:
    """Returns the settings of a dataclass that are not None."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {name: item for name, item in values.items() if item is not None}
