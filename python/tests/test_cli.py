"""The console script: the command of the engine, in the package."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

import infeed

COMMAND = [sys.executable, "-c", "import infeed._cli as c, sys; sys.exit(c.main())"]


def test_the_command_prints_its_version():
    ended = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, f"infeed {infeed.__version__}\n")


def test_an_unknown_command_is_a_usage_error():
    ended = subprocess.run([*COMMAND, "nonsense"], capture_output=True, text=True)

    assert ended.returncode == 2
    assert "nonsense" in ended.stderr


# Control characters, line separators, a change of direction, quotes and a style.
NAME = '\x1b[31m\n\x7f\x9b2J\u2028\u202e\ufeff\u200b"\\\x1b[1m'


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


def is_shown_as_it_is(text: str) -> bool:
    """Whether a terminal shows each character, and none moves its cursor."""
    kinds = {unicodedata.category(c) for c in text.replace("\n", "")}
    return not kinds & {"Cc", "Zl", "Zp"} and "\u202e" not in text


def test_names_of_files_leave_json_valid_and_terminals_alone(tmp_path):
    root, packed = tmp_path / f"data{NAME}", tmp_path / f"packed{NAME}"
    (root / f"c{NAME}").mkdir(parents=True)
    for number in range(6):
        image = Image.new("RGB", (32, 32), (number, 9, 9))
        image.save(root / f"c{NAME}" / f"{number}.png")
    (root / f"c{NAME}" / f"bad{NAME}.png").write_bytes(b"x")
    cache, ledger = tmp_path / f"cache{NAME}", tmp_path / f"ledger{NAME}"
    bench = ["bench", root, "--seconds", "0.1", "--on-error", "substitute"]
    bench += ["--cache-disk", cache]
    explain = ["explain", root, "--seconds", "0.05", "--on-error", "substitute"]
    explain += ["--ledger", ledger]
    verify = ["verify", root, "--steps", "1", "--on-error", "substitute"]
    for arguments in (
        ["inspect", root],
        bench,
        ["cache", "ls", cache],
        ["pack", root, packed, "--to", "webdataset", "--allow-bad"],
        ["inspect", packed],
        verify,
        explain,
        ["ledger", ledger],
    ):
        ended = run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        json.loads(ended.stdout)
        for text in (ended.stdout, ended.stderr, run(*arguments).stdout):
            assert is_shown_as_it_is(text), (arguments[0], text)


def test_messages_about_arguments_have_no_control_characters(tmp_path):
    for arguments in (
        ["inspect", tmp_path / "\x1b[2Jmissing"],
        ["\x1b[2J"],
        ["inspect", tmp_path, "--\x1b[2J"],
        ["cache", "rm", tmp_path, "\x1b[2J"],
    ):
        ended = run(*arguments)
        assert ended.returncode in (1, 2)
        assert is_shown_as_it_is(ended.stderr), ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of any bytes")
def test_a_name_that_is_not_utf_8_is_an_error_and_no_crash(tmp_path):
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    (root / "a").mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(tmp_path / "0.png")
    (tmp_path / "0.png").rename(root / "a" / "0.png")

    for arguments in (
        ["inspect", root],
        ["probe", root],
        ["bench", root, "--seconds", "0.1"],
        ["explain", root, "--seconds", "0.1"],
        ["pack", root, tmp_path / "out", "--to", "webdataset"],
        ["cache", "ls", root],
    ):
        ended = run(*arguments, "--json")
        assert ended.returncode in (0, 1, 2), ended.stderr
        assert "panicked" not in ended.stderr
        if ended.returncode == 0:
            json.loads(ended.stdout)
