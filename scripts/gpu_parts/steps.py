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
        call: Part of the run, 1 or 2, for a machine that is at hand for minutes: the
            first part shows what is wrong, the second measures. 0: both.
    """

    name: str
    function: str
    expected_s: float
    limit_s: float
    needs_gpu: bool = False
    call: int = 2


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
    def is_simulated(self) -> bool:
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


# Expected seconds are those of a normal run on an H200 with 16 cores. Correctness comes
# first, then measurements by their value.
STEPS = [
    Step("machine", "gpu_parts.machine:facts", 2, 45, call=0),
    Step("self-test, cold JIT", "gpu_parts.engine:kernels", 3, 60, call=1),
    Step("self-test, warm JIT", "gpu_parts.engine:kernels", 2, 60, call=1),
    Step("rates of copies and kernels", "gpu_parts.engine:rates", 21, 75, call=1),
    Step(
        "PyTorch's copies",
        "gpu_parts.with_torch:copies",
        *(10, 40),
        needs_gpu=True,
        call=1,
    ),
    Step("PyTorch", "gpu_parts.with_torch:handover", 5, 60, call=1),
    Step("JAX", "gpu_parts.with_others:jax", 4, 60, call=1),
    Step("CuPy", "gpu_parts.with_others:cupy", 2, 45, call=1),
    Step("TensorFlow", "gpu_parts.with_others:tensorflow", 5, 60, call=1),
    Step("exit without close", "gpu_parts.with_others:exits", 13, 100, call=1),
    Step("loop cases", "gpu_parts.cases:run", 25, 120, needs_gpu=True, call=1),
    Step("stress", "gpu_parts.engine:stress", 17, 70, call=1),
    Step("nvJPEG order", "gpu_parts.engine:ordering", 5, 45, call=1),
    Step("JPEG decoding", "gpu_parts.engine:jpegs", 12, 60, call=1),
    Step("driver's events", "gpu_parts.events:measure", 1, 20, needs_gpu=True),
    Step("leaks", "gpu_parts.feeding:leaks", 10, 40),
    Step("JPEGs by workers", "gpu_parts.feeding:jpegs", 65, 110),
    Step("training", "gpu_parts.training:measure", 70, 200),
    Step("host's time of a step", "gpu_parts.feeding:host_time", 7, 30),
    Step("automatic placement", "gpu_parts.feeding:automatic", 26, 45),
    Step("loaders next to a step", "gpu_parts.feeding:interference", 16, 35),
    Step("experiments", "gpu_parts.feeding:experiments", *(30, 70), needs_gpu=True),
    Step("nvJPEG alone", "gpu_parts.nvjpeg:measure", 16, 60, needs_gpu=True),
    Step("compute-sanitizer", "gpu_parts.engine:sanitizer", 7, 90, needs_gpu=True),
]

# Factor of the limits with `--full`.
FULL_LIMIT = 4
