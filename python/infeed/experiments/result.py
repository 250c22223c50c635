"""The result of an experiment: tables and their meaning, as text and JSON."""

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

from infeed._core import __version__


@dataclass(frozen=True)
class Table:
    """Rows of text under column titles.

    Attributes:
        columns: Titles; all columns but the first are right-aligned.
        rows: One text per column; "-" for no value.
        title: Line above the table; empty for none.
    """

    columns: list[str]
    rows: list[list[str]]
    title: str = ""

    def text(self) -> str:
        """Formats the table with columns as wide as their longest entry."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[n]) for line in lines) for n in range(len(self.columns))]
        out = [self.title] if self.title else []
        for line in lines:
            cells = [line[0].ljust(widths[0])]
            cells += [
                cell.rjust(width)
                for cell, width in zip(line[1:], widths[1:], strict=True)
            ]
            out.append("  ".join(cells).rstrip())
        return "\n".join(out)


@dataclass(frozen=True)
class Result:
    """One run of an experiment.

    Attributes:
        name: Name of the experiment.
        question: The question, in one sentence.
        tables: Measurements, in order.
        meaning: Conclusions, one sentence each.
        figures: The numbers for programs: seconds, bytes, samples/s.
        drawing: Lines of a drawing between tables and meaning.
    """

    name: str
    question: str
    tables: list[Table]
    meaning: list[str]
    figures: dict[str, Any]
    drawing: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Formats the result for the terminal."""
        parts = [self.question, *(table.text() for table in self.tables)]
        if self.drawing:
            parts.append("\n".join(self.drawing))
        parts.append("\n".join(_wrap(sentence) for sentence in self.meaning))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns the result for JSON."""
        return {"version": 1, "infeed": __version__, **asdict(self)}


def _wrap(sentence: str) -> str:
    return textwrap.fill(
        sentence, 100, initial_indent="- ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def rate(value: float) -> str:
    """Formats a rate with three digits, or as a whole number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    """Formats a duration in milliseconds with three digits."""
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def microseconds(seconds: float) -> str:
    """Formats a duration in microseconds with three digits, or as a whole number."""
    value = 1e6 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def size(count: float) -> str:
    """Formats a number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
