"""The report of a watch: figures and verdict, as text and as data."""

import json
import textwrap
from dataclasses import asdict
from typing import Any

from infeed._core import __version__
from infeed.watching.figures import Figures
from infeed.watching.verdict import verdict

# Version of the dictionary that `WatchReport.to_dict` returns.
VERSION = 1

WIDTH = 100


class WatchReport:
    """Figures and verdict of a watch. `str` returns one screen of text.

    Attributes:
        figures: The measurements.
        verdict: The conclusion.
    """

    def __init__(self, figures: Figures):
        self.figures = figures
        self.verdict = verdict(figures)

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain data: rates in samples/s, times in seconds."""
        figures = self.figures
        shares = {
            "waiting": figures.waiting,
            "interference": figures.interference,
            "step": max(0.0, 1 - figures.waiting - figures.interference),
        }
        rates = {"unit": figures.unit, "loop": figures.rate, "step": figures.step_rate}
        return {
            "version": VERSION,
            "infeed": __version__,
            "verdict": asdict(self.verdict),
            "shares": shares,
            "rates": rates,
            **asdict(figures),
        }

    def json(self, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        verdict = self.verdict
        lines = [verdict.claim]
        for title, entries in (
            ("evidence", verdict.evidence),
            ("capacity", verdict.capacity),
            ("try", verdict.advice),
            ("not worth", verdict.not_worth),
        ):
            for number, entry in enumerate(entries):
                head = f"  {title if number == 0 else '':<10} "
                lines += textwrap.wrap(
                    entry, WIDTH, initial_indent=head, subsequent_indent=" " * 15
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<infeed.WatchReport: {self.verdict.claim}>"
