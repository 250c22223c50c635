"""Facts about the machine: driver, clocks, libraries, versions, caches."""

import ctypes
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .findings import Findings, NotRun
from .steps import Settings

# Read, never set.
QUERY = (
    "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.gen.current,"
    "pcie.link.width.max,pcie.link.width.current,clocks.sm,clocks.max.sm,clocks.mem,"
    "clocks.max.mem,power.limit,persistence_mode,mig.mode.current"
)

PACKAGES = ("numpy", "torch", "jax", "cupy", "tensorflow", "pytest", "pillow")

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvjpeg.so.13", "libnvjpeg.so.12")


def facts(findings: Findings, settings: Settings) -> None:
    """Reports the facts one by one, since any query may hang or fail."""
    findings.fact("date", datetime.date.today().isoformat())
    findings.fact("device", settings.device)
    findings.fact("commit", commit(settings.checkout))
    findings.fact("python", f"{platform.python_version()} at {sys.executable}")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    findings.fact("system", system)
    findings.fact("cores", len(os.sched_getaffinity(0)))
    installed = {
        one.name.lower().replace("_", "-"): one.version for one in distributions()
    }
    for name in PACKAGES:
        is_it = re.compile(rf"{name}(-cpu|-cuda\d+x)?").fullmatch
        found = [f"{n} {version}" for n, version in installed.items() if is_it(n)]
        findings.fact(name, ", ".join(found) or "not installed")
    for name in ("compute-sanitizer", "nvcc"):
        findings.fact(name, tool(name) or "not found")
    caches(findings)
    import infeed

    findings.fact("infeed", f"{infeed.__version__} at {Path(infeed.__file__).parent}")
    if settings.is_simulated:
        return
    smi = output(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"])
    for number, line in enumerate(smi.splitlines() or ["unknown"]):
        values = line.split(",")
        if len(values) != len(QUERY.split(",")):
            findings.fact(f"nvidia-smi {number}", line)
            continue
        for name, value in zip(QUERY.split(","), values, strict=True):
            findings.fact(f"GPU {number}: {name}", value.strip())
    for name in LIBRARIES:
        findings.fact(name, loaded_from(name, settings.libraries))
    findings.check("a GPU is here", gpus)


def distributions() -> list[importlib.metadata.Distribution]:
    """The installed packages, without broken ones."""
    return [one for one in importlib.metadata.distributions() if one.metadata["Name"]]


def commit(checkout: Path) -> str:
    """Returns the commit of the checkout; marked if files differ from it."""
    hash_ = output(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"])
    if hash_ and output(["git", "-C", str(checkout), "status", "--porcelain", "-uno"]):
        hash_ += ", with changes"
    return hash_ or "unknown"


def caches(findings: Findings) -> None:
    """Reports whether the driver can keep compiled kernels."""
    home = os.environ.get("HOME", "/")
    default = Path(home) / ".nv" / "ComputeCache"
    folder = Path(os.environ.get("CUDA_CACHE_PATH", default))
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    word = "writable" if os.access(parent, os.W_OK) else "not writable"
    findings.fact("JIT cache", f"{folder}, {word}")


def tool(name: str) -> str | None:
    """Returns the path of one of CUDA's programs."""
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    return shutil.which(name, path=os.pathsep.join(folders))


def loaded_from(name: str, folders: tuple[Path, ...]) -> str:
    """Returns the file from which a library is loaded."""
    candidates = [str(folder / name) for folder in folders if (folder / name).exists()]
    for candidate in (name, *candidates):
        try:
            ctypes.CDLL(candidate)
        except OSError:
            continue
        maps = Path("/proc/self/maps")
        lines = maps.read_text().splitlines() if maps.exists() else []
        files = {line.split(maxsplit=5)[5] for line in lines if name in line}
        return ", ".join(sorted(files)) or candidate
    return "not found"


def gpus() -> str:
    """Returns the GPUs that the engine finds."""
    from infeed import _core

    found = json.loads(_core.gpus())
    if not found["gpus"]:
        raise NotRun(found["reason"])
    return ", ".join(f"{one['device']}: {one['name']}" for one in found["gpus"])


def output(command: list[str]) -> str:
    """Returns the output of a program; empty if it cannot run."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""
