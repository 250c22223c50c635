"""The campaigns of `benchmarks/` report faults that are made on purpose."""

import json
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

if not sys.platform.startswith("linux"):
    pytest.skip("the campaigns read /proc", allow_module_level=True)

SMALL = Namespace(
    seed=1, images=24, workers=2, most=12, bad=0.05, verbose=False, minutes=1.0
)


# Reads tar shards, one rank; 10 to 12 steps in two legs or more.
CASE = 1


@pytest.fixture(scope="module")
def soak():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import soak
    finally:
        sys.path.remove(str(BENCHMARKS))
    return soak


@pytest.fixture
def one_case(soak, tmp_path, monkeypatch):
    """Runs one small case whose legs are closed, and returns the findings."""
    # Legs that are closed save their last state; a killed leg takes seconds.
    monkeypatch.setattr(soak, "ENDS", {"closed": 1.0})

    def run(case):
        args = Namespace(**vars(SMALL), case=case)
        done, _ = soak.soak(args, tmp_path)
        return done

    return run


def test_a_run_without_a_fault_has_no_finding(one_case):
    done = one_case(CASE)
    assert done.tally.findings == []
    assert done.restarts > 1


def test_a_resumed_run_that_starts_at_the_beginning_is_reported(
    soak, one_case, monkeypatch
):
    class Forgetful(soak.Group):
        def __init__(self, pipeline, ranks, on_error, workers, states, cache=None):
            super().__init__(pipeline, ranks, on_error, workers, None, cache)

    monkeypatch.setattr(soak, "Group", Forgetful)
    (finding,) = one_case(CASE).tally.findings
    assert "Differs" in finding


def test_a_changed_digest_of_a_step_is_reported(soak, one_case, monkeypatch):
    step = soak.Group.step
    calls = []

    def record_step(group):
        found = step(group)
        calls.append(found)
        # The undisturbed run makes the first 12 calls at most.
        return dict.fromkeys(found, "0" * 32) if len(calls) == 13 else found

    monkeypatch.setattr(soak.Group, "step", record_step)
    (finding,) = one_case(CASE).tally.findings
    assert "Differs" in finding


def test_growth_of_memory_and_of_threads_is_reported(soak):
    def history(rss, threads):
        return [soak.Resources(float(at), rss(at), threads(at), 9) for at in range(100)]

    def grow(**of):
        return soak.table(history(**of))[1]

    mib = 1 << 20
    assert not grow(rss=lambda at: 100 * mib, threads=lambda at: 5)
    assert grow(rss=lambda at: (100 + at) * mib, threads=lambda at: 5)
    assert grow(rss=lambda at: 100 * mib, threads=lambda at: 5 + at // 50)


# Runs `scripts/fuzz` in a folder, with a program instead of the targets.
FUZZ = """
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

path, folder = sys.argv.pop(1), Path(sys.argv.pop(1))
fuzz = module_from_spec(spec_from_loader("fuzz", SourceFileLoader("fuzz", path)))
sys.modules["fuzz"] = fuzz
fuzz.__spec__.loader.exec_module(fuzz)
fuzz.ROOT = fuzz.FUZZ = folder
fuzz.LEDGER = folder / "ledger.jsonl"
fuzz.build = fuzz.write_table = lambda *targets: None
fuzz.program = lambda target: folder / "program"
sys.exit(fuzz.main())
"""

# Prints its figures when it is interrupted, like libFuzzer.
PROGRAM = """#!{python}
import signal, sys, time
from pathlib import Path

def stop(*_):
    print("#7 cov: 3\\nstat::number_of_executed_units: 7", flush=True)
    sys.exit(72)

signal.signal(signal.SIGINT, stop)
Path("{ready}").touch()
time.sleep(60)
"""


def test_an_interrupted_fuzz_run_stays_in_the_ledger(tmp_path):
    (tmp_path / "fuzz_targets").mkdir()
    (tmp_path / "regressions").mkdir()
    for target in ("first", "second"):
        (tmp_path / "fuzz_targets" / f"{target}.rs").touch()
    ready, program = tmp_path / "ready", tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable, ready=ready))
    program.chmod(0o755)
    script = BENCHMARKS.parent / "scripts" / "fuzz"

    run = subprocess.Popen(
        [sys.executable, "-c", FUZZ, script, tmp_path, "--minutes", "9"],
        stdout=subprocess.PIPE,
        text=True,
        # As a shell starts a command in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        end = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        printed, _ = run.communicate(timeout=30)
    finally:
        run.kill()

    assert run.returncode == 0, printed
    [entry] = (tmp_path / "ledger.jsonl").read_text().splitlines()
    targets = json.loads(entry)["targets"]
    assert set(targets) == {"first"}
    assert (targets["first"]["executions"], targets["first"]["edges"]) == (7, 3)
