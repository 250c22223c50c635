"""A pipeline file runs only those functions that the caller lists."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from feeding import COMMAND

import infeed
from infeed import sources

MODULE = """
import pathlib
from os.path import basename
pathlib.Path("imported").touch()
def same(sample): return sample
class Shift:
    @staticmethod
    def by_one(sample): return {"x": sample["x"] + 1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with data, and a module that makes a file when imported."""
    (tmp_path / "hostile.py").write_text(MODULE)
    np.save(tmp_path / "x.npy", np.arange(40))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    return tmp_path


def pipeline_file(folder: Path, function: str) -> Path:
    """Writes a pipeline file that names a function."""
    source = sources.Memory(x=np.load(folder / "x.npy", mmap_mode="r"))
    file = folder / "pipeline.toml"
    infeed.Pipeline(source).batch(4).save(file)
    with open(file, "a") as text:
        text.write(f'\n[[python]]\nfunction = "{function}"\n')
    return file


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )


@pytest.mark.parametrize("function", ["hostile:same", "subprocess:Popen"])
def test_loading_a_file_imports_nothing_that_is_not_listed(folder, function):
    file = pipeline_file(folder, function)

    with pytest.raises(infeed.ConfigError, match=rf'allow_functions=\["{function}"\]'):
        infeed.Pipeline.load(file)
    with pytest.raises(infeed.ConfigError, match=function):
        infeed.Pipeline.load(file, allow_functions=["hostile.more:*", "other:same"])

    assert not (folder / "imported").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "--seconds", "0.2"],
        ["explain", "--seconds", "0.2"],
        ["verify", "--steps", "1", "--write", "digests"],
        ["feed", "--listen", "127.0.0.1:0"],
        ["pack", "OUT", "--to", "webdataset"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_imports_nothing_that_is_not_listed(folder, command):
    file = pipeline_file(folder, "hostile:same")

    name, *options = command
    ended = run(folder, name, file, *options)

    assert not (folder / "imported").exists(), ended.stdout
    if name != "pack":  # which does not run functions
        assert ended.returncode == 1
        assert "--allow-functions 'hostile:same'" in ended.stderr, ended.stderr


def test_a_command_runs_a_function_that_is_listed(folder):
    file = pipeline_file(folder, "hostile:same")

    ended = run(
        folder, "bench", file, "--seconds", "0.2", "--allow-functions", "hostile:*"
    )

    assert ended.returncode == 0, ended.stderr
    assert (folder / "imported").exists()


def test_a_function_passed_by_the_caller_is_used_without_an_import(folder):
    file = pipeline_file(folder, "hostile:same")

    functions = {"hostile:same": lambda sample: {"x": sample["x"] * 2}}
    pipeline = infeed.Pipeline.load(file, functions=functions)

    assert next(iter(pipeline))["x"].tolist() == [0, 2, 4, 6]
    assert not (folder / "imported").exists()


def test_a_pattern_allows_definitions_of_a_module_and_not_its_imports(folder):
    def load(function: str, *patterns: str) -> infeed.Pipeline:
        file = pipeline_file(folder, function)
        return infeed.Pipeline.load(file, allow_functions=patterns)

    assert load("hostile:same", "host*:*")
    assert load("hostile:Shift.by_one", "hostile:Shift.*")
    for function in ("hostile:basename", "hostile:pathlib"):
        with pytest.raises(infeed.ConfigError, match=r"defined in|not a function"):
            load(function, "hostile:*")
    for function in ("hostile:pathlib.os.system", "hostile:Shift.by_one"):
        with pytest.raises(infeed.ConfigError, match="which is not allowed"):
            load(function, "hostile:*")
    assert load("hostile:basename", "hostile:basename")


def test_invalid_patterns_are_rejected(folder):
    file = pipeline_file(folder, "hostile:same")

    for patterns in ("hostile:*", ["hostile"], [1]):
        with pytest.raises(infeed.ConfigError, match="allow_functions"):
            infeed.Pipeline.load(file, allow_functions=patterns)
    with pytest.raises(infeed.ConfigError, match="functions"):
        infeed.Pipeline.load(file, functions={"hostile:same": 1})
