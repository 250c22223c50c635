"""Transforms: the steps between the decoder and a sample's row in the batch.

Each transform of the engine has one frozen dataclass here, with the same name and
parameters. A dataclass holds settings only: the engine draws random parameters and
changes pixels. Names and behaviour follow torchvision v2, and sizes are
``(height, width)``. A geometric transform moves the image and the mask of a sample
together, with one random draw. Masks are always sampled with ``nearest`` and never
blended, except by ``MixUp``, which blends one-hot classes.

A wrong parameter raises `ConfigError` when the transform is made. Python checks types,
and the engine checks ranges.
"""

import json
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, get_type_hints

from infeed import _check, _code, _core
from infeed.errors import ConfigError

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
"""Mean of the ImageNet training images by channel, in units of 0 to 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of the ImageNet training images by channel, in units of 0 to 1."""

_CONSTANTS = {IMAGENET_MEAN: "T.IMAGENET_MEAN", IMAGENET_STD: "T.IMAGENET_STD"}

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Position = Literal["top_left", "top_right", "bottom_left", "bottom_right", "center"]
Padding = int | tuple[int, int] | tuple[int, int, int, int]

# Descriptions of types that messages give in place of Python's notation.
_EXPECTED = {
    "at": 'a position such as "center", or (top, left)',
    "padding": "an integer, (x, y) or (left, top, right, bottom)",
    "ratio": "(low, high)",
    "scale": "(low, high)",
    "size": "an integer or (height, width)",
    "unknown": '"error" or "ignore"; ignore_index=N sets the index of such pixels',
}


@dataclass(frozen=True)
class Transform:
    """Base class of all transforms. Transforms with equal parameters are equal."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            # Only ClassIndex writes the number into its result, so only it is signed.
            low = None if name == "ignore_index" else 0
            checked = _check.typed(self, name, value, kind, low, _EXPECTED.get(name))
            object.__setattr__(self, name, checked)
        try:
            _core.check_transform(json.dumps(self._to_dict()))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def __repr__(self) -> str:
        return _code.call(f"T.{type(self).__name__}", self, _CONSTANTS)

    def _to_dict(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: value for name, value in settings.items() if value is not None}
        return {"kind": type(self).__name__, **given}


@dataclass(frozen=True, repr=False)
class Crop(Transform):
    """Crops a rectangle at a fixed position.

    A record smaller than the rectangle is a bad record.

    Args:
        height: Height of the result in pixels, at least 1.
        width: Width of the result in pixels, at least 1.
        at: A corner, ``"center"``, or ``(top, left)`` in pixels.
    """

    height: int
    width: int
    at: Position | tuple[int, int] = "center"


@dataclass(frozen=True, repr=False)
class CenterCrop(Transform):
    """Crops the centre. Smaller images are padded with 0 first.

    Args:
        size: Side of a square, or ``(height, width)``, in pixels.
    """

    size: int | tuple[int, int]


@dataclass(frozen=True, repr=False)
class RandomCrop(Transform):
    """Crops a rectangle at a random position.

    Args:
        size: Side of a square, or ``(height, width)``, in pixels.
        padding: Border added before the crop, in pixels: an int, ``(x, y)`` or
            ``(left, top, right, bottom)``.
        pad_if_needed: Whether to pad images smaller than ``size``. If False, they are
            bad records.
        fill: Value of padded pixels of images: one number, or one per channel.
        padding_mode: Content of the border.
        mask_fill: Value of padded pixels of masks.
    """

    size: int | tuple[int, int]
    padding: Padding | None = None
    pad_if_needed: bool = False
    fill: float | tuple[float, ...] = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: float | tuple[float, ...] = 0


@dataclass(frozen=True, repr=False)
class RandomResizedCrop(Transform):
    """Crops a random rectangle, then resizes it.

    Pixels outside the rectangle do not contribute to the result.

    Args:
        size: Side of a square, or ``(height, width)``, in pixels.
        scale: Share of the image's area that is cropped, as (low, high).
        ratio: Aspect ratio of the rectangle, width / height, as (low, high).
        interpolation: Filter for images, antialiased.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class Resize(Transform):
    """Resizes images with antialiasing, as Pillow does.

    Args:
        size: Length of the short side, or ``(height, width)``, in pixels.
        interpolation: Filter for images.
        max_size: Limit of the long side, in pixels. Only valid if ``size`` is an int.
    """

    size: int | tuple[int, int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True, repr=False)
class Pad(Transform):
    """Adds a border.

    Args:
        padding: Width of the border in pixels: an int, ``(x, y)`` or
            ``(left, top, right, bottom)``.
        fill: Value of padded pixels of images: one number, or one per channel.
        padding_mode: Content of the border.
        mask_fill: Value of padded pixels of masks.
    """

    padding: Padding
    fill: float | tuple[float, ...] = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: float | tuple[float, ...] = 0


@dataclass(frozen=True, repr=False)
class CropOrPad(Transform):
    """Crops or pads both sides evenly, as TensorFlow's ``resize_with_crop_or_pad``.

    Args:
        height: Height of the result in pixels, at least 1.
        width: Width of the result in pixels, at least 1.
        fill: Value of padded pixels of images: one number, or one per channel.
        mask_fill: Value of padded pixels of masks.
    """

    height: int
    width: int
    fill: float | tuple[float, ...] = 0
    mask_fill: float | tuple[float, ...] = 0


@dataclass(frozen=True, repr=False)
class RandomHorizontalFlip(Transform):
    """Mirrors images left to right.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomVerticalFlip(Transform):
    """Mirrors images top to bottom.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5


@dataclass(frozen=True, repr=False)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts.

    A number ``x`` means a random factor from ``max(0, 1 - x)`` to ``1 + x``. For hue it
    means a random shift from ``-x`` to ``x``. A pair means the range ``(low, high)``.

    Args:
        brightness: Number or range; 0 makes no change.
        contrast: Number or range; 0 makes no change.
        saturation: Number or range; 0 makes no change.
        hue: Number or range in turns of the colour circle, -0.5 to 0.5; 0 makes no
            change.
    """

    brightness: float | tuple[float, float] = 0
    contrast: float | tuple[float, float] = 0
    saturation: float | tuple[float, float] = 0
    hue: float | tuple[float, float] = 0


@dataclass(frozen=True, repr=False)
class Grayscale(Transform):
    """Converts images to grey.

    Args:
        num_output_channels: 1, or 3 for three equal channels.
    """

    num_output_channels: int = 1


@dataclass(frozen=True, repr=False)
class RandomErasing(Transform):
    """Overwrites a random rectangle of each image.

    Args:
        p: Probability, 0 to 1.
        scale: Share of the image's area that is erased, as (low, high).
        ratio: Aspect ratio of the rectangle, width / height, as (low, high).
        value: One number, or one per channel, in the units of the image at this point
            of the pipeline: 0 to 255, or the result of ``ToFloat`` or ``Normalize``.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | tuple[float, ...] = 0


@dataclass(frozen=True, repr=False)
class ToFloat(Transform):
    """Scales uint8 values to floats from 0 to 1.

    Args:
        field: Name of the field; None applies to every image.
    """

    field: str | None = None


@dataclass(frozen=True, repr=False)
class Normalize(Transform):
    """Subtracts a mean and divides by a standard deviation.

    For uint8 images this includes the division by 255. After ``ToFloat`` it does not.

    Args:
        mean: Mean by channel in units of 0 to 1; one number for a single channel.
        std: Standard deviation by channel in units of 0 to 1; as ``mean``.
        field: Name of the field; None applies to every image.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    field: str | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if isinstance(number := getattr(self, name), Real):
                object.__setattr__(self, name, (number,))
        super().__post_init__()
        if len(self.mean) != len(self.std):
            expected = f"as long as mean ({len(self.mean)})"
            raise _check.error(self, "std", expected, self.std)


@dataclass(frozen=True, repr=False)
class _MaskClasses(Transform):
    """Parameters that ``OneHot`` and ``ClassIndex`` share."""

    field: str = "mask"
    palette: str | None = None
    classes: int | None = None
    dtype: str = ""
    values: tuple[int, ...] | None = None
    unknown: Literal["error", "ignore"] = "error"
    ignore_index: int | None = None


@dataclass(frozen=True, repr=False)
class OneHot(_MaskClasses):
    """Converts the class of each mask pixel to one channel per class.

    Set exactly one of ``palette``, ``classes`` and ``values``. A mask that contains a
    pixel of no class is a bad record, unless ``unknown`` or ``ignore_index`` accepts
    the pixel. An accepted pixel is 0 in all channels, and
    ``loader.stats()["unknown_pixels"]`` counts it.

    Args:
        field: Name of the mask.
        palette: Path of a CSV file ``name,r,g,b`` with a header, for masks that store
            classes as colours.
        classes: Number of classes, for masks that store class indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the channels, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Stored value of pixels of no class. Only this value is accepted.

    Shape:
        ``[H, W, classes]``, or ``[classes, H, W]`` in layout CHW; values 0 and 1.
    """

    dtype: Literal["uint8", "float32", "float16", "bfloat16"] = "float32"


@dataclass(frozen=True, repr=False)
class ClassIndex(_MaskClasses):
    """Converts the colours or stored values of a mask to class indices.

    The result is much smaller than one-hot classes: 48 times smaller for 12 classes in
    float32.

    Set exactly one of ``palette``, ``classes`` and ``values``. A mask that contains a
    pixel of no class is a bad record, unless ``unknown`` or ``ignore_index`` accepts
    the pixel. An accepted pixel gets the index ``ignore_index``, and
    ``loader.stats()["unknown_pixels"]`` counts it.

    Args:
        field: Name of the mask.
        palette: Path of a CSV file ``name,r,g,b`` with a header, for masks that store
            classes as colours.
        classes: Number of classes, for masks that store class indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the indices, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Index of accepted pixels of no class; None means 255. If set, it
            also accepts pixels that store this index. In a mask of colours, which
            stores no index, it accepts all colours that are not in the palette.

    Shape:
        ``[H, W]``.
    """

    dtype: Literal["uint8", "int64"] = "uint8"


@dataclass(frozen=True, repr=False)
class _BatchMixing(Transform):
    """Parameters that ``MixUp`` and ``CutMix`` share."""

    alpha: float = 1.0
    p: float = 1.0
    field: str | None = None
    classes: int | None = None


@dataclass(frozen=True, repr=False)
class MixUp(_BatchMixing):
    """Blends each sample with the sample of another position (Zhang et al., 2018).

    Every value becomes ``share * own + (1 - share) * partner`` in images, labels, and
    one-hot masks of a float type. The share is drawn from Beta(alpha, alpha). The
    partner's position is a function of seed, epoch and position. Each rank makes the
    partners that it needs, so a sample costs two decodes, and the batches do not depend
    on the number of ranks and workers. If shards are shuffled in windows, the partner
    is in the same window.

    MixUp must be the last transform, on samples of one size. If ``CutMix`` is there
    too, each sample gets at most one of both, each with its own ``p``. The sum of both
    probabilities may be up to 1.

    Args:
        alpha: Both parameters of the beta distribution. A smaller value gives shares
            closer to 0 or 1.
        p: Probability, 0 to 1.
        field: Name of the labels (class numbers or float32); None means ``label``, if
            that field exists.
        classes: Number of classes; None means the number of class names of the source.

    Shape:
        Labels ``[classes]``, float32, sum 1. Other fields keep their shape.
    """


@dataclass(frozen=True, repr=False)
class CutMix(_BatchMixing):
    """Copies a rectangle of another position's sample into each sample.

    The rectangle's sides are ``sqrt(1 - share)`` of the image's, with the share drawn
    from Beta(alpha, alpha). Its centre is uniform over the image, and the image's edges
    cut it off. Labels are mixed by the area of the rectangle inside the image. Masks
    are cut together with their image, and so are class numbers. See Yun et al., 2019.

    The partner, the order of transforms and ``p`` are as in ``MixUp``.

    Args:
        alpha: Both parameters of the beta distribution; 1 is uniform.
        p: Probability, 0 to 1.
        field: Name of the labels (class numbers or float32); None means ``label``, if
            that field exists.
        classes: Number of classes; None means the number of class names of the source.

    Shape:
        Labels ``[classes]``, float32, sum 1. Other fields keep their shape.
    """


def from_dict(table: dict[str, Any]) -> Transform:
    """Returns the transform that a description's table names."""
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
        *_MaskClasses.__subclasses__(),
        *_BatchMixing.__subclasses__(),
    )
    if kind not in (_MaskClasses, _BatchMixing)
}
