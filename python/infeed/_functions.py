"""User functions: settings, how the engine calls them, which may be imported.

The processes of `infeed._process` use the same code.
"""

import fnmatch
import functools
import importlib
import inspect
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infeed import _check, _code, _core
from infeed._identity import identity
from infeed.batch import numpy_from
from infeed.errors import ConfigError

# What a process does first: to find this package wherever the parent found it.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from infeed._process import main; main()"
)

_DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64"),
)

Output = Mapping[str, str | tuple[str, Sequence[int]]]


@dataclass(frozen=True)
class Step:
    """A function in a pipeline.

    Attributes:
        function: What is called.
        name: ``module:name``, or what else errors and states call it.
        batch: Whether it is called with batches.
        processes: How many it runs in; 0 is this one.
        fields: Fields that it is given; None is all.
        output: Name, kind, type and shape of each value that it returns; empty if that
            is to be found out.
    """

    function: Callable[..., Any]
    name: str
    batch: bool = False
    processes: int = 0
    fields: tuple[str, ...] | None = None
    output: tuple[tuple[str, str, str | None, tuple[int, ...]], ...] = ()

    @classmethod
    def checked(
        cls,
        function: Callable[..., Any],
        *,
        batch: bool = False,
        processes: int = 0,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
    ) -> "Step":
        """A step whose settings are what they may be.

        Raises:
            ConfigError: One is not.
        """
        owner = "python_batch" if batch else "python"
        if not callable(function):
            raise _check.refusal(owner, "fn", "a function", function)
        _generator(owner, function)
        if fields is not None:
            fields = tuple(_check.field(owner, "fields", name) for name in fields)
        step = cls(
            function,
            _name(function),
            batch,
            _check.integer(owner, "processes", processes),
            fields,
            tuple(_told(owner, name, item) for name, item in (output or {}).items()),
        )
        if processes and (reason := Adapter(function, batch).bound_here()) is not None:
            raise ConfigError(f"{owner}: processes={processes} cannot be: {reason}")
        return step

    @property
    def importable(self) -> bool:
        """Whether another process can import it by its name.

        Imports nothing itself: a file that names a module may be a stranger's.
        """
        module, _, path = self.name.partition(":")
        if module == "__main__" or module not in sys.modules:
            return False
        try:
            found: Any = functools.reduce(getattr, path.split("."), sys.modules[module])
        except AttributeError:
            return False
        return found is self.function

    def call(self) -> str:
        """The call that adds it, for messages."""
        name = self.name.rpartition(":")[2]
        return f".python_batch({name})" if self.batch else f".python({name})"

    def given(self) -> _core.Function:
        """What a description refers to by number, if it cannot be imported."""
        return Adapter(self.function, self.batch).given(self.name)

    def to_dict(self, handle: int | None) -> dict[str, Any]:
        """The plain form; `handle` is its number, if it has one."""
        plain: dict[str, Any] = {"function": self.name}
        if self.batch:
            plain["on"] = "batch"
        if self.processes:
            plain["processes"] = self.processes
        if self.fields is not None:
            plain["fields"] = list(self.fields)
        if self.output:
            plain["output"] = [
                {"name": name, "kind": kind, "shape": list(shape)}
                | ({} if dtype is None else {"dtype": dtype})
                for name, kind, dtype, shape in self.output
            ]
        if handle is not None:
            plain["handle"] = handle
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any], trusted: "Trusted") -> "Step":
        """The function that a plain form names, if it is trusted.

        Raises:
            ConfigError: It is not, or it cannot be imported.
        """
        fields = plain.get("fields")
        output = tuple(
            (
                of["name"],
                of.get("kind", "tensor"),
                of.get("dtype"),
                tuple(of.get("shape", ())),
            )
            for of in plain.get("output", ())
        )
        return cls(
            trusted.function(plain["function"]),
            plain["function"],
            plain.get("on") == "batch",
            plain.get("processes", 0),
            None if fields is None else tuple(fields),
            output,
        )

    def code(self) -> str:
        """The call that adds it, as source code."""
        path = self.name.partition(":")[2] or self.name
        settings = [path]
        if self.fields is not None:
            settings.append(f"fields={_code.value(self.fields)}")
        if self.output:
            told = {
                name: kind if dtype is None else (dtype, shape) if shape else dtype
                for name, kind, dtype, shape in self.output
            }
            inner = ", ".join(
                f"{_code.value(k)}: {_code.value(v)}" for k, v in told.items()
            )
            settings.append(f"output={{{inner}}}")
        if self.processes:
            settings.append(f"processes={self.processes}")
        return _code.method("python_batch" if self.batch else "python", settings)


class Adapter:
    """Calls a function with what the engine has, and gives what the engine takes."""

    def __init__(self, function: Callable[..., Any], batch: bool):
        self.function = function
        self.batch = batch
        owner = "python_batch" if batch else "python"
        self._generator = _generator(owner, function)

    def given(self, name: str) -> _core.Function:
        """The function for the engine, under the name that a description uses."""
        return _core.Function(name, self, self.batch)

    def __call__(
        self, columns: dict[str, Any], key: tuple[int, int]
    ) -> list[tuple[str, str, Any]]:
        """Calls it.

        Args:
            columns: By name an array, a pair of them, or a list of bytes or texts; of a
                sample, arrays without the axis of rows and lists of one.
            key: What random numbers inside are keyed by.

        Returns:
            By name: ``"array"`` with type, shape and bytes; ``"bytes"`` or ``"text"``
            with bytes; or ``"same"`` with the number of an input.
        """
        inputs = {name: self._input(name, item) for name, item in columns.items()}
        # Before the call, which may put others in their place.
        before = [*inputs.values()]
        if self._generator is None:
            returned = self.function(inputs)
        else:
            rng = np.random.Generator(np.random.Philox(key=key[0] | key[1] << 64))
            if self._generator == "rng":
                returned = self.function(inputs, rng=rng)
            else:
                returned = self.function(inputs, rng)
        if not isinstance(returned, Mapping):
            found = type(returned).__name__
            raise TypeError(
                f"it returned {found}; return a dictionary of arrays by field"
            )
        return [self._output(name, item, before) for name, item in returned.items()]

    def _input(self, name: str, item: Any) -> Any:
        if isinstance(item, _core.Array):
            return numpy_from(name, item)
        if isinstance(item, tuple):
            values, offsets = item
            return numpy_from(name, values), numpy_from(name, offsets)
        if isinstance(item, list) and not self.batch:
            (only,) = item
            return only
        return item

    def _output(self, name: Any, item: Any, before: list[Any]) -> tuple[str, str, Any]:
        if not isinstance(name, str):
            raise TypeError(f"it returned {name!r} as the name of a field")
        if self.batch:
            for number, one in enumerate(before):
                if item is one or _lies_in(item, one):
                    return name, "same", number
        elif isinstance(item, bytes):
            return name, "bytes", item
        elif isinstance(item, str):
            return name, "text", item.encode()
        array = np.asarray(item)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype.name not in _DTYPES:
            found = f"{type(item).__name__} of {array.dtype}"
            raise TypeError(
                f"it returned `{name}` as {found}; return arrays of numbers"
            )
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return name, "array", (array.dtype.name, array.shape, flat)

    def bound_here(self) -> str | None:
        """Why no other process can run it; None if one can."""
        if _origin(self.function) == "__main__":
            return (
                f"{_name(self.function)} is of the script or notebook that runs; "
                "put it in a module"
            )
        try:
            pickle.dumps(self.function)
        except Exception as error:
            return f"it cannot be pickled ({error}); put it in a module"
        return None

    def identity(self, name: str) -> tuple[str, str]:
        """Its code and what runs it, to be compared with what another machine has.

        Raises:
            ConfigError: That cannot be told.
        """
        return identity(name, self.function)

    def launch(self) -> tuple[str, list[str], bytes]:
        """Program and arguments of a process that runs it, and the function, pickled.

        Raises:
            ConfigError: No other process can run it.
        """
        if (reason := self.bound_here()) is not None:
            raise ConfigError(reason)
        if not sys.executable:
            raise ConfigError("this interpreter does not know its own program")
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        return sys.executable, ["-c", _BOOT, path], pickle.dumps(self.function)


@dataclass(frozen=True)
class Trusted:
    """The functions that a pipeline file may name.

    A file can name any function of any module, and importing a module runs its code. So
    a name is compared with this list before anything is imported.

    Attributes:
        given: Functions by the name that the file calls them.
        patterns: Names that may be imported, ``module:name``. A ``*`` in the module
            stands for any characters, in the name for any but dots; and a name that
            matches through a ``*`` must be defined in its module, so that
            ``augment:*`` does not allow what ``augment`` imports from elsewhere.
    """

    given: Mapping[str, Callable[..., Any]]
    patterns: tuple[str, ...]

    @classmethod
    def checked(
        cls,
        functions: Mapping[str, Callable[..., Any]] | None,
        allow_functions: Sequence[str],
    ) -> "Trusted":
        """The list that a caller gave.

        Raises:
            ConfigError: It is not what it must be.
        """
        given = dict(functions or {})
        for name, function in given.items():
            if not callable(function):
                raise _check.refusal(
                    "load", f"functions[{name!r}]", "a function", function
                )
        if isinstance(allow_functions, str) or not all(
            isinstance(pattern, str) and ":" in pattern for pattern in allow_functions
        ):
            expected = 'a list of patterns such as "mypackage.augment:*"'
            raise _check.refusal("load", "allow_functions", expected, allow_functions)
        return cls(given, tuple(allow_functions))

    def function(self, name: str) -> Callable[..., Any]:
        """The function that a file calls `name`.

        Raises:
            ConfigError: The caller does not trust it, or it cannot be imported.
        """
        if name in self.given:
            return self.given[name]
        function = self.imported(name)
        if function is None:
            raise ConfigError(
                f"load: the pipeline file names the Python function {name}, and such "
                f"functions run only if you allow it; if you trust the file, pass "
                f'allow_functions=["{name}"], or functions={{"{name}": ...}}'
            )
        return function

    def imported(self, name: str) -> Callable[..., Any] | None:
        """Imports the function `name` if a pattern allows it; None if none does.

        Raises:
            ConfigError: It is allowed, and cannot be imported.
        """
        matches = [pattern for pattern in self.patterns if _matches(name, pattern)]
        if not matches:
            return None
        function = _imported_function(name)
        if name not in matches and _origin(function) != name.partition(":")[0]:
            raise ConfigError(
                f"{name} is defined in {_origin(function)}; allow it by its full name, "
                f"{name}, since a pattern allows only what the module itself defines"
            )
        return function


def imported(name: str, batch: bool, allowed: Sequence[str]) -> _core.Function | None:
    """The function that a description names, for the engine; None if not `allowed`.

    Raises:
        ConfigError: It is allowed, and cannot be imported.
    """
    function = Trusted.checked(None, allowed).imported(name)
    return None if function is None else Adapter(function, batch).given(name)


def named_by(description: str) -> list[_core.Function]:
    """Imports the functions on samples that a description names, whatever they are.

    Only for a description that a pipeline of this user's own program wrote.

    Raises:
        ConfigError: One cannot be imported.
    """
    steps = json.loads(description).get("python", ())
    names = [step["function"] for step in steps if step.get("on") != "batch"]
    return [Adapter(_imported_function(name), False).given(name) for name in names]


def _imported_function(name: str) -> Callable[..., Any]:
    try:
        function = _imported(name)
    # TypeError: the name of the module is relative.
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"python: {name} cannot be imported ({error}); it must be module:name, "
            "with a module on sys.path"
        ) from error
    if not callable(function):
        raise ConfigError(f"python: {name} is not a function")
    checked: Callable[..., Any] = function
    return checked


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern allows a name; see `Trusted`."""
    module, _, path = name.partition(":")
    modules, _, paths = pattern.partition(":")
    parts, wanted = path.split("."), paths.split(".")
    return (
        len(parts) == len(wanted)
        and fnmatch.fnmatchcase(module, modules)
        and all(map(fnmatch.fnmatchcase, parts, wanted))
    )


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError("it has no colon")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def _name(function: Any) -> str:
    """``module:name`` of a function, or of the class of what else is callable."""
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def _origin(function: Any) -> str | None:
    """The module that must be there to unpickle a function."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        function = owner if isinstance(owner, type) else type(owner)
    elif not hasattr(function, "__qualname__"):
        function = type(function)
    origin: str | None = getattr(function, "__module__", None)
    return origin


def _generator(
    owner: str, function: Callable[..., Any]
) -> Literal["rng", "second"] | None:
    """Whether a function takes a generator, by the name ``rng`` or as its second."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    positional = [of for of in parameters if of.kind in kinds]
    variadic = any(of.kind is inspect.Parameter.VAR_POSITIONAL for of in parameters)
    needed = [of for of in positional if of.default is inspect.Parameter.empty]
    more = [
        of.name
        for of in parameters
        if of.kind is inspect.Parameter.KEYWORD_ONLY
        and of.default is inspect.Parameter.empty
        and of.name != "rng"
    ]
    if not (positional or variadic) or len(needed) > 2 or more:
        what = "a batch" if owner == "python_batch" else "a sample"
        expected = f"a function of {what}, or of {what} and rng"
        raise _check.refusal(owner, "fn", expected, function)
    named = [
        of
        for of in parameters
        if of.name == "rng"
        and of not in positional[:1]
        and of.kind
        in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    if named:
        return "rng"
    return "second" if len(needed) == 2 else None


def _told(
    owner: str, name: str, item: Any
) -> tuple[str, str, str | None, tuple[int, ...]]:
    """One entry of `output`: a type, a type and a shape, ``"bytes"`` or ``"text"``."""
    expected = '"float32", ("float32", (3, 224, 224)), "bytes" or "text"'
    if item in ("bytes", "text"):
        return (name, item, None, ())
    pair = isinstance(item, tuple | list) and len(item) == 2
    dtype, shape = item if pair else (item, ())
    if dtype not in _DTYPES or isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise _check.refusal(owner, f"output of {name}", expected, item)
    axes = tuple(_check.integer(owner, f"shape of {name}", axis) for axis in shape)
    return (name, "tensor", dtype, axes)


def _lies_in(item: Any, one: Any) -> bool:
    """Whether an array is the whole of another, in the same memory."""
    if not isinstance(item, np.ndarray) or not isinstance(one, np.ndarray):
        return False
    same = item.dtype == one.dtype and item.shape == one.shape and item.size > 0
    return same and item.__array_interface__["data"] == one.__array_interface__["data"]
