"""docs/pipeline.md: its block runs, and it names all that there is."""

import inspect
import re
from pathlib import Path

import pytest

import infeed
from infeed import errors, transforms

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
NAMES = set(re.findall(r"\w+", PAGE))


def test_its_block_runs_as_it_is_written(classification, tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "photos").symlink_to(classification.path)
    monkeypatch.chdir(tmp_path)

    exec(code, {})

    assert "(8, 3, 64, 64)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "names",
    [
        set(transforms.__all__) - {"Transform"},
        set(errors.__all__),
        set(inspect.signature(infeed.Pipeline.open).parameters) - {"self"},
        set(inspect.signature(infeed.Pipeline.decode).parameters) - {"self", "modes"},
    ],
    ids=["transforms", "errors", "open", "decode"],
)
def test_it_names_all_that_there_is(names):
    assert names <= NAMES


def test_the_page_of_parity_has_every_transform():
    page = (Path(__file__).parents[2] / "docs" / "parity.md").read_text()

    assert set(transforms.__all__) - {
        "IMAGENET_MEAN",
        "IMAGENET_STD",
        "Transform",
    } <= set(re.findall(r"\w+", page))
