"""Loaders as the documentation of libraries shows them, adopted and compared.

Sizes are smaller than those of the recipes. Every test compares labels, boxes or masks
and pixels of the samples: see `infeed.adopting.compare_samples`.
"""

import csv
import os
import re

import numpy as np
import pytest
from adopted_code import run_code
from PIL import Image
from recipes import (
    write_classes,
    write_coco,
    write_mnist,
    write_voc,
)
from requirements import framework_test, import_or_skip

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.adopting import equivalence
from infeed.adopting.equivalence import compare
from infeed.adopting.recognize import recognize

os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
torch = import_or_skip("torch")
torchvision = import_or_skip("torchvision")
pytestmark = [*framework_test, pytest.mark.usefixtures("few_draws")]

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    random_split,
)
from torchvision import datasets, tv_tensors  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BILINEAR = v1.InterpolationMode.BILINEAR
SAMPLES = 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    write_classes(root, 36)
    return root


def adopt(loader) -> infeed.adopting.Adoption:
    """Adopts a loader without measuring it.

    Its samples must be equivalent, and its code must run.
    """
    adopted = infeed.adopt(loader, samples=SAMPLES, seconds=None)
    assert adopted.equivalence.is_equivalent, adopted.report
    run_code(adopted)
    return adopted


def in_python(adopted: infeed.adopting.Adoption) -> list[str]:
    return [found.part for found in adopted.findings if found.became is None]


# torchvision: references/classification.


def test_the_training_preset_of_torchvision_classification(photos):
    preset = v2.Compose(
        [
            v2.RandomResizedCrop(64, interpolation=BILINEAR, antialias=True),
            v2.RandomHorizontalFlip(0.5),
            v2.TrivialAugmentWide(interpolation=BILINEAR),
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize(mean=MEAN, std=STD),
            v2.RandomErasing(p=0.1),
            v2.ToPureTensor(),
        ]
    )
    dataset = datasets.ImageFolder(photos, preset)
    adopted = adopt(
        DataLoader(
            dataset, batch_size=12, sampler=RandomSampler(dataset), num_workers=0
        )
    )

    assert in_python(adopted) == []
    assert adopted.equivalence.is_random


def test_the_evaluation_preset_of_torchvision_classification(photos):
    preset = v1.Compose(
        [
            v1.Resize(72, interpolation=BILINEAR, antialias=True),
            v1.CenterCrop(64),
            v1.PILToTensor(),
            v1.ConvertImageDtype(torch.float),
            v1.Normalize(mean=MEAN, std=STD),
        ]
    )
    dataset = datasets.ImageFolder(photos, preset)
    loader = DataLoader(dataset, batch_size=12, sampler=SequentialSampler(dataset))
    adopted = adopt(loader)

    assert in_python(adopted) == []
    for (images, labels), (own, own_labels) in zip(
        loader, adopted.loader(), strict=True
    ):
        assert torch.equal(labels, own_labels)
        torch.testing.assert_close(images, own, rtol=0, atol=0.03)


# torchvision: references/segmentation.


@pytest.fixture(scope="module")
def voc(tmp_path_factory):
    root = tmp_path_factory.mktemp("voc")
    write_voc(root, 16)
    return root


def segmentation(voc, part, *steps):
    dataset = datasets.VOCSegmentation(
        voc, image_set=part, transforms=v2.Compose([*steps])
    )
    dataset = datasets.wrap_dataset_for_transforms_v2(dataset)
    return DataLoader(dataset, batch_size=4, shuffle=part == "train", drop_last=True)


TO_TENSORS = (
    v2.PILToTensor(),
    v2.ToDtype(
        {torch.Tensor: torch.float32, tv_tensors.Mask: torch.int64, "others": None},
        scale=True,
    ),
    v2.Normalize(mean=MEAN, std=STD),
    v2.ToPureTensor(),
)


def test_the_training_preset_of_torchvision_segmentation(voc):
    loader = segmentation(
        voc,
        "train",
        v2.RandomResize(min_size=32, max_size=96),
        v2.RandomHorizontalFlip(0.5),
        v2.RandomCrop(48, pad_if_needed=True, fill={tv_tensors.Mask: 255, "others": 0}),
        *TO_TENSORS,
    )
    adopted = adopt(loader)

    assert in_python(adopted) == []
    assert "tuple(range(32, 96))" in adopted.code
    assert "mask_fill=255" in adopted.code
    images, masks = next(iter(adopted.loader()))
    assert images.shape == (4, 3, 48, 48)
    assert (masks.shape, masks.dtype) == ((4, 48, 48), torch.int64)


def test_the_evaluation_preset_of_torchvision_segmentation(voc):
    steps = (v2.RandomResize(min_size=48, max_size=49), v2.CenterCrop(48), *TO_TENSORS)
    adopted = adopt(segmentation(voc, "val", *steps))

    assert in_python(adopted) == []
    assert not adopted.equivalence.is_random
    assert adopted.equivalence.fields == ("image", "mask")


# torchvision: references/detection.


class GroupedBatchSampler(BatchSampler):
    """Batches of images with similar aspect ratios, as the reference has it."""

    def __init__(self, sampler, batch_size):
        super().__init__(sampler, batch_size, drop_last=False)


DETECTION = {
    "hflip": (v2.RandomHorizontalFlip(p=0.5),),
    "multiscale": (
        v2.RandomShortestSize(min_size=(48, 64, 80), max_size=120),
        v2.RandomHorizontalFlip(p=0.5),
    ),
    "ssd": (
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill=[123.0, 117.0, 104.0]),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(p=0.5),
    ),
    "evaluation": (),
}


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    root = tmp_path_factory.mktemp("coco")
    return root, write_coco(root, 32)


@pytest.mark.parametrize("preset", DETECTION)
def test_the_presets_of_torchvision_detection(coco, preset):
    root, annotations = coco
    steps = [
        *DETECTION[preset],
        v2.PILToTensor(),
        v2.ToDtype(torch.float, scale=True),
        v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
        v2.SanitizeBoundingBoxes(),
        v2.ToPureTensor(),
    ]
    dataset = datasets.CocoDetection(
        root / "images", annotations, transforms=v2.Compose(steps)
    )
    dataset = datasets.wrap_dataset_for_transforms_v2(
        dataset, target_keys=("boxes", "labels", "image_id")
    )
    # The reference leaves out images without boxes.
    with_boxes = [n for n in range(len(dataset)) if n % 4]
    dataset = Subset(dataset, with_boxes)
    adopted = adopt(
        DataLoader(
            dataset,
            batch_sampler=GroupedBatchSampler(RandomSampler(dataset), 2),
            collate_fn=lambda batch: tuple(zip(*batch, strict=True)),
        )
    )

    assert in_python(adopted) == []
    assert {"image", "boxes", "labels", "image_id"} == set(adopted.equivalence.fields)
    assert "GroupedBatchSampler" in adopted.report
    batch = next(iter(adopted.loader()))
    assert batch["image"].shape[:2] == (2, 3)
    boxes, offsets = batch["boxes"]
    assert boxes.shape[1] == 4
    assert len(offsets) == 3


def test_a_folder_of_coco_without_the_wrapper(coco):
    root, annotations = coco
    chain = v1.Compose([v1.ColorJitter(0.2), v1.ToTensor()])
    dataset = datasets.CocoDetection(root / "images", annotations, transform=chain)
    adopted = adopt(DataLoader(dataset, batch_size=2, collate_fn=list))

    assert in_python(adopted) == []
    assert adopted.equivalence.fields == ("image", "boxes", "labels")
    # Such a chain moves the image, and the boxes stay.
    dataset.transforms.transform.transforms.insert(0, v1.Resize((48, 48)))
    adopted = adopt(DataLoader(dataset, batch_size=2, collate_fn=list))
    assert in_python(adopted) == ["Resize", "ColorJitter", "ToTensor"]
    assert "it moves the image, and not its boxes" in adopted.report


def test_an_unknown_step_of_detection_is_called_with_the_boxes(coco):
    class Shift(v2.Transform):
        """Moves the image and its boxes 5 pixels to the right."""

        def forward(self, image, target):
            matrix = {"angle": 0.0, "translate": [5, 0], "scale": 1.0, "shear": 0.0}
            moved = v2.functional.affine(image, **matrix)
            boxes = v2.functional.affine(target["boxes"], **matrix)
            return moved, {**target, "boxes": boxes}

    root, annotations = coco
    chain = v2.Compose([v2.ToImage(), v2.Resize((64, 64)), Shift()])
    dataset = datasets.CocoDetection(root / "images", annotations, transforms=chain)
    dataset = Subset(datasets.wrap_dataset_for_transforms_v2(dataset), [1, 2, 3, 5, 6])
    adopted = adopt(DataLoader(dataset, batch_size=2, collate_fn=list))

    assert in_python(adopted) == ["Shift"]


# timm: timm.data.create_loader, as its training script calls it.


@pytest.mark.parametrize("prefetches", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_a_loader_of_timm(photos, prefetches, trains):
    from timm.data import create_dataset, create_loader

    dataset = create_dataset("", root=str(photos), is_training=trains)
    options = {"scale": (0.3, 1.0), "hflip": 0.5} if trains else {"crop_pct": 0.9}
    loader = create_loader(
        dataset,
        input_size=(3, 64, 64),
        batch_size=6,
        is_training=trains,
        use_prefetcher=prefetches,
        interpolation="bicubic",
        mean=MEAN,
        std=STD,
        num_workers=0,
        persistent_workers=False,
        device=torch.device("cpu"),
        **options,
    )
    adopted = adopt(loader)

    assert in_python(adopted) == []
    assert adopted.equivalence.is_random == trains


@pytest.mark.parametrize("prefetches", [False, True])
@pytest.mark.parametrize("mode", ["const", "pixel"])
def test_the_defaults_of_the_training_script_of_timm(photos, prefetches, mode):
    """Its defaults, with the erasing that most of its published recipes add."""
    from timm.data import create_dataset, create_loader

    loader = create_loader(
        create_dataset("", root=str(photos), is_training=True),
        input_size=(3, 64, 64),
        batch_size=6,
        is_training=True,
        use_prefetcher=prefetches,
        interpolation="random",
        color_jitter=0.4,
        hflip=0.5,
        re_prob=0.25,
        re_mode=mode,
        mean=MEAN,
        std=STD,
        num_workers=0,
        persistent_workers=False,
        device=torch.device("cpu"),
    )
    adopted = adopt(loader)

    assert in_python(adopted) == ([] if mode == "const" else ["RandomErasing"])
    assert 'interpolation=("bilinear", "bicubic")' in adopted.code
    assert "T.RandomErasing(" in adopted.code or mode == "pixel"


# Ultralytics: classification, as `yolo classify train` loads it.


def ultralytics_chain(trains: bool) -> list:
    """Returns the steps of `classify_augmentations` and `classify_transforms`."""
    last = [v1.ToTensor(), v1.Normalize((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))]
    if not trains:
        return [v1.Resize(64, interpolation=BILINEAR), v1.CenterCrop(64), *last]
    first = [
        v1.RandomResizedCrop(64, scale=(0.5, 1.0), interpolation=BILINEAR),
        v1.RandomHorizontalFlip(p=0.5),
        v1.RandAugment(interpolation=BILINEAR),
    ]
    return [*first, *last, v1.RandomErasing(p=0.4, inplace=True)]


@pytest.mark.parametrize("trains", [False, True])
def test_the_transforms_of_ultralytics_classification(photos, trains):
    """Ultralytics gives torchvision's transforms to torchvision's folder."""
    dataset = datasets.ImageFolder(photos, v1.Compose(ultralytics_chain(trains)))
    adopted = adopt(DataLoader(dataset, batch_size=16, shuffle=trains))

    assert in_python(adopted) == []


@pytest.fixture(scope="module")
def ultralytics(tmp_path_factory):
    """Imports Ultralytics, which writes its settings into a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("settings")))
        yield import_or_skip("ultralytics")


@pytest.mark.parametrize("trains", [False, True])
def test_a_loader_of_ultralytics_classification(photos, trains, ultralytics):
    from ultralytics.cfg import get_cfg
    from ultralytics.data import ClassificationDataset, build_dataloader

    settings = get_cfg(overrides={"imgsz": 64, "task": "classify"})
    dataset = ClassificationDataset(str(photos), args=settings, augment=trains)
    adopted = adopt(build_dataloader(dataset, 8, 0, shuffle=trains))

    assert in_python(adopted) == []
    assert adopted.batch_type == "dict"


@pytest.mark.parametrize("trains", [False, True])
def test_a_loader_of_ultralytics_detection(tmp_path, trains, ultralytics):
    """Samples for training and for validation are made without Python."""
    from ultralytics.cfg import get_cfg
    from ultralytics.data import build_dataloader
    from ultralytics.data.dataset import YOLODataset

    write_classes(tmp_path / "images", 12)
    files = sorted((tmp_path / "images").rglob("*.jpg"))
    for at, file in enumerate(files):
        label = file.with_suffix(".txt").as_posix().replace("/images/", "/labels/")
        os.makedirs(os.path.dirname(label), exist_ok=True)
        with open(label, "w") as to:
            to.writelines(f"{n} 0.5 0.4 0.{n + 2} 0.3\n" for n in range(at % 3))
    dataset = YOLODataset(
        img_path=str(tmp_path / "images"),
        imgsz=64,
        batch_size=4,
        augment=trains,
        hyp=get_cfg(overrides={"imgsz": 64, "task": "detect"}),
        data={"names": {0: "a", 1: "b", 2: "c"}, "channels": 3},
        task="detect",
    )

    adopted = adopt(build_dataloader(dataset, 4, 0, shuffle=trains))

    assert in_python(adopted) == []
    assert {"boxes", "labels"} <= set(adopted.equivalence.fields)
    assert adopted.equivalence.problems == ()
    # The printed code runs.
    names = {"dataset": dataset}
    exec(adopted.code, names)
    (first, *_) = names["loader"]
    assert first["image"].shape == (4, 3, 64, 64)


# Keras: image_dataset_from_directory, as its two guides of images use it.


@pytest.fixture
def keras():
    import_or_skip("tensorflow")
    return import_or_skip("keras")


def folder_of_keras(keras, root, **options):
    options = {"image_size": (40, 32), "batch_size": 8, "verbose": False, **options}
    return keras.utils.image_dataset_from_directory(str(root), **options)


def test_image_classification_from_scratch_of_keras(photos, keras):
    train, val = folder_of_keras(
        keras, photos, validation_split=0.2, subset="both", seed=1337
    )
    layers = [keras.layers.RandomFlip("horizontal"), keras.layers.RandomRotation(0.1)]

    def augment(images):
        for layer in layers:
            images = layer(images)
        return images

    train = train.map(lambda images, labels: (augment(images), labels))
    found, plain = adopt(train.prefetch(2)), adopt(val)

    assert in_python(found) == ["map(<lambda>)"]
    assert found.equivalence.is_random
    assert in_python(plain) == []
    assert 0 < plain.equivalence.largest <= 1
    assert "T.Resize((40, 32), antialias=False)" in plain.code
    assert "TensorFlow decodes JPEGs with an approximate" in plain.report
    for adopted, dataset in ((found, train), (plain, val)):
        with adopted.pipeline.open() as loader:
            records = [n for batch in loader for n, _ in batch.records]
        assert len(records) == len(set(records)) == sum(len(y) for _, y in dataset)
    # The validation files are not shuffled in the dataset.
    labels = np.concatenate([y.numpy() for _, y in val])
    own = np.concatenate([y.numpy() for _, y in plain.loader()])
    assert sorted(labels.tolist()) == sorted(own.tolist())


def test_transfer_learning_of_keras(photos, keras):
    """Labels are vectors, and a layer scales the batch."""
    scale = keras.layers.Rescaling(1 / 127.5, offset=-1)
    dataset = folder_of_keras(keras, photos, label_mode="categorical")
    dataset = dataset.map(lambda images, labels: (scale(images), labels)).cache()
    adopted = adopt(dataset.prefetch(2))

    assert in_python(adopted) == ['label_mode="categorical"', "map(<lambda>)"]
    assert adopted.equivalence.largest <= 2 / 255
    theirs, ours = next(iter(dataset)), next(iter(adopted.loader().dataset()))
    for one, other in zip(theirs, ours, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile(loss="mse")
    model.fit(adopted.loader().dataset(), verbose=0)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": False},
        {"label_mode": "binary", "class_names": ["class0", "class1"]},
        {"label_mode": None},
        {"data_format": "channels_first"},
    ],
)
def test_other_folders_of_keras(tmp_path, keras, options):
    write_classes(tmp_path, 18, ".png")
    if "class_names" in options:
        for path in (tmp_path / "class2").iterdir():
            path.unlink()
        (tmp_path / "class2").rmdir()
    adopted = adopt(folder_of_keras(keras, tmp_path, **options))

    binary = ['label_mode="binary"'] if "class_names" in options else []
    assert in_python(adopted) == binary
    assert ("shuffle(seed=0)" in adopted.code) == ("shuffle" not in options)
    assert "decode_image" not in adopted.report


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"crop_to_aspect_ratio": True}, "crops or pads to an aspect ratio"),
        ({"interpolation": "bicubic"}, "are not clipped"),
        ({"interpolation": "nearest"}, "two are equally near"),
        ({"class_names": ["class2", "class0", "class1"]}, "numbers of the folders"),
    ],
)
def test_folders_of_keras_without_a_transform_are_called_as_a_graph(
    photos, keras, options, reason
):
    adopted = adopt(folder_of_keras(keras, photos, **options))

    assert in_python(adopted) == ["image_dataset_from_directory"]
    assert reason in adopted.report
    assert str(adopted.equivalence) == "24 samples: equal in every value"


def test_arrays_of_tf_data_are_called_as_a_graph(keras):
    tensorflow = import_or_skip("tensorflow")
    images = np.random.default_rng(0).random((30, 8, 8, 3), np.float32)
    rows = {"pixels": images, "target": np.arange(30)}
    dataset = tensorflow.data.Dataset.from_tensor_slices(rows).shuffle(30)
    dataset = dataset.map(lambda row: {**row, "pixels": row["pixels"] * 2})
    adopted = adopt(dataset.batch(10, drop_remainder=True))

    assert in_python(adopted) == ["tf.data"]
    assert adopted.batch_type == "dict"
    assert "drop_last=True" in adopted.code
    batch = next(iter(adopted.loader()))
    expected = 2 * images[batch["target"].numpy()]
    np.testing.assert_array_equal(batch["pixels"].numpy(), expected)


def test_resizes_without_antialiasing_are_those_of_tensorflow(tmp_path):
    tensorflow = import_or_skip("tensorflow")
    write_classes(tmp_path, 3, ".png")
    pipeline = infeed.Pipeline(sources.Folder(str(tmp_path))).decode()
    with pipeline.batch(1, pad=True).open() as loader:
        images = [np.array(batch["image"]) for batch in loader]
    for size in [(9, 120), (80, 41), (200, 31), (3, 3)]:
        resize = T.Resize(size, antialias=False)
        with pipeline.transform(resize).batch(1).open() as loader:
            for batch, image in zip(loader, images, strict=True):
                expected = tensorflow.image.resize(image, size).numpy()
                assert np.abs(expected - batch["image"]).max() < 1.01, size


def test_loaders_that_hide_their_samples_name_an_alternative(photos, keras):
    tensorflow = import_or_skip("tensorflow")

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, number):
            return np.zeros((4, 8, 8, 3)), np.arange(4)

    with pytest.raises(
        infeed.errors.ConfigError, match=r"whole batches.*sources\.Items"
    ):
        infeed.adopt(Batches())
    dataset = folder_of_keras(keras, photos)
    for other, expected in [
        (tensorflow.data.Dataset.range(4), r"elements of \.range\(\.\.\.\)"),
        (dataset.take(2), r"\.take\(\.\.\.\) .*write the pipeline with \.take\(n\)"),
        (folder_of_keras(keras, photos, batch_size=None), r"dataset\.batch\(n\)"),
        (dataset.map(lambda x, y: (x, {"y": y})), "nested elements"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=expected):
            infeed.adopt(other)


# Lightning: a data module, as its guide writes it for MNIST.


def test_a_data_module_of_lightning(tmp_path):
    lightning = import_or_skip("lightning")
    write_mnist(tmp_path, 60)

    class Digits(lightning.LightningDataModule):
        def setup(self, stage):
            steps = [v1.ToTensor(), v1.Normalize((0.1307,), (0.3081,))]
            digits = datasets.MNIST(tmp_path, train=True, transform=v1.Compose(steps))
            generator = torch.Generator().manual_seed(42)
            self.train, self.val = random_split(digits, [50, 10], generator)

        def train_dataloader(self):
            return DataLoader(self.train, batch_size=10, shuffle=True)

        def val_dataloader(self):
            return DataLoader(self.val, batch_size=10)

    module = Digits()
    module.setup("fit")
    train, val = adopt(module.train_dataloader()), adopt(module.val_dataloader())

    assert in_python(train) == in_python(val) == []
    with train.pipeline.open() as loader:
        records = sorted(n for batch in loader for n, _ in batch.records)
    assert records == sorted(module.train.indices)
    images, labels = next(iter(val.loader()))
    assert images.shape == (10, 1, 28, 28)
    assert labels.shape == (10,)


# Hugging Face: image classification, with transforms on access.


def test_image_classification_of_hugging_face(photos):
    hub = import_or_skip("datasets")
    paths = sorted(map(str, photos.glob("*/*.jpg")))
    columns = {"image": paths, "label": [int(path[-9]) for path in map(str, paths)]}
    names = hub.ClassLabel(names=["class0", "class1", "class2"])
    features = hub.Features({"image": hub.Image(), "label": names})
    chain = v2.Compose(
        [
            v2.Resize((48, 48)),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=MEAN, std=STD),
        ]
    )

    def transform_rows(examples):
        images = [chain(image.convert("RGB")) for image in examples.pop("image")]
        return {"pixel_values": images, "label": examples["label"]}

    def stack_rows(examples):
        images = torch.stack([example["pixel_values"] for example in examples])
        labels = torch.tensor([example["label"] for example in examples])
        return {"pixel_values": images, "labels": labels}

    rows = hub.Dataset.from_dict(columns, features=features)
    loader = DataLoader(rows.with_transform(transform_rows), 8, collate_fn=stack_rows)
    adopted = adopt(loader)

    assert in_python(adopted) == []
    assert "transform_rows only calls transforms" in adopted.report
    theirs, ours = next(iter(loader)), next(iter(adopted.loader()))
    assert torch.equal(theirs["labels"], ours["label"])
    # A pipeline over the rows has equal samples too.
    native = infeed.Pipeline(sources.Items(rows.with_format(None))).decode()
    native = native.transform(T.Resize((48, 48)), T.Normalize(MEAN, STD), layout="CHW")
    found = infeed.adopting.compare_samples(
        rows.with_transform(transform_rows), native, SAMPLES
    )
    assert found.is_equivalent, str(found)


# PyTorch: the custom dataset of its tutorial.


def test_a_custom_dataset_of_files_and_a_table(photos, tmp_path):
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        for path in sorted(photos.glob("*/*.jpg")):
            csv.writer(file).writerow([path.relative_to(photos), path.parent.name[-1]])

    class LabelledImages(Dataset):
        def __init__(self, table, folder, transform=None, target_transform=None):
            with open(table, newline="") as file:
                self.rows = list(csv.reader(file))
            self.folder = folder
            self.transform, self.target_transform = transform, target_transform

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, number):
            name, label = self.rows[number]
            image, label = Image.open(self.folder / name).convert("RGB"), int(label)
            if self.transform:
                image = self.transform(image)
            if self.target_transform:
                label = self.target_transform(label)
            return image, label

    chain = v1.Compose([v1.Resize((40, 40)), v1.ToTensor()])
    dataset = LabelledImages(
        tmp_path / "labels.csv", photos, chain, target_transform=lambda label: 2 - label
    )
    loader = DataLoader(dataset, batch_size=9)
    adopted = adopt(loader)

    assert in_python(adopted) == ["LabelledImages"]
    assert str(adopted.equivalence) == "24 samples: equal in every value"
    for theirs, ours in zip(loader, adopted.loader(), strict=True):
        assert all(map(torch.equal, theirs, ours))


def values(std=STD, order=(0, 1, 2)):
    """Returns the steps that make floats of an image."""
    order = list(order)
    swapped = [] if order == [0, 1, 2] else [Swap(order)]
    to_floats = [v2.PILToTensor(), v2.ToDtype(torch.float, scale=True)]
    return [*to_floats, v2.Normalize(MEAN, std), *swapped]


class Swap(torch.nn.Module):
    def __init__(self, order):
        super().__init__()
        self.order = order

    def forward(self, image, target):
        return tv_tensors.wrap(image[self.order], like=image), target


def detection_samples(coco, *steps):
    """Returns a dataset of detection, and the pipeline of its samples."""
    root, annotations = coco
    chain = v2.Compose([*steps, v2.SanitizeBoundingBoxes(), v2.ToPureTensor()])
    dataset = datasets.CocoDetection(root / "images", annotations, transforms=chain)
    dataset = datasets.wrap_dataset_for_transforms_v2(
        dataset, target_keys=("boxes", "labels", "image_id")
    )
    dataset = Subset(dataset, [n for n in range(len(dataset)) if n % 4])
    return recognize(DataLoader(dataset, 2, collate_fn=list)).read


DRAWN = (
    v2.RandomZoomOut(fill=[123.0, 117.0, 104.0]),
    v2.RandomIoUCrop(),
    v2.RandomHorizontalFlip(p=0.5),
)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([DRAWN[0], DRAWN[2], *values()], "height|width|boxes|labels"),
        ([*DRAWN, *values(std=(0.3, 0.3, 0.3))], "channel"),
        ([*DRAWN, *values(order=(2, 1, 0))], "channel"),
    ],
    ids=["no RandomIoUCrop", "other normalization", "swapped channels"],
)
def test_differences_of_a_random_recipe_are_found(coco, steps, words, monkeypatch):
    # Eight draws do not show those of the channels.
    monkeypatch.setattr(equivalence, "_MOST_DRAWS", 32)
    whole, other = (
        detection_samples(coco, *DRAWN, *values()),
        detection_samples(coco, *steps),
    )

    found = compare(other.dataset, whole.records, 12, whole.chosen, limits_s=None)

    assert re.search(words, " ".join(found.problems)), str(found)


def test_equal_random_recipes_are_drawn_more_often(coco):
    read = detection_samples(coco, *DRAWN, *values())

    found = compare(read.dataset, read.records, 12, read.chosen, limits_s=None)

    assert found.is_equivalent, str(found)
    assert f"in {equivalence._MOST_DRAWS} draws" in str(found)


def test_a_recipe_with_another_normalization_is_found_and_shown(photos, tmp_path):
    chain = [v1.Resize((48, 48)), v1.ToTensor(), v1.Normalize(MEAN, (0.5, 0.5, 0.5))]
    dataset = datasets.ImageFolder(photos, v1.Compose(chain))
    adopted = adopt(DataLoader(dataset, batch_size=6))
    changed = adopted.code.replace("std=(0.5, 0.5, 0.5)", "std=T.IMAGENET_STD")
    names: dict = {}
    exec(changed.replace(".batch(6)", ""), names)

    found = infeed.adopting.compare_samples(dataset, names["pipeline"], SAMPLES)

    assert changed != adopted.code
    assert "values differ by up to" in str(found)
    values = {**vars(adopted), "equivalence": found}
    infeed.adopting.Adoption(**values).save_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/png") == 12
    assert "samples differ" in text
    theirs, ours = found.pictures[0][1:]
    assert np.abs(theirs - ours).max() > 0.5
