"""Compares the loaders of trainers with those of `infeed.install`.

    python benchmarks/trainers.py PHOTOS [--size 640] [--images 1200] [--turns 3]

Runs in an environment with the trainer, such as `.venv-trainers/ultralytics`. PHOTOS is
a folder of JPEGs; copies of them get one to six random boxes each. Both loaders run in
turn, without a model. Rates are images per second after the first batch of an epoch.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch

BATCH = 16
WORKERS = os.cpu_count() or 1


def write_boxed(photos: Path, folder: Path, images: int) -> Path:
    """Copies photographs, writes their boxes, and returns the `data.yaml`."""
    draws = random.Random(0)
    files = sorted(
        path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    for split, count in (("train", images), ("val", BATCH)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            name = f"{number:05}"
            shutil.copy(
                files[number % len(files)], folder / "images" / split / f"{name}.jpg"
            )
            lines = []
            for _ in range(draws.randint(1, 6)):
                sides = [draws.uniform(0.05, 0.5) for _ in range(2)]
                centre = [draws.uniform(side / 2, 1 - side / 2) for side in sides]
                numbers = " ".join(f"{value:.6f}" for value in (*centre, *sides))
                lines.append(f"{draws.randrange(3)} {numbers}")
            (folder / "labels" / split / f"{name}.txt").write_text("\n".join(lines))
    path = folder / "data.yaml"
    path.write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\n"
        "names:\n  0: zero\n  1: one\n  2: two\n"
    )
    return path


def make_trainer(data: Path, size: int, cache: str | bool) -> Any:
    """Returns a trainer with its loaders."""
    from ultralytics.models.yolo import detect

    overrides = {
        **{"model": "yolo11n.yaml", "data": str(data), "imgsz": size, "batch": BATCH},
        **{"workers": WORKERS, "device": "cpu", "plots": False, "val": False},
        **{"amp": False, "pretrained": False, "cache": cache, "verbose": False},
        "project": str(data.parent / "runs"),
    }
    trainer = detect.DetectionTrainer(overrides=overrides)
    trainer._setup_train()
    return trainer


def measure_epoch(loader: Any) -> float:
    """Returns the images per second of an epoch after its first batch."""
    images, begun = 0, None
    for batch in loader:
        if begun is None:
            begun = time.perf_counter()
            continue
        images += len(batch["img"])
    return images / (time.perf_counter() - (begun or 0))


def resident_mib() -> float:
    """Returns the memory of this process and its children, shared pages divided."""
    own = psutil.Process()
    return sum(
        process.memory_full_info().pss for process in [own, *own.children(True)]
    ) / (1 << 20)


def compare_rates(data: Path, size: int, cache: str | bool, turns: int) -> str:
    """Returns a row with the rates of both loaders."""
    trainers = {}
    for name, switch in (("theirs", "off"), ("ours", "on")):
        os.environ["INFEED_TRAINERS"] = switch
        trainers[name] = make_trainer(data, size, cache)
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    grown: dict[str, float] = {}
    for turn in range(turns):
        for name, trainer in trainers.items():
            before = resident_mib()
            if cache and turn == 0:
                # The first epoch fills the cache.
                measure_epoch(trainer.train_loader)
            rates[name].append(measure_epoch(trainer.train_loader))
            grown.setdefault(name, resident_mib() - before)
            if not cache:
                trainer.train_loader.reset()
    for trainer in trainers.values():
        trainer.train_loader.close()
    gains = [
        own / other for own, other in zip(rates["ours"], rates["theirs"], strict=True)
    ]
    theirs, ours = (statistics.median(rates[name]) for name in ("theirs", "ours"))
    return (
        f"| {cache or 'none'} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} "
        f"({min(gains):.2f} to {max(gains):.2f}) | {grown['theirs']:.0f} "
        f"| {grown['ours']:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("YOLO_CONFIG_DIR", folder)
        import infeed

        infeed.install("ultralytics", proof_seconds=0)
        data = write_boxed(given.photos, Path(folder) / "boxed", given.images)
        rows = [
            compare_rates(data, given.size, cache, given.turns)
            for cache in (False, "ram")
        ]
    print("| cache | theirs, images/s | infeed | ratio | theirs, MiB | infeed, MiB |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
