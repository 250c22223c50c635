"""Compares the loaders of trainers with those of `infeed.install`.

    python benchmarks/trainers.py TRAINER PHOTOS [--size 640] [--images 1200]

Runs in an environment with the trainer, such as `.venv-trainers/ultralytics`. PHOTOS is
a folder of JPEGs; copies of them get one to six random boxes each. Both loaders run in
turn, without a model. Rates are images per second after the first batch of an epoch.
The size is that of the model: RF-DETR makes larger images, which its model shrinks to a
random size.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from PIL import Image

import infeed

BATCH = 16
WORKERS = os.cpu_count() or 1


def write_boxed(photos: Path, folder: Path, images: int) -> Path:
    """Copies photographs, and writes their boxes for both trainers.

    Returns:
        The `data.yaml` of Ultralytics. The COCO file for RF-DETR is in the folder of
        each split.
    """
    draws = random.Random(0)
    files = sorted(
        path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    for split, count in (("train", images), ("valid", BATCH)):
        for kind in ("images", "labels"):
            (folder / split / kind).mkdir(parents=True)
        entries, annotations = [], []
        for number in range(count):
            name, source = f"{number:05}", files[number % len(files)]
            shutil.copy(source, folder / split / "images" / f"{name}.jpg")
            with Image.open(source) as opened:
                size = opened.size
            file = {"id": number, "file_name": f"images/{name}.jpg"}
            entries.append(file | dict(zip(("width", "height"), size, strict=True)))
            lines = []
            for _ in range(draws.randint(1, 6)):
                sides = [draws.uniform(0.05, 0.5) for _ in range(2)]
                centre = [draws.uniform(side / 2, 1 - side / 2) for side in sides]
                numbers = " ".join(f"{value:.6f}" for value in (*centre, *sides))
                lines.append(f"{draws.randrange(3)} {numbers}")
                corner = [at - side / 2 for at, side in zip(centre, sides, strict=True)]
                box = [
                    part * of
                    for part, of in zip((*corner, *sides), size * 2, strict=True)
                ]
                ids = {"id": len(annotations) + 1, "image_id": number}
                box = {"bbox": box, "area": box[2] * box[3], "iscrowd": 0}
                annotations.append(ids | box | {"category_id": draws.randrange(3)})
            (folder / split / "labels" / f"{name}.txt").write_text("\n".join(lines))
        names = [{"id": at, "name": f"{at}"} for at in range(3)]
        content = {"images": entries, "annotations": annotations, "categories": names}
        (folder / split / "_annotations.coco.json").write_text(json.dumps(content))
    path = folder / "data.yaml"
    path.write_text(
        f"path: {folder}\ntrain: train/images\nval: valid/images\n"
        "names:\n  0: zero\n  1: one\n  2: two\n"
    )
    return path


def make_ultralytics(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns a loader of Ultralytics, and the function that ends its workers."""
    from ultralytics.models.yolo import detect

    overrides = {
        **{"model": "yolo11n.yaml", "data": str(data), "imgsz": size, "batch": BATCH},
        **{"workers": WORKERS, "device": "cpu", "plots": False, "val": False},
        **{"amp": False, "pretrained": False, "cache": cache, "verbose": False},
        "project": str(data.parent / "runs"),
    }
    trainer = detect.DetectionTrainer(overrides=overrides)
    trainer._setup_train()
    loader = trainer.train_loader
    return loader, loader.close if cache else loader.reset


def make_rfdetr(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns a loader of RF-DETR, and the function that ends its workers."""
    from rfdetr import training
    from rfdetr.config import RFDETRNanoConfig, TrainConfig

    infeed.install("rfdetr", proof_seconds=0, cache="auto" if cache else None)
    model = RFDETRNanoConfig(pretrain_weights=None, device="cpu", resolution=size)
    settings = {"dataset_dir": str(data.parent), "output_dir": str(data.parent / "out")}
    settings |= {"batch_size": BATCH, "num_workers": WORKERS, "accelerator": "cpu"}
    module = training.RFDETRDataModule(model, TrainConfig(**settings))
    found = {"world_size": 1, "current_epoch": 0, "is_global_zero": True}
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    module.trainer = SimpleNamespace(
        **found, strategy=strategy, accumulate_grad_batches=1
    )
    module.setup("fit")
    loader = module.train_dataloader()

    def end() -> None:
        if hasattr(loader, "close"):
            loader.close()
        else:
            loader._iterator = None

    return loader, end


MAKERS = {"rfdetr": make_rfdetr, "ultralytics": make_ultralytics}


def measure_epoch(loader: Any) -> float:
    """Returns the images per second of an epoch after its first batch."""
    images, begun = 0, None
    for batch in loader:
        if begun is None:
            begun = time.perf_counter()
            continue
        images += len(batch["img"] if isinstance(batch, dict) else batch[1])
    return images / (time.perf_counter() - (begun or 0))


def resident_mib() -> float:
    """Returns the memory of this process and its children, shared pages divided."""
    own = psutil.Process()
    return sum(
        process.memory_full_info().pss for process in [own, *own.children(True)]
    ) / (1 << 20)


def compare_rates(
    trainer: str, data: Path, size: int, cache: str | bool, turns: int
) -> str:
    """Returns a row with the rates of both loaders."""
    loaders = {}
    for name, switch in (("theirs", "off"), ("ours", "on")):
        os.environ["INFEED_TRAINERS"] = switch
        loaders[name] = MAKERS[trainer](data, size, cache)
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    grown: dict[str, float] = {}
    for turn in range(turns):
        for name, (loader, end) in loaders.items():
            before = resident_mib()
            if cache and turn == 0:
                # The first epoch fills the cache.
                measure_epoch(loader)
            rates[name].append(measure_epoch(loader))
            grown.setdefault(name, resident_mib() - before)
            if not cache:
                end()
    for _, end in loaders.values():
        end()
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
    parser.add_argument("trainer", choices=MAKERS)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("YOLO_CONFIG_DIR", folder)
        infeed.install(given.trainer, proof_seconds=0)
        data = write_boxed(given.photos, Path(folder) / "boxed", given.images)
        rows = [
            compare_rates(given.trainer, data, given.size, cache, given.turns)
            for cache in (False, "ram")
        ]
    print("| cache | theirs, images/s | infeed | ratio | theirs, MiB | infeed, MiB |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
