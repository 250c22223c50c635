"""The dictionaries of counters, compared with their typed descriptions."""

from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest

import infeed
from infeed import sources, stats


def check(found: Any, kind: Any, name: str) -> None:
    """Checks keys and types of a value, recursively."""
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        assert found.keys() == hints.keys(), name
        for key, each in hints.items():
            check(found[key], each, f"{name}.{key}")
    elif get_origin(kind) is list:
        assert isinstance(found, list), name
        for item in found:
            check(item, get_args(kind)[0], name)
    elif get_origin(kind) is dict:
        assert all(isinstance(key, str) for key in found), name
        assert all(isinstance(value, float) for value in found.values()), name
    elif NoneType in get_args(kind):
        (inner,) = set(get_args(kind)) - {NoneType}
        if found is not None:
            check(found, inner, name)
    else:
        assert type(found) is kind, name


def counters(source: sources.Source, **options: Any) -> dict[str, Any]:
    """Returns the counters after one epoch."""
    with infeed.Pipeline(source).batch(4).open(**options) as loader:
        for _ in loader:
            pass
        return loader.stats()


def test_a_loader_on_the_host_has_the_described_counters():
    found = counters(sources.Memory(x=np.arange(20)))

    check(found, stats.LoaderStats, "stats")
    assert found["tuned"] is not None
    assert (found["python"], found["device"], found["devices"]) == (None, None, [])
    assert (found["batches"], found["samples"]) == (5, 20)


def test_a_loader_of_a_python_object_has_its_calls():
    found = counters(sources.Items([{"x": n} for n in range(20)]), workers=1)

    check(found, stats.LoaderStats, "stats")
    assert found["tuned"] is None
    assert found["python"]["items"] >= 20


@pytest.mark.parametrize("options", [{"device": "sim"}, {"devices": ["sim", "sim"]}])
def test_a_loader_on_devices_has_the_described_counters(options):
    found = counters(sources.Memory(x=np.arange(20)), **options)

    check(found, stats.LoaderStats, "stats")
    assert len(found["devices"]) == len(options.get("devices", ["sim"]))
    assert found["device"]["bytes"] > 0


def test_a_prefetch_has_the_described_counters():
    prefetch = infeed.prefetch(range(5))

    assert list(prefetch) == [0, 1, 2, 3, 4]

    check(prefetch.stats(), stats.PrefetchStats, "stats")
    assert prefetch.stats()["items"] == 5
