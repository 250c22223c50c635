"""A feeder for tests: `infeed feed` in another process."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conftest import wait_until

import infeed

COMMAND = [sys.executable, "-c", "import infeed._cli as c, sys; sys.exit(c.main())"]
TOKEN = "0123456789abcdef"


def arguments(pipeline: infeed.Pipeline, folder: Path) -> list[str]:
    """Returns the command that feeds a pipeline; writes its files into a folder."""
    pipeline.save(folder / "pipeline.toml")
    (folder / "token").write_text(TOKEN)
    token = ["--token-file", str(folder / "token")]
    where = ["--listen", "127.0.0.1:0", "--workers", "2", *token]
    where += ["--allow-functions", "stage_functions:*"]
    return [*COMMAND, "feed", str(folder / "pipeline.toml"), *where]


@contextlib.contextmanager
def feeding(
    pipeline: infeed.Pipeline, folder: Path, modules: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen]]:
    """Runs a feeder, which imports modules from one folder; yields its address."""
    path = [str(Path(infeed.__file__).parents[1])]
    path += [] if modules is None else [str(modules)]
    feeder = subprocess.Popen(
        arguments(pipeline, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )
    try:
        line = feeder.stdout.readline()
        yield line.removeprefix("feeding at ").strip(), feeder
    finally:
        feeder.kill()
        feeder.wait()
        feeder.stdout.close()


def wait_for_feeders(loader: infeed.Loader) -> None:
    """Waits until all feeders are connected; `open` waits some seconds only."""
    assert wait_until(lambda: all(f["connected"] for f in loader.stats()["feeders"]))
