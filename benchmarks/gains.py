#!/usr/bin/env python3
"""Compares the gains that `watch` predicts and `adopt` reports with plain loops.

Real loaders of trainings run over the same photographs. A line has the gain that
`infeed.watch(files=...)` predicts, the gain that `infeed.adopt` reports, and the gain
of plain loops over both loaders, in turn. Samples are counted by the indices that each
dataset returned. Needs torch and torchvision; a loader of a package that is not
installed is skipped:

    python gains.py PHOTOS PAIRS --rounds 3

PHOTOS is a folder of JPEGs, and PAIRS has folders `images` and `masks` of PNGs with the
same names.
"""

import argparse
import contextlib
import importlib
import io
import json
import logging
import random
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

# A file of this folder has the name of a library, which is found first.
FOLDER = str(Path(__file__).parent.resolve())
sys.path.remove(FOLDER)
sys.path.append(FOLDER)

import infeed  # noqa: E402
from gain_steps import HubSteps, Pairs, Sleeping, Slow  # noqa: E402
from infeed import sources  # noqa: E402
from infeed import transforms as T  # noqa: E402
from infeed.watching.batch_sizes import batch_sizes  # noqa: E402

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
WORKERS = 2


@dataclass(frozen=True)
class Case:
    """A loader of a training.

    Attributes:
        make: Returns the loader.
        files: Folder that it reads, for the prediction; None if its batches have no
            images that a pipeline could follow.
        pipeline: Returns a pipeline that replaces the loader, written by hand. None:
            the one that `adopt` finds.
    """

    make: Callable[[], Any]
    files: Path | None
    pipeline: Callable[[], infeed.Pipeline] | None = None


class ScriptSlow(Slow):
    """A step of the running script, which no worker process can import."""


class ScriptSleeping(Sleeping):
    """A step of the running script, which no worker process can import."""


def parts(batch: Any) -> Any:
    return tuple(zip(*batch, strict=True))


def classification(photos: Path, step: Any = None) -> DataLoader:
    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    if step is not None:
        steps.insert(1, step)
    folder = datasets.ImageFolder(photos, v2.Compose(steps))
    return DataLoader(folder, batch_size=32, shuffle=True, num_workers=WORKERS)


def detection(scenes: Path, steps: list[Any], collate: Any) -> DataLoader:
    steps = [v2.ToImage(), v2.RandomHorizontalFlip(), *steps]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()]
    with contextlib.redirect_stdout(io.StringIO()):
        found = datasets.CocoDetection(
            scenes / "images", scenes / "boxes.json", transforms=v2.Compose(steps)
        )
    keys = ("boxes", "labels", "image_id")
    wrapped = datasets.wrap_dataset_for_transforms_v2(found, target_keys=keys)
    return DataLoader(
        wrapped,
        batch_size=8,
        shuffle=True,
        num_workers=WORKERS,
        collate_fn=collate,
        drop_last=True,
    )


def pad_images(batch: Any) -> Any:
    """Pads the images of a batch to the largest, as the recipe of RetinaNet."""
    images, targets = parts(batch)
    height, width = (max(image.shape[side] for image in images) for side in (1, 2))
    pads = [
        torch.nn.functional.pad(
            image, (0, width - image.shape[2], 0, height - image.shape[1])
        )
        for image in images
    ]
    return torch.stack(pads), targets


def timm_loader(photos: Path, **options: Any) -> Any:
    data = importlib.import_module("timm.data")
    dataset = data.create_dataset("", root=str(photos), split="train", is_training=True)
    return data.create_loader(
        dataset,
        input_size=(3, 160, 160),
        batch_size=32,
        is_training=True,
        num_workers=WORKERS,
        device=torch.device("cpu"),
        interpolation="random",
        **options,
    )


def rfdetr(scenes: Path) -> DataLoader:
    coco = importlib.import_module("rfdetr.datasets.coco")
    tensors = importlib.import_module("rfdetr.utilities.tensors")
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = coco.CocoDetection(
            scenes / "images",
            scenes / "boxes.json",
            transforms=coco.make_coco_transforms_square_div_64("train", 320),
        )
    sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(dataset), 8, drop_last=True
    )
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=WORKERS,
        collate_fn=tensors.collate_fn,
    )


def ultralytics(scenes: Path) -> Any:
    detect = importlib.import_module("ultralytics.models.yolo.detect")
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = detect.DetectionTrainer(
            overrides={
                "model": "yolo11n.yaml",
                "data": str(scenes / "data.yaml"),
                "imgsz": 320,
                "batch": 8,
                "workers": WORKERS,
                "device": "cpu",
                "plots": False,
                "val": False,
                "pretrained": False,
                "project": str(scenes / "runs"),
                "verbose": False,
            }
        )
        trainer._setup_train()
    return trainer.train_loader


def yolo(scenes: Path) -> infeed.Pipeline:
    """Returns a pipeline with the default augmentations of Ultralytics."""
    return (
        infeed.Pipeline(sources.Yolo(scenes / "images"))
        .shuffle(seed=0)
        .decode()
        .boxes("boxes", columns=("labels",), format="cxcywh", normalized=True)
        .transform(
            T.Mosaic(640),
            T.RandomAffine(
                0,
                translate=(0.1, 0.1),
                scale=(0.5, 1.5),
                fill=114,
                interpolation="bilinear",
            ),
            T.CenterCrop(320),
            T.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015),
            T.RandomHorizontalFlip(),
            layout="CHW",
        )
        .batch(8, ragged="pad")
    )


def hub(photos: Path) -> DataLoader:
    library = importlib.import_module("datasets")
    paths = sorted(map(str, photos.rglob("*.jpg")))
    table = library.Dataset.from_dict({"image": paths, "label": [0] * len(paths)})
    table = table.cast_column("image", library.Image()).with_transform(HubSteps())
    return DataLoader(table, batch_size=32, shuffle=True, num_workers=WORKERS)


def lightning(photos: Path) -> DataLoader:
    library = importlib.import_module("lightning")

    class Data(library.LightningDataModule):
        def train_dataloader(self) -> DataLoader:
            return classification(photos)

    return Data().train_dataloader()


def make_photos(source: Path, folder: Path) -> Path:
    """Copies JPEGs into three class folders."""
    paths = sorted(
        p for p in source.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")
    )
    for at, path in enumerate(paths):
        target = folder / "abc"[at % 3] / f"{at:05}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return folder


def make_scenes(photos: Path, folder: Path, count: int = 120) -> Path:
    """Writes photographs with random boxes, as COCO and as YOLO."""
    chosen = random.Random(0)
    images, boxes = [], []
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for at, path in enumerate(sorted(photos.rglob("*.jpg"))[:count], 1):
        name = f"{at:05}.jpg"
        shutil.copy(path, folder / "images" / name)
        width, height = Image.open(path).size
        images.append({"id": at, "file_name": name, "width": width, "height": height})
        lines = []
        for _ in range(chosen.randint(1, 4)):
            w, h = (chosen.uniform(0.15, 0.5) for _ in range(2))
            x, y = chosen.uniform(0, 1 - w), chosen.uniform(0, 1 - h)
            kind = chosen.randrange(3)
            lines.append(f"{kind} {x + w / 2:.6f} {y + h / 2:.6f} {w:.6f} {h:.6f}")
            boxes.append(
                {
                    "id": len(boxes) + 1,
                    "image_id": at,
                    "category_id": kind + 1,
                    "bbox": [x * width, y * height, w * width, h * height],
                    "area": w * width * h * height,
                    "iscrowd": 0,
                }
            )
        (folder / "labels" / f"{at:05}.txt").write_text("\n".join(lines) + "\n")
    categories = [{"id": n, "name": f"c{n}"} for n in (1, 2, 3)]
    scene = {"images": images, "annotations": boxes, "categories": categories}
    (folder / "boxes.json").write_text(json.dumps(scene))
    names = "".join(f"  {n}: c{n + 1}\n" for n in range(3))
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images\nval: images\nnames:\n{names}"
    )
    return folder


def rate(loader: Any, size: Callable[[int, Any], int | None], seconds: float) -> float:
    """Returns the samples per second of a plain loop after as long a warm-up.

    A loader that is ahead has batches that would count as made in no time.
    """
    begun, samples, first = time.perf_counter(), 0, None
    while True:
        for number, batch in enumerate(loader):
            now = time.perf_counter()
            if first is None:
                first = now if now - begun >= seconds else None
                continue
            samples += size(number, batch) or 0
            if now - first >= seconds:
                return samples / (now - first)


def predict_gain(case: Case, seconds: float) -> float | None:
    """Returns the gain that a report of `watch` predicts; None if it has none."""
    if case.files is None:
        return None
    watch = infeed.watch(case.make(), files=case.files)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in watch:
            if time.perf_counter() - begun >= seconds:
                break
    verdict = watch.report(seconds).verdict
    lines = [*verdict.advice, *verdict.not_worth]
    # A line that begins with "infeed, if" holds after another change of the program.
    pattern = r"^infeed(?:\.adopt)?: .* samples/s, ([\d.]+)(x| %)"
    found = [re.search(pattern, line) for line in lines]
    for one in filter(None, found):
        return float(one[1]) if one[2] == "x" else 1 + float(one[1]) / 100
    return None


def run(name: str, case: Case, options: argparse.Namespace) -> None:
    """Prints the line of a loader."""
    forecast = gain = None
    if case.pipeline is None:
        forecast = predict_gain(case, options.seconds)
        adopted = infeed.adopt(case.make(), samples=8, seconds=options.seconds)
        gain, opened = adopted.gain, adopted.loader()
    else:
        opened = case.pipeline().open()
    loader = case.make()
    ours, theirs = [], []
    with contextlib.closing(opened) as replacement:
        for _ in range(options.rounds):
            theirs.append(rate(loader, batch_sizes(loader), options.seconds))
            ours.append(rate(replacement, _images, options.seconds))
    reported = "-"
    if gain is not None:
        low, high = gain.range
        reported = f"{gain.ratio:.2f} [{low:.2f} to {high:.2f}]"
    shown = "-" if forecast is None else f"{forecast:.2f}"
    print(
        f"| {name} | {shown} | {reported} | {median(ours) / median(theirs):.2f} "
        f"| {median(theirs):.0f} | {median(ours):.0f} |",
        flush=True,
    )


def _images(number: int, batch: Any) -> int:
    """Returns the images of a batch of infeed, which are one tensor."""
    columns = batch.values() if isinstance(batch, dict) else batch
    return next(len(column) for column in columns if hasattr(column, "shape"))


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, help="folder of JPEGs")
    parser.add_argument("pairs", type=Path, help="folder with images and masks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--only", help="names that contain this text")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    photos = make_photos(options.photos, folder / "photos")
    scenes = make_scenes(photos, folder / "scenes")
    sizes = [256, 288, 320]
    fixed = [v2.Resize((320, 320))]
    ragged = [v2.RandomShortestSize(sizes, max_size=480)]
    cases = {
        "torchvision, classification": Case(lambda: classification(photos), photos),
        "torchvision, detection, tuples": Case(
            lambda: detection(scenes, fixed, parts), None
        ),
        "torchvision, detection, padded": Case(
            lambda: detection(scenes, ragged, pad_images), scenes / "images"
        ),
        "segmentation, PNG pairs": Case(
            lambda: DataLoader(
                Pairs(options.pairs), 8, shuffle=True, num_workers=WORKERS
            ),
            options.pairs / "images",
        ),
        "timm": Case(lambda: timm_loader(photos), photos),
        "timm, RandAugment, RandomErasing": Case(
            lambda: timm_loader(photos, auto_augment="rand-m5", re_prob=0.25),
            photos,
        ),
        "rf-detr": Case(lambda: rfdetr(scenes), None),
        "Ultralytics": Case(lambda: ultralytics(scenes), scenes / "images"),
        "Ultralytics, sources.Yolo": Case(
            lambda: ultralytics(scenes), None, lambda: yolo(scenes)
        ),
        "datasets, with_transform": Case(lambda: hub(photos), photos),
        "Lightning": Case(lambda: lightning(photos), photos),
        "slow step": Case(lambda: classification(photos, Slow()), photos),
        "sleeping step": Case(lambda: classification(photos, Sleeping()), photos),
        "slow step of the script": Case(
            lambda: classification(photos, ScriptSlow()), photos
        ),
        "sleeping step of the script": Case(
            lambda: classification(photos, ScriptSleeping()), photos
        ),
    }
    print("| loader | predicted | adopt | plain loop | theirs/s | infeed/s |")
    print("|---|--:|--:|--:|--:|--:|")
    try:
        for name, case in cases.items():
            if options.only and options.only not in name:
                continue
            try:
                run(name, case, options)
            except ImportError as error:
                print(f"| {name} | skipped: {error} |", file=sys.stderr)
            except Exception as error:
                print(f"| {name} | {type(error).__name__}: {error} |", flush=True)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
