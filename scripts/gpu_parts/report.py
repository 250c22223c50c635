"""The report: a page of Markdown with the findings so far."""

import os
import time
from collections.abc import Sequence

from .findings import Files, read
from .steps import Settings, Step

# Bytes of a copy that is larger than any cache.
LARGE_COPY = 256 << 20

# Expected results of a run: name, figure or ratio, and the bound. For a missed target,
# the figures behind it give the reason.
TARGETS = [
    (
        "pinned copies over PyTorch's best",
        "ratio/pinned copy over PyTorch's",
        ">=",
        0.95,
    ),
    (
        "slowest expand kernel over copies on the device",
        "ratio/slowest expand",
        ">=",
        0.8,
    ),
    ("host cost of sending a batch, us", "host/call=send", "<=", 20.0),
    ("host cost of taking a batch, us", "host/call=take", "<=", 20.0),
    (
        "ResNet-50 fed with floats made on the device over a resident batch",
        "resnet50/over resident/infeed, floats on the device",
        ">=",
        0.99,
    ),
]


class Page:
    """The report of a run.

    Args:
        steps: All steps of the run.
        settings: Its settings.
        started: When it began, on the monotonic clock.
    """

    def __init__(self, steps: Sequence[Step], settings: Settings, started: float):
        self._steps = steps
        self._settings = settings
        self._started = started

    def write(self, files: Files) -> None:
        """Replaces the report in one step, so that it is never incomplete."""
        text = self.text(read(files.findings))
        unfinished = files.report.with_name(files.report.name + ".unfinished")
        unfinished.write_text(text)
        os.replace(unfinished, files.report)

    def text(self, findings: list[dict]) -> str:
        """Returns the page."""
        figures = [one for one in findings if one["kind"] == "figure"]
        figures += ratios(figures)
        lines = ["# Results of `scripts/gpu-check`", ""]
        if self._settings.is_simulated:
            lines += [
                "On the **simulated device**: the checks test infeed; the figures say",
                "nothing about a GPU.",
                "",
            ]
        elif self._settings.quick:
            lines += ["With `--quick`: the figures say nothing.", ""]
        facts = {one["name"]: one["value"] for one in findings if one["kind"] == "fact"}
        lines += table(["fact", "value"], [[*fact] for fact in facts.items()])
        lines += ["## Steps", ""]
        lines += table(["", "step", "s", "reason"], self._step_rows(findings))
        lines += ["## Targets", ""]
        judged = not (self._settings.is_simulated or self._settings.quick)
        rows = target_rows(figures, judged)
        lines += table(["", "target", "bound", "measured"], rows)
        lines += ["## Checks", ""]
        checks = [one for one in findings if one["kind"] == "check"]
        rows = [
            [
                word(c["outcome"]),
                c["step"],
                c["name"],
                c["detail"],
                f"{c['seconds']:.1f}",
            ]
            for c in checks
        ]
        lines += table(["", "step", "check", "seen", "s"], rows)
        lines += ["## Figures", ""]
        rows = [
            [one["step"], one["name"], f"{one['value']:.4g}", one["unit"]]
            for one in figures
        ]
        lines += table(["step", "figure", "value", "unit"], rows)
        notes = [one for one in findings if one["kind"] == "note"]
        if notes:
            lines += ["## Not measured", ""]
            rows = [[one["step"], one["name"], one["detail"]] for one in notes]
            lines += table(["step", "figure", "reason"], rows)
        seconds = time.monotonic() - self._started
        lines += [f"The run took {seconds:.0f} s.", ""]
        return "\n".join(lines)

    def _step_rows(self, findings: list[dict]) -> list[list[str]]:
        ended = {one["name"]: one for one in findings if one["kind"] == "step"}
        rows = []
        for step in self._steps:
            one = ended.get(step.name)
            if one is None:
                rows.append(
                    ["not run", step.name, "", "the run has not reached its end"]
                )
            else:
                seconds = f"{one['seconds']:.1f}"
                rows.append([word(one["outcome"]), step.name, seconds, one["detail"]])
        return rows


def word(outcome: str) -> str:
    """Returns an outcome for a table."""
    return {"failed": "**failed**", "not_run": "not run"}.get(outcome, outcome)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table; cell contents cannot break it."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append(f"| {' | '.join(map(cell, row))} |")
    return [*lines, ""]


def cell(value: object) -> str:
    """Returns text for a cell."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    return text if len(text) <= 600 else text[:600] + " ..."


def target_rows(figures: list[dict], judged: bool = True) -> list[list[str]]:
    """Returns the state of each target: met, missed, not measured, or not judged."""
    rows = []
    for name, start, sign, bound in TARGETS:
        values = [one["value"] for one in figures if one["name"].startswith(start)]
        if not values:
            rows.append(["not measured", name, f"{sign} {bound:g}", ""])
            continue
        # The median comes first among several figures of one name.
        value = values[0]
        is_reached = value >= bound if sign == ">=" else value <= bound
        state = "met" if is_reached else "**missed**"
        if not judged:
            state = "not judged"
        rows.append([state, name, f"{sign} {bound:g}", f"{value:.4g}"])
    return rows


def ratios(figures: list[dict]) -> list[dict]:
    """Returns figures computed from those of several steps; none if one side is
    missing.
    """
    values = {one["name"]: one["value"] for one in figures}

    def best(start: str) -> float:
        found = [value for name, value in values.items() if name.startswith(start)]
        return max(found, default=0.0)

    made = []

    def add(name: str, value: float, base: float) -> None:
        if value and base:
            one = {"kind": "figure", "step": "", "unit": "times", "name": name}
            made.append({**one, "value": value / base})

    copies = {n: v for n, v in values.items() if n.startswith("copy/on=device/bytes=")}
    large = [v for n, v in copies.items() if int(n.rpartition("=")[2]) >= LARGE_COPY]
    # A quick run has no large copy.
    memory = max(large, default=max(copies.values(), default=0.0))
    kernels = {n: v for n, v in values.items() if n.startswith("kernel/")}
    for name, value in kernels.items():
        add(f"ratio/{name} over copies on the device", value, memory)
    expand = [v for n, v in kernels.items() if n.startswith("kernel/expand/")]
    add("ratio/slowest expand kernel", min(expand, default=0.0), memory)
    add(
        "ratio/pinned copy over PyTorch's best",
        best("copy/to=device/memory=pinned/"),
        best("torch/copy/memory=pinned/"),
    )
    opened = [one["value"] for one in figures if one["name"] == "open/device"]
    if len(opened) > 1:
        add("ratio/opening with a cold over a warm JIT cache", opened[0], opened[1])
    add(
        "ratio/resident batch measured twice",
        values.get("resnet50/over resident/resident again", 0.0),
        1.0,
    )
    return made
