"""The ladder: a module uses modules on lower rungs only, and no framework."""

import ast
import sys
from pathlib import Path

import infeed

# One for each framework, and what each may import besides. They share the top rung, so
# nothing imports one but the user, and none another.
ADAPTERS = {
    "jax": {"jax"},
    # Keras gives the arrays of its backend where they are on a device.
    "keras": {"keras", "torch"},
    "ray": {"pyarrow", "ray"},
    "tensorflow": {"tensorflow"},
    "torch": {"torch"},
    "transformers": {"transformers"},
}

# What several of them need of one framework. Nothing but adapters imports these.
SHARED = {"_jax_copies": {"jax"}}

# Lowest first; modules on one rung do not know each other.
LADDER = [
    {"_core", "errors", "_code"},
    {"_check", "_columns", "_identity", "batch", "explanation"},
    {"_fields", "_functions", "_select"},
    {"transforms", "_process", "sources", "loader", "preview", "feeders"},
    {"_mistaken"},
    {"pipeline"},
    {"packing", "remote", "verifying", "_parting"},
    {"watching", "_moving"},
    {"_running", "_copying"},
    {"_steps"},
    {"_feed"},
    {"ahead"},
    {"experiments"},
    {*SHARED},
    {"__init__", "_cli", *ADAPTERS},
]

PACKAGE = Path(infeed.__file__).parent


def modules() -> list[tuple[str, Path]]:
    """Each file and the module it belongs to: its own, or the folder it lies in."""
    files = PACKAGE.rglob("*.py")
    return [(f.relative_to(PACKAGE).parts[0].removesuffix(".py"), f) for f in files]


def rung(module: str) -> int:
    (number,) = (n for n, modules in enumerate(LADDER) if module in modules)
    return number


def imports(path: Path) -> set[str]:
    """What a file imports: `infeed.x` for our own modules, else the top package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "infeed":
            found |= {f"infeed.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_longer_than_800_lines():
    assert [path.name for _, path in modules() if lines(path) > 800] == []


def test_modules_only_use_lower_rungs():
    for module, path in modules():
        for used in imports(path):
            if used.startswith("infeed."):
                name = used.split(".")[1]
                allowed = name == module or rung(name) < rung(module)
                assert allowed, f"{path.name} uses {name}"
                assert name not in SHARED or module in ADAPTERS, path.name


def test_only_adapters_import_a_framework_and_each_its_own():
    """Experiments ask for those by name, in functions, and say what is missing."""
    for module, path in modules():
        own = (ADAPTERS | SHARED).get(module, set())
        allowed = {"infeed", "numpy", "ml_dtypes"} | own
        for used in imports(path):
            top = used.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, path.name
