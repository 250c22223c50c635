"""What two machines compare of a function."""

import functools
import importlib
import math
import platform
import sys

import numpy as np
import pytest

import infeed
from infeed import _identity


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module and imports it; the same name may be written anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_identity, "_known", {})
    names = []

    def write(name, text, imported=True):
        (tmp_path / f"{name}.py").write_text(text)
        names.append(name)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name) if imported else None

    yield write
    for name in names:
        sys.modules.pop(name, None)


def code(name, function):
    return _identity.identity(name, function)[0]


def test_a_module_is_told_with_a_hash_of_its_file(module):
    first = module("own_steps", "def same(sample): return sample\n")
    told = code("own_steps:same", first.same)

    assert told.startswith("own_steps ")
    assert len(told) == len("own_steps ") + 16
    again = module("own_steps", "def same(sample): return sample\n")
    assert code("own_steps:same", again.same) == told
    other = module("own_steps", "SCALE = 2\ndef same(sample): return sample\n")
    assert code("own_steps:same", other.same) != told


def test_what_runs_it_is_told_with_versions(module):
    same = module("own_steps", "def same(sample): return sample\n").same

    language = _identity.identity("own_steps:same", same)[1]

    assert language.endswith(f", NumPy {np.__version__}")
    assert f" {sys.version_info.major}.{sys.version_info.minor}," in language


def test_a_decorator_of_another_module_is_told_too(module):
    decorators = (
        "import functools\n"
        "def twice(inner):\n"
        "    @functools.wraps(inner)\n"
        "    def outer(sample): return inner(inner(sample))\n"
        "    return outer\n"
    )
    module("own_decorators", decorators)
    text = "import own_decorators\n@own_decorators.twice\ndef f(s): return s\n"
    steps = module("own_steps", text)

    told = code("own_steps:f", steps.f).split(", ")

    assert [part.split()[0] for part in told] == ["own_steps", "own_decorators"]


def test_objects_are_told_by_their_class_and_partials_by_what_they_call(module):
    text = (
        "import functools\n"
        "class Times:\n"
        "    def __init__(self, by): self.by = by\n"
        "    def __call__(self, sample): return sample\n"
        "    def of(self, sample): return sample\n"
        "def plus(n, sample): return sample\n"
    )
    module("own_parts", text)
    text = "import functools, own_parts\ndouble = own_parts.Times(2)\n"
    text += "method = double.of\nmore = functools.partial(own_parts.plus, 1)\n"
    steps = module("own_steps", text)

    for name in ("double", "method", "more"):
        told = code(f"own_steps:{name}", getattr(steps, name)).split(", ")
        parts = [part.split()[0] for part in told]
        assert parts == ["own_steps", "own_parts"], name


def test_of_what_is_compiled_the_version_is_told():
    import numpy.random.mtrand

    compiled = numpy.random.mtrand.RandomState
    told = code("numpy.random.mtrand:RandomState", compiled)

    assert told == f"numpy.random.mtrand {np.__version__}"
    assert code("math:sqrt", math.sqrt) == f"math {platform.python_version()}"


def test_a_file_that_was_changed_after_it_was_imported_is_refused(module):
    steps = module("own_steps", "def f(sample): return sample\n")
    module("own_steps", "def f(sample): return dict(sample)\n", imported=False)

    # As the process has it that imported the module before.
    sys.modules["own_steps"] = steps
    with pytest.raises(infeed.ConfigError, match="changed after it was imported"):
        code("own_steps:f", steps.f)


def test_what_was_told_once_stays_for_as_long_as_it_is_that_function(module):
    steps = module("own_steps", "SCALE = 2\ndef f(sample): return sample\n")
    told = code("own_steps:f", steps.f)

    module("own_steps", "SCALE = 3\ndef f(sample): return sample\n", imported=False)
    sys.modules["own_steps"] = steps

    assert code("own_steps:f", steps.f) == told
    anew = module("own_steps", "SCALE = 3\ndef f(sample): return sample\n")
    assert code("own_steps:f", anew.f) != told


def test_a_part_that_is_of_the_script_is_refused(module):
    steps = module("own_steps", "def f(sample): return sample\n")
    outer = functools.wraps(steps.f)(lambda sample: sample)
    outer.__module__ = "__main__"

    with pytest.raises(infeed.ConfigError, match="script or notebook that runs"):
        code("own_steps:f", outer)
