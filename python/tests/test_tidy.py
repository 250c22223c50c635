"""The ladder: a module uses modules on lower rungs only, and no framework."""

import ast
import sys
from pathlib import Path

import infeed

# Lowest first; modules on one rung do not know each other.
LADDER = [
    {"_core", "errors", "_code"},
    {"_check", "_columns", "batch", "explanation"},
    {"transforms", "sources", "loader", "preview"},
    {"pipeline"},
    {"__init__", "_cli"},
]

PACKAGE = Path(infeed.__file__).parent


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


def test_modules_only_use_lower_rungs():
    for path in PACKAGE.glob("*.py"):
        for used in imports(path):
            if used.startswith("infeed."):
                name = used.split(".")[1]
                assert rung(name) < rung(path.stem), f"{path.name} uses {name}"


def test_no_module_imports_a_framework():
    allowed = {"infeed", "numpy", "ml_dtypes"}
    for path in PACKAGE.glob("*.py"):
        for used in imports(path):
            top = used.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, path.name
