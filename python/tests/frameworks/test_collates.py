"""Samples are counted in the batches of the functions that trainings use."""

import itertools

import numpy as np
import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed.adopting import adoption
from infeed.watching.batch_sizes import batch_sizes

torch = import_or_skip("torch")
data = import_or_skip("torch.utils.data")
pytestmark = framework_test

SAMPLES = 22
BATCH = 4


class Samples:
    """Images of two sizes with boxes. Each sample advances the clock `seconds`."""

    def __init__(self, sides=(12, 12)):
        self.sides = sides
        self.seconds = 0.0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        self.seconds += 0.25
        side = self.sides[number % 2]
        boxes = torch.zeros(number % 5, 4)
        image = torch.full((3, side, 12), number, dtype=torch.float32)
        return image, {"boxes": boxes, "labels": torch.zeros(len(boxes))}


def parts(batch):
    return tuple(zip(*batch, strict=True))


def labels(batch):
    """Stacks images, with a label each."""
    images, targets = parts(batch)
    return torch.stack(images), torch.tensor([len(t["boxes"]) for t in targets])


def pad(batch):
    """Pads images to the largest, as DETR does, and keeps targets as a list."""
    images, targets = parts(batch)
    height = max(image.shape[1] for image in images)
    pads = [
        torch.nn.functional.pad(image, (0, 0, 0, height - image.shape[1]))
        for image in images
    ]
    return [torch.stack(pads), list(targets)]


def concatenate(batch):
    """Concatenates boxes, as Ultralytics does, with the number of their image."""
    images, targets = parts(batch)
    counts = [len(target["boxes"]) for target in targets]
    numbers = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    boxes = torch.cat([target["boxes"] for target in targets])
    return {"batch_idx": numbers, "bboxes": boxes, "img": torch.stack(images)}


def boxes_first(batch):
    found = concatenate(batch)
    return found["bboxes"], found["img"]


def masks(batch):
    """Pads images and masks into one tensor each, as the recipe of segmentation."""
    images, _ = pad(batch)
    return images, images[:, 0].long()


def process(batch):
    """Names of `transformers`: images stacked, annotations as dictionaries."""
    images, targets = parts(batch)
    return {"pixel_values": torch.stack(images), "labels": list(targets)}


def mix(batch):
    """Mixes images and one-hot labels of a batch, as MixUp does."""
    images, counts = labels(batch)
    soft = torch.nn.functional.one_hot(counts, 5).float()
    return 0.7 * images + 0.3 * images.flip(0), 0.7 * soft + 0.3 * soft.flip(0)


def time_first(batch):
    """Sequences as recurrent networks take them: the second axis counts samples."""
    rows = [image.flatten()[: 5 + at] for at, (image, _) in enumerate(batch)]
    return torch.nn.utils.rnn.pad_sequence(rows)


def two_views(batch):
    """Two views of each image, as contrastive learning does."""
    images, counts = labels(batch)
    return torch.cat([images, images.flip(3)]), torch.cat([counts, counts])


def as_array(batch):
    """Arrays of NumPy, as trainings with JAX collate."""
    return {
        name: np.asarray(part) for name, part in zip("xy", labels(batch), strict=True)
    }


COLLATES = [
    labels,
    parts,
    list,
    pad,
    concatenate,
    boxes_first,
    masks,
    process,
    mix,
    time_first,
    two_views,
    as_array,
]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("collate", COLLATES, ids=lambda collate: collate.__name__)
def test_the_samples_of_an_epoch_are_the_indices_of_its_sampler(collate, drop_last):
    loader = data.DataLoader(
        Samples(), batch_size=BATCH, collate_fn=collate, drop_last=drop_last
    )
    sizes = batch_sizes(loader)

    counted = [sizes(*one) for one in enumerate(loader)]

    assert counted == [4, 4, 4, 4, 4] + ([] if drop_last else [2])


@pytest.mark.parametrize("collate", COLLATES, ids=lambda collate: collate.__name__)
def test_the_rate_is_that_of_a_plain_loop_over_the_samples(collate):
    samples = Samples()
    loader = data.DataLoader(samples, batch_size=BATCH, collate_fn=collate)

    rate = adoption._rate(loader, 12.0, lambda: samples.seconds)

    # 0.25 s of the clock per sample, whatever the batches are.
    assert rate == pytest.approx(4.0)


@pytest.mark.parametrize("collate", COLLATES, ids=lambda collate: collate.__name__)
def test_a_watch_counts_the_samples_of_several_epochs(collate):
    loader = data.DataLoader(Samples(), batch_size=BATCH, collate_fn=collate)
    watch = infeed.watch(loader)

    for _ in range(2):
        for _ in watch:
            pass

    assert watch.report().figures.samples == 2 * SAMPLES


def test_a_batch_sampler_has_the_batch_size():
    sampler = data.BatchSampler(range(SAMPLES), BATCH, drop_last=False)
    loader = data.DataLoader(Samples(), batch_sampler=sampler, collate_fn=parts)
    sizes = batch_sizes(loader)

    assert [sizes(*one) for one in enumerate(loader)] == [4, 4, 4, 4, 4, 2]


def test_batches_of_any_size_are_counted_if_their_arrays_agree():
    batches = [[0, 1, 2], [3], [4, 5, 6, 7, 8]]
    for collate, counted in ((labels, [3, 1, 5]), (parts, [None, None, None])):
        loader = data.DataLoader(Samples(), batch_sampler=batches, collate_fn=collate)
        sizes = batch_sizes(loader)

        assert [sizes(*one) for one in enumerate(loader)] == counted


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(Samples()[n] for n in range(SAMPLES))


def test_a_stream_has_no_sampler_and_its_last_batch_is_counted():
    loader = data.DataLoader(Stream(), batch_size=BATCH, collate_fn=labels)
    sizes = batch_sizes(loader)

    assert [sizes(*one) for one in enumerate(loader)] == [4, 4, 4, 4, 4, 2]


class Repeating(data.DataLoader):
    """A loader whose iterator stays in use between epochs, as that of Ultralytics."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batches", itertools.cycle(list(super().__iter__())))

    def __iter__(self):
        return (next(self.batches) for _ in range(len(self)))


def test_epochs_that_are_left_early_add_up():
    loader = Repeating(Samples(), batch_size=BATCH, collate_fn=concatenate)
    watch = infeed.watch(loader)

    for _ in range(6):
        for _ in itertools.islice(watch, 6):
            pass

    assert watch.report().figures.samples == 6 * SAMPLES
