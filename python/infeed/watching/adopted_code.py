"""Python code that `adopt` calls for each sample, with its measured time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AdoptedSteps:
    """Steps that one function of an adopted pipeline calls for each sample.

    Attributes:
        names: Names of their classes, with ``, `` between them.
        wall_s: Elapsed time of a call of the function, in seconds, without waits for a
            free core. Seeds of random draws, conversions, and the process's copies of
            inputs and results are parts of the call.
        processor_s: Processor time of the same, in seconds.
    """

    names: str
    wall_s: float
    processor_s: float


@dataclass(frozen=True)
class AdoptedCode:
    """Python code that `adopt` calls for each sample.

    Attributes:
        dataset: Code that makes the samples, such as ``Pairs.__getitem__``. None:
            infeed reads the files, and calls only steps.
        in_processes: Whether the code runs in as many processes as the loader has.
            Otherwise one call at a time runs.
        problem: Reason why steps do not run in processes, with the fix.
        steps: The steps, if infeed reads the files and a call could be measured. Some
            may be the loader's, outside of the calls of its dataset.
    """

    dataset: str | None
    in_processes: bool
    problem: str | None
    steps: AdoptedSteps | None = None
