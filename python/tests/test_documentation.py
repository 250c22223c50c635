"""The pages of the documentation: their blocks run, and their lists are complete."""

import importlib.machinery
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pages
import pytest

import infeed
from infeed import transforms

PROGRAMS = [program for program in pages.programs() if not program.frameworks]
PIPELINES = [(name, text) for name, text in pages.blocks("toml") if "[source]" in text]
GUIDES = sorted(pages.ROOT.glob("docs/guides/*.md"))


@pytest.fixture
def folder(classification, segmentation, tmp_path) -> Path:
    """A folder with the data that the pages refer to."""
    (tmp_path / "photos").symlink_to(classification.path)
    (tmp_path / "streets").mkdir()
    (tmp_path / "streets" / "images").symlink_to(segmentation.image)
    (tmp_path / "streets" / "masks").symlink_to(segmentation.mask)
    (tmp_path / "streets" / "class_dict.csv").symlink_to(segmentation.palette)
    return tmp_path


def run(program: pages.Program, folder: Path, **variables: str) -> None:
    for name, text in program.files.items():
        (folder / name).write_text(text)
    package = str(Path(infeed.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program.code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": package} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_blocks_of_a_page_run(program, folder):
    run(program, folder)


@pytest.mark.parametrize(
    ("page", "text"), PIPELINES, ids=[name for name, _ in PIPELINES]
)
def test_a_pipeline_file_of_a_page_loads(page, text, tmp_path):
    path = tmp_path / "pipeline.toml"
    path.write_text(text)

    assert isinstance(infeed.Pipeline.load(path), infeed.Pipeline)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("pipeline", set(transforms.__all__) - {"Transform"}),
        (
            "pipeline",
            set(inspect.signature(infeed.Pipeline.open).parameters) - {"self"},
        ),
        (
            "pipeline",
            set(inspect.signature(infeed.Pipeline.decode).parameters)
            - {"self", "modes"},
        ),
        (
            "parity",
            set(transforms.__all__) - {"IMAGENET_MEAN", "IMAGENET_STD", "Transform"},
        ),
    ],
    ids=["transforms", "open", "decode", "parity"],
)
def test_a_reference_page_names_everything(page, names):
    text = (pages.ROOT / "docs" / "reference" / f"{page}.md").read_text()

    assert names <= set(re.findall(r"\w+", text))


def test_generated_pages_are_current():
    script = generator()
    found = script.pages()

    assert {path.stem for path in found} == {"cli", "errors", "json", "metrics", "toml"}
    old = [path.name for path, text in found.items() if path.read_text() != text]
    assert old == [], "run scripts/docs-reference"


def test_troubleshooting_quotes_messages_that_exist():
    page = (pages.ROOT / "docs" / "troubleshooting.md").read_text()
    _, table = page.split("## By error message\n")
    quoted = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    sources = [*pages.ROOT.glob("crates/*/src/**/*.rs")]
    sources += pages.ROOT.glob("python/infeed/**/*.py")
    # A literal that continues on the next line reads as one.
    code = "\n".join(path.read_text() for path in sources)
    code = re.sub(r'"\s*\n\s*f?"|\\\n\s*', "", code)

    assert len(quoted) > 8
    assert [message for message in quoted if message not in code] == []


def test_a_page_names_each_remedy():
    command = "from infeed._cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "explain", "photos", "--apply", "none"],
        env=os.environ | {"PYTHONPATH": str(Path(infeed.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (ids,) = re.findall(r"or one of (.*)", done.stderr)
    text = "\n".join(page.read_text() for page in pages.PAGES)

    assert len(ids.split(", ")) > 15
    assert [name for name in ids.split(", ") if f"`{name}`" not in text] == []


def test_console_blocks_use_options_that_exist():
    page = (pages.ROOT / "docs" / "reference" / "cli.md").read_text()
    options = {
        section.partition("\n")[0]: set(re.findall(r"--[a-z][\w-]*", section))
        for section in page.split("\n## infeed ")[1:]
    }
    # Each experiment has separate options; the page omits their help.
    del options["experiment"]

    used = 0
    for name, text in pages.blocks("console"):
        commands = re.findall(r"^\$.*\binfeed (\w+)(.*)$", text, re.MULTILINE)
        for command, rest in commands:
            if command in options:
                used_options = set(
                    re.findall(r"--[a-z][\w-]*", rest.partition(" #")[0])
                )
                assert used_options <= options[command], f"{name}: infeed {command}"
                used += len(used_options)
    assert used > 30


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_has_fewer_than_900_words(guide):
    """A guide teaches one thing; tables and limits belong in `docs/reference`."""
    words = pages.count_words(guide.read_text())

    assert words < 900


def generator() -> ModuleType:
    """Returns the module of scripts/docs-reference."""
    path = str(pages.ROOT / "scripts" / "docs-reference")
    loader = importlib.machinery.SourceFileLoader("docs_reference", path)
    spec = importlib.util.spec_from_loader("docs_reference", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
