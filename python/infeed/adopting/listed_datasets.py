"""Reads datasets that list the files of a folder of classes: timm and Ultralytics."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from infeed.adopting.adopted_dataset import (
    AdoptedDataset,
    library_of,
    native_dataset,
)
from infeed.adopting.folder_records import class_records
from infeed.adopting.prefetch_loader import NormalizedSamples, inner_of
from infeed.adopting.steps import Finding, translate


def read_timm(dataset: Any) -> AdoptedDataset | str:
    """Reads timm's `ImageDataset` of a folder, also in a `PrefetchLoader`."""
    inner, after = dataset, list[Any]()
    if isinstance(dataset, NormalizedSamples):
        inner, after = dataset.dataset, [dataset.normalize, dataset.erase]
    if library_of(inner) != "timm" or type(inner).__name__ != "ImageDataset":
        return ""
    reader: Any = getattr(inner, "reader", None)
    if not hasattr(reader, "samples") or not hasattr(reader, "root"):
        return "its reader is no folder of images"
    if getattr(inner, "target_transform", None) is not None:
        return "it has a target_transform"
    if (mode := getattr(inner, "input_img_mode", "RGB")) != "RGB":
        return f"its images have the mode {mode}"
    chain = [inner.transform, *after]
    return _read_list(dataset, str(reader.root), reader.samples, chain)


def read_ultralytics(dataset: Any) -> AdoptedDataset | str:
    """Reads the `ClassificationDataset` of Ultralytics."""
    if library_of(dataset) != "ultralytics":
        return ""
    if not hasattr(dataset, "torch_transforms"):
        return ""
    root, step = str(dataset.root), dataset.torch_transforms
    samples = [(str(sample[0]), sample[1]) for sample in dataset.samples]
    # OpenCV reads images in their EXIF orientation.
    found = _read_list(dataset, root, samples, step, batch_type="dict", orient=True)
    if isinstance(found, str):
        return found
    names = Finding('"img", "cls"', '"image", "label"', "keys of a batch")
    return replace(found, findings=(*found.findings, names))


def _read_list(
    dataset: Any,
    root: str,
    samples: Sequence[tuple[str, int]],
    step: Any,
    **options: Any,
) -> AdoptedDataset | str:
    """Reads a list of files below a folder of classes."""
    found = class_records(root, samples)
    if isinstance(found, str):
        return found
    source, order = found
    finding = Finding(type(inner_of(dataset)).__name__, repr(source))
    steps = translate(step)
    return native_dataset(dataset, source, finding, steps, order=order, **options)
