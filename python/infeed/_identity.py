"""What a function is, so that two machines can tell whether both have the same one.

Compared are the files of the modules that it is made of: the one it is named by, those
in which it and its decorators were defined, and, where it is an object, that of its
class. What these import is not looked at.
"""

import functools
import hashlib
import inspect
import platform
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from infeed.errors import ConfigError

# Hexadecimal digits of a hash: for telling files apart, not against whoever forges one.
_DIGITS = 16

# What was found of a function, by its name, as long as that means the same function: a
# file may change under a process that goes on with what it imported.
_known: dict[str, tuple[Any, str]] = {}


def identity(name: str, function: Any) -> tuple[str, str]:
    """The code of a function, and what runs it, as texts to be compared.

    Raises:
        ConfigError: Its code is of the script that runs, or of a file that was changed
            since it was imported.
    """
    known = _known.get(name)
    if known is None or known[0] is not function:
        known = _known[name] = (function, _code(name, function))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    runs_it = f"{platform.python_implementation()} {version}, NumPy {np.__version__}"
    return known[1], runs_it


def _code(name: str, function: Any) -> str:
    """Each module that a function is made of, with a hash of its file."""
    layers = [*_layers(function)]
    names = [name.partition(":")[0], *(module for module, _ in layers)]
    own, *others = dict.fromkeys(names)
    # Of Python itself the version is compared.
    others = [
        of for of in others if of.partition(".")[0] not in sys.stdlib_module_names
    ]
    told = []
    for module in (own, *others):
        codes = [code for of, code in layers if of == module and code is not None]
        told.append(f"{module} {_content(module, codes)}")
    return ", ".join(told)


def _layers(function: Any) -> Iterator[tuple[str, CodeType | None]]:
    """Modules and code of a function, and of what it wraps."""
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
            # A decorator says that it is of the module of what it wraps.
            yield function.__globals__.get("__name__", function.__module__), code
        if (module := getattr(function, "__module__", None)) is not None:
            yield module, None
        function = inner


def _content(name: str, codes: list[CodeType]) -> str:
    """A hash of a module's file; the version of its package where it is compiled."""
    if name == "__main__":
        raise ConfigError(
            "a part of it is of the script or notebook that runs; put it in a module"
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
    _refuse_changed(name, origin, loader, data, codes)
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _refuse_changed(
    name: str, origin: str, loader: Any, data: bytes, codes: list[CodeType]
) -> None:
    """Refuses a file whose code is not what was imported from it."""
    own = [code for code in codes if code.co_filename == origin]
    if not own or not hasattr(loader, "source_to_code"):
        return
    try:
        there = {*_codes(loader.source_to_code(data, origin))}
    except (SyntaxError, ValueError):
        there = set()
    if not there.issuperset(own):
        raise ConfigError(
            f"the file of {name} was changed after it was imported; start this process "
            "anew"
        )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a module, and of all functions inside."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _version(module: ModuleType | None, name: str) -> str:
    """The version of a package, or of Python, which some modules are part of."""
    package = sys.modules.get(name.partition(".")[0], module)
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else platform.python_version()
