"""Versions of Python and of the frameworks that the program uses, for reports."""

import platform
import sys

# Frameworks of training loops. Only imported ones are reported.
_FRAMEWORKS = (
    "accelerate",
    "datasets",
    "flax",
    "jax",
    "keras",
    "lightning",
    "numpy",
    "pytorch_lightning",
    "ray",
    "tensorflow",
    "torch",
    "torchvision",
    "transformers",
)


def versions() -> dict[str, str]:
    """Returns the versions of Python and of imported frameworks, by name."""
    found = {"python": platform.python_version()}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found
