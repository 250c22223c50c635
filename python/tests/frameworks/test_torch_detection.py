"""The loaders of torchvision's reference for detection with `infeed.install`."""

import functools

import pytest
from recipes import write_coco
from requirements import framework_test, import_or_skip
from torch_loops import assert_same, epochs, loader_of, run_both

import infeed

torch = import_or_skip("torch")
datasets = import_or_skip("torchvision.datasets")
tv_tensors = import_or_skip("torchvision.tv_tensors")
v2 = import_or_skip("torchvision.transforms.v2")
pytestmark = framework_test

COUNT = 24
TO_TENSORS = (
    v2.PILToTensor(),
    v2.ToDtype(torch.float, scale=True),
    v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
    v2.SanitizeBoundingBoxes(),
)
STILL = (v2.Resize(48), *TO_TENSORS)
RANDOM = (
    v2.RandomShortestSize(min_size=(48, 64, 80), max_size=120),
    v2.RandomHorizontalFlip(p=0.5),
    *TO_TENSORS,
)
KEYS = ("boxes", "labels", "image_id")


@pytest.fixture
def both(capsys):
    """Returns a function that calls another one without and with infeed."""
    return functools.partial(run_both, capsys)


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    root = tmp_path_factory.mktemp("coco")
    return root, write_coco(root, COUNT)


@pytest.fixture
def dataset_of(coco):
    """Returns a function that makes the dataset of the reference."""
    root, annotations = coco

    def make(*steps, keys=KEYS):
        dataset = datasets.CocoDetection(
            root / "images", annotations, transforms=v2.Compose(steps)
        )
        dataset = datasets.wrap_dataset_for_transforms_v2(dataset, target_keys=keys)
        # The reference leaves out images without boxes.
        with_boxes = [number for number in range(COUNT) if number % 4]
        return torch.utils.data.Subset(dataset, with_boxes)

    return make


def collate(batch):
    return tuple(zip(*batch, strict=True))


class GroupedBatchSampler(torch.utils.data.BatchSampler):
    """Batches of images with one parity, as the reference groups aspect ratios."""

    def __iter__(self):
        groups = {0: [], 1: []}
        for number in self.sampler:
            group = groups[number % 2]
            group.append(number)
            if len(group) == self.batch_size:
                yield list(group)
                group.clear()

    def __len__(self):
        return len([*iter(self)])


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_reference(both, dataset_of, pure, workers):
    def call():
        dataset = dataset_of(*STILL, *([v2.ToPureTensor()] if pure else []))
        settings = {"num_workers": workers, "collate_fn": collate, "shuffle": True}
        return epochs(loader_of(dataset, **settings))

    theirs, ours = both(call)

    assert_same(theirs, ours)
    for images, targets in ours[0]:
        kind = torch.Tensor if pure else tv_tensors.BoundingBoxes
        assert all(type(target["boxes"]) is kind for target in targets)
        if not pure:
            sizes = [target["boxes"].canvas_size for target in targets]
            assert sizes == [tuple(image.shape[1:]) for image in images]


@pytest.mark.parametrize("steps", [STILL[1:], STILL, RANDOM])
def test_targets_have_the_masks_of_their_objects(dataset_of, capsys, steps):
    infeed.install("torch", proof_seconds=4)
    try:
        dataset = dataset_of(*steps, keys=(*KEYS, "masks"))
        loader = loader_of(dataset, collate_fn=collate, shuffle=True)
        batches = epochs(loader)
    finally:
        infeed.uninstall()

    printed = capsys.readouterr().err
    assert "proof: 18 samples" in printed
    assert "differ:" not in printed, printed
    assert "stay with PyTorch" not in printed
    for images, targets in batches[0]:
        for image, target in zip(images, targets, strict=True):
            masks = target["masks"]
            assert type(masks) is tv_tensors.Mask
            assert masks.dtype == torch.uint8
            assert masks.shape == (len(target["boxes"]), *image.shape[1:])


def test_masks_are_those_of_the_reference(both, dataset_of):
    def call():
        dataset = dataset_of(*TO_TENSORS, keys=(*KEYS, "masks"))
        return epochs(loader_of(dataset, collate_fn=collate, shuffle=True))

    assert_same(*both(call))


def test_a_sampler_groups_aspect_ratios(both, dataset_of):
    def call():
        dataset = dataset_of(*STILL)
        sampler = torch.utils.data.SequentialSampler(dataset)
        batches = GroupedBatchSampler(sampler, 3, drop_last=True)
        loader = torch.utils.data.DataLoader(
            dataset, batch_sampler=batches, collate_fn=collate
        )
        return epochs(loader)

    assert_same(*both(call))


def test_images_without_annotations_have_their_number_only(both, coco):
    root, annotations = coco

    def call():
        dataset = datasets.CocoDetection(
            root / "images", annotations, transforms=v2.PILToTensor()
        )
        dataset = datasets.wrap_dataset_for_transforms_v2(dataset, target_keys=KEYS)
        return epochs(loader_of(dataset, collate_fn=collate))

    theirs, ours = both(call)

    assert_same(theirs, ours)
    assert list(ours[0][0][1][0]) == ["image_id"]


def test_random_sizes_differ_in_a_batch(dataset_of, capsys):
    infeed.install("torch", proof_seconds=4)
    try:
        dataset = dataset_of(*RANDOM)
        loader = loader_of(dataset, collate_fn=collate, shuffle=True, num_workers=1)
        batches = epochs(loader)
    finally:
        infeed.uninstall()

    printed = capsys.readouterr().err
    assert "stay with PyTorch" not in printed
    assert "equal image_id, boxes, labels, shapes and types" in printed
    assert "samples/s instead of" in printed
    shapes = {tuple(image.shape) for images, _ in batches[0] for image in images}
    assert len(shapes) > 3
    ids = [
        sorted(target["image_id"] for _, targets in epoch for target in targets)
        for epoch in batches
    ]
    assert ids[0] == ids[1] == [1 + number for number in range(COUNT) if number % 4]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (("boxes", "labels", "area"), "its targets have area"),
        (("boxes", "bbox", "labels"), "sources.Coco has only"),
    ],
)
def test_other_targets_stay_with_pytorch(dataset_of, capsys, monkeypatch, keys, reason):
    pytest.importorskip("pycocotools")
    monkeypatch.setattr("infeed.trainers.torch._reported", set())
    infeed.install("torch", proof_seconds=0)
    try:
        next(iter(loader_of(dataset_of(*STILL, keys=keys), collate_fn=collate)))
    finally:
        infeed.uninstall()

    assert reason in capsys.readouterr().err
