"""Frameworks that are not installed skip tests, and the summary counts them by name."""

import subprocess
import sys
from pathlib import Path

from conftest import skip_summary

FRAMEWORKS = Path(__file__).parent / "frameworks"

# A test that needs a missing module, directly or through another one.
TESTS = """
import sys
sys.path.insert(0, {frameworks!r})
from requirements import import_or_skip, require

def test_needs(): require("absent_framework")
def test_imports(): import_or_skip("needs_absent_framework")
def test_runs(): assert import_or_skip("json")
def test_broken(): import_or_skip("infeed_is_broken")
"""


def test_the_summary_counts_skips_by_framework_and_other_reasons_one_by_one():
    reasons = [
        "Skipped: jax is not installed; `make test-frameworks` installs it",
        "Skipped: could not import 'torch': No module named 'torch'",
        "Skipped: jax is not installed",
        "Skipped: needs fork",
    ]

    assert skip_summary(reasons) == [
        "Skipped 1: needs fork",
        "Skipped for frameworks that are not installed: jax 2, torch 1",
    ]


def test_an_absent_framework_skips_a_test_and_a_defect_of_infeed_fails_it(tmp_path):
    (tmp_path / "needs_absent_framework.py").write_text("import absent_framework")
    (tmp_path / "infeed_is_broken.py").write_text("import infeed.no_such_module")
    tests = tmp_path / "test_some.py"
    tests.write_text(TESTS.format(frameworks=str(FRAMEWORKS)))

    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tests)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "absent_framework is not installed" in ended.stdout, ended.stdout
    assert "1 failed, 1 passed, 2 skipped" in ended.stdout, ended.stdout
