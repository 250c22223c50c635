"""Images for experiments: the user's, or synthetic ones of ``infeed sample``."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from infeed import _core
from infeed.errors import OpenError
from infeed.experiments.measuring import require


def pillow() -> Any:
    """Returns the module `PIL.Image`.

    Raises:
        MissingError: Pillow is not installed.
    """
    return require("PIL.Image", "Pillow", "this experiment")


def sample(kind: str, folder: Path, count: int, *settings: str) -> Path:
    """Makes a synthetic dataset with ``infeed sample`` and further arguments.

    Raises:
        OpenError: It cannot be written; the command printed the reason.
    """
    command = ["infeed", "sample", kind, str(folder), "--count", str(count), *settings]
    with _Silence():
        status = _core.main(command)
    if status != 0:
        raise OpenError(f"{folder}: infeed sample {kind} failed with status {status}")
    return folder


def files_below(folder: Path) -> list[Path]:
    """Returns the image files below a folder that Pillow reads, sorted.

    Raises:
        ConfigError: The folder has no images.
        OpenError: It cannot be listed, or links lead to one folder by too many paths.
    """
    files = map(Path, _core.folder_files(str(folder)))
    return [file for file in files if file.suffix.lower() != ".ifl"]


def pixels(files: list[Path]) -> list[np.ndarray]:
    """Returns the images, uint8 ``[H, W, 3]``, cropped to the size of the smallest.

    Raises:
        MissingError: Pillow is not installed.
    """
    image = pillow()
    arrays = []
    for file in files:
        with image.open(io.BytesIO(_core.read_file(file))) as opened:
            arrays.append(np.asarray(opened.convert("RGB")))
    height = min(array.shape[0] for array in arrays)
    width = min(array.shape[1] for array in arrays)
    return [np.ascontiguousarray(array[:height, :width]) for array in arrays]


class _Silence:
    """Discards the engine's standard output."""

    def __enter__(self) -> None:
        self._kept = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 1)
        os.close(self._kept)
