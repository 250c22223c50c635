"""Transforms of the colours of images. They leave masks and boxes as they are."""

from dataclasses import dataclass

from infeed.transforms.base import Fill, Transform


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
    value: Fill = 0


@dataclass(frozen=True, repr=False)
class RandomPhotometricDistort(Transform):
    """Changes colours as for the training of SSD detectors.

    Each change happens with probability ``p``. Contrast comes before or after
    saturation and hue.

    Args:
        brightness: Range of the factor, as (low, high).
        contrast: Range of the factor, as (low, high).
        saturation: Range of the factor, as (low, high).
        hue: Range of the shift in turns of the colour circle, as (low, high).
        p: Probability of each change, and of a swap of channels, 0 to 1.
    """

    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomHSV(Transform):
    """Changes hue, saturation and value as Ultralytics does.

    Each image gets a random turn of the hue and random factors of saturation and value
    in HSV, which are clipped. Gray pixels stay gray, and gray images stay as they are.
    Pixels differ from those of OpenCV by the rounding of its HSV, which has steps of 2
    degrees and 8 bits.

    Args:
        hue: Largest turn in both directions, 0 to 1 in turns of the colour circle.
        saturation: Factor from ``1 - saturation`` to ``1 + saturation``, 0 to 1.
        value: Factor from ``1 - value`` to ``1 + value``, 0 to 1.
    """

    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4


@dataclass(frozen=True, repr=False)
class RandomInvert(Transform):
    """Replaces each value ``v`` by ``255 - v``.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomPosterize(Transform):
    """Keeps the highest bits of each value.

    Args:
        bits: Number of bits to keep, 0 to 8.
        p: Probability, 0 to 1.
    """

    bits: int
    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomSolarize(Transform):
    """Inverts values from a threshold on.

    Args:
        threshold: Lowest value that is inverted, at most 255.
        p: Probability, 0 to 1.
    """

    threshold: float
    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomGrayscale(Transform):
    """Converts images to grey and keeps the number of channels.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.1


@dataclass(frozen=True, repr=False)
class RandomAutocontrast(Transform):
    """Stretches the values of each channel to 0 to 255.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomEqualize(Transform):
    """Equalizes the histogram of each channel.

    Args:
        p: Probability, 0 to 1.
    """

    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomAdjustSharpness(Transform):
    """Blurs or sharpens images.

    Args:
        sharpness_factor: 0 blurs, 1 changes nothing, 2 doubles the sharpness.
        p: Probability, 0 to 1.
    """

    sharpness_factor: float
    p: float = 0.5


@dataclass(frozen=True, repr=False)
class GaussianBlur(Transform):
    """Blurs images with a Gaussian filter.

    An image whose side is not longer than half the filter is a bad record.

    Args:
        kernel_size: Pixels of the filter, an odd number, or (x, y).
        sigma: Standard deviation in pixels, or (low, high) to draw it for each image.
    """

    kernel_size: int | tuple[int, int]
    sigma: float | tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True, repr=False)
class GaussianNoise(Transform):
    """Adds Gaussian noise to each value of an image.

    Args:
        mean: Mean in units of 0 to 1, from -1 to 1.
        sigma: Standard deviation in units of 0 to 1, up to 10.
        clip: Whether sums are clipped to 0 to 255. If False, they wrap around.
    """

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True


@dataclass(frozen=True, repr=False)
class JPEG(Transform):
    """Compresses images as JPEG and decodes them again.

    Chroma has half the width and half the height of the image, as in most files.

    Args:
        quality: From 1 (smallest file) to 100, or (low, high) to draw it for each
            image.
    """

    quality: int | tuple[int, int]
