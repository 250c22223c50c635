"""Translates transforms of torchvision and albumentations."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from infeed import transforms
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


class UnknownStepError(Exception):
    """A step cannot be translated; the text is the reason."""


@dataclass
class Steps:
    """Translated steps, and those that are called in Python after them.

    Attributes:
        native: Transforms of infeed.
        rest: Steps of the library that follow.
        is_tensor: Whether the rest begins after the conversion to a tensor.
        layout: Layout of the images that reach the rest, or the batch.
        is_float: Whether values are floats there.
        findings: What each step became.
    """

    native: list[Transform] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)
    is_tensor: bool = False
    layout: Literal["HWC", "CHW"] = "HWC"
    is_float: bool = False
    findings: list[Finding] = field(default_factory=list)


# Steps that only change the type of an image, and whether values become floats.
_CONVERSIONS = {
    "ToTensor": True,
    "PILToTensor": False,
    "ToImage": False,
    "ToPureTensor": False,
    "ToTensorV2": False,
}
_TO_FLOAT = ("ConvertImageDtype", "ToDtype")
# Steps whose size of one number is a square.
_SQUARES = ("CenterCrop", "RandomCrop", "RandomResizedCrop")
_NAMES_OF_ALBUMENTATIONS = {
    "HorizontalFlip": "RandomHorizontalFlip",
    "VerticalFlip": "RandomVerticalFlip",
}


def translate(step: Any) -> Steps:
    """Translates a transform, or a chain of them.

    The first step that is not known, and all after it, are called in Python.
    """
    steps = Steps()
    for one in _flat(step):
        name = type(one).__name__
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


def _flat(step: Any) -> list[Any]:
    """Returns the steps of a chain, also of nested ones."""
    if step is None:
        return []
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
    if library not in ("torchvision", "albumentations"):
        raise UnknownStepError(f"it is a function of {library}")
    if name in _CONVERSIONS:
        is_new = not steps.is_tensor
        steps.is_tensor, steps.layout = True, "CHW"
        if _CONVERSIONS[name] and not steps.is_float:
            return _add(transforms.ToFloat(), steps) + ', layout="CHW"'
        return 'layout="CHW"' if is_new else "nothing: it is a tensor already"
    if name in _TO_FLOAT:
        return _to_float(step, steps)
    if steps.is_float and name not in ("Normalize", "RandomErasing"):
        raise UnknownStepError("it follows the conversion to floats")
    if library == "albumentations":
        return _add(_of_albumentations(step, name), steps)
    return _add(_of_torchvision(step, name, steps), steps)


def _add(step: Transform, steps: Steps) -> str:
    steps.native.append(step)
    if isinstance(step, transforms.ToFloat | transforms.Normalize):
        steps.is_float = True
    return repr(step)


def _to_float(step: Any, steps: Steps) -> str:
    dtype = getattr(step, "dtype", None)
    scale = getattr(step, "scale", True)
    if not str(dtype).endswith("float32") or not scale:
        raise UnknownStepError("only float32 with scale=True is translated")
    if steps.is_float:
        return "nothing: values are floats already"
    return _add(transforms.ToFloat(), steps)


def _of_torchvision(step: Any, name: str, steps: Steps) -> Transform:
    kind = _kind(name)
    if name == "Resize" and steps.is_tensor and not getattr(step, "antialias", True):
        raise UnknownStepError("infeed resizes with antialiasing")
    if name == "RandomIoUCrop":
        raise UnknownStepError("it needs declared boxes")
    given: dict[str, Any] = {}
    for parameter in fields(kind):
        if not hasattr(step, parameter.name):
            if parameter.default is MISSING:
                raise UnknownStepError(f"it has no attribute {parameter.name}")
            continue
        value = getattr(step, parameter.name)
        if parameter.name == "transforms":
            value = tuple(_nested(one, steps) for one in value)
        else:
            value = _plain(value)
        if value is not None:
            given[parameter.name] = value
    size = given.get("size")
    if isinstance(size, tuple):
        is_square = name in _SQUARES and len(set(size)) == 1
        given["size"] = size[0] if is_square or len(size) == 1 else size
    return _made(kind, given)


def _nested(step: Any, steps: Steps) -> Transform:
    """Returns a step of a choice among steps."""
    name, library = type(step).__name__, type(step).__module__.partition(".")[0]
    if library != "torchvision":
        raise UnknownStepError(f"{name} in it is a function of {library}")
    return _of_torchvision(step, name, steps)


def _of_albumentations(step: Any, name: str) -> Transform:
    if name == "Normalize":
        if float(getattr(step, "max_pixel_value", 0)) != 255.0:
            raise UnknownStepError("only max_pixel_value=255 is translated")
        given = {"mean": _plain(step.mean), "std": _plain(step.std)}
        return _made(transforms.Normalize, given)
    if name in _NAMES_OF_ALBUMENTATIONS:
        return _made(_kind(_NAMES_OF_ALBUMENTATIONS[name]), {"p": step.p})
    if name in ("CenterCrop", "RandomCrop") and _p(step) == 1:
        return _made(_kind(name), {"size": (step.height, step.width)})
    raise UnknownStepError("OpenCV's pixels differ from those of infeed")


def _kind(name: str) -> type[Transform]:
    kind = getattr(transforms, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Transform):
        raise UnknownStepError("infeed.transforms does not have it")
    return kind


def _made(kind: type[Transform], given: Mapping[str, Any]) -> Transform:
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
    if isinstance(value, Mapping):
        # Fill values by type, of torchvision v2.
        return next(iter(value.values()), None)
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value


class RemainingSteps:
    """Calls steps of another library on one image of a sample."""

    def __init__(self, steps: Sequence[Callable[[Any], Any]], is_tensor: bool) -> None:
        self.steps = tuple(steps)
        self.is_tensor = is_tensor

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Returns the sample with the result of the steps as its image."""
        image = sample["image"]
        value: Any = _tensor(image) if self.is_tensor else _picture(image)
        step: Any
        for step in self.steps:
            if type(step).__module__.partition(".")[0] == "albumentations":
                value = step(image=np.asarray(value))["image"]
            else:
                value = step(value)
        return {**sample, "image": np.ascontiguousarray(np.asarray(value))}

    def __repr__(self) -> str:
        names = ", ".join(type(step).__name__ for step in self.steps)
        return f"remaining_steps({names})"


def _tensor(image: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.from_numpy(np.ascontiguousarray(image))


def _picture(image: Any) -> Any:
    pillow = importlib.import_module("PIL.Image")
    array = np.asarray(image)
    return pillow.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
