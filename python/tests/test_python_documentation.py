"""The blocks of docs/python.md, each run as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import infeed

PAGE = Path(__file__).parents[2] / "docs" / "python.md"

MODULE, *BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
(FILE,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def folder(classification, tmp_path) -> Path:
    """Where the page's files are: the module and the photos."""
    assert MODULE.startswith("# steps.py\n")
    (tmp_path / "steps.py").write_text(MODULE)
    (tmp_path / "photos").symlink_to(classification.path)
    return tmp_path


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(infeed.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (0, "(8, 64, 64, 3)"),
        (1, "(10, 3)"),
        (2, "(8, 64, 64, 3)"),
    ],
)
def test_it_runs_as_it_is_written(block, said, folder):
    assert said in run(BLOCKS[block], folder)
    assert len(BLOCKS) == 3


def test_the_file_of_the_page_describes_the_same(folder):
    description = """
[source]
kind = "folder"
path = "photos"

[decode]

[[transforms]]
kind = "RandomResizedCrop"
size = 64

[[transforms]]
kind = "ToFloat"

[batch]
size = 6
"""
    (folder / "pipeline.toml").write_text(description + FILE)
    load = "infeed.Pipeline.load('pipeline.toml', allow_functions=['steps:*'])"
    code = f"import infeed; print({load}.shapes['label'])"

    assert "(6, 10)" in run(code, folder)
