"""Arguments of other libraries, and their replacements in infeed."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from infeed import sources, transforms
from infeed.errors import ConfigError

# Replacements for arguments of PyTorch's DataLoader.
_DATALOADER = {
    "batch_sampler": "Pipeline.shuffle, Pipeline.weights and Pipeline.batch",
    "batch_size": "Pipeline.batch(n)",
    "collate_fn": "Pipeline.python_batch(fn), which receives whole batches",
    "dataset": "a pipeline as the first argument",
    "drop_last": "Pipeline.batch(n, drop_last=True)",
    "generator": "Pipeline.shuffle(seed=0), which all random parameters follow",
    "multiprocessing_context": "remove it: threads do the work",
    "num_workers": "workers=n, the number of threads",
    "persistent_workers": "remove it: threads live as long as the loader",
    "pin_memory": 'device="cuda", which copies from pinned memory ahead of the step',
    "pin_memory_device": 'device="cuda:0"',
    "prefetch_factor": 'memory="2GiB" for batches on the host, slots=n for a device',
    "sampler": "Pipeline.shuffle and Pipeline.weights",
    "shuffle": "Pipeline.shuffle(seed=0)",
    "timeout": "stall=seconds, after which the log reports which stage waits",
    "worker_init_fn": "remove it: functions of Pipeline.python can take a seeded rng",
}

# Replacements for torchvision transforms with another name.
_TORCHVISION = {
    "ConvertImageDtype": "T.ToFloat()",
    "PILToTensor": 'remove it, or set layout="CHW"',
    "ToDtype": "T.ToFloat()",
    "ToImage": 'remove it, or set layout="CHW"',
    "ToTensor": 'T.ToFloat() with layout="CHW"',
    "RandomGrayscale": "T.Grayscale(3), or .python(fn) for a random one",
}


def check_options(owner: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Checks that all options are known.

    Raises:
        ConfigError: An option is unknown. The message has the replacement for an
            argument of PyTorch's DataLoader, and otherwise the known options.
    """
    known = sorted(known)
    for name, value in options.items():
        if name in known:
            continue
        other = _DATALOADER.get(name)
        if other is not None:
            raise ConfigError(
                f"{owner}: {name}={value!r} is an argument of PyTorch's DataLoader; "
                f"{_fix(other)}"
            )
        raise ConfigError(
            f"{owner}: no option {name!r}; use one of the options {', '.join(known)}"
        )


def _fix(replacement: str) -> str:
    """Returns an imperative: the replacement may already be one."""
    return replacement if replacement.startswith("remove") else f"use {replacement}"


_P = ParamSpec("_P")
_R = TypeVar("_R")


def reject_others(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a function so that `check_options` checks each call."""
    known = set(inspect.signature(function).parameters) - {"self"}

    @functools.wraps(function)
    def wrapper(*args: _P.args, **options: _P.kwargs) -> _R:
        check_options(function.__name__, options, known)
        return function(*args, **options)

    return wrapper


def transform_error(step: object) -> ConfigError:
    """Returns the error for an argument of `Pipeline.transform` of another type."""
    return ConfigError(f"transform: {_transform_problem(step)}")


def _transform_problem(step: object) -> str:
    if isinstance(step, list | tuple):
        return "got a list; pass transforms one by one with .transform(*steps)"
    if isinstance(step, type) and issubclass(step, transforms.Transform):
        return f"T.{step.__name__} is a class; call it: T.{step.__name__}(...)"
    kind = step if inspect.isclass(step) else type(step)
    name, module = kind.__name__, kind.__module__
    if module.partition(".")[0] in ("torchvision", "albumentations", "kornia"):
        library = module.partition(".")[0]
        if name == "Compose":
            return (
                f"got {library}'s Compose; pass its steps one by one, each from "
                "infeed.transforms (T), or call it in .python(fn)"
            )
        if name in transforms.__all__:
            return f"got {library}'s {name}; use T.{name} of infeed.transforms"
        if name in _TORCHVISION:
            return f"got {library}'s {name}; {_fix(_TORCHVISION[name])}"
        return (
            f"got {library}'s {name}, which infeed.transforms does not have; call it "
            "in .python(fn)"
        )
    if callable(step):
        called = getattr(step, "__name__", name)
        return (
            f"{called} is a function; use .python(fn), which calls it with a "
            "dictionary of the sample's fields"
        )
    return f"steps must be transforms of infeed.transforms, got {step!r}"


def source_error(source: object) -> ConfigError:
    """Returns the error for an argument of `Pipeline` that is not a source."""
    return ConfigError(f"Pipeline: {_source_problem(source)}")


def _source_problem(source: object) -> str:
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        return (
            f"source must be one of infeed.sources, got the path {path!r}; use "
            f"sources.Folder({path!r}) for a folder per class, or sources.Pairs, "
            "WebDataset, Parquet and others for other data"
        )
    if isinstance(source, type) and issubclass(source, sources.Source):
        return f"sources.{source.__name__} is a class; call it with the data to read"
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return (
            f"source must be one of infeed.sources, got {type(source).__name__}; use "
            "sources.Items(object) for an object with __getitem__ and __len__, or "
            "sources.Memory(name=array) for arrays"
        )
    return f"source must be one of infeed.sources, got {source!r}"
