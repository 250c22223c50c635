"""Reads samplers of PyTorch: the order of samples, and how often each comes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.adopting.steps import Finding
from infeed.errors import ConfigError

_FILES = "the order of the files"
_SHUFFLE = ".shuffle(seed=0)"


@dataclass(frozen=True)
class SampleOrder:
    """Order of the samples of a dataset.

    Attributes:
        shuffles: Whether each epoch has another order.
        finding: The sampler, and what it became.
        weights: Weight of each sample; None: each comes once.
        epoch: Samples per epoch; None: as many as there are with a weight above 0.
    """

    shuffles: bool
    finding: Finding
    weights: npt.NDArray[np.float64] | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class LoaderBatches:
    """Batches of a DataLoader.

    Attributes:
        sampler: Its sampler.
        size: Samples per batch.
        drops: Whether a last batch that is not full is dropped.
        findings: Parts that are not translated.
    """

    sampler: Any
    size: int
    drops: bool
    findings: tuple[Finding, ...] = ()


def read_batches(loader: Any) -> LoaderBatches:
    """Returns the batches of a DataLoader, also of one with a batch sampler.

    Raises:
        ConfigError: The loader has no batches of a fixed size.
    """
    size = getattr(loader, "batch_size", None)
    if isinstance(size, int):
        drops = bool(getattr(loader, "drop_last", False))
        return LoaderBatches(loader.sampler, size, drops)
    batches = getattr(loader, "batch_sampler", None)
    size, sampler = getattr(batches, "batch_size", None), _inner(batches)
    if not isinstance(size, int) or sampler is None:
        raise ConfigError(
            "adopt: the loader has no batch_size, so its batches come from a "
            "batch_sampler or from the dataset; build the pipeline with .batch(n)"
        )
    drops = bool(getattr(batches, "drop_last", False))
    name = type(batches).__name__
    findings: tuple[Finding, ...] = ()
    if name != "BatchSampler":
        reason = "samples are not grouped; pad=True and buckets do the same for sizes"
        findings = (Finding(name, "batches in the order of samples", reason),)
    return LoaderBatches(sampler, size, drops, findings)


def _inner(batches: Any) -> Any:
    return getattr(batches, "sampler", None)


def read_order(sampler: Any, samples: int) -> SampleOrder:
    """Returns the order of a sampler over a number of samples."""
    name = type(sampler).__name__
    if name == "SequentialSampler":
        return SampleOrder(False, Finding(name, _FILES))
    if name == "RandomSampler":
        return _random(sampler, samples)
    if name == "DistributedSampler":
        shuffles = bool(getattr(sampler, "shuffle", True))
        reason = "rank and world_size follow from the process group"
        return SampleOrder(
            shuffles, Finding(name, _SHUFFLE if shuffles else _FILES, reason)
        )
    if name == "SubsetRandomSampler":
        counts = np.bincount(np.asarray(sampler.indices, np.int64), minlength=samples)
        finding = Finding(name, f".weights(weights){_SHUFFLE}", "1 for its samples")
        return SampleOrder(True, finding, counts.astype(np.float64))
    if name == "WeightedRandomSampler" and getattr(sampler, "replacement", False):
        weights = np.zeros(samples)
        given = np.asarray(sampler.weights, np.float64)
        weights[: len(given)] = given
        epoch = int(sampler.num_samples)
        code = f".weights(weights, epoch={epoch}){_SHUFFLE}"
        reason = "counts are exact, and not drawn"
        return SampleOrder(True, Finding(name, code, reason), weights, epoch)
    reason = (
        "the order of a sampler is not translated; see Pipeline.weights and .filter"
    )
    return SampleOrder(True, Finding(name, _SHUFFLE, reason))


def _random(sampler: Any, samples: int) -> SampleOrder:
    """Returns the order of a `RandomSampler`, which may draw samples several times."""
    epoch = int(getattr(sampler, "num_samples", samples))
    if not getattr(sampler, "replacement", False) and epoch == samples:
        return SampleOrder(True, Finding("shuffle=True", _SHUFFLE))
    code = f".weights(weights, epoch={epoch}){_SHUFFLE}"
    finding = Finding("RandomSampler", code, "all samples come equally often")
    return SampleOrder(True, finding, np.ones(samples), epoch)
