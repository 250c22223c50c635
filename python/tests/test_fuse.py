"""Fused chains of transforms: near the single steps, and a function of the seed."""

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed import transforms as T

SIZE = (64, 96)
WARPS = (
    T.RandomAffine(8, translate=(0.05, 0.05), interpolation="bilinear"),
    T.RandomHorizontalFlip(),
    T.RandomRotation(8, interpolation="bilinear"),
    T.RandomPerspective(0.1, p=1),
)
COLORS = (T.ColorJitter(0.2, 0.2, 0.2), T.RandomInvert(), T.ColorJitter(0.2))


def smooth(count=8):
    """Returns images without detail, so that interpolating again changes little."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    images = np.empty((count, *SIZE, 3))
    for image in images:
        for channel in range(3):
            a, b, phase = rng.uniform(-0.05, 0.05, 3)
            image[..., channel] = 128 + 60 * np.sin(a * x + b * y + 20 * phase)
    return images.astype(np.uint8)


def pipeline(*steps, fuse=True, **fields):
    source = sources.Memory(image=smooth(), **fields)
    return infeed.Pipeline(source).shuffle(2).transform(*steps, fuse=fuse).batch(4)


def epoch(described, field="image", **options):
    with described.open(**options) as loader:
        return np.concatenate([batch[field] for batch in loader])


@pytest.mark.parametrize(
    ("steps", "most"),
    [(WARPS, 2.5), (WARPS[:-1], 2.5), (COLORS, 3.5), ((*WARPS, *COLORS), 5)],
)
def test_fused_chains_are_near_the_single_steps_but_not_equal(steps, most):
    fused, single = (epoch(pipeline(*steps, fuse=fuse)) for fuse in (True, False))

    middle = (slice(None), slice(16, 48), slice(24, 72))
    difference = np.abs(fused.astype(int) - single.astype(int))[middle]
    assert 0 < difference.mean() < most


def test_a_single_step_is_not_changed():
    for step in (WARPS[0], T.ColorJitter(0.2)):
        np.testing.assert_array_equal(
            epoch(pipeline(step)), epoch(pipeline(step, fuse=False))
        )


def test_batches_are_those_of_the_preview_for_any_number_of_workers():
    fused = pipeline(*WARPS, *COLORS)
    one = epoch(fused, workers=1)

    np.testing.assert_array_equal(one, epoch(fused, workers=3))
    for position in range(8):
        *stages, output = fused.preview(position)
        np.testing.assert_array_equal(output.fields["image"], one[position])
        names = [stage.name for stage in stages]
        assert names.count("RandomPerspective") == 1
        assert "RandomAffine" not in names
        assert names[-1] == "ColorJitter"


def test_chains_before_and_after_a_mosaic_are_those_of_the_preview():
    described = pipeline(*WARPS, T.Mosaic((60, 80)), *WARPS, T.RandomCrop(40))
    made = epoch(described)

    assert made.shape == (8, 40, 40, 3)
    for position in range(8):
        output = list(described.preview(position))[-1]
        np.testing.assert_array_equal(output.fields["image"], made[position])


def test_boxes_move_with_a_fused_warp():
    boxes = np.tile(np.float32([[30, 20, 60, 40]]), (8, 1, 1))
    images = np.zeros((8, *SIZE, 3), np.uint8)
    images[:, 20:40, 30:60] = 255
    described = (
        infeed.Pipeline(sources.Memory(image=images, boxes=boxes))
        .shuffle(2)
        .boxes("boxes")
        .transform(*WARPS, fuse=True)
        .batch(1)
    )

    with described.open() as loader:
        for batch in loader:
            ((left, top, right, bottom),) = batch["boxes"][0]
            rows, columns = np.nonzero(batch["image"][0, ..., 0] > 127)
            found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            np.testing.assert_allclose(found, (left, top, right, bottom), atol=1.5)


def test_transforms_before_the_first_random_one_are_not_fused():
    """A cache keeps their result, so it must not depend on later draws."""
    steps = (T.Resize((48, 72)), T.RandomGrayscale(0), *COLORS)
    fused = pipeline(*steps)

    with fused.open(cache="64MiB") as loader:
        first, second = ([batch["image"].copy() for batch in loader] for _ in range(2))
    with fused.open() as loader:
        plain = [[batch["image"].copy() for batch in loader] for _ in range(2)]

    np.testing.assert_array_equal(first, plain[0])
    np.testing.assert_array_equal(second, plain[1])


def test_the_state_and_the_description_record_it(tmp_path):
    fused, single = (pipeline(*WARPS, fuse=fuse) for fuse in (True, False))
    with fused.open() as loader:
        next(iter(loader))
        state = loader.state_dict()

    with (
        single.open() as loader,
        pytest.raises(infeed.errors.ConfigError, match="fuse"),
    ):
        loader.load_state_dict(state)
    assert "fuse=True" in repr(fused)
    assert "fuse" not in repr(single)
    assert fused.transform(T.ToFloat())._to_dict()["fuse"] is True
    assert "fuse" not in fused.transform(fuse=False)._to_dict()
    with pytest.raises(infeed.errors.ConfigError, match="fuse"):
        fused.transform(fuse="yes")


def test_a_file_keeps_it(classification, tmp_path):
    described = infeed.Pipeline(sources.Folder(classification.path)).decode()
    described = described.transform(T.Resize((32, 32)), *WARPS, fuse=True).batch(4)
    described.save(tmp_path / "train.toml")

    loaded = infeed.Pipeline.load(tmp_path / "train.toml")

    assert "\nfuse = true\n" in (tmp_path / "train.toml").read_text()
    assert "fuse=True" in repr(loaded)
    np.testing.assert_array_equal(epoch(loaded), epoch(described))
