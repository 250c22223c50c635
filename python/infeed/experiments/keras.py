"""A Keras generator, tf.data from files and from TFRecords, and infeed, on one job.

Three epochs of 140 steps on 3 pairs of image and mask, 512x512, with masks one-hot in
12 classes; with a light step and a heavy one. The step is a sleep in place of a device,
so the loaders have the processor for themselves. Each loader runs in its own process,
in turn. TensorFlow and Keras are optional: rows without their package say so.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from infeed.errors import ConfigError, InfeedError
from infeed.experiments.arguments import duration, positive
from infeed.experiments.images import files_below, sample
from infeed.experiments.peers import KERAS_WORKERS, PEERS, palette
from infeed.experiments.result import Result, Table, milliseconds, rate
from infeed.watching.processor import usable_cores

SUMMARY = "a Keras generator, tf.data, TFRecords and infeed on one segmentation job"

TITLES = {
    "keras": f"Keras PyDataset, {KERAS_WORKERS} workers",
    "tf-files": "tf.data from files",
    "tf-records": "tf.data from TFRecords",
    "infeed": "infeed from files",
}


class PeerError(InfeedError, RuntimeError):
    """A loader's process ended without a result."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this experiment."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="folder of images, masks and class_dict.csv, as `infeed sample "
        "segmentation` makes it (default: synthetic)",
    )  # fmt: skip
    parser.add_argument(
        "--epochs", type=positive, default=3, help="epochs of each (default 3)"
    )
    parser.add_argument(
        "--steps", type=positive, default=140, help="steps an epoch (default 140)"
    )
    parser.add_argument(
        "--batch", type=positive, default=3, help="samples a step (default 3)"
    )
    parser.add_argument(
        "--light-ms", type=duration, default=20, help="the light step (default 20)"
    )
    parser.add_argument(
        "--heavy-ms", type=duration, default=150, help="the heavy step (default 150)"
    )
    parser.add_argument(
        "--loaders", nargs="+", choices=PEERS, default=list(PEERS),
        help="loaders to run (default: all)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> Result:
    """Runs every loader with the light step, then with the heavy one."""
    epochs, steps, side = options.epochs, options.steps, 512
    if options.quick:
        epochs, steps, side = min(epochs, 2), min(steps, 3), 64
    with tempfile.TemporaryDirectory(prefix="infeed-keras-") as place:
        data = options.data or _make_dataset(
            Path(place), steps * options.batch, options.quick
        )
        _check(data, options.batch)
        job = {
            "data": str(data),
            "records": str(Path(place) / "records"),
            "palette": palette(data),
            "side": side,
            "batch": options.batch,
            "epochs": epochs,
            "steps": steps,
        }
        figures = [
            {
                "loader": name,
                "step": step,
                "step_s": step_s,
                **_measure(job | {"peer": name, "step_s": step_s}),
            }
            for step, step_s in (
                ("light", options.light_ms / 1e3),
                ("heavy", options.heavy_ms / 1e3),
            )
            for name in options.loaders
        ]
    tables = [_table(figures, step) for step in ("light", "heavy")]
    question = (
        f"{epochs} epochs of {steps} steps of {options.batch} pairs of {side}x{side} "
        f"px, {len(job['palette'])} classes: which loader keeps up with the step?"
    )
    summary = {k: job[k] for k in ("side", "batch", "epochs", "steps")}
    return Result(
        "keras", question, tables, _meaning(figures), summary | {"runs": figures}
    )


def _make_dataset(place: Path, count: int, quick: bool) -> Path:
    settings = ("--size", "96x72") if quick else ()
    return sample("segmentation", place / "data", count, *settings)


def _check(data: Path, batch: int) -> None:
    for name in ("images", "masks", "class_dict.csv"):
        if not (data / name).exists():
            raise ConfigError(
                f"keras: {data} has no {name}; --data takes a folder as "
                "`infeed sample segmentation DIR` makes it"
            )
    count = len(files_below(data / "images"))
    if count < batch:
        raise ConfigError(
            f"keras: {data} has {count} images, and a batch needs {batch}"
        )


def _measure(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one loader in its own process."""
    command = [sys.executable, "-m", "infeed.experiments.peers"]
    ended = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True
    )
    if ended.returncode != 0:
        why = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise PeerError(f"{TITLES[job['peer']]} failed: {why[0]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _table(figures: list[dict[str, Any]], step: str) -> Table:
    chosen = [f for f in figures if f["step"] == step]
    rows = []
    for f in chosen:
        if "missing" in f:
            rows.append([TITLES[f["loader"]], *["-"] * 6])
            continue
        # The first epoch includes the start of the loader.
        later = f["epochs_s"][1:] or f["epochs_s"]
        rows.append(
            [
                TITLES[f["loader"]],
                milliseconds(f["first_batch_s"] + f["prepared_s"]),
                f"{f['epochs_s'][0]:.1f}",
                f"{sum(later) / len(later):.1f}",
                f"{100 * f['waiting']:.0f} %",
                rate(f["steps_per_s"]),
                f"{f['cores']:.1f}",
            ]
        )
    columns = [
        "loader", "first batch ms", "first epoch s", "later epochs s", "waiting",
        "steps/s", "cores busy",
    ]  # fmt: skip
    step_s = chosen[0]["step_s"]
    return Table(columns, rows, f"{step} step: {milliseconds(step_s)} ms")


def _meaning(figures: list[dict[str, Any]]) -> list[str]:
    meaning = [
        "A step that never waits takes "
        + " and ".join(
            f"{rate(1 / step_s)} steps/s ({name})"
            for name, step_s in {f["step"]: f["step_s"] for f in figures}.items()
        )
        + f". The loaders had {usable_cores():.3g} cores."
    ]
    missing = {f["missing"]: None for f in figures if "missing" in f}
    meaning += [f"Left out: {why}." for why in missing]
    for step in ("light", "heavy"):
        found = {
            f["loader"]: f["steps_per_s"]
            for f in figures
            if f["step"] == step and "missing" not in f
        }
        if "infeed" in found and len(found) > 1:
            others = ", ".join(
                f"{found['infeed'] / value:.2f}x {TITLES[name]}"
                for name, value in found.items()
                if name != "infeed" and value
            )
            meaning.append(f"With the {step} step infeed reaches {others}.")
    waiting = [
        f for f in figures if f["step"] == "heavy" and f.get("waiting", 1) < 0.02
    ]
    if len(waiting) > 1:
        meaning.append(
            "With the heavy step "
            + ", ".join(TITLES[f["loader"]] for f in waiting)
            + " all keep up: where the step is the limit, the loader does not matter."
        )
    return meaning
