"""Random draws of adopted loaders in Python: the same on every run."""

import contextlib
import itertools
import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from adopted_code import run_code
from recipes import write_classes
from requirements import framework_test, import_or_skip

import infeed
from infeed.adopting.recognize import recognize
from infeed.adopting.samples import parts_of

torch = import_or_skip("torch")
torchvision = import_or_skip("torchvision")
pytestmark = [*framework_test, pytest.mark.usefixtures("few_draws")]

from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torchvision import datasets  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

SIDE = 24


class Unknown:
    """A step that infeed does not have, so that it is called with those after it."""

    def __call__(self, image):
        return image


class OwnSamples(Dataset):
    """A dataset that draws from shared generators, and from one that it holds."""

    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __len__(self) -> int:
        return 36

    def __getitem__(self, number):
        noise = torch.rand(3) + torch.rand(3, generator=self.generator)
        return noise + random.random() + np.random.rand(), number % 3


class NamedSamples(OwnSamples):
    """The same with albumentations, whose transforms hold generators."""

    def __init__(self, chain) -> None:
        super().__init__()
        self.chain = chain

    def __getitem__(self, number):
        image = np.full((40, 40, 3), number, np.uint8)
        return {"image": self.chain(image=image)["image"], "label": number % 3}


class UnseededSamples(OwnSamples):
    """A dataset with draws that no seed determines."""

    def __getitem__(self, number):
        return torch.from_numpy(np.random.default_rng().random(3)), number % 3


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    write_classes(root, 36)
    return root


def folder(photos, *steps):
    return datasets.ImageFolder(photos, v1.Compose([Unknown(), *steps]))


def torchvision_steps(photos):
    return folder(
        photos,
        v1.RandomResizedCrop(SIDE),
        v1.RandomHorizontalFlip(),
        v1.ColorJitter(0.4, 0.4, 0.4),
        v1.RandomChoice([v1.RandomRotation(9), v1.RandomInvert()]),
        v1.ToTensor(),
        v1.RandomErasing(),
    )


def albumentations_chain():
    library = import_or_skip("albumentations")
    steps = [
        library.RandomResizedCrop((SIDE, SIDE)),
        library.GaussNoise(p=1),
        library.OneOf([library.Blur(), library.ElasticTransform()], p=1),
    ]
    return library.Compose(steps)


def albumentations_steps(photos):
    chain = albumentations_chain()

    class CalledFolder(datasets.ImageFolder):
        def __getitem__(self, number):
            image, label = super().__getitem__(number)
            return chain(image=np.asarray(image))["image"], label

    return CalledFolder(photos)


LOADERS = {
    "steps of torchvision": torchvision_steps,
    "a chain of albumentations": albumentations_steps,
    "a dataset of dictionaries": lambda _: NamedSamples(albumentations_chain()),
    "another dataset": lambda _: OwnSamples(),
}


def images(loader) -> list[np.ndarray]:
    return [np.array(batch["image"]) for batch in loader]


@pytest.mark.parametrize("kind", LOADERS)
def test_adopted_draws_depend_on_the_position_only(photos, kind):
    def recognize_pipeline():
        loader = DataLoader(LOADERS[kind](photos), batch_size=6, shuffle=True)
        return recognize(loader).pipeline

    pipeline = recognize_pipeline()
    torch.manual_seed(1)
    with pipeline.open(workers=1) as opened:
        first, second = images(opened), images(opened)
    torch.manual_seed(2)
    # New objects, whose generators begin with other states.
    pipeline = recognize_pipeline()
    with pipeline.open(workers=2) as opened:
        again = images(opened)
        batches = iter(opened)
        for _ in range(2):
            next(batches)
        state = opened.state_dict()
    with pipeline.open(workers=2) as opened:
        opened.load_state_dict(state)
        rest = images(opened)

    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(rest, second[2:])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("kind", LOADERS)
def test_the_report_names_the_draws_and_the_code_repeats_them(photos, kind):
    loader = DataLoader(LOADERS[kind](photos), batch_size=6, shuffle=True)
    adopted = infeed.adopt(loader, samples=4, seconds=None)

    (found,) = (f for f in adopted.findings if f.part == "random draws in Python")
    assert found.became == "infeed.seeding.seed_draws(...)"
    names = run_code(adopted)
    expected, again = next(iter(adopted.loader())), next(iter(names["loader"]))
    pairs = zip(expected, again, strict=True)
    if isinstance(expected, dict):
        pairs = ((expected[name], again[name]) for name in expected)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_draws_of_the_training_loop_are_those_without_a_loader():
    adopted = infeed.adopt(DataLoader(OwnSamples(), 6), seconds=None)
    torch.manual_seed(7)
    expected = torch.rand(4)

    torch.manual_seed(7)
    # The loader calls the dataset ahead until it is closed.
    with contextlib.closing(adopted.loader()) as loader:
        assert len([*loader]) == 6

    assert torch.equal(torch.rand(4), expected)


class Remembering(OwnSamples):
    """A dataset whose samples depend on those before, as a mosaic of loaded images."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __getitem__(self, number):
        if number not in self.seen:
            self.seen.append(number)
        return torch.tensor([random.choice(self.seen), number]), number % 3


@pytest.mark.parametrize("kind", [UnseededSamples, Remembering])
def test_draws_that_no_seed_determines_are_reported(kind):
    adopted = infeed.adopt(DataLoader(kind(), batch_size=6), seconds=None)

    (found,) = (f for f in adopted.findings if f.part == "random draws in Python")
    assert found.became == "not the same after a resume"
    assert "take a parameter rng" in found.reason


def test_a_dataset_without_draws_has_no_finding_about_them():
    class Plain(OwnSamples):
        def __getitem__(self, number):
            return torch.full((3,), float(number)), number

    adopted = infeed.adopt(DataLoader(Plain(), batch_size=6), seconds=None)

    assert "random draws" not in adopted.report


def test_steps_run_in_as_many_processes_as_the_adopted_loader_has_workers(
    photos, monkeypatch
):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    chains = {
        "of a library": [
            v1.Resize((32, 32)),
            v1.FiveCrop(SIDE),
            v1.Lambda(stack_crops),
        ],
        "of a lambda": [v1.Resize((32, 32)), v1.Lambda(lambda image: image)],
    }
    found = {}
    for name, chain in chains.items():
        dataset = datasets.ImageFolder(photos, v1.Compose(chain))
        loader = DataLoader(dataset, batch_size=6, num_workers=2)
        (step,) = recognize(loader).pipeline._python
        found[name] = step.processes, bool(step.output)

    assert found == {"of a library": (2, True), "of a lambda": (0, False)}


def test_the_report_begins_with_the_reason_why_steps_run_one_at_a_time(
    photos, monkeypatch
):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    dataset = datasets.ImageFolder(photos, v1.Lambda(lambda image: image))

    loaders = (DataLoader(dataset, batch_size=6, num_workers=n) for n in (2, 0))
    parallel, alone = (infeed.adopt(one, samples=0, seconds=None) for one in loaders)

    first, second = parallel.report.splitlines()[:2]
    assert first.startswith("code in Python runs one call at a time: ")
    assert first.endswith("move it to a module, or install cloudpickle")
    assert second == ""
    assert "move it to a module, or install cloudpickle" in parallel.html
    # The adopted loader makes one sample at a time, too.
    assert alone.problem is None
    assert "at a time" not in alone.report.splitlines()[0]


def stack_crops(crops):
    return np.stack([np.asarray(crop) for crop in crops])


# timm: all steps that `create_transform` puts after each other. At other magnitudes,
# its posterizing may keep 0 bits, which Pillow rejects.


@pytest.mark.parametrize("augment", [None, "rand-m7-mstd0-inc1", "augmix-m9-mstd0-w2"])
@pytest.mark.parametrize("erase", [0.0, 0.5])
@pytest.mark.parametrize("interpolation", ["random", "bilinear"])
@pytest.mark.parametrize("prefetches", [False, True])
def test_transforms_of_timm(photos, augment, erase, interpolation, prefetches):
    data = import_or_skip("timm.data")
    loader = data.create_loader(
        data.create_dataset("", root=str(photos), is_training=True),
        input_size=(3, SIDE, SIDE),
        batch_size=6,
        is_training=True,
        auto_augment=augment,
        re_prob=erase,
        re_mode="pixel",
        interpolation=interpolation,
        use_prefetcher=prefetches,
        num_workers=0,
        persistent_workers=False,
        device=torch.device("cpu"),
    )
    adopted = infeed.adopt(loader, samples=36, seconds=None)

    assert adopted.equivalence.is_equivalent, adopted.report
    image, label = next(iter(adopted.loader()))
    expected, labels = next(iter(loader))
    assert (image.shape, image.dtype) == (expected.shape, expected.dtype)
    assert (label.shape, label.dtype) == (labels.shape, labels.dtype)
    run_code(adopted)


def test_volumes_of_numpy_are_read_by_the_code_of_their_dataset(tmp_path):
    volumes = np.random.default_rng(0).random((6, 4, 5, 6), np.float32)
    for number, volume in enumerate(volumes):
        path = tmp_path / f"class{number % 2}" / f"{number}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, volume)
    dataset = datasets.DatasetFolder(str(tmp_path), np.load, extensions=(".npy",))
    adopted = infeed.adopt(DataLoader(dataset, batch_size=6), seconds=None)

    assert adopted.findings[0].became is None
    assert "its __getitem__ is called" in adopted.findings[0].reason
    image, label = next(iter(adopted.loader()))
    np.testing.assert_array_equal(image, volumes[[0, 2, 4, 1, 3, 5]])
    assert label.tolist() == [0, 0, 0, 1, 1, 1]


def test_photographs_of_different_sizes_fit_the_default_memory(tmp_path):
    from recipes import write_coco

    path = write_coco(tmp_path, 12)
    steps = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomShortestSize([64, 80, 96], max_size=150),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    dataset = datasets.CocoDetection(
        str(tmp_path / "images"), str(path), transforms=steps
    )
    keys = ("boxes", "labels", "image_id")
    dataset = datasets.wrap_dataset_for_transforms_v2(dataset, target_keys=keys)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, collate_fn=list)
    adopted = infeed.adopt(loader, samples=4, seconds=None)

    for options in ({}, {"memory": "256MiB"}):
        with adopted.pipeline.open(**options) as opened:
            assert sum(batch.rows for _ in range(20) for batch in opened) == 20 * 12
    assert len([*adopted.loader(memory="256MiB")]) == 3
    run_code(adopted)


class SizedSamples(OwnSamples):
    """Samples of a shape that a function of the number makes."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    def __getitem__(self, number):
        return self.make(number, torch.rand(3, 4 + number % 3, 8 - number % 4))


def image_and_label(number, image):
    return image, number % 3


def image_and_target(number, image):
    boxes = torch.rand(number % 3, 4)
    labels = [*range(number % 3)]
    return image, {"boxes": boxes, "labels": labels, "image_id": number}


def entries(number, image):
    return {"pixel_values": image, "mask": image[0] > 0.5, "name": f"image {number}"}


def rows_of_pixels(number, image):
    return image.permute(1, 2, 0)[:, :4], number


def one_image(number, image):
    return image


def tokens(number, image):
    return {"ids": torch.arange(number % 5 + 1), "label": number % 3}


SAMPLES = {
    "tuples": image_and_label,
    "targets": image_and_target,
    "dictionaries": entries,
    "images of one width": rows_of_pixels,
    "images alone": one_image,
    "lists": tokens,
}


@pytest.mark.parametrize(
    ("kind", "workers"), [*((kind, 0) for kind in SAMPLES), ("targets", 1)]
)
def test_samples_of_different_sizes_are_padded_or_lists(kind, workers):
    dataset = SizedSamples(SAMPLES[kind])
    loader = DataLoader(dataset, 6, num_workers=workers, collate_fn=list)
    adopted = infeed.adopt(loader, samples=12, seconds=None)

    assert adopted.equivalence.is_equivalent, adopted.report
    assert ("pad=True" in adopted.code) == (kind != "lists")
    assert ("batches are padded" in adopted.report) == (kind != "lists")
    assert ("processes=1" in adopted.code) == (workers == 1)
    with adopted.pipeline.open() as opened:
        batches = [dict(batch.items()) for batch in opened]
    for at, batch in enumerate(batches):
        expected = [parts_of(dataset[number]) for number in range(6 * at, 6 * at + 6)]
        for name, key in zip(batch, expected[0], strict=True):
            check_rows(batch[name], [sample[key] for sample in expected])
    names = run_code(adopted)
    with names["pipeline"].open() as again, adopted.pipeline.open() as opened:
        assert all(map(same_batches, again, opened))


def check_rows(column, expected):
    """Checks the sizes of rows, and the values that are not random."""
    if isinstance(column, tuple):
        values, offsets = column
        column = [values[one:end] for one, end in itertools.pairwise(offsets)]
        assert [len(row) for row in column] == [len(row) for row in expected]
    elif isinstance(column, list):
        assert column == expected
    else:
        shapes = [np.shape(row) for row in expected]
        assert column.shape[1:] == tuple(map(max, zip(*shapes, strict=True)))


def same_batches(one, other):
    for name, column in one.items():
        parts = column if isinstance(column, tuple) else (column,)
        others = other[name] if isinstance(column, tuple) else (other[name],)
        for part, again in zip(parts, others, strict=True):
            np.testing.assert_array_equal(part, again)
    return True


def test_the_samples_of_a_dataset_are_made_in_processes_with_the_same_draws():
    def pixels(workers):
        loader = DataLoader(OwnSamples(), batch_size=6, num_workers=workers)
        adopted = infeed.adopt(loader, samples=4, seconds=None)
        assert adopted.equivalence.is_equivalent, adopted.report
        (step,) = adopted.pipeline._python
        assert step.processes == workers
        with adopted.pipeline.open(workers=workers) as opened:
            first, second = images(opened), images(opened)
            steps = iter(opened)
            next(steps)
            state = opened.state_dict()
            started = children()
        # Closing ends the processes.
        assert started
        assert not started & children()
        with adopted.pipeline.open(workers=workers) as opened:
            opened.load_state_dict(state)
            rest = images(opened)
        assert not np.array_equal(first, second)
        return [first, second, rest]

    one, two = pixels(1), pixels(2)
    for each, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(each, other)


def children() -> set[int]:
    """Returns the worker processes of this process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(path.parent.name))
    return found


class UnpickledSamples(OwnSamples):
    """A dataset with a lock, which no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Large(OwnSamples):
    """A dataset with more bytes than each process may have."""

    def __init__(self) -> None:
        super().__init__()
        self.data = np.zeros(300 << 20, np.uint8)


class LargeStep(OwnSamples):
    """A dataset with a function that holds more bytes than each process may have."""

    def __init__(self) -> None:
        super().__init__()
        data = np.zeros(300 << 20, np.uint8)
        self.step = lambda image: image + data[0]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (UnpickledSamples, "cannot be pickled"),
        (Large, "a copy of more than 256 MiB"),
        (LargeStep, "a copy of more than 256 MiB"),
    ],
)
def test_a_dataset_that_no_process_can_have_stays_in_this_one(kind, reason):
    loader = DataLoader(kind(), batch_size=6, num_workers=2)
    adopted = infeed.adopt(loader, samples=4, seconds=None)

    assert "sources.Items(infeed.seeding.seed_draws(dataset))" in adopted.code
    assert "one call at a time, because" in adopted.report
    assert reason in adopted.report


class HubSteps:
    """The function of `with_transform`, which receives lists of values."""

    def __call__(self, rows):
        crop = v2.Compose([v2.RandomCrop(SIDE), v2.ToImage()])
        rows["image"] = [crop(image.convert("RGB")) for image in rows["image"]]
        return rows


def test_a_table_with_a_transform_runs_in_processes(photos):
    library = import_or_skip("datasets")
    paths = sorted(map(str, photos.rglob("*.jpg")))
    table = library.Dataset.from_dict({"image": paths, "label": [*range(len(paths))]})
    table = table.cast_column("image", library.Image()).with_transform(HubSteps())
    adopted = infeed.adopt(DataLoader(table, 6, num_workers=2), seconds=None)

    assert adopted.equivalence.is_equivalent, adopted.report
    assert "processes=2" in adopted.code
    assert "HubSteps is called with its rows" in adopted.report
    assert "by seed, epoch and position)" in adopted.report
    batches = [*adopted.loader()]
    assert torch.cat([batch["label"] for batch in batches]).tolist() == table["label"]
    assert batches[0]["image"].shape == (6, 3, SIDE, SIDE)
    run_code(adopted)


def test_a_table_with_a_format_names_the_format(photos):
    library = import_or_skip("datasets")
    table = library.Dataset.from_dict({"values": [[1.0, 2.0]] * 12})
    for format_type, found in [("torch", "the format torch"), (None, "without Python")]:
        loader = DataLoader(table.with_format(format_type), 6, num_workers=1)
        adopted = infeed.adopt(loader, seconds=None)
        assert found in adopted.report
        assert len([*adopted.loader()]) == 2
