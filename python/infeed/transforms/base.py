"""The base class of all transforms: settings, their check, and their notation."""

import json
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from infeed import _check, _code, _core
from infeed.errors import ConfigError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of the ImageNet training images by channel, in units of 0 to 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of the ImageNet training images by channel, in units of 0 to 1."""

_CONSTANTS = {IMAGENET_MEAN: "T.IMAGENET_MEAN", IMAGENET_STD: "T.IMAGENET_STD"}

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Fill = float | tuple[float, ...]

# Descriptions of types that messages give in place of Python's notation.
_EXPECTED = {
    "at": 'a position such as "center", or (top, left)',
    "padding": "an integer, (x, y) or (left, top, right, bottom)",
    "ratio": "(low, high)",
    "scale": "(low, high)",
    "transforms": "a list of transforms",
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
            checked = _check.convert(self, name, value, kind, low, _EXPECTED.get(name))
            object.__setattr__(self, name, checked)
        try:
            _core.check_transform(json.dumps(self._to_dict()))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def __repr__(self) -> str:
        return _code.call(f"T.{type(self).__name__}", self, _CONSTANTS)

    def _to_dict(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {
            name: _plain(value) for name, value in settings.items() if value is not None
        }
        return {"kind": type(self).__name__, **given}


def _plain(value: Any) -> Any:
    """Returns a setting as data; a list of transforms becomes a list of tables."""
    if isinstance(value, tuple) and value and isinstance(value[0], Transform):
        return [each._to_dict() for each in value]
    return value
