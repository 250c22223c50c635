"""Devices: the one in this machine, and profiles of others for planning.

A profile models the shortest time a device could take, from published peak numbers.
Real devices take longer. Each number has its source.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.experiments.measuring import is_installed


@dataclass(frozen=True)
class Profile:
    """Peak numbers of a device.

    Attributes:
        name: Name for ``--on``.
        title: Description of the device.
        bus_bytes_per_s: Rate of the bus in one direction, between host and one device.
        launch_s: Time to launch a kernel or a copy.
        flops_per_s: Multiplications and additions in float32.
        memory_bytes_per_s: Rate of the device's own memory.
        source: Source of the numbers.
    """

    name: str
    title: str
    bus_bytes_per_s: float
    launch_s: float
    flops_per_s: float
    memory_bytes_per_s: float
    source: str

    def copy_s(self, count: float) -> float:
        """Returns the time to copy bytes over the bus, in seconds."""
        return self.launch_s + count / self.bus_bytes_per_s

    def product_s(self, n: int) -> float:
        """Returns the time of an n x n float32 matrix product on the device."""
        moved_s = 3 * 4 * n * n / self.memory_bytes_per_s
        return self.launch_s + max(2 * n**3 / self.flops_per_s, moved_s)

    def pass_s(self, count: float) -> float:
        """Returns the time of one pass over bytes in the device's memory."""
        return self.launch_s + count / self.memory_bytes_per_s


# PCI Express: 8 GT/s per lane in generation 3, 32 GT/s in 5, in 128/130 encoding
# (PCI-SIG base specifications): 16 lanes carry 15.75 and 63 GB/s in each direction
# before protocol. The launch time of 5 microseconds is an assumption and not a
# measurement; change it with --launch-us.
LAUNCH_S = 5e-6

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "gtx1080x4",
            "one of four GeForce GTX 1080, eight lanes of PCIe 3.0 each",
            7.88e9,
            LAUNCH_S,
            8.87e12,
            320e9,
            "GeForce GTX 1080 whitepaper (8873 GFLOPS in float32, 320 GB/s); "
            "PCI-SIG (8 lanes of PCIe 3.0: 7.88 GB/s), for four GPUs on one processor",
        ),
        Profile(
            "h100",
            "H100 SXM, sixteen lanes of PCIe 5.0",
            63e9,
            LAUNCH_S,
            67e12,
            3.35e12,
            "H100 data sheet (67 TFLOPS in float32, 3.35 TB/s); "
            "PCI-SIG (16 lanes of PCIe 5.0: 63 GB/s)",
        ),
    )
}


class Device:
    """The device in this machine, used through PyTorch or CuPy.

    Attributes:
        name: Name that the device reports.
        through: The framework.
    """

    def __init__(self, name: str, through: str, module: Any, where: str = "cuda"):
        self.name = name
        self.through = through
        self._module = module
        self._where = where

    def put(self, array: np.ndarray) -> Any:
        """Copies an array to the device."""
        if self.through == "PyTorch":
            return self._module.from_numpy(array).to(self._where, copy=True)
        return self._module.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        """Copies an array to the host."""
        if self.through == "PyTorch":
            return np.asarray(array.cpu())
        return np.asarray(self._module.asnumpy(array))

    def floats(self, array: Any) -> Any:
        """Converts an array on the device to float32."""
        if self.through == "PyTorch":
            return array.to(self._module.float32)
        return array.astype("float32")

    def wait(self) -> None:
        """Waits until all queued work is done."""
        if self.through == "PyTorch":
            if self._where == "cuda":
                self._module.cuda.synchronize()
        else:
            self._module.cuda.Stream.null.synchronize()

    def until_done(self, work: Callable[[], Any]) -> Callable[[], None]:
        """Wraps work so that it waits for its end."""

        def work_and_wait() -> None:
            work()
            self.wait()

        return work_and_wait


def device(number: int | None = None) -> tuple[Device | None, str]:
    """Returns a device by number or the default one, or None with the reason."""
    reasons = []
    for module, title in (("torch", "PyTorch"), ("cupy", "CuPy")):
        if not is_installed(module):
            reasons.append(f"{title} is not installed")
            continue
        try:
            framework: Any = __import__(module)
            if title == "PyTorch":
                if not framework.cuda.is_available():
                    reasons.append("PyTorch sees no device")
                    continue
                name = framework.cuda.get_device_name(number)
                if number is not None:
                    framework.cuda.set_device(number)
            else:
                at = number or 0
                properties = framework.cuda.runtime.getDeviceProperties(at)
                name = properties["name"].decode()
                framework.cuda.Device(at).use()
            return Device(name, title, framework), ""
        # A framework without a driver raises its own errors.
        except Exception as error:
            reasons.append(f"{title} cannot use one ({type(error).__name__})")
    return None, ", ".join(reasons)
