"""Transforms of geometry: crops, sizes, borders, flips and warps."""

from dataclasses import dataclass
from typing import Literal

from infeed.transforms.base import Fill, Interpolation, Transform

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Position = Literal["top_left", "top_right", "bottom_left", "bottom_right", "center"]
Shear = float | tuple[float, float] | tuple[float, float, float, float] | None
Padding = int | tuple[int, int] | tuple[int, int, int, int]


@dataclass(frozen=True, repr=False)
class Crop(Transform):
    """Crops a rectangle at a fixed position.

    An image smaller than the rectangle is a bad record.

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
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class RandomResizedCrop(Transform):
    """Crops a random rectangle, then resizes it.

    Pixels outside the rectangle do not contribute to the result.

    Args:
        size: Side of a square, or ``(height, width)``, in pixels.
        scale: Share of the image's area that is cropped, as (low, high).
        ratio: Aspect ratio of the rectangle, width / height, as (low, high).
        interpolation: Filter for images, antialiased; or several, of which each sample
            draws one.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation | tuple[Interpolation, ...] = "bilinear"


@dataclass(frozen=True, repr=False)
class RandomSizedCrop(Transform):
    """Crops a random square, then resizes it, as the training of DETR detectors does.

    Args:
        size: Side of a square, or ``(height, width)``, in pixels.
        sides: Shortest and longest side of the crop in pixels, as (low, high). Each
            whole number between is equally likely, and so is each position. The shorter
            side of the image limits both.
        interpolation: Filter for images, antialiased.
    """

    size: int | tuple[int, int]
    sides: tuple[int, int]
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class Resize(Transform):
    """Resizes images with antialiasing, as Pillow does.

    Args:
        size: Length of the short side, or ``(height, width)``, in pixels.
        interpolation: Filter for images.
        max_size: Limit of the long side, in pixels. Only valid if ``size`` is an int.
        antialias: False: a pixel is made of the few source pixels next to its centre,
            as ``tf.image.resize`` and Keras do. Smaller images show aliasing.
    """

    size: int | tuple[int, int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool = True


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
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: Fill = 0


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
    fill: Fill = 0
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class CropOrPadTo(Transform):
    """Brings each image to the size that a field of its record has, as `CropOrPad`.

    It suits batches of images with similar shapes: the records of a batch have the
    same size, which differs from batch to batch. Such pipelines need ``.batch(n,
    pad=True)``. A size outside 1 to 2^28 pixels is a bad record.

    Args:
        size_field: Name of the field: two integers, height and width of the result in
            pixels.
        fill: Value of padded pixels of images: one number, or one per channel.
        mask_fill: Value of padded pixels of masks.
    """

    size_field: str
    fill: Fill = 0
    mask_fill: Fill = 0


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
class RandomAffine(Transform):
    """Rotates, moves, scales and shears images by random amounts.

    Args:
        degrees: Rotation, clockwise: a number ``d`` means from ``-d`` to ``d``, a pair
            means (low, high).
        translate: Maximum shift along x and y, as shares of width and height; None
            means no shift. Shifts are whole pixels.
        scale: Factor of lengths, as (low, high); None means 1.
        shear: Degrees: a number ``s`` means from ``-s`` to ``s`` along x, a pair means
            (low, high) along x, four numbers add the range along y.
        perspective: Maximum tilt of the image plane around its centre along x and y,
            up to 0.01, as in Ultralytics: lengths at ``d`` pixels from the centre are
            divided by ``1 + t * d``, where ``t`` is between minus this number and this
            number. It should be below 2 / (width + height), so that no part of the
            image is behind the viewer. None means 0.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel.
        center: (x, y) of the centre in pixels; None means the centre of the image.
        mask_fill: Value of pixels outside the mask.
    """

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: Shear = None
    interpolation: Interpolation = "nearest"
    fill: Fill = 0
    center: tuple[float, float] | None = None
    mask_fill: Fill = 0
    perspective: float | None = None


@dataclass(frozen=True, repr=False)
class RandomRotation(Transform):
    """Rotates images by a random angle.

    Args:
        degrees: Counter-clockwise: a number ``d`` means from ``-d`` to ``d``, a pair
            means (low, high).
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        expand: Whether the result becomes as large as needed to hold the whole image.
            Otherwise it has the size of the image.
        center: (x, y) of the centre in pixels; None means the centre of the image.
            Not allowed with ``expand``.
        fill: Value of pixels outside the image: one number, or one per channel.
        mask_fill: Value of pixels outside the mask.
    """

    degrees: float | tuple[float, float]
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: tuple[float, float] | None = None
    fill: Fill = 0
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class RandomPerspective(Transform):
    """Moves each corner of an image inwards by a random number of pixels.

    Args:
        distortion_scale: Maximum shift of a corner, as a share of half the width and
            half the height, 0 to 1.
        p: Probability, 0 to 1.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel.
        mask_fill: Value of pixels outside the mask.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class ElasticTransform(Transform):
    """Moves each pixel by a random shift that changes smoothly over the image.

    Shifts are noise from -1 to 1 by pixel, blurred with a Gaussian filter of
    ``8 * sigma + 1`` pixels, times half of ``alpha`` (Simard et al., 2003). An image
    whose side is not longer than half the filter is a bad record. Boxes and points move
    by the shift of their pixel, which is not the exact inverse.

    Args:
        alpha: Strength of the shifts, or the strengths (x, y).
        sigma: Standard deviation of the filter in pixels, up to 127, or (x, y). 0 means
            no filter.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel.
        mask_fill: Value of pixels outside the mask.
    """

    alpha: float | tuple[float, float] = 50.0
    sigma: float | tuple[float, float] = 5.0
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0
    mask_fill: Fill = 0
