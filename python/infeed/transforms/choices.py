"""Random choices among transforms, and random series of them."""

from dataclasses import dataclass
from typing import Literal

from infeed.transforms.base import Fill, Interpolation, Transform


@dataclass(frozen=True, repr=False)
class RandomApply(Transform):
    """Applies all transforms of a list, or none.

    Args:
        transforms: Up to 16 transforms of colours, flips, warps, resizes and crops
            without padding, which keep the number of channels.
        p: Probability that they are applied, 0 to 1.
    """

    transforms: tuple[Transform, ...]
    p: float = 0.5


@dataclass(frozen=True, repr=False)
class RandomChoice(Transform):
    """Applies one transform of a list.

    Args:
        transforms: Up to 16 transforms of colours, flips, warps, resizes and crops
            without padding, which keep the number of channels.
        p: Weight of each transform; None means equal weights.
    """

    transforms: tuple[Transform, ...]
    p: tuple[float, ...] | None = None


@dataclass(frozen=True, repr=False)
class RandomOrder(Transform):
    """Applies all transforms of a list in a random order.

    Args:
        transforms: Up to 16 transforms of colours, flips, warps, resizes and crops
            without padding, which keep the number of channels.
    """

    transforms: tuple[Transform, ...]


@dataclass(frozen=True, repr=False)
class AutoAugment(Transform):
    """Applies one of 25 learned pairs of changes (Cubuk et al., 2018).

    Masks and boxes move with the image.

    Args:
        policy: The dataset for which the pairs were learned: ``"imagenet"``,
            ``"cifar10"`` or ``"svhn"``.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel; None
            means 0.
        mask_fill: Value of pixels outside the mask.
    """

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"
    interpolation: Interpolation = "nearest"
    fill: Fill | None = None
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class RandAugment(Transform):
    """Applies some of 14 changes, all with one strength (Cubuk et al., 2019).

    Masks and boxes move with the image.

    Args:
        num_ops: Number of changes, up to 16.
        magnitude: Index of the strength, from 0.
        num_magnitude_bins: Number of strengths.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel; None
            means 0.
        mask_fill: Value of pixels outside the mask.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill | None = None
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class TrivialAugmentWide(Transform):
    """Applies one of 14 changes with a random strength (Müller and Hutter, 2021).

    Masks and boxes move with the image.

    Args:
        num_magnitude_bins: Number of strengths.
        interpolation: ``"nearest"`` or ``"bilinear"``, for images.
        fill: Value of pixels outside the image: one number, or one per channel; None
            means 0.
        mask_fill: Value of pixels outside the mask.
    """

    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill | None = None
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class AugMix(Transform):
    """Blends an image with randomly changed copies (Hendrycks et al., 2019).

    Masks and boxes stay as they are.

    Args:
        severity: Number of strengths that are drawn, from the weakest on, 1 to 10.
        mixture_width: Number of copies, up to 16.
        chain_depth: Number of changes of a copy, up to 16; None draws 1 to 3 for each.
        alpha: Parameter of the distributions of the weights, above 0. Large numbers
            give similar weights.
        all_ops: Whether brightness, colour, contrast and sharpness are changed too.
        interpolation: ``"nearest"`` or ``"bilinear"``, for changes of geometry.
        fill: Value of pixels outside the image: one number, or one per channel; None
            means 0.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int | None = None
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: Fill | None = None
