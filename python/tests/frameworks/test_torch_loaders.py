"""DataLoaders of PyTorch, and of trainers that make them, with `infeed.install`."""

import functools
import importlib
import itertools
import json
import os

import numpy as np
import pytest
from PIL import Image
from requirements import framework_test, import_or_skip
from running import run
from torch_loops import BATCH, assert_same, epochs, loader_of, run_both

import infeed
from infeed.watching.check import WatchedLoops

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = import_or_skip("torch")
torchvision = import_or_skip("torchvision")
v2 = import_or_skip("torchvision.transforms.v2")
adapter = import_or_skip("infeed.torch")
pytestmark = framework_test

TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
STILL = v2.Compose([v2.Resize((32, 32)), *TENSOR])
RANDOM = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), *TENSOR])


@pytest.fixture
def with_infeed():
    infeed.install("torch", proof_seconds=0)
    yield
    infeed.uninstall()


@pytest.fixture
def dataset_of(classification):
    """Returns a function that makes the dataset of thirty images."""

    def make(transform=STILL, **settings):
        folder = str(classification.path)
        return torchvision.datasets.ImageFolder(folder, transform, **settings)

    return make


@pytest.fixture
def both(capsys):
    """Returns a function that calls another one without and with infeed."""

    return functools.partial(run_both, capsys)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "num_workers": 2, "persistent_workers": True},
        {"shuffle": True, "drop_last": True, "generator": 7},
        {"batch_size": 64},
    ],
    ids=["still", "shuffled", "workers", "generator", "one batch"],
)
def test_batches_have_the_same_samples_in_the_same_order(both, dataset_of, settings):
    def call():
        given = dict(settings)
        if seed := given.get("generator"):
            given["generator"] = torch.Generator().manual_seed(seed)
        loader = loader_of(dataset_of(), **given)
        assert len(loader) == len(iter(loader))
        return epochs(loader)

    theirs, ours = both(call)

    assert_same(theirs, ours)
    # The images differ, so an equal order shows.
    assert len({float(batch[0].mean()) for batch in ours[0]}) == len(ours[0])


SAMPLERS = {
    "weights": lambda data: {
        "sampler": torch.utils.data.WeightedRandomSampler(
            np.linspace(0.1, 1, len(data)).tolist(), 50
        )
    },
    "rank": lambda data: {
        "sampler": torch.utils.data.DistributedSampler(data, 4, 1, seed=2)
    },
    "numbers": lambda data: {"sampler": [5, 5, 29, 0, np.int64(3)]},
    "tensors": lambda data: {"sampler": torch.randperm(len(data))},
    "batches": lambda data: {
        "batch_size": 1,
        "batch_sampler": [[1, 2], [2, 9], [7]],
    },
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_any_sampler_chooses_the_samples(both, dataset_of, name):
    def call():
        dataset = dataset_of()
        return epochs(loader_of(dataset, **SAMPLERS[name](dataset)))

    assert_same(*both(call))


def test_subsets_have_their_samples(both, dataset_of):
    def call():
        subset = torch.utils.data.Subset(dataset_of(), [29, 3, 3, 11, 0])
        return epochs(loader_of(subset, shuffle=True))

    assert_same(*both(call))


def test_files_in_another_order_than_that_of_the_folder_have_their_labels(
    both, tmp_path
):
    def call():
        return epochs(loader_of(torchvision.datasets.ImageFolder(tmp_path, STILL)))

    # The order of the names differs from that of the paths.
    for name in ("a", "a-b", "a/c"):
        (tmp_path / name).mkdir()
        level = 40 * len(name)
        Image.new("RGB", (40, 40), (level,) * 3).save(tmp_path / name / "x.png")

    assert_same(*both(call))


def test_functions_of_the_program_make_batches_of_samples(both, dataset_of):
    mix = v2.MixUp(num_classes=3)

    def call():
        def collate(samples):
            types = {tuple(map(type, sample)) for sample in samples}
            return [*mix(*torch.utils.data.default_collate(samples)), str(types)]

        return epochs(loader_of(dataset_of(), shuffle=True, collate_fn=collate))

    assert_same(*both(call))


def test_random_draws_follow_the_seed(with_infeed, dataset_of):
    def images(seed):
        torch.manual_seed(seed)
        found = epochs(loader_of(dataset_of(RANDOM)))
        return [torch.cat([batch[0] for batch in epoch]) for epoch in found]

    first, again, other = images(1), images(1), images(2)

    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1]), "epochs draw again"
    assert not torch.equal(first[0], other[0])


def test_ranks_with_equal_seeds_draw_other_numbers(
    with_infeed, dataset_of, monkeypatch
):
    found = []
    for rank in range(2):
        torch.manual_seed(1)
        where = (rank, 2)
        monkeypatch.setattr("infeed.torch.process_rank", lambda at=where: at)
        found.append(next(iter(loader_of(dataset_of(RANDOM))))[0])

    assert not torch.equal(*found)


# Forks before PyTorch has any thread. All ranks have the same seed.
DISTRIBUTED = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
import infeed

folder, meeting = sys.argv[1:]

def main(rank):
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    infeed.install("torch", proof_seconds=0)
    torch.manual_seed(0)
    steps = [v2.Resize((8, 8)), v2.PILToTensor(), v2.RandomErasing(1.0)]
    dataset = ImageFolder(folder, v2.Compose(steps))
    sampler = DistributedSampler(dataset, seed=4)
    loader = DataLoader(dataset, 5, sampler=sampler)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = list(loader)
        labels = torch.cat([labels for _, labels in batches]).tolist()
        erased = torch.cat([(images == 0).all(1) for images, _ in batches])
        seen.append([list(sampler), labels, erased.flatten(1).int().tolist()])
    gathered = [None] * 2
    dist.all_gather_object(gathered, seen)
    if rank == 0:
        print(json.dumps(gathered))
    dist.barrier()
    dist.destroy_process_group()

children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            main(rank)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def test_processes_share_an_epoch_and_draw_other_numbers(classification, tmp_path):
    meeting = tmp_path / "meeting"

    found = json.loads(
        run(DISTRIBUTED, classification.path, meeting, OMP_NUM_THREADS="1")
    )

    for epoch in range(2):
        numbers = [rank[epoch][0] for rank in found]
        assert sorted(numbers[0] + numbers[1]) == [*range(30)]
        for numbers, labels, _ in (rank[epoch] for rank in found):
            assert labels == [number // 10 for number in numbers]
        assert found[0][epoch][2] != found[1][epoch][2]
    assert found[0][0][2] != found[0][1][2], "epochs draw again"


def test_a_changed_transform_counts_from_the_next_epoch_on(both, dataset_of):
    def call():
        dataset = dataset_of()
        loader = loader_of(dataset)
        first = list(loader)
        dataset.transform = v2.Compose([v2.Resize((16, 24)), *TENSOR])
        dataset.transforms.transform = dataset.transform
        return first, list(loader)

    assert_same(*both(call))


@pytest.mark.parametrize("name", ["torchvision", "timm"])
def test_labels_that_change_in_place_count_from_the_next_epoch_on(
    with_infeed, classification, dataset_of, capsys, name
):
    if name == "timm":
        timm = import_or_skip("timm.data")
        dataset = timm.create_dataset("", root=str(classification.path))
        dataset.transform = STILL
        samples = dataset.reader.samples
    else:
        dataset = dataset_of()
        samples = dataset.samples
    loader = loader_of(dataset, batch_size=30)
    first = [labels.tolist() for _, labels in loader]
    samples[0] = (samples[0][0], 2)

    second = [labels.tolist() for _, labels in loader]

    assert first[0][0] == 0
    assert second == [[2, *first[0][1:]]]
    assert "stay with PyTorch: its labels" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_without_memory_stays_with_pytorch(
    dataset_of, capsys, monkeypatch, workers
):
    monkeypatch.setattr("infeed.trainers.torch._reported", set())

    def labels():
        torch.manual_seed(4)
        loader = loader_of(dataset_of(), shuffle=True, num_workers=workers)
        return [[one.tolist() for _, one in loader] for _ in range(2)]

    theirs = labels()
    infeed.install("torch", proof_seconds=0, memory="1KiB")
    try:
        assert labels() == theirs
    finally:
        infeed.uninstall()

    assert "stay with PyTorch: " in capsys.readouterr().err


def test_loops_may_end_early_and_run_at_the_same_time(both, dataset_of):
    def call():
        loader = loader_of(dataset_of(), shuffle=True)
        first = list(itertools.islice(loader, 2))
        pairs = list(zip(loader, loader, strict=True))
        return first, pairs, list(loader)

    assert_same(*both(call))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, number):
        return number


class Endless(torch.utils.data.Sampler):
    def __init__(self, size, length):
        self.size, self.length = size, length

    def __iter__(self):
        yield from itertools.repeat([0, 1], 9)

    def __len__(self):
        return self.length


REASONS = {
    "python": (lambda data: loader_of(Numbers(), shuffle=True), "__getitem__"),
    "function": (
        lambda data: loader_of(data(v2.Lambda(lambda image: 0))),
        "Lambda: ",
    ),
    "sizes": (
        lambda data: loader_of(data(v2.Compose(TENSOR)), batch_size=1),
        "differ in size",
    ),
    "one by one": (lambda data: loader_of(data(), batch_size=None), "batch_size=None"),
    "uneven": (
        lambda data: torch.utils.data.DataLoader(
            data(), batch_sampler=[[0], [1, 2], [3]]
        ),
        "batches differ in size",
    ),
    "more batches": (
        lambda data: torch.utils.data.DataLoader(data(), batch_sampler=Endless(2, 3)),
        "has 3 batches, and yields 4 or more",
    ),
    "negative": (lambda data: loader_of(data(), sampler=[-1, -2]), "without a sample"),
}


@pytest.mark.parametrize("name", REASONS)
def test_other_loaders_stay_with_pytorch_and_are_named_once(
    dataset_of, capsys, name, monkeypatch
):
    monkeypatch.setattr("infeed.trainers.torch._reported", set())
    make, reason = REASONS[name]

    def sums():
        torch.manual_seed(4)
        loader = make(dataset_of)
        found = [*itertools.islice(loader, 3), *itertools.islice(loader, 3)]
        return [str(one) for one in found], torch.rand(1).item()

    theirs = sums()
    infeed.install("torch", proof_seconds=0)
    try:
        ours = sums()
    finally:
        infeed.uninstall()

    assert theirs == ours
    printed = capsys.readouterr().err
    assert printed.count("stay with PyTorch") == 1
    assert reason in printed


def test_other_readers_of_files_stay_with_pytorch(both, dataset_of):
    def call():
        dataset = dataset_of(loader=lambda path: Image.new("RGB", (32, 32)))
        return epochs(loader_of(dataset))

    assert_same(*both(call, stays=True))


def test_streams_stay_with_pytorch(both):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert_same(*both(lambda: epochs(loader_of(Stream())), stays=True))


def test_the_switch_gives_the_loader_back(with_infeed, dataset_of, monkeypatch, capsys):
    loader = loader_of(dataset_of())
    monkeypatch.setenv("INFEED_TRAINERS", "off")
    own = iter(loader)
    monkeypatch.delenv("INFEED_TRAINERS")

    assert isinstance(own, torch.utils.data.dataloader._BaseDataLoaderIter)
    assert not isinstance(iter(loader), torch.utils.data.dataloader._BaseDataLoaderIter)
    infeed.uninstall("torch")
    assert isinstance(iter(loader), torch.utils.data.dataloader._BaseDataLoaderIter)


def test_a_bad_file_is_an_error_that_names_it(with_infeed, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 40)).save(tmp_path / name / "good.png")
    (tmp_path / "b" / "worse.png").write_bytes(b"no image")
    loader = loader_of(torchvision.datasets.ImageFolder(tmp_path, STILL))

    with pytest.raises(infeed.errors.DecodeError, match=r"worse\.png"):
        list(loader)


def test_samples_that_differ_stay_with_pytorch(dataset_of, capsys, monkeypatch):
    dataset = dataset_of()
    infeed.install("torch", proof_seconds=2)
    try:
        # The files are read again, as other images.
        kept = torchvision.datasets.folder.pil_loader
        monkeypatch.setattr(
            "torchvision.datasets.folder.pil_loader",
            lambda path: kept(path).point(lambda level: 255 - level),
        )
        found = [list(loader_of(dataset)) for _ in range(2)]
    finally:
        infeed.uninstall()

    own = list(loader_of(dataset))
    assert all(map(torch.equal, found[1][0], own[0]))
    printed = capsys.readouterr().err
    assert printed.count("stay with PyTorch: the samples of infeed differ") == 1


def test_a_dataset_that_stays_is_read_once(dataset_of, monkeypatch):
    read = []
    reader = "infeed.trainers.torch_samples.read_native"
    original = importlib.import_module("infeed.trainers.torch_samples").read_native
    monkeypatch.setattr(reader, lambda dataset: read.append(0) or original(dataset))
    infeed.install("torch", proof_seconds=0)
    try:
        dataset = dataset_of(v2.Compose([v2.Resize((8, 8)), SlowTensor()]))
        for _ in range(3):
            list(loader_of(dataset))
    finally:
        infeed.uninstall()

    assert len(read) == 1


class SlowTensor:
    def __call__(self, image):
        return torch.from_numpy(np.array(image) + 1)


def test_images_of_pillow_are_not_stacked(with_infeed, classification, capsys):
    hub = import_or_skip("datasets")
    paths = [str(path) for path, _ in classification.files]
    table = hub.Dataset.from_dict({"image": paths}).cast_column("image", hub.Image())

    def transform_rows(rows):
        return rows | {"x": [STILL(image) for image in rows["image"]]}

    table = table.with_transform(transform_rows)
    with pytest.raises(TypeError, match="default_collate"):
        list(loader_of(table))
    found = list(loader_of(table, collate_fn=lambda rows: [row["x"] for row in rows]))

    assert "cannot be stacked" in capsys.readouterr().err
    assert len(found) == 8


def test_loaders_of_freed_datasets_are_closed(with_infeed, dataset_of):
    import gc

    from infeed.trainers import torch as trainer

    list(loader_of(dataset_of()))
    gc.collect()

    assert not trainer._samples_by_dataset


def test_the_report_has_proof_gain_and_the_time_of_a_step(
    dataset_of, capsys, few_draws
):
    infeed.install("torch", proof_seconds=2)
    try:
        train = loader_of(dataset_of(RANDOM), shuffle=True)
        torch.manual_seed(1)
        first = [batch[1].tolist() for batch in train]
        list(train)
        list(loader_of(dataset_of()))
    finally:
        infeed.uninstall()
    torch.manual_seed(1)
    own = [batch[1].tolist() for batch in loader_of(dataset_of(), shuffle=True)]

    assert first == own, "the comparison draws no numbers of the program"
    printed = capsys.readouterr().err
    assert printed.count("proof: 30 samples") == 2
    assert printed.count("gain: ") == 1, "only shuffled loaders are measured"
    assert "a step of the first epoch took" in printed
    assert "T.RandomResizedCrop(32)" in printed


def test_adopt_measures_the_loader_of_pytorch(with_infeed, dataset_of, capsys):
    adopted = infeed.adopt(loader_of(dataset_of()), samples=0, seconds=0.01)

    assert adopted.gain is not None
    assert "makes the batches" not in capsys.readouterr().err


def test_a_check_of_waiting_counts_the_batches(dataset_of):
    loops = WatchedLoops(100)
    with loops.of_all_loaders():
        infeed.install("torch", proof_seconds=0)
        try:
            loader = loader_of(dataset_of(), batch_size=2)
            epochs(loader, 2)
        finally:
            infeed.uninstall()
        watched = loops.longest()

    assert watched is not None
    assert watched._batches == 30


def test_loaders_in_lightning(both, dataset_of, tmp_path):
    lightning = import_or_skip("lightning")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, index):
            self.seen.append((self.current_epoch, index, batch))
            return self.layer(batch[0].mean()[None]).sum()

        def validation_step(self, batch, index):
            self.seen.append((-1, index, batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    def call():
        model = Model()
        train = loader_of(dataset_of(), shuffle=True)
        trainer = lightning.Trainer(
            *(),
            accelerator="cpu",
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, train, loader_of(dataset_of()))
        return model.seen

    theirs, ours = both(call)

    assert len(ours) == 2 + 2 * 2 * 8
    assert_same(theirs, ours)


def test_loaders_that_accelerate_prepares_and_resumes(both, dataset_of):
    accelerate = import_or_skip("accelerate")

    def call():
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = accelerate.Accelerator(cpu=True)
        loader = accelerator.prepare(loader_of(dataset_of(), shuffle=True))
        first = list(loader)
        rest = list(accelerator.skip_first_batches(loader, 5))
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        return first, rest

    theirs, ours = both(call)

    assert len(ours[1]) == 3
    assert_same(theirs, ours)


def test_a_trainer_of_hugging_face_resumes_with_the_next_batch(
    both, dataset_of, tmp_path_factory
):
    transformers = import_or_skip("transformers")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def forward(self, image, labels):
            self.seen.append((image.clone(), labels.tolist()))
            loss = self.layer(image.mean()[None]).square().mean()
            return {"loss": loss, "logits": image.mean((1, 2, 3))}

    def collate(samples):
        images, labels = zip(*samples, strict=True)
        return {"image": torch.stack(images), "labels": torch.tensor(labels)}

    def train(folder, checkpoint=None):
        arguments = importlib.import_module("hugging_face").training_arguments(
            folder,
            save_strategy="steps",
            save_steps=3,
            num_train_epochs=2,
            per_device_train_batch_size=BATCH,
            eval_strategy="epoch",
            remove_unused_columns=False,
        )
        trainer = transformers.Trainer(
            *(Model(), arguments, collate),
            train_dataset=dataset_of(),
            eval_dataset=dataset_of(),
        )
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        return trainer.model.seen

    def call():
        folder = tmp_path_factory.mktemp("run")
        whole = train(folder)
        return whole, train(folder / "again", folder / "checkpoint-12")

    theirs, ours = both(call)

    assert_same(theirs, ours)
    whole, resumed = ours
    # Step 12 is the fourth of the second epoch; evaluation has four batches of eight.
    assert_same(whole[8 + 4 + 4 :], resumed)


TIMM = {
    "training": {"is_training": True, "hflip": 0.0, "scale": (1, 1), "ratio": (1, 1)},
    "evaluation": {},
    "no prefetcher": {"use_prefetcher": False},
}


@pytest.mark.parametrize("name", TIMM)
def test_loaders_of_timm(both, classification, name):
    timm = import_or_skip("timm.data")

    def call():
        dataset = timm.create_dataset("", root=str(classification.path))
        loader = timm.create_loader(
            *(dataset, 32, BATCH),
            device=torch.device("cpu"),
            # In this process, random transforms would draw from its generators.
            num_workers=1,
            **{"color_jitter": 0, "interpolation": "bicubic"} | TIMM[name],
        )
        return [
            ((images * 0.2).clamp(-1, 1), labels)
            for epoch in epochs(loader)
            for images, labels in epoch
        ]

    theirs, ours = both(call)

    if name == "training":
        # The crops are random.
        theirs, ours = ([labels for _, labels in one] for one in (theirs, ours))
    assert_same(theirs, ours)


def test_steps_of_timm_without_a_transform_of_infeed_are_named(both, classification):
    timm = import_or_skip("timm.data")

    def call():
        dataset = timm.create_dataset("", root=str(classification.path))
        options = {"is_training": True, "auto_augment": "rand-m9-mstd0.5-inc1"}
        device = torch.device("cpu")
        loader = timm.create_loader(
            *(dataset, 32, BATCH), device=device, num_workers=0, **options
        )
        return [labels for _, labels in loader]

    assert_same(*both(call, stays=True))
