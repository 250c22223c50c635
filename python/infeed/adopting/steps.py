"""Translates transforms of torchvision, timm and albumentations."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from infeed import transforms
from infeed.adopting.image_observer import UntracedError
from infeed.adopting.image_processors import UnknownStepError, processor_steps
from infeed.adopting.prefetch_loader import BatchNormalize
from infeed.adopting.traced_functions import calls_same, trace_image
from infeed.errors import ConfigError
from infeed.transforms import Transform


@dataclass(frozen=True)
class Finding:
    """A part of a loader, and what it became.

    Attributes:
        part: The part, such as ``RandomResizedCrop``.
        became: Code of infeed that replaces it. None: it is called as it is.
        reason: Why it is called as it is, or what else to know.
    """

    part: str
    became: str | None
    reason: str = ""

    def __str__(self) -> str:
        became = self.became or "called in Python"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.part}: {became}{reason}"


@dataclass
class Steps:
    """Translated steps, and those that are called in Python after them.

    Attributes:
        native: Transforms of infeed.
        rest: Steps of the library that follow.
        is_tensor: Whether the rest begins after the conversion to a tensor.
        starts_as_tensor: Whether the first step receives a tensor [C, H, W] of uint8.
            Otherwise: a Pillow image.
        layout: Layout of the images that reach the rest, or the batch.
        is_float: Whether values are floats there.
        findings: What each step became.
        moved: Fields that move with the image: ``boxes`` or ``mask``.
        is_joint: Whether the steps receive these fields with the image.
        checks: Each returns whether a function of the program still calls the same
            steps.
    """

    native: list[Transform] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)
    is_tensor: bool = False
    starts_as_tensor: bool = False
    layout: Literal["HWC", "CHW"] = "HWC"
    is_float: bool = False
    findings: list[Finding] = field(default_factory=list)
    moved: frozenset[str] = frozenset()
    is_joint: bool = False
    checks: list[Callable[[], bool]] = field(default_factory=list)


# Steps that only change the type of an image, and whether values become floats.
_CONVERSIONS = {
    "ToTensor": True,
    "MaybeToTensor": True,
    "PILToTensor": False,
    "MaybePILToTensor": False,
    "ToNumpy": False,
    "ToImage": False,
    "ToPureTensor": False,
    "ToTensorV2": False,
}
_TO_FLOAT = ("ConvertImageDtype", "ToDtype")
# Steps whose size of one number is a square.
_SQUARES = ("CenterCrop", "RandomCrop", "RandomResizedCrop")
# Steps that resize by a random factor, which infeed does with antialiasing only.
_RANDOM_SIZES = ("RandomResizedCrop", "RandomShortestSize", "ScaleJitter")
_ANTIALIASED = "infeed resizes by random factors with antialiasing"
# Steps that the declaration of boxes replaces.
_BOXES = ("SanitizeBoundingBoxes", "ClampBoundingBoxes", "ConvertBoundingBoxFormat")
_NAMES_OF_ALBUMENTATIONS = {
    "HorizontalFlip": "RandomHorizontalFlip",
    "VerticalFlip": "RandomVerticalFlip",
}
# Parameters that torchvision stores under another name.
_ATTRIBUTES = {"sampler_options": "options"}
# Default of `RandomIoUCrop`.
_OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_LIBRARIES = ("torchvision", "albumentations", "timm", "transformers")
# Transforms that move no pixel: those of colours, and three others.
_VALUES = (
    *(
        kind
        for kind in transforms.Transform.__subclasses__()
        if kind.__module__ == "infeed.transforms.colors"
    ),
    transforms.AugMix,
    transforms.Normalize,
    transforms.ToFloat,
)


def translate(
    step: Any,
    moved: frozenset[str] = frozenset(),
    *,
    is_joint: bool = False,
    is_tensor: bool = False,
) -> Steps:
    """Translates a transform, or a chain of them.

    The first step that is not known, and all after it, are called in Python.

    Args:
        step: The transform.
        moved: Fields of the samples that move with the image: ``boxes`` or ``mask``.
        is_joint: Whether the chain receives these fields together with the image.
        is_tensor: Whether the chain receives a tensor [C, H, W] of uint8. Otherwise: a
            Pillow image.
    """
    steps = Steps(moved=moved, is_joint=is_joint)
    if is_tensor:
        steps.is_tensor = steps.starts_as_tensor = True
        steps.layout = "CHW"
    queue = deque(_flat(step))
    while queue:
        one = queue.popleft()
        name = type(one).__name__
        if not steps.rest and (traced := _traced_steps(one, steps)) is not None:
            queue.extendleft(reversed(_flat(traced)))
            continue
        if steps.rest:
            steps.rest.append(one)
            reason = f"it follows {type(steps.rest[0]).__name__}"
            steps.findings.append(Finding(name, None, reason))
            continue
        try:
            became = _translate(one, steps)
        except UnknownStepError as error:
            steps.rest.append(one)
            steps.findings.append(Finding(name, None, str(error)))
        else:
            steps.findings.append(Finding(name, became))
    return steps


def _traced_steps(step: Any, steps: Steps) -> list[Any] | None:
    """Returns the steps that a function of the program calls with an image.

    None if the step is a transform of a library, or does more.
    """
    is_lambda = type(step).__name__ == "Lambda"
    is_known = type(step).__module__.partition(".")[0] in _LIBRARIES
    is_tensor = steps.starts_as_tensor
    is_read = not (steps.is_float if is_tensor else steps.is_tensor)
    takes_image = is_read and not steps.moved
    if not takes_image or (is_known and not is_lambda):
        return None
    try:
        function = step.lambd if is_lambda else step
        found = trace_image(function, is_tensor)
    except (AttributeError, UntracedError):
        return None
    texts = [*map(repr, found)]

    def check() -> bool:
        try:
            return calls_same(found, trace_image(function, is_tensor), texts)
        except UntracedError:
            return False

    steps.checks.append(check)
    return [*found]


def _flat(step: Any) -> list[Any]:
    """Returns the steps of a chain, also of nested ones."""
    if step is None:
        return []
    if isinstance(step, list):
        return [part for one in step for part in _flat(one)]
    chain = getattr(step, "transforms", None)
    if type(step).__name__ in ("Compose", "Sequential") and isinstance(chain, Sequence):
        return [part for one in chain for part in _flat(one)]
    if type(step).__name__ == "Sequential":
        return [part for one in step for part in _flat(one)]
    return [step]


def _p(step: Any) -> float:
    p = getattr(step, "p", 1.0)
    return p if isinstance(p, int | float) else 1.0


def _translate(step: Any, steps: Steps) -> str:
    """Adds a step to the native ones, and returns its code."""
    name, library = type(step).__name__, type(step).__module__.partition(".")[0]
    if isinstance(step, BatchNormalize):
        given = {"mean": _round_values(step.mean), "std": _round_values(step.std)}
        return _add(_make(transforms.Normalize, given), steps)
    if library not in _LIBRARIES:
        raise UnknownStepError(f"it is a function of {library}")
    if library == "transformers":
        made = processor_steps(step)
        added = ", ".join(_add(one, steps) for one in made)
        steps.is_tensor, steps.layout = True, "CHW"
        return f'{added}, layout="CHW"' if added else 'layout="CHW"'
    if name in _CONVERSIONS:
        is_new = not steps.is_tensor
        steps.is_tensor, steps.layout = True, "CHW"
        if _CONVERSIONS[name] and not steps.is_float:
            return _add(transforms.ToFloat(), steps) + ', layout="CHW"'
        return 'layout="CHW"' if is_new else "nothing: it is a tensor already"
    if name in _TO_FLOAT:
        return _to_float(step, steps)
    if name in _BOXES:
        return _of_boxes(step, name, steps)
    if steps.is_float and name not in ("Normalize", "RandomErasing"):
        raise UnknownStepError("it follows the conversion to floats")
    if library == "albumentations":
        return _add(_of_albumentations(step, name), steps)
    if library == "timm":
        return _add(_of_timm(step, name, steps), steps)
    return _add(_of_torchvision(step, name, steps), steps)


def _add(step: Transform, steps: Steps) -> str:
    if steps.moved and not steps.is_joint and not isinstance(step, _VALUES):
        names = " and ".join(sorted(steps.moved))
        raise UnknownStepError(f"it moves the image, and not its {names}")
    steps.native.append(step)
    if isinstance(step, transforms.ToFloat | transforms.Normalize):
        steps.is_float = True
    return repr(step)


def _round_values(values: Sequence[float]) -> tuple[float, ...]:
    """Returns numbers of 32 bits as they were written."""
    return tuple(round(value, 6) for value in values)


def _to_float(step: Any, steps: Steps) -> str:
    dtype = getattr(step, "dtype", None)
    scale = getattr(step, "scale", True)
    of_mask = None
    if isinstance(dtype, Mapping):
        # Types by class of torchvision v2; a tensor that is no image counts too.
        by_name = {getattr(key, "__name__", key): kind for key, kind in dtype.items()}
        others = by_name.get("others")
        dtype = by_name.get("Image", by_name.get("Tensor", others))
        of_mask = by_name.get("Mask", others)
    if not str(dtype).endswith("float32") or not scale:
        raise UnknownStepError("only float32 with scale=True is translated")
    became = []
    if of_mask is not None and "mask" in steps.moved:
        if not str(of_mask).endswith("int64"):
            raise UnknownStepError("masks become int64 only")
        index = transforms.ClassIndex("mask", classes=256, dtype="int64")
        steps.native.append(index)
        became.append(repr(index))
    if not steps.is_float:
        became.insert(0, _add(transforms.ToFloat(), steps))
    return ", ".join(became) or "nothing: values are floats already"


def _of_boxes(step: Any, name: str, steps: Steps) -> str:
    """Returns what replaces a step that converts or drops boxes."""
    if "boxes" not in steps.moved:
        raise UnknownStepError("the samples have no boxes")
    if name == "ClampBoundingBoxes":
        return "nothing: boxes are clipped after each step"
    if name == "ConvertBoundingBoxFormat":
        given = getattr(step.format, "value", step.format)
        if str(given).upper() != "XYXY":
            raise UnknownStepError("boxes stay left, top, right, bottom")
        return "nothing: boxes are left, top, right, bottom"
    if (float(step.min_size), float(step.min_area)) != (1.0, 1.0):
        raise UnknownStepError("set min_size and min_area of .boxes(...)")
    return "nothing: the source's boxes are dropped in the same way"


def _of_torchvision(step: Any, name: str, steps: Steps) -> Transform:
    is_antialiased = not steps.is_tensor or bool(getattr(step, "antialias", True))
    if name == "RandomResize":
        # It draws the shorter side from min_size to max_size - 1.
        sizes = tuple(range(step.min_size, step.max_size))
        given: dict[str, Any] = {"interpolation": _plain(step.interpolation)}
        if len(sizes) == 1:
            given |= {"size": sizes[0], "antialias": is_antialiased}
            return _make(transforms.Resize, given)
        if not is_antialiased:
            raise UnknownStepError(_ANTIALIASED)
        return _make(transforms.RandomShortestSize, {"min_size": sizes, **given})
    kind = _kind(name)
    if name in _RANDOM_SIZES and not is_antialiased:
        raise UnknownStepError(_ANTIALIASED)
    if name == "RandomIoUCrop" and "boxes" not in steps.moved:
        raise UnknownStepError("it needs declared boxes")
    given = {}
    for parameter in fields(kind):
        attribute = _ATTRIBUTES.get(parameter.name, parameter.name)
        if not hasattr(step, attribute):
            if parameter.default is MISSING:
                raise UnknownStepError(f"it has no attribute {attribute}")
            continue
        value = getattr(step, attribute)
        if attribute == "options" and tuple(value) == _OVERLAPS:
            continue
        if parameter.name == "fill":
            value, of_mask = _fills(value)
            if "mask" in steps.moved and of_mask and hasattr(kind, "mask_fill"):
                given["mask_fill"] = of_mask
        if parameter.name == "antialias":
            # Pillow always does it.
            value = not steps.is_tensor or bool(value)
        if attribute == "chain_depth" and value <= 0:
            continue
        if parameter.name == "transforms":
            value = tuple(_choice_step(one, steps) for one in value)
        else:
            value = _plain(value)
        if value is not None:
            given[parameter.name] = value
    size = given.get("size")
    if isinstance(size, tuple):
        is_square = name in _SQUARES and len(set(size)) == 1
        given["size"] = size[0] if is_square or len(size) == 1 else size
    return _make(kind, given)


def _fills(value: Any) -> tuple[Any, Any]:
    """Returns the fill value of images, and that of masks."""
    if not isinstance(value, Mapping):
        return value, value if isinstance(value, int | float) else None
    by_name = {getattr(key, "__name__", key): fill for key, fill in value.items()}
    others = by_name.get("others", 0)
    image = by_name.get("Image", by_name.get("Tensor", others))
    return image, by_name.get("Mask", others)


def _choice_step(step: Any, steps: Steps) -> Transform:
    """Returns a step of a choice among steps."""
    name, library = type(step).__name__, type(step).__module__.partition(".")[0]
    if library != "torchvision":
        raise UnknownStepError(f"{name} in it is a function of {library}")
    return _of_torchvision(step, name, steps)


def _of_timm(step: Any, name: str, steps: Steps) -> Transform:
    if name == "RandomErasing":
        return _of_timm_erasing(step)
    if name != "RandomResizedCropAndInterpolation":
        raise UnknownStepError("infeed.transforms does not have it")
    given = {
        "size": tuple(step.size),
        "scale": _plain(step.scale),
        "ratio": _plain(step.ratio),
        "interpolation": _plain(step.interpolation),
    }
    if len(set(step.size)) == 1:
        given["size"] = step.size[0]
    return _make(transforms.RandomResizedCrop, given)


def _of_timm_erasing(step: Any) -> Transform:
    if step.per_pixel or step.rand_color:
        raise UnknownStepError(f'mode="{step.mode}" writes random values, not zeros')
    if (step.min_count, step.max_count) != (1, 1):
        raise UnknownStepError("it erases several rectangles")
    if step.num_splits > 1:
        raise UnknownStepError("it leaves a part of each batch unchanged")
    ratio = _round_values([math.exp(side) for side in step.log_aspect_ratio])
    given = {
        "p": step.probability,
        "scale": (step.min_area, step.max_area),
        "ratio": ratio,
    }
    return _make(transforms.RandomErasing, given)


def _of_albumentations(step: Any, name: str) -> Transform:
    if name == "Normalize":
        if float(getattr(step, "max_pixel_value", 0)) != 255.0:
            raise UnknownStepError("only max_pixel_value=255 is translated")
        given = {"mean": _plain(step.mean), "std": _plain(step.std)}
        return _make(transforms.Normalize, given)
    if name in _NAMES_OF_ALBUMENTATIONS:
        return _make(_kind(_NAMES_OF_ALBUMENTATIONS[name]), {"p": step.p})
    if name in ("CenterCrop", "RandomCrop") and _p(step) == 1:
        return _make(_kind(name), {"size": (step.height, step.width)})
    raise UnknownStepError("OpenCV's pixels differ from those of infeed")


def _kind(name: str) -> type[Transform]:
    kind = getattr(transforms, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Transform):
        raise UnknownStepError("infeed.transforms does not have it")
    return kind


def _make(kind: type[Transform], given: Mapping[str, Any]) -> Transform:
    try:
        return kind(**given)
    except ConfigError as error:
        raise UnknownStepError(str(error)) from error


def _plain(value: Any) -> Any:
    """Returns a parameter as `infeed.transforms` takes it."""
    if hasattr(value, "value"):
        # An enumeration, such as InterpolationMode.
        return value.value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value
