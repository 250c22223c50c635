"""prefetch and overlap: order, errors, waiting times, and the end of threads."""

import contextlib
import gc
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
from children import interrupt_script, result_in_fork
from conftest import wait_until

import infeed

SLOW = """
import sys, time, infeed
def endless():
    try:
        while True:
            time.sleep(0.05)
            yield 1
    finally:
        print("closed", flush=True)
def block():
    yield 1
    time.sleep(600)
items = iter(infeed.prefetch(endless() if sys.argv[1] != "block" else block()))
try:
    for _ in items:
        print("ready", flush=True)
        if sys.argv[1] == "exit":
            break
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "infeed-prefetch"]


def none_left(timeout_s: float = 60.0) -> bool:
    """Whether all threads end soon; dropping a loop does not wait for its thread."""
    for thread in threads():
        thread.join(timeout_s)
    return not threads()


@pytest.fixture(autouse=True)
def nothing_runs():
    gc.collect()
    assert none_left()
    yield
    gc.collect()
    assert none_left()


class CountedItems:
    """An iterable that records its calls and their thread."""

    def __init__(self, count=6, broken=(), pause_s=0.0):
        self.count, self.broken, self.pause_s = count, broken, pause_s
        self.requested, self.threads, self.closed = 0, set(), threading.Event()

    def __iter__(self):
        return MadeIterator(self)

    def __len__(self):
        return self.count


class MadeIterator:
    def __init__(self, made):
        self.made, self.n = made, -1

    def __iter__(self):
        return self

    def __next__(self):
        made = self.made
        self.n += 1
        if self.n == made.count:
            raise StopIteration
        made.requested += 1
        made.threads.add(threading.get_ident())
        time.sleep(made.pause_s)
        if self.n in made.broken:
            raise ValueError(f"item {self.n} is broken")
        return self.n

    def close(self):
        self.made.closed.set()


def test_another_thread_yields_the_items_in_order_each_time():
    made = CountedItems(50)
    ahead = infeed.prefetch(made)

    assert [list(ahead) for _ in range(2)] == [list(range(50))] * 2

    assert len(ahead) == 50
    assert threading.get_ident() not in made.threads
    assert ahead.stats()["items"] == 100


def test_a_prefetch_stays_within_its_number_of_batches():
    made = CountedItems(50)
    batches = iter(infeed.prefetch(made, batches=3))

    for taken in range(50):
        ahead = min(taken + 3, 50)
        assert wait_until(lambda ahead=ahead: made.requested >= ahead)
        assert made.requested == ahead
        next(batches)


def test_an_error_is_raised_at_its_item_and_the_loop_may_continue():
    made = CountedItems(6, broken=(2, 5))
    items = iter(infeed.prefetch(made, batches=4))
    assert [next(items), next(items)] == [0, 1]

    with pytest.raises(ValueError, match="item 2 is broken"):
        next(items)
    # The loop has not requested more, as without the prefetch.
    assert made.requested == 3

    assert [next(items), next(items)] == [3, 4]
    with pytest.raises(ValueError, match="item 5 is broken"):
        next(items)
    assert list(items) == []


def test_a_failed_generator_has_ended():
    def generator():
        yield 1
        raise OSError("disk")

    items = iter(infeed.prefetch(generator()))
    assert next(items) == 1
    with pytest.raises(OSError, match="disk"):
        next(items)
    assert list(items) == []


def test_an_error_of_iter_is_raised_at_once():
    with pytest.raises(TypeError, match="not iterable"):
        iter(infeed.prefetch(3))


def test_waiting_time_is_counted():
    ahead = infeed.prefetch(CountedItems(5, pause_s=0.02), batches=1)
    for _ in ahead:
        pass
    slow = ahead.stats()
    assert slow["waited_s"] == ahead.waited_seconds
    assert slow["waited_s"] > 0.08
    assert slow["made_s"] > 0.08
    assert 0 < slow["first_s"] < slow["waited_s"]

    ahead = infeed.prefetch(CountedItems(5), batches=1)
    for _ in ahead:
        time.sleep(0.1)
    fast = ahead.stats()
    assert fast["idle_s"] > fast["waited_s"]


def test_leaving_the_loop_ends_the_thread_and_closes_the_generator():
    made = CountedItems(1000)
    for item in infeed.prefetch(made):
        if item == 3:
            break

    assert made.closed.wait(60)
    assert none_left()


def test_a_generator_is_closed_by_the_thread_that_ran_it():
    ran_by = []

    def generator():
        try:
            yield from range(1000)
        finally:
            ran_by.append(threading.get_ident())

    with infeed.prefetch(generator()) as ahead:
        next(iter(ahead))

    assert len(ran_by) == 1
    assert ran_by[0] != threading.get_ident()


def test_close_ends_a_running_loop():
    with infeed.prefetch(CountedItems(1000)) as ahead:
        items = iter(ahead)
        next(items)
    assert not threads()

    with pytest.raises(infeed.errors.ClosedError, match="iterate again"):
        next(items)


def test_taken_items_are_released():
    class Item:
        alive = 0

        def __init__(self):
            Item.alive += 1

        def __del__(self):
            Item.alive -= 1

    most = 0
    for _ in infeed.prefetch((Item() for _ in range(50)), batches=2):
        most = max(most, Item.alive)

    # Two items ready or being made, the loop's item, and the previous one while `for`
    # requests the next.
    assert most <= 4


@pytest.mark.parametrize("how", ["ctrl-c", "block"])
def test_ctrl_c_works_at_once(how):
    printed = interrupt_script(SLOW, how)

    assert "interrupted" in printed
    assert ("closed" in printed) == (how == "ctrl-c")


def test_an_interpreter_that_ends_in_mid_loop_ends():
    ended = subprocess.run(
        [sys.executable, "-c", SLOW, "exit"], timeout=60, capture_output=True, text=True
    )

    assert ended.returncode == 0
    assert ended.stdout.split() == ["ready", "closed"]
    assert ended.stderr == ""


# Python 3.12 and later, and JAX, warn about forks.
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_raises_and_can_iterate_again():
    ahead = infeed.prefetch(CountedItems(50))
    items = iter(ahead)
    next(items)

    def begins_again() -> str:
        with pytest.raises(infeed.errors.ForkedError, match="fork"):
            next(items)
        return f"all of them: {list(ahead) == list(range(50))}"

    assert result_in_fork(begins_again) == "all of them: True"
    assert list(items) == list(range(1, 50))


class Stateful:
    """A loader with a state and ten numbers per epoch."""

    def __init__(self, pause_s=0.0):
        self.at, self.pause_s, self.inside = 0, pause_s, 0

    def __iter__(self):
        while True:
            assert self.inside == 0, "two loops at once"
            self.inside += 1
            time.sleep(self.pause_s)
            self.at += 1
            self.inside -= 1
            yield self.at - 1
            if self.at % 10 == 0:
                return

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_a_state_counts_the_items_that_the_loop_took():
    loader = Stateful()
    ahead = infeed.prefetch(loader, batches=4)
    items = iter(ahead)
    assert ahead.state_dict() == {"at": 0}

    seen = []
    for item in items:
        seen.append(item)
        assert ahead.state_dict() == {"at": item + 1}

    assert seen == list(range(10))
    again = infeed.prefetch(Stateful())
    again.load_state_dict({"at": 4})
    assert list(again) == list(range(4, 10))
    assert list(again) == list(range(10, 20))


def test_a_state_counts_the_items_that_a_loop_took_before_it_was_left():
    loader = Stateful()
    ahead = infeed.prefetch(loader, batches=4)
    for item in ahead:
        if item == 1:
            assert wait_until(lambda: loader.at >= 5)
            break

    assert ahead.state_dict() == {"at": 2}
    assert ahead.state_dict() == {"at": 2}
    again = infeed.prefetch(Stateful())
    again.load_state_dict(ahead.state_dict())
    assert list(again) == list(range(2, 10))


def test_an_iterable_used_after_the_loop_reports_its_own_state():
    loader = Stateful()
    ahead = infeed.prefetch(loader, batches=3)
    for _ in ahead:
        assert wait_until(lambda: loader.at >= 3)
        break
    assert ahead.state_dict() == {"at": 1}
    (*_, last) = loader

    assert ahead.state_dict() == {"at": last + 1}

    for _ in ahead:
        assert wait_until(lambda: loader.at >= last + 3)
        break
    ahead.close()
    # A loaded state counts, even if it equals the position of the thread.
    ahead.load_state_dict({"at": loader.at})
    assert ahead.state_dict() == {"at": loader.at}
    assert ahead.stats()["items"] == 2


def test_a_failing_item_is_not_mistaken_for_other_use():
    class Failing(Stateful):
        def __iter__(self):
            yield from (item for item in super().__iter__() if self.check(item))

        def check(self, item):
            if item == 2:
                raise ValueError("item 2")
            return True

    loader = Failing()
    ahead = infeed.prefetch(loader, batches=4)
    for _ in ahead:
        assert wait_until(lambda: loader.at >= 3)
        break

    assert ahead.state_dict() == {"at": 1}


def test_states_with_arrays_are_compared_by_their_elements():
    class Arrays(Stateful):
        def state_dict(self):
            return {"at": [np.array([self.at, 0])], "name": "x"}

    loader = Arrays()
    ahead = infeed.prefetch(loader, batches=4)
    for _ in ahead:
        assert wait_until(lambda: loader.at >= 4)
        break

    assert ahead.state_dict()["at"][0].tolist() == [1, 0]
    next(iter(loader))
    assert ahead.state_dict()["at"][0].tolist() == [loader.at, 0]


def test_leaving_a_pipeline_ends_the_epoch_in_its_state():
    numbers = infeed.Pipeline(infeed.sources.Memory(x=list(range(40)))).batch(4)
    with numbers.open() as loader:
        ahead = infeed.prefetch(loader, batches=3)
        for _ in ahead:
            break

        state = ahead.state_dict()

    assert (state["epoch"], state["position"]) == (1, 0)


def test_loading_a_state_ends_the_running_loop():
    ahead = infeed.prefetch(Stateful())
    items = iter(ahead)
    next(items)

    ahead.load_state_dict({"at": 7})

    with pytest.raises(infeed.errors.ClosedError):
        next(items)
    assert list(ahead) == [7, 8, 9]


def test_a_prefetch_of_an_iterable_without_state_has_no_state():
    assert not hasattr(infeed.prefetch([1]), "state_dict")


def test_a_new_loop_waits_for_the_end_of_the_previous_one():
    loader = Stateful(pause_s=0.02)

    for _ in range(3):
        for _ in infeed.prefetch(loader):
            break
    # The thread fails if two loops are inside at once.
    items = iter(infeed.prefetch(loader))
    first = next(items)

    assert [next(items), next(items)] == [first + 1, first + 2]


def test_leaving_and_restarting_a_loop_loses_no_batch_of_a_pipeline():
    numbers = infeed.Pipeline(infeed.sources.Memory(x=list(range(40)))).shuffle(seed=1)
    pipeline = numbers.batch(4)
    expected = [[b["x"].tolist() for b in pipeline] for _ in range(7)]
    with pipeline.open() as loader:
        for epoch in range(6):
            for batch in infeed.prefetch(loader):
                assert batch["x"].tolist() == expected[epoch][0]
                break
        last = [batch["x"].tolist() for batch in infeed.prefetch(loader)]

    assert last == expected[6]


def test_arguments_are_checked():
    with pytest.raises(
        infeed.errors.ConfigError, match="batches must be an integer of at"
    ):
        infeed.prefetch([], batches=0)
    with pytest.raises(infeed.errors.ConfigError, match="step must be a function"):
        infeed.prefetching.overlap([], len, None)


def test_a_device_needs_pytorch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    with pytest.raises(infeed.errors.ConfigError, match="PyTorch is not imported"):
        infeed.prefetch([], device="cuda")


class MadeUpTorch:
    """The calls of PyTorch for a move to CUDA, recorded in order."""

    class Tensor:
        def __init__(self, torch, name):
            self.torch, self.name = torch, name

        def to(self, device, non_blocking):
            self.torch.calls.append(("to", self.name, str(device), non_blocking))
            return self

        def record_stream(self, stream):
            self.torch.calls.append(("record", self.name, stream))

    def __init__(self):
        self.calls, self.cuda = [], self
        self.inside = None

    def device(self, kind, index=None):
        if isinstance(kind, types.SimpleNamespace):
            return kind
        return types.SimpleNamespace(type=kind, index=index)

    def current_device(self):
        return 3

    def Stream(self, device):
        made = types.SimpleNamespace(device=device)
        made.synchronize = lambda: self.calls.append("synchronize")
        return made

    def stream(self, stream):
        self.calls.append(("stream", stream.device.index))
        return contextlib.nullcontext()

    def current_stream(self, device):
        return threading.current_thread().name


def test_copies_to_cuda_use_a_separate_stream_and_are_complete_on_delivery(
    monkeypatch,
):
    torch = MadeUpTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    item = {"a": torch.Tensor(torch, "a"), "b": [(torch.Tensor(torch, "b"), 1)]}

    (given,) = infeed.prefetch([item], device="cuda")

    device = "namespace(type='cuda', index=3)"
    assert torch.calls == [
        # The device that is current in the loop, not in the thread.
        ("stream", 3),
        ("to", "a", device, True),
        ("to", "b", device, True),
        "synchronize",
        # The loop's own stream uses them.
        ("record", "a", threading.current_thread().name),
        ("record", "b", threading.current_thread().name),
    ]
    assert given["b"][0][1] == 1


def test_overlap_yields_results_in_order_and_loads_during_the_step():
    here = threading.get_ident()
    loaded, steps, second_loaded = [], [], threading.Event()

    def load(item):
        assert threading.get_ident() != here
        loaded.append(item)
        if item == 1:
            second_loaded.set()
        return item * 10

    def step(value):
        assert threading.get_ident() == here
        # The next item is loaded during this item's step.
        assert value != 0 or second_loaded.wait(5)
        steps.append(len(loaded) - len(steps))
        return value + 1

    results = infeed.prefetching.overlap([0, 1, 2, 3], load, step)

    assert list(results) == [1, 11, 21, 31]
    assert max(steps) <= 2
    assert len(results) == 4
    assert results.stats()["items"] == 4


def test_errors_of_load_and_step_are_raised_at_their_item():
    def load(item):
        if item == 1:
            raise OSError("load")
        return item

    def step(item):
        if item == 2:
            raise ValueError("step")
        return item

    results = iter(infeed.prefetching.overlap(range(4), load, step))

    assert next(results) == 0
    with pytest.raises(OSError, match="load"):
        next(results)
    with pytest.raises(ValueError, match="step"):
        next(results)
    assert list(results) == [3]


def test_a_stop_iteration_of_load_or_step_does_not_end_the_loop_silently():
    def ends(_):
        raise StopIteration

    for functions in ((ends, str), (str, ends)):
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(infeed.prefetching.overlap([1], *functions))


def test_an_interrupted_loop_ends_when_another_one_begins(ctrl_c):
    may_work = threading.Event()

    class Loader:
        loops = 0

        def __iter__(self):
            self.loops += 1
            try:
                yield self.loops
                may_work.wait(60)
                yield self.loops
            finally:
                self.loops -= 1

    loader = Loader()
    ahead = infeed.prefetch(loader)
    items = iter(ahead)
    assert next(items) == 1
    ctrl_c(0.2)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    may_work.set()
    # A notebook holds the iterator by the traceback.
    assert list(ahead) == [1, 1]
    with pytest.raises(infeed.errors.ClosedError):
        next(items)
