"""Compares the loaders of trainers with those of `infeed.install`.

    python benchmarks/trainers.py TRAINER PHOTOS [--size 640] [--task segment]

Runs in an environment with the trainer, such as `.venv-trainers/ultralytics`; for
torchvision (`torchvision`, `detection`, `cifar`), timm and transformers in
`.venv-frameworks`. PHOTOS is a folder of JPEGs; copies of them get one to six random
boxes each, or lie in three folders of classes. A task of Ultralytics gets outlines,
keypoints or rotated boxes instead. Both loaders run in turn, without a model. Rates are
images per second after the first batch of an epoch. The size is that of the model:
RF-DETR makes larger images, which its model shrinks to a random size.
"""

import argparse
import importlib
import json
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image

import infeed

# Images of a batch, for detectors and for classifiers.
BATCH, CLASSIFIED = 16, 64
WORKERS = os.cpu_count() or 1
# Suffixes of the models of Ultralytics by task.
MODELS = {"detect": "", "segment": "-seg", "pose": "-pose", "obb": "-obb"}
MODELS |= {"classify": "-cls"}
# More arguments of the training of Ultralytics.
ARGUMENTS: dict[str, Any] = {}
# The loader of a trainer that is measured.
MEASURED = {"of": "train_loader"}
# Corners of an outline, and keypoints of an object.
CORNERS, POINTS = 24, 17
# Images of CIFAR-10.
CIFAR = 50_000


def write_boxed(photos: Path, folder: Path, counts: tuple[int, int], task: str) -> Path:
    """Copies photographs, and writes their boxes for both trainers.

    Args:
        photos: Folder of photographs.
        folder: Folder for the copies.
        counts: Number of images for the training, and for its validation.
        task: Task of Ultralytics.

    Returns:
        The `data.yaml` of Ultralytics. The COCO file for RF-DETR is in the folder of
        each split.
    """
    draws = random.Random(0)
    files = sorted(
        path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    for split, count in zip(("train", "valid"), counts, strict=True):
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
                values = label_values(task, centre, sides, draws)
                numbers = " ".join(f"{value:.6f}" for value in values)
                lines.append(f"{draws.randrange(3)} {numbers}")
                corner = [at - side / 2 for at, side in zip(centre, sides, strict=True)]
                box = [
                    part * of
                    for part, of in zip((*corner, *sides), size * 2, strict=True)
                ]
                ids = {"id": len(annotations) + 1, "image_id": number}
                box = {"bbox": box, "area": box[2] * box[3], "iscrowd": 0}
                if task == "segment":
                    outline = [
                        part * of
                        for part, of in zip(values, size * CORNERS, strict=True)
                    ]
                    box |= {"segmentation": [outline]}
                annotations.append(ids | box | {"category_id": draws.randrange(3)})
            (folder / split / "labels" / f"{name}.txt").write_text("\n".join(lines))
        names = [{"id": at, "name": f"{at}"} for at in range(3)]
        content = {"images": entries, "annotations": annotations, "categories": names}
        (folder / split / "_annotations.coco.json").write_text(json.dumps(content))
    path = folder / "data.yaml"
    path.write_text(
        f"path: {folder}\ntrain: train/images\nval: valid/images\n"
        "names:\n  0: zero\n  1: one\n  2: two\n"
        f"kpt_shape: [{POINTS}, 3]\nflip_idx: {list(range(POINTS))}\ntask: {task}\n"
    )
    return path


def label_values(
    task: str, centre: list[float], sides: list[float], draws: random.Random
) -> list[float]:
    """Returns the numbers of a label of Ultralytics, as shares of the image."""
    if task == "pose":
        points = [
            at + draws.uniform(-0.5, 0.5) * side
            for _ in range(POINTS)
            for at, side in zip(centre, sides, strict=True)
        ]
        points = [value for at in range(POINTS) for value in (*points[2 * at :][:2], 2)]
        return [*centre, *sides, *points]
    if task == "detect":
        return [*centre, *sides]
    count = 4 if task == "obb" else CORNERS
    turned = [2 * math.pi * (at + 0.5) / count for at in range(count)]
    waves = [(math.cos(angle), math.sin(angle)) for angle in turned]
    return [
        at + part * side / 2
        for wave in waves
        for at, part, side in zip(centre, wave, sides, strict=True)
    ]


def make_ultralytics(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns a loader of Ultralytics, and the function that ends its workers."""
    from ultralytics import YOLO

    task = "classify"
    if data.is_file():
        task = data.read_text().split("task: ")[1].strip()
    model = f"yolo11n{MODELS[task]}.yaml"
    overrides = {
        **{"model": model, "data": str(data), "imgsz": size, "batch": BATCH},
        **{"workers": WORKERS, "device": "cpu", "plots": False, "val": False},
        **{"amp": False, "pretrained": False, "cache": cache, "verbose": False},
        "project": str(data.parent / "runs"),
        **ARGUMENTS,
    }
    trainer = YOLO(model).task_map[task]["trainer"](overrides=overrides)
    trainer._setup_train()
    loader = getattr(trainer, MEASURED["of"])
    return loader, loader.close if cache else loader.reset


def make_rfdetr(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns a loader of RF-DETR, and the function that ends its workers."""
    from rfdetr import training
    from rfdetr.config import RFDETRNanoConfig, TrainConfig

    infeed.install("rfdetr", proof_seconds=0, cache="auto" if cache else None)
    has_masks = "task: segment" in data.read_text()
    model = RFDETRNanoConfig(
        pretrain_weights=None,
        device="cpu",
        resolution=size,
        segmentation_head=has_masks,
    )
    settings = {"dataset_dir": str(data.parent), "output_dir": str(data.parent / "out")}
    settings |= {"batch_size": BATCH, "num_workers": WORKERS, "accelerator": "cpu"}
    module = training.RFDETRDataModule(model, TrainConfig(**settings))
    found = {"world_size": 1, "current_epoch": 0, "is_global_zero": True}
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    module.trainer = SimpleNamespace(
        **found, strategy=strategy, accumulate_grad_batches=1
    )
    module.setup("fit")
    is_validation = MEASURED["of"] == "test_loader"
    loader = module.val_dataloader() if is_validation else module.train_dataloader()

    def end() -> None:
        if hasattr(loader, "close"):
            loader.close()
        else:
            loader._iterator = None

    return loader, end


def write_classes(photos: Path, folder: Path, images: int) -> Path:
    """Copies photographs into three folders of classes; returns their folder."""
    files = sorted(
        path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    for number in range(images):
        path = folder / f"class{number % 3}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files[number % len(files)], path)
    return folder


def make_torchvision(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns the loader of torchvision's reference for classification."""
    from torchvision import datasets
    from torchvision.transforms import v2

    infeed.install("torch", proof_seconds=0, cache="auto" if cache else None)
    steps = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset = datasets.ImageFolder(str(data), v2.Compose(steps))
    return plain_loader(dataset), lambda: None


def make_detection(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns the loader of torchvision's reference for detection, with its default."""
    from torchvision import datasets, tv_tensors
    from torchvision.transforms import v2

    infeed.install("torch", proof_seconds=0, cache="auto" if cache else None)
    steps = [v2.RandomHorizontalFlip(), v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float, scale=True)]
    steps += [v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY)]
    steps += [v2.SanitizeBoundingBoxes(), v2.ToPureTensor()]
    folder = data.parent / "train"
    found = datasets.CocoDetection(
        folder, folder / "_annotations.coco.json", transforms=v2.Compose(steps)
    )
    keys = ("boxes", "labels", "image_id")
    found = datasets.wrap_dataset_for_transforms_v2(found, target_keys=keys)
    options = {"collate_fn": lambda batch: tuple(zip(*batch, strict=True))}
    return plain_loader(found, size=BATCH, **options), lambda: None


def make_cifar(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns the usual loader of CIFAR-10, with random pixels of its size."""
    from torchvision import datasets
    from torchvision.transforms import v2

    infeed.install("torch", proof_seconds=0, cache="auto" if cache else None)
    steps = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToImage()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)
    datasets.VisionDataset.__init__(dataset, transform=v2.Compose(steps))
    draws = np.random.default_rng(0)
    dataset.data = draws.integers(0, 255, (CIFAR, 32, 32, 3), np.uint8)
    dataset.targets = draws.integers(0, 10, CIFAR).tolist()
    return plain_loader(dataset, size=2 * CLASSIFIED), lambda: None


def make_timm(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns the loader of timm's training script with its defaults."""
    import timm.data

    infeed.install("torch", proof_seconds=0, cache="auto" if cache else None)
    dataset = timm.data.create_dataset("", root=str(data))
    loader = timm.data.create_loader(
        *(dataset, size, CLASSIFIED),
        is_training=True,
        interpolation="random",
        num_workers=WORKERS,
        persistent_workers=False,
        device=torch.device("cpu"),
    )
    return loader, lambda: None


def make_transformers(data: Path, size: int, cache: str | bool) -> tuple[Any, Any]:
    """Returns the loader of transformers' example for image classification."""
    from torchvision.transforms import v2

    # The folder of this script has a module with the name of this library.
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    hub = importlib.import_module("datasets")
    infeed.install("torch", proof_seconds=0, cache="auto" if cache else None)
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(size),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )

    def train_transforms(rows: dict[str, Any]) -> dict[str, Any]:
        rows["pixel_values"] = [chain(one.convert("RGB")) for one in rows["image"]]
        return rows

    def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        images = torch.stack([sample["pixel_values"] for sample in samples])
        labels = torch.tensor([sample["label"] for sample in samples])
        return {"pixel_values": images, "labels": labels}

    table = hub.load_dataset(
        "imagefolder", data_dir=str(data), split="train", cache_dir=str(data.parent)
    )
    table.set_transform(train_transforms)
    return plain_loader(table, collate_fn=collate), lambda: None


def plain_loader(dataset: Any, size: int = CLASSIFIED, **options: Any) -> Any:
    """Returns a DataLoader of PyTorch that shuffles."""
    return torch.utils.data.DataLoader(
        dataset, size, shuffle=True, num_workers=WORKERS, **options
    )


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DETECTORS = {
    "rfdetr": make_rfdetr,
    "ultralytics": make_ultralytics,
    "detection": make_detection,
}
MAKERS = DETECTORS | {
    "cifar": make_cifar,
    "timm": make_timm,
    "torchvision": make_torchvision,
    "transformers": make_transformers,
}


def measure_epoch(loader: Any) -> float:
    """Returns the images per second of an epoch after its first batch."""
    images, begun = 0, None
    for batch in loader:
        if begun is None:
            begun = time.perf_counter()
            continue
        images += samples_of(batch)
    return images / (time.perf_counter() - (begun or 0))


def samples_of(batch: Any) -> int:
    """Returns the number of samples of a batch: of its first part for each sample."""
    if not isinstance(batch, dict):
        return len(batch[1])
    # Ultralytics sorts the parts of a batch, and its first one is for each box.
    return len(batch["im_file"] if "im_file" in batch else next(iter(batch.values())))


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
            # DataLoaders of PyTorch read it when a loop begins.
            os.environ["INFEED_TRAINERS"] = "off" if name == "theirs" else "on"
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
    parser.add_argument("--size", type=int, help="default: 640, classifiers 224")
    parser.add_argument("--task", choices=MODELS, default="detect")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="argument of the training of Ultralytics, such as mixup=0.15",
    )
    parser.add_argument(
        "--validation",
        action="store_true",
        help="measure the loader of the validation of Ultralytics or RF-DETR",
    )
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("YOLO_CONFIG_DIR", folder)
        is_detector = given.trainer in DETECTORS and given.task != "classify"
        for text in given.set:
            name, value = text.split("=")
            ARGUMENTS[name] = bool(float(value)) if name == "rect" else float(value)
        counts = given.images, BATCH
        if given.validation:
            MEASURED["of"], counts = "test_loader", counts[::-1]
        own = given.trainer in ("rfdetr", "ultralytics")
        if given.validation and not (own and is_detector):
            parser.error("--validation needs ultralytics or rfdetr, and no classifier")
        infeed.install(given.trainer if own else "torch", proof_seconds=0)
        photos = Path(folder) / "photos"
        if is_detector:
            data = write_boxed(given.photos, photos, counts, given.task)
        else:
            data = photos
            is_split = given.trainer == "ultralytics"
            write_classes(
                given.photos, photos / "train" if is_split else photos, given.images
            )
            if is_split:
                write_classes(given.photos, photos / "val", BATCH)
        size = given.size or (640 if is_detector else 224)
        rows = [
            compare_rates(given.trainer, data, size, cache, given.turns)
            for cache in (False, "ram")
        ]
    print("| cache | theirs, images/s | infeed | ratio | theirs, MiB | infeed, MiB |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
