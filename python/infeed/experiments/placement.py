"""Preprocessing on the host, on the device, or bounced between them.

A batch of 64 images of 224x224 px is normalized to floats before a step. On the host:
normalize, then copy floats. On the device: copy uint8, normalize there. Bounced, as
with one transform that has a device version and a next one that has not: copy uint8,
cast on the device, copy floats back, normalize on the host, copy floats again. The
host's work is measured. Without a device, copies and device passes are modelled from a
profile (--on) with published peak numbers. --device runs infeed's own loader on a GPU
or a simulated device, in its two placements.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.experiments import loader_placement
from infeed.experiments.arguments import duration, positive
from infeed.experiments.machines import PROFILES, Device, Profile, device
from infeed.experiments.measuring import spread, time_of
from infeed.experiments.result import Result, Table, milliseconds, rate, size
from infeed.watching.processor import usable_cores

SUMMARY = "preprocessing on the host, on the device, and bounced between them"

_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_STD = np.array([0.229, 0.224, 0.225], np.float32)
SCALE = (1 / (255 * _STD)).astype(np.float32)
BIAS = (-_MEAN / _STD).astype(np.float32)

VARIANTS = ("host", "device", "bounced")

QUESTION = "Where should preprocessing run: on the host or on the device?"


@dataclass(frozen=True)
class Cost:
    """Cost of one batch before its step.

    Attributes:
        host_s: Time on one core of the host.
        bus_s: Time on the bus, in both directions.
        device_s: Time on the device.
        bus_bytes: Bytes over the bus, in both directions.
    """

    host_s: float
    bus_s: float
    device_s: float
    bus_bytes: int

    def in_turn_s(self, step_s: float, cores: float) -> float:
        """Returns the time of a step without any overlap, in seconds."""
        return self.host_s / cores + self.bus_s + self.device_s + step_s

    def overlapped_s(self, step_s: float, cores: float) -> float:
        """Returns the time of a step when host, bus and device overlap."""
        return max(self.host_s / cores, self.bus_s, self.device_s + step_s)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this experiment."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--device",
        metavar="NAME",
        help="run infeed's loader on a device: cuda:0, or sim, as in sim:bandwidth=2e9",
    )
    where.add_argument(
        "--on", choices=sorted(PROFILES), metavar="NAME",
        help="device to model, in place of one in this machine: "
        f"{', '.join(sorted(PROFILES))} (default gtx1080x4)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=positive, default=64, help="images a step (default 64)"
    )
    parser.add_argument(
        "--side", type=positive, default=224, help="pixels a side (default 224)"
    )
    parser.add_argument(
        "--small-ms", type=duration, default=5,
        help="the small model's step on the device (default 5)",
    )  # fmt: skip
    parser.add_argument(
        "--large-ms", type=duration, default=100,
        help="the large model's step on the device (default 100)",
    )  # fmt: skip
    parser.add_argument(
        "--launch-us",
        type=duration,
        help="time to launch a kernel or copy, when modelled (default 5, assumed)",
    )
    parser.add_argument(
        "--seconds", type=duration, default=1, help="for each measurement (default 1)"
    )


def run(options: argparse.Namespace) -> Result:
    """Measures the host's work, and the rest if there is a device."""
    batch, seconds = options.batch, options.seconds
    if options.quick:
        batch, seconds = min(batch, 4), 0.02
    shape = (batch, options.side, options.side, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    models = {"small": options.small_ms / 1e3, "large": options.large_ms / 1e3}
    cores = usable_cores()
    if options.device:
        return _measure_loader(options, pixels, models, seconds)
    here, why = (None, "--on was set") if options.on else device()
    if here is not None:
        tables, figures = _measure(here, pixels, models, seconds)
        meaning = [f"Measured on {here.name}, through {here.through}, in turn."]
        costs = None
    else:
        profile = PROFILES[options.on or "gtx1080x4"]
        if options.launch_us is not None:
            profile = replace(profile, launch_s=options.launch_us / 1e6)
        costs = _costs(pixels, profile, seconds)
        tables, figures = _model(costs, models, cores, batch)
        meaning = [
            f"Copies and device passes are modelled, not measured: {why}. The profile "
            f"is {profile.title}, with {profile.bus_bytes_per_s / 1e9:.3g} GB/s and an "
            f"assumed {1e6 * profile.launch_s:.3g} us per launch: peak numbers, so "
            f"real times are longer. Source: {profile.source}.",
            "The host's part is measured here: NumPy on one core, divided by "
            f"{cores:.3g} cores. The models' steps are given (--small-ms, --large-ms).",
        ]
    data = {
        "device": here.name if here else None,
        "profile": None if here else profile.name,
        "modelled": here is None,
        "simulated": False,
        "cores": cores,
        "batch": batch,
        "side": options.side,
        "steps_s": models,
        "costs": {name: vars(cost) for name, cost in costs.items()} if costs else None,
        "rows": figures,
    }
    meaning += _meaning(figures, pixels)
    return Result("placement", QUESTION, tables, meaning, data)


def _measure_loader(
    options: argparse.Namespace,
    pixels: np.ndarray,
    models: dict[str, float],
    seconds: float,
) -> Result:
    """Measures infeed's own loader on the named device."""
    tables, figures = loader_placement.placements(
        options.device, pixels, models, seconds
    )
    simulated = loader_placement.is_simulated(options.device)
    origin = loader_placement.origin(options.device)
    meaning = [
        f"Through infeed on {options.device}, {origin}: batches are copied ahead of "
        "the step, which is a sleep.",
        "There is no bounced variant: infeed copies a row to the device once.",
    ]
    if simulated:
        meaning.append(
            "The device is simulated: bus and kernels have the rates of its name, and "
            "not those of a GPU."
        )
    data = {
        "device": options.device,
        "profile": None,
        "modelled": False,
        "simulated": simulated,
        "cores": usable_cores(),
        "batch": len(pixels),
        "side": options.side,
        "steps_s": models,
        "costs": None,
        "rows": figures,
    }
    meaning += _meaning(figures, pixels)
    return Result("placement", QUESTION, tables, meaning, data)


def normalize(pixels: np.ndarray) -> np.ndarray:
    """Normalizes uint8 to float32, with one multiplication and one addition."""
    x: np.ndarray = np.multiply(pixels, SCALE, dtype=np.float32)
    x += BIAS
    return x


def _costs(pixels: np.ndarray, profile: Profile, seconds: float) -> dict[str, Cost]:
    """Returns the cost of each variant, from the host's time and a profile."""
    floats = pixels.astype(np.float32)
    normalize_s = time_of(lambda: normalize(pixels), seconds)
    again_s = time_of(lambda: np.add(np.multiply(floats, SCALE), BIAS), seconds)
    count = pixels.nbytes
    # A pass on the device reads uint8 and writes floats.
    pass_s = profile.pass_s(5 * count)
    return {
        "host": Cost(normalize_s, profile.copy_s(4 * count), 0.0, 4 * count),
        "device": Cost(0.0, profile.copy_s(count), pass_s, count),
        "bounced": Cost(
            again_s,
            profile.copy_s(count) + 2 * profile.copy_s(4 * count),
            pass_s,
            9 * count,
        ),
    }


def _model(
    costs: dict[str, Cost], models: dict[str, float], cores: float, batch: int
) -> tuple[list[Table], list[dict[str, Any]]]:
    figures: list[dict[str, Any]] = []
    tables = []
    for model, step_s in models.items():
        rows = []
        for name in VARIANTS:
            cost = costs[name]
            in_turn_s = cost.in_turn_s(step_s, cores)
            overlapped_s = cost.overlapped_s(step_s, cores)
            figures.append(
                {
                    "model": model,
                    "variant": name,
                    "in_turn_s": in_turn_s,
                    "overlapped_s": overlapped_s,
                    "samples_per_s": batch / overlapped_s,
                    "step_share": step_s / overlapped_s,
                    "bus_bytes": cost.bus_bytes,
                }
            )
            rows.append(
                [
                    name,
                    milliseconds(cost.host_s / cores),
                    milliseconds(cost.bus_s),
                    milliseconds(cost.device_s),
                    size(cost.bus_bytes),
                    milliseconds(in_turn_s),
                    milliseconds(overlapped_s),
                    rate(batch / overlapped_s),
                    f"{100 * step_s / overlapped_s:.0f} %",
                ]
            )
        columns = [
            "where", "host ms", "bus ms", "device ms", "over the bus", "in turn ms",
            "overlapped ms", "samples/s", "step busy",
        ]  # fmt: skip
        title = f"modelled, {model} model: {milliseconds(step_s)} ms a step"
        tables.append(Table(columns, rows, title))
    return tables, figures


def _measure(
    here: Device, pixels: np.ndarray, models: dict[str, float], seconds: float
) -> tuple[list[Table], list[dict[str, Any]]]:
    """Measures each variant on this machine's device, with equal results."""
    scale, bias = here.put(SCALE), here.put(BIAS)

    def on_host() -> Any:
        return here.put(normalize(pixels))

    def on_device() -> Any:
        return here.floats(here.put(pixels)) * scale + bias

    def bounce() -> Any:
        back = here.get(here.floats(here.put(pixels)))
        return here.put(np.add(np.multiply(back, SCALE), BIAS))

    variants: dict[str, Callable[[], Any]] = {
        "host": on_host, "device": on_device, "bounced": bounce,
    }  # fmt: skip
    count = pixels.nbytes
    moved = {"host": 4 * count, "device": count, "bounced": 9 * count}
    figures: list[dict[str, Any]] = []
    tables = []
    for model, step_s in models.items():
        step = _step(here, step_s)
        rows = []
        for name in VARIANTS:
            steps: list[float] = []
            begun = time.perf_counter()
            while len(steps) < 3 or time.perf_counter() - begun < seconds:
                start = time.perf_counter()
                variants[name]()
                step()
                here.wait()
                steps.append(time.perf_counter() - start)
            low_s, middle_s, high_s = spread(steps)
            figures.append(
                {
                    "model": model,
                    "variant": name,
                    "in_turn_s": middle_s,
                    "overlapped_s": None,
                    "samples_per_s": len(pixels) / middle_s,
                    "step_share": min(1.0, step_s / middle_s),
                    "bus_bytes": moved[name],
                }
            )
            rows.append(
                [
                    name,
                    size(moved[name]),
                    milliseconds(middle_s),
                    f"{milliseconds(low_s)}-{milliseconds(high_s)}",
                    rate(len(pixels) / middle_s),
                ]
            )
        columns = ["where", "over the bus", "step ms", "spread", "samples/s"]
        title = f"measured, {model} model: {milliseconds(step_s)} ms a step by itself"
        tables.append(Table(columns, rows, title))
    return tables, figures


def _step(here: Device, seconds: float) -> Callable[[], None]:
    """Returns matrix products on the device that take about `seconds`."""
    side = here.put(np.ones((1024, 1024), np.float32))
    once_s = time_of(here.until_done(lambda: side @ side), 0.05)
    rounds = max(1, round(seconds / once_s))

    def step() -> None:
        for _ in range(rounds):
            side @ side

    return step


def _meaning(figures: list[dict[str, Any]], pixels: np.ndarray) -> list[str]:
    found = {(f["model"], f["variant"]): f for f in figures}
    meaning = []
    variants = [variant for variant in VARIANTS if ("small", variant) in found]
    all_of = "all three" if len(variants) == 3 else "both"
    for model in ("small", "large"):
        times = {
            variant: found[model, variant]["overlapped_s"]
            or found[model, variant]["in_turn_s"]
            for variant in variants
        }
        best = min(times.values())
        close = [variant for variant in variants if times[variant] <= 1.02 * best]
        worst = max(variants, key=lambda variant: times[variant])
        in_turn = [
            f"{variant} {milliseconds(found[model, variant]['in_turn_s'])} ms"
            for variant in variants
            if found[model, variant]["in_turn_s"] is not None
        ]
        alone = f"; in turn a step takes {', '.join(in_turn)}" if in_turn else ""
        if len(close) == len(variants):
            meaning.append(
                f"With the {model} model the step hides {all_of} if they overlap"
                f"{alone}."
            )
        else:
            meaning.append(
                f"With the {model} model the best is {' or '.join(close)}; {worst} "
                f"takes {times[worst] / best:.2f}x as long{alone}."
            )
    meaning.append(
        f"One batch is {size(pixels.nbytes)} in uint8, and {size(4 * pixels.nbytes)} "
        "in floats: run transforms that expand data on the device, and do not copy "
        "data back from there."
    )
    return meaning
