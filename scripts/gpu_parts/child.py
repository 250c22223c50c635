"""The process of a step: ``python -m gpu_parts.child NAME FUNCTION SETTINGS FILE``."""

import faulthandler
import importlib
import sys
from pathlib import Path

from .findings import Findings
from .process import end_with_parent
from .steps import settings_from_text


def main() -> None:
    """Calls the function of the step."""
    end_with_parent()
    faulthandler.enable()
    name, function, settings, path = sys.argv[1:]
    module, _, attribute = function.partition(":")
    step = getattr(importlib.import_module(module), attribute)
    step(Findings(Path(path), name), settings_from_text(settings))


if __name__ == "__main__":
    main()
