"""User functions: their settings, calls from the engine, and the allow-list of names.

Worker processes (`infeed._process`) use the same code.
"""

import fnmatch
import functools
import importlib
import inspect
import json
import pickle
import pickletools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infeed import _check, _code, _core
from infeed._fields import Field
from infeed._identity import identity, location
from infeed.batch import numpy_from
from infeed.errors import ConfigError
from infeed.seeding import SeededFunction

# Variables that limit the threads of libraries, which read them when they are imported.
_LIMITS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    "OPENCV_FOR_THREADS_NUM",
)
# Code that a worker process starts with: it finds this package as the parent did, and
# computes on one thread.
_BOOT = (
    f"import json, os, sys; os.environ.update(dict.fromkeys({_LIMITS}, '1')); "
    "sys.path[:] = json.loads(sys.argv[1]); from infeed._process import main; main()"
)

_DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64"),
)

Output = Mapping[str, str | tuple[str, Sequence[int]] | Field]


@dataclass(frozen=True)
class FunctionStep:
    """A user function in a pipeline.

    Attributes:
        function: The function.
        name: ``module:name``, or another name for errors and states.
        batch: Whether it is called with batches.
        processes: Number of worker processes; 0: this process.
        fields: Fields that it receives; None: all.
        output: Name, kind, type and shape of each returned value; empty if a call with
            the first record determines them.
        version: Version of the results of a deterministic function; None: each call may
            return other values.
    """

    function: Callable[..., Any]
    name: str
    batch: bool = False
    processes: int = 0
    fields: tuple[str, ...] | None = None
    output: tuple[tuple[str, str, str | None, tuple[int, ...]], ...] = ()
    version: int | None = None

    @classmethod
    def from_arguments(
        cls,
        function: Callable[..., Any],
        *,
        batch: bool = False,
        processes: int = 0,
        fields: Sequence[str] | None = None,
        output: Output | None = None,
        deterministic: bool = False,
        version: int | None = None,
    ) -> "FunctionStep":
        """Returns a step with checked settings.

        Raises:
            ConfigError: A setting is invalid.
        """
        owner = "python_batch" if batch else "python"
        if not callable(function):
            raise _check.error(owner, "fn", "a function", function)
        takes_generator = _generator(owner, function) is not None
        version = _check.version(owner, deterministic, version)
        if version is not None and takes_generator:
            raise ConfigError(
                f"{owner}: the function draws random numbers, so it is not "
                "deterministic; remove its parameter for the generator, or leave "
                "deterministic out"
            )
        if fields is not None:
            fields = tuple(_check.field(owner, "fields", name) for name in fields)
        step = cls(
            function,
            _name(function),
            batch,
            _check.integer(owner, "processes", processes),
            fields,
            tuple(_output(owner, name, item) for name, item in (output or {}).items()),
            version,
        )
        if processes:
            problem = step.process_problem()
            if problem is not None:
                raise ConfigError(f"{owner}: processes={processes}: {problem}")
        return step

    def process_problem(self) -> str | None:
        """Returns the reason why no other process can run it; None if one can."""
        return FunctionAdapter(self.function, self.batch).process_problem()

    @property
    def importable(self) -> bool:
        """Whether another process can import the function by its name.

        It imports nothing, because a file from an untrusted source may name a module.
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
        """Returns the method call that adds the function, for messages."""
        name = self.name.rpartition(":")[2]
        return f".python_batch({name})" if self.batch else f".python({name})"

    def handle(self) -> _core.Function:
        """Returns the engine's object for the function."""
        return FunctionAdapter(self.function, self.batch).handle(self.name)

    def to_dict(self, handle: int | None) -> dict[str, Any]:
        """Returns the step as plain data; `handle` is its number if it has no name."""
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
        if self.version is not None:
            plain["version"] = self.version
        if handle is not None:
            plain["handle"] = handle
        return plain

    @classmethod
    def from_dict(
        cls, plain: dict[str, Any], trusted: "AllowedFunctions"
    ) -> "FunctionStep":
        """Returns the step that plain data describes.

        Raises:
            ConfigError: The function is not allowed, or cannot be imported.
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
            plain.get("version"),
        )

    def code(self) -> str:
        """Formats the method call that adds the function as source code."""
        path = self.name.partition(":")[2] or self.name
        settings = [
            f"infeed.seeding.seed_draws({path})"
            if isinstance(self.function, SeededFunction)
            else path
        ]
        if self.fields is not None:
            settings.append(f"fields={_code.value(self.fields)}")
        if self.output:
            inner = ", ".join(
                f"{_code.value(name)}: {_output_code(kind, dtype, shape)}"
                for name, kind, dtype, shape in self.output
            )
            settings.append(f"output={{{inner}}}")
        if self.processes:
            settings.append(f"processes={self.processes}")
        if self.version is not None:
            settings += ["deterministic=True", f"version={self.version}"]
        return _code.method("python_batch" if self.batch else "python", settings)


class FunctionAdapter:
    """Calls a function: converts the engine's arrays to NumPy, and its result back."""

    def __init__(self, function: Callable[..., Any], batch: bool):
        self.function = function
        self.batch = batch
        owner = "python_batch" if batch else "python"
        self._generator = _generator(owner, function)

    def handle(self, name: str) -> _core.Function:
        """Returns the engine's object for the function, under a description's name."""
        return _core.Function(name, self, self.batch)

    def __call__(
        self, columns: dict[str, Any], key: tuple[int, int]
    ) -> list[tuple[str, str, Any]]:
        """Calls the function.

        Args:
            columns: Value by field name: an array, a pair of arrays, or a list of bytes
                or texts. For a sample, arrays have no axis of rows and lists one item.
            key: Key of the random generator.

        Returns:
            For each field its name, a kind and a value: ``"array"`` with type, shape
            and bytes; ``"bytes"`` or ``"text"`` with bytes; ``"same"`` with the number
            of an input that was changed in place or returned unchanged.
        """
        inputs = {name: self._input(name, item) for name, item in columns.items()}
        # The function may replace entries of the dictionary.
        before = [*inputs.values()]
        if self._generator is None:
            returned = self.function(inputs)
        else:
            rng = generator(key)
            if self._generator == "rng":
                returned = self.function(inputs, rng=rng)
            else:
                returned = self.function(inputs, rng)
        if not isinstance(returned, Mapping):
            found = type(returned).__name__
            raise TypeError(
                f"the function returned {found}; return a dictionary of arrays by field"
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
            raise TypeError(
                f"the function returned {name!r} as a field name; use a string"
            )
        if self.batch:
            for number, one in enumerate(before):
                if item is one or _is_same_memory(item, one):
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
                f"the function returned `{name}` as {found}; return arrays of numbers"
            )
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return name, "array", (array.dtype.name, array.shape, flat)

    def process_problem(self) -> str | None:
        """Returns the reason why no other process can run it; None if one can."""
        try:
            to_pickle(self.function)
        except ConfigError as error:
            return str(error)
        return None

    def identity(self, name: str) -> tuple[str, str]:
        """Returns the hash of its code and the interpreter, to compare machines.

        Raises:
            ConfigError: The code cannot be read.
        """
        return identity(name, self.function)

    def location(self) -> str | None:
        """Returns the file and the name of the function; None if no module has it.

        Functions inside of functions, lambdas and callable objects have no such name.
        """
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", "")
        return location(module, name, self.function)

    def launch(self) -> tuple[str, list[str], bytes]:
        """Returns a worker's program and arguments, and the pickled function.

        Raises:
            ConfigError: No other process can run the function.
        """
        function = to_pickle(self.function)
        if not sys.executable:
            raise ConfigError("sys.executable is empty; set it to the interpreter")
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        return sys.executable, ["-c", _BOOT, path], function


@dataclass(frozen=True)
class AllowedFunctions:
    """The functions that a pipeline file may name.

    A file can name any function of any module, and importing a module runs its code. So
    infeed compares each name with this list before it imports anything.

    Attributes:
        functions: Functions by the name that the file uses.
        patterns: Names that may be imported, ``module:name``. ``*`` matches any
            characters in the module, and any characters except dots in the name. If a
            name matches only through a ``*``, it must be defined in that module, so
            ``augment:*`` does not allow functions that ``augment`` imports.
    """

    functions: Mapping[str, Callable[..., Any]]
    patterns: tuple[str, ...]

    @classmethod
    def from_arguments(
        cls,
        functions: Mapping[str, Callable[..., Any]] | None,
        allow_functions: Sequence[str],
    ) -> "AllowedFunctions":
        """Returns the list for the arguments of `Pipeline.load`.

        Raises:
            ConfigError: An argument is invalid.
        """
        named = dict(functions or {})
        for name, function in named.items():
            if not callable(function):
                raise _check.error(
                    "load", f"functions[{name!r}]", "a function", function
                )
        if isinstance(allow_functions, str) or not all(
            isinstance(pattern, str) and ":" in pattern for pattern in allow_functions
        ):
            expected = 'a list of patterns such as "mypackage.augment:*"'
            raise _check.error("load", "allow_functions", expected, allow_functions)
        return cls(named, tuple(allow_functions))

    def function(self, name: str) -> Callable[..., Any]:
        """Returns the function with a name in a file.

        Raises:
            ConfigError: The function is not allowed, or cannot be imported.
        """
        if name in self.functions:
            return self.functions[name]
        function = self.import_function(name)
        if function is None:
            raise ConfigError(
                f"load: the pipeline file names the Python function {name}, which is "
                "not allowed; if you trust the file, pass "
                f'allow_functions=["{name}"], or functions={{"{name}": ...}}'
            )
        return function

    def import_function(self, name: str) -> Callable[..., Any] | None:
        """Imports a function if a pattern allows its name; returns None if none does.

        Raises:
            ConfigError: The name is allowed, and the function cannot be imported.
        """
        matches = [pattern for pattern in self.patterns if _matches(name, pattern)]
        if not matches:
            return None
        function = _import(name)
        if name not in matches and _origin(function) != name.partition(":")[0]:
            raise ConfigError(
                f"{name} is defined in {_origin(function)}, and a pattern allows only "
                f"functions that the module itself defines; allow the full name {name}"
            )
        return function


def to_pickle(called: Any) -> bytes:
    """Returns a function or a dataset as bytes that a worker process can load.

    Its module is named in the bytes. Code that no module has is part of the bytes, if
    the package ``cloudpickle`` is installed: that of the running script or notebook,
    lambdas, and functions inside functions.

    Raises:
        ConfigError: No other process can load it; the message has the fix.
    """
    name: str | None = _name(called)
    reason = "is defined in the running script or notebook"
    if _origin(called) != "__main__":
        try:
            found = pickle.dumps(called)
        except Exception as error:
            reason = f"cannot be pickled ({error})"
        else:
            name = _main_name(found)
            if name is None:
                return found
    try:
        import cloudpickle
    except ImportError:
        fix = "move it to a module, or install cloudpickle"
        raise ConfigError(f"{name} {reason}; {fix}") from None
    try:
        by_value: bytes = cloudpickle.dumps(called)
    except Exception as error:
        fix = "create the object in the call, or leave processes out"
        raise ConfigError(f"{name} cannot be pickled ({error}); {fix}") from None
    return by_value


def generator(key: tuple[int, int]) -> np.random.Generator:
    """Returns the generator of a call, from the two halves of its key."""
    return np.random.Generator(np.random.Philox(key=key[0] | key[1] << 64))


def item_by_key(dataset: Any) -> Callable[[int, tuple[int, int]], Any] | None:
    """Returns ``__getitem__`` as a function of number and key of random draws.

    None if it has no parameter ``rng`` after the number.
    """
    get = dataset.__getitem__
    try:
        parameters = [*inspect.signature(get).parameters.values()]
    except (TypeError, ValueError):
        return None
    kinds = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    if not any(of.name == "rng" and of.kind in kinds for of in parameters[1:]):
        return None
    return lambda number, key: get(number, rng=generator(key))


def import_allowed(
    name: str, batch: bool, allowed: Sequence[str]
) -> _core.Function | None:
    """Imports a function for the engine if a pattern allows it; None if none does.

    Raises:
        ConfigError: The name is allowed, and the function cannot be imported.
    """
    function = AllowedFunctions.from_arguments(None, allowed).import_function(name)
    return None if function is None else FunctionAdapter(function, batch).handle(name)


def functions_named_by(description: str) -> list[_core.Function]:
    """Imports the functions on samples that a description names, without a check.

    Use it only for a description that the user's own program wrote.

    Raises:
        ConfigError: A function cannot be imported.
    """
    steps = json.loads(description).get("python", ())
    names = [step["function"] for step in steps if step.get("on") != "batch"]
    return [FunctionAdapter(_import(name), False).handle(name) for name in names]


def _import(name: str) -> Callable[..., Any]:
    try:
        function = _attribute(name)
    # TypeError: the module name is relative.
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"python: cannot import {name} ({error}); use module:name, with a module "
            "on sys.path"
        ) from error
    if not callable(function):
        raise ConfigError(f"python: {name} is not a function; name one as module:name")
    typed: Callable[..., Any] = function
    return typed


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern allows a name; see `AllowedFunctions`."""
    module, _, path = name.partition(":")
    modules, _, paths = pattern.partition(":")
    parts, wanted = path.split("."), paths.split(".")
    return (
        len(parts) == len(wanted)
        and fnmatch.fnmatchcase(module, modules)
        and all(map(fnmatch.fnmatchcase, parts, wanted))
    )


def _attribute(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError("the name has no colon")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def _name(function: Any) -> str:
    """Returns ``module:name`` of a function, or of the class of another callable."""
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def _origin(function: Any) -> str | None:
    """Returns the module that unpickling a function imports."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        function = owner if isinstance(owner, type) else type(owner)
    elif not hasattr(function, "__qualname__"):
        function = type(function)
    origin: str | None = getattr(function, "__module__", None)
    return origin


def _main_name(pickled: bytes) -> str | None:
    """Returns the first name of the running script that unpickling needs; else None."""
    # Other arguments are numbers, such as those of values that were seen before.
    arguments = (argument for _, argument, _ in pickletools.genops(pickled))
    texts = [argument for argument in arguments if isinstance(argument, str)]
    for text, after in zip(texts, [*texts[1:], ""], strict=True):
        if text == "__main__":
            return after
        # Protocols before 4 have both in one text.
        if text.startswith("__main__ "):
            return text.partition(" ")[2]
    return None


def _generator(
    owner: str, function: Callable[..., Any]
) -> Literal["rng", "second"] | None:
    """Returns how a function takes a generator: as ``rng``, or as second argument."""
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
        argument = "a batch" if owner == "python_batch" else "a sample"
        expected = f"a function of {argument}, or of {argument} and rng"
        raise _check.error(owner, "fn", expected, function)
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


def _output(
    owner: str, name: str, item: Any
) -> tuple[str, str, str | None, tuple[int, ...]]:
    """Checks an entry of `output`: a type, a type and a shape, bytes or text."""
    expected = '"float32", ("float32", (3, 224, 224)), "bytes" or "text"'
    if isinstance(item, Field):
        if item.kind != "ragged" or item.dtype not in _DTYPES or item.source:
            expected = 'Field(kind="ragged", dtype=...)'
            raise _check.error(owner, f"output of {name}", expected, item)
        return (name, item.kind, item.dtype, item.shape)
    if item in ("bytes", "text"):
        return (name, item, None, ())
    pair = isinstance(item, tuple | list) and len(item) == 2
    dtype, shape = item if pair else (item, ())
    if dtype not in _DTYPES or isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise _check.error(owner, f"output of {name}", expected, item)
    axes = tuple(_check.integer(owner, f"shape of {name}", axis) for axis in shape)
    return (name, "tensor", dtype, axes)


def _output_code(kind: str, dtype: str | None, shape: tuple[int, ...]) -> str:
    """Formats an entry of `output` as source code."""
    if kind == "ragged":
        return repr(Field(kind="ragged", dtype=dtype, shape=shape))
    if dtype is None:
        return _code.value(kind)
    return _code.value((dtype, shape) if shape else dtype)


def _is_same_memory(item: Any, one: Any) -> bool:
    """Whether two arrays are the same memory with the same type and shape."""
    if not isinstance(item, np.ndarray) or not isinstance(one, np.ndarray):
        return False
    same = item.dtype == one.dtype and item.shape == one.shape and item.size > 0
    return same and item.__array_interface__["data"] == one.__array_interface__["data"]
