"""Parts that are called in Python: where they run, and whether their draws repeat."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from infeed._functions import FunctionStep
from infeed.adopting.numbered_samples import process_problem
from infeed.adopting.record_draws import batch_records, sample_of
from infeed.adopting.samples import Sample, same_samples
from infeed.adopting.steps import Finding
from infeed.errors import InfeedError
from infeed.loader import Loader
from infeed.pipeline import Pipeline
from infeed.seeding import SeededFunction, SeededSamples

# Samples that are read several times, and samples that are read in between: code that
# keeps state between calls then has another one.
_SAMPLES = 4
_BETWEEN = 12
_PART = "random draws in Python"


def in_processes(pipeline: Pipeline, count: int) -> tuple[Pipeline, str | None]:
    """Returns the pipeline whose seeded functions run in processes, if they can.

    The text is the reason why they run in this process, with the fix; None if they do
    not, or if the adopted loader has no processes.
    """
    steps = pipeline._python
    if count < 1 or not steps:
        return pipeline, None
    if problem := steps_problem(steps):
        return pipeline, problem
    (step,) = steps
    step = replace(step, processes=count, output=step.output or _output(pipeline))
    return pipeline._with(_python=(step,)), None


def steps_problem(steps: Sequence[FunctionStep]) -> str | None:
    """Returns the reason why functions run in no processes, with the fix."""
    if len(steps) != 1 or not isinstance(steps[0].function, SeededFunction):
        return "several functions are called; call them in one"
    return process_problem(steps[0].function)


def _output(
    pipeline: Pipeline,
) -> tuple[tuple[str, str, str | None, tuple[int, ...]], ...]:
    """Returns what a call returns, so that opening starts no process to find out."""
    with contextlib.suppress(InfeedError):
        columns = pipeline.shapes
        rows = {
            name: tuple(axis for axis in column.shape[1:] if axis is not None)
            for name, column in columns.items()
            if column.kind == "array" and column.shape
        }
        if all(
            len(rows.get(of, ())) == len(columns[of].shape or ()) - 1 for of in columns
        ):
            return tuple(
                (name, "tensor", columns[name].dtype, row) for name, row in rows.items()
            )
    return ()


def read_draws(records: Pipeline, pipeline: Pipeline) -> list[Finding]:
    """Returns the finding on draws in Python; empty if there are none.

    Args:
        records: The pipeline of single samples.
        pipeline: The pipeline that replaces the loader.
    """
    is_source = isinstance(getattr(records.source, "dataset", None), SeededSamples)
    steps = [s for s in pipeline._python if isinstance(s.function, SeededFunction)]
    if not is_source and not steps:
        return []
    # A sample that cannot be read is an error of the comparison.
    with contextlib.suppress(InfeedError):
        with batch_records(records, 1).open(workers=1) as loader:
            rows = range(min(_SAMPLES, loader.records))
            first = [_read(loader, 0, row) for row in rows]
            others = [_read(loader, 1, row) for row in rows]
            for row in np.linspace(0, loader.records - 1, _BETWEEN, dtype=int):
                _read(loader, 0, int(row))
            again = [_read(loader, 0, row) for row in reversed(rows)][::-1]
        if not all(map(same_samples, first, again)):
            reason = (
                "two reads of one sample differ, so the code keeps state or draws from "
                "a generator that infeed does not find; take a parameter rng in "
                "__getitem__ or in a function of .python(fn)"
            )
            return [Finding(_PART, "not the same after a resume", reason)]
        if not all(map(same_samples, first, others)):
            return [
                Finding(
                    _PART, "infeed.seeding.seed_draws(...)", _reason(is_source, steps)
                )
            ]
    return []


def _reason(is_source: bool, steps: Sequence[FunctionStep]) -> str:
    by = "by seed, epoch and position"
    if not is_source and all(step.processes for step in steps):
        return by
    return f"{by}, unless the training loop draws on the CPU meanwhile"


def _read(loader: Loader, epoch: int, row: int) -> Sample:
    loader.seek(epoch, row)
    return sample_of(next(iter(loader)))
