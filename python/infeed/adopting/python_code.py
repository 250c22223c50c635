"""The Python code that `adopt` calls for each sample of a loader."""

from typing import Any

from infeed.adopting.annotations import unwritten
from infeed.adopting.datasets import read_dataset
from infeed.adopting.prefetched import inner_of
from infeed.adopting.python_draws import process_problem
from infeed.watching.dataset_calls import AdoptedCode


def adopted_code(samples: Any, workers: int) -> AdoptedCode | None:
    """Returns the Python code that `adopt` calls; None if it calls none.

    It may read samples of the dataset, so the loop's process must not call it.

    Args:
        samples: The samples of a loader, as `unwrapped` returns them.
        workers: Worker processes of the loader.
    """
    with unwritten():
        read = read_dataset(samples)
    steps = read.records._python
    if read.is_python:
        # `sources.Items` calls the dataset in this process.
        return AdoptedCode(_name(inner_of(samples)), False, None)
    if not steps:
        return None
    problem = process_problem(steps, workers)
    return AdoptedCode(None, problem is None, problem)


def _name(dataset: Any) -> str:
    """Returns the name of the code that makes the samples of a dataset."""
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    # `with_transform` of `datasets` sets the function.
    function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
    if function is not None:
        return str(getattr(function, "__name__", type(function).__name__))
    return f"{type(dataset).__name__}.__getitem__"
