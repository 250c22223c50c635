"""Trainings of Ultralytics with the batches of infeed."""

import functools
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from boxed_folder import write_boxed_folder, write_class_folder

import infeed
from infeed.adopting.equivalence import Equivalence, compare
from infeed.adopting.listed_datasets import read_ultralytics
from infeed.adopting.yolo_datasets import read_yolo
from infeed.trainers.loader import TrainerLoader

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")

# No random change of an image or a box.
STILL = {
    **dict.fromkeys(("mosaic", "translate", "scale", "fliplr"), 0.0),
    **dict.fromkeys(("hsv_h", "hsv_s", "hsv_v"), 0.0),
}
BATCH = 8
# The suffix of the model for each task.
TASKS = {"detect": "", "segment": "-seg", "pose": "-pose", "obb": "-obb"}
SUFFIXES = TASKS | {"classify": "-cls"}


@pytest.fixture(scope="session", autouse=True)
def settings(tmp_path_factory):
    """Ultralytics writes its settings into a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("settings")))
        # Training needs no network.
        patch.setenv("YOLO_OFFLINE", "true")
        yield pytest.importorskip("ultralytics")


@pytest.fixture(scope="session")
def boxed_images(tmp_path_factory):
    """Returns the `data.yaml` of a small dataset."""
    return write_boxed_folder(tmp_path_factory.mktemp("boxed"))


@pytest.fixture(scope="session")
def data_of(tmp_path_factory):
    """Returns a function that returns the `data.yaml` of a dataset for a task."""

    @functools.cache
    def write(task):
        if task == "classify":
            return write_class_folder(tmp_path_factory.mktemp(task))
        return write_boxed_folder(tmp_path_factory.mktemp(task), task)

    return write


@pytest.fixture
def with_infeed(settings):
    infeed.install("ultralytics", proof_seconds=0)
    yield
    infeed.uninstall()


@pytest.fixture
def trainer_of(data_of, tmp_path):
    """Returns a function that makes a trainer, as `YOLO.train` does."""
    made = []

    def make(task="detect", **overrides):
        from ultralytics import YOLO

        suffix = SUFFIXES[task]
        settings = {
            "model": f"yolo11n{suffix}.yaml",
            "data": str(data_of(task)),
            "imgsz": 96,
            "batch": BATCH,
            "epochs": 4,
            "workers": 0,
            "device": "cpu",
            "plots": False,
            "val": False,
            "amp": False,
            "pretrained": False,
            "project": str(tmp_path),
        }
        kind = YOLO(settings["model"]).task_map[task]["trainer"]
        trainer = kind(overrides=settings | overrides)
        trainer._setup_train()
        made.append(trainer)
        return trainer

    yield make
    for trainer in made:
        for loader in (trainer.train_loader, trainer.test_loader):
            loader.close()


@pytest.fixture
def trainer_log(settings, caplog):
    """Returns the log of Ultralytics, which does not reach the root logger."""
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger="ultralytics"):
        yield caplog
    logger.removeHandler(caplog.handler)


def by_file(loader) -> dict[str, dict[str, np.ndarray]]:
    """Returns the arrays of each file in an epoch: rows of the image, and of boxes."""
    found = {}
    for batch in loader:
        for row, file in enumerate(batch["im_file"]):
            own = batch["batch_idx"] == row
            images = {"img", "masks", "sem_masks"} & batch.keys()
            boxes = {"cls", "bboxes", "keypoints"} & batch.keys()
            found[file] = {name: batch[name][row].numpy().copy() for name in images}
            found[file] |= {name: batch[name][own].numpy() for name in boxes}
    return found


def names_of(batch) -> dict[str, object]:
    """Returns the type of each part of a batch."""
    return {
        name: part.dtype if isinstance(part, torch.Tensor) else type(part)
        for name, part in batch.items()
    }


def records_of(loader, epoch: int) -> list[tuple]:
    """Returns files and pixels of an epoch."""
    loader._trainer.epoch = epoch
    return [(batch["im_file"], batch["img"].numpy().tobytes()) for batch in loader]


def test_a_training_ends_with_a_model(with_infeed, boxed_images, tmp_path, trainer_log):
    from ultralytics import YOLO

    model = YOLO("yolo11n.yaml")
    model.train(
        data=str(boxed_images),
        **{"imgsz": 64, "batch": BATCH, "epochs": 2, "close_mosaic": 1, "workers": 0},
        **{"device": "cpu", "plots": False, "amp": False, "pretrained": False},
        project=str(tmp_path),
        name="run",
    )

    assert type(model.trainer).__module__ == "infeed.trainers.ultralytics"
    assert type(model.trainer.train_loader).__name__ == "YoloLoader"
    assert (tmp_path / "run" / "weights" / "last.pt").is_file()
    assert trainer_log.text.count("infeed: a step of the first epoch took") == 1


@pytest.fixture
def loaders_of(settings, trainer_of):
    """Returns a function that makes the loader of Ultralytics, and that of infeed."""

    def make(*arguments, of="train_loader", **overrides):
        theirs = getattr(trainer_of(*arguments, **overrides), of)
        infeed.install("ultralytics", proof_seconds=0)
        try:
            return theirs, getattr(trainer_of(*arguments, **overrides), of)
        finally:
            infeed.uninstall()

    return make


@pytest.mark.parametrize("task", TASKS)
def test_samples_without_augmentation_are_equal(loaders_of, task):
    check_files(*map(by_file, loaders_of(task, **STILL)), task)


def check_files(theirs, ours, task):
    """Compares the samples of two loaders by their files."""
    assert ours.keys() == theirs.keys()
    for file, expected in theirs.items():
        found = ours[file]
        assert found.keys() == expected.keys()
        assert found["img"].shape == expected["img"].shape, file
        # Positions of pixels are rounded to 1/2048 by OpenCV.
        apart = np.abs(found["img"].astype(int) - expected["img"].astype(int))
        assert apart.max() <= 2, file
        np.testing.assert_array_equal(found["cls"], expected["cls"])
        if task == "obb":
            check_rotated(found["bboxes"], expected["bboxes"])
        else:
            # A box begins at the left edge of the resized image, whose side is rounded.
            np.testing.assert_allclose(
                found["bboxes"], expected["bboxes"], atol=1.0 / 96
            )
        if task == "segment":
            check_masks(found["masks"], expected["masks"])
            check_masks(found["sem_masks"], expected["sem_masks"])
        if task == "pose":
            visible = expected["keypoints"][..., 2] > 0
            np.testing.assert_array_equal(found["keypoints"][..., 2] > 0, visible)
            np.testing.assert_allclose(
                found["keypoints"][visible],
                expected["keypoints"][visible],
                atol=1.0 / 96,
            )


# Batches of images with different shapes.
SHAPED = {
    "validation": {"of": "test_loader", "batch": 2},
    "rect": {"rect": True, "batch": 4, **STILL},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("case", SHAPED)
def test_batches_of_different_shapes_are_equal(loaders_of, task, case):
    original, loader = loaders_of(task, **SHAPED[case])
    assert isinstance(loader, TrainerLoader)

    check_files(by_file(original), by_file(loader), task)
    shapes = set()
    # A loader repeats its order.
    for theirs, ours in zip(original, loader, strict=True):
        # A batch that has an image without objects has masks of floats.
        assert ours.keys() == theirs.keys() - {"rect_shape"}
        shapes.add(ours["img"].shape[2:])
        for name in ("im_file", "ori_shape"):
            assert ours[name] == theirs[name]
        assert ours["resized_shape"] == tuple(map(tuple, theirs["resized_shape"]))
        for own, expected in zip(ours["ratio_pad"], theirs["ratio_pad"], strict=True):
            np.testing.assert_allclose(own[0], expected[0])
            assert own[1] == expected[1]
    assert len(shapes) > 1
    read = read_yolo(loader.dataset)
    found = compare(read.dataset, read.records, 24, limits_s=None)
    assert (found.problems, found.is_random) == ((), False)


@pytest.mark.parametrize("task", TASKS)
def test_augmented_samples_of_different_shapes_have_equal_distributions(
    with_infeed, trainer_of, task
):
    loader = trainer_of(task, rect=True, degrees=10.0, batch=4).train_loader
    read = read_yolo(loader.dataset)

    found = compare(read.dataset, read.records, 24, limits_s=None)

    assert found.problems == ()
    assert found.is_random
    first, again, next_epoch = (records_of(loader, epoch) for epoch in (0, 0, 1))
    assert first == again
    files, other = ([files for files, _ in epoch] for epoch in (first, next_epoch))
    assert files == other
    assert first != next_epoch


def check_rotated(found, expected):
    """Compares rotated boxes: shares of the image, and angles."""
    np.testing.assert_allclose(found[:, :4], expected[:, :4], atol=1.5 / 96)
    # Angles repeat after half a turn; that of a square does after a quarter.
    turns = np.abs(found[:, 4] - expected[:, 4])
    is_square = np.abs(expected[:, 2] / expected[:, 3] - 1) < 0.2
    np.testing.assert_allclose(np.sin(turns)[~is_square], 0, atol=0.05)


def check_masks(found, expected):
    """Compares maps of objects, whose edges Ultralytics draws from rounded corners."""
    apart = found != expected
    assert apart.mean() < 0.02
    # A pixel that differs has the value of one next to it.
    padded = np.pad(expected, 1, mode="edge")
    height, width = expected.shape
    around = [
        padded[down : down + height, right : right + width] == found
        for down in range(3)
        for right in range(3)
    ]
    assert np.any(around, axis=0).all()


def test_boxes_of_detectors_follow_outlines(loaders_of, data_of):
    data = {"data": str(data_of("segment"))}
    theirs, ours = map(by_file, loaders_of(**STILL | data))

    for file, expected in theirs.items():
        np.testing.assert_allclose(
            ours[file]["bboxes"], expected["bboxes"], atol=1.0 / 96
        )
    _, loader = loaders_of(degrees=30.0, **data)
    read = read_yolo(loader.dataset)
    assert 'outlines="outlines"' in repr(read.records)
    assert compare(read.dataset, read.records, 24, limits_s=None).problems == ()


@pytest.mark.parametrize("task", TASKS)
def test_a_batch_has_the_layout_of_ultralytics(loaders_of, task):
    original, loader = loaders_of(task)
    theirs, ours = next(iter(original)), next(iter(loader))

    assert names_of(ours) == names_of(theirs)
    for name in {"img", "masks", "sem_masks"} & ours.keys():
        assert ours[name].shape == theirs[name].shape
    for name in {"bboxes", "keypoints"} & ours.keys():
        assert ours[name].shape[1:] == theirs[name].shape[1:]
    assert len(ours["ratio_pad"]) == len(ours["ori_shape"]) == BATCH
    assert loader.num_workers == 0
    assert loader.batch_size == BATCH


@pytest.mark.parametrize("task", TASKS)
def test_augmented_samples_have_equal_distributions(with_infeed, trainer_of, task):
    dataset = trainer_of(task, degrees=20.0, flipud=0.3).train_loader.dataset
    read = read_yolo(dataset)

    found = compare(read.dataset, read.records, 24, limits_s=None)

    assert found.is_random
    assert found.problems == ()
    assert found.draws == 32


@pytest.mark.parametrize("task", TASKS)
def test_blended_and_sheared_samples_have_equal_distributions(
    with_infeed, trainer_of, task
):
    overrides = {"mixup": 0.6, "shear": 8.0, "mosaic": 0.5, "perspective": 0.001}
    read = read_yolo(trainer_of(task, **overrides).train_loader.dataset)
    assert "ImageMixUp(p=0.6)" in repr(read.records)

    found = compare(read.dataset, read.records, 24, limits_s=None)

    assert found.problems == ()


@pytest.mark.parametrize("task", ["segment", "obb"])
def test_samples_with_copies_of_objects_have_equal_distributions(
    with_infeed, trainer_of, task
):
    overrides = {"copy_paste": 0.7, "mosaic": 0.5, "mixup": 0.2}
    read = read_yolo(trainer_of(task, **overrides).train_loader.dataset)
    assert "MirroredPaste(share=0.7)" in repr(read.records)

    found = compare(read.dataset, read.records, 24, limits_s=None)

    assert found.problems == ()


def test_classifiers_take_their_batches_from_infeed(loaders_of):
    original, loader = loaders_of("classify")
    theirs, ours = next(iter(original)), next(iter(loader))

    assert type(loader).__name__ == "YoloLoader"
    assert names_of(ours) == names_of(theirs)
    assert ours["img"].shape == theirs["img"].shape
    classes = torch.cat([batch["cls"] for batch in loader]).tolist()
    assert sorted(classes) == sorted(sample[1] for sample in loader.dataset.samples)
    read = read_ultralytics(loader.dataset)
    assert "T.RandAugment" in repr(read.records)
    assert compare(read.dataset, read.records, 24, limits_s=None).problems == ()


def test_a_classifier_is_trained(with_infeed, data_of, tmp_path, trainer_log):
    from ultralytics import YOLO

    model = YOLO("yolo11n-cls.yaml")
    model.train(
        data=str(data_of("classify")),
        **{"imgsz": 64, "batch": BATCH, "epochs": 2, "workers": 0, "device": "cpu"},
        **{"plots": False, "amp": False, "pretrained": False, "cache": "disk"},
        project=str(tmp_path),
        name="run",
    )

    assert type(model.trainer.train_loader).__name__ == "YoloLoader"
    assert trainer_log.text.count("infeed: a step of the first epoch took") == 1
    assert (data_of("classify") / ".infeed-cache").is_dir()


def test_samples_without_mosaic_have_equal_distributions(with_infeed, trainer_of):
    dataset = trainer_of(mosaic=0.0).train_loader.dataset
    read = read_yolo(dataset)

    found = compare(read.dataset, read.records, 24, limits_s=None)

    assert found.problems == ()


def test_an_epoch_has_each_image_once_and_another_order(with_infeed, trainer_of):
    loader = trainer_of().train_loader

    first, second = records_of(loader, 0), records_of(loader, 1)

    files = [
        [file for batch, _ in epoch for file in batch] for epoch in (first, second)
    ]
    assert len(loader) == len(first) == 5
    assert sorted(files[0]) == sorted(files[1]) == sorted(loader.dataset.im_files)
    assert files[0] != files[1]


def test_a_resumed_training_has_the_samples_of_its_epoch(with_infeed, trainer_of):
    whole = trainer_of().train_loader
    records_of(whole, 0)
    expected = records_of(whole, 1)

    # A resumed trainer begins with the epoch after its checkpoint.
    resumed = trainer_of().train_loader

    assert records_of(resumed, 1) == expected


@pytest.mark.parametrize("images", [40, 37])
def test_ranks_share_an_epoch(with_infeed, trainer_of, monkeypatch, images):
    trainer = trainer_of(mosaic=0.0, fraction=images)
    whole = [file for files, _ in records_of(trainer.train_loader, 0) for file in files]
    of_ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        other = SimpleNamespace(args=trainer.args, world_size=2, epoch=0)
        # Ultralytics divides the batch by the number of processes.
        original = SimpleNamespace(
            dataset=trainer.train_loader.dataset,
            batch_size=BATCH // 2,
            drop_last=False,
            sampler=trainer.train_loader.sampler,
        )
        loader = type(trainer.train_loader)(
            other, original, trainer.train_loader._settings
        )
        of_ranks.append([list(files) for files, _ in records_of(loader, 0)])
        loader.close()

    steps = list(zip(*of_ranks, strict=True))
    joined = [file for parts in steps for part in parts for file in part]
    assert len(whole) == images
    assert joined[:images] == whole
    # A last batch is as large on all ranks.
    assert all(len(one) == len(other) for one, other in steps)


@pytest.fixture
def rank_sampler(settings):
    """Returns a function that makes the sampler of a validation's second process."""
    from ultralytics.data.build import ContiguousDistributedSampler

    return functools.partial(ContiguousDistributedSampler, num_replicas=2, rank=1)


def test_a_process_validates_its_samples(with_infeed, trainer_of, rank_sampler):
    trainer = trainer_of(batch=2)
    validation = trainer.test_loader
    sampler = rank_sampler(validation.dataset, batch_size=4)
    original = SimpleNamespace(
        dataset=validation.dataset, batch_size=4, drop_last=False, sampler=sampler
    )
    loader = type(validation)(trainer, original, validation._settings)

    files = [file for batch in loader for file in batch["im_file"]]
    loader.close()

    assert type(loader).__name__ == "ValidationLoader"
    assert files == [validation.dataset.im_files[number] for number in sampler]
    assert 0 < len(files) < len(validation.dataset)
    # One batch is too few for two processes.
    original.sampler = rank_sampler(validation.dataset, batch_size=12)
    original.sampler.num_batches = 1
    found = trainer._replace(original, validation._settings, False, is_first=False)
    assert found == "this process has no sample"


def test_shaped_batches_of_several_processes_stay(
    with_infeed, trainer_of, rank_sampler
):
    trainer = trainer_of(rect=True)
    dataset = trainer.train_loader.dataset
    original = SimpleNamespace(dataset=dataset, sampler=rank_sampler(dataset))

    made = trainer._replace(original, None, is_training=True, is_first=True)

    assert made == "rect=True on several GPUs"


@pytest.mark.parametrize("task", SUFFIXES)
def test_a_validation_has_equal_results(settings, trainer_of, task):
    def validate(trainer):
        trainer.epoch = 0
        trainer.ema.ema.load_state_dict(weights)
        batch = trainer.preprocess_batch(next(iter(trainer.train_loader)))
        _, trainer.loss_items = trainer.model(batch)
        return trainer.validator(trainer)

    own = trainer_of(task, batch=2)
    weights = own.ema.ema.state_dict()
    expected = validate(own)
    infeed.install("ultralytics", proof_seconds=0)
    try:
        trainer = trainer_of(task, batch=2)
    finally:
        infeed.uninstall()
    assert type(trainer.test_loader).__name__ == "ValidationLoader"

    # A second validation has the same samples.
    for _ in range(2):
        found = validate(trainer)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=0.02, abs=0.005), name


@pytest.mark.parametrize("task", SUFFIXES)
def test_a_validation_without_training_has_equal_results(
    settings, data_of, task, tmp_path, trainer_log
):
    from ultralytics import YOLO

    torch.manual_seed(0)
    model = YOLO(f"yolo11n{SUFFIXES[task]}.yaml")

    def validate():
        found = model.val(
            data=str(data_of(task)),
            **{"imgsz": 96, "batch": 4, "device": "cpu", "plots": False},
            project=str(tmp_path),
        )
        return found.results_dict

    expected = validate()
    infeed.install("ultralytics", proof_seconds=5)
    try:
        found = validate()
    finally:
        infeed.uninstall()

    assert "makes the batches of this validation" in trainer_log.text
    assert re.search(r"proof: (9|12) samples: equal", trainer_log.text)
    assert "stay with Ultralytics" not in trainer_log.text
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0.05, abs=0.01), name


def test_the_last_epochs_have_no_mosaic(with_infeed, trainer_of):
    trainer = trainer_of()
    loader = trainer.train_loader
    assert "Mosaic" in repr(loader._open().pipeline)

    trainer._close_dataloader_mosaic()
    loader.reset()

    assert "Mosaic" not in repr(loader._open().pipeline)
    assert len(list(loader)) == 5


def test_settings_of_install_are_those_of_the_loader(settings, trainer_of):
    infeed.install("ultralytics", proof_seconds=0, workers=1, memory="900MiB")
    try:
        stats = trainer_of().train_loader._open().loader.stats()
    finally:
        infeed.uninstall()

    assert stats["workers"] == 1
    assert stats["budget_bytes"] == 900 << 20


def test_decoded_images_are_kept_instead_of_the_cache_of_ultralytics(
    with_infeed, trainer_of
):
    loader = trainer_of(cache="ram", mosaic=0.0).train_loader
    for epoch in range(3):
        records_of(loader, epoch)

    assert loader.dataset.cache is None
    assert loader._open().loader.stats()["cache"]["hits"] > 0


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (
            {"task": "segment", "copy_paste": 0.1, "copy_paste_mode": "mixup"},
            "copy_paste_mode=mixup",
        ),
        ({"task": "segment", "overlap_mask": False}, "overlap_mask=False"),
        ({"task": "segment", "mask_ratio": 5}, "mask_ratio=5"),
        ({"cutmix": 0.1}, "cutmix=0.1"),
        ({"task": "classify", "fraction": 0.5}, "its list of samples was changed"),
        ({"bgr": 0.5}, "bgr=0.5"),
    ],
)
def test_other_augmentation_stays_with_ultralytics_and_is_named(
    with_infeed, trainer_of, trainer_log, argument, reason
):
    loader = trainer_of(**argument).train_loader

    assert type(loader).__name__ == "InfiniteDataLoader"
    assert "infeed: batches stay with Ultralytics: " in trainer_log.text
    assert reason in trainer_log.text


def test_the_original_loader_comes_back(settings, trainer_of, monkeypatch):
    infeed.install("ultralytics", proof_seconds=0)
    monkeypatch.setenv("INFEED_TRAINERS", "off")
    assert type(trainer_of().train_loader).__name__ == "InfiniteDataLoader"
    monkeypatch.delenv("INFEED_TRAINERS")
    assert type(trainer_of().train_loader).__name__ == "YoloLoader"

    infeed.uninstall("ultralytics")

    assert type(trainer_of().train_loader).__name__ == "InfiniteDataLoader"


def test_processes_of_a_distributed_training_use_infeed(
    with_infeed, boxed_images, tmp_path
):
    from ultralytics.models.yolo import detect
    from ultralytics.utils.dist import ddp_cleanup, generate_ddp_file
    from ultralytics.utils.patches import torch_load

    overrides = {"model": "yolo11n.yaml", "data": str(boxed_images), "device": "cpu"}
    trainer = detect.DetectionTrainer(overrides=overrides | {"project": str(tmp_path)})
    path = Path(generate_ddp_file(trainer))
    try:
        state = torch_load(path.with_suffix(".pt"), map_location="cpu")
    finally:
        ddp_cleanup(trainer, str(path))

    assert state["trainer"].__module__ == "infeed.trainers.ultralytics"


def test_a_report_compares_samples_and_rates(settings, trainer_of, trainer_log):
    infeed.install("ultralytics", proof_seconds=6)
    try:
        trainer_of()
    finally:
        infeed.uninstall()

    assert "Mosaic" in trainer_log.text
    assert (
        "proof: 40 samples: equal boxes, labels, shapes and types" in trainer_log.text
    )
    assert "samples/s instead of" in trainer_log.text


def test_batches_stay_if_the_samples_differ(
    settings, trainer_of, trainer_log, monkeypatch
):
    def find_difference(*arguments, **options):
        return Equivalence(1, False, 1.0, 1.0, ("values differ",), ())

    monkeypatch.setattr("infeed.trainers.loader.compare", find_difference)
    infeed.install("ultralytics", proof_seconds=1)
    try:
        loader = trainer_of().train_loader
    finally:
        infeed.uninstall()

    assert type(loader).__name__ == "InfiniteDataLoader"
    assert "stay with Ultralytics: the samples of infeed differ" in trainer_log.text


def test_adopt_reads_files_without_python(settings, trainer_of):
    loader = trainer_of().train_loader

    adopted = infeed.adopt(loader, samples=12, seconds=None)

    assert all(finding.became for finding in adopted.findings[:6])
    assert adopted.equivalence.problems == ()
    assert "yolo_source(dataset)" in adopted.code
    exec(adopted.code, dict(adopted.variables))
