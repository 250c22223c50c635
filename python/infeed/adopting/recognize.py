"""Reads a loader of PyTorch: its dataset, its order and its batches."""

from dataclasses import dataclass
from typing import Any

from infeed import sources
from infeed.adopting.steps import Finding, RemainingSteps, Steps, translate
from infeed.errors import ConfigError
from infeed.pipeline import Pipeline


@dataclass(frozen=True)
class Recognized:
    """A loader and the pipeline that replaces it.

    Attributes:
        pipeline: The pipeline, with shuffling and batches.
        records: The pipeline of single samples in the order of the dataset.
        dataset: The loader's dataset.
        findings: What each part became.
    """

    pipeline: Pipeline
    records: Pipeline
    dataset: Any
    findings: tuple[Finding, ...]


def recognize(loader: Any) -> Recognized:
    """Returns the pipeline for a loader.

    Raises:
        ConfigError: It is not a DataLoader of samples by number with a batch size.
    """
    dataset = _dataset(loader)
    source, finding, steps = _source(dataset)
    findings = [finding, *steps.findings]
    records = Pipeline(source)
    if isinstance(source, sources.Folder):
        records = records.decode().transform(*steps.native, layout=steps.layout)
        if steps.rest:
            records = records.python(RemainingSteps(steps.rest, steps.is_tensor))
    pipeline = records
    shuffles, finding = _order(loader)
    findings.append(finding)
    if shuffles:
        pipeline = pipeline.shuffle(seed=0)
    drops = bool(getattr(loader, "drop_last", False))
    pipeline = pipeline.batch(loader.batch_size, drop_last=drops)
    code = f".batch({loader.batch_size}{', drop_last=True' if drops else ''})"
    findings.append(Finding(f"batch_size={loader.batch_size}", code))
    collate = getattr(loader, "collate_fn", None)
    name = getattr(collate, "__name__", type(collate).__name__)
    if collate is not None and name != "default_collate":
        reason = "batches are stacked; move it into .python_batch(fn)"
        findings.append(Finding(f"collate_fn={name}", "left out", reason))
    workers = getattr(loader, "num_workers", 0)
    findings.append(Finding(f"num_workers={workers}", "threads, found while it runs"))
    return Recognized(pipeline, records, dataset, tuple(findings))


def _dataset(loader: Any) -> Any:
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(loader, "sampler"):
        raise ConfigError(
            f"adopt: a torch.utils.data.DataLoader is expected, got "
            f"{type(loader).__name__}"
        )
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"adopt: {type(dataset).__name__} has no samples by number; name its files "
            "as a source of infeed instead"
        )
    if not isinstance(getattr(loader, "batch_size", None), int):
        raise ConfigError(
            "adopt: the loader has no batch_size, so its batches come from a "
            "batch_sampler or from the dataset; build the pipeline with .batch(n)"
        )
    return dataset


def _source(dataset: Any) -> tuple[sources.Source, Finding, Steps]:
    """Returns the source of a dataset, and the translation of its transform."""
    name = type(dataset).__name__
    if reason := _not_a_folder(dataset):
        source: sources.Source = sources.Items(dataset)
        if type(dataset).__module__.startswith("datasets."):
            reason = "its tables are read without Python if it has no transform"
            return source, Finding(name, repr(source), reason), Steps()
        return source, Finding(name, None, reason), Steps()
    folder = sources.Folder(str(dataset.root))
    steps = translate(_transform(dataset))
    return folder, Finding(name, repr(folder)), steps


def _transform(dataset: Any) -> Any:
    return getattr(dataset, "transform", None)


def _not_a_folder(dataset: Any) -> str:
    """Returns why a dataset is not torchvision's ImageFolder; empty if it is."""
    module = type(dataset).__module__.partition(".")[0]
    if module != "torchvision" or type(dataset).__name__ != "ImageFolder":
        return "its __getitem__ is called for each sample, with its own transforms"
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    load = getattr(dataset, "loader", None)
    if getattr(load, "__name__", "") != "default_loader":
        return "it has a loader of its own for files"
    return ""


def _order(loader: Any) -> tuple[bool, Finding]:
    sampler = loader.sampler
    name = type(sampler).__name__
    if name == "SequentialSampler":
        return False, Finding(name, "the order of the files")
    if name == "RandomSampler" and not getattr(sampler, "replacement", False):
        return True, Finding("shuffle=True", ".shuffle(seed=0)")
    if name == "DistributedSampler":
        shuffles = bool(getattr(sampler, "shuffle", True))
        code = ".shuffle(seed=0)" if shuffles else "the order of the files"
        reason = "rank and world_size follow from the process group"
        return shuffles, Finding(name, code, reason)
    reason = (
        "the order of a sampler is not translated; see Pipeline.weights and .filter"
    )
    return True, Finding(name, ".shuffle(seed=0)", reason)
