"""A dataset as a pipeline of its samples, and how its samples relate to records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from infeed import sources
from infeed.adopting.remaining import RemainingSteps
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding, Steps
from infeed.pipeline import Pipeline
from infeed.seeding import seed_draws


@dataclass(frozen=True)
class AdoptedDataset:
    """A dataset, and the pipeline of its samples one by one.

    Attributes:
        dataset: The dataset whose samples are compared.
        records: The pipeline, without order and batches.
        findings: What the dataset and its steps became.
        batch_type: Type of its samples, and so of the batches.
        chosen: Numbers of the samples that a `Subset` has, in its order; None: all.
        order: Number of each sample's record in the source; None: the same number.
        names: Variables of the program that its code uses, by the text in the
            pipeline's code that they replace: the variable, and its meaning.
        variables: Value of each of these variables.
        is_python: Whether the dataset's own code makes its samples.
        problem: Reason why this code runs in no processes, with the fix.
        adapter: Framework whose loader takes the place of the adopted one.
        checks: Each returns whether a function of the program still calls the same
            transforms.
    """

    dataset: Any
    records: Pipeline
    findings: tuple[Finding, ...]
    batch_type: Literal["tuple", "dict"] = "tuple"
    chosen: Array | None = None
    order: Array | None = None
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    is_python: bool = False
    problem: str | None = None
    adapter: Literal["torch", "tensorflow"] = "torch"
    checks: tuple[Callable[[], bool], ...] = ()

    @property
    def samples(self) -> int:
        """Number of samples, of which a `Subset` may have some several times."""
        return len(self.dataset) if self.chosen is None else len(self.chosen)

    def counts(self, weights: Array | None) -> Array | None:
        """Returns the weight of each record; None: each comes once.

        Args:
            weights: Weight of each sample; None: each comes once.
        """
        if self.chosen is None and weights is None:
            return None
        chosen = np.arange(len(self.dataset)) if self.chosen is None else self.chosen
        rows = chosen if self.order is None else self.order[chosen]
        return np.bincount(rows, weights, minlength=len(self.dataset)).astype(float)


def native_dataset(
    dataset: Any,
    source: sources.Source,
    finding: Finding,
    steps: Steps,
    *,
    order: Array | None = None,
    batch_type: Literal["tuple", "dict"] = "tuple",
    names: Mapping[str, tuple[str, str]] | None = None,
    variables: Mapping[str, Any] | None = None,
    **decode: Any,
) -> AdoptedDataset:
    """Returns a pipeline that decodes images and runs the steps."""
    records = Pipeline(source).decode(**decode)
    records = records.transform(*steps.native, layout=steps.layout)
    names, variables = dict(names or {}), dict(variables or {})
    if steps.rest:
        moved = steps.moved if steps.is_joint else frozenset[str]()
        rest = RemainingSteps(steps.rest, steps.is_tensor, moved)
        called = seed_draws(rest)
        records = records.python(called)
        code, values = rest.code()
        variables |= values
        meaning = f"{', '.join(values)}: steps of the adopted loader"
        names[repr(called)] = (f"infeed.seeding.seed_draws({code})", meaning)
    findings = (finding, *steps.findings)
    return AdoptedDataset(
        *(dataset, records, findings, batch_type, None, order, names, variables),
        checks=tuple(steps.checks),
    )


def library_of(dataset: Any) -> str:
    """Returns the name of the library that defines a dataset."""
    return type(dataset).__module__.partition(".")[0]
