"""Costs of the driver's calls for events, on an idle stream and next to copies."""

import ctypes
import statistics
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

from .findings import Findings
from .steps import Settings

# Flags of `cuEventCreate`. A thread that waits for a blocking event sleeps.
KINDS = {"timed": 0, "timed, blocking": 1, "untimed": 2, "untimed, blocking": 3}

# `CU_STREAM_NON_BLOCKING`.
NON_BLOCKING = 1

COPY_BYTES = 64 << 20
CALLS = {"quick": 100, "normal": 4000, "full": 40_000}

# Calls between two copies.
BETWEEN_COPIES = 50


def measure(findings: Findings, settings: Settings) -> None:
    """Measures records of each kind of event, and queries."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    context, stream = c_void_p(), c_void_p()
    source, target = c_uint64(), c_uint64()
    ordinal = int(settings.device.partition(":")[2] or 0)
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), ordinal)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", byref(stream), NON_BLOCKING)
    for memory in (source, target):
        call("cuMemAlloc_v2", byref(memory), c_size_t(COPY_BYTES))
    calls = CALLS[settings.effort]
    for load in ("idle", "copies"):
        for kind, flags in KINDS.items():
            event, taken = c_void_p(), []
            call("cuEventCreate", byref(event), flags)
            for number in range(calls):
                if load == "copies" and number % BETWEEN_COPIES == 0:
                    size = c_size_t(COPY_BYTES)
                    call("cuMemcpyDtoDAsync_v2", target, source, size, stream)
                start = time.perf_counter()
                cuda.cuEventRecord(event, stream)
                taken.append(time.perf_counter() - start)
            call("cuStreamSynchronize", stream)
            name = f"driver/call=record/event={kind}/stream={load}"
            report(findings, name, taken)
            call("cuEventDestroy_v2", event)
    for memory in (source, target):
        call("cuMemFree_v2", memory)
    call("cuStreamDestroy_v2", stream)
    call("cuDevicePrimaryCtxRelease_v2", ordinal)


def report(findings: Findings, name: str, taken: list[float]) -> None:
    """Reports the median and the 99th percentile of durations."""
    taken.sort()
    findings.figure(f"{name}/median", statistics.median(taken) * 1e6, "us")
    findings.figure(f"{name}/p99", taken[int((len(taken) - 1) * 0.99)] * 1e6, "us")
