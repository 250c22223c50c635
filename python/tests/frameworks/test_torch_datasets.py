"""Datasets of torchvision that hold their images or list their files."""

import functools
import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import photograph
from PIL import Image
from recipes import write_mnist, write_voc
from requirements import framework_test, import_or_skip
from torch_loops import assert_same, epochs, loader_of, run_both

import infeed

torch = import_or_skip("torch")
datasets = import_or_skip("torchvision.datasets")
tv_tensors = import_or_skip("torchvision.tv_tensors")
v2 = import_or_skip("torchvision.transforms.v2")
pytestmark = framework_test

COUNT = 24
TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
STILL = v2.Compose([v2.Resize((28, 28)), *TENSOR])
RANDOM = v2.Compose([v2.RandomCrop(28, padding=4), v2.RandomHorizontalFlip(), *TENSOR])


@pytest.fixture
def both(capsys):
    """Returns a function that calls another one without and with infeed."""
    return functools.partial(run_both, capsys)


def write_files(folder: Path) -> list[Path]:
    """Writes photographs of several sizes."""
    paths = [folder / f"{number:03}.jpg" for number in range(COUNT)]
    for number, path in enumerate(paths):
        Image.fromarray(photograph(number, 40 + number, 60)).save(path)
    return paths


def bare(name: str, transform, **attributes):
    """Returns a dataset as its constructor leaves it, without its download."""
    kind = getattr(datasets, name)
    dataset = kind.__new__(kind)
    datasets.VisionDataset.__init__(dataset, "", transform=transform)
    vars(dataset).update(attributes)
    return dataset


def cifar(name, folder, transform):
    """Returns a dataset of CIFAR, whose archive is written first."""
    root = folder / getattr(datasets, name).base_folder
    root.mkdir(exist_ok=True)
    pixels = np.stack([photograph(n, 32, 32) for n in range(COUNT)])
    pixels = pixels.transpose(0, 3, 1, 2).reshape(COUNT, -1)
    labels = [number % 10 for number in range(COUNT)]
    kind = getattr(datasets, name)
    for file, _ in [*kind.train_list, *kind.test_list]:
        entry = {"data": pixels, "labels": labels, "fine_labels": labels}
        (root / file).write_bytes(pickle.dumps(entry))
    meta = {kind.meta["key"]: [str(number) for number in range(10)]}
    (root / kind.meta["filename"]).write_bytes(pickle.dumps(meta))
    dataset = kind.__new__(kind)
    original, kind._check_integrity = kind._check_integrity, lambda self: True
    checked = datasets.cifar.check_integrity
    datasets.cifar.check_integrity = lambda path, md5: True
    try:
        dataset.__init__(str(folder), transform=transform)
    finally:
        kind._check_integrity, datasets.cifar.check_integrity = original, checked
    return dataset


def mnist(name, folder, transform):
    if not (folder / "MNIST").is_dir():
        write_mnist(folder, COUNT)
    return datasets.MNIST(folder, transform=transform)


def arrays(name, folder, transform):
    pixels = np.stack([photograph(n, 32, 32) for n in range(COUNT)])
    labels = np.arange(COUNT) % 10
    return bare(name, transform, data=pixels.transpose(0, 3, 1, 2), labels=labels)


def files(name, folder, transform):
    paths, labels = write_files(folder), [number % 5 for number in range(COUNT)]
    load = datasets.folder.default_loader
    if name in ("GTSRB", "Imagenette", "RenderedSST2", "StanfordCars"):
        samples = list(zip(map(str, paths), labels, strict=True))
        return bare(name, transform, _samples=samples, loader=load)
    if name == "OxfordIIITPet":
        listed = {"_images": paths, "_target_types": ["category"]}
    else:
        listed = {"_image_files": paths}
    return bare(name, transform, _labels=labels, loader=load, **listed)


KINDS = {
    **dict.fromkeys(("CIFAR10", "CIFAR100"), cifar),
    "MNIST": mnist,
    **dict.fromkeys(("SVHN", "STL10"), arrays),
    **dict.fromkeys(("Food101", "Flowers102", "DTD", "SUN397"), files),
    **dict.fromkeys(("FGVCAircraft", "OxfordIIITPet", "GTSRB"), files),
    **dict.fromkeys(("Imagenette", "RenderedSST2", "StanfordCars"), files),
}


@pytest.mark.parametrize("name", KINDS)
def test_samples_are_those_of_the_dataset(both, tmp_path, name):
    def call():
        dataset = KINDS[name](name, tmp_path, STILL)
        return epochs(loader_of(dataset, shuffle=True), 1)

    theirs, ours = both(call)

    assert_same(theirs, ours)


@pytest.mark.parametrize("name", ["CIFAR10", "MNIST", "Food101"])
def test_random_transforms_have_equal_distributions(tmp_path, name):
    dataset = KINDS[name](name, tmp_path, RANDOM)
    adopted = infeed.adopt(loader_of(dataset, shuffle=True), samples=16, seconds=None)

    assert all(finding.became for finding in adopted.findings)
    assert adopted.equivalence.problems == ()
    assert "vision_source(dataset)" in adopted.code
    exec(adopted.code, dict(adopted.variables))


def test_segmentation_of_pascal_voc(both, tmp_path):
    write_voc(tmp_path, COUNT)
    steps = v2.Compose(
        [
            v2.CenterCrop(96),
            v2.PILToTensor(),
            v2.ToDtype(
                {torch.Tensor: torch.float32, tv_tensors.Mask: torch.int64}, scale=True
            ),
            v2.ToPureTensor(),
        ]
    )

    def call():
        dataset = datasets.VOCSegmentation(tmp_path, transforms=steps)
        dataset = datasets.wrap_dataset_for_transforms_v2(dataset)
        return epochs(loader_of(dataset, shuffle=True))

    theirs, ours = both(call)

    assert_same(theirs, ours)
    assert {255, 0} < set(ours[0][0][1].unique().tolist())


def test_labels_that_change_count_from_the_next_epoch_on(both, tmp_path):
    def call():
        dataset = cifar("CIFAR10", tmp_path, STILL)
        loader = loader_of(dataset)
        first = list(loader)
        dataset.targets[0] = 7
        return first, list(loader)

    assert_same(*both(call))


LABELS = {
    "parts": lambda count: [number + 0.5 for number in range(count)],
    "soft": lambda count: np.full((count, 10), 0.1),
    "lists": lambda count: [[1] * (1 + number % 2) for number in range(count)],
    "more": lambda count: list(range(count + 1)),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_that_are_no_classes_stay(both, tmp_path, monkeypatch, name):
    monkeypatch.setattr("infeed.trainers.torch._reported", set())

    def call():
        dataset = cifar("CIFAR10", tmp_path, STILL)
        dataset.targets = LABELS[name](len(dataset))
        loader = loader_of(dataset, collate_fn=list)
        return [[label for _, label in batch] for batch in loader]

    theirs, ours = both(call, stays=True)

    assert str(theirs) == str(ours)


def test_a_dataset_with_its_own_code_stays(both, tmp_path):
    def call():
        dataset = cifar("CIFAR10", tmp_path, STILL)

        class Noisy(datasets.CIFAR10):
            def __getitem__(self, index):
                image, label = super().__getitem__(index)
                return image + 1, label

        dataset.__class__ = Noisy
        return epochs(loader_of(dataset), 1)

    assert_same(*both(call, stays=True))
