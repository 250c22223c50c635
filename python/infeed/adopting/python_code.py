"""The Python code that `adopt` calls for each sample of a loader."""

import itertools
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from infeed._functions import FunctionAdapter, FunctionStep
from infeed._process import ALIGNED, answer
from infeed.adopting.annotations import unwritten
from infeed.adopting.datasets import read_dataset
from infeed.adopting.prefetch_loader import inner_of
from infeed.adopting.python_draws import steps_problem
from infeed.adopting.record_draws import batch_records, sample_of
from infeed.adopting.samples import Sample
from infeed.errors import InfeedError
from infeed.pipeline import Pipeline
from infeed.seeding import HeldGenerators
from infeed.watching.adopted_code import AdoptedCode, AdoptedSteps
from infeed.watching.sampler import RunQueue

# Records whose steps are called, the calls for each, and the time after which no other
# call begins, in seconds.
_RECORDS, _CALLS = 8, 4
_SECONDS = 1.0


def adopted_code(
    samples: Any, workers: int
) -> tuple[AdoptedCode | None, frozenset[type]]:
    """Returns the Python code that `adopt` calls, and the classes of its steps.

    None if it calls none. It may read samples of the dataset, so the loop's process
    must not call it.

    Args:
        samples: The samples of a loader, as `unwrap` returns them.
        workers: Worker processes of the loader.
    """
    with unwritten():
        read = read_dataset(samples, workers)
    steps = read.records._python
    name = _name(inner_of(samples)) if read.is_python else None
    if name is None and not steps:
        return None, frozenset()
    classes = frozenset(map(type, _callables(steps)))
    measured = _measure_steps(read.records) if name is None else None
    if not workers:
        fix = "num_workers=0; set it to the number of processes"
        return AdoptedCode(name, False, fix, measured), classes
    problem = steps_problem(steps) if steps else read.problem
    return AdoptedCode(
        name, bool(steps) and problem is None, problem, measured
    ), classes


def _callables(steps: Sequence[FunctionStep]) -> list[Any]:
    """Returns the steps of other libraries and of the program."""
    functions = [getattr(step.function, "function", step.function) for step in steps]
    return [step for one in functions for step in getattr(one, "steps", ())]


def _measure_steps(records: Pipeline) -> AdoptedSteps | None:
    """Measures the function of a pipeline of single samples, as its processes call it.

    None if there are several functions, or if a call fails. The generators of this
    process do not continue after it where they were.
    """
    if len(records._python) != 1:
        return None
    (step,) = records._python
    try:
        read = batch_records(records._with(_python=()), 1)
        with read.open(workers=1) as loader:
            batches = itertools.islice(loader, _RECORDS)
            samples = [sample_of(batch) for batch in batches]
    except InfeedError:
        return None
    restored, HeldGenerators.restores = HeldGenerators.restores, False
    queue = RunQueue()
    # The threads of the loader ended: the time of their cores is not that of the calls.
    try:
        return _measure_calls(step, samples, queue)
    finally:
        HeldGenerators.restores = restored
        queue.close()


def _measure_calls(
    step: FunctionStep, samples: list[Sample], queue: RunQueue
) -> AdoptedSteps | None:
    """Measures the calls of a function with these samples; None: a call failed."""
    names = ", ".join(type(one).__name__ for one in _callables([step]))
    adapter = FunctionAdapter(step.function, False)
    calls, wall_s, processor_s = -1, 0.0, 0.0
    with tempfile.TemporaryFile() as file:
        for sample in [*samples[:1], *samples * _CALLS]:
            if wall_s > _SECONDS:
                break
            message = _write_sample(sample, calls + 1, file)
            queue.waited_s()
            begun = time.perf_counter()
            answered = answer(adapter, file.fileno(), message)
            if "raised" in answered:
                return None
            calls += 1
            # The first call imports modules and finds generators.
            if calls:
                wall_s += time.perf_counter() - begun - queue.waited_s()
                processor_s += answered["cpu_ns"] / 1e9
    if calls < 1 or not names:
        return None
    return AdoptedSteps(names, wall_s / calls, processor_s / calls)


def _write_sample(sample: Sample, call: int, file: Any) -> dict[str, Any]:
    """Writes a sample into the file, and returns the message of its call."""
    values, end = [], 0
    for name, array in sample.items():
        file.seek(end)
        file.write(array.tobytes())
        dtype, shape = array.dtype.name, list(array.shape)
        value = {"name": name, "kind": "array", "dtype": dtype, "shape": shape}
        values.append({**value, "at": end})
        end += -(-array.nbytes // ALIGNED) * ALIGNED
    file.flush()
    return {"values": values, "key": [call, 0], "end": end}


def _name(dataset: Any) -> str:
    """Returns the name of the code that makes the samples of a dataset."""
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    # `with_transform` of `datasets` sets the function.
    function = (getattr(dataset, "_format_kwargs", None) or {}).get("transform")
    if function is not None:
        return str(getattr(function, "__name__", type(function).__name__))
    return f"{type(dataset).__name__}.__getitem__"
