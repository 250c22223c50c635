"""Loaders of trainers: batches of an epoch, waiting, and the report before it."""

import dataclasses
import importlib
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from infeed._core import __version__
from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.adoption import Gain, measure_gain
from infeed.adopting.equivalence import Equivalence, compare
from infeed.pipeline import Pipeline
from infeed.seeding import restore_generators
from infeed.trainers import Settings

# Samples that are compared.
_SAMPLES = 64
# Share of the time of the report in which samples are compared.
_PROOF_SHARE = 0.6
# Share of the time of an epoch below which waiting for batches does not matter.
_NO_WAIT = 0.02
# A longer first epoch is reported after this time and this number of steps: a user need
# not wait for its end, and the first steps, which are often slower, count little.
_EARLY_S, _EARLY_STEPS = 60.0, 20

# Why batches stay with a trainer after a comparison.
DIFFERENCE = "the samples of infeed differ"

# Prints a line or several.
Log = Callable[[str], None]


class UnknownSamplesError(Exception):
    """The batches of a loader stay with the trainer; the text is the reason."""


def torch_adapter() -> Any:
    """Returns infeed's module for PyTorch."""
    return importlib.import_module("infeed.torch")


def print_line(text: str) -> None:
    """Prints lines on the standard error, where progress bars are."""
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class EpochTimes:
    """Times of the first epoch, from its first batch to its last one or a later one.

    Attributes:
        steps: Number of steps between.
        waited_s: Seconds of waiting for batches.
        took_s: Seconds of these steps, with waiting.
        is_whole: Whether these are all steps of the epoch.
    """

    steps: int
    waited_s: float
    took_s: float
    is_whole: bool = True

    def describe(
        self, gain: Gain | None, batch: int, workers: int, trainer: str
    ) -> str:
        """Returns the measured time of a step, and what it is predicted to be.

        Args:
            gain: Rates that were measured before the training; None: nothing is
                predicted.
            batch: Samples of a batch.
            workers: Processes of the loader that is replaced.
            trainer: Name of the trainer.
        """
        share = self.waited_s / max(self.took_s, 1e-9)
        step_s = self.took_s / self.steps
        busy_s = (self.took_s - self.waited_s) / self.steps
        which = "the first epoch" if self.is_whole else f"the first {self.steps}"
        text = (
            f"infeed: a step of {which} took {1e3 * step_s:.3g} ms, and waited "
            f"{1e3 * (step_s - busy_s):.2g} ms of them for its batch ({share:.0%})"
        )
        if gain is not None:
            theirs, ours = (
                batch * len(rates) / sum(rates) for rates in (gain.theirs, gain.ours)
            )
            # Without workers, the step waits until its batch is made.
            before_s = max(busy_s, theirs) if workers else busy_s + theirs
            text += (
                f"; predicted: {1e3 * max(busy_s, ours):.3g} ms, and "
                f"{1e3 * before_s:.3g} ms with the loader of {trainer}"
            )
        if share < _NO_WAIT:
            text += ". The step is the limit: a faster loader gains nothing"
        return text


class FirstEpoch:
    """Measures the first epoch of a loader, and reports its times once.

    Args:
        trainer: Name of the trainer, as users write it.
        gain: Measured rates of both loaders; None: nothing is predicted.
        log: Prints the lines of the report.
    """

    def __init__(self, trainer: str, gain: Gain | None, log: Log) -> None:
        self._trainer, self._gain, self._log = trainer, gain, log
        self._times: EpochTimes | None = None
        self._has_reported = False

    def measure(
        self,
        batches: Iterable[Any],
        steps: int,
        convert: Callable[[Any], Any],
        report: Callable[[], None],
    ) -> Iterator[Any]:
        """Yields the converted batches of an epoch.

        Args:
            batches: The batches.
            steps: Their number.
            convert: Converts a batch.
            report: Calls `report`, after the first steps of a long epoch.
        """
        begun = before = time.perf_counter()
        waited = 0.0
        for step, batch in enumerate(batches):
            now = time.perf_counter()
            if step == 0:
                begun = now
            else:
                waited += now - before
            # A loop over `len` steps does not ask for the end.
            is_whole = step == steps - 1
            is_early = step >= _EARLY_STEPS and now - begun >= _EARLY_S
            if step and self._times is None and (is_whole or is_early):
                self._times = EpochTimes(step, waited, now - begun, is_whole)
                if not is_whole:
                    report()
            yield convert(batch)
            before = time.perf_counter()

    def report(self, batch: int, workers: int, budget_bytes: int) -> None:
        """Prints how long a step took and waited, once, if it was measured.

        Args:
            batch: Samples of a batch.
            workers: Processes of the loader that is replaced.
            budget_bytes: Memory budget of infeed's loader.
        """
        if self._times is None or self._has_reported:
            return
        self._has_reported = True
        text = self._times.describe(self._gain, batch, workers, self._trainer)
        budget = budget_bytes / (1 << 20)
        self._log(f"{text}. infeed uses up to {budget:.0f} MiB of memory")


class TrainerLoader:
    """The batches of a pipeline in the layout of a trainer.

    A subclass says which pipeline that is, and converts its batches.

    Args:
        original: The loader that it replaces, whose other attributes it has.
        trainer: Name of the trainer, as users write it.
        gain: Measured rates of both loaders; None: nothing is predicted.
        log: Prints the lines of the report.
    """

    num_workers = 0

    def __init__(self, original: Any, trainer: str, gain: Gain | None, log: Log):
        self._original = original
        self._loader: Any = None
        self._first_epoch = FirstEpoch(trainer, gain, log)

    def describe(self) -> tuple[Pipeline, dict[str, Any]]:
        """Returns the pipeline of a training, and the options of its loader."""
        raise NotImplementedError

    def converter(self) -> Callable[[dict[str, Any]], Any]:
        """Returns the function that turns batches into those of the trainer."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __len__(self) -> int:
        return len(self._open())

    def iterate(self, epoch: int | None) -> Iterator[Any]:
        """Yields the batches of an epoch; None: of the next one."""
        loader = self._open()
        self.begin_epoch(loader, epoch)
        yield from self._first_epoch.measure(
            loader, len(loader), self.converter(), self.report_epoch
        )

    def begin_epoch(self, loader: Any, epoch: int | None) -> None:
        """Begins an epoch of infeed's loader; None: the next one."""
        if epoch is not None:
            loader.set_epoch(epoch)

    def close(self) -> None:
        """Ends the threads of the pipeline."""
        loader, self._loader = self._loader, None
        if loader is not None:
            loader.close()

    def _open(self) -> Any:
        """Returns the loader of the pipeline, which it opens first."""
        if self._loader is None:
            pipeline, options = self.describe()
            self._loader = torch_adapter().Loader(pipeline, **options)
        return self._loader

    def report_epoch(self) -> None:
        """Prints how long a step of the first epoch took and waited, once."""
        if self._loader is not None:
            workers = int(getattr(self._original, "num_workers", 0))
            budget = self._loader.loader.stats()["budget_bytes"]
            self._first_epoch.report(int(self.batch_size), workers, budget)


@dataclasses.dataclass(frozen=True)
class Report:
    """Comparison of a loader and of the pipeline that replaces it.

    Attributes:
        proof: Comparison of samples; None if they were not compared.
        gain: Rates of both loaders; None if they were not measured.
    """

    proof: Equivalence | None = None
    gain: Gain | None = None


def samples_differ(compared: Report | None) -> bool:
    """Whether a comparison found a difference.

    In a training of several processes of PyTorch, all of them call it, and get the
    answer of the first one.

    Args:
        compared: The comparison; None in processes that do not compare.
    """
    proof = None if compared is None else compared.proof
    differs = proof is not None and not proof.is_equivalent
    distributed = importlib.import_module("torch.distributed")
    if distributed.is_available() and distributed.is_initialized():
        answers = [differs]
        distributed.broadcast_object_list(answers, src=0)
        (differs,) = answers
    return differs


def report(
    found: AdoptedDataset,
    loader: Any | None,
    pipeline: Pipeline,
    settings: Settings,
    log: Log,
    scope: str,
) -> Report:
    """Prints what replaces a loader, and compares samples and rates.

    The generators of Python, NumPy and PyTorch continue as if nothing was drawn.

    Args:
        found: The loader's dataset, and the pipeline of its samples.
        loader: The loader that is replaced; None: no rates are measured.
        pipeline: The pipeline of its batches.
        settings: Settings of `infeed.install`.
        log: Prints lines.
        scope: The batches that infeed makes.

    Returns:
        The comparison, and the rates of both loaders.
    """
    width = max(len(finding.part) for finding in found.findings)
    lines = [
        f"infeed {__version__} makes {scope}. INFEED_TRAINERS=off gives its loader "
        "back."
    ]
    lines += [f"  {of.part:<{width}}  {of.became}" for of in found.findings]
    log("\n".join(lines))
    if not settings.proof_seconds:
        return Report()
    with restore_generators():
        proof = compare(
            found.dataset,
            found.records,
            _SAMPLES,
            found.chosen,
            found.order,
            limits_s=(float("inf"), _PROOF_SHARE * settings.proof_seconds),
        )
        log(f"  proof: {proof}")
        if statistics := proof.statistics():
            log(textwrap.indent(statistics, " " * 4))
        if loader is None:
            return Report(proof)
        # Each loader has two turns.
        turn_s = (1 - _PROOF_SHARE) * settings.proof_seconds / 4
        gain = measure_gain(loader, pipeline, turn_s)
        log("  gain: " + (str(gain) if gain else "not measured"))
        return Report(proof, gain)
