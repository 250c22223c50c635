"""Objects of other images are pasted with their boxes, columns and masks."""

import numpy as np
import pytest
from test_device import host
from test_masks import HEIGHT, SAME_SIZE, WIDTH, Scenes, box_of, pipeline_of

import infeed
from infeed import sources
from infeed import transforms as T
from scenes import png, rows


class LabelledScenes(Scenes):
    """Scenes whose labels say record and object."""

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return {**found, "labels": found["labels"] + 100 * index, "index": index}


def labelled_pipeline(scenes):
    ragged = sources.Field(kind="ragged")
    fields = {
        "image": sources.Field(),
        "index": sources.Field(),
        "boxes": ragged,
        "labels": ragged,
        "masks": ragged,
    }
    pipeline = infeed.Pipeline(sources.Items(scenes, fields=fields))
    pipeline = pipeline.boxes(
        columns=("labels",), masks="masks", min_size=0, min_area=0
    )
    return pipeline.shuffle(1)


def widen(mask):
    """Returns the pixels up to two pixels around a mask."""
    padded = np.pad(mask, 2)
    height, width = mask.shape
    shifts = [padded[y : y + height, x : x + width] for y in range(5) for x in range(5)]
    return np.any(shifts, axis=0)


@pytest.mark.parametrize("blending", [True, False])
def test_pasted_objects_cover_those_below_as_in_torchvisions_reference(blending):
    scenes = LabelledScenes(44)
    pipeline = (
        labelled_pipeline(scenes).transform(T.CopyPaste(blending=blending)).batch(11)
    )
    pasted = covered = gone = 0
    with pipeline.open(workers=2) as loader:
        for batch in loader:
            lists = [rows(batch, name) for name in ("boxes", "labels", "masks")]
            for row, (image, index) in enumerate(
                zip(batch["image"], batch["index"], strict=True)
            ):
                boxes, labels, masks = (values[row] for values in lists)
                own_image, _, _, own_labels, own_masks = scenes.made[index]
                is_own = labels // 100 == index
                # Pasted objects come last, in their order.
                assert not np.any(~is_own[:-1] & is_own[1:])
                others = set((labels[~is_own] // 100).tolist())
                assert len(others) <= 1
                expected = own_image
                alpha = np.zeros((HEIGHT, WIDTH), bool)
                for other in others:
                    image_of, _, boxes_of, labels_of, masks_of = scenes.made[other]
                    chosen = np.isin(labels_of, labels[~is_own] % 100)
                    chosen_masks = np.stack(masks_of)[chosen]
                    np.testing.assert_array_equal(masks[~is_own], chosen_masks)
                    np.testing.assert_array_equal(boxes[~is_own], boxes_of[chosen])
                    alpha = chosen_masks.any(0)
                    alpha = widen(alpha) if blending else alpha
                    expected = np.where(alpha[..., None], image_of, own_image)
                    pasted += int(chosen.sum())
                np.testing.assert_array_equal(image, expected)
                rest = [mask * ~alpha for mask in own_masks]
                is_left = np.array([mask.any() for mask in rest], bool)
                gone += int((~is_left).sum())
                assert (labels[is_own] % 100).tolist() == own_labels[is_left].tolist()
                left = [mask for mask in rest if mask.any()]
                found = zip(masks[is_own], boxes[is_own], strict=True)
                for number, (mask, box) in enumerate(found):
                    np.testing.assert_array_equal(mask, left[number])
                    before = own_masks[int(np.flatnonzero(is_left)[number])]
                    if (before != mask).any():
                        covered += 1
                    assert tuple(box) == box_of(mask)
    assert pasted > 60
    assert covered > 20
    assert gone > 0


@pytest.mark.parametrize("mask_format", ["dense", "text"])
def test_objects_move_with_the_transforms_before_and_after(mask_format):
    encoded = mask_format == "text"
    # Only images in files differ in size.
    encode, size = (png, None) if encoded else (None, (HEIGHT, WIDTH))
    scenes = Scenes(60, mask_format, encode, size)
    pipeline = pipeline_of(scenes).shuffle(2).decode()
    pipeline = pipeline.transform(
        T.RandomHorizontalFlip(),
        T.CopyPaste(p=0.8, blending=False),
        T.RandomAffine(10),
        T.Resize((40, 40)),
        T.RandomCrop(36),
    )
    seen = 0
    with pipeline.batch(8).open(workers=2) as loader:
        for batch in loader:
            lists = zip(rows(batch, "masks"), rows(batch, "labels"), strict=True)
            for objects, (masks, labels) in zip(batch["mask"], lists, strict=True):
                for label in np.unique(labels):
                    of_label = masks[labels == label].max(0)
                    np.testing.assert_array_equal(of_label, objects == label)
                seen += len(labels)
    assert seen > 150


def test_a_smaller_image_is_resized_to_the_image():
    small = np.zeros((20, 20, 3), np.uint8)
    small[4:12, 6:16] = 200
    mask = (small[..., 0] > 0).astype(np.uint8)
    large = np.full((40, 60, 3), 9, np.uint8)

    class Both:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            image, objects = (large, 0) if index == 0 else (small, 1)
            return {
                "image": png(image, index),
                "boxes": np.tile(np.float32([6, 4, 16, 12]), (objects, 1)),
                "masks": np.tile(mask.ravel(), objects),
            }

    ragged = sources.Field(kind="ragged")
    fields = {"image": sources.Field(), "boxes": ragged, "masks": ragged}
    pipeline = infeed.Pipeline(sources.Items(Both(), fields=fields))
    pipeline = pipeline.decode().boxes(masks="masks")
    pipeline = pipeline.transform(T.CopyPaste(blending=False))
    with pipeline.batch(1).open(workers=1) as loader:
        first = next(iter(loader))
    resized = infeed.Pipeline(sources.Memory(image=small[None])).transform(
        T.Resize((40, 60))
    )
    expected = next(iter(resized.batch(1)))["image"][0]

    found = first["masks"][0][0]
    inside = np.zeros((40, 60), np.uint8)
    inside[8:24, 18:48] = 1
    np.testing.assert_array_equal(found, inside)
    assert first["boxes"][0].tolist() == [[18, 8, 48, 24]]
    where = inside[..., None] > 0
    np.testing.assert_array_equal(first["image"][0], np.where(where, expected, large))


def test_workers_ranks_previews_and_a_resumed_run_give_the_same_bits():
    pipeline = labelled_pipeline(LabelledScenes(33)).transform(
        T.CopyPaste(), T.RandomCrop(32)
    )

    def copy_batches(loader):
        for batch in loader:
            yield batch["image"].copy(), rows(batch, "masks"), rows(batch, "boxes")

    with pipeline.batch(4).open(workers=1) as loader:
        first = list(copy_batches(loader))
    with pipeline.batch(4).open(workers=3) as loader:
        again = list(copy_batches(loader))
    with pipeline.batch(4).open(workers=2) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    with pipeline.batch(4).open(workers=2) as loader:
        loader.load_state_dict(state)
        resumed = list(copy_batches(loader))
    for a, b in [
        *zip(first, again, strict=True),
        *zip(first[4:], resumed, strict=True),
    ]:
        np.testing.assert_array_equal(a[0], b[0])
        for name in (1, 2):
            for own, other in zip(a[name], b[name], strict=True):
                np.testing.assert_array_equal(own, other)
    for position in range(12):
        shown = pipeline.preview(position)
        batch, row = first[position // 4], position % 4
        np.testing.assert_array_equal(shown[-1].fields["image"], batch[0][row])
        np.testing.assert_array_equal(shown[-1].fields["masks"], batch[1][row])
        np.testing.assert_array_equal(shown[-1].boxes, batch[2][row])
        assert "objects of position" in shown["CopyPaste"].draws


def test_a_good_record_takes_the_place_of_a_bad_one():
    scenes = Scenes(24, "text", png)
    whole = scenes.encode
    scenes.encode = lambda image, index: whole(image, index)[
        : 60 if index == 7 else None
    ]
    pipeline = pipeline_of(scenes).shuffle(1).decode()
    pipeline = pipeline.transform(SAME_SIZE, T.CopyPaste())
    with pipeline.batch(6).open(workers=2, on_error="substitute") as loader:
        assert sum(len(batch["image"]) for batch in loader) == 24
        assert {bad.index for bad in loader.bad_records} == {7}


def test_combinations_that_cannot_work_name_the_fix():
    scenes = LabelledScenes(4)

    def message(pipeline):
        with pytest.raises(infeed.errors.ConfigError) as caught:
            pipeline.batch(2).open()
        return str(caught.value)

    pipeline = labelled_pipeline(scenes)
    image = np.zeros((2, 8, 8, 3), np.uint8)
    memory = sources.Memory(
        image=image, boxes=np.ones((2, 1, 4)), eyes=np.ones((2, 1, 3), np.float32)
    )
    unmasked = infeed.Pipeline(memory).boxes()
    assert "masks=...)" in message(unmasked.transform(T.CopyPaste()))
    plain = infeed.Pipeline(sources.Memory(image=image))
    assert "masks=...)" in message(plain.transform(T.CopyPaste()))
    twice = pipeline.transform(T.CopyPaste(), T.CopyPaste())
    assert "can have one CopyPaste" in message(twice)
    assert "put it after RandomIoUCrop" in message(
        pipeline.transform(T.CopyPaste(), T.RandomIoUCrop(), T.Resize((8, 8)))
    )
    assert "changes the number of channels" in message(
        pipeline.transform(T.Grayscale(), T.CopyPaste())
    )
    assert "belong to no object" in message(
        unmasked.points("eyes").transform(T.CopyPaste())
    )
    with pytest.raises(infeed.errors.ConfigError, match="p is 2"):
        pipeline.transform(T.CopyPaste(p=2))


@pytest.mark.parametrize("placement", ["host", "device", "device-resize"])
@pytest.mark.parametrize(
    "steps",
    [
        (T.CopyPaste(p=0.5), T.RandomHorizontalFlip()),
        (T.RandomResizedCrop((30, 40)), T.CopyPaste(p=0.5), T.ToFloat()),
        (T.CopyPaste(p=0.5), T.Resize((32, 32)), T.ToFloat()),
    ],
    ids=["flip", "before", "after"],
)
def test_a_device_has_the_bits_of_the_host(steps, placement):
    pipeline = labelled_pipeline(LabelledScenes(12)).transform(*steps).batch(4)
    with pipeline.open(workers=1) as loader:
        expected = [batch["image"].copy() for batch in loader]
    with pipeline.open(device="sim", placement=placement) as loader:
        for batch, image in zip(loader, expected, strict=True):
            np.testing.assert_array_equal(host(batch, "image"), image)


def test_a_box_outside_before_the_paste_stays_absent_without_a_mask():
    """A later rotation turned the rest of its edge into a box, without a mask."""
    boxes = np.float32([[80, 10, 95, 90], [10, 10, 30, 30], [35, 60, 55, 90]])
    masks = np.zeros((3, 100, 100), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.astype(int), strict=True):
        mask[top:bottom, left:right] = 1
    source = sources.Memory(
        image=np.zeros((4, 100, 100, 3), np.uint8),
        boxes=np.stack([boxes] * 4),
        labels=np.int64([[1, 2, 3]] * 4),
        masks=np.stack([masks] * 4),
    )
    pipeline = (
        infeed.Pipeline(source)
        .boxes(columns=("labels",), masks="masks")
        .transform(
            T.Crop(100, 60, at=(0, 0)), T.CopyPaste(), T.RandomRotation((20, 20))
        )
        .batch(2, ragged="pad")
    )

    with pipeline.open() as loader:
        for batch in loader:
            assert batch["masks"].shape[:2] == batch["boxes"].shape[:2]
            assert 1 not in batch["labels"]
            for count, masks in zip(batch["boxes_count"], batch["masks"], strict=True):
                assert masks[:count].any((1, 2)).all()
