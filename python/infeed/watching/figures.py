"""What a watch measures, the shares and rates that follow, and the form of a verdict.

Plain data, so that verdicts are tested with made-up figures.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

Limit = Literal["step", "loader", "python", "interference"]

# Waiting below this share of the time is not worth a verdict: removing all of it would
# gain as much and no more.
WAITING = 0.05
# Loader and step closer than this are told as equal.
TIE = 0.05
# A step that is longer beside the loader by less than this is not blamed on it.
SLOWED = 0.05
# Share of requests that found the interpreter's lock held, from which on it is named.
HELD = 0.6
# What of that must be others' than the loop's thread, and cores that other threads of
# Python must use, before the lock is blamed for a slow step.
OTHERS = 0.2
PYTHON = 0.15
# Share of the usable cores from which on they count as all busy.
SATURATED = 0.9


@dataclass(frozen=True)
class Times:
    """Durations of one kind, in seconds.

    Attributes:
        middle_s: Mean without the shortest and longest twentieth.
        error_s: Its standard error; 0 where there were too few.
    """

    count: int
    total_s: float
    mean_s: float
    p50_s: float
    p99_s: float
    middle_s: float
    error_s: float


@dataclass(frozen=True)
class Alone:
    """The step on a batch that was in memory, with the loader at rest.

    Attributes:
        step: Durations, without those of settling.
        settle_s: Time given to the loader to come to rest.
        at_rest: Whether it did; if not, the step may be faster still.
    """

    step: Times
    settle_s: float
    at_rest: bool


@dataclass(frozen=True)
class Lock:
    """Share of requests that found the interpreter's lock held, 0 to 1; None: too few.

    Attributes:
        waiting: While the loop waited for data.
        stepping: During steps.
        alone: During steps with the loader at rest.
        wait_s: Mean time that a request waited during steps.
    """

    waiting: float | None
    stepping: float | None
    alone: float | None
    wait_s: float


@dataclass(frozen=True)
class Processor:
    """Cores that were busy on average after the first batch.

    Attributes:
        usable: Cores this process may use, quotas included.
        loop: The loop's own thread.
        loop_waiting: The loop's own thread while it waited for data.
        loop_stepping: The loop's own thread during steps.
        threads: Other threads of this process.
        python: Those of them that Python started.
        children: Processes it started.
        machine: Everything on the machine.
        sampled: Whether all but the loop's own thread was measured.
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
        """Cores that this process and its children kept busy."""
        return self.loop + self.threads + self.children

    @property
    def saturated(self) -> bool:
        """Whether no usable core was left."""
        return max(self.busy, self.machine) >= SATURATED * self.usable


@dataclass(frozen=True)
class Reach:
    """What an infeed pipeline gave, alone on this machine.

    Attributes:
        samples_per_s: After the first batch.
        samples: How many were counted.
        seconds: How long.
        first_batch_s: From opening to the first batch.
        pipeline: The pipeline, as code.
        notes: What it does not do that the loader may.
    """

    samples_per_s: float
    samples: int
    seconds: float
    first_batch_s: float
    pipeline: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figures:
    """What was measured.

    Attributes:
        loader: The loader's type.
        batches: How many were given out, repeats for the ceiling not counted.
        samples: How many they held; None where that cannot be told.
        epochs: How many were begun.
        first_batch_s: From the first `iter` to the first batch.
        seam_s: Between epochs: their first batches, and what loaders do at the end.
        wait: Time the loop waited for batches within epochs.
        step: Time between taking a batch and asking for the next.
        alone: The ceiling, where it was measured.
        lock: The interpreter's lock, where there is one.
        processor: Who was busy.
        reach: What infeed reaches over the same files, where they were named.
        sampler_s: Processor time the watch itself took besides the loop.
        asynchronous: Whether steps may still have run when they were counted as over.
    """

    loader: str
    batches: int
    samples: int | None
    epochs: int
    first_batch_s: float | None
    seam_s: float
    wait: Times
    step: Times
    alone: Alone | None
    lock: Lock | None
    processor: Processor
    reach: Reach | None = None
    sampler_s: float = 0.0
    asynchronous: bool = False

    @property
    def loop_s(self) -> float:
        """Time in the loop after the first batch."""
        return self.wait.total_s + self.seam_s + self.step.total_s

    @property
    def waiting(self) -> float:
        """Share of that time in which the loop waited for data, 0 to 1."""
        waited_s = self.wait.total_s + self.seam_s
        return waited_s / self.loop_s if self.loop_s else 0.0

    @property
    def per_batch(self) -> float:
        """Samples a batch; 1 where they cannot be told, so that rates are batches."""
        return self.samples / self.batches if self.samples and self.batches else 1.0

    @property
    def unit(self) -> str:
        """What rates count."""
        return "samples/s" if self.samples else "batches/s"

    @property
    def rate(self) -> float:
        """What the loop got."""
        if not self.step.count or not self.loop_s:
            return 0.0
        return self.step.count * self.per_batch / self.loop_s

    @property
    def step_s(self) -> float:
        """The step by itself, as far as it is known."""
        return self.alone.step.middle_s if self.alone else self.step.mean_s

    @property
    def step_rate(self) -> float:
        """What the step would take if batches were always there."""
        return self.per_batch / self.step_s if self.step_s else 0.0

    @property
    def slowed(self) -> float:
        """How much longer a step is beside the loader, 0.2 for a fifth; 0 if unsure."""
        if self.alone is None or not self.alone.step.middle_s:
            return 0.0
        alone = self.alone.step
        extra_s = self.step.middle_s - alone.middle_s
        if extra_s < 3 * math.hypot(self.step.error_s, alone.error_s):
            return 0.0
        return max(0.0, extra_s / alone.middle_s)

    @property
    def interference(self) -> float:
        """Share of the loop's time by which the loader makes steps longer."""
        if not self.loop_s:
            return 0.0
        return self.slowed / (1 + self.slowed) * self.step.total_s / self.loop_s


@dataclass(frozen=True)
class Verdict:
    """The limit, in words and numbers.

    Attributes:
        limit: What limits the loop: the ``step``; the ``loader``; ``python``: the
            interpreter's lock; ``interference``: the loader slows the step.
        rate: What it allows, in samples a second, or batches where samples are unknown.
        next_limit: What would limit the loop then; None if nothing else was seen.
        next_rate: What that allows.
        tie: Whether the two are too close to tell apart.
        claim: One line.
        evidence: What was seen, a line each.
        capacity: The arithmetic, a line each.
        advice: What to try.
        not_worth: What gains nothing, and why.
    """

    limit: Limit
    rate: float
    next_limit: Limit | None
    next_rate: float | None
    tie: bool
    claim: str
    evidence: list[str] = field(default_factory=list)
    capacity: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    not_worth: list[str] = field(default_factory=list)
