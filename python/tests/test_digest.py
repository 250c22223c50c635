"""Digests of runs, and the command `infeed verify`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import infeed
from infeed import sources


@pytest.fixture
def numbers() -> infeed.Pipeline:
    """Twenty shuffled scalars, four a batch."""
    source = sources.Memory(x=np.arange(20))
    return infeed.Pipeline(source).shuffle(seed=1).batch(4)


def begin_loop(loader, count: int):
    """Returns a loop after `count` steps. Dropping it would end its epoch."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return batches


def digest_of(pipeline, **options) -> str:
    with pipeline.open(**options) as loader:
        for _ in loader:
            pass
        return loader.digest()


def test_digests_distinguish_records_and_with_pixels_also_bytes(numbers):
    other = infeed.Pipeline(sources.Memory(x=np.arange(20) + 1))
    other = other.shuffle(seed=1).batch(4)

    ids, pixels = digest_of(numbers), digest_of(numbers, digest="pixels")

    assert len(ids) == 16
    assert pixels.startswith(f"{ids}-")
    assert len(pixels) == 33
    assert digest_of(other) == ids
    assert digest_of(other, digest="pixels") != pixels
    assert digest_of(numbers.shuffle(seed=2)) != ids
    for workers in (1, 5):
        assert digest_of(numbers, digest="pixels", workers=workers) == pixels


def test_the_digest_of_a_step_covers_that_step_alone(numbers):
    with numbers.open() as loader:
        first = [loader.step_digest() for _ in loader]
        second = [loader.step_digest() for _ in loader]

    assert len(set(first + second)) == 10
    with numbers.open() as loader:
        assert [loader.step_digest() for _ in loader] == first


def test_a_state_continues_the_digest(numbers):
    with numbers.open() as loader:
        loop = begin_loop(loader, 3)
        state = json.loads(json.dumps(loader.state_dict()))
        del loop
    with numbers.open() as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 2
        assert loader.digest() == digest_of(numbers)


def test_states_of_ranks_are_equal_and_have_no_digest(numbers):
    loaders = [numbers.open(rank=rank, world_size=2) for rank in range(2)]
    loops = [begin_loop(loader, 3) for loader in loaders]
    states = [loader.state_dict() for loader in loaders]
    for loader in loaders:
        loader.close()
    del loops

    assert states[0] == states[1]
    assert states[0]["digest"] is None


def verify(*arguments: object, path: object) -> subprocess.CompletedProcess:
    """Runs `infeed verify`, with modules from a folder."""
    program = "import sys; from infeed._core import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "infeed", "verify", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )


def test_verify_names_the_first_row_of_an_unsteady_function(tmp_path):
    (tmp_path / "unsteady.py").write_text(
        "reads = 0\n"
        "def count(sample):\n"
        "    global reads\n"
        "    reads += 1\n"
        "    return {'x': sample['x'] + (reads if sample['x'] >= 5 else 0)}\n"
    )
    np.save(tmp_path / "x.npy", np.arange(8))
    description = tmp_path / "pipeline.toml"
    source = sources.Memory(x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    infeed.Pipeline(source).batch(2).save(description)
    with description.open("a") as file:
        file.write("\n[[python]]\nfunction = 'unsteady:count'\n")

    found = verify(
        description, "--allow-functions", "unsteady:*", "--workers", "1", path=tmp_path
    )

    assert found.returncode == 1, found.stderr
    assert "step 2 of epoch 0" in found.stderr
    assert "position 5 has different bytes in `x`" in found.stderr


def test_verify_compares_with_a_written_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(20))
    for seed in (1, 2):
        source = sources.Memory(x=np.load(tmp_path / "x.npy", mmap_mode="r"))
        pipeline = infeed.Pipeline(source).shuffle(seed=seed).batch(4)
        pipeline.save(tmp_path / f"{seed}.toml")
    file = tmp_path / "run.jsonl"

    written = verify(tmp_path / "1.toml", "--write", file, path=tmp_path)
    same = verify(tmp_path / "1.toml", "--against", file, path=tmp_path)
    other = verify(tmp_path / "2.toml", "--against", file, path=tmp_path)

    assert written.returncode == 0, written.stderr
    assert "equal to the record: 5 steps" in same.stdout
    assert other.returncode == 1
    assert "seed is 2, was 1" in other.stderr
