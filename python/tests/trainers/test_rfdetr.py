"""Trainings of RF-DETR with the batches of infeed."""

import json
import logging
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from boxed_folder import write_boxed_folder
from PIL import Image

import infeed
from infeed.adopting.equivalence import Equivalence, compare
from infeed.adopting.rfdetr_datasets import read_rfdetr

torch = pytest.importorskip("torch")
rfdetr = pytest.importorskip("rfdetr")
training = pytest.importorskip("rfdetr.training")

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGES = 40
BATCH = 4
# No random change of an image or a box.
STILL = {"multi_scale": "off", "scale_jitter": False, "aug_config": {}}
SMALL = {"group_detr": 1, "num_queries": 30, "num_select": 30, "dec_layers": 1}


@pytest.fixture(scope="session", autouse=True)
def settings():
    """Training needs no network, and computes nothing else than batches."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            patch.setenv(name, "1")
        yield


def write_split(folder: Path, count: int, seed: int) -> None:
    """Writes images and a COCO file with crowds, and boxes at and beyond the edge."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    images, found = [], []
    for number in range(count):
        # RF-DETR decodes the last one at a lower scale.
        height, width = (300 + 8 * number, 420 - 5 * number)
        if number == count - 1:
            height, width = 1210, 1300
        small = rng.integers(0, 255, (6, 8, 3), np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
        image.save(folder / f"{number:03}.jpg", quality=95)
        size = {"height": height, "width": width}
        images.append({"id": 10 + number, "file_name": f"{number:03}.jpg"} | size)
        # One image in five has no box.
        for at in range(number % 5):
            sides = rng.uniform(0.1, 0.5, 2) * (width, height)
            corner = rng.uniform(-0.05, 0.6, 2) * (width, height)
            if at == 3:
                # Beyond the right edge, or without area.
                corner, sides = (width + 5.0, 4.0), sides * (number % 2)
            box = [float(value) for value in (*corner, *sides)]
            one = {"bbox": box, "area": box[2] * box[3], "iscrowd": int(at == 2)}
            ids = {"id": len(found) + 1, "image_id": 10 + number}
            found.append(ids | one | {"category_id": int(rng.choice([1, 2, 7]))})
    names = [{"id": 0, "name": "all", "supercategory": "none"}]
    names += [{"id": n, "name": f"{n}", "supercategory": "all"} for n in (1, 2, 7)]
    content = {"images": images, "annotations": found, "categories": names}
    (folder / "_annotations.coco.json").write_text(json.dumps(content))


@pytest.fixture(scope="session")
def coco_folder(tmp_path_factory) -> Path:
    """Returns a folder as Roboflow exports it."""
    folder = tmp_path_factory.mktemp("coco")
    for seed, (name, count) in enumerate({"train": IMAGES, "valid": 8}.items()):
        write_split(folder / name, count, seed)
    return folder


@pytest.fixture(scope="session")
def outlined_folder(coco_folder, tmp_path_factory) -> Path:
    """Returns the same images with polygons, run lengths, and boxes without a mask."""
    folder = tmp_path_factory.mktemp("outlined") / "coco"
    shutil.copytree(coco_folder, folder)
    for path in folder.glob("*/_annotations.coco.json"):
        content = json.loads(path.read_text())
        sizes = {one["id"]: (one["height"], one["width"]) for one in content["images"]}
        for number, one in enumerate(content["annotations"]):
            if number % 7 == 0:
                continue
            one["segmentation"] = segmentation_of(one, sizes[one["image_id"]], number)
        path.write_text(json.dumps(content))
    return folder


def segmentation_of(annotation, size, number):
    """Returns an outline within a box, or the run lengths of its columns."""
    x, y, width, height = annotation["bbox"]
    if number % 5 == 0:
        before = 40 * size[0] + 20
        return {"counts": [before, 90, size[0] * size[1] - before - 90], "size": size}
    angles = np.linspace(0, 2 * np.pi, 9)[:-1]
    radii = np.where(np.arange(8) % 2, 0.3, 0.5)
    corners = np.stack([np.cos(angles) * width, np.sin(angles) * height], 1)
    corners = corners * radii[:, None] + (x + width / 2, y + height / 2)
    return [corners.ravel().tolist()]


@pytest.fixture(scope="session")
def yolo_folder(tmp_path_factory) -> Path:
    return write_boxed_folder(tmp_path_factory.mktemp("yolo")).parent


@pytest.fixture
def with_infeed():
    infeed.install("rfdetr", proof_seconds=0)
    yield
    infeed.uninstall()


def trainer_with(**changes) -> SimpleNamespace:
    """Returns what the data module reads of a trainer of Lightning."""
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    found = {"world_size": 1, "current_epoch": 0, "is_global_zero": True}
    return SimpleNamespace(
        **found | changes, strategy=strategy, accumulate_grad_batches=1
    )


@pytest.fixture
def module_of(coco_folder, tmp_path):
    """Returns a function that makes a data module, as `RFDETR.train` does."""
    loaders = []

    def make(trainer=None, folder=coco_folder, model=None, **settings):
        from rfdetr.config import RFDETRNanoConfig, TrainConfig

        model = {"resolution": 64} | (model or {})
        model = RFDETRNanoConfig(pretrain_weights=None, device="cpu", **model)
        common = {"accelerator": "cpu", "batch_size": BATCH, "num_workers": 0}
        common |= {"dataset_dir": str(folder), "output_dir": str(tmp_path)}
        module = training.RFDETRDataModule(model, TrainConfig(**common | settings))
        module.trainer = trainer or trainer_with()
        module.setup("fit")
        loaders.append(module)
        return module

    yield make
    for module in loaders:
        if hasattr(module, "_replaced"):
            module.teardown("fit")


@pytest.fixture
def loader_of(module_of):
    """Returns a function that makes the loader of a training."""
    return lambda *arguments, **settings: module_of(
        *arguments, **settings
    ).train_dataloader()


@pytest.fixture
def trainer_log(caplog):
    """Returns the log of RF-DETR, which does not reach the root logger."""
    from rfdetr.utilities.logger import get_logger

    logger = get_logger()
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger=logger.name):
        yield caplog
    logger.removeHandler(caplog.handler)


def by_image(loader) -> dict[int, tuple]:
    """Returns image and target of each sample in an epoch."""
    found = {}
    for images, targets in loader:
        for image, target in zip(images.tensors, targets, strict=True):
            arrays = {name: value.numpy().copy() for name, value in target.items()}
            found[int(target["image_id"])] = image.numpy().copy(), arrays
    return found


def ids_of(loader) -> list[list[int]]:
    """Returns the images of each batch of an epoch."""
    return [[int(one["image_id"]) for one in targets] for _, targets in loader]


@pytest.mark.parametrize("kind", ["coco", "yolo"])
def test_samples_without_augmentation_are_equal(
    loader_of, coco_folder, yolo_folder, kind
):
    folder = {"coco": coco_folder, "yolo": yolo_folder}[kind]
    settings = {"folder": folder, "model": {"resolution": 320}, **STILL}
    theirs = by_image(loader_of(**settings))
    infeed.install("rfdetr", proof_seconds=0)
    try:
        loader = loader_of(**settings)
        assert type(loader).__name__ == "RfdetrLoader"
        ours = by_image(loader)
    finally:
        infeed.uninstall()

    assert ours.keys() == theirs.keys()
    assert len(ours) == IMAGES
    for number, (image, target) in theirs.items():
        own_image, own_target = ours[number]
        # Two levels of 255, in units of the standard deviation.
        apart = np.abs(own_image - image)
        is_reduced = target["orig_size"].tolist() != own_target["orig_size"].tolist()
        assert apart.max() <= (5 if is_reduced else 2.01) / 255 / 0.224, number
        np.testing.assert_array_equal(own_target["labels"], target["labels"])
        np.testing.assert_allclose(own_target["boxes"], target["boxes"], atol=1e-5)


@pytest.mark.parametrize("kind", ["coco", "yolo", "outlined"])
def test_validations_have_equal_batches(module_of, request, kind):
    folder = request.getfixturevalue(f"{kind}_folder")
    model = {"resolution": 320, "segmentation_head": kind == "outlined"}
    settings = {"folder": folder, "model": model, "batch_size": 3}
    theirs = list(module_of(**settings).val_dataloader())
    infeed.install("rfdetr", proof_seconds=20)
    try:
        loader = module_of(**settings).val_dataloader()
    finally:
        infeed.uninstall()
    assert type(loader).__name__ == "OrderedLoader"

    # A validation ends early, and the next one begins again.
    next(iter(loader))
    for _ in range(2):
        for (images, targets), (own, own_targets) in zip(theirs, loader, strict=True):
            apart = (own.tensors - images.tensors).abs().max()
            assert apart <= 2.01 / 255 / 0.224
            assert torch.equal(own.mask, images.mask)
            for target, own_target in zip(targets, own_targets, strict=True):
                assert target.keys() == own_target.keys()
                for name, value in target.items():
                    found = own_target[name]
                    assert (found.dtype, found.shape) == (value.dtype, value.shape)
                    if name == "masks":
                        # Positions of pixels of a mask are rounded in another way.
                        assert (found != value).sum() <= 0.01 * value.numel()
                        continue
                    np.testing.assert_allclose(
                        found, value, rtol=1e-4, atol=1e-5, err_msg=name
                    )


def test_processes_share_a_validation(with_infeed, module_of, monkeypatch):
    whole = [*chain.from_iterable(ids_of(module_of().val_dataloader()))]
    of_ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        module = module_of(trainer_with(world_size=2), batch_size=3)
        of_ranks.append(ids_of(module.val_dataloader()))

    steps = list(zip(*of_ranks, strict=True))
    joined = [number for one, other in steps for number in one + other]
    assert joined[: len(whole)] == whole
    assert all(len(one) == len(other) for one, other in steps)


def test_a_training_validates_and_tests_its_model(
    with_infeed, coco_folder, tmp_path, trainer_log, monkeypatch
):
    from infeed.trainers.rfdetr import OrderedLoader

    seen = []
    iterate = OrderedLoader.iterate

    def count(self, epoch):
        for batch in iterate(self, epoch):
            seen.append(len(batch[1]))
            yield batch

    monkeypatch.setattr(OrderedLoader, "iterate", count)
    train(coco_folder, tmp_path, epochs=1, eval_interval=1)

    assert sum(seen) >= 8
    assert "stay with RF-DETR" not in trainer_log.text


def test_a_batch_has_the_layout_of_rfdetr(loader_of):
    images, targets = next(iter(loader_of()))
    infeed.install("rfdetr", proof_seconds=0)
    try:
        own_images, own_targets = next(iter(loader_of()))
    finally:
        infeed.uninstall()

    assert type(own_images) is type(images)
    assert type(own_targets) is type(targets)
    for name in ("tensors", "mask"):
        one, other = getattr(images, name), getattr(own_images, name)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert own_images.no_padding == images.no_padding
    assert not own_images.mask.any()
    for theirs, ours in zip(targets, own_targets, strict=True):
        assert theirs.keys() == ours.keys()
        for name, value in theirs.items():
            assert (ours[name].dtype, ours[name].ndim) == (value.dtype, value.ndim)


def test_targets_are_padded_as_rfdetr_pads_them(with_infeed, loader_of):
    _, targets = next(iter(loader_of(pad_targets_to=7, pack_targets=False)))

    assert isinstance(targets, tuple)
    for target in targets:
        assert target["boxes"].shape == (7, 4)
        assert target["valid"].dtype == torch.bool


@pytest.mark.parametrize("kind", ["coco", "yolo", "outlined"])
def test_augmented_samples_have_equal_distributions(module_of, request, kind):
    folder = request.getfixturevalue(f"{kind}_folder")
    model = {"segmentation_head": kind == "outlined"}
    read = read_rfdetr(module_of(folder=folder, model=model)._dataset_train)

    found = compare(read.dataset, read.records, 16, limits_s=None)

    assert found.is_random
    assert found.problems == ()
    assert found.draws == 32
    assert {one.title for one in found.comparisons} >= {
        "number of boxes",
        "mean of column 3 minus column 1 of boxes",
    }


def test_an_epoch_has_each_image_once_and_another_order(with_infeed, loader_of):
    trainer = trainer_with()
    loader = loader_of(trainer)

    first = ids_of(loader)
    trainer.current_epoch = 1
    second = ids_of(loader)

    assert len(loader) == len(first) == IMAGES // BATCH
    joined = [sorted(chain.from_iterable(epoch)) for epoch in (first, second)]
    assert joined[0] == joined[1] == list(range(10, 10 + IMAGES))
    assert first != second


@pytest.mark.parametrize(("batch", "samples"), [(3, 42), (16, 80)])
def test_samples_are_repeated_to_fill_the_steps(with_infeed, loader_of, batch, samples):
    """RF-DETR fills the last step, and repeats a small dataset to five steps."""
    found = [*chain.from_iterable(ids_of(loader_of(batch_size=batch)))]

    counts = np.unique(found, return_counts=True)[1]
    assert len(found) == samples
    assert len(counts) == IMAGES
    assert counts.max() == 2


@pytest.mark.parametrize("batch", [BATCH, 2 * BATCH])
def test_a_restored_loader_continues_after_the_batch(with_infeed, loader_of, batch):
    """A training on more GPUs has larger batches in all."""
    trainer = trainer_with(current_epoch=1)
    whole = loader_of(trainer)
    expected = [*chain.from_iterable(ids_of(whole))]
    batches = iter(whole)
    for _ in range(2):
        next(batches)
    state = json.loads(json.dumps(whole.state_dict()))

    restored = loader_of(trainer, batch_size=batch)
    restored.load_state_dict(state)

    assert [*chain.from_iterable(ids_of(restored))] == expected[2 * BATCH :]
    trainer.current_epoch = 2
    assert len(ids_of(restored)) == IMAGES // batch


def test_ranks_share_an_epoch(with_infeed, loader_of, monkeypatch):
    whole = ids_of(loader_of(batch_size=2 * BATCH))
    of_ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        of_ranks.append(ids_of(loader_of(trainer_with(world_size=2))))

    assert [one + other for one, other in zip(*of_ranks, strict=True)] == whole


@pytest.mark.parametrize(
    ("settings", "model", "reason"),
    [
        ({"multi_scale": "per-sample"}, {}, "its images differ in size"),
        ({"square_resize_div_64": False}, {}, "its images differ in size"),
    ],
)
def test_other_augmentation_stays_with_rfdetr_and_is_named(
    with_infeed, loader_of, trainer_log, settings, model, reason
):
    loader = loader_of(model=model, **settings)

    assert type(loader).__name__ == "DataLoader"
    assert f"infeed: batches stay with RF-DETR: {reason}" in trainer_log.text


def test_other_masks_stay_with_rfdetr(
    with_infeed, module_of, outlined_folder, yolo_folder, tmp_path, trainer_log
):
    folder = tmp_path / "few"
    shutil.copytree(outlined_folder, folder)
    path = folder / "train" / "_annotations.coco.json"
    content = json.loads(path.read_text())
    kept = next(one for one in content["annotations"] if not one["iscrowd"])
    kept["segmentation"] = [[1.0, 1.0, 9.0, 9.0]]
    path.write_text(json.dumps(content))
    model = {"segmentation_head": True}

    for dataset in (folder, yolo_folder):
        loader = module_of(folder=dataset, model=model).train_dataloader()
        assert type(loader).__name__ == "DataLoader"

    assert ".jpg has less than three corners" in trainer_log.text
    assert "its samples have masks of YOLO" in trainer_log.text


def test_the_original_loader_comes_back(loader_of, monkeypatch):
    infeed.install("rfdetr", proof_seconds=0)
    monkeypatch.setenv("INFEED_TRAINERS", "off")
    assert type(loader_of()).__name__ == "DataLoader"
    monkeypatch.delenv("INFEED_TRAINERS")
    assert type(loader_of()).__name__ == "RfdetrLoader"

    infeed.uninstall("rfdetr")

    assert type(loader_of()).__name__ == "DataLoader"


def test_decoded_images_are_kept_on_request(loader_of):
    infeed.install("rfdetr", proof_seconds=0, cache="1GiB")
    try:
        trainer = trainer_with()
        loader = loader_of(trainer)
        for trainer.current_epoch in range(3):
            ids_of(loader)
        hits = loader._open().loader.stats()["cache"]["hits"]
    finally:
        infeed.uninstall()

    assert hits > 0


def test_batches_stay_if_the_samples_differ(loader_of, trainer_log, monkeypatch):
    def find_difference(*arguments, **options):
        return Equivalence(1, False, 1.0, 1.0, ("values differ",), ())

    monkeypatch.setattr("infeed.trainers.loader.compare", find_difference)
    infeed.install("rfdetr", proof_seconds=1)
    try:
        loader = loader_of()
    finally:
        infeed.uninstall()

    assert type(loader).__name__ == "DataLoader"
    assert "stay with RF-DETR: the samples of infeed differ" in trainer_log.text


def test_a_report_compares_samples_and_rates(loader_of, trainer_log):
    infeed.install("rfdetr", proof_seconds=6)
    try:
        list(loader_of())
    finally:
        infeed.uninstall()

    assert "RandomSelect" in trainer_log.text
    assert (
        "proof: 40 samples: equal boxes, labels, shapes and types" in trainer_log.text
    )
    assert "mean of column 3 minus column 1 of boxes" in trainer_log.text
    assert "samples/s instead of" in trainer_log.text


def test_adopt_reads_files_without_python(loader_of):
    adopted = infeed.adopt(loader_of(batch_size=3), samples=12, seconds=None)

    assert all(finding.became for finding in adopted.findings[:7])
    assert adopted.equivalence.problems == ()
    assert "rfdetr_source(dataset)" in adopted.code
    exec(adopted.code, dict(adopted.variables))


def train(folder: Path, output: Path, **settings) -> None:
    """Trains a small model without weights."""
    model = rfdetr.RFDETRNano(
        pretrain_weights=None, device="cpu", resolution=64, **SMALL
    )
    common = {"dataset_dir": str(folder), "output_dir": str(output), "device": "cpu"}
    common |= {"batch_size": 8, "num_workers": 0, "tensorboard": False}
    common |= {"multi_scale": "off", "use_ema": False, "compute_val_loss": False}
    model.train(**common | {"eval_interval": 10**6, "run_test": False} | settings)


def test_a_resumed_training_has_the_batches_of_its_epoch(
    with_infeed, coco_folder, tmp_path, monkeypatch, trainer_log
):
    from infeed.trainers.rfdetr import RfdetrLoader

    seen = []
    iterate = RfdetrLoader.__iter__

    def record(self):
        for batch in iterate(self):
            seen.append([int(one["image_id"]) for one in batch[1]])
            yield batch

    monkeypatch.setattr(RfdetrLoader, "__iter__", record)
    train(coco_folder, tmp_path / "whole", epochs=2)
    whole, seen[:] = list(seen), []
    assert trainer_log.text.count("infeed: a step of the first epoch took") == 1

    train(coco_folder, tmp_path / "part", epochs=1)
    last = tmp_path / "part" / "last.ckpt"
    train(coco_folder, tmp_path / "part", epochs=2, resume=str(last))

    assert len(whole) == 10
    assert seen == whole


DISTRIBUTED = """
import os
import sys
import infeed
from infeed.trainers.rfdetr import RfdetrLoader
import test_rfdetr

if __name__ == "__main__":
    infeed.install("rfdetr", proof_seconds=0)
    iterate = RfdetrLoader.__iter__
    folder, output, seen = map(test_rfdetr.Path, sys.argv[1:])

    def record(self):
        for batch in iterate(self):
            with open(seen / str(os.getpid()), "a") as file:
                print([int(one["image_id"]) for one in batch[1]], file=file)
            yield batch

    RfdetrLoader.__iter__ = record
    test_rfdetr.train(folder, output, epochs=1, batch_size=4, devices=2, strategy="ddp")
"""


def test_processes_of_a_distributed_training_share_an_epoch(coco_folder, tmp_path):
    (script := tmp_path / "distributed.py").write_text(DISTRIBUTED)
    (seen := tmp_path / "seen").mkdir()
    # The script uses the function of this file that trains.
    paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))

    run = subprocess.run(
        [sys.executable, script, coco_folder, tmp_path / "output", seen],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )

    assert run.returncode == 0, run.stderr
    of_ranks = [
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in seen.iterdir()
    ]
    assert [len(batches) for batches in of_ranks] == [5, 5]
    found = chain.from_iterable(chain.from_iterable(of_ranks))
    assert sorted(found) == list(range(10, 10 + IMAGES))
