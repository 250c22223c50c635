"""Translates image processors of transformers."""

import math
from typing import Any

from infeed import transforms
from infeed.errors import ConfigError
from infeed.transforms import Transform

# Methods that process images; a class with its own one does something else.
_METHODS = (
    *("center_crop", "preprocess", "process_image", "resize", "_preprocess"),
    *("rescale", "normalize"),
)
# Filters of Pillow by number.
_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_FILTERS |= {1: "lanczos"}


class UnknownStepError(Exception):
    """A step cannot be translated; the text is the reason."""


def processor_steps(processor: Any) -> list[Transform]:
    """Returns the transforms of an image processor.

    Raises:
        UnknownStepError: It does something else, or is of an older version.
    """
    kind = type(processor)
    for name in _METHODS:
        owner = str(getattr(getattr(kind, name, None), "__module__", ""))
        if not owner.startswith("transformers.image_processing"):
            raise UnknownStepError(f"{kind.__name__} has its own {name}")
    if getattr(processor, "do_pad", None):
        raise UnknownStepError("it pads images")
    try:
        return [
            *_resize(processor),
            *_crop(processor),
            *_values(processor),
        ]
    except ConfigError as error:
        raise UnknownStepError(str(error)) from error


def _resize(processor: Any) -> list[Transform]:
    if not processor.do_resize:
        return []
    size = _sides(processor.size)
    if set(size) == {"shortest_edge"}:
        found: Any = size["shortest_edge"]
    elif set(size) == {"height", "width"}:
        found = size["height"], size["width"]
    else:
        raise UnknownStepError(f"it resizes to {', '.join(sorted(size))}")
    resample = processor.resample
    filters: Any = _FILTERS.get(int(2 if resample is None else resample))
    return [transforms.Resize(found, interpolation=filters)]


def _crop(processor: Any) -> list[Transform]:
    if not getattr(processor, "do_center_crop", None):
        return []
    size = _sides(processor.crop_size)
    if set(size) != {"height", "width"}:
        raise UnknownStepError(f"it crops to {', '.join(sorted(size))}")
    # It pads images that are smaller, and rounds down.
    return [transforms.CropOrPad(size["height"], size["width"])]


def _values(processor: Any) -> list[Transform]:
    if not processor.do_rescale:
        if processor.do_normalize:
            raise UnknownStepError("it normalizes values from 0 to 255")
        return []
    if not math.isclose(processor.rescale_factor, 1 / 255, rel_tol=1e-6):
        raise UnknownStepError(f"it multiplies values by {processor.rescale_factor}")
    if not processor.do_normalize:
        return [transforms.ToFloat()]
    mean, std = (_channels(one) for one in (processor.image_mean, processor.image_std))
    return [transforms.Normalize(mean=mean, std=std)]


def _channels(values: Any) -> tuple[float, ...]:
    return (float(values),) * 3 if isinstance(values, int | float) else tuple(values)


def _sides(size: Any) -> dict[str, int]:
    """Returns the sides of a size that are set."""
    found = size if isinstance(size, dict) else vars(size)
    return {name: value for name, value in found.items() if value is not None}
