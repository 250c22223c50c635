"""Writes annotations that a program holds in memory to a file, which a source reads."""

import atexit
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Entries of a COCO file that `sources.Coco` reads. Outlines are the largest part.
_ENTRIES: Mapping[str, tuple[str, ...]] = {
    "images": ("id", "file_name", "height", "width"),
    "annotations": ("id", "image_id", "category_id", "bbox", "area", "iscrowd"),
    "categories": ("id", "name"),
}

_writes = True


@contextlib.contextmanager
def unwritten() -> Iterator[None]:
    """Writes no file in its block: for a pipeline that is never opened.

    A process calls it from one thread only.
    """
    global _writes
    _writes = False
    try:
        yield
    finally:
        _writes = True


def written_annotations(
    annotations: Mapping[str, Any], *, has_masks: bool = False
) -> str:
    """Returns the path of a new JSON file, which exists until the program ends.

    pycocotools does not keep the path of the file that it has read.

    Args:
        annotations: The content of a COCO file.
        has_masks: Whether the file has the segmentations too.
    """
    if not _writes:
        return "annotations.json"
    folder = tempfile.mkdtemp(prefix="infeed-adopt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    more = {"annotations": ("segmentation",) if has_masks else ()}
    content = {
        name: [
            {key: one[key] for key in (*keys, *more.get(name, ())) if key in one}
            for one in entries
        ]
        for name, keys in _ENTRIES.items()
        if (entries := annotations.get(name)) is not None
    }
    path = Path(folder) / "annotations.json"
    path.write_text(json.dumps(content, default=_text_of), encoding="utf-8")
    return str(path)


def _text_of(value: Any) -> str:
    """Returns the run lengths of a mask, which pycocotools has as bytes, as a text."""
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} in annotations")
    return value.decode()
