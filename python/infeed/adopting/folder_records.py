"""Finds the records of `sources.Folder` for the files that a dataset lists."""

import os
from collections.abc import Sequence

import numpy as np

from infeed import _core, sources
from infeed.adopting.samples import Array


def listed_files(root: str, *, is_labelled: bool = True) -> list[str]:
    """Returns the files of `sources.Folder`, in the order of its records.

    Args:
        root: The folder.
        is_labelled: Whether only files in folders of classes are records.
    """
    files = _core.folder_files(root)
    start = len(os.path.join(root, ""))
    return [path for path in files if not is_labelled or os.sep in path[start:]]


def class_records(
    root: str, samples: Sequence[tuple[str, int]], classes: Sequence[str] | None = None
) -> tuple[sources.Folder, Array | None] | str:
    """Returns the source of a folder of classes, and the record of each sample.

    None instead of records means that each sample is the record with its number. A text
    is the reason why the source has other samples.

    Args:
        root: The folder.
        samples: File and label of each sample.
        classes: Names of the classes, if the dataset knows them.
    """
    start = len(os.path.join(root, ""))
    files = listed_files(root)
    numbers = {path: number for number, path in enumerate(files)}
    missing = [path for path, _ in samples if path not in numbers]
    if missing:
        return (
            f"{len(missing)} of its {len(samples)} files are no records of "
            f"sources.Folder({root!r}), such as {missing[0][start:]!r}"
        )
    order = np.array([numbers[path] for path, _ in samples], np.int64)
    if len(samples) != len(files) or len(np.unique(order)) != len(files):
        return (
            f"its list of samples was changed: it has {len(samples)}, and the folder "
            f"{root} holds {len(files)} images"
        )
    is_same = np.array_equal(order, np.arange(len(order)))
    records = None if is_same else order
    parts = [path[start:].split(os.sep)[0] for path, _ in samples]
    used = sorted(set(parts))
    names = used if classes is None else list(classes)
    labels = {name: label for label, name in enumerate(names)}
    if [labels.get(name) for name in parts] != [label for _, label in samples]:
        return "its labels are not the numbers of its classes"
    if names == used:
        return sources.Folder(root), records
    # Classes without images keep their numbers.
    are_folders = all(os.path.isdir(os.path.join(root, name)) for name in names)
    if are_folders and names == sorted(names):
        return sources.Folder(root, allow_empty=True), records
    return sources.Folder(root, classes=tuple(names)), records
