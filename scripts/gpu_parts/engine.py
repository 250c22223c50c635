"""The engine's own checks and measurements, group by group."""

import os
import sys

from . import process
from .findings import Findings
from .machine import tool
from .steps import Settings

# From 10 seconds on, the engine uses the sizes of training.
SECONDS = {"quick": 0.3, "normal": 10.0, "full": 60.0}
STRESS_SECONDS = {"quick": 0.3, "normal": 25.0, "full": 200.0}


def selftest(
    findings: Findings, settings: Settings, group: str, seconds: float
) -> None:
    """Runs one group of checks; each finding is written as soon as it is known."""
    import infeed
    from infeed import _core

    folders = list(settings.libraries)
    try:
        _core.device_selftest(
            settings.device, seconds, folders, [group], findings.add_text
        )
    except infeed.errors.ConfigError as error:
        if "no group of checks" not in str(error):
            raise
        findings.not_run(f"checks of the group {group}", error)


def kernels(findings: Findings, settings: Settings) -> None:
    """Compares kernels with the host, with a JIT cache for this run only, which is
    empty at first.
    """
    cache = settings.scratch / "jit-cache"
    cache.mkdir(exist_ok=True)
    os.environ["CUDA_CACHE_PATH"] = str(cache)
    selftest(findings, settings, "kernels", SECONDS[settings.effort])


def rates(findings: Findings, settings: Settings) -> None:
    """Measures copies and kernels, each layout and dtype, and the host's cost of a
    step.
    """
    selftest(findings, settings, "rates", SECONDS[settings.effort])


def stress(findings: Findings, settings: Settings) -> None:
    """Tests a late consumer, with its release and without."""
    selftest(findings, settings, "stress", STRESS_SECONDS[settings.effort])


def ordering(findings: Findings, settings: Settings) -> None:
    """Determines whether nvJPEG's decoders write in the order of their stream; infeed's
    batches must be correct in either case.
    """
    selftest(findings, settings, "ordering", SECONDS[settings.effort])


def jpegs(findings: Findings, settings: Settings) -> None:
    """Checks pixels, rejected files and rates of the device's JPEG decoders."""
    selftest(findings, settings, "jpegs", SECONDS[settings.effort])


def sanitizer(findings: Findings, settings: Settings) -> None:
    """Runs the kernels and the stress test under compute-sanitizer."""
    program = tool("compute-sanitizer")
    if program is None:
        findings.not_run("compute-sanitizer finds nothing", "it is not installed")
        return
    for name, run in [("memcheck", "kernels"), ("racecheck", "kernels")]:
        output = settings.scratch / f"{name}.txt"
        code = (
            "import sys; from infeed import _core; "
            "_core.device_selftest(sys.argv[1], 0.3, [], [sys.argv[2]])"
        )
        command = [program, "--tool", name, "--error-exitcode", "9", sys.executable]
        command += ["-c", code, settings.device, run]
        limit_s = 150 if settings.effort == "full" else 40

        def run_sanitizer(command=command, output=output, limit_s=limit_s) -> str:
            ended = process.run(command, limit_s, output, own_group=False)
            text = process.tail(output)
            if ended.problem:
                raise RuntimeError(f"{ended.problem}: {text}")
            return text.splitlines()[-1] if text else ""

        findings.check(
            f"compute-sanitizer's {name} finds nothing in the {run}", run_sanitizer
        )
