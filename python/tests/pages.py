"""The pages of the documentation, and their blocks of Python.

A page runs as a reader follows it: its blocks run one after another in one program. If
a block needs a framework, each section is a separate program, after the blocks above
the first section. `<!-- not run: REASON -->` above a block excludes it. A block whose
first line is a comment with a file name is that file.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

# Packages that are installed for the tests without frameworks.
PRESENT = {"infeed", "numpy", "PIL"}

_LINE = re.compile(
    r"^#(?P<level>#+) (?P<heading>[^\n]*)$"
    r"|^(?P<fence>```)(?P<language>\w*)\n(?P<code>.*?)^```$"
    r"|^<!-- not run: (?P<reason>[^\n]+) -->$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# (\w+\.py)\n")


class Program(NamedTuple):
    """Code from one page, and the files that it needs."""

    name: str
    code: str
    files: dict[str, str]

    @property
    def frameworks(self) -> list[str]:
        """Packages that the code imports and that may be absent."""
        found = re.findall(r"^(?:import|from) (\w+)(?:\.(\w+))?", self.code, re.M)
        named = {
            adapter if top == "infeed" and adapter else top for top, adapter in found
        }
        local = {name.removesuffix(".py") for name in self.files}
        # Modules of infeed that are not adapters, such as `infeed.sources`.
        ours = PRESENT | local | {"sources", "transforms"}
        return sorted(named - ours - set(sys.stdlib_module_names))


def programs() -> Iterator[Program]:
    """Yields the programs of all pages."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        files, sections = _read(page.read_text())
        whole = Program(name, "".join(code for _, code in sections), files)
        if not whole.frameworks:
            if whole.code:
                yield whole
            continue
        before = "".join(code for heading, code in sections if not heading)
        rest = [(heading, code) for heading, code in sections if heading]
        for heading, code in rest or [("", "")]:
            yield Program(f"{name}: {heading}", before + code, files)


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yields the page and the text of each block of a language."""
    for page in PAGES:
        for match in _LINE.finditer(page.read_text()):
            if match["fence"] and match["language"] == language:
                yield page.relative_to(ROOT).as_posix(), match["code"]


def count_words(text: str) -> int:
    """Returns the number of words of a page outside its code blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(re.search(r"\w", word) is not None for word in prose.split())


def _read(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Returns the files of a page, and the code of each section under its heading."""
    files: dict[str, str] = {}
    sections: dict[str, str] = {}
    heading, skipped = "", False
    for match in _LINE.finditer(text):
        if match["heading"]:
            heading = match["heading"]
        elif match["reason"]:
            skipped = True
        elif match["language"] == "python":
            if file := _FILE.match(match["code"]):
                files[file[1]] = match["code"]
            elif not skipped:
                sections[heading] = sections.get(heading, "") + match["code"]
            skipped = False
    return files, list(sections.items())
