"""Reads datasets: the source that replaces their files or samples, and transforms.

A dataset is known by its class, so no library is imported here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from infeed import sources
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.listed_datasets import read_timm, read_ultralytics
from infeed.adopting.prefetched import inner_of
from infeed.adopting.samples import NamedSamples, is_picture
from infeed.adopting.steps import Finding
from infeed.adopting.torchvision_datasets import (
    read_coco,
    read_image_folder,
    read_vision,
)
from infeed.pipeline import Pipeline
from infeed.seeding import seeded

# Each returns a dataset, the reason why it is called in Python, or an empty text.
_READERS = (read_image_folder, read_coco, read_vision, read_timm, read_ultralytics)
_OWN_SAMPLES = "its __getitem__ is called for each sample, with its own transforms"


def read_dataset(dataset: Any) -> AdoptedDataset:
    """Returns the pipeline of a dataset's samples."""
    if type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        return _subset(dataset)
    for reader in _READERS:
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
    inner = inner_of(dataset)
    name = type(inner).__name__
    first = dataset[0] if len(dataset) else None
    form: Literal["tuple", "dict"] = "dict" if isinstance(first, Mapping) else "tuple"
    became: str | None = None
    shown, variables = _variables(dataset)
    meaning = f"{', '.join(variables)}: of the adopted loader; dataset: the {name}"
    if len(variables) == 1:
        meaning = f"dataset: the {name} of the adopted loader"
    source = sources.Items(seeded(dataset))
    variable = (f"sources.Items(infeed.seeded({shown}))", meaning)
    if type(dataset).__module__.startswith("datasets."):
        function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
        if function is None:
            reason = "its tables are read without Python if it has no transform"
            source = sources.Items(dataset)
            became = "sources.Items(dataset)"
            variable = (became, meaning)
        else:
            called = getattr(function, "__name__", type(function).__name__)
            reason = (
                f"{called} is called with its rows; sources.Items(dataset.with_format("
                "None)) reads tables of images without Python, for .transform(...)"
            )
    elif _is_nested(first) or (form == "dict" and NamedSamples(dataset).lists()):
        (source, text), form = _flat_items(dataset, shown), "dict"
        variable = (text, f"{meaning}, with its targets as fields")
        reason += "; lists of rows are flat"
    finding = Finding(name, became, reason)
    return AdoptedDataset(
        dataset,
        _decoded(source, first),
        (finding,),
        form,
        names={repr(source): variable},
        variables=variables,
        is_python=became is None,
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


def _flat_items(dataset: Any, shown: str) -> tuple[sources.Items, str]:
    """Returns the samples of a dataset with the entries of their targets as fields.

    The text is the code of the source; `shown` is that of the dataset.
    """
    flat = NamedSamples(dataset)
    lists = flat.lists()
    code = f"infeed.seeded(NamedSamples({shown}))"
    if not lists:
        return sources.Items(seeded(flat)), f"sources.Items({code})"
    ragged = sources.Field(kind="ragged")
    fields = {name: ragged if name in lists else name for name in flat[0]}
    entries = ", ".join(
        f'"{name}": ' + ('sources.Field(kind="ragged")' if of is ragged else f'"{of}"')
        for name, of in fields.items()
    )
    text = f"sources.Items({code}, fields={{{entries}}})"
    return sources.Items(seeded(flat), fields=fields), text


def _decoded(source: sources.Source, first: Any) -> Pipeline:
    """Returns a pipeline that decodes images if a sample has Pillow images."""
    parts = first.values() if isinstance(first, Mapping) else first
    records = Pipeline(source)
    if isinstance(first, tuple | list | Mapping) and any(map(is_picture, parts)):
        return records.decode()
    return records
