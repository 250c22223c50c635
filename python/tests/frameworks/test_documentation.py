"""The blocks of docs/frameworks.md, each run as it is written."""

import re
import sys
from pathlib import Path

import pytest
from installed import framework_test, needed
from running import run

pytestmark = framework_test

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"

OURS = {"infeed", "numpy"}
VARIABLES = {
    "Several ranks": {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    },
}


def blocks() -> list[tuple[str, str]]:
    """Heading and code of each block; the first is what the others build on."""
    found, heading = [], ""
    pattern = r"^#+ ([^\n]*)$|^```python\n(.*?)^```$"
    for match in re.finditer(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if match[1] is not None:
            heading = match[1]
        else:
            found.append((heading, match[2]))
    return found


(_, BEFORE), *BLOCKS = blocks()


def test_there_is_a_block_for_each_framework():
    code = "".join(code for _, code in BLOCKS)

    assert all(f"import {name}" in code for name in ("torch", "keras", "jax"))
    assert "infeed.tensorflow" in code
    assert len(BLOCKS) == 16


@pytest.mark.parametrize(("heading", "code"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_it_runs_as_it_is_written(heading, code, classification, tmp_path, monkeypatch):
    for name in re.findall(r"^(?:import|from) (?:infeed\.)?(\w+)", code, re.MULTILINE):
        if name not in OURS and name not in sys.stdlib_module_names:
            needed(name)
    (tmp_path / "photos").symlink_to(classification.path)
    monkeypatch.chdir(tmp_path)

    run(BEFORE + code, **VARIABLES.get(heading, {}))
