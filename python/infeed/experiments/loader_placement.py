"""Both placements of infeed's own loader, on a GPU or on a simulated device.

Batches come from images in memory, so nothing is read or decoded. The host's work is
the pass that writes rows, as uint8 or as final floats. A step sleeps after the batch
has arrived.
"""

import time
from typing import Any, Literal

import numpy as np

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.experiments.measuring import spread
from infeed.experiments.result import Table, milliseconds, rate, size

# Without "bounced": infeed copies a row to the device once.
PLACEMENTS: tuple[Literal["host", "device"], ...] = ("host", "device")

_BATCHES = 4


def is_simulated(device: str) -> bool:
    """Whether a device name means a simulated device."""
    return device == "sim" or device.startswith("sim:")


def origin(device: str) -> str:
    """Returns the origin of a device's numbers."""
    return "simulated" if is_simulated(device) else "measured"


def placements(
    device: str, pixels: np.ndarray, models: dict[str, float], seconds: float
) -> tuple[list[Table], list[dict[str, Any]]]:
    """Measures steps of both placements, for models with given step times.

    Raises:
        ConfigError: The name is not that of a device.
        DeviceError: The device cannot be opened.
    """
    images = np.concatenate([pixels] * _BATCHES)
    data = infeed.Pipeline(sources.Memory(image=images))
    normalize = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)
    described = data.transform(normalize).batch(len(pixels))
    figures: list[dict[str, Any]] = []
    tables = []
    for model, step_s in models.items():
        rows = []
        for place in PLACEMENTS:
            with described.open(device=device, placement=place) as loader:
                steps = _steps(loader, step_s, seconds)
                sent = loader.stats()["device"]
                assert sent is not None
            low_s, middle_s, high_s = spread(steps)
            bus_bytes = sent["bytes"] / max(1, sent["batches"])
            copies = sent["transfers"] / max(1, sent["batches"])
            figures.append(
                {
                    "model": model,
                    "variant": place,
                    "in_turn_s": None,
                    "overlapped_s": middle_s,
                    "samples_per_s": len(pixels) / middle_s,
                    "step_share": min(1.0, step_s / middle_s),
                    "bus_bytes": bus_bytes,
                    "copies": copies,
                }
            )
            rows.append(
                [
                    place,
                    size(bus_bytes),
                    rate(copies),
                    milliseconds(middle_s),
                    f"{milliseconds(low_s)}-{milliseconds(high_s)}",
                    rate(len(pixels) / middle_s),
                    f"{100 * min(1.0, step_s / middle_s):.0f} %",
                ]
            )
        columns = [
            "where", "over the bus", "copies", "step ms", "spread", "samples/s",
            "step busy",
        ]  # fmt: skip
        title = f"{origin(device)}, {model} model: {milliseconds(step_s)} ms per step"
        tables.append(Table(columns, rows, title))
    return tables, figures


def _steps(loader: Any, step_s: float, seconds: float) -> list[float]:
    """Returns the times between ends of steps, without the first batches."""
    took: list[float] = []
    taken = 0
    begun = ended = time.perf_counter()
    while len(took) < 3 or time.perf_counter() - begun < seconds:
        for batch in loader:
            batch.array("image").synchronize()
            time.sleep(step_s)
            now = time.perf_counter()
            # The first batches touch their memory for the first time.
            if taken >= _BATCHES:
                took.append(now - ended)
            ended = now
            taken += 1
    return took
