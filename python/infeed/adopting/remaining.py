"""Calls the steps of another library that have no transform of infeed."""

import importlib
import itertools
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from infeed.adopting.prefetch_loader import BatchNormalize

# Names that the code of a pipeline uses already.
_TAKEN = (
    *("annotations", "dataset", "erase", "infeed", "loader", "np", "pipeline"),
    *("sources", "weights"),
)
# Fields of a sample with boxes that its steps receive, and those that stay as they are.
_PER_BOX = ("boxes", "labels")
_KEPT = ("image_id",)


class RemainingSteps:
    """Calls steps of another library on the image of a sample, and what moves with it.

    Args:
        steps: The steps.
        is_tensor: Whether they receive tensors [C, H, W]. Otherwise: Pillow images.
        moved: Fields that they receive together with the image: ``boxes`` or ``mask``.
    """

    def __init__(
        self,
        steps: Sequence[Callable[..., Any]],
        is_tensor: bool = False,
        moved: Iterable[str] = (),
    ) -> None:
        self.steps = tuple(steps)
        self.is_tensor = is_tensor
        self.moved = frozenset(moved)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Returns the sample with the result of the steps."""
        image = sample["image"]
        value: Any = _tensor(image) if self.is_tensor else _picture(image)
        if self.moved:
            return self._joint(sample, value)
        step: Any
        for step in self.steps:
            if type(step).__module__.partition(".")[0] == "albumentations":
                value = step(image=np.asarray(value))["image"]
            else:
                value = step(value)
        return {**sample, "image": np.asarray(value, order="C")}

    def _joint(self, sample: dict[str, Any], value: Any) -> dict[str, Any]:
        """Calls the steps on an image and its target, as those of torchvision v2."""
        kinds = importlib.import_module("torchvision.tv_tensors")
        size = np.asarray(value).shape[1:] if self.is_tensor else value.size[::-1]
        value = kinds.Image(value) if self.is_tensor else value
        target: dict[str, Any] = {}
        if "mask" in self.moved:
            target["mask"] = kinds.Mask(_tensor(np.squeeze(sample["mask"])))
        if "boxes" in self.moved:
            target |= {name: _tensor(sample[name]) for name in _PER_BOX}
            target["boxes"] = kinds.BoundingBoxes(
                target["boxes"], format="XYXY", canvas_size=tuple(size)
            )
        step: Any
        for step in self.steps:
            value, target = step(value, target)
        found = {
            name: sample[name]
            for name in sample
            if "boxes" not in self.moved or name in _KEPT
        }
        found |= {"image": value, **target}
        return {name: np.asarray(item, order="C") for name, item in found.items()}

    def code(self) -> tuple[str, dict[str, Any]]:
        """Returns the code of this object, and the steps by the variables in it."""
        variables: dict[str, Any] = {}
        shown = []
        for step in self.steps:
            if isinstance(step, BatchNormalize):
                shown.append(repr(step))
                continue
            name = variable_of(step, variables)
            variables[name] = step
            shown.append(name)
        settings = [f"[{', '.join(shown)}]"]
        settings += ["is_tensor=True"] if self.is_tensor else []
        settings += [f"moved={sorted(self.moved)}"] if self.moved else []
        return f"RemainingSteps({', '.join(settings)})", variables


def variable_of(step: Any, taken: Collection[str]) -> str:
    """Returns a name for a variable with a step, such as ``rand_augment``."""
    name = getattr(step, "__name__", type(step).__name__)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    if not name.isidentifier() or keyword.iskeyword(name) or name in _TAKEN:
        name = "step"
    numbers = (f"{name}_{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbers) if one not in taken)


def _tensor(array: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.from_numpy(np.ascontiguousarray(array))


def _picture(image: Any) -> Any:
    pillow = importlib.import_module("PIL.Image")
    array = np.asarray(image)
    return pillow.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
