"""`adopt`, and its result."""

import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed import _check
from infeed.adopting.equivalence import Equivalence, compare
from infeed.adopting.own_loops import own_loops
from infeed.adopting.page import SLOWER, page
from infeed.adopting.recognize import recognize
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding
from infeed.pipeline import Pipeline
from infeed.watching import measure_throughput
from infeed.watching.batch_sizes import batch_sizes

# Turns of each loader. They alternate, so that other programs slow both.
_TURNS = 2
# Ratio of the ends of a range from which it answers nothing.
_WIDE = 2.0
_NO_GAIN = (
    "gain: not measured, because the samples in the loader's batches cannot be counted"
)
# Names of `infeed.adopting` that the code of a pipeline may use.
_PUBLIC = (
    *("BatchNormalize", "NamedSamples", "NormalizedSamples", "NumberedSamples"),
    *("RemainingSteps", "rfdetr_source", "table_source", "vision_source"),
    "yolo_source",
)
# Weights of more records are read from a file by the code.
_SHOWN_WEIGHTS = 64


@dataclass(frozen=True)
class Gain:
    """Throughput of both loaders, measured in turn.

    Attributes:
        theirs: Samples per second of the adopted loader, of each turn.
        ours: Samples per second of the pipeline, of each turn.
    """

    theirs: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The gain: the ratio of the means."""
        return sum(self.ours) / sum(self.theirs)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest ratio of two turns."""
        return min(self.ours) / max(self.theirs), max(self.ours) / min(self.theirs)

    def __str__(self) -> str:
        low, high = self.range
        mean = sum(self.ours) / len(self.ours), sum(self.theirs) / len(self.theirs)
        text = (
            f"{self.ratio:.2f}x [{low:.2f} to {high:.2f}]: {mean[0]:.0f} samples/s "
            f"instead of {mean[1]:.0f}"
        )
        if high > _WIDE * low:
            text += "; turns differ, so measure again when the machine is less busy"
        return text


@dataclass(frozen=True)
class Adoption:
    """A pipeline that replaces a loader.

    Attributes:
        pipeline: The pipeline.
        findings: What each part of the loader became.
        equivalence: Result of the comparison of samples; None if it was not asked for.
        gain: Throughput of both loaders; None if it was not asked for, or if the
            samples of the loader's batches cannot be counted.
        limit: What limits the pipeline, as `Loader.explain` says it; None if the gain
            was not asked for.
        batch_type: Type of a batch of `loader`: ``"dict"`` if samples are dictionaries.
        weights: Weight of each record, for a subset or a sampler; None without.
        names: Variables that `code` uses, by the text that they replace: the variable,
            and its meaning.
        variables: Value of each variable that `code` uses.
        adopted: Name of the class of the adopted loader.
        adapter: Framework of `loader`: ``"torch"`` or ``"tensorflow"``.
        problem: Reason why code in Python runs one call at a time although the adopted
            loader has processes, with the fix; None: it does not.
    """

    pipeline: Pipeline
    findings: tuple[Finding, ...]
    equivalence: Equivalence | None
    gain: Gain | None
    limit: str | None
    batch_type: Literal["tuple", "dict"] = "tuple"
    weights: Array | None = None
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    adopted: str = "DataLoader"
    adapter: Literal["torch", "tensorflow"] = "torch"
    problem: str | None = None

    @property
    def code(self) -> str:
        """Python code that makes the pipeline, to paste into a program."""
        lines = ["import infeed", f"import infeed.{self.adapter}"]
        lines += ["from infeed import sources", "from infeed import transforms as T"]
        if self.weights is not None and len(self.weights) > _SHOWN_WEIGHTS:
            lines.insert(0, "import numpy as np")
        pipeline = repr(self.pipeline)
        notes = []
        for text, (variable, meaning) in self.names.items():
            pipeline = pipeline.replace(text, variable)
            # A variable of the program is explained, and a function is defined.
            if meaning:
                notes.append(meaning if meaning.startswith("def ") else f"# {meaning}")
        used = [name for name in _PUBLIC if f"{name}(" in pipeline]
        if used:
            lines.append(f"from infeed.adopting import {', '.join(used)}")
        defined = [note for note in notes if note.startswith("def ")]
        if any("np." in text for text in defined) or "np.arange(" in pipeline:
            lines.insert(0, "import numpy as np")
        unknown = [finding.part for finding in self.findings if finding.became is None]
        if unknown:
            notes.append(f"# Called in Python, as in the adopted loader: {unknown}")
        if self.weights is not None:
            text, code = self._weights_code()
            pipeline = pipeline.replace(text, "weights")
            notes += code
        batch_type = f', "{self.batch_type}"' if self.batch_type != "dict" else ""
        lines += ["", *notes, f"pipeline = {pipeline}"]
        lines.append(f"loader = infeed.{self.adapter}.Loader(pipeline{batch_type})")
        if self.adapter == "tensorflow":
            lines.append("dataset = loader.dataset()  # for model.fit")
        return "\n".join(lines) + "\n"

    def _weights_code(self) -> tuple[str, list[str]]:
        """Returns the text of weights in the pipeline's code, and lines that set it."""
        assert self.weights is not None
        assert self.pipeline._weights is not None
        column = self.pipeline._weights.records
        text = "" if column is None else f"<{column.summary()}>"
        if len(self.weights) <= _SHOWN_WEIGHTS:
            return text, [f"weights = {self.weights.tolist()}"]
        return text, [
            '# Written by np.save("weights.npy", adopted.weights)',
            'weights = np.load("weights.npy", mmap_mode="r")',
        ]

    @property
    def html(self) -> str:
        """The report as a page: findings, proof with pictures, gain and code."""
        return page(
            self.adopted,
            self.findings,
            self.equivalence,
            None if self.gain is None else (self.gain.theirs, self.gain.ours),
            self.limit,
            self.code,
        )

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the page of `html`, which opens from disk without a network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    @property
    def report(self) -> str:
        """The findings, the comparison and the gain as text."""
        width = max((len(finding.part) for finding in self.findings), default=0)
        first, lines = [], []
        if self.gain is not None and self.gain.ratio < SLOWER:
            first.append(f"slower after adopting, {self.gain}")
        if self.problem is not None:
            first.append(f"code in Python runs one call at a time: {self.problem}")
        for found in self.findings:
            reason = f"  ({found.reason})" if found.reason else ""
            became = found.became or "called in Python"
            lines.append(f"{found.part:<{width}}  {became}{reason}")
        if self.equivalence is not None:
            lines += ["", f"proof: {self.equivalence}"]
        if self.gain is not None:
            lines += ["", f"gain: {self.gain}"]
        elif self.limit is not None:
            lines += ["", _NO_GAIN]
        if self.limit is not None:
            lines.append(f"limit: {self.limit}")
        return "\n".join([*first, "", *lines] if first else lines)

    def loader(self, **options: Any) -> Any:
        """Returns the loader that takes the place of the adopted one.

        It is an `infeed.torch.Loader`. For a dataset of tf.data it is an
        `infeed.tensorflow.Loader`, whose ``dataset()`` is for ``model.fit``.

        Args:
            **options: As in that class, such as ``device="cuda"`` or ``memory="8GiB"``.
        """
        adapter = importlib.import_module(f"infeed.{self.adapter}")
        return adapter.Loader(self.pipeline, self.batch_type, **options)

    def __str__(self) -> str:
        return self.report


def adopt(loader: Any, *, samples: int = 64, seconds: float | None = 5.0) -> Adoption:
    """Returns the pipeline that replaces a DataLoader, with proof and gain.

        adopted = infeed.adopt(loader)
        print(adopted.report)
        print(adopted.code)
        for images, labels in adopted.loader(device="cuda"):
            ...

    Recognizes datasets of torchvision, timm, Ultralytics and ``datasets``, their
    subsets and samplers, and transforms of torchvision v1 or v2 and albumentations. A
    step that it does not know is called in Python, and so are all steps after it. The
    samples of other datasets are made by their own ``__getitem__``. The report names
    these parts.

    Args:
        loader: A ``torch.utils.data.DataLoader`` with a batch size, or a dataset of
            tf.data, such as that of Keras's ``image_dataset_from_directory``.
        samples: Number of samples to compare with those of the dataset: labels, shapes
            and types exactly; values exactly or within one and a half levels of 8 bits;
            means and spreads of channels if transforms are random. 0: none.
        seconds: Duration of each of two turns in which each loader is measured. None:
            the gain is not measured.

    Raises:
        ConfigError: ``loader`` is another object, or has no batch size.
        InfeedError: The pipeline cannot be opened.
    """
    samples = _check.integer("adopt", "samples", samples)
    if seconds is not None:
        seconds = float(_check.number("adopt", "seconds", seconds, low=0))
    with own_loops():
        return _adopt(loader, samples, seconds)


def _adopt(loader: Any, samples: int, seconds: float | None) -> Adoption:
    found = recognize(loader)
    equivalence = None
    if samples:
        read = found.read
        equivalence = compare(
            read.dataset, read.records, samples, read.chosen, read.order
        )
    gain = limit = None
    if seconds is not None:
        gain = measure_gain(loader, found.pipeline, seconds)
        limit = _limit(found.pipeline)
    return Adoption(
        found.pipeline,
        found.findings,
        equivalence,
        gain,
        limit,
        found.batch_type,
        found.weights,
        found.read.names,
        found.read.variables,
        type(loader).__name__,
        found.read.adapter,
        found.problem,
    )


def measure_gain(loader: Any, pipeline: Pipeline, seconds: float) -> Gain | None:
    """Measures a loader and a pipeline in turn.

    Returns:
        Both rates. None if the samples of the loader's batches cannot be counted.
    """
    theirs, ours = [], []
    for _ in range(_TURNS):
        theirs.append(_rate(loader, seconds))
        ours.append(measure_throughput(pipeline, seconds).samples_per_s)
    return Gain(tuple(theirs), tuple(ours)) if min(theirs) > 0 else None


def _rate(
    loader: Any, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Returns the samples per second of a loader after its first batch.

    0 if the samples of its batches are unknown.
    """
    first: float | None = None
    samples, last = 0, clock()
    while first is None or last - first < seconds:
        before = samples
        sizes = batch_sizes(loader)
        for number, batch in enumerate(loader):
            last = clock()
            count = sizes(number, batch)
            if count is None:
                return 0.0
            if first is None:
                first = last
                continue
            samples += count
            if last - first >= seconds:
                break
        if samples == before:
            return _rate_of_epochs(loader, seconds, clock)
    return samples / max(last - (first or last), 1e-9)


def _rate_of_epochs(loader: Any, seconds: float, clock: Callable[[], float]) -> float:
    """Returns the samples per second of whole epochs, for those with one batch.

    The time of a batch includes the start of its epoch.
    """
    samples, begun = 0, clock()
    while True:
        before = samples
        sizes = batch_sizes(loader)
        samples += sum(sizes(*one) or 0 for one in enumerate(loader))
        took_s = clock() - begun
        if samples == before or took_s >= seconds:
            return samples / max(took_s, 1e-9)


def _limit(pipeline: Pipeline) -> str:
    """Returns the sentence that names the limit of a pipeline."""
    with pipeline.open() as loader:
        for step, _ in enumerate(loader):
            if step >= 20:
                break
        return str(loader.explain()).splitlines()[0]
