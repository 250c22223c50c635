"""The identity of a function, which two machines compare."""

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
    """Writes a module and imports it; the same name may be written again."""
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


def test_a_module_is_identified_by_the_hash_of_its_file(module):
    first = module("own_steps", "def same(sample): return sample\n")
    reported = code("own_steps:same", first.same)

    assert reported.startswith("own_steps ")
    assert len(reported) == len("own_steps ") + 16
    again = module("own_steps", "def same(sample): return sample\n")
    assert code("own_steps:same", again.same) == reported
    other = module("own_steps", "SCALE = 2\ndef same(sample): return sample\n")
    assert code("own_steps:same", other.same) != reported


def test_the_identity_has_the_versions_of_interpreter_and_numpy(module):
    same = module("own_steps", "def same(sample): return sample\n").same

    language = _identity.identity("own_steps:same", same)[1]

    assert language.endswith(f", NumPy {np.__version__}")
    assert f" {sys.version_info.major}.{sys.version_info.minor}," in language


def test_the_identity_includes_the_module_of_a_decorator(module):
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

    reported = code("own_steps:f", steps.f).split(", ")

    assert [part.split()[0] for part in reported] == ["own_steps", "own_decorators"]


def test_objects_are_identified_by_class_and_partials_by_their_function(module):
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
        reported = code(f"own_steps:{name}", getattr(steps, name)).split(", ")
        parts = [part.split()[0] for part in reported]
        assert parts == ["own_steps", "own_parts"], name


def test_compiled_modules_are_identified_by_version():
    import numpy.random.mtrand

    compiled = numpy.random.mtrand.RandomState
    reported = code("numpy.random.mtrand:RandomState", compiled)

    assert reported == f"numpy.random.mtrand {np.__version__}"
    assert code("math:sqrt", math.sqrt) == f"math {platform.python_version()}"


def test_a_file_that_was_changed_after_it_was_imported_raises(module):
    steps = module("own_steps", "def f(sample): return sample\n")
    module("own_steps", "def f(sample): return dict(sample)\n", imported=False)

    # The state of a process that has imported the module before.
    sys.modules["own_steps"] = steps
    with pytest.raises(
        infeed.errors.ConfigError, match="changed after it was imported"
    ):
        code("own_steps:f", steps.f)


def test_the_identity_is_kept_while_the_function_is_the_same(module):
    steps = module("own_steps", "SCALE = 2\ndef f(sample): return sample\n")
    reported = code("own_steps:f", steps.f)

    module("own_steps", "SCALE = 3\ndef f(sample): return sample\n", imported=False)
    sys.modules["own_steps"] = steps

    assert code("own_steps:f", steps.f) == reported
    again = module("own_steps", "SCALE = 3\ndef f(sample): return sample\n")
    assert code("own_steps:f", again.f) != reported


def test_a_part_defined_in_the_script_raises(module):
    steps = module("own_steps", "def f(sample): return sample\n")
    outer = functools.wraps(steps.f)(lambda sample: sample)
    outer.__module__ = "__main__"

    with pytest.raises(
        infeed.errors.ConfigError, match="defined in the running script"
    ):
        code("own_steps:f", outer)
