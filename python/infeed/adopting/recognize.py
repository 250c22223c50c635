"""Reads a loader: its dataset, its order and its batches."""

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.datasets import read_dataset
from infeed.adopting.keras_folders import read_graph
from infeed.adopting.order import read_batches, read_order
from infeed.adopting.other_loaders import loader_error
from infeed.adopting.prefetch_loader import unwrap
from infeed.adopting.python_draws import in_processes, read_draws
from infeed.adopting.record_draws import batch_records
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding
from infeed.adopting.tf_graphs import (
    UnknownGraphError,
    is_graph,
    read_steps,
)
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline


@dataclass(frozen=True)
class RecognizedLoader:
    """A loader and the pipeline that replaces it.

    Attributes:
        pipeline: The pipeline, with selection, shuffling and batches.
        read: The loader's dataset, and the pipeline of its single samples.
        findings: What each part became.
        weights: Weight of each record; None if each comes once.
        problem: Reason why code in Python runs in no processes, with the fix.
    """

    pipeline: Pipeline
    read: AdoptedDataset
    findings: tuple[Finding, ...]
    weights: Array | None
    problem: str | None = None

    @property
    def batch_type(self) -> Literal["tuple", "dict"]:
        """Form of a batch, as that of the dataset's samples."""
        return self.read.batch_type


def recognize(loader: Any) -> RecognizedLoader:
    """Returns the pipeline for a loader.

    Raises:
        ConfigError: It is not a DataLoader of samples by number with a batch size.
    """
    if is_graph(loader):
        return _of_graph(loader)
    loader, dataset = unwrap(loader)
    _check_dataset(loader, dataset)
    batches = read_batches(loader)
    workers = getattr(loader, "num_workers", 0)
    read = read_dataset(dataset, workers)
    order = read_order(batches.sampler, read.samples)
    findings = list(read.findings)
    pipeline, code, weights = _select(read, order.weights, order.epoch)
    if read.chosen is not None:
        reason = f"{read.samples} of {len(read.dataset)} samples"
        if not order.shuffles and np.any(np.diff(read.chosen) < 0):
            reason += ", in the order of the files"
        findings.insert(0, Finding(type(dataset).__name__, code, reason))
    findings.append(order.finding)
    if order.shuffles:
        pipeline = pipeline.shuffle(seed=0)
    options = {"drop_last": True} if batches.drops else {}
    pipeline = _batch_pipeline(pipeline, batches.size, options)
    drops = ", drop_last=True" if batches.drops else ""
    pads = ", pad=True" if pipeline._batch.pad else ""
    code = f".batch({batches.size}{drops}{pads})"
    reason = "pads images of different sizes" if pads else ""
    findings.append(Finding(f"batch_size={batches.size}", code, reason))
    findings += batches.findings
    findings += _collate(loader, pipeline._batch.pad)
    pipeline, problem = in_processes(pipeline, workers)
    reason = ""
    if any(step.processes for step in pipeline._python):
        reason = "code in Python: as many processes"
    elif problem:
        reason = f"code in Python: one call at a time, because {problem}"
    elif workers == 0 and (read.is_python or pipeline._python):
        reason = "code in Python: one call at a time; num_workers=n runs n processes"
    threads = "threads, found while it runs"
    findings.append(Finding(f"num_workers={workers}", threads, reason))
    findings += read_draws(read.records, pipeline)
    problem = problem or read.problem
    return RecognizedLoader(pipeline, read, tuple(findings), weights, problem)


def _of_graph(dataset: Any) -> RecognizedLoader:
    """Returns the pipeline for a dataset of tf.data."""
    try:
        steps = read_steps(dataset)
        read = read_graph(steps)
    except UnknownGraphError as error:
        raise ConfigError(f"adopt: {error}") from None
    findings = list(read.findings)
    pipeline, code, weights = _select(read, None, None)
    if read.chosen is not None:
        reason = f"{read.samples} of {len(read.dataset)} files"
        findings.insert(1, Finding("validation_split", code, reason))
    if steps.shuffles:
        pipeline = pipeline.shuffle(seed=0)
    options = {"drop_last": True} if steps.drops else {}
    pipeline = _batch_pipeline(pipeline, steps.batch_size, options)
    return RecognizedLoader(pipeline, read, (*findings, *steps.findings), weights)


def _batch_pipeline(pipeline: Pipeline, size: int, options: dict[str, Any]) -> Pipeline:
    """Returns the pipeline in batches, padded if its images may differ in size."""
    found = batch_records(pipeline, size, **options)
    try:
        # Sizes of some sources are known only after their first record is read.
        found.shapes  # noqa: B018
    except ConfigError:
        padded = pipeline.batch(size, pad=True, **options)
        with contextlib.suppress(ConfigError):
            padded.shapes  # noqa: B018
            return padded
    return found


def _check_dataset(loader: Any, dataset: Any) -> None:
    if dataset is None or not hasattr(loader, "sampler"):
        raise loader_error(loader)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"adopt: {type(dataset).__name__} has no samples by number; name its files "
            "as a source of infeed instead"
        )


def _select(
    read: AdoptedDataset, weights: Array | None, epoch: int | None
) -> tuple[Pipeline, str, Array | None]:
    """Returns the pipeline with the selection of a subset and a sampler, and its code.

    The last value has the weight of each record; None if there are no weights.
    """
    counts = read.counts(weights)
    if counts is None:
        return read.records, "", None
    records = int(counts.sum())
    is_once = set(np.unique(counts)) <= {0.0, 1.0}
    if weights is None and is_once and counts[:records].all():
        return read.records.take(records), f".take({records})", None
    if epoch is None and not is_once:
        epoch = records
    options = {} if epoch is None else {"epoch": epoch}
    shown = "" if epoch is None else f", epoch={epoch}"
    pipeline = read.records.weights(counts, **options)
    return pipeline, f".weights(weights{shown})", counts


def _collate(loader: Any, pads: bool) -> list[Finding]:
    collate = getattr(loader, "collate_fn", None)
    name = getattr(collate, "__name__", type(collate).__name__)
    if collate is None or name == "default_collate":
        return []
    made = "padded" if pads else "stacked"
    reason = f"batches are {made}; move it into .python_batch(fn)"
    return [Finding(f"collate_fn={name}", "left out", reason)]
