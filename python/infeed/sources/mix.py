"""Several sources combined into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infeed import _check, _code
from infeed.sources.base import Source


@dataclass(frozen=True, init=False, repr=False)
class Mix(Source):
    """Records of several sources with the same fields.

    ``Mix(a, b)`` concatenates them: every record comes once per epoch.
    ``Mix((a, 0.7), (b, 0.3))`` mixes by weight: every 10000 records of an epoch have
    7000 of the first and 3000 of the second, at positions that the seed determines.
    The records of each source come in the order of this source. A source that is used
    up starts again in another order, and continues in the next epoch from where it was.

    Args:
        parts: Sources, or pairs of source and relative weight.
        epoch: With weights, the number of records per epoch. None: the sum over the
            sources.

    Raises:
        ConfigError: Some parts have a weight and others do not. Raised when the
            pipeline is opened: fields or classes differ.
    """

    parts: tuple[tuple[Source, float | None], ...]
    epoch: int | None

    def __init__(self, *parts: Source | tuple[Source, float], epoch: int | None = None):
        settled: list[tuple[Source, float | None]] = []
        for part in parts:
            source, weight = part if isinstance(part, tuple) else (part, None)
            if not isinstance(source, Source):
                expected = "sources, or pairs of source and weight"
                raise _check.error(self, "parts", expected, part)
            if weight is not None:
                weight = float(_check.number(self, "weight", weight))
            settled.append((source, weight))
        if len({weight is None for _, weight in settled}) != 1:
            raise _check.error(
                self, "parts", "all with a weight, or all without", list(parts)
            )
        if epoch is not None:
            epoch = _check.integer(self, "epoch", epoch, 1)
        object.__setattr__(self, "parts", tuple(settled))
        object.__setattr__(self, "epoch", epoch)

    def __repr__(self) -> str:
        shown = [
            repr(source) if weight is None else f"({source!r}, {weight!r})"
            for source, weight in self.parts
        ]
        if self.epoch is not None:
            shown.append(f"epoch={_code.value(self.epoch)}")
        return f"sources.Mix({', '.join(shown)})"

    def _to_dict(self, first: int = 0) -> dict[str, Any]:
        described = []
        for source, weight in self.parts:
            table: dict[str, Any] = {"source": source._to_dict(first)}
            described.append(table if weight is None else table | {"weight": weight})
            first += len(source._buffers())
        mixed: dict[str, Any] = {"kind": "mix", "parts": described}
        return mixed if self.epoch is None else mixed | {"epoch": self.epoch}

    def _buffers(self) -> list[Any]:
        return [buffer for source, _ in self.parts for buffer in source._buffers()]

    @classmethod
    def _from_parts(
        cls, parts: Sequence[tuple[Source, float | None]], epoch: int | None
    ) -> "Mix":
        given = (
            source if weight is None else (source, weight) for source, weight in parts
        )
        return cls(*given, epoch=epoch)
