"""Identity of a function, to find out whether two machines have the same one.

The identity covers the source files of the modules that define the function: the module
in its name, those that define it and its decorators, and for a callable object that of
its class. It does not cover the modules that these import.
"""

import functools
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from infeed.errors import ConfigError

# Hexadecimal digits of a hash: it distinguishes files, and does not resist forgery.
_DIGITS = 16

# Code of known functions by name, valid while the name means the same function: the
# file may change after the import.
_known: dict[str, tuple[Any, str]] = {}


def identity(name: str, function: Any) -> tuple[str, str]:
    """Returns the code of a function, and its interpreter, as texts to compare.

    Raises:
        ConfigError: The code is part of the running script, or its file was changed
            after the import.
    """
    known = _known.get(name)
    if known is None or known[0] is not function:
        known = _known[name] = (function, _code(name, function))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    runs_it = f"{platform.python_implementation()} {version}, NumPy {np.__version__}"
    return known[1], runs_it


def location(module: str | None, name: str, found: Any) -> str | None:
    """Returns file and name of a function or class; None if its module lacks it."""
    owner = sys.modules.get(module or "")
    try:
        there: Any = functools.reduce(getattr, name.split("."), owner)
    except AttributeError:
        return None
    file = getattr(owner, "__file__", None)
    if there is not found or file is None:
        return None
    return f"{os.path.abspath(file)}:{name}"


def _code(name: str, function: Any) -> str:
    """Returns each module of a function, with the hash of its file."""
    layers = [*_layers(function)]
    names = [name.partition(":")[0], *(module for module, _ in layers)]
    own, *others = dict.fromkeys(names)
    # The interpreter's version covers the standard library.
    others = [
        of for of in others if of.partition(".")[0] not in sys.stdlib_module_names
    ]
    found = []
    for module in (own, *others):
        codes = [code for of, code in layers if of == module and code is not None]
        found.append(f"{module} {_content(module, codes)}")
    return ", ".join(found)


def _layers(function: Any) -> Iterator[tuple[str, CodeType | None]]:
    """Yields modules and code of a function, and of the functions it wraps."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, functools.partial):
            function = function.func
            continue
        if inspect.ismethod(function):
            owner = function.__self__
            yield (owner if isinstance(owner, type) else type(owner)).__module__, None
            function = function.__func__
            continue
        inner = getattr(function, "__wrapped__", None)
        if not hasattr(function, "__qualname__"):
            yield type(function).__module__, None
            function = inner or inspect.getattr_static(type(function), "__call__")
            continue
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            # A decorator's `__module__` is that of the function it wraps.
            yield function.__globals__.get("__name__", function.__module__), code
        if (module := getattr(function, "__module__", None)) is not None:
            yield module, None
        function = inner


def _content(name: str, codes: list[CodeType]) -> str:
    """Returns the hash of a module's file; for compiled modules the package version."""
    if name == "__main__":
        raise ConfigError(
            "the function is partly defined in the running script; move it to a module"
        )
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    loader = getattr(spec, "loader", None)
    read = getattr(loader, "get_data", None)
    if not isinstance(origin, str) or not origin.endswith(".py") or read is None:
        return _version(module, name)
    try:
        data: bytes = read(origin)
    except OSError as error:
        raise ConfigError(f"the file of {name} cannot be read ({error})") from error
    _check_unchanged(name, origin, loader, data, codes)
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _check_unchanged(
    name: str, origin: str, loader: Any, data: bytes, codes: list[CodeType]
) -> None:
    """Raises an error if the file's code differs from the imported code."""
    own = [code for code in codes if code.co_filename == origin]
    if not own or not hasattr(loader, "source_to_code"):
        return
    try:
        there = {*_codes(loader.source_to_code(data, origin))}
    except (SyntaxError, ValueError):
        there = set()
    if not there.issuperset(own):
        raise ConfigError(
            f"the file of {name} was changed after it was imported; restart this "
            "process"
        )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of a module and of all functions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _version(module: ModuleType | None, name: str) -> str:
    """Returns the version of a package, or of Python for the standard library."""
    package = sys.modules.get(name.partition(".")[0], module)
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else platform.python_version()
