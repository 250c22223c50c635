"""The blocks of the documentation that need a framework, each run as it is written."""

import pages
import pytest
from requirements import framework_test, require
from running import run

pytestmark = framework_test

PROGRAMS = [program for program in pages.programs() if program.frameworks]

VARIABLES = {
    "docs/guides/training-loops.md: Several ranks": {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    },
    # Ray's default is 30 % of the memory, which a busy machine may not have.
    "docs/guides/ray.md: ": {
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(200 << 20),
    },
}


def test_every_framework_has_a_block():
    code = "".join(program.code for program in PROGRAMS)

    for adapter in ("torch", "keras", "jax", "tensorflow", "transformers", "ray"):
        assert f"infeed.{adapter}" in code


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_block_runs(program, classification, segmentation, tmp_path, monkeypatch):
    for name in program.frameworks:
        require(name)
    (tmp_path / "photos").symlink_to(classification.path)
    (tmp_path / "streets").mkdir()
    (tmp_path / "streets" / "images").symlink_to(segmentation.image)
    (tmp_path / "streets" / "masks").symlink_to(segmentation.mask)
    (tmp_path / "streets" / "class_dict.csv").symlink_to(segmentation.palette)
    monkeypatch.chdir(tmp_path)

    run(program.code, timeout_s=200, **VARIABLES.get(program.name, {}))
