"""The verdict of a watch, from its figures: claim, evidence, arithmetic, advice."""

from infeed.watching.figures import (
    HELD,
    OTHERS,
    PYTHON,
    SATURATED,
    SLOWED,
    TIE,
    WAITING,
    DurationSummary,
    Figures,
    Limit,
    Verdict,
)


def verdict(figures: Figures) -> Verdict:
    """Returns the limit of the loop and the conclusions."""
    if not figures.step.count or not figures.wait.count:
        return Verdict(
            "step", 0.0, None, None, False,
            f"too short for a verdict: {figures.batches} batches, and it needs 3",
            evidence=_evidence(figures),
            advice=["watch a longer part of the run"],
        )  # fmt: skip
    limit, behind = _limits(figures)
    ratio = figures.waiting / (1 - figures.waiting) if figures.waiting < 1 else 1.0
    tie = limit in ("step", "loader") and 0.01 < ratio <= TIE
    if tie:
        behind = "loader" if limit == "step" else "step"
    return Verdict(
        limit=limit,
        rate=figures.rate,
        next_limit=behind,
        next_rate=_rate_behind(figures, limit) if behind else None,
        tie=tie,
        claim=_claim(figures, limit, tie),
        evidence=_evidence(figures),
        capacity=_capacity(figures),
        advice=_advice(figures, limit),
        not_worth=_not_worth(figures, limit),
    )


def _limits(figures: Figures) -> tuple[Limit, Limit | None]:
    """Returns the limit, and the limit after it."""
    slows = figures.slowed >= SLOWED and figures.interference >= SLOWED
    if figures.waiting >= WAITING and figures.waiting >= figures.interference:
        limit: Limit = "python" if _lock_held_by_loader(figures) else "loader"
        return limit, "interference" if slows else "step"
    if slows:
        limit = "python" if _lock_slows(figures) else "interference"
        return limit, "loader" if figures.waiting >= WAITING else "step"
    return "step", None


def _lock_held_by_loader(figures: Figures) -> bool:
    """Whether the loader's Python holds the lock while the loop waits for it."""
    held = figures.lock.waiting if figures.lock else None
    return held is not None and held >= HELD


def _lock_slows(figures: Figures) -> bool:
    """Whether other threads hold the lock during steps."""
    lock = figures.lock
    if lock is None or lock.stepping is None or figures.processor.python < PYTHON:
        return False
    # The loop's thread holds the lock no longer than it runs, and no longer with the
    # loader than alone.
    own = figures.processor.loop_stepping
    if lock.alone is not None:
        own = min(own, lock.alone)
    return lock.stepping >= HELD and lock.stepping - own >= OTHERS


def _rate_behind(figures: Figures, limit: Limit) -> float:
    """Returns the rate of the loop without its limit."""
    if limit in ("loader", "python") and figures.waiting >= WAITING:
        return figures.per_batch / figures.step.mean_s
    if limit in ("interference", "python"):
        return min(figures.step_rate, figures.rate * (1 + figures.slowed))
    return figures.rate / (1 - figures.waiting) if figures.waiting < 1 else 0.0


def _claim(figures: Figures, limit: Limit, tie: bool) -> str:
    waited = f"the loop waited {percent(figures.waiting)} of its time"
    if tie:
        return f"step and loader are equally fast here: {waited}"
    if limit == "loader":
        return f"the loader limits this run: {waited}"
    if limit == "step":
        return f"the step limits this run: {waited}"
    if limit == "python" and figures.waiting >= figures.interference:
        return f"Python's lock limits this run: {waited} for code that holds it"
    longer = (
        f"{milliseconds(figures.step.middle_s)} with the loader, "
        f"{milliseconds(figures.step_s)} alone"
    )
    if limit == "python":
        return f"the loader slows the step through Python's lock: {longer}"
    return f"the loader slows the step: {longer}"


def _evidence(figures: Figures) -> list[str]:
    size = f" of {figures.per_batch:.4g}" if figures.samples else ""
    lines = [
        f"{figures.batches} batches{size} in {figures.loop_s:.1f} s after the first"
        + ("" if figures.epochs < 2 else f", {figures.epochs} epochs")
    ]
    if figures.first_batch_s is not None:
        lines[0] += f", which took {duration(figures.first_batch_s)}"
    if figures.epochs > 1 and figures.seam_s > 0:
        share = figures.seam_s / figures.loop_s if figures.loop_s else 0.0
        lines.append(
            f"between epochs the loop waited {duration(figures.seam_s)} in all, "
            f"{percent(share)} of its time"
        )
    if figures.wait.count:
        lines.append(f"wait {_spread(figures.wait)}")
    if figures.step.count:
        lines.append(f"step {_spread(figures.step)}")
    if figures.alone is not None:
        alone = figures.alone
        rest = (
            ""
            if alone.at_rest
            else "; other threads, of the loader or the step, stayed as busy"
        )
        lines.append(
            f"step with the loader at rest {_spread(alone.step)} "
            f"({alone.step.count} times){rest}"
        )
    if figures.processor.sampled and figures.processor.busy:
        lines.append(_processor(figures))
    if (line := _lock(figures)) is not None:
        lines.append(line)
    if figures.asynchronous:
        lines.append(
            "a device computes asynchronously, so step and wait are those of the "
            "loop's thread; watch(..., sync=torch.cuda.synchronize) separates them"
        )
    return lines


def _processor(figures: Figures) -> str:
    busy = figures.processor
    parts = [f"loop {busy.loop:.1f}", f"other threads {busy.threads:.1f}"]
    if busy.children >= 0.05:
        parts.append(f"worker processes {busy.children:.1f}")
    others = busy.machine - busy.busy
    if others >= 0.2:
        parts.append(f"other programs {others:.1f}")
    total = f"{busy.busy:.1f} of {busy.usable:.3g} usable cores busy"
    return f"processor: {total}: {', '.join(parts)}"


def _lock(figures: Figures) -> str | None:
    lock = figures.lock
    if lock is None:
        return None
    parts = [
        f"{percent(share)} of requests {where}"
        for share, where in (
            (lock.waiting, "while waiting"),
            (lock.stepping, "during steps"),
            (lock.alone, "during steps alone"),
        )
        if share is not None
    ]
    return f"Python's lock was held at {', '.join(parts)}" if parts else None


def _capacity(figures: Figures) -> list[str]:
    """Returns the rates, each with its division."""
    count = figures.per_batch
    each_s = figures.loop_s / figures.step.count
    lines = [
        f"the loop: {count:.4g} / ({milliseconds(each_s - figures.step.mean_s)} wait + "
        f"{milliseconds(figures.step.mean_s)} step) = {_rate(figures, figures.rate)}"
    ]
    kind = "on a batch from memory" if figures.alone else "without waiting"
    lines.append(
        f"the step {kind}: {count:.4g} / {milliseconds(figures.step_s)} = "
        f"{_rate(figures, figures.step_rate)}"
    )
    if (throughput := figures.throughput) is not None and figures.samples:
        lines.append(
            f"infeed over the same files, alone: {throughput.samples} / "
            f"{throughput.seconds:.1f} s = {_rate(figures, throughput.samples_per_s)}"
        )
    return lines


def _advice(figures: Figures, limit: Limit) -> list[str]:
    advice = []
    if limit != "step":
        advice += _with_infeed(figures)
    busy = figures.processor
    others = busy.threads + busy.children
    gain = _times(_rate_behind(figures, limit), figures.rate)
    if limit == "loader":
        if not busy.sampled:
            advice.append(
                f"more workers if cores are idle, less work per sample if none is; at "
                f"most {gain}"
            )
        elif others < 0.05 and busy.loop_waiting > 0.5:
            overlapped = max(figures.step.mean_s, figures.wait.mean_s)
            both = figures.step.mean_s + figures.wait.mean_s
            advice.append(
                "prepare batches during the step instead of between steps: at best "
                f"{milliseconds(both)} -> {milliseconds(overlapped)} per step, "
                f"{_times(both, overlapped)}"
            )
        elif busy.busy >= SATURATED * busy.usable:
            advice.append(
                "less work per sample, because no core is left: `infeed explain DIR` "
                f"measures it; at most {gain}"
            )
        elif busy.saturated:
            advice.append(
                f"measure again when other programs leave more than "
                f"{max(0.0, busy.usable - busy.machine + busy.busy):.1f} of "
                f"{busy.usable:.3g} cores; the loader used {others:.1f}"
            )
        else:
            advice.append(
                f"more workers, because {busy.usable - busy.busy:.1f} of "
                f"{busy.usable:.3g} cores are idle, or faster storage; at most {gain}"
            )
    elif limit == "python":
        advice.append(
            "code that releases the lock while it works (decoders in C, infeed), or "
            f"worker processes; at most {gain}"
        )
    elif limit == "interference":
        advice.append(
            f"fewer workers, until a core is left for the step; at most {gain} if they "
            "still keep up"
        )
        if busy.threads > 0.5:
            advice.append(
                "fewer threads in the step's own pool, such as "
                "torch.set_num_threads(1), which compete with the workers"
            )
    else:
        advice.append(
            "a faster step: a smaller or compiled model, lower precision, a larger "
            "device"
        )
        if figures.alone is None:
            advice.append(
                "watch.ceiling(step) to measure whether the loader slows the step"
            )
    return advice


def _with_infeed(figures: Figures) -> list[str]:
    """Describes the loop over infeed: the slower of step and pipeline."""
    throughput = figures.throughput
    if throughput is None or not figures.samples:
        return []
    then = min(figures.step_rate, throughput.samples_per_s)
    waiting = max(0.0, 1 - throughput.samples_per_s / figures.step_rate)
    line = (
        f"infeed: min(step {figures.step_rate:.4g}, infeed "
        f"{throughput.samples_per_s:.4g}) = {_rate(figures, then)}, "
        f"{_times(then, figures.rate)}, waiting {percent(waiting)}"
    )
    return [line, *throughput.notes]


def _not_worth(figures: Figures, limit: Limit) -> list[str]:
    lines = []
    waiting = percent(figures.waiting)
    if limit == "step":
        most = _times(1, 1 - figures.waiting) if figures.waiting < 1 else "nothing"
        lines.append(
            f"more workers, another format or another loader: waiting is {waiting} of "
            f"the time, so at most {most}"
        )
        if figures.alone is not None:
            lines.append(
                f"removing the loader's effect on the step: {percent(figures.slowed)} "
                "longer with the loader"
            )
        return lines
    if limit == "python":
        lines.append("more threads in Python: they share the interpreter's lock")
    if limit == "interference":
        lines.append(f"more workers: the loop waits only {waiting}, and they compete")
    elif (busy := figures.processor).busy >= SATURATED * busy.usable:
        lines.append(
            f"more workers: {busy.busy:.1f} of {busy.usable:.3g} usable cores are busy"
        )
    if limit == "loader":
        lines.append("a faster device: the loop would wait longer for the same data")
    return lines


def _spread(times: DurationSummary) -> str:
    return (
        f"mean {milliseconds(times.mean_s)}, p50 {milliseconds(times.p50_s)}, "
        f"p99 {milliseconds(times.p99_s)}"
    )


def _rate(figures: Figures, rate: float) -> str:
    return f"{rate:.4g} {figures.unit}" if rate < 1000 else f"{rate:.0f} {figures.unit}"


def _times(after: float, before: float) -> str:
    """Formats a gain."""
    if not before:
        return "unknown"
    factor = after / before
    if 1 <= factor < 1.1:
        return f"{100 * (factor - 1):.1f} % faster"
    return f"{factor:.2g}x"


def percent(share: float) -> str:
    """Formats a share, with one digit below 10 %."""
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def milliseconds(seconds: float) -> str:
    """Formats a duration in milliseconds with three digits."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{1e3 * seconds:.0f} ms"


def duration(seconds: float) -> str:
    """Formats a duration in seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else milliseconds(seconds)
