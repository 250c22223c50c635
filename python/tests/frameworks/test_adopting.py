"""Loaders of PyTorch, and the pipelines that replace them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from adopted_code import run_code
from conftest import photograph
from PIL import Image

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("few_draws")]
torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)
from torchvision import datasets  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import infeed  # noqa: E402
from infeed import transforms as T  # noqa: E402
from infeed.adopting import command  # noqa: E402
from infeed.adopting.datasets import read_dataset  # noqa: E402
from infeed.adopting.steps import translate  # noqa: E402

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(autouse=True)
def code_runs(monkeypatch):
    """Runs the code of each adopted loader."""
    adopt = infeed.adopt

    def adopt_and_run(*args, **options):
        adopted = adopt(*args, **options)
        run_code(adopted)
        return adopted

    monkeypatch.setattr(infeed, "adopt", adopt_and_run)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """40 photographs of different sizes and tints in four classes."""
    root = tmp_path_factory.mktemp("photos")
    tints = np.random.default_rng(0).uniform(0.3, 1, (40, 3))
    for n in range(40):
        path = root / f"class{n % 4}" / f"{n:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        pixels = (photograph(n, 90 + n, 120 + n % 7) * tints[n]).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=90)
    return root


def loader_of(root: Path, transform: object, **options) -> DataLoader:
    options = {"batch_size": 8, "shuffle": True, **options}
    return DataLoader(datasets.ImageFolder(root, transform), **options)


# The recipes of torchvision's references and of its documentation.
EVALUATION = [v1.Resize(72), v1.CenterCrop(64), v1.ToTensor(), v1.Normalize(MEAN, STD)]
EVALUATION_2 = [
    v2.PILToTensor(),
    v2.Resize(72, antialias=True),
    v2.CenterCrop(64),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize(MEAN, STD),
]
TRAINING = [
    v1.RandomResizedCrop(64),
    v1.RandomHorizontalFlip(),
    v1.ColorJitter(0.2, 0.2, 0.2),
    v1.ToTensor(),
    v1.Normalize(MEAN, STD),
    v1.RandomErasing(0.25),
]


@pytest.mark.parametrize("steps", [EVALUATION, EVALUATION_2])
def test_a_chain_without_random_steps_becomes_native_and_equal(photos, steps):
    adopted = infeed.adopt(loader_of(photos, v1.Compose(steps)), seconds=None)

    assert all(finding.became for finding in adopted.findings)
    equivalence = adopted.equivalence
    assert equivalence.is_equivalent, str(equivalence)
    assert (equivalence.samples, equivalence.is_random) == (40, False)
    assert "T.Resize(72)" in adopted.code
    assert ".batch(8)" in adopted.code


# Chains of transforms: SimCLR's, and others. `test_recipes.py` has whole loaders.
RECIPES = {
    "rand augment": [
        v1.RandomResizedCrop(64),
        v1.RandAugment(),
        v1.ToTensor(),
        v1.Normalize(MEAN, STD),
    ],
    "aug mix": [
        v2.RandomResizedCrop(64),
        v2.AugMix(chain_depth=2, alpha=0.5),
        v2.PILToTensor(),
    ],
    "elastic and compressed": [
        v2.PILToTensor(),
        v2.RandomResizedCrop(64, antialias=True),
        v2.ElasticTransform(30.0, sigma=4.0),
        v2.JPEG((40, 90)),
        v2.ToDtype(torch.float32, scale=True),
    ],
    "auto augment": [
        v1.RandomResizedCrop(64),
        v1.AutoAugment(v1.AutoAugmentPolicy.CIFAR10),
        v1.ToTensor(),
    ],
    "contrastive": [
        v2.PILToTensor(),
        v2.RandomResizedCrop(64, antialias=True),
        v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        v2.RandomGrayscale(0.2),
        v2.GaussianBlur(5),
        v2.ToDtype(torch.float32, scale=True),
    ],
    "warps": [
        v2.PILToTensor(),
        v2.Resize((64, 64)),
        v2.RandomAffine(10, translate=(0.1, 0.1), scale=(0.9, 1.1)),
        v2.RandomRotation(15, interpolation=v1.InterpolationMode.BILINEAR),
        v2.RandomPerspective(0.2),
        v2.ToDtype(torch.float32, scale=True),
    ],
    "values": [
        v2.PILToTensor(),
        v2.RandomCrop(64),
        v2.RandomChoice([v2.RandomInvert(0.3), v2.RandomSolarize(128.0)]),
        v2.RandomPosterize(4),
        v2.RandomAutocontrast(),
        v2.RandomEqualize(),
        v2.RandomAdjustSharpness(2.0),
    ],
}


@pytest.mark.filterwarnings("ignore:The image decoding and encoding")
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_become_native_and_equivalent(photos, recipe):
    chain = v1.Compose(RECIPES[recipe])
    adopted = infeed.adopt(loader_of(photos, chain), seconds=None)

    assert all(finding.became for finding in adopted.findings), adopted.report
    assert adopted.equivalence.is_random
    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)


def test_a_random_chain_becomes_native_with_equal_means_and_spreads(photos):
    loader = loader_of(photos, v1.Compose(TRAINING), drop_last=True)
    adopted = infeed.adopt(loader, seconds=None)

    assert all(finding.became for finding in adopted.findings), adopted.report
    assert adopted.equivalence.is_random
    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)
    assert "drop_last=True" in adopted.code


def test_the_code_makes_the_same_pipeline(photos):
    adopted = infeed.adopt(loader_of(photos, v1.Compose(TRAINING)), seconds=None)
    names: dict = {}

    exec(adopted.code, names)

    assert names["pipeline"] == adopted.pipeline
    theirs, ours = next(iter(names["loader"])), next(iter(adopted.loader()))
    assert all(map(torch.equal, theirs, ours))


def test_the_new_loader_yields_batches_of_the_old_type(photos):
    old = loader_of(photos, v1.Compose(EVALUATION))
    new = infeed.adopt(old, seconds=None).loader()

    for (image, label), (other, others) in zip(old, new, strict=True):
        assert (image.shape, image.dtype) == (other.shape, other.dtype)
        assert (label.shape, label.dtype) == (others.shape, others.dtype)


def test_augmentations_of_recipes_become_native():
    chain = v2.Compose(
        [
            v2.RandomApply([v2.ColorJitter(0.4), v2.GaussianBlur(3)], p=0.8),
            v2.RandomAffine(10, translate=(0.1, 0.1), shear=5),
            v2.TrivialAugmentWide(),
            v2.RandomSolarize(128, p=0.2),
        ]
    )
    apply, affine, wide, solarize = translate(chain).native
    assert [type(step) for step in apply.transforms] == [T.ColorJitter, T.GaussianBlur]
    assert (apply.p, wide) == (0.8, T.TrivialAugmentWide())
    assert affine == T.RandomAffine((-10, 10), translate=(0.1, 0.1), shear=(-5, 5))
    assert solarize == T.RandomSolarize(128, p=0.2)
    (finding,) = translate(v2.RandomIoUCrop()).findings
    assert finding.became is None


class Invert:
    """A step that infeed does not know."""

    def __call__(self, image):
        return v2.functional.invert(image)


@pytest.mark.parametrize("after", [1, 3])
def test_an_unknown_step_and_those_after_it_are_called_in_python(photos, after):
    steps = [*EVALUATION[:after], Invert(), *EVALUATION[after:]]
    adopted = infeed.adopt(loader_of(photos, v1.Compose(steps)), seconds=None)

    left = [finding.part for finding in adopted.findings if finding.became is None]
    assert left == ["Invert", *(type(step).__name__ for step in EVALUATION[after:])]
    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)
    assert "Invert: called in Python" in "\n".join(map(str, adopted.findings))


class Squares(Dataset):
    """A dataset that makes its own samples."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, number):
        return torch.full((3, 8, 8), float(number)), number % 5


def test_the_samples_of_another_dataset_are_its_own(photos):
    loader = DataLoader(Squares(), batch_size=4, num_workers=0)
    adopted = infeed.adopt(loader, seconds=None)

    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)
    assert adopted.findings[0].became is None
    expected, found = list(loader), list(adopted.loader())
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (T.Normalize(MEAN, [0.3, 0.3, 0.3]), "values differ by up to"),
        (T.Normalize(MEAN[::-1], STD), "values differ by up to"),
    ],
)
def test_another_normalization_is_found(photos, wrong, message):
    dataset = datasets.ImageFolder(photos, v1.Compose(EVALUATION))
    records = infeed.Pipeline(infeed.sources.Folder(str(photos))).decode()
    records = records.transform(T.Resize(72), T.CenterCrop(64), wrong, layout="CHW")

    found = infeed.adopting.compare_samples(dataset, records)

    assert not found.is_equivalent
    assert message in str(found)
    assert len(found.pictures) == 4


def test_swapped_channels_and_another_distribution_are_found(photos):
    class SwappedImages(datasets.ImageFolder):
        def __getitem__(self, number):
            image, label = super().__getitem__(number)
            return image.flip(0), label

    random = v1.Compose([v1.RandomResizedCrop(64), v1.ToTensor()])
    records = infeed.Pipeline(infeed.sources.Folder(str(photos))).decode()
    records = records.transform(T.RandomResizedCrop(64), T.ToFloat(), layout="CHW")

    same = infeed.adopting.compare_samples(
        datasets.ImageFolder(photos, random), records
    )
    swapped = infeed.adopting.compare_samples(SwappedImages(photos, random), records)

    assert same.is_equivalent, str(same)
    assert "the mean of channel 0 of single samples differs" in str(swapped)


def test_other_labels_and_another_number_of_samples_are_found(photos):
    plain = v1.Compose([v1.Resize((32, 32)), v1.PILToTensor()])
    dataset = datasets.ImageFolder(photos, plain)
    dataset.samples[0] = (dataset.samples[0][0], 3)
    records = infeed.Pipeline(infeed.sources.Folder(str(photos))).decode()
    records = records.transform(T.Resize((32, 32)), layout="CHW")

    assert "sample 0 has label 0 instead of 3" in str(
        infeed.adopting.compare_samples(dataset, records)
    )
    dataset.samples.pop()
    assert "39 samples, the pipeline 40" in str(
        infeed.adopting.compare_samples(dataset, records)
    )


def test_the_gain_is_measured_and_the_limit_named(photos):
    loader = loader_of(photos, v1.Compose(TRAINING))
    adopted = infeed.adopt(loader, samples=8, seconds=0.3)

    assert adopted.gain.ratio > 0
    low, high = adopted.gain.range
    assert low <= adopted.gain.ratio <= high
    assert f"gain: {adopted.gain.ratio:.2f}x" in adopted.report
    assert adopted.limit


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([1, 2], "DataLoader or a dataset of tf.data is expected"),
        (DataLoader(Squares(), batch_size=None), "no batch_size"),
    ],
)
def test_a_loader_that_cannot_be_adopted_raises_an_error(loader, message):
    with pytest.raises(infeed.errors.ConfigError, match=message):
        infeed.adopt(loader)


LOADER_FILE = """
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

def make_loader():
    steps = [transforms.Resize((32, 32)), transforms.ToTensor()]
    dataset = datasets.ImageFolder({root!r}, transforms.Compose(steps))
    return DataLoader(dataset, batch_size=8)
"""


def test_the_command_prints_the_report_and_writes_the_page(photos, tmp_path, capsys):
    file = tmp_path / "training_file.py"
    file.write_text(LOADER_FILE.format(root=str(photos)))
    page = tmp_path / "page.html"
    options = ["--samples", "4", "--seconds", "0.1", "--html", str(page)]

    status = command.main([f"{file}:make_loader", *options])

    printed = capsys.readouterr().out
    assert status == 0
    assert "proof: 4 samples: equal labels" in printed
    assert "T.Resize((32, 32))" in printed
    assert "T.Resize((32, 32))" in page.read_text()
    assert "equal samples" in page.read_text()


def test_labels_are_numbers(photos):
    adopted = infeed.adopt(loader_of(photos, v1.Compose(EVALUATION)), seconds=None)
    _, labels = next(iter(adopted.loader()))
    assert labels.dtype == torch.int64
    assert np.all((labels.numpy() >= 0) & (labels.numpy() < 4))


def records_of(adopted: infeed.adopting.Adoption, epochs: int = 1) -> list[int]:
    """Returns the numbers of the records of some epochs, in order."""
    with adopted.pipeline.open(workers=1) as loader:
        return [
            record
            for _ in range(epochs)
            for batch in loader
            for record, _ in batch.records
        ]


def test_a_random_subset_becomes_weights_of_its_records(photos):
    dataset = datasets.ImageFolder(photos, v1.Compose(EVALUATION))
    generator = torch.Generator().manual_seed(1)
    part, _ = random_split(dataset, [0.4, 0.6], generator)

    adopted = infeed.adopt(DataLoader(part, batch_size=8, shuffle=True), seconds=None)

    assert sorted(records_of(adopted)) == sorted(part.indices)
    assert adopted.equivalence.samples == 16
    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)
    assert "16 of 40 samples" in adopted.report
    names: dict = {}
    exec(adopted.code, names)
    again = names["pipeline"]
    images, own = (next(iter(one))["image"] for one in (again, adopted.pipeline))
    np.testing.assert_array_equal(images, own)


def test_the_first_records_are_taken_and_subsets_may_be_nested(photos):
    dataset = datasets.ImageFolder(photos, v1.Compose(EVALUATION))
    nested = Subset(Subset(dataset, range(10, 30)), [4, 0, 4, 9])

    first = infeed.adopt(
        DataLoader(Subset(dataset, range(12)), batch_size=8), seconds=None
    )
    twice = infeed.adopt(DataLoader(nested, batch_size=8), seconds=None)

    assert ".take(12)" in first.code
    assert records_of(first) == list(range(12))
    assert records_of(twice) == [10, 14, 14, 19]
    assert "epoch=4" in twice.code
    assert first.equivalence.is_equivalent
    assert twice.equivalence.is_equivalent


def test_weights_of_many_records_are_read_from_a_file(photos, tmp_path, monkeypatch):
    many = Subset(datasets.ImageFolder(photos, v1.Compose(EVALUATION)), [1, 3])
    adopted = infeed.adopt(DataLoader(many, batch_size=2), seconds=None)
    monkeypatch.setattr("infeed.adopting.adoption._SHOWN_WEIGHTS", 10)
    monkeypatch.chdir(tmp_path)
    np.save("weights.npy", adopted.weights)
    names: dict = {}

    exec(adopted.code, names)

    batch = next(iter(names["pipeline"]))
    assert [record for record, _ in batch.records] == [1, 3]


def test_samplers_become_weights(photos):
    dataset = datasets.ImageFolder(photos, v1.Compose(EVALUATION))

    def adopt_order(sampler, data=dataset) -> infeed.adopting.Adoption:
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        return infeed.adopt(loader, seconds=None, samples=4)

    subset = adopt_order(SubsetRandomSampler([3, 5, 7, 11]))
    weights = [3.0] * 10 + [1.0] * 30
    weighted = adopt_order(WeightedRandomSampler(weights, 60))
    drawn = adopt_order(RandomSampler(dataset, num_samples=10))
    inner = adopt_order(
        WeightedRandomSampler([1.0, 0.0, 1.0], 4), Subset(dataset, [20, 21, 22])
    )

    assert sorted(records_of(subset)) == [3, 5, 7, 11]
    counts = Counter(records_of(weighted))
    assert {counts[n] for n in range(10)} == {3}
    assert {counts[n] for n in range(10, 40)} == {1}
    assert sorted(records_of(drawn, epochs=4)) == list(range(40))
    assert Counter(records_of(inner)) == {20: 2, 22: 2}
    assert "counts are exact, and not drawn" in weighted.report


def test_another_sampler_is_named_and_left_out(photos):
    class Backwards(torch.utils.data.Sampler):
        def __iter__(self):
            return iter(range(39, -1, -1))

        def __len__(self):
            return 40

    loader = loader_of(photos, v1.Compose(EVALUATION), shuffle=False)
    loader = DataLoader(loader.dataset, batch_size=8, sampler=Backwards())
    adopted = infeed.adopt(loader, seconds=None, samples=4)

    assert "the order of a sampler is not translated" in adopted.report


def test_a_batch_sampler_of_fixed_size_becomes_batches(photos):
    dataset = datasets.ImageFolder(photos, v1.Compose(EVALUATION))
    batches = BatchSampler(RandomSampler(dataset), 16, drop_last=True)
    adopted = infeed.adopt(DataLoader(dataset, batch_sampler=batches), seconds=None)

    assert ".batch(16, drop_last=True)" in adopted.code
    assert ".shuffle(seed=0)" in adopted.code


def test_targets_with_several_entries_become_fields():
    class Scenes(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, number):
            count = number % 3
            boxes = torch.arange(count * 4).reshape(-1, 4).float()
            target = {"boxes": boxes, "labels": torch.arange(count), "number": number}
            return torch.full((3, 8, 8), float(number)), target

    loader = DataLoader(Scenes(), batch_size=4, collate_fn=lambda batch: batch)
    adopted = infeed.adopt(loader, seconds=None)

    assert adopted.equivalence.is_equivalent, str(adopted.equivalence)
    assert adopted.equivalence.fields == ("image", "boxes", "labels", "number")
    batch = next(iter(adopted.loader()))
    assert batch["number"].tolist() == [0, 1, 2, 3]
    assert "collate_fn=<lambda>" in adopted.report


def test_samples_without_numbers_run_and_the_proof_says_so():
    class Sentences(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            return {"text": f"sentence {number}"}

    adopted = infeed.adopt(DataLoader(Sentences(), batch_size=2), seconds=None)

    assert "samples without numbers to compare" in adopted.report
    assert next(iter(adopted.loader())) == {"text": ["sentence 0", "sentence 1"]}


def test_fields_that_are_missing_are_named(photos):
    records = infeed.Pipeline(infeed.sources.Folder(str(photos))).decode()
    records = records.transform(T.Resize((32, 32)), layout="CHW")
    inner = datasets.ImageFolder(
        photos, v1.Compose([v1.Resize((32, 32)), v1.PILToTensor()])
    )

    class Three(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, number):
            image, label = inner[number]
            return {"image": image, "label": label, "depth": 3.0}

    found = infeed.adopting.compare_samples(Three(), records, samples=4)

    assert found.problems == ("the pipeline has no field depth",)


@pytest.mark.parametrize(
    "step",
    [
        v2.RandomResizedCrop(64, antialias=False),
        v2.RandomShortestSize([48, 64], antialias=False),
        v2.ScaleJitter((64, 64), antialias=False),
        v2.RandomResize(48, 64, antialias=False),
    ],
)
def test_random_sizes_without_antialiasing_are_called(step):
    tensors = translate(v2.Compose([v2.PILToTensor(), step]))
    assert [finding.became is None for finding in tensors.findings] == [False, True]
    # Pillow always resizes with antialiasing.
    assert all(finding.became for finding in translate(step).findings)


def test_a_single_size_keeps_antialiasing():
    step = v2.RandomResize(48, 49, antialias=False)
    steps = translate(v2.Compose([v2.PILToTensor(), step]))
    assert steps.native == [T.Resize(48, antialias=False)]


def test_a_folder_with_its_own_choice_of_files_is_read_by_its_own_code(photos):
    def is_valid(path):
        return not path.endswith("000.jpg")

    dataset = datasets.ImageFolder(photos, v1.ToTensor(), is_valid_file=is_valid)
    found = read_dataset(dataset)

    assert found.is_python
    assert "is_valid_file" in str(found.findings)
