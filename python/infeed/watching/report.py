"""The report of a watch: figures and verdict, as text and as data."""

import json
from dataclasses import asdict
from typing import Any

from infeed._core import Verdict, __version__, watch_verdict
from infeed.watching.figures import Figures

# Version of the dictionary that `WatchReport.to_dict` returns.
VERSION = 1

WIDTH = 100

# The last line for a loader that `infeed adopt` reads, in the form of the verdict. It
# is left out if the verdict has this line on a change without a gain.
_ADOPT = (
    "  adopt      `infeed adopt train.py:make_loader` prints the pipeline that "
    "replaces the loader"
)
_NO_GAIN = "infeed.adopt: "

# Properties of `Figures` that the verdict uses.
COMPUTED = (
    "loop_s",
    "waiting",
    "per_batch",
    "unit",
    "rate",
    "step_s",
    "step_rate",
    "slowdown",
    "interference",
)


class WatchReport:
    """Figures and verdict of a watch. `str` returns one screen of text.

    Attributes:
        figures: The measurements.
        verdict: The conclusion.
    """

    def __init__(self, figures: Figures):
        self.figures = figures
        self.verdict = _verdict(figures)

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
            "verdict": json.loads(self.verdict.json()),
            "shares": shares,
            "rates": rates,
            **asdict(figures),
        }

    def json(self, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        text = self.verdict.text(WIDTH).removesuffix("\n")
        if self.verdict.limit == "step" or not _can_adopt(self.figures.loader):
            return text
        if any(line.startswith(_NO_GAIN) for line in self.verdict.not_worth):
            return text
        return f"{text}\n{_ADOPT}"

    def __reduce__(self) -> tuple[type["WatchReport"], tuple[Figures]]:
        return WatchReport, (self.figures,)

    def __repr__(self) -> str:
        return f"<infeed.watching.WatchReport: {self.verdict.claim}>"


def _can_adopt(loader: str) -> bool:
    """Whether `adopt` reads a class: of PyTorch, torchdata, timm or tf.data."""
    if loader.startswith("tensorflow."):
        return loader.endswith("Dataset")
    is_torch = loader.startswith(("torch.", "torchdata.", "timm."))
    return is_torch and loader.endswith(("DataLoader", "PrefetchLoader"))


def _verdict(figures: Figures) -> Verdict:
    return watch_verdict(measurements(figures))


def measurements(figures: Figures) -> str:
    """Returns figures as JSON, with the numbers that the verdict computes from them."""
    computed = {name: getattr(figures, name) for name in COMPUTED}
    # A function of the user may count samples with numbers of NumPy.
    return json.dumps(asdict(figures) | computed, default=float)
