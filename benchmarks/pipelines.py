"""The pipeline of benchmarks of a single change: classification on a folder of JPEGs.

Decoding and resizing dominate, as in training on photographs.
"""

import json
from pathlib import Path

_CLASSIFICATION = """\
[source]
kind = "folder"
path = {path}
labels = "none"
[shuffle]
seed = 0
[decode]
[[transforms]]
kind = "RandomResizedCrop"
size = 224
[[transforms]]
kind = "RandomHorizontalFlip"
[batch]
size = {batch}
drop_last = {drop_last}
"""


def classification(folder: Path, *, batch: int = 64, drop_last: bool = False) -> str:
    """Returns the pipeline for uint8 images of 224x224, as TOML."""
    return _CLASSIFICATION.format(
        path=json.dumps(str(folder)),
        batch=batch,
        drop_last=str(drop_last).lower(),
    )
