"""Runs the code of adopted pipelines, and checks that it uses public names only."""

import ast
import importlib

import numpy as np

import infeed


def run_code(adopted: infeed.adopting.Adoption) -> dict:
    """Runs the code with its variables; returns its names."""
    check_imports(adopted.code)
    names = dict(adopted.variables)
    code = adopted.code
    if "np.load(" in code:
        # The file is written by the user.
        code = code.replace('np.load("weights.npy", mmap_mode="r")', "saved")
        names["saved"] = np.asarray(adopted.weights)
    exec(code, names)
    expected = repr(adopted.pipeline)
    for text, (variable, _) in adopted.names.items():
        # The code defines the functions that are no variables of the program.
        if variable.isidentifier() and variable not in adopted.variables:
            expected = expected.replace(text, variable)
    assert repr(names["pipeline"]) == expected
    return names


def check_imports(code: str) -> None:
    """Checks that imported modules and names are public."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert not any(part.startswith("_") for part in node.module.split("."))
            public = importlib.import_module(node.module).__all__
            assert {alias.name for alias in node.names} <= set(public), ast.dump(node)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_"), node.attr
