"""Pipeline files run only listed functions; states of other programs do no harm."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

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

    with pytest.raises(
        infeed.errors.ConfigError, match=rf'allow_functions=\["{function}"\]'
    ):
        infeed.Pipeline.load(file)
    with pytest.raises(infeed.errors.ConfigError, match=function):
        infeed.Pipeline.load(file, allow_functions=["hostile.more:*", "other:same"])

    assert not (folder / "imported").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "--seconds", "0.2"],
        ["explain", "--seconds", "0.2"],
        ["verify", "--steps", "1", "--write", "run"],
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
        with pytest.raises(
            infeed.errors.ConfigError, match=r"defined in|not a function"
        ):
            load(function, "hostile:*")
    for function in ("hostile:pathlib.os.system", "hostile:Shift.by_one"):
        with pytest.raises(infeed.errors.ConfigError, match="which is not allowed"):
            load(function, "hostile:*")
    assert load("hostile:basename", "hostile:basename")


def test_invalid_patterns_are_rejected(folder):
    file = pipeline_file(folder, "hostile:same")

    for patterns in ("hostile:*", ["hostile"], [1]):
        with pytest.raises(infeed.errors.ConfigError, match="allow_functions"):
            infeed.Pipeline.load(file, allow_functions=patterns)
    with pytest.raises(infeed.errors.ConfigError, match="functions"):
        infeed.Pipeline.load(file, functions={"hostile:same": 1})


FORGED = "\x1b[2Jforged\nsecond line\u202e"


def nest(depth: int) -> dict:
    found: dict = {}
    for _ in range(depth):
        found = {"z": found}
    return found


def numbers() -> infeed.Pipeline:
    return infeed.Pipeline(sources.Memory(x=np.arange(40))).shuffle(seed=1).batch(4)


@pytest.mark.parametrize("strict", [True, False])
def test_texts_of_a_state_are_escaped_in_messages_and_logs(strict, caplog):
    with numbers().open(workers=1) as loader:
        state = loader.state_dict()
    texts = [name for name in state if isinstance(state[name], str)]
    assert texts

    messages = []
    for name in [*texts, "python", FORGED]:
        changed = state | {name: [FORGED] if name == "python" else FORGED}
        with numbers().open(workers=1) as loader:
            messages.append(message_of(loader, changed, strict) or "")
    messages += caplog.messages
    assert any("forged" in text for text in messages)
    for text in messages:
        assert text.isprintable(), text


@pytest.mark.parametrize("depth", [100, 500, 2_000, 100_000])
def test_a_deep_state_raises_an_error_of_infeed(depth):
    with numbers().open(workers=1) as loader:
        state = loader.state_dict()
        for changed in (state | {"z": nest(depth)}, state | {"bad": nest(depth)}):
            with pytest.raises(infeed.errors.ConfigError):
                loader.load_state_dict(changed)
        with pytest.raises(infeed.errors.ConfigError):
            loader.seek(nest(depth))


def mutate(state: dict, draw: random.Random) -> Any:
    """Returns a state with one to three changes."""
    values = [
        *(None, True, -1, 0, 1, 7, 2**31, 2**63, 2**64 - 1, 2**64, 10**5000, 0.5, -0.0),
        *(float("nan"), float("inf"), "", "x", FORGED, "\udc80", "9" * 10_000, b"x"),
        *([], [[]], [[1, 2]], [[1, 2, 3]], [[2**64 - 1] * 3] * 2, [[0, -1, 0]], {}),
        *({"a": 1}, {1, 2}, np.int64(3), np.arange(3), object(), nest(300)),
        *([(0, 0, 2**64 - 1), (0, 4, 2**64 - 1)], "pad", "wrap", 16, ["f"] * 1000),
    ]
    if draw.random() < 0.05:
        return draw.choice([None, [], "state", 5, [("a", 1)], {1: 2}, {(1, 2): 3}])
    changed = dict(state)
    for _ in range(draw.randint(1, 3)):
        name = draw.choice([*state, "other", FORGED, 5, (1, 2)])
        if draw.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = draw.choice(values)
    return changed


def message_of(loader: infeed.Loader, state: Any, strict: bool) -> str | None:
    """Loads a state, and returns the message of infeed's error, if there is one."""
    try:
        loader.load_state_dict(state, strict=strict)
    except infeed.InfeedError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("error")
def test_a_changed_state_loads_or_raises_an_error_of_infeed():
    draw = random.Random(7)
    with numbers().open(workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        loaded = 0
        for _ in range(1_500):
            changed = mutate(state, draw)
            message = message_of(loader, changed, strict=draw.random() < 0.5)
            if message is not None:
                assert all(c.isprintable() or c == "\n" for c in message), message
                assert len(message) < 5_000
                continue
            loaded += 1
            assert len(next(iter(loader))["x"]) == 4
            loader.load_state_dict(loader.state_dict())
        assert loaded > 50
        loader.load_state_dict(state)
        assert loader.state_dict() == state
