"""The Python code that `adopt` calls for each sample of a loader."""

from collections.abc import Sequence
from typing import Any

from infeed._functions import FunctionStep
from infeed.adopting.annotations import unwritten
from infeed.adopting.datasets import read_dataset
from infeed.adopting.prefetched import inner_of
from infeed.adopting.python_draws import steps_problem
from infeed.watching.dataset_calls import AdoptedCode


def adopted_code(
    samples: Any, workers: int
) -> tuple[AdoptedCode | None, frozenset[type]]:
    """Returns the Python code that `adopt` calls, and the classes of its steps.

    None if it calls none. It may read samples of the dataset, so the loop's process
    must not call it.

    Args:
        samples: The samples of a loader, as `unwrapped` returns them.
        workers: Worker processes of the loader.
    """
    with unwritten():
        read = read_dataset(samples, workers)
    steps = read.records._python
    name = _name(inner_of(samples)) if read.is_python else None
    if name is None and not steps:
        return None, frozenset()
    classes = frozenset(map(type, _called(steps)))
    if not workers:
        fix = "num_workers=0; set it to the number of processes"
        return AdoptedCode(name, False, fix), classes
    problem = steps_problem(steps) if steps else read.problem
    return AdoptedCode(name, bool(steps) and problem is None, problem), classes


def _called(steps: Sequence[FunctionStep]) -> list[Any]:
    """Returns the steps of other libraries and of the program."""
    functions = [getattr(step.function, "function", step.function) for step in steps]
    return [step for one in functions for step in getattr(one, "steps", ())]


def _name(dataset: Any) -> str:
    """Returns the name of the code that makes the samples of a dataset."""
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    # `with_transform` of `datasets` sets the function.
    function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
    if function is not None:
        return str(getattr(function, "__name__", type(function).__name__))
    return f"{type(dataset).__name__}.__getitem__"
