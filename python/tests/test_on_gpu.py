"""Batches on CUDA devices, with a fake CUDA driver in place of NVIDIA's.

Each test runs in a separate process, because a process loads a driver only once.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gpu
import pytest
from conftest import LONG_TESTS
from feeding import COMMAND
from gpu_reports import assert_whole, kill_at_random

import infeed
from infeed import sources
from infeed import transforms as T

CASES = Path(__file__).parent / "on_gpu" / "cases.py"

pytestmark = pytest.mark.skipif(
    shutil.which("cargo") is None or not sys.platform.startswith("linux"),
    reason="the fake driver is built with cargo, on Linux",
)


@pytest.fixture(scope="session")
def library():
    return gpu.fake_driver()


@pytest.fixture
def driver(library, tmp_path):
    """Runs Python with the fake driver; returns its output and the driver's report."""

    def run(*arguments, timeout=300, **settings):
        seen = tmp_path / "seen.json"
        settings["REPORT"] = seen
        ran = subprocess.run(
            [sys.executable, *arguments],
            env=gpu.environment(library, tmp_path, **settings),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        ran.seen = json.loads(seen.read_text()) if seen.exists() else None
        return ran

    return run


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"DELAY_US": 1000, "POOLS": 0},
        pytest.param({"DELAY_US": 3000}, marks=pytest.mark.long),
    ],
)
def test_a_loop_on_a_gpu(driver, settings):
    runs = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    if not LONG_TESTS:
        # The longest case. `test_gpu_check_passes_on_the_fake_driver` has most of it.
        runs += ["-k", "not selftest"]
    ran = driver(*runs, **settings)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_streams_without_waits_are_detected(driver):
    """The cases can fail: without waits, batches are read too early."""
    runs = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(CASES),
        "-k",
        "reused",
    ]
    ran = driver(*runs, DELAY_US=3000, FAIL="cuStreamWaitEvent:0:0")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "assert equal(into, wanted)" in ran.stdout


GPU_CHECK = Path(__file__).parents[2] / "scripts" / "gpu-check"

# The other steps need frameworks on a GPU.
GPU_STEPS = "machine|warm|rates|exit|loop cases|stress|JPEG decoding"


def test_gpu_check_passes_on_the_fake_driver(driver, tmp_path):
    page = tmp_path / "report.md"
    options = ["--quick", "--steps", GPU_STEPS, "--report", str(page)]

    ran = driver(str(GPU_CHECK), *options)

    lines = page.with_suffix(".jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    checks = [one for one in found if one["kind"] == "check"]
    assert [one for one in checks if one["outcome"] == "failed"] == []
    assert ran.returncode == 0, ran.stdout + ran.stderr
    cases = [one["name"] for one in checks if one["step"] == "loop cases"]
    assert "test_a_capture_of_another_thread_stays_valid" in cases
    steps = [one for one in found if one["kind"] == "step"]
    assert [one["name"] for one in steps if one["outcome"] == "not_run"] == []


def test_a_killed_run_of_gpu_check_leaves_a_complete_report(library, tmp_path):
    page = tmp_path / "report.md"
    run = [sys.executable, str(GPU_CHECK), "--quick", "--report", str(page)]

    kill_at_random(run, gpu.environment(library, tmp_path))

    assert_whole(page)


# Loops that crash, fail and pass.
LOOPS = """
import ctypes, signal, sys

def test_first():
    pass

def test_crash():
    ctypes.string_at(0)

def test_wrong():
    raise AssertionError("as written")

def test_last():
    pass
"""


def test_a_case_that_crashes_is_a_failed_check_and_the_others_run(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(GPU_CHECK.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from gpu_parts import cases, findings, steps

    folder = tmp_path / "python" / "tests" / "on_gpu"
    folder.mkdir(parents=True)
    (folder / "cases.py").write_text(LOOPS)
    path = [str(GPU_CHECK.parent), str(Path(infeed.__file__).parents[1])]
    monkeypatch.setenv("PYTHONPATH", ":".join(path))
    found = findings.Findings(tmp_path / "found.jsonl", "loop cases")

    cases.run(found, steps.Settings("cuda:0", "normal", tmp_path, tmp_path))

    results = {one["name"]: one["outcome"] for one in findings.read(found.path)}
    assert results == {
        "test_first": "passed",
        "test_crash": "failed",
        "test_wrong": "failed",
        "test_last": "passed",
    }


OPEN = """
import sys, infeed
from infeed import sources
from infeed import transforms as T
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([20, 20]), T.ToFloat()).batch(4)
try:
    with pipeline.open(device=sys.argv[2]) as loader:
        steps = sum(1 for _ in loader)
    print(steps, "steps")
except infeed.InfeedError as error:
    print(type(error).__name__, error)
"""


COUNT_UNPINNED = """
import sys, infeed
from infeed import sources
pipeline = infeed.Pipeline(sources.Memory(x=list(range(4096)))).batch(64)
with pipeline.open(device="cuda:0") as loader:
    assert sum(batch.rows for batch in loader) == 4096
    sent = loader.stats()["device"]
    print(sent["unpinned_bytes"])
"""


@pytest.mark.parametrize("fails", [False, True])
def test_memory_that_the_driver_cannot_pin_is_counted(driver, fails):
    settings = {"FAIL": "cuMemHostRegister_v2:801:0"} if fails else {}

    ran = driver("-c", COUNT_UNPINNED, **settings)

    assert ran.returncode == 0, ran.stderr
    assert (int(ran.stdout) > 0) == fails


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"GPUS": 0}, "the CUDA driver finds no GPU; `nvidia-smi -L` lists them"),
        ({"GPUS": 1}, "there is no cuda:1; 1 GPU is visible: cuda:0"),
        ({"VERSION": 10020}, "too old: it is made for CUDA 10.2"),
        ({"FAIL": "cuModuleLoadDataEx:218:1"}, "cannot run the kernels of this build"),
        ({"MEMORY": 9000}, "memory"),
        ({"FAIL": "cuMemAllocFromPoolAsync:2:0"}, "memory"),
        ({"FAIL": "cuMemAlloc_v2:2:0", "POOLS": 0}, "memory"),
        ({"FAIL": "cuStreamCreate:2:0"}, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        ({"FAIL": "cuDevicePrimaryCtxRetain:46:1"}, "compute mode"),
        ({"FAIL": "cuLaunchKernel:700:30"}, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ({"FAIL": "cuMemcpyHtoDAsync_v2:1:12"}, "CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_a_failing_gpu_raises_with_a_fix(driver, classification, settings, text):
    device = "cuda:1" if settings == {"GPUS": 1} else "cuda:0"
    ran = driver("-c", OPEN, str(classification.path), device, **settings)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("DeviceError"), ran.stdout
    assert text in ran.stdout
    assert device in ran.stdout
    # Everything is released, except if the GPU is lost.
    if ran.seen is not None and "LaunchKernel" not in settings.get("FAIL", ""):
        assert set(ran.seen["live"].values()) == {0}, ran.seen


DECODE = """
import sys, infeed
from infeed import sources
from infeed import transforms as T
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([20, 20])).batch(4)
try:
    with pipeline.open(device="cuda:0", decode="gpu") as loader:
        print(sum(1 for _ in loader), loader.state_dict()["decoder"])
except infeed.InfeedError as error:
    print(type(error).__name__, error)
"""


def test_nvjpeg_is_found_among_installed_packages(
    driver, library, classification, tmp_path
):
    packages = tmp_path / "site-packages"
    run = ["-c", DECODE, str(classification.path)]
    ran = driver(*run, packages=packages)
    assert "no nvJPEG" in ran.stdout, ran.stdout + ran.stderr

    lib = packages / "nvidia" / "nvjpeg" / "lib"
    lib.mkdir(parents=True)
    (lib / "libnvjpeg.so.12").symlink_to(library)
    ran = driver(*run, packages=packages)
    assert "nvJPEG 12.4, the engine" in ran.stdout, ran.stdout + ran.stderr


CLOSE = """
import gc, sys, infeed
from gpu import Gpu, TakenBatch, report
from infeed import sources
from infeed import transforms as T
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([20, 20])).batch(4)
gpu = Gpu()
stream = gpu.stream()
loader = pipeline.open(device="cuda:0", slots=2)
batches = iter(loader)
for step in range(int(sys.argv[2])):
    taken = TakenBatch(next(batches).array("image"), stream)
    if step == 0:
        gpu.hang(stream)
    taken.release()
loader.close()
print("closed")
"""


@pytest.mark.parametrize("steps", [1, 3])
def test_closing_does_not_wait_for_a_consumer_that_never_ends(
    driver, classification, steps
):
    """With one step the ring waits, with more its sender does; both time out."""
    ran = driver("-c", CLOSE, str(classification.path), str(steps))

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "closed\n"
    reported = [line for line in ran.stderr.splitlines() if "did not release" in line]
    assert len(reported) == 1, ran.stderr
    assert "  " not in reported[0]
    assert ran.seen["misuse"] == []
    assert ran.seen["live"]["memory"] > 0, "the memory may be in use"


SECOND = """
import json, sys, infeed
from gpu import report
from infeed import sources
from infeed import transforms as T
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([20, 20])).batch(4)
with pipeline.open(device="cuda:0") as training:
    sum(1 for _ in training)
    seen = [report()]
    for _ in range(3):
        with pipeline.open(device="cuda:0") as validation:
            sum(1 for _ in validation)
        del validation
        seen.append(report())
print(json.dumps(seen))
"""


def test_a_second_loader_on_a_gpu_loads_and_warms_up_nothing(driver, classification):
    ran = driver("-c", SECOND, str(classification.path))

    assert ran.returncode == 0, ran.stderr
    first, *others = json.loads(ran.stdout)
    for once in ["cuModuleLoadDataEx", "cuLaunchKernel", "cuDevicePrimaryCtxRetain"]:
        calls = [seen["calls"][once] for seen in [first, *others]]
        assert len(set(calls)) == 1, (once, calls)
    # Further loaders reuse the memory of the first one.
    for kind in ["memory", "streams", "modules", "contexts"]:
        live = [seen["live"][kind] for seen in others]
        assert len(set(live)) == 1, (kind, live)
    assert first["live"]["memory"] == others[0]["live"]["memory"]
    assert set(ran.seen["live"].values()) == {0}


GROW = """
import json, logging, sys, infeed
from gpu import Gpu, TakenBatch, report
from infeed import sources
from infeed import transforms as T
logging.basicConfig(level=logging.DEBUG, format="%(message)s")
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([8, 8])).batch(4)
gpu = Gpu()
stream = gpu.stream()
steps = 0
with pipeline.open(device="cuda:0", slots=2) as loader:
    while steps < 60:
        for batch in loader:
            taken = TakenBatch(batch.array("image"), stream)
            gpu.wait(stream)
            taken.release()
            steps += 1
    before = report()["calls"]
    kept = [batch for batch in loader]
    after = report()["calls"]
    del kept, batch
    # More slots than the loader needs, which are given up as it goes on.
    steps += sum(1 for _ in loader)
gpu.end(stream)
gpu.close()
print(json.dumps([before, after, report()["calls"]]))
"""


def test_memory_is_allocated_in_a_stream_and_late_allocations_are_logged(
    driver, classification
):
    ran = driver("-c", GROW, str(classification.path))

    assert ran.returncode == 0, ran.stderr
    before, after, closed = json.loads(ran.stdout)
    made = after["cuMemAllocFromPoolAsync"] - before["cuMemAllocFromPoolAsync"]
    logged = [line for line in ran.stderr.splitlines() if "allocated" in line]
    assert made > 0
    assert len(logged) >= made, ran.stderr
    assert all("bytes on cuda:0 at batch" in line for line in logged)
    # Neither call waits for the device.
    assert "cuMemAlloc_v2" not in closed
    assert "cuMemFree_v2" not in closed
    assert closed["cuMemFreeAsync"] >= made
    assert ran.seen["misuse"] == []


STEPS = """
import json, sys, infeed
from gpu import Gpu, TakenBatch, report
from infeed import sources
from infeed import transforms as T
pipeline = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()
pipeline = pipeline.transform(T.Resize([8, 8]), T.ToFloat()).batch(4)
gpu = Gpu()
stream = gpu.stream()
seen = []
with pipeline.open(device="cuda:0", placement="device") as loader:
    def steps(number):
        done = 0
        while done < number:
            for batch in loader:
                names = ("image", "label")
                taken = [TakenBatch(batch.array(name), stream) for name in names]
                gpu.wait(stream)
                for one in taken:
                    one.release()
                done += 1
        return done
    steps(80)
    before = report()["calls"]
    done = steps(160)
    after = report()["calls"]
gpu.end(stream)
gpu.close()
print(json.dumps([done, {call: after[call] - before[call] for call in after}]))
"""


def test_a_step_binds_the_context_a_few_times(driver, classification):
    ran = driver("-c", STEPS, str(classification.path))

    assert ran.returncode == 0, ran.stderr
    steps, calls = json.loads(ran.stdout)
    # The sender runs ahead of the consumer, so it sends more or fewer batches meanwhile
    # than the consumer takes. Each has one kernel. The last may not be launched yet.
    sent = calls["cuLaunchKernel"] + 1
    # Once for each batch that is sent and once for each of the consumer's five requests
    # (next batch, two imports, two releases), not once for each command.
    assert calls["cuCtxPushCurrent_v2"] <= sent + 5 * steps, calls
    # Events are reused; a late stream may need one more.
    assert calls["cuEventCreate"] <= 0.1 * steps, calls
    assert calls.get("cuEventDestroy_v2", 0) == 0, calls


@pytest.fixture
def description(classification, tmp_path):
    """Writes a pipeline of images small enough for interpreted kernels."""
    made = infeed.Pipeline(sources.Folder(str(classification.path))).decode()
    floats = T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD)
    path = tmp_path / "photos.toml"
    made.transform(T.RandomResizedCrop(24), floats, layout="CHW").batch(10).save(path)
    return str(path)


def test_bench_on_gpus_reports_the_bytes_to_each(driver, description):
    gpus = ["--device", "cuda:0", "--device", "cuda:1"]
    ran = driver(*COMMAND[1:], "bench", description, *gpus, "--seconds", "1")

    assert ran.returncode == 0, ran.stderr
    assert "device        cuda:0, cuda:1: " in ran.stdout
    assert "by the device's clock" in ran.stdout
    assert ran.seen["misuse"] == []
    assert ran.seen["pageable"] == 0
    assert set(ran.seen["live"].values()) == {0}


def test_explain_on_a_gpu_reports_the_best_placement(driver, description):
    options = ["--device", "cuda:0", "--seconds", "1", "--no-remedies", "--json"]
    ran = driver(*COMMAND[1:], "explain", description, *options)

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    splits = {row["split"] for row in found["placement"]["candidates"]}
    assert {"host", "device", "device-resize"} <= splits
    assert ran.seen["misuse"] == []
    assert set(ran.seen["live"].values()) == {0}
