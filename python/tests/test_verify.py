"""The certificate of a run: digests, files of them, replays."""

import json

import numpy as np
import pytest

import infeed
from infeed import ConfigError, sources


@pytest.fixture
def numbers() -> infeed.Pipeline:
    """Twenty shuffled scalars, four a batch."""
    source = sources.Memory(x=np.arange(20))
    return infeed.Pipeline(source).shuffle(seed=1).batch(4)


def begun(loader, count: int):
    """A loop after so many steps; letting go of it would end its epoch."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return batches


def digest_of(pipeline, **options) -> str:
    with pipeline.open(**options) as loader:
        for _ in loader:
            pass
        return loader.digest()


def test_a_digest_tells_records_and_if_asked_bytes_apart(numbers):
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


def test_digests_of_ranks_and_of_steps_add_up(numbers):
    whole = digest_of(numbers, digest="pixels")
    ranks = [
        digest_of(numbers, digest="pixels", rank=rank, world_size=2)
        for rank in range(2)
    ]
    with numbers.open(digest="pixels") as loader:
        steps = [loader.step_digest() for _ in loader]

    assert infeed.add_digests(ranks) == whole
    assert infeed.add_digests(steps) == whole
    with pytest.raises(ConfigError, match="give what digest"):
        infeed.add_digests(["0"])


def test_the_state_carries_the_digest_on(numbers):
    with numbers.open() as loader:
        loop = begun(loader, 3)
        state = json.loads(json.dumps(loader.state_dict()))
        del loop
    with numbers.open() as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 2
        assert loader.digest() == digest_of(numbers)


def test_states_of_ranks_are_equal_and_take_the_sum_of_their_digests(numbers):
    loaders = [numbers.open(rank=rank, world_size=2) for rank in range(2)]
    loops = [begun(loader, 3) for loader in loaders]
    states = [loader.state_dict() for loader in loaders]
    digests = [loader.digest() for loader in loaders]
    for loader in loaders:
        loader.close()
    del loops

    assert states[0] == states[1]
    assert states[0]["digest"] is None
    state = states[0] | {"digest": infeed.add_digests(digests)}
    rest = []
    for rank in range(4):
        with numbers.open(rank=rank, world_size=4) as loader:
            loader.load_state_dict(state)
            assert len(list(loader)) == 2
            rest.append(loader.digest())
    assert infeed.add_digests(rest) == digest_of(numbers)


def test_a_replay_is_held_against_what_a_run_wrote(numbers, tmp_path):
    file = tmp_path / "digests.jsonl"
    with numbers.open(digest_file=file) as loader:
        loop = begun(loader, 3)
        state = loader.state_dict()
        assert len(list(loop)) == 2
    told = []

    found = infeed.verify(
        numbers, against=file, progress=lambda *at: told.append(at), workers=1
    )
    rest = infeed.verify(numbers, state, against=[file])

    assert found.same
    assert (found.epoch, found.step, found.steps) == (0, 0, 5)
    assert told[-1] == (5, 5)
    assert rest.same
    assert (rest.epoch, rest.step, rest.steps) == (0, 3, 2)


def test_the_first_step_that_differs_is_named(numbers, tmp_path):
    file = tmp_path / "digests.jsonl"
    infeed.verify(numbers, write=file, digest="pixels")
    changed = np.arange(20)
    changed[7] = 99
    other = infeed.Pipeline(sources.Memory(x=changed)).shuffle(seed=1).batch(4)
    with numbers.open() as loader:
        steps = [batch["x"].tolist() for batch in loader]
    at = next(n for n, step in enumerate(steps) if 7 in step)

    found = infeed.verify(other, against=file)

    assert not found.same
    assert found.steps == at
    assert found.difference is not None
    assert (found.difference.epoch, found.difference.step) == (0, at)
    assert found.difference.positions == (4 * at, 4 * at + 4)
    assert not found.difference.other_records
    assert "the same records, other bytes" in str(found.difference)


def test_a_pipeline_that_is_no_function_of_its_seed_is_found_out():
    class Moody:
        """Items that differ from reading to reading, from the sixth on."""

        reads = 0

        def __len__(self):
            return 8

        def __getitem__(self, n):
            self.reads += 1
            return {"x": np.float64(self.reads if n >= 5 else n)}

    pipeline = infeed.Pipeline(sources.Items(Moody())).batch(2)

    found = infeed.verify(pipeline, workers=1)

    assert not found.same
    assert found.difference is not None
    assert (found.difference.step, found.difference.position) == (2, 5)
    assert found.difference.field == "x"
    assert [record[0] for record in found.difference.records] == [5, 5]
    assert "position 5 has other bytes of `x`" in str(found.difference)


def test_files_and_states_of_another_run_are_refused(numbers, tmp_path):
    file = tmp_path / "digests.jsonl"
    infeed.verify(numbers, write=file)
    other = numbers.shuffle(seed=2)

    with pytest.raises(ConfigError, match="seed is 2, was 1"):
        infeed.verify(other, against=file)
    with pytest.raises(ConfigError, match="name another file"):
        other.open(digest_file=file)
    with numbers.open() as loader, pytest.raises(ConfigError, match="seed is 2, was 1"):
        infeed.verify(other, loader.state_dict())
    with pytest.raises(ConfigError, match="steps must be an integer"):
        infeed.verify(numbers, steps=0)


def test_a_replay_stops_when_it_is_told_to(numbers):
    found = infeed.verify(numbers, steps=100, progress=lambda done, _: done < 3)

    assert (found.steps, found.wanted, found.difference) == (3, 100, None)
    assert not found.same

    def fails(done: int, wanted: int) -> bool:
        raise RuntimeError("no progress")

    with pytest.raises(RuntimeError, match="no progress"):
        infeed.verify(numbers, progress=fails)
