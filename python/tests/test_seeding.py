"""Random draws of Python code by position: datasets and functions."""

import random
import threading

import numpy as np
import pytest
import stage_functions as steps

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.seeding import generators_of, seed_draws

SHARED = np.random.default_rng()


def shared_draw() -> float:
    return SHARED.random()


class KeyedNoise:
    """A dataset that receives a generator."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number, rng):
        return {"x": rng.standard_normal(3), "number": number}


class KeyedByName(KeyedNoise):
    def __getitem__(self, number, *, rng=None):
        return super().__getitem__(number, rng)


class Drawing:
    """A dataset that draws from all generators that it can reach."""

    def __init__(self) -> None:
        self.parts = {"held": [np.random.default_rng(), random.Random()]}
        self.legacy = np.random.RandomState()
        self.late = None

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number):
        self.late = self.late or np.random.Generator(np.random.Philox())
        generator, other = self.parts["held"]
        draws = [random.random(), np.random.rand(), generator.normal(), other.random()]
        draws += [self.legacy.rand(), self.late.random(), shared_draw()]
        return {"x": np.array(draws), "number": number}


def numbers() -> infeed.Pipeline:
    return infeed.Pipeline(sources.Memory(x=np.arange(40)))


PIPELINES = {
    "a parameter": lambda: infeed.Pipeline(sources.Items(KeyedNoise())),
    "a keyword": lambda: infeed.Pipeline(sources.Items(KeyedByName())),
    "a seeded dataset": lambda: infeed.Pipeline(sources.Items(seed_draws(Drawing()))),
    "a seeded function": lambda: numbers().python(seed_draws(steps.draw)),
    "in processes": lambda: numbers().python(seed_draws(steps.draw), processes=2),
}


def rows(loader: infeed.Loader) -> np.ndarray:
    return np.concatenate([batch["x"].copy() for batch in loader])


@pytest.mark.parametrize("kind", PIPELINES)
def test_draws_depend_on_the_position_and_on_nothing_else(kind):
    pipeline = PIPELINES[kind]().shuffle(seed=3).batch(5)
    with pipeline.open(workers=1) as loader:
        first, second = rows(loader), rows(loader)
    # New objects, whose generators begin with other states.
    pipeline = PIPELINES[kind]().shuffle(seed=3).batch(5)
    with pipeline.open(workers=2, io_threads=4) as loader:
        again = rows(loader)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with pipeline.open(workers=2) as loader:
        loader.load_state_dict(state)
        rest = rows(loader)

    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(rest, second[15:])
    assert not set(first.flat) & set(second.flat)
    assert len(set(first.flat)) == first.size
    with pipeline.shuffle(seed=4).open() as loader:
        assert not set(rows(loader).flat) & set(first.flat)


def test_functions_draw_the_same_in_processes_as_in_this_one():
    found = []
    for kind in ("a seeded function", "in processes"):
        with PIPELINES[kind]().batch(8).open(workers=2) as loader:
            found.append(rows(loader))

    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_generator_that_the_first_call_makes_is_seeded(processes):
    found = []
    for _ in range(2):
        pipeline = numbers().python(
            seed_draws(steps.LateGenerator()),
            processes=processes,
            output={"x": "float64", "number": "int64"},
        )
        with pipeline.batch(8).open(workers=2) as loader:
            found.append(rows(loader))
            assert {*range(40)} == {int(n) for b in loader for n in b["number"]}

    np.testing.assert_array_equal(*found)


def test_seeded_code_may_call_seeded_code():
    inner = seed_draws(Drawing())

    def outer(sample):
        return {"x": inner[int(sample["x"])]["x"]}

    with numbers().python(seed_draws(outer)).batch(8).open(workers=2) as loader:
        assert len(rows(loader)) == 40


def test_generators_continue_where_they_were():
    dataset = Drawing()
    held = [*generators_of(dataset)]
    assert [type(one).__name__ for one in held].count("Generator") == 2
    before = random.getstate(), np.random.get_state()[1].tolist()
    states = [one.bit_generator.state for one in (SHARED, dataset.parts["held"][0])]
    with infeed.Pipeline(sources.Items(seed_draws(dataset))).batch(8).open() as loader:
        rows(loader)

    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    after = [one.bit_generator.state for one in (SHARED, dataset.parts["held"][0])]
    assert after == states


def test_generators_continue_after_an_exception():
    class Failing(Drawing):
        def __getitem__(self, number):
            item = super().__getitem__(number)
            if number == 7:
                raise ValueError("seven")
            return item

    state = random.getstate()
    pipeline = infeed.Pipeline(sources.Items(seed_draws(Failing()))).batch(8)
    with pipeline.open(on_error="skip") as loader:
        assert len(rows(loader)) == 39

    assert random.getstate() == state


def test_one_call_at_a_time_draws_in_this_process():
    inside, most = [], []

    def count_callers(sample):
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.001)
        inside.pop()
        return sample

    with numbers().python(seed_draws(count_callers)).batch(8).open(workers=4) as loader:
        rows(loader)

    assert max(most) == 1


def test_long_lists_and_cycles_are_passed_over():
    dataset = Drawing()
    dataset.files = [(f"{n}.jpg", n) for n in range(100_000)]
    dataset.itself = dataset
    dataset.secret = random.SystemRandom()

    assert len([*generators_of(dataset)]) == 4


def test_the_code_and_errors_name_the_function_and_the_dataset():
    function = numbers().python(seed_draws(steps.draw))
    dataset = infeed.Pipeline(sources.Items(seed_draws(Drawing())))

    assert ".python(infeed.seeding.seed_draws(draw))" in repr(function)
    assert "sources.Items(infeed.seeding.seed_draws(<Drawing>))" in repr(dataset)
    pipeline = numbers().python(seed_draws(steps.picky)).batch(4)
    with pytest.raises(infeed.errors.FunctionError, match="stage_functions:picky"):
        next(iter(pipeline))


def test_wrong_arguments_are_errors_with_the_fix():
    with pytest.raises(
        infeed.errors.ConfigError, match="expected a function, or a dataset"
    ):
        seed_draws(3)
    with pytest.raises(infeed.errors.ConfigError, match="remove its parameter rng"):
        sources.Items(KeyedNoise(), deterministic=True, version=1)
    with pytest.raises(infeed.errors.ConfigError, match="draws random numbers"):
        numbers().python(seed_draws(steps.draw), deterministic=True, version=1)


class Pictures:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, number, rng):
        return {"image": rng.integers(0, 255, (8, 8, 3), np.uint8), "label": number}


def test_a_mixed_partner_has_the_draws_of_its_own_position():
    records = infeed.Pipeline(sources.Items(Pictures())).shuffle(seed=1)
    steps = T.ToFloat(), T.MixUp(classes=24)
    with records.batch(24).open() as loader:
        images = next(iter(loader))["image"].astype(np.float32) / 255
    with records.transform(*steps).batch(24).open(workers=2) as loader:
        mixed = next(iter(loader))["image"]

    for row, found in enumerate(mixed):
        # One of the images is the partner: the row is a mixture with it.
        errors = []
        for other in images:
            towards = (other - images[row]).ravel()
            share = towards @ (found - images[row]).ravel() / max(towards @ towards, 1)
            errors.append(np.abs(images[row] + share * (other - images[row]) - found))
        assert min(error.max() for error in errors) < 1e-3


def test_ranks_have_the_draws_of_one_run():
    pipeline = PIPELINES["a seeded dataset"]().shuffle(seed=3).batch(8)
    with pipeline.open() as loader:
        whole = rows(loader)
    found = []
    for rank in range(2):
        with pipeline.open(rank=rank, world_size=2) as loader:
            found.append([batch["x"].copy() for batch in loader])

    parts = [part for both in zip(*found, strict=True) for part in both]
    assert {*np.concatenate(parts).flat} == {*whole.flat}
