"""The last batch of an epoch: kept, left out, padded, wrapped."""

from itertools import chain

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed.errors import ConfigError


@pytest.fixture
def numbers() -> infeed.Pipeline:
    """Ten scalars and texts, four a batch."""
    source = sources.Memory(x=np.arange(1, 11), name=list("abcdefghij"))
    return infeed.Pipeline(source).batch(4)


def drain(pipeline, **options) -> list[list[int]]:
    with pipeline.open(**options) as loader:
        return [batch["x"].tolist() for batch in loader]


def test_tails_are_selected_by_name(numbers):
    full = [[1, 2, 3, 4], [5, 6, 7, 8]]

    assert drain(numbers.batch(4, tail="keep")) == [*full, [9, 10]]
    assert drain(numbers.batch(4, tail="drop")) == full
    assert drain(numbers.batch(4, tail="pad")) == [*full, [9, 10, 0, 0]]
    assert drain(numbers.batch(4, tail="wrap")) == [*full, [9, 10, 1, 2]]


def test_a_mask_in_every_batch_marks_padding(numbers):
    pipeline = numbers.batch(4, tail="pad")

    with pipeline.open() as loader:
        batches = list(loader)

    assert pipeline.fields == ("x", "name", "valid")
    assert pipeline.shapes["valid"] == infeed.pipeline.Column("array", "bool", (4,))
    assert [b["valid"].dtype for b in batches] == [np.dtype(bool)] * 3
    assert [b["valid"].tolist() for b in batches[:2]] == [[True] * 4] * 2
    assert batches[2]["valid"].tolist() == [True, True, False, False]
    assert batches[2]["name"] == ["i", "j", "", ""]
    assert [n for n, _ in batches[2].records] == [8, 9, -1, -1]
    assert "valid: false where a row is padding" in pipeline.explain()


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_have_equal_steps_and_share_the_same_batches(numbers, tail, world):
    pipeline = numbers.shuffle(seed=3).batch(4, tail=tail)

    parts = [drain(pipeline, rank=n, world_size=world) for n in range(world)]

    joined = [list(chain(*rows)) for rows in zip(*parts, strict=True)]
    assert joined == drain(pipeline)


def test_contradicting_tails_and_reserved_names_raise(numbers):
    with pytest.raises(ConfigError, match="set only one of them"):
        numbers.batch(4, drop_last=True, tail="wrap")
    with pytest.raises(ConfigError, match="tail must be one of"):
        numbers.batch(4, tail="repeat")
    taken = infeed.Pipeline(sources.Memory(valid=[1, 2, 3]))
    with pytest.raises(ConfigError, match="adds a field `valid`"):
        taken.batch(2, tail="pad")
    assert numbers.batch(4, drop_last=True, tail="drop") is not None
    with pytest.raises(ConfigError, match='tail="pad" or tail="wrap"'):
        numbers.open(world_size=2)


def test_a_tail_is_printed_saved_and_in_the_state(tmp_path):
    plain = infeed.Pipeline(sources.Folder("photos"))
    wrapped = plain.batch(4, tail="wrap")

    assert repr(wrapped).endswith('    .batch(4, tail="wrap")\n)')
    wrapped.save(tmp_path / "wrapped.toml")
    assert infeed.Pipeline.load(tmp_path / "wrapped.toml") == wrapped
    plain.batch(4, drop_last=True).save(tmp_path / "plain.toml")
    assert "tail" not in (tmp_path / "plain.toml").read_text()


def test_a_state_of_another_tail_raises_and_equal_spellings_load(numbers):
    states = {}
    for tail in ("keep", "drop", "pad", "wrap"):
        with numbers.batch(4, tail=tail).open() as loader:
            batches = iter(loader)
            next(batches)
            states[tail] = loader.state_dict()

    with numbers.batch(4, tail="wrap").open() as loader:
        with pytest.raises(ConfigError, match="tail is wrap, was pad"):
            loader.load_state_dict(states["pad"])
        loader.load_state_dict(states["wrap"])
        assert [b["x"].tolist() for b in loader] == [[5, 6, 7, 8], [9, 10, 1, 2]]
    with numbers.batch(4, drop_last=True).open() as loader:
        loader.load_state_dict(states["drop"])
