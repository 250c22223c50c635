"""A product of two n x n matrices: on the processor, on a device, and on a device with
the operands and the result copied each time.

The device is used through PyTorch or CuPy. Without one, only the processor is measured.
--on NAME models the best time of a device from its published peak numbers.
"""

import argparse
from dataclasses import replace

import numpy as np

from infeed.errors import DeviceError
from infeed.experiments.arguments import duration, gpu, numbers
from infeed.experiments.machines import PROFILES, Device, Profile, device
from infeed.experiments.measuring import spread, time_of, times_of
from infeed.experiments.result import Result, Table, microseconds, size
from infeed.watching.processor import usable_cores

SUMMARY = "a matrix product on the processor, on a device, and with copies each time"

SIZES = [50, 100, 200, 500, 1000, 2000, 4000]


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this experiment."""
    parser.add_argument(
        "--sizes", type=numbers, help="n, separated by commas (default 50 to 4000)"
    )
    parser.add_argument(
        "--seconds", type=duration, default=1.0, help="for each measurement (default 1)"
    )
    parser.add_argument(
        "--device", type=gpu, metavar="NAME",
        help="GPU to measure, such as cuda:1 (default: the framework's own)",
    )  # fmt: skip
    parser.add_argument(
        "--on", choices=sorted(PROFILES), metavar="NAME",
        help=f"device to model: {', '.join(sorted(PROFILES))}",
    )  # fmt: skip
    parser.add_argument(
        "--launch-us",
        type=duration,
        help="time to launch a kernel or copy, for --on (default 5, assumed)",
    )


def run(options: argparse.Namespace) -> Result:
    """Measures this machine and models the named device."""
    sizes = options.sizes or SIZES
    seconds = options.seconds
    if options.quick:
        sizes, seconds = [n for n in sizes if n <= 200] or sizes[:1], 0.02
    here, why = device() if options.device is None else device(options.device)
    if here is None and options.device is not None:
        raise DeviceError(f"cuda:{options.device} cannot be used: {why}")
    profile = PROFILES[options.on] if options.on else None
    if profile is not None and options.launch_us is not None:
        profile = replace(profile, launch_s=options.launch_us / 1e6)

    figures = [_measure(n, seconds, here, profile) for n in sizes]
    tables = [_table(figures, here, profile)]
    data = {
        "device": here.name if here else None,
        "through": here.through if here else None,
        "no_device": why or None,
        "profile": profile.name if profile else None,
        "cores": usable_cores(),
        "numpy": np.__version__,
        "sizes": figures,
    }
    question = "From which size on is a device faster, with and without copies?"
    return Result(
        "transfer", question, tables, _meaning(figures, here, why, profile), data
    )


def _measure(
    n: int, seconds: float, here: Device | None, profile: Profile | None
) -> dict[str, float]:
    """Returns the seconds of each possible variant for one size."""
    random = np.random.default_rng(n)
    a = random.standard_normal((n, n), dtype=np.float32)
    b = random.standard_normal((n, n), dtype=np.float32)
    low_s, middle_s, high_s = spread(times_of(lambda: a @ b, seconds))
    found: dict[str, float] = {
        "n": n,
        "bytes": 3 * 4 * n * n,
        "cpu_s": middle_s,
        "cpu_low_s": low_s,
        "cpu_high_s": high_s,
    }
    if here is not None:
        x, y = here.put(a), here.put(b)
        found["resident_s"] = time_of(here.until_done(lambda: x @ y), seconds)
        found["copying_s"] = time_of(
            lambda: here.get(here.put(a) @ here.put(b)), seconds
        )
    if profile is not None:
        found["model_resident_s"] = profile.product_s(n)
        copies_s = 3 * profile.copy_s(4 * n * n)
        found["model_copying_s"] = found["model_resident_s"] + copies_s
    return found


def _columns(here: Device | None, profile: Profile | None) -> list[tuple[str, str]]:
    """Returns keys and titles of the measured and modelled times."""
    columns = [("cpu_s", "processor")]
    if here is not None:
        columns += [("resident_s", "resident"), ("copying_s", "copying")]
    if profile is not None:
        columns += [
            ("model_resident_s", "resident, modelled"),
            ("model_copying_s", "copying, modelled"),
        ]
    return columns


def _table(
    figures: list[dict[str, float]], here: Device | None, profile: Profile | None
) -> Table:
    columns = _columns(here, profile)
    rows = [
        [
            str(f["n"]),
            size(f["bytes"]),
            microseconds(f["cpu_s"]),
            f"{microseconds(f['cpu_low_s'])}-{microseconds(f['cpu_high_s'])}",
            *(microseconds(f[key]) for key, _ in columns[1:]),
            min(columns, key=lambda column: f[column[0]])[1],
        ]
        for f in figures
    ]
    titles = ["n", "over the bus", columns[0][1], "its spread"]
    titles += [*(title for _, title in columns[1:]), "fastest"]
    return Table(titles, rows, "one product in float32, microseconds")


def _meaning(
    figures: list[dict[str, float]],
    here: Device | None,
    why: str,
    profile: Profile | None,
) -> list[str]:
    meaning = [f"The processor's products run on {usable_cores():.3g} cores."]
    if here is None:
        meaning.append(
            f"There are no rows for a device: {why}."
            + ("" if profile else " --on NAME models one from its published peaks.")
        )
    else:
        meaning.append(f"The device is {here.name}, through {here.through}.")
        meaning += _pays(figures, "resident_s", "copying_s", "measured")
    if profile is not None:
        meaning.append(
            f"The model is {profile.title}: {profile.bus_bytes_per_s / 1e9:.3g} GB/s "
            f"over the bus, {profile.flops_per_s / 1e12:.3g} TFLOP/s, "
            f"an assumed {1e6 * profile.launch_s:.3g} us per launch. These are peak "
            f"numbers, so real times are longer. Source: {profile.source}."
        )
        meaning += _pays(figures, "model_resident_s", "model_copying_s", "modelled")
    return meaning


def _pays(
    figures: list[dict[str, float]], resident: str, copying: str, how: str
) -> list[str]:
    """Describes from which size on a device is faster, and the cost of copies."""
    lines = []
    for key, kind in ((resident, "with resident operands"), (copying, "with copies")):
        first = next((f for f in figures if f[key] < f["cpu_s"]), None)
        lines.append(
            f"Device {kind} ({how}): "
            + (f"faster from n = {first['n']} on." if first else "never faster here.")
        )
    shown = min(figures, key=lambda f: abs(f["n"] - 200))
    over_s = shown[copying] - shown[resident]
    lines.append(
        f"At n = {shown['n']}, copying {size(shown['bytes'])} takes "
        f"{microseconds(over_s)} us for {microseconds(shown[resident])} us of work "
        f"({how}): keep data that is used again on the device, and copy data that "
        "is used once only if it needs much arithmetic per byte."
    )
    return lines
