"""Measurements of a watch, and the shares and rates computed from them.

All of it is plain data, so that tests can make up measurements.
"""

import math
from dataclasses import dataclass

from infeed.watching.dataset_calls import DatasetCalls


@dataclass(frozen=True)
class DurationSummary:
    """Durations of one kind, in seconds.

    Attributes:
        count: Number of durations.
        total_s: Their sum.
        mean_s: Their mean.
        p50_s: Their median.
        p99_s: The duration that 1 % of them exceed.
        middle_s: Mean without the longest and shortest 5 %.
        error_s: Standard error of `middle_s`; 0 with too few durations.
    """

    count: int
    total_s: float
    mean_s: float
    p50_s: float
    p99_s: float
    middle_s: float
    error_s: float


@dataclass(frozen=True)
class Ceiling:
    """The step on a batch in memory, with the loader at rest.

    Attributes:
        step: Durations of the step, without those before the loader was at rest.
        settle_s: Time given to the loader to come to rest, in seconds.
        at_rest: Whether it came to rest; if not, the step may be even faster.
    """

    step: DurationSummary
    settle_s: float
    at_rest: bool


@dataclass(frozen=True)
class LockShares:
    """Share of requests that found the interpreter's lock held, 0 to 1.

    None means too few requests.

    Attributes:
        waiting: Share while the loop waited for data.
        stepping: Share during steps.
        alone: Share during steps with the loader at rest.
        wait_s: Mean waiting time of a request during steps, in seconds.
    """

    waiting: float | None
    stepping: float | None
    alone: float | None
    wait_s: float


@dataclass(frozen=True)
class ProcessorLoad:
    """Mean number of busy cores after the first batch.

    Attributes:
        usable: Cores that this process may use, including quotas.
        loop: Cores used by the loop's own thread.
        loop_waiting: Cores used by the loop's thread while it waited for data.
        loop_stepping: Cores used by the loop's thread during steps.
        threads: Cores used by other threads of this process.
        python: Part of `threads` that Python started.
        children: Cores used by child processes.
        machine: Cores used by all programs on the machine.
        sampled: Whether more than the loop's own thread was measured.
    """

    usable: float
    loop: float
    loop_waiting: float
    loop_stepping: float
    threads: float
    python: float
    children: float
    machine: float
    sampled: bool = True

    @property
    def busy(self) -> float:
        """Cores used by this process and its children."""
        return self.loop + self.threads + self.children


@dataclass(frozen=True)
class Throughput:
    """Throughput of an infeed pipeline that runs alone on this machine.

    Attributes:
        samples_per_s: Samples per second after the first batch.
        samples: Number of samples counted.
        seconds: Duration of the measurement.
        first_batch_s: Time from opening to the first batch, in seconds.
        pipeline: The pipeline, as code.
        notes: Work of the watched loader that the pipeline does not do.
    """

    samples_per_s: float
    samples: int
    seconds: float
    first_batch_s: float
    pipeline: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figures:
    """Measurements of a watch.

    Attributes:
        loader: Type of the loader.
        batches: Number of batches, without repetitions for the ceiling.
        samples: Number of samples; None if unknown.
        epochs: Number of epochs begun.
        first_batch_s: Time from the first `iter` to the first batch, in seconds.
        seam_s: Waiting time between epochs: for their first batches, and for the
            loader's work at their end, in seconds.
        wait: Waiting times for batches within epochs.
        step: Times from taking a batch to asking for the next one.
        alone: The ceiling, if it was measured.
        lock: The interpreter's lock, if there is one.
        processor: Use of the processor.
        throughput: Throughput of infeed over the same files, if they were named.
        calls: Calls of the dataset of a DataLoader that the loop waits for.
        sampler_s: Processor time of the watch itself, outside the loop, in seconds.
        asynchronous: Whether a device may have worked beyond the end of a step.
    """

    loader: str
    batches: int
    samples: int | None
    epochs: int
    first_batch_s: float | None
    seam_s: float
    wait: DurationSummary
    step: DurationSummary
    alone: Ceiling | None
    lock: LockShares | None
    processor: ProcessorLoad
    throughput: Throughput | None = None
    calls: DatasetCalls | None = None
    sampler_s: float = 0.0
    asynchronous: bool = False

    @property
    def loop_s(self) -> float:
        """Time in the loop after the first batch, in seconds."""
        return self.wait.total_s + self.seam_s + self.step.total_s

    @property
    def waiting(self) -> float:
        """Share of the loop's time in which it waited for data, 0 to 1."""
        waited_s = self.wait.total_s + self.seam_s
        return waited_s / self.loop_s if self.loop_s else 0.0

    @property
    def per_batch(self) -> float:
        """Samples per batch; 1 if unknown, so that rates count batches."""
        return self.samples / self.batches if self.samples and self.batches else 1.0

    @property
    def unit(self) -> str:
        """Unit of the rates."""
        return "samples/s" if self.samples else "batches/s"

    @property
    def rate(self) -> float:
        """Rate of the loop."""
        if not self.step.count or not self.loop_s:
            return 0.0
        return self.step.count * self.per_batch / self.loop_s

    @property
    def step_s(self) -> float:
        """Time of the step alone, as far as it is known, in seconds."""
        return self.alone.step.middle_s if self.alone else self.step.mean_s

    @property
    def step_rate(self) -> float:
        """Rate of the step if it never waited for batches."""
        return self.per_batch / self.step_s if self.step_s else 0.0

    @property
    def slowdown(self) -> float:
        """Relative slowdown of the step by the loader: 0.2 is 20 %; 0 if unclear."""
        if self.alone is None or not self.alone.step.middle_s:
            return 0.0
        alone = self.alone.step
        extra_s = self.step.middle_s - alone.middle_s
        if extra_s < 3 * math.hypot(self.step.error_s, alone.error_s):
            return 0.0
        return max(0.0, extra_s / alone.middle_s)

    @property
    def interference(self) -> float:
        """Share of the loop's time that is due to this slowdown."""
        if not self.loop_s:
            return 0.0
        return self.slowdown / (1 + self.slowdown) * self.step.total_s / self.loop_s
