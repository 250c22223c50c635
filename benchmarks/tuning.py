#!/usr/bin/env python3
"""Compares workers="auto" with every fixed number of workers.

See README.md, "Tuning". Needs the infeed package; `cargo` for the case `storage`, and
PyTorch for the case `torch`.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import machine
from pipelines import classification

CASES = {
    "decode": "photographs, no step",
    "step": "photographs, a step of three times what all cores need",
    "storage": "photographs behind a storage that gives two fifths of the rate",
    "python": "items that take 3 ms each under the interpreter's lock",
    "torch": "photographs, training a small network on the cores",
}
# A step within this factor of the best fixed number's meets the goal.
TARGET = 1.05
BATCH = 32
WARM_UP_S = 2.0
SELF = str(Path(__file__).resolve())
STEP = 3.0
STORAGE = 0.4
ITEM_S = 3e-3
EXAMPLE = "cargo run --quiet --release -p infeed --example throttled --"


@dataclass
class Setting:
    """A number of workers, or auto, in one case; and its runs."""

    workers: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def step_s(self) -> float:
        return float(statistics.median(run["step_s"] for run in self.runs))


def main() -> int:
    args = parse()
    if args.run:
        print(json.dumps(run(args)))
        return 0
    photos = prepare_photos(args)
    cores = machine.cores()
    sweep = sorted({*powers(cores), cores, 2 * cores})
    found: dict[str, list[Setting]] = {}
    calibrated = calibrate(args, photos)
    for case in args.cases:
        settings = [Setting(str(workers)) for workers in [*sweep, "auto"]]
        for turn in range(args.turns):
            # The speed of machines drifts: each turn begins with another setting.
            for nth in range(len(settings)):
                setting = settings[(nth + turn) % len(settings)]
                done = one(args, case, setting.workers, photos, calibrated)
                if done is not None:
                    setting.runs.append(done)
        if all(setting.runs for setting in settings):
            found[case] = settings
            print(table(case, settings), flush=True)
        else:
            print(f"{case}: could not be run", flush=True)
    if args.json:
        kept = {
            "machine": machine.describe(),
            "calibrated": calibrated,
            "cases": {case: [vars(s) for s in found[case]] for case in found},
        }
        args.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--photos", type=Path, help="JPEGs; made if not given")
    parser.add_argument("--data", type=Path, default=datasets.HERE / ".data")
    parser.add_argument("--infeed", default="infeed", help="makes the photographs")
    parser.add_argument("--turns", type=int, default=3, help="runs of each setting")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run")
    parser.add_argument("--settle", type=float, default=60.0, help="longest, for auto")
    parser.add_argument("--throttled", default=EXAMPLE, help="command of the example")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps all runs")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--workers", default="auto", help=argparse.SUPPRESS)
    parser.add_argument("--step-s", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {list(CASES)}")
    return args


def powers(cores: int) -> Iterator[int]:
    workers = 1
    while workers < cores:
        yield workers
        # Every number up to 4, then enough for a curve.
        workers = workers + 1 if cores <= 4 else 2 * workers


def prepare_photos(args: argparse.Namespace) -> Path:
    """Returns the photographs, in memory."""
    if args.photos is None:
        args.photos = args.data / "classification"
        args.classification, args.segmentation = None, None
        if not args.photos.exists():
            args.data.mkdir(parents=True, exist_ok=True)
            datasets.make("classification", args.photos, args)
    datasets.read_once(args.photos)
    return Path(args.photos).resolve()


def calibrate(args: argparse.Namespace, photos: Path) -> dict[str, float]:
    """Measures the rate of all cores, from which steps and storage are derived."""
    done = one(args, "decode", str(machine.cores()), photos, {})
    if done is None:
        sys.exit("the photographs cannot be read")
    sizes = [file.stat().st_size for file in datasets.files_of(photos)]
    bytes_per_s = BATCH * statistics.mean(sizes) / done["step_s"]
    return {
        "step_s": STEP * done["step_s"],
        "storage_mb_per_s": STORAGE * bytes_per_s / 1e6,
    }


def one(
    args: argparse.Namespace,
    case: str,
    workers: str,
    photos: Path,
    calibrated: dict[str, float],
) -> dict[str, Any] | None:
    """Runs once in a separate process; None if the case is not possible."""
    if case == "storage":
        pipeline = args.data / "tuning.toml"
        pipeline.parent.mkdir(parents=True, exist_ok=True)
        pipeline.write_text(classification(photos, batch=BATCH, drop_last=True))
        rate = f"{calibrated['storage_mb_per_s']:.3f}"
        command = [*shlex.split(args.throttled), str(pipeline), rate, workers]
        command += [str(args.seconds), str(args.settle)]
    else:
        command = [sys.executable, SELF, case, "--run", "--workers", workers]
        command += ["--photos", str(photos), "--seconds", str(args.seconds)]
        command += ["--settle", str(args.settle)]
        if case == "step":
            command += ["--step-s", str(calibrated["step_s"])]
    load, start = machine.Load(0), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["machine_cores"] = busy(load, time.monotonic() - start)
    return found


def busy(load: machine.Load, wall_s: float) -> float:
    """Returns the busy cores during the run, of all programs."""
    end = load.now()
    if load.start is None or end is None:
        return 0.0
    return round((end["busy"] - load.start["busy"]) / wall_s, 2)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the loop of one case, measured after its number of workers has settled."""
    (case,) = args.cases
    workers = args.workers if args.workers == "auto" else int(args.workers)
    step = stepper(case, args.step_s)
    with pipeline(case, args.photos).open(workers=workers) as loader:
        batches = endless(loader)
        opened, settled_s = time.perf_counter(), None
        while True:
            step(next(batches))
            passed, tuned = time.perf_counter() - opened, loader.stats()["tuned"]
            if tuned is None and passed >= WARM_UP_S:
                break
            if tuned is not None and (tuned["settled"] or passed >= args.settle):
                settled_s = passed if tuned["settled"] else None
                break
        waited, begun, steps = loader.stats()["wait_s"], time.perf_counter(), 0
        while (span := time.perf_counter() - begun) < args.seconds:
            step(next(batches))
            steps += 1
        stats = loader.stats()
    return {
        "step_s": span / max(steps, 1),
        "wait": (stats["wait_s"] - waited) / span,
        "steps": steps,
        "workers": stats["workers"],
        "settled_s": settled_s,
        "text": stats["tuned"] and stats["tuned"]["text"],
    }


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def pipeline(case: str, photos: Path) -> Any:
    import infeed
    from infeed import sources
    from infeed import transforms as T

    if case == "python":
        made = infeed.Pipeline(sources.Items(Slow())).shuffle(seed=0)
        return made.transform(T.ToFloat("image")).batch(BATCH, drop_last=True)
    made = infeed.Pipeline(sources.Folder(str(photos), labels="none")).shuffle(seed=0)
    side = 96 if case == "torch" else 224
    steps = [T.RandomResizedCrop(side), T.RandomHorizontalFlip()]
    if case == "torch":
        steps.append(T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD))
    made = made.decode().transform(*steps, layout="CHW")
    return made.batch(BATCH, drop_last=True)


class Slow:
    """Items made in Python; each keeps the interpreter busy for a while."""

    def __init__(self) -> None:
        import numpy as np

        self.image = np.zeros((64, 64, 3), np.uint8)

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        end = time.perf_counter() + ITEM_S
        while time.perf_counter() < end:
            pass
        return {"image": self.image}


def stepper(case: str, step_s: float) -> Callable[[Any], None]:
    """Returns the loop's work on a batch."""
    if case == "step":
        return lambda batch: time.sleep(step_s)
    if case == "torch":
        return training()
    return lambda batch: None


def training() -> Callable[[Any], None]:
    """Returns a step of a network whose work uses all cores."""
    import torch

    torch.manual_seed(0)
    layers: list[Any] = []
    for inside, outside in ((3, 16), (16, 32), (32, 64)):
        layers += [torch.nn.Conv2d(inside, outside, 3, 2, 1), torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)]
    model = torch.nn.Sequential(*layers, *head)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    labels = torch.zeros(BATCH, dtype=torch.long)

    def step(batch: Any) -> None:
        images = torch.from_dlpack(batch["image"])
        # Several passes, so that the step and its batch cost about the same.
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

    return step


def table(case: str, settings: list[Setting]) -> str:
    *fixed, auto = settings
    best = min(fixed, key=lambda setting: setting.step_s)
    ratio = auto.step_s / best.step_s
    lines = [
        f"{case}: {CASES[case]}",
        "",
        "| workers | step | min to max | waits | to the best |",
        "|---|--:|--:|--:|--:|",
    ]
    for setting in settings:
        steps = [1e3 * run["step_s"] for run in setting.runs]
        waits = statistics.median(100 * run["wait"] for run in setting.runs)
        chosen = sorted({run["workers"] for run in setting.runs})
        name = setting.workers
        if setting is auto:
            name = f"auto: {', '.join(map(str, chosen))}"
        lines.append(
            f"| {name} | {1e3 * setting.step_s:.2f} ms "
            f"| {min(steps):.2f} to {max(steps):.2f} | {waits:.1f} % "
            f"| {setting.step_s / best.step_s:.3f}x |"
        )
    times = [run["settled_s"] for run in auto.runs]
    settled = ", ".join("not" if t is None else f"{t:.1f} s" for t in times)
    held = "within" if ratio <= TARGET else "not within"
    lines += ["", f"auto settled after {settled}; {held} {TARGET:.2f}x of the best."]
    lines += [f"  {text}" for text in sorted({run["text"] for run in auto.runs})]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
