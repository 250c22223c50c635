"""`scripts/release`, and the recipes of other package formats."""

import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "1.2.3"
RECIPE = "packaging/recipe.yaml"

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="the script asks git for changes"
)


@pytest.fixture
def checkout(tmp_path):
    """A repository with the files of this one that a release checks."""
    for name in ("scripts/release", "Cargo.toml", "Cargo.lock", RECIPE):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    now = tomllib.loads((ROOT / "Cargo.toml").read_text())
    own = now["workspace"]["package"]["version"]
    edit(tmp_path / "Cargo.toml", f'"{own}"', f'"{VERSION}"')
    edit(tmp_path / RECIPE, f'"{own}"', f'"{VERSION}"')
    lock = tmp_path / "Cargo.lock"
    pattern = rf'(name = "infeed[^"]*"\nversion = )"{re.escape(own)}"'
    lock.write_text(re.sub(pattern, rf'\1"{VERSION}"', lock.read_text()))
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {VERSION} (2030-01-02)\n\n### Added\n\n- A thing.\n\n"
        "## 1.2.30\n\n- An older thing.\n"
    )
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file.name} has no {old}"
    file.write_text(text.replace(old, new))


def environment() -> dict[str, str]:
    """The environment without git's variables, which a hook sets for its repository."""
    return {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments]
    subprocess.run(command, cwd=folder, env=environment(), check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = ["bash", str(folder / "scripts/release"), *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True)


def problems(folder: Path, version: str = VERSION) -> list[str]:
    """Returns what `--check` prints about a repository that is not ready."""
    done = release(folder, "--check", version)
    assert done.returncode == 1, done.stdout
    start = "scripts/release: "
    assert all(line.startswith(start) for line in done.stderr.splitlines())
    return [line.removeprefix(start) for line in done.stderr.splitlines()]


def test_a_repository_that_is_ready_passes_the_check(checkout):
    done = release(checkout, "--check", VERSION)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == f"this commit can become version {VERSION}\n"


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("Cargo.toml", "Cargo.toml has version 1.2.3"),
        ("Cargo.toml", "Cargo.toml requires version 1.2.3 of infeed's crates"),
        ("Cargo.lock", "Cargo.lock has version 1.2.3"),
        (RECIPE, f"{RECIPE} has version 1.2.3"),
        ("CHANGELOG.md", "CHANGELOG.md has no text below '## 1.3.0'"),
    ],
)
def test_every_file_with_another_version_is_named(checkout, file, problem):
    assert any(line.startswith(problem) for line in problems(checkout, "1.3.0")), file


def test_a_changed_tree_is_a_problem(checkout):
    (checkout / "notes.txt").write_text("new")
    assert problems(checkout) == ["the tree has changes; commit them first"]


def test_a_tag_that_exists_is_a_problem(checkout):
    git(checkout, "tag", f"v{VERSION}")
    expected = f"the tag v{VERSION} exists; choose another version"
    assert problems(checkout) == [expected]


@pytest.mark.parametrize("section", ["", f"## {VERSION}\n\n"])
def test_a_changelog_without_text_for_the_version_is_a_problem(checkout, section):
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n{section}## 1.2.2\n\n- A\n")
    commit(checkout)
    (problem,) = problems(checkout)
    assert problem.startswith(f"CHANGELOG.md has no text below '## {VERSION}'")


def test_a_text_that_is_no_version_is_a_problem(checkout):
    assert problems(checkout, "1.2")[0].startswith("1.2 is not a version")


@pytest.mark.parametrize("arguments", [[], ["--check"], ["--unknown", VERSION]])
def test_other_arguments_print_the_usage(checkout, arguments):
    done = release(checkout, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: scripts/release VERSION")


def fake_packages(checkout: Path, *, sbom: bool) -> None:
    """Writes packages with the names of real ones."""
    dist = checkout / "dist"
    dist.mkdir()
    for tags in (
        "cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64",
        "cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64",
        "cp314-cp314t-manylinux2014_x86_64.manylinux_2_17_x86_64",
    ):
        name = dist / f"infeed-{VERSION}-{tags}.whl"
        with zipfile.ZipFile(name, "w") as wheel:
            folder = f"infeed-{VERSION}.dist-info"
            wheel.writestr(f"{folder}/METADATA", "")
            if sbom:
                wheel.writestr(f"{folder}/sboms/infeed-py.cyclonedx.json", '{"a": 1}')
    (dist / f"infeed-{VERSION}.tar.gz").write_bytes(b"source")


def test_notes_checksums_and_the_list_of_crates_are_written(checkout):
    fake_packages(checkout, sbom=True)
    done = release(checkout, "--files", VERSION)
    assert done.returncode == 0, done.stderr
    dist = checkout / "dist"
    assert (dist / "notes.md").read_text() == "### Added\n\n- A thing.\n\n"
    assert (dist / "infeed-py.cyclonedx.json").read_text() == '{"a": 1}'
    names = [line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert len(names) == 5
    subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True
    )


def test_a_wheel_without_a_list_of_crates_is_an_error(checkout):
    fake_packages(checkout, sbom=False)
    done = release(checkout, "--files", VERSION)
    assert done.returncode == 1
    assert "has no list of crates" in done.stderr


def installs(checkout: Path, machine: str) -> list[str]:
    """Returns the wheels that the container file installs on a machine."""
    text = (ROOT / "packaging/Containerfile").read_text()
    (pattern,) = re.findall(r"^COPY (\S+) /tmp/$", text, flags=re.MULTILINE)
    copied = [path.name for path in checkout.glob(pattern)]
    (pattern,) = re.findall(r"pip install --no-cache-dir /tmp/(.+?\.whl) &&", text)
    wanted = pattern.replace("$(uname -m)", machine)
    return [name for name in copied if Path(name).match(wanted)]


def test_the_container_installs_the_one_wheel_of_its_processor(checkout):
    fake_packages(checkout, sbom=True)
    for machine in ("x86_64", "aarch64"):
        (wheel,) = installs(checkout, machine)
        assert "-abi3-" in wheel
        assert wheel.endswith(f"_{machine}.whl")


def test_the_conda_recipe_agrees_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = project["project"]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    lines = [line.strip() for line in (ROOT / RECIPE).read_text().splitlines()]
    least = package["requires-python"].removeprefix(">=")
    (command,) = package["scripts"].items()
    for line in (
        f'version: "{workspace["package"]["version"]}"',
        f"name: {package['name']}",
        f"license: {package['license']}",
        f'summary: "{package["description"]}"',
        f"- python >={least}",
        # The stable interface of the oldest Python.
        f"- python {least}.*",
        f"- python-abi3 {least}.*",
        f"- {' = '.join(command)}",
        *(f"- {to_conda(text)}" for text in package["dependencies"]),
        *(f"- {to_conda(text)}" for text in project["build-system"]["requires"]),
        *(f"- {path.name}" for path in ROOT.glob(package["license-files"][0])),
    ):
        assert line in lines


def to_conda(requirement: str) -> str:
    """Returns a requirement as conda writes it: a space before the versions."""
    return re.sub(r"(?=[<>=])", " ", requirement, count=1)
