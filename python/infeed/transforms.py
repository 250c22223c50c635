"""Transforms: what happens to a sample between decoding and its row of the batch.

One frozen dataclass for each transform of the engine, with the same name and
parameters. They are plain settings: drawing random parameters and touching pixels is
the engine's work. Names and behaviour follow torchvision v2; sizes are
``(height, width)``. A geometric transform moves the image and the mask of a sample
together, with one random draw; masks are always sampled nearest and never blended,
except by ``MixUp`` as shares of classes.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from infeed import _check, _code

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CenterCrop",
    "ClassIndex",
    "ColorJitter",
    "Crop",
    "CropOrPad",
    "CutMix",
    "Grayscale",
    "MixUp",
    "Normalize",
    "OneHot",
    "Pad",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToFloat",
    "Transform",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of the ImageNet training images, by channel, in units of 0 to 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of the ImageNet training images, by channel, in the same units."""

_NAMED = {IMAGENET_MEAN: "T.IMAGENET_MEAN", IMAGENET_STD: "T.IMAGENET_STD"}

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]

_PLACES = ("top_left", "top_right", "bottom_left", "bottom_right", "center")
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
_PADDING_MODES = ("constant", "edge", "reflect", "symmetric")
_FLOATS = ("uint8", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Transform:
    """What all transforms have in common: they are settings, equal if those are."""

    def _set(self, **values: Any) -> None:
        """Stores parameters in their checked form; only called while being made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return _code.call(f"T.{type(self).__name__}", self, _NAMED)

    def _to_dict(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: value for name, value in settings.items() if value is not None}
        return {"kind": type(self).__name__, **given}


@dataclass(frozen=True, repr=False)
class Crop(Transform):
    """Cuts a rectangle at a fixed place.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        at: A corner, ``"center"``, or ``(top, left)`` in pixels.

    Raises:
        ConfigError: A parameter is out of range. A record smaller than the rectangle
            is a bad record.
    """

    height: int
    width: int
    at: str | tuple[int, int] = "center"

    def __post_init__(self) -> None:
        if isinstance(self.at, str):
            _check.choice(self, "at", self.at, _PLACES)
        else:
            self._set(at=_check.pair(self, "at", self.at, "a place or (top, left)"))
        self._set(
            height=_check.integer(self, "height", self.height, low=1),
            width=_check.integer(self, "width", self.width, low=1),
        )


@dataclass(frozen=True, repr=False)
class CenterCrop(Transform):
    """Cuts the middle; smaller images are padded with 0 first.

    Args:
        size: Side of a square, or ``(height, width)``.
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        self._set(size=_check.sides(self, "size", self.size))


@dataclass(frozen=True, repr=False)
class RandomCrop(Transform):
    """Cuts a rectangle at a random place.

    Args:
        size: Side of a square, or ``(height, width)``.
        padding: Added before cutting: an int, ``(x, y)`` or
            ``(left, top, right, bottom)``.
        pad_if_needed: Whether images smaller than ``size`` are padded to it. If not,
            they are bad records.
        fill: Value of padded pixels of images, a number or one a channel.
        padding_mode: What padding shows.
        mask_fill: Value of padded pixels of masks.
    """

    size: int | tuple[int, int]
    padding: int | tuple[int, ...] | None = None
    pad_if_needed: bool = False
    fill: float | tuple[float, ...] = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: float | tuple[float, ...] = 0

    def __post_init__(self) -> None:
        padding = self.padding
        if padding is not None:
            padding = _check.margins(self, "padding", padding)
        self._set(
            size=_check.sides(self, "size", self.size),
            padding=padding,
            pad_if_needed=_check.flag(self, "pad_if_needed", self.pad_if_needed),
            fill=_check.fill(self, "fill", self.fill),
            padding_mode=_check.choice(
                self, "padding_mode", self.padding_mode, _PADDING_MODES
            ),
            mask_fill=_check.fill(self, "mask_fill", self.mask_fill),
        )


@dataclass(frozen=True, repr=False)
class RandomResizedCrop(Transform):
    """Cuts a random part, then resizes it. Pixels outside the part do not contribute.

    Args:
        size: Side of a square, or ``(height, width)``.
        scale: Share of the area that is cut, (low, high).
        ratio: Width by height of what is cut, (low, high).
        interpolation: Filter for images, antialiased.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        self._set(
            size=_check.sides(self, "size", self.size),
            scale=_check.interval(self, "scale", self.scale, low=0),
            ratio=_check.interval(self, "ratio", self.ratio, low=1e-6),
            interpolation=_check.choice(
                self, "interpolation", self.interpolation, _INTERPOLATIONS
            ),
        )


@dataclass(frozen=True, repr=False)
class Resize(Transform):
    """Resizes, antialiased as Pillow does.

    Args:
        size: Length of the short side, or the exact ``(height, width)``.
        interpolation: Filter for images.
        max_size: Limit of the long side, in pixels; only where ``size`` is an int.
    """

    size: int | tuple[int, int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None

    def __post_init__(self) -> None:
        max_size = self.max_size
        if max_size is not None:
            max_size = _check.integer(self, "max_size", max_size, low=1)
        self._set(
            size=_check.sides(self, "size", self.size),
            interpolation=_check.choice(
                self, "interpolation", self.interpolation, _INTERPOLATIONS
            ),
            max_size=max_size,
        )


@dataclass(frozen=True, repr=False)
class Pad(Transform):
    """Adds a border.

    Args:
        padding: An int, ``(x, y)`` or ``(left, top, right, bottom)``, in pixels.
        fill: Value of padded pixels of images, a number or one a channel.
        padding_mode: What the border shows.
        mask_fill: Value of padded pixels of masks.
    """

    padding: int | tuple[int, ...]
    fill: float | tuple[float, ...] = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: float | tuple[float, ...] = 0

    def __post_init__(self) -> None:
        self._set(
            padding=_check.margins(self, "padding", self.padding),
            fill=_check.fill(self, "fill", self.fill),
            padding_mode=_check.choice(
                self, "padding_mode", self.padding_mode, _PADDING_MODES
            ),
            mask_fill=_check.fill(self, "mask_fill", self.mask_fill),
        )


@dataclass(frozen=True, repr=False)
class CropOrPad(Transform):
    """Cuts or pads both sides evenly, as TensorFlow's ``resize_with_crop_or_pad``.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        fill: Value of padded pixels of images, a number or one a channel.
        mask_fill: Value of padded pixels of masks.
    """

    height: int
    width: int
    fill: float | tuple[float, ...] = 0
    mask_fill: float | tuple[float, ...] = 0

    def __post_init__(self) -> None:
        self._set(
            height=_check.integer(self, "height", self.height, low=1),
            width=_check.integer(self, "width", self.width, low=1),
            fill=_check.fill(self, "fill", self.fill),
            mask_fill=_check.fill(self, "mask_fill", self.mask_fill),
        )


@dataclass(frozen=True, repr=False)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=_check.number(self, "p", self.p, 0, 1))


@dataclass(frozen=True, repr=False)
class RandomVerticalFlip(Transform):
    """Mirrors top and bottom.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=_check.number(self, "p", self.p, 0, 1))


@dataclass(frozen=True, repr=False)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts.

    Each is a number ``x``, meaning a factor from ``max(0, 1 - x)`` to ``1 + x`` (for
    hue: a shift from ``-x`` to ``x``), or ``(low, high)``.

    Args:
        brightness: 0 leaves it as it is.
        contrast: 0 leaves it as it is.
        saturation: 0 leaves it as it is.
        hue: In turns of the colour circle, -0.5 to 0.5.
    """

    brightness: float | tuple[float, float] = 0
    contrast: float | tuple[float, float] = 0
    saturation: float | tuple[float, float] = 0
    hue: float | tuple[float, float] = 0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation", "hue"):
            low, high = (-0.5, 0.5) if name == "hue" else (0.0, float("inf"))
            value: Any = getattr(self, name)
            if hasattr(value, "__iter__"):
                value = _check.interval(self, name, value, low, high)
            else:
                value = _check.number(self, name, value, 0, high)
            self._set(**{name: value})


@dataclass(frozen=True, repr=False)
class Grayscale(Transform):
    """Turns images gray.

    Args:
        num_output_channels: 1, or 3 with equal channels.
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        if self.num_output_channels not in (1, 3):
            raise _check.refusal(
                self, "num_output_channels", "1 or 3", self.num_output_channels
            )


@dataclass(frozen=True, repr=False)
class RandomErasing(Transform):
    """Overwrites a random rectangle of images.

    Args:
        p: Probability, 0 to 1.
        scale: Share of the area that is erased, (low, high).
        ratio: Width by height of the rectangle, (low, high).
        value: A number, or one a channel; in the units the image has at that place
            of the pipeline (0 to 255, or what ``ToFloat``/``Normalize`` made of it).
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | tuple[float, ...] = 0

    def __post_init__(self) -> None:
        self._set(
            p=_check.number(self, "p", self.p, 0, 1),
            scale=_check.interval(self, "scale", self.scale, 0, 1),
            ratio=_check.interval(self, "ratio", self.ratio, low=1e-6),
            value=_check.fill(self, "value", self.value),
        )


@dataclass(frozen=True, repr=False)
class ToFloat(Transform):
    """Scales uint8 to floats from 0 to 1.

    Args:
        field: The field it is for; None means every image.
    """

    field: str | None = None

    def __post_init__(self) -> None:
        if self.field is not None:
            self._set(field=_check.field(self, "field", self.field))


@dataclass(frozen=True, repr=False)
class Normalize(Transform):
    """Subtracts a mean and divides by a standard deviation.

    On uint8 it includes the division by 255; after ``ToFloat`` nothing is divided
    twice.

    Args:
        mean: One number a channel, in units of 0 to 1.
        std: One number a channel, in units of 0 to 1.
        field: The field it is for; None means every image.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    field: str | None = None

    def __post_init__(self) -> None:
        mean = _check.numbers(self, "mean", self.mean)
        std = _check.numbers(self, "std", self.std, low=0)
        if 0 in std:
            raise _check.refusal(self, "std", "greater than 0", self.std)
        if len(mean) != len(std):
            raise _check.refusal(
                self, "std", f"as long as mean ({len(mean)})", self.std
            )
        self._set(mean=tuple(map(float, mean)), std=tuple(map(float, std)))
        if self.field is not None:
            self._set(field=_check.field(self, "field", self.field))


@dataclass(frozen=True, repr=False)
class _Classes(Transform):
    """What ``OneHot`` and ``ClassIndex`` share: what the mask stores, and its check."""

    field: str = "mask"
    palette: str | None = None
    classes: int | None = None
    dtype: str = ""
    values: tuple[int, ...] | None = None
    unknown: Literal["error", "ignore"] = "error"
    ignore_index: int | None = None

    def _check_content(self) -> None:
        """Checks what the mask stores, and what is said of pixels of no class.

        Raises:
            ConfigError: As said.
        """
        contents = (self.palette, self.classes, self.values)
        if sum(content is not None for content in contents) != 1:
            raise _check.refusal(
                self, "palette", "given, or classes, or values, and not two", contents
            )
        if self.palette is not None:
            self._set(palette=_check.path(self, "palette", self.palette))
        if self.classes is not None:
            self._set(classes=_check.integer(self, "classes", self.classes, low=1))
        if self.values is not None:
            self._set(values=_check.stored_values(self, "values", self.values))
        if isinstance(self.unknown, int):
            raise _check.refusal(
                self,
                "unknown",
                f'"error" or "ignore"; use ignore_index={self.unknown} for the index '
                "of pixels of no class",
                self.unknown,
            )
        self._set(
            field=_check.field(self, "field", self.field),
            unknown=_check.choice(self, "unknown", self.unknown, ("error", "ignore")),
        )


@dataclass(frozen=True, repr=False)
class OneHot(_Classes):
    """Turns class labels by pixel into one channel per class.

    Give exactly one of ``palette``, ``classes`` and ``values``. A pixel of no class
    makes its record a bad one, unless ``unknown`` or ``ignore_index`` accepts it: it is
    then 0 in all channels, and counted in ``loader.stats()["unknown_pixels"]``.

    Args:
        field: The mask it is for.
        palette: Path of a CSV file ``name,r,g,b`` with a header; for masks that show
            classes as colours.
        classes: Number of classes; for masks that store their indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the channels, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Stored value of pixels that have no class; no other is accepted.

    Shape:
        ``[H, W, classes]``, or ``[classes, H, W]`` in layout CHW; values 0 and 1.
    """

    dtype: Literal["uint8", "float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        self._check_content()
        if self.ignore_index is not None:
            index = _check.integer(self, "ignore_index", self.ignore_index)
            self._set(ignore_index=index)
        self._set(dtype=_check.choice(self, "dtype", self.dtype, _FLOATS))


@dataclass(frozen=True, repr=False)
class ClassIndex(_Classes):
    """Turns the colours or stored values of a mask into class indices.

    Many times smaller than one-hot on the way to the device: 48 times for 12 classes in
    float32.

    Give exactly one of ``palette``, ``classes`` and ``values``. A pixel of no class
    makes its record a bad one, unless ``unknown`` or ``ignore_index`` accepts it: it
    then gets the index ``ignore_index``, and is counted in
    ``loader.stats()["unknown_pixels"]``.

    Args:
        field: The mask it is for.
        palette: Path of a CSV file ``name,r,g,b`` with a header; for masks that show
            classes as colours.
        classes: Number of classes; for masks that store their indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the indices, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Index of accepted pixels of no class; None is 255. Given, it also
            accepts pixels that store this index, and in a mask of colours, which
            stores none, all colours that are not in the palette.

    Shape:
        ``[H, W]``.
    """

    dtype: Literal["uint8", "int64"] = "uint8"

    def __post_init__(self) -> None:
        self._check_content()
        if self.ignore_index is not None:
            index = _check.integer(self, "ignore_index", self.ignore_index, -(2**63))
            self._set(ignore_index=index)
        self._set(dtype=_check.choice(self, "dtype", self.dtype, ("uint8", "int64")))


@dataclass(frozen=True, repr=False)
class _Mixing(Transform):
    """What ``MixUp`` and ``CutMix`` share: settings, and how they are checked."""

    alpha: float = 1.0
    p: float = 1.0
    field: str | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        self._set(
            alpha=_check.number(self, "alpha", self.alpha, 0.001, 1000),
            p=_check.number(self, "p", self.p, 0, 1),
        )
        if self.field is not None:
            self._set(field=_check.field(self, "field", self.field))
        if self.classes is not None:
            self._set(classes=_check.integer(self, "classes", self.classes, low=1))


@dataclass(frozen=True, repr=False)
class MixUp(_Mixing):
    """Blends each sample with that of another position (Zhang et al., 2018).

    Every number becomes ``share * own + (1 - share) * partner``, in images, one-hot
    masks of a float type, and labels; the share is drawn from Beta(alpha, alpha). The
    partner is a function of seed, epoch and position, made as it would be at its own
    position, by whichever rank needs it: a sample costs two decodes, and other numbers
    of ranks and workers give the same batches. Where shards are shuffled in windows the
    partner is of the same window.

    Comes last, on samples of one size. Together with ``CutMix``, at most one of both is
    done to a sample, each with its own ``p``, which may add up to 1.

    Args:
        alpha: Both parameters of the beta distribution; the smaller, the nearer the
            share is to 0 or 1.
        p: Probability, 0 to 1.
        field: The labels, class numbers or float32; None means ``label``, where there
            is one.
        classes: Number of classes; None means as many as the source has names of.

    Shape:
        Labels ``[classes]``, float32, which add up to 1. Other fields stay the sample's
        own.
    """


@dataclass(frozen=True, repr=False)
class CutMix(_Mixing):
    """Puts a rectangle of another position's sample in each sample (Yun et al., 2019).

    Its sides are ``sqrt(1 - share)`` of the image's, the share drawn from Beta(alpha,
    alpha), its middle uniform over the image. Labels are mixed by the area that is left
    after it is cut off at the edges. Masks are cut with their image, class numbers too.

    The partner, the order of transforms and ``p`` are as in ``MixUp``.

    Args:
        alpha: Both parameters of the beta distribution; 1 is uniform.
        p: Probability, 0 to 1.
        field: The labels, class numbers or float32; None means ``label``, where there
            is one.
        classes: Number of classes; None means as many as the source has names of.

    Shape:
        Labels ``[classes]``, float32, which add up to 1. Other fields stay the sample's
        own.
    """


def from_dict(table: dict[str, Any]) -> Transform:
    """Makes the transform that a table of a description names."""
    settings = {
        name: tuple(item) if isinstance(item, list) else item
        for name, item in table.items()
        if name != "kind"
    }
    return _KINDS[table["kind"]](**settings)


_KINDS: dict[str, type[Transform]] = {
    kind.__name__: kind
    for kind in (
        *Transform.__subclasses__(),
        *_Classes.__subclasses__(),
        *_Mixing.__subclasses__(),
    )
    if kind not in (_Classes, _Mixing)
}
