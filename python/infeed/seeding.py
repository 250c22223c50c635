"""Random draws of Python code that has no parameter for a generator.

Such code draws from generators that its process shares, or from generators that its
objects hold. `seed_draws` seeds all of them before each call.
"""

import contextlib
import copy
import functools
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from infeed.errors import ConfigError

__all__ = ["seed_draws"]

# One call at a time draws from the generators of this process.
_LOCK = threading.RLock()
# Limits of the search for generators: objects, and entries of one container. Lists of
# files are longer than lists of transforms.
_MOST_OBJECTS = 10_000
_MOST_ENTRIES = 256
_LEAVES = (
    *(str, bytes, bytearray, memoryview, int, float, complex, type(None)),
    *(type, types.ModuleType, types.BuiltinFunctionType, np.ndarray, np.generic),
)
# Libraries whose modules hold no generator of the user.
_LIBRARIES = ("builtins", "numpy", "random", "torch", "torchvision", "PIL", "infeed")


class SeededFunction:
    """A function on samples whose generators are seeded before each call.

    Args:
        function: The function, as for `Pipeline.python`.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self.function = function
        # Errors and states name the user's function.
        named = function if hasattr(function, "__qualname__") else type(function)
        self.__module__ = named.__module__
        self.__qualname__ = named.__qualname__
        self._generators = HeldGenerators(function)

    def __call__(self, sample: dict[str, Any], rng: np.random.Generator) -> Any:
        """Returns the function's result, drawn with seeds from `rng`."""
        return self._generators.call(self.function, sample, rng)

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns the function alone: a copy finds its own generators."""
        return SeededFunction, (self.function,)

    def __repr__(self) -> str:
        return f"infeed.seeding.seed_draws({self.__qualname__})"


class SeededSamples:
    """A dataset whose generators are seeded before each sample.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._generators = HeldGenerators(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Returns a sample, drawn with seeds from `rng`; None: with the number's."""
        if rng is None:
            rng = np.random.Generator(np.random.Philox(key=number))
        return self._generators.call(self.dataset.__getitem__, number, rng)

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns the dataset alone: a copy finds its own generators."""
        return SeededSamples, (self.dataset,)


def seed_draws(called: Any) -> Any:
    """Returns a function or a dataset that draws random numbers by position.

    For code without a parameter ``rng``, such as a dataset or a transform of another
    library. Before each call, infeed seeds the global generators of ``random``, NumPy
    (``np.random``) and PyTorch (the CPU's) from the seed, the epoch and the position,
    and every generator that it finds in the object: those of NumPy, ``random`` and
    ``torch.Generator``, as albumentations has them. After the call, the generators
    continue where they were. One call at a time runs in a process.

    In this process, the draws of a call, and those of another thread, repeat only if
    the other thread does not draw from the same generators during the call. A training
    loop with dropout on the CPU does. In the processes of ``.python(fn, processes=n)``
    the draws always repeat, and the training loop draws as without the calls.

    Args:
        called: A function for `Pipeline.python`, or a dataset for `sources.Items`.

    Raises:
        ConfigError: ``called`` is no function and has no ``__getitem__``.
    """
    if hasattr(called, "__getitem__") and hasattr(called, "__len__"):
        return SeededSamples(called)
    if not callable(called):
        raise ConfigError(
            "seeded: expected a function, or a dataset with __len__ and __getitem__, "
            f"got {type(called).__name__}"
        )
    return SeededFunction(called)


class HeldGenerators:
    """The generators that an object's code draws from.

    Args:
        owner: A function or a dataset.
    """

    # Whether generators continue after a call where they were before it. A worker
    # process has no other code that draws.
    restores = True

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._held: list[Any] | None = None

    def call(
        self, function: Callable[[Any], Any], argument: Any, rng: np.random.Generator
    ) -> Any:
        """Calls a function of the owner with seeds from `rng`."""
        with _LOCK:
            if self._held is not None:
                return self._call(function, argument, rng)
            self._held = [*generators_of(self._owner)]
            before = len(self._held), rng.bit_generator.state
            # The function may change its argument.
            returned = self._call(function, copy.deepcopy(argument), rng)
            # A generator that the first call made had no seed.
            self._held = [*generators_of(self._owner)]
            if len(self._held) == before[0]:
                return returned
            rng.bit_generator.state = before[1]
            return self._call(function, argument, rng)

    def _call(
        self, function: Callable[[Any], Any], argument: Any, rng: np.random.Generator
    ) -> Any:
        all_held = self._held or []
        draws = rng.integers(0, 2**64, 3 + len(all_held), dtype=np.uint64)
        seeds: list[int] = draws.tolist()
        restore = [*_seed_global(seeds, self.restores)]
        for held, seed in zip(all_held, seeds[3:], strict=True):
            restore += _seed_held(held, seed)
        try:
            return function(argument)
        finally:
            for undo in restore:
                undo()


def _seed_global(seeds: list[int], restores: bool) -> Iterator[Callable[[], None]]:
    """Seeds the generators that a process shares; yields what restores them."""
    shared = getattr(sys.modules.get("torch"), "default_generator", None)
    if restores:
        yield from _global_restorers()
    random.seed(seeds[0])
    np.random.seed(seeds[1] >> 32)
    if shared is not None:
        shared.manual_seed(seeds[2] >> 1)
    # OpenCV has a generator for each thread.
    if opencv := getattr(sys.modules.get("cv2"), "setRNGSeed", None):
        opencv(seeds[1] & 0x7FFF_FFFF)


def _global_restorers() -> Iterator[Callable[[], None]]:
    """Yields functions that restore the generators that a process shares."""
    yield functools.partial(random.setstate, random.getstate())
    yield functools.partial(np.random.set_state, np.random.get_state())
    shared = getattr(sys.modules.get("torch"), "default_generator", None)
    if shared is not None:
        yield functools.partial(shared.set_state, shared.get_state())


@contextlib.contextmanager
def restore_generators() -> Iterator[None]:
    """Restores the generators of Python, NumPy and PyTorch at the end of its block."""
    restorers = [*_global_restorers()]
    try:
        yield
    finally:
        for restore in restorers:
            restore()


def next_draws() -> tuple[float, ...]:
    """Returns the next number of each of these generators, which do not advance."""
    torch = sys.modules.get("torch")
    with restore_generators():
        drawn = random.random(), float(np.random.random())
        return drawn if torch is None else (*drawn, float(torch.rand(())))


def _seed_held(held: Any, seed: int) -> Iterator[Callable[[], None]]:
    """Seeds a generator object; yields what restores it."""
    if isinstance(held, random.Random):
        yield functools.partial(held.setstate, held.getstate())
        held.seed(seed)
    elif isinstance(held, np.random.RandomState):
        yield functools.partial(held.set_state, held.get_state())
        held.seed(seed % 2**32)
    elif isinstance(held, np.random.Generator):
        bits: Any = held.bit_generator
        before: Any = bits.state
        yield functools.partial(setattr, bits, "state", before)
        if isinstance(bits, np.random.PCG64):
            # Ten times as fast as a new generator.
            inner = {"state": seed << 64 | seed, "inc": seed << 1 | 1}
            after: Any = {**before, "state": inner, "has_uint32": 0}
            bits.state = after
            bits.advance(1)
        else:
            bits.state = type(bits)(seed).state
    else:
        yield functools.partial(held.set_state, held.get_state())
        held.manual_seed(seed >> 1)


def _is_generator(item: Any) -> bool:
    if isinstance(item, random.SystemRandom):
        return False
    known = random.Random, np.random.RandomState, np.random.Generator
    if isinstance(item, known):
        return True
    kind = type(item)
    return (
        kind.__module__.startswith("torch")
        and kind.__name__ == "Generator"
        and str(getattr(item, "device", "")) == "cpu"
    )


def _globals() -> set[int]:
    """Returns the identities of generators that are seeded with the process."""
    shared = [
        getattr(random, "_inst", None),
        getattr(np.random.mtrand, "_rand", None),
        getattr(sys.modules.get("torch"), "default_generator", None),
    ]
    return {id(one) for one in shared}


def generators_of(owner: Any) -> Iterator[Any]:
    """Yields the generators that an object holds, in a fixed order.

    Searches attributes, containers, closures, and the variables of modules that its
    code names.
    """
    seen = _globals()
    waiting = [owner]
    at = 0
    while at < len(waiting) and at < _MOST_OBJECTS:
        item = waiting[at]
        at += 1
        if id(item) in seen or isinstance(item, _LEAVES):
            continue
        seen.add(id(item))
        if _is_generator(item):
            yield item
        else:
            waiting += _parts(item)


def _parts(item: Any) -> list[Any]:
    """Returns the objects that an object refers to."""
    if isinstance(item, dict):
        return _entries(item.values())
    # The order of a set differs between processes.
    if isinstance(item, list | tuple):
        return _entries(item)
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, types.FunctionType):
        return _of_function(item)
    return [*_attributes(item), *_methods(type(item))]


def _entries(items: Any) -> list[Any]:
    return [*items] if len(items) <= _MOST_ENTRIES else []


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _attributes(item: Any) -> list[Any]:
    values = getattr(item, "__dict__", None)
    return [*values.values()] if isinstance(values, dict) else []


def _of_function(function: types.FunctionType) -> list[Any]:
    """Returns the objects that a function refers to: also variables of its module."""
    if _is_library(function.__module__):
        return []
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
    defaults = [*(function.__defaults__ or ())]
    defaults += (function.__kwdefaults__ or {}).values()
    names = _names(function.__code__)
    named = [
        function.__globals__[name] for name in names if name in function.__globals__
    ]
    return [*cells, *defaults, *named]


def _names(code: types.CodeType) -> list[str]:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return [*code.co_names, *(name for part in inner for name in _names(part))]


def _methods(kind: type) -> list[Any]:
    """Returns the functions of a class and its bases."""
    found = []
    for base in kind.__mro__:
        if not _is_library(base.__module__):
            # The order of a class that was copied into another process differs.
            members = [member for _, member in sorted(vars(base).items())]
            members += [one.fget for one in members if isinstance(one, property)]
            found += [getattr(one, "__func__", one) for one in members]
    return [one for one in found if isinstance(one, types.FunctionType)]


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES
