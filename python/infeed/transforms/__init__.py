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

from typing import Any

from infeed.transforms.base import IMAGENET_MEAN, IMAGENET_STD, Transform
from infeed.transforms.choices import (
    AugMix,
    AutoAugment,
    RandAugment,
    RandomApply,
    RandomChoice,
    RandomOrder,
    TrivialAugmentWide,
)
from infeed.transforms.colors import (
    JPEG,
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHSV,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from infeed.transforms.detection import (
    CopyPaste,
    ImageMixUp,
    LongestMaxSize,
    MirroredPaste,
    Mosaic,
    RandomIoUCrop,
    RandomShortestSize,
    RandomZoomOut,
    ScaleJitter,
)
from infeed.transforms.geometry import (
    CenterCrop,
    Crop,
    CropOrPad,
    CropOrPadTo,
    ElasticTransform,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomSizedCrop,
    RandomVerticalFlip,
    Resize,
)
from infeed.transforms.values import (
    ClassIndex,
    CutMix,
    MixUp,
    Normalize,
    OneHot,
    ToFloat,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "JPEG",
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "ClassIndex",
    "ColorJitter",
    "CopyPaste",
    "Crop",
    "CropOrPad",
    "CropOrPadTo",
    "CutMix",
    "ElasticTransform",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "ImageMixUp",
    "LongestMaxSize",
    "MirroredPaste",
    "MixUp",
    "Mosaic",
    "Normalize",
    "OneHot",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHSV",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSizedCrop",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ScaleJitter",
    "ToFloat",
    "Transform",
    "TrivialAugmentWide",
]


def from_dict(table: dict[str, Any]) -> Transform:
    """Returns the transform that a description's table names."""
    settings = {name: _setting(item) for name, item in table.items() if name != "kind"}
    kind: type[Transform] = globals()[table["kind"]]
    return kind(**settings)


def _setting(item: Any) -> Any:
    """Returns a setting of a table; a table in a list is a transform."""
    if isinstance(item, list):
        return tuple(_setting(each) for each in item)
    return from_dict(item) if isinstance(item, dict) else item
