"""Reads datasets: the source that replaces their files or samples, and transforms.

A dataset is known by its class, so no library is imported here.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

import numpy as np

from infeed import sources
from infeed.adopting.annotations import written_annotations
from infeed.adopting.prefetched import NormalizedSamples
from infeed.adopting.remaining import RemainingSteps
from infeed.adopting.samples import Array, NamedSamples, is_picture
from infeed.adopting.steps import Finding, Steps, translate
from infeed.pipeline import Pipeline

# Columns of `sources.Coco` that targets of torchvision have too.
_COLUMNS = {"boxes", "labels", "image_id", "area", "iscrowd"}
_OWN_SAMPLES = "its __getitem__ is called for each sample, with its own transforms"


@dataclass(frozen=True)
class AdoptedDataset:
    """A dataset, and the pipeline of its samples one by one.

    Attributes:
        dataset: The dataset whose samples are compared.
        records: The pipeline, without order and batches.
        findings: What the dataset and its steps became.
        form: Form of its samples, and so of the batches.
        chosen: Numbers of the samples that a `Subset` has, in its order; None: all.
        order: Number of each sample's record in the source; None: the same number.
        names: Variables of the program that its code uses, by the text in the
            pipeline's code that they replace: the variable, and its meaning.
        is_python: Whether the dataset's own code makes its samples.
    """

    dataset: Any
    records: Pipeline
    findings: tuple[Finding, ...]
    form: Literal["tuple", "dict"] = "tuple"
    chosen: Array | None = None
    order: Array | None = None
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_python: bool = False

    @property
    def samples(self) -> int:
        """Number of samples, of which a `Subset` may have some several times."""
        return len(self.dataset) if self.chosen is None else len(self.chosen)

    def counts(self, weights: Array | None) -> Array | None:
        """Returns the weight of each record; None: each comes once.

        Args:
            weights: Weight of each sample; None: each comes once.
        """
        if self.chosen is None and weights is None:
            return None
        chosen = np.arange(len(self.dataset)) if self.chosen is None else self.chosen
        rows = chosen if self.order is None else self.order[chosen]
        return np.bincount(rows, weights, minlength=len(self.dataset)).astype(float)


def read_dataset(dataset: Any) -> AdoptedDataset:
    """Returns the pipeline of a dataset's samples."""
    if type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        return _subset(dataset)
    for reader in (_image_folder, _coco, _vision, _timm, _ultralytics):
        found = reader(dataset)
        if isinstance(found, AdoptedDataset):
            return found
        if found:
            return _items(dataset, found)
    return _items(dataset, _OWN_SAMPLES)


def _subset(dataset: Any) -> AdoptedDataset:
    inner = read_dataset(dataset.dataset)
    if inner.is_python:
        # Its samples are made in Python, so nothing is gained by a selection.
        found = _items(dataset, _OWN_SAMPLES)
        named = replace(inner.findings[0], part=f"Subset of {inner.findings[0].part}")
        return replace(found, findings=(named, *found.findings[1:]))
    indices = np.asarray(dataset.indices, np.int64) % max(inner.samples, 1)
    chosen = indices if inner.chosen is None else inner.chosen[indices]
    return replace(inner, chosen=chosen)


def _items(dataset: Any, reason: str) -> AdoptedDataset:
    """Returns the pipeline over the samples that a dataset makes itself."""
    name = type(dataset).__name__
    first = dataset[0] if len(dataset) else None
    form: Literal["tuple", "dict"] = "dict" if isinstance(first, Mapping) else "tuple"
    source = sources.Items(dataset)
    became: str | None = None
    variable = ("sources.Items(dataset)", f"dataset: the {name} of the adopted loader")
    if type(dataset).__module__.startswith("datasets."):
        function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
        if function is None:
            reason = "its tables are read without Python if it has no transform"
            became = variable[0]
        else:
            called = getattr(function, "__name__", type(function).__name__)
            reason = (
                f"{called} is called with its rows; sources.Items(dataset.with_format("
                "None)) reads tables of images without Python, for .transform(...)"
            )
    elif isinstance(first, tuple | list) and any(map(_has_entries, first)):
        source, form = _flat_items(dataset), "dict"
        text = "sources.Items(NamedSamples(dataset))"
        variable = (text, f"{variable[1]}, with its targets as fields")
        reason += "; lists of rows are flat"
    finding = Finding(name, became, reason)
    return AdoptedDataset(
        dataset,
        _decoded(source, first),
        (finding,),
        form,
        names={repr(source): variable},
        is_python=became is None,
    )


def _has_entries(part: Any) -> bool:
    """Whether a part of a sample is a dictionary, or a list that may have some."""
    if isinstance(part, list):
        return not part or isinstance(part[0], Mapping)
    return isinstance(part, Mapping)


def _flat_items(dataset: Any) -> sources.Items:
    """Returns the samples of a dataset with the entries of their targets as fields."""
    flat = NamedSamples(dataset)
    lists = flat.lists()
    if not lists:
        return sources.Items(flat)
    ragged = sources.Field(kind="ragged")
    fields = {name: ragged if name in lists else name for name in flat[0]}
    return sources.Items(flat, fields=fields)


def _decoded(source: sources.Source, first: Any) -> Pipeline:
    """Returns a pipeline that decodes images if a sample has Pillow images."""
    parts = first.values() if isinstance(first, Mapping) else first
    records = Pipeline(source)
    if isinstance(first, tuple | list | Mapping) and any(map(is_picture, parts)):
        return records.decode()
    return records


def _library(dataset: Any) -> str:
    return type(dataset).__module__.partition(".")[0]


def _image_folder(dataset: Any) -> AdoptedDataset | str:
    """Reads torchvision's `ImageFolder` and `ImageNet`."""
    name = type(dataset).__name__
    if _library(dataset) != "torchvision" or name not in ("ImageFolder", "ImageNet"):
        return ""
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    load = getattr(dataset, "loader", None)
    if getattr(load, "__name__", "") != "default_loader":
        return "it has its own loader for files"
    source = sources.Folder(str(getattr(dataset, "split_folder", dataset.root)))
    steps = translate(getattr(dataset, "transform", None))
    return _native(dataset, source, Finding(name, repr(source)), steps)


def _native(
    dataset: Any,
    source: sources.Source,
    finding: Finding,
    steps: Steps,
    *,
    order: Array | None = None,
    form: Literal["tuple", "dict"] = "tuple",
    names: Mapping[str, tuple[str, str]] | None = None,
    **decode: Any,
) -> AdoptedDataset:
    """Returns a pipeline that decodes images and runs the steps."""
    records = Pipeline(source).decode(**decode)
    records = records.transform(*steps.native, layout=steps.layout)
    if steps.rest:
        moved = steps.moved if steps.is_joint else frozenset[str]()
        records = records.python(RemainingSteps(steps.rest, steps.is_tensor, moved))
    findings = (finding, *steps.findings)
    return AdoptedDataset(dataset, records, findings, form, None, order, names or {})


def _plain(dataset: Any) -> tuple[Any, Any, bool] | str:
    """Returns a dataset of torchvision without transforms, and its transform.

    The last value is whether the transform receives image and target. A text is the
    reason why the transform cannot be taken off.
    """
    if type(dataset).__name__.startswith("Wrapped") and hasattr(dataset, "_dataset"):
        # `wrap_dataset_for_transforms_v2` took the transforms off already.
        transforms, transform = dataset.transforms, dataset.transform
        if getattr(dataset, "target_transform", None) is not None:
            return "it has a target_transform"
        is_joint = transform is None
        return dataset._dataset, transforms if is_joint else transform, is_joint
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    transform = getattr(dataset, "transform", None)
    joint = getattr(dataset, "transforms", None)
    if joint is not None and type(joint).__name__ != "StandardTransform":
        return (
            "its transforms receive image and target; wrap it with "
            "wrap_dataset_for_transforms_v2"
        )
    plain = copy.copy(dataset)
    plain.transform = plain.transforms = None
    return plain, transform, False


def _coco(dataset: Any) -> AdoptedDataset | str:
    """Reads torchvision's `CocoDetection`, wrapped for its transforms v2 or not."""
    name = type(dataset).__name__.removeprefix("Wrapped")
    if _library(dataset) != "torchvision" or name != "CocoDetection":
        return ""
    found = _plain(dataset)
    if isinstance(found, str):
        return found
    plain, step, is_joint = found
    keys = getattr(dataset, "_target_keys", None)
    if keys is not None and not set(keys) <= _COLUMNS:
        return f"sources.Coco has only {', '.join(sorted(_COLUMNS))}"
    if list(plain.ids) != sorted(plain.coco.imgs):
        return "its ids were changed; use a torch.utils.data.Subset instead"
    steps = translate(step, frozenset({"boxes"}), is_joint=is_joint)
    path = written_annotations(plain.coco.dataset)
    source = sources.Coco(str(plain.root), path)
    code = f'sources.Coco("{plain.root}", annotations)'
    return _native(
        dataset,
        source,
        Finding(name, code, "targets are the columns boxes, labels, ..."),
        steps,
        form="dict",
        names={repr(source): (code, "annotations: path of the file, as in annFile")},
    )


def _vision(dataset: Any) -> AdoptedDataset | str:
    """Reads other datasets of torchvision: its code reads, and infeed transforms."""
    if _library(dataset) != "torchvision" or not hasattr(dataset, "transform"):
        return ""
    found = _plain(dataset)
    if isinstance(found, str):
        return found
    plain, step, is_joint = found
    first = plain[0] if len(plain) else ()
    if not isinstance(first, tuple) or len(first) != 2 or not is_picture(first[0]):
        return ""
    is_mask = is_picture(first[1])
    if not is_mask and not isinstance(first[1], int):
        return ""
    modes: dict[str, Any] = {"L": {"image": "gray"}, "RGB": {}}
    if first[0].mode not in modes:
        return f"its images have the mode {first[0].mode}"
    moved = frozenset({"mask"} if is_mask else ())
    steps = translate(step, moved, is_joint=is_joint and is_mask)
    source = sources.Items(plain)
    code = "sources.Items(dataset)"
    reason = "its own code reads each sample, and infeed transforms it"
    name = type(dataset).__name__.removeprefix("Wrapped")
    names = {repr(source): (code, f"dataset: the {name}, without transforms")}
    mode = modes[first[0].mode]
    finding = Finding(name, code, reason)
    return _native(dataset, source, finding, steps, names=names, **mode)


def _timm(dataset: Any) -> AdoptedDataset | str:
    """Reads timm's `ImageDataset` of a folder, also in a `PrefetchLoader`."""
    inner, normalize = dataset, None
    if isinstance(dataset, NormalizedSamples):
        inner, normalize = dataset.dataset, dataset.normalize
    if _library(inner) != "timm" or type(inner).__name__ != "ImageDataset":
        return ""
    reader: Any = getattr(inner, "reader", None)
    if not hasattr(reader, "samples") or not hasattr(reader, "root"):
        return "its reader is no folder of images"
    if getattr(inner, "target_transform", None) is not None:
        return "it has a target_transform"
    if (mode := getattr(inner, "input_img_mode", "RGB")) != "RGB":
        return f"its images have the mode {mode}"
    chain = [inner.transform, normalize]
    return _listed(dataset, str(reader.root), reader.samples, chain)


def _ultralytics(dataset: Any) -> AdoptedDataset | str:
    """Reads the `ClassificationDataset` of Ultralytics."""
    if _library(dataset) != "ultralytics" or not hasattr(dataset, "torch_transforms"):
        return ""
    root, step = str(dataset.root), dataset.torch_transforms
    samples = [(str(sample[0]), sample[1]) for sample in dataset.samples]
    # OpenCV reads images in their EXIF orientation.
    found = _listed(dataset, root, samples, step, form="dict", orient=True)
    if isinstance(found, str):
        return found
    names = Finding('"img", "cls"', '"image", "label"', "keys of a batch")
    return replace(found, findings=(*found.findings, names))


def _listed(
    dataset: Any,
    root: str,
    samples: Sequence[tuple[str, int]],
    step: Any,
    **options: Any,
) -> AdoptedDataset | str:
    """Reads a list of files below a folder of classes."""
    if not all(PurePath(path).is_relative_to(root) for path, _ in samples):
        return f"its files are not below {root}"
    parts = [PurePath(path).relative_to(root).parts for path, _ in samples]
    classes = sorted({names[0] for names in parts if len(names) > 1})
    labels = [classes.index(names[0]) for names in parts if len(names) > 1]
    if labels != [label for _, label in samples]:
        return "its labels are not the numbers of the folders in sorted order"
    ranks = sorted(range(len(parts)), key=lambda at: parts[at])
    order = np.empty(len(parts), np.int64)
    order[ranks] = np.arange(len(parts))
    source = sources.Folder(root)
    finding = Finding(type(dataset).__name__, repr(source))
    return _native(dataset, source, finding, translate(step), order=order, **options)
