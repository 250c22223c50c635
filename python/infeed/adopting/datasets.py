"""Reads datasets: the source that replaces their files or samples, and transforms.

A dataset is known by its class, so no library is imported here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from infeed import _code, sources
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.listed_datasets import read_timm, read_ultralytics
from infeed.adopting.numbered_samples import (
    NumberedSamples,
    process_problem,
    read_fields,
)
from infeed.adopting.prefetch_loader import inner_of
from infeed.adopting.rfdetr_datasets import read_rfdetr
from infeed.adopting.samples import NamedSamples
from infeed.adopting.steps import Finding
from infeed.adopting.tables import decode_images, read_table
from infeed.adopting.torchvision_datasets import (
    read_coco,
    read_image_folder,
    read_vision,
)
from infeed.adopting.torchvision_lists import read_vision_list
from infeed.adopting.yolo_datasets import read_yolo
from infeed.pipeline import Pipeline
from infeed.seeding import seed_draws

# Each returns a dataset, the reason why it is called in Python, or an empty text.
_READERS = (
    *(read_image_folder, read_coco, read_vision_list, read_vision, read_timm),
    *(read_ultralytics, read_yolo, read_rfdetr, read_table),
)
_OWN_SAMPLES = "its __getitem__ is called for each sample, with its own transforms"


def read_dataset(dataset: Any, workers: int = 0) -> AdoptedDataset:
    """Returns the pipeline of a dataset's samples.

    Args:
        dataset: The dataset.
        workers: Number of processes that may call its code; 0: this process.
    """
    found = read_native(dataset)
    if isinstance(found, AdoptedDataset):
        return found
    if (selection := _selection(dataset)) is None:
        return _items(dataset, found, workers)
    whole, numbers = selection
    if numbers is None:
        return read_dataset(whole, workers)
    # Its samples are made in Python, so nothing is gained by a selection.
    python = _items(dataset, _OWN_SAMPLES, workers)
    inner = read_dataset(whole).findings[0]
    named = replace(inner, part=f"Subset of {inner.part}")
    return replace(python, findings=(named, *python.findings[1:]))


def read_native(dataset: Any) -> AdoptedDataset | str:
    """Returns the pipeline of a dataset whose code makes no sample, or the reason.

    Other datasets are not called.
    """
    if (selection := _selection(dataset)) is not None:
        whole, numbers = selection
        inner = read_native(whole)
        if isinstance(inner, str) or numbers is None:
            return inner
        indices = np.asarray(numbers, np.int64) % max(inner.samples, 1)
        chosen = indices if inner.chosen is None else inner.chosen[indices]
        return replace(inner, chosen=chosen)
    for reader in _READERS:
        if found := reader(dataset):
            return found
    return _OWN_SAMPLES


def _selection(dataset: Any) -> tuple[Any, Sequence[int] | None] | None:
    """Returns the dataset from which another one selects samples, and their numbers.

    No numbers: it has all samples. None: the dataset selects none.
    """
    if type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        return dataset.dataset, dataset.indices
    if type(dataset).__name__ != "GradAccumAlignedDataset":
        return None
    # RF-DETR repeats some samples to fill the last step.
    inner = dataset._dataset
    added = [*dataset._pad_indices]
    return inner, [*range(len(inner)), *added] if added else None


def _items(dataset: Any, reason: str, workers: int) -> AdoptedDataset:
    """Returns the pipeline over the samples that a dataset makes itself."""
    shown, variables = _variables(dataset)
    name = type(inner_of(dataset)).__name__
    meaning = f"{', '.join(variables)}: of the adopted loader; dataset: the {name}"
    if len(variables) == 1:
        meaning = f"dataset: the {name} of the adopted loader"
    first = dataset[0] if len(dataset) else None
    batch_type: Literal["tuple", "dict"] = (
        "dict" if isinstance(first, Mapping) else "tuple"
    )
    samples, is_flat = dataset, _is_nested(first)
    fields = read_fields(dataset)
    if is_flat or (batch_type == "dict" and not fields.is_complete):
        samples = NamedSamples(dataset)
        fields = read_fields(samples)
    problem = None
    function = seed_draws(NumberedSamples(samples, tuple(fields.output)))
    if fields.is_complete and workers:
        problem = process_problem(function)
    if fields.is_complete and (fields.pads or (workers and problem is None)):
        code = shown if samples is dataset else f"NamedSamples({shown})"
        keys = ", ".join(map(_code.value, fields.output))
        code = f"NumberedSamples({code}, [{keys}])"
        source = sources.Memory(number=np.arange(len(dataset)))
        records = Pipeline(source).python(function, output=fields.output)
        if fields.pads:
            records = records.batch(1, pad=True)
        names = {
            repr(source): ("sources.Memory(number=np.arange(len(dataset)))", ""),
            repr(function): (f"infeed.seeding.seed_draws({code})", meaning),
        }
    else:
        is_flat = is_flat or (batch_type == "dict" and bool(fields.lists))
        items, code = _item_source(dataset, shown, fields.lists if is_flat else None)
        records = decode_images(items, first)
        names = {repr(items): (code, meaning)}
        if problem is not None:
            reason += f"; one call at a time, because {problem}"
    if is_flat:
        batch_type = "dict"
        reason += "; lists of rows are flat"
    return AdoptedDataset(
        dataset,
        records,
        (Finding(name, None, reason),),
        batch_type,
        names=names,
        variables=variables,
        is_python=True,
        problem=problem,
    )


def _variables(dataset: Any) -> tuple[str, dict[str, Any]]:
    """Returns the code of a dataset, and the values of the variables in it."""
    inner = inner_of(dataset)
    if inner is dataset:
        return "dataset", {"dataset": dataset}
    if dataset.erase is None:
        return f"NormalizedSamples(dataset, {dataset.normalize})", {"dataset": inner}
    code = f"NormalizedSamples(dataset, {dataset.normalize}, erase)"
    return code, {"dataset": inner, "erase": dataset.erase}


def _is_nested(first: Any) -> bool:
    """Whether a part of a sample is a dictionary of further values."""
    return isinstance(first, tuple | list) and any(map(_has_entries, first))


def _has_entries(part: Any) -> bool:
    """Whether a part of a sample is a dictionary, or a list that may have some."""
    if isinstance(part, list):
        return not part or isinstance(part[0], Mapping)
    return isinstance(part, Mapping)


def _item_source(
    dataset: Any, shown: str, lists: Collection[str] | None
) -> tuple[sources.Items, str]:
    """Returns the samples of a dataset as a source, and its code.

    Args:
        dataset: The dataset.
        shown: Its code.
        lists: Fields that are lists, if the entries of targets become fields.
    """
    if lists is None:
        return sources.Items(
            seed_draws(dataset)
        ), f"sources.Items(infeed.seeding.seed_draws({shown}))"
    flat = NamedSamples(dataset)
    code = f"infeed.seeding.seed_draws(NamedSamples({shown}))"
    if not lists:
        return sources.Items(seed_draws(flat)), f"sources.Items({code})"
    ragged = sources.Field(kind="ragged")
    fields = {name: ragged if name in lists else name for name in flat[0]}
    entries = ", ".join(
        f'"{name}": ' + ('sources.Field(kind="ragged")' if of is ragged else f'"{of}"')
        for name, of in fields.items()
    )
    text = f"sources.Items({code}, fields={{{entries}}})"
    return sources.Items(seed_draws(flat), fields=fields), text
