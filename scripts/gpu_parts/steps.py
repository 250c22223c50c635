"""The steps of `scripts/gpu-check`, in order, and the settings they share."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """A step, run as one process.

    Args:
        name: Name in findings and in the report.
        function: ``module:function``, called with `Findings` and `Settings`.
        expected_s: Expected seconds on a GPU; the step needs as many to begin.
        limit_s: Seconds after which the step is killed.
        needs_gpu: Whether the step does nothing on the simulated device.
    """

    name: str
    function: str
    expected_s: float
    limit_s: float
    needs_gpu: bool = False


@dataclass(frozen=True)
class Settings:
    """Settings of all steps.

    Args:
        device: ``"cuda:0"``, ``"sim"``, ...
        effort: ``"quick"``: small sizes, whose figures say nothing; ``"normal"``;
            ``"full"``: longer measurements.
        scratch: Folder that is removed at the end; steps leave files for later ones.
        checkout: The checkout that the script belongs to.
        libraries: Folders that may hold NVIDIA's libraries.
    """

    device: str
    effort: str
    scratch: Path
    checkout: Path
    libraries: tuple[Path, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the device is simulated."""
        return self.device.split(":")[0] == "sim"

    @property
    def quick(self) -> bool:
        """Whether sizes are small."""
        return self.effort == "quick"

    def text(self) -> str:
        """Returns these settings as text for another process."""
        return json.dumps(asdict(self), default=str)


def settings_from_text(text: str) -> Settings:
    """Parses the settings that `Settings.text` wrote."""
    values = json.loads(text)
    values["scratch"] = Path(values["scratch"])
    values["checkout"] = Path(values["checkout"])
    values["libraries"] = tuple(map(Path, values["libraries"]))
    return Settings(**values)


# Expected seconds are estimates for a normal run. Findings that cost little and explain
# others come first, the longest measurements last.
STEPS = [
    Step("machine", "gpu_parts.machine:facts", 5, 45),
    Step("self-test, cold JIT", "gpu_parts.engine:kernels", 10, 60),
    Step("self-test, warm JIT", "gpu_parts.engine:kernels", 10, 60),
    Step("rates of copies and kernels", "gpu_parts.engine:rates", 20, 75),
    Step("PyTorch's copies", "gpu_parts.with_torch:copies", 10, 40, needs_gpu=True),
    Step("PyTorch", "gpu_parts.with_torch:handover", 15, 60),
    Step("JAX", "gpu_parts.with_others:jax", 15, 60),
    Step("CuPy", "gpu_parts.with_others:cupy", 10, 45),
    Step("TensorFlow", "gpu_parts.with_others:tensorflow", 5, 60),
    Step("exit without close", "gpu_parts.with_others:exits", 25, 100),
    Step("loop cases", "gpu_parts.cases:run", 40, 120, needs_gpu=True),
    Step("stress", "gpu_parts.engine:stress", 30, 70),
    Step("nvJPEG order", "gpu_parts.engine:ordering", 10, 45),
    Step("JPEG decoding", "gpu_parts.engine:jpegs", 20, 60),
    Step("nvJPEG alone", "gpu_parts.nvjpeg:measure", 20, 60, needs_gpu=True),
    Step("training", "gpu_parts.training:measure", 90, 200),
    Step("compute-sanitizer", "gpu_parts.engine:sanitizer", 20, 90, needs_gpu=True),
]

# Factor of the limits with `--full`.
FULL_LIMIT = 4
