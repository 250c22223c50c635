"""MixUp and CutMix, compared with NumPy on the rows of the unmixed pipeline."""

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T

COUNT = 24
SIDE = 16


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    """Images whose labels are their numbers: a soft label identifies both records."""
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (COUNT, SIDE, SIDE, 3), np.uint8)
    return {"image": images, "label": np.arange(COUNT)}


def pipeline(data, *mixing, floats=True) -> infeed.Pipeline:
    source = sources.Memory(**data)
    last = (T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),) if floats else ()
    return (
        infeed.Pipeline(source)
        .shuffle(seed=1)
        .transform(T.RandomHorizontalFlip(), *last, *mixing)
        .batch(4)
    )


def epochs(pipeline, count, **options):
    """Returns records, images and labels of several epochs, each as one array."""
    with pipeline.open(**options) as loader:
        for _ in range(count):
            batches = list(loader)
            records = [record for batch in batches for record, _ in batch.records]
            images, labels = (
                np.concatenate([np.asarray(batch[name]) for batch in batches])
                for name in ("image", "label")
            )
            yield records, images, labels


def partner(label, record):
    """Returns the other record of a soft label and the share of the first; None if
    unmixed.
    """
    others = [other for other in np.flatnonzero(label) if other != record]
    assert len(others) <= 1
    return (others[0], label[record]) if others else None


@pytest.mark.parametrize("floats", [True, False])
def test_mixed_up_rows_are_weighted_sums_of_two_unmixed_rows(data, floats):
    mixed = pipeline(data, T.MixUp(0.4, classes=COUNT), floats=floats)
    plain = pipeline(data, floats=floats)
    shares = []

    for (records, images, labels), own in zip(
        epochs(mixed, 3), epochs(plain, 3), strict=True
    ):
        assert records == own[0]
        assert labels.dtype == np.float32
        np.testing.assert_allclose(labels.sum(1), 1, rtol=1e-6)
        row_of = {record: row for row, record in enumerate(records)}
        for row, record in enumerate(records):
            found = partner(labels[row], record)
            if found is None:  # a share of 1, to the last bit of a float32
                continue
            other, share = found
            shares.append(share)
            whole = share * own[1][row].astype(np.float64)
            whole += (1 - np.float64(share)) * own[1][row_of[other]]
            if floats:
                np.testing.assert_allclose(images[row], whole, rtol=0, atol=2e-6)
            else:
                assert images.dtype == np.uint8
                assert np.abs(images[row] - whole).max() < 0.5001

    assert len(shares) > 60
    assert 0.35 < np.mean(shares) < 0.65


def test_rectangles_are_the_partners_and_labels_are_their_area(data):
    mixed = pipeline(data, T.CutMix(classes=COUNT))
    pasted = 0

    for (records, images, labels), own in zip(
        epochs(mixed, 3), epochs(pipeline(data), 3), strict=True
    ):
        row_of = {record: row for row, record in enumerate(records)}
        for row, record in enumerate(records):
            found = partner(labels[row], record)
            changed = (images[row] != own[1][row]).any(-1)
            if found is None:
                assert not changed.any()
                continue
            other, share = found
            rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
            box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            np.testing.assert_array_equal(images[row][box], own[1][row_of[other]][box])
            area = images[row][box][..., 0].size / SIDE**2
            assert share == pytest.approx(1 - area, abs=1e-6)
            pasted += 1

    assert pasted > 50


def test_at_most_one_of_both_is_applied_with_any_number_of_workers(data):
    both = T.MixUp(0.4, p=0.4, classes=COUNT), T.CutMix(p=0.4, classes=COUNT)
    one = list(epochs(pipeline(data, *both), 2, workers=1))
    four = list(epochs(pipeline(data, *both), 2, workers=4))
    unmixed = 0

    for (records, images, labels), other in zip(one, four, strict=True):
        assert records == other[0]
        np.testing.assert_array_equal(images, other[1])
        np.testing.assert_array_equal(labels, other[2])
        unmixed += sum(label.max() == 1 for label in labels)

    assert 2 <= unmixed <= 22, "a fifth of 48 stays unmixed"


def test_float_labels_are_mixed_directly_and_a_file_keeps_the_settings(data, tmp_path):
    shares = np.eye(COUNT, dtype=np.float32)
    with_shares = pipeline({**data, "label": shares}, T.MixUp(0.4))
    numbers = pipeline(data, T.MixUp(0.4, classes=COUNT))

    for ours, theirs in zip(epochs(with_shares, 1), epochs(numbers, 1), strict=True):
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_array_equal(ours[2], theirs[2])

    np.save(tmp_path / "image.npy", data["image"])
    np.save(tmp_path / "label.npy", data["label"])
    files = sources.Memory(
        **{name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in data}
    )
    saved = (
        infeed.Pipeline(files)
        .shuffle(seed=1)
        .transform(T.CutMix(0.5, classes=COUNT))
        .batch(4)
    )
    saved.save(tmp_path / "train.toml")
    assert infeed.Pipeline.load(tmp_path / "train.toml") == saved


def test_fields_that_cannot_be_mixed_raise_with_a_fix(data):
    with pytest.raises(infeed.errors.ConfigError, match="set it, as in classes=10"):
        pipeline(data, T.MixUp()).open()
    with pytest.raises(infeed.errors.ConfigError, match="CutMix add up to 2"):
        pipeline(data, T.MixUp(classes=9), T.CutMix(classes=9)).open()
    with pytest.raises(infeed.errors.ConfigError, match="put it before MixUp"):
        pipeline(data, T.MixUp(classes=9), T.RandomVerticalFlip())
