"""Structure and wording of the repository: imports, file lengths, names, words."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Modules for frameworks, and the packages that each may import. They share the top
# rung, so no other module imports them.
ADAPTERS = {
    "jax": {"jax"},
    # On a device, Keras returns arrays of its backend.
    "keras": {"keras", "torch"},
    "ray": {"pyarrow", "ray"},
    "tensorflow": {"tensorflow"},
    "torch": {"torch"},
    "transformers": {"transformers"},
}

# Parts that several adapters share. Only adapters import these.
SHARED = {"_jax_copies": {"jax"}, "_torch_tensors": {"torch"}}

# Modules for trainers, and the packages that these use. They import no adapter by name.
TRAINERS = {"trainers": {"keras", "rfdetr", "torch", "ultralytics"}}

# Lowest rung first. Modules on one rung do not import each other.
LADDER = [
    {"_core", "errors", "_closing", "_code", "_versions", "stats"},
    {"_check", "_columns", "_identity", "batch", "codecs", "explain", "seeding"},
    {"_fields", "_select", "kinds"},
    {"_options"},
    {"_functions"},
    {"transforms", "_process", "sources", "loader", "preview", "feeders"},
    {"_other_libraries"},
    {"pipeline"},
    {"runs", "packing", "remote", "_pack_tasks"},
    {"watching", "_tensor_mover"},
    {"adopting"},
    {"_prefetch_thread", "_device_copies"},
    {"_epochs"},
    {"_adapter"},
    {"prefetching"},
    {"experiments"},
    {*TRAINERS},
    {*SHARED},
    {"__init__", "_cli", *ADAPTERS},
]

# The sources, so that these tests run before the extension is built.
CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "python" / "infeed"


def modules() -> list[tuple[str, Path]]:
    """Returns each file with its module: the file's own name, or that of its folder."""
    files = PACKAGE.rglob("*.py")
    return [(f.relative_to(PACKAGE).parts[0].removesuffix(".py"), f) for f in files]


def rung(module: str) -> int:
    (number,) = (n for n, modules in enumerate(LADDER) if module in modules)
    return number


def imports(path: Path) -> set[str]:
    """Returns the imports of a file: `infeed.x`, or the name of a package."""
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
    """Experiments import frameworks in functions, and report missing ones."""
    for module, path in modules():
        own = (ADAPTERS | SHARED | TRAINERS).get(module, set())
        allowed = {"infeed", "numpy", "cloudpickle", "ml_dtypes"} | own
        for used in imports(path):
            top = used.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, path.name


# Words that code, docs and output do not use, also as parts of snake_case names.
WORDS = re.compile(
    r"(?<![a-z])(cards?|told|tells|mends?|comes? by|whoever|nobody|somebody|trays?"
    r"|conveyors?|parcels?|patience|quarantine|kitchen|feederknown|so many|of its own"
    r"|anew)(?![a-z])",
    re.IGNORECASE,
)

# Lines that may use them, such as names of another project.
ALLOWED: set[str] = set()

TEXTS = (".md", ".py", ".pyi", ".rs", ".toml", ".yml", "")


def texts() -> Iterator[tuple[str, str]]:
    """Yields path and text of each file in the repository except this one."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        path = CHECKOUT / name
        other = name.startswith(("LICENSE", "testdata/golden", "benchmarks/results"))
        if path.suffix not in TEXTS or other or path == Path(__file__):
            continue
        if path.is_file():
            try:
                yield name, path.read_text()
            except UnicodeDecodeError:
                continue


def offences() -> list[str]:
    """Returns the lines with words of the list, as ``path:number: line``."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if WORDS.search(line) and line.strip() not in ALLOWED
    ]


def test_no_file_uses_words_of_the_list():
    assert offences() == []


def test_no_doc_comment_starts_with_what():
    # At the start of a docstring, or of the first line of a Rust doc comment.
    pattern = re.compile(r'"""What |(?:^|\n)(?!\s*//[/!])[^\n]*\n\s*//[/!] What ')

    assert [name for name, text in texts() if pattern.search(text)] == []


def test_test_names_are_statements():
    pattern = re.compile(r"(?:def test_|fn )(what|who|where|whoever)_")

    found = [
        f"{name}: {match[0]}"
        for name, text in texts()
        for match in [*pattern.finditer(text)][:1]
    ]
    assert found == []


def test_class_names_are_unique_in_the_package():
    """Adapters share the names that their frameworks' users expect."""
    counted = Counter(
        node.name
        for _, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )

    twice = {name for name, count in counted.items() if count > 1}
    assert twice <= {"Loader", "Feeders"}


# Words for which the field has a standard term, as parts of names in code.
NAME_WORDS = re.compile(
    "ways?|forms?|said|asked|met|looks?|looked|came|fed|heard|placing|told|tells?"
    "|patience|tickets?|parcels?"
)

# The verb `look_up`, an option of rustls, and the name of a request in Arrow Flight.
ALLOWED_NAMES = {"Ticket", "look_up", "look_up_row", "send_tls13_tickets", "ticket"}

# Past participles. Words that end in "eed" are none.
PARTICIPLE = re.compile(
    r"\w*(?<!e)ed|begun|born|bought|bound|broken|brought|built|caught|chosen|done|drawn"
    "|driven|felt|found|given|gone|grown|held|hidden|kept|known|laid|led|left|lent|lost"
    "|made|meant|met|paid|said|seen|sent|shaken|shown|sold|spent|stuck|taken|taught"
    "|thrown|told|torn|understood|won|worn|woven|written"
)

# Standard terms: `std` has `elapsed` and `zeroed`, `tracing` has `enabled`, files have
# `closed`.
STANDARD_NAMES = {
    *("balanced", "cloned", "closed", "copied", "elapsed", "embed", "enabled"),
    *("malformed", "ragged", "zeroed"),
}

# Strings, characters and comments of Rust.
RUST_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|\bb?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*\""""
    r"""|'(?:\\[^']+|[^\\'])'""",
    re.DOTALL,
)

PYTHON_SCRIPT = re.compile(r"#!.*\bpython")

DECLARED = re.compile(r"\b(?:fn|def|struct|enum|trait|type|mod|class)\s+(\w+)")


def code() -> Iterator[tuple[str, str]]:
    """Yields path and code of each file, without strings and comments."""
    for name, text in texts():
        if name.endswith(".rs"):
            yield name, RUST_TEXT.sub(" ", text)
        elif name.endswith((".py", ".pyi")) or PYTHON_SCRIPT.match(text):
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            kinds = (tokenize.NAME, tokenize.OP)
            yield (
                name,
                " ".join(token.string for token in tokens if token.type in kinds),
            )


def parts(name: str) -> set[str]:
    """Returns the words of a name in snake case or camel case, in lower case."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def is_participle(name: str) -> bool:
    """Whether a name is a past participle alone."""
    words = parts(name)
    return (
        len(words) == 1
        and PARTICIPLE.fullmatch(*words) is not None
        and words.isdisjoint(STANDARD_NAMES)
    )


def test_names_use_the_standard_terms():
    found = {
        f"{name}: {word}"
        for name, text in code()
        for word in {*re.findall(r"\w+", text)} - ALLOWED_NAMES
        if any(NAME_WORDS.fullmatch(part) for part in parts(word))
    }

    assert sorted(found) == []


def test_functions_and_types_are_no_bare_participles():
    found = {
        f"{name}: {declared}"
        for name, text in code()
        for declared in DECLARED.findall(text)
        if is_participle(declared)
    }

    assert sorted(found) == []
