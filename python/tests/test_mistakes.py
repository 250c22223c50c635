"""Mistakes of users of other libraries, and the error for each."""

import logging
import re

import numpy as np
import pytest

import infeed
from infeed import _adapter, sources
from infeed import transforms as T


class Loader(_adapter.AdapterLoader):
    """An adapter without a framework."""


def memory():
    return sources.Memory(
        image=np.zeros((4, 12, 16, 3), np.uint8), label=np.arange(4, dtype=np.int64)
    )


def from_torchvision(name):
    """Returns an object that looks like a torchvision transform."""
    return type(name, (), {"__module__": "torchvision.transforms.v2"})()


def resize(sample):
    return sample


@pytest.mark.parametrize(
    ("steps", "fix"),
    [
        (([T.CenterCrop(8)],), r"with \.transform\(\*steps\)"),
        ((T.CenterCrop,), r"T\.CenterCrop is a class; call it"),
        ((lambda image: image,), r"use \.python\(fn\)"),
        ((from_torchvision("RandomResizedCrop"),), r"use T\.RandomResizedCrop"),
        ((from_torchvision("Compose"),), "its steps one by one"),
        ((from_torchvision("ToTensor"),), r"T\.ToFloat\(\)"),
        ((from_torchvision("FiveCrop"),), r"call it in \.python\(fn\)"),
        ((7,), "transforms of infeed.transforms, got 7"),
    ],
)
def test_a_wrong_transform_raises_with_the_right_call(steps, fix):
    with pytest.raises(infeed.errors.ConfigError, match=fix):
        infeed.Pipeline(memory()).transform(*steps)


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ({"num_workers": 4}, "DataLoader; use workers=n"),
        ({"pin_memory": True}, 'use device="cuda"'),
        ({"prefetch_factor": 2}, 'use memory="2GiB"'),
        ({"persistent_workers": True}, "remove it: threads live as long"),
        ({"batch_size": 8}, r"use Pipeline\.batch\(n\)"),
        ({"shuffle": True}, r"use Pipeline\.shuffle\(seed=0\)"),
        ({"worker": 4}, r"no option 'worker'; use one of .*workers"),
    ],
)
def test_an_option_of_another_loader_raises_with_its_replacement(option, fix):
    with pytest.raises(infeed.errors.ConfigError, match=f"^Loader: .*{fix}"):
        Loader(infeed.Pipeline(memory()), option)


def test_open_names_the_option_in_place_of_one_of_a_dataloader():
    pipeline = infeed.Pipeline(memory())

    with pytest.raises(
        infeed.errors.ConfigError, match=r"^open: num_workers=4 .*workers=n"
    ):
        pipeline.open(num_workers=4)
    with pytest.raises(
        infeed.errors.ConfigError, match=r"no option 'worker'; .*workers"
    ):
        pipeline.open(worker=4)


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("photos", r"use sources\.Folder\('photos'\)"),
        (sources.Folder, r"sources\.Folder is a class"),
        ([1, 2], r"sources\.Items\(object\)"),
        (7, "one of infeed.sources, got 7"),
    ],
)
def test_a_wrong_source_raises_with_the_right_call(source, fix):
    with pytest.raises(infeed.errors.ConfigError, match=fix):
        infeed.Pipeline(source)


def test_transforms_after_a_function_are_rejected_with_the_order_that_works():
    pipeline = infeed.Pipeline(memory()).python(resize)

    with pytest.raises(infeed.errors.ConfigError) as caught:
        pipeline.transform(T.Resize((8, 8)))
    with pytest.raises(
        infeed.errors.ConfigError, match="layout and dtype cannot run after"
    ):
        pipeline.transform(layout="CHW")
    with pytest.raises(infeed.errors.ConfigError, match=r"write \.decode\(\) before"):
        pipeline.decode()
    with pytest.raises(infeed.errors.ConfigError, match=r"comes before \.transform"):
        infeed.Pipeline(memory()).transform(T.CenterCrop(8)).decode()

    assert "Resize cannot run after .python(resize)" in str(caught.value)
    assert "write .transform(...) before .python(resize)" in str(caught.value)


def test_a_missing_field_raises_with_the_existing_names():
    with infeed.Pipeline(memory()).open() as loader:
        batch = next(iter(loader))

    with pytest.raises(
        KeyError, match="no field `images`; the fields are image, label"
    ):
        batch["images"]


def test_a_pipeline_has_no_length_and_names_what_has_one():
    pipeline = infeed.Pipeline(memory())

    with pytest.raises(TypeError, match=r"infeed\.torch\.Loader\(pipeline\)"):
        len(pipeline)
    assert pipeline
    assert len(list(pipeline)) == 4


def test_batches_without_a_device_are_on_the_cpu():
    with infeed.Pipeline(memory()).open(device="cpu") as loader:
        assert next(iter(loader))["image"].shape == (1, 12, 16, 3)


def test_a_dictionary_as_a_field_raises_with_the_valid_types():
    data = [{"image": np.zeros((4, 4, 3), np.uint8), "target": {"boxes": [1]}}]

    with pytest.raises(
        infeed.errors.ConfigError, match=r"a dictionary with the keys .*boxes"
    ):
        infeed.Pipeline(sources.Items(data)).open()


def test_without_batch_images_may_differ_in_size(classification):
    pipeline = infeed.Pipeline(sources.Folder(classification.path)).decode()

    with pipeline.transform(T.Resize(64)).open() as loader:
        shapes = [batch["image"].shape for batch in loader]

    assert all(min(shape[1:3]) == 64 and shape[0] == 1 for shape in shapes)
    assert len({shape[1:3] for shape in shapes}) > 1
    with pytest.raises(infeed.errors.ConfigError, match=r"\.batch\(n, pad=True\)"):
        pipeline.transform(T.Resize(64)).batch(2)


@pytest.mark.parametrize(
    ("steps", "reported"),
    [
        ([T.Normalize((123.6,) * 3, (58.4,) * 3)], "mean 123.6 looks like"),
        ([T.ToFloat(), T.Normalize(127.25, 127.25)], "mean 127.25 looks like"),
        ([T.Normalize(0.5, 0.5), T.Normalize(0.25, 1)], "is normalized already by"),
        ([T.ToFloat(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)], None),
    ],
)
def test_a_likely_mistake_in_normalize_is_one_warning(caplog, steps, reported):
    pipeline = infeed.Pipeline(memory()).transform(*steps)

    with caplog.at_level(logging.WARNING, "infeed"):
        pipeline.open().close()

    found = [r.getMessage() for r in caplog.records if "Normalize" in r.getMessage()]
    assert len(found) == (reported is not None)
    assert reported is None or reported in found[0]


def test_draws_of_a_preview_can_be_replayed_exactly(classification):
    folder = infeed.Pipeline(sources.Folder(classification.path)).shuffle(3).decode()
    crop = T.RandomResizedCrop(32, interpolation="bicubic")
    drawn = folder.transform(crop, T.ColorJitter(saturation=0.7)).preview(5)

    factor = re.fullmatch(r"saturation (\S+)", drawn["ColorJitter"].draws)
    assert factor is not None
    exactly = (float(factor[1]),) * 2
    replayed = folder.transform(crop, T.ColorJitter(saturation=exactly)).preview(5)

    for name in ("ColorJitter", "output"):
        mine, theirs = replayed[name].fields["image"], drawn[name].fields["image"]
        np.testing.assert_array_equal(mine, theirs)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"


@pytest.mark.parametrize(
    ("content", "reason", "fix"),
    [
        (POINTER, "the file is a Git LFS pointer", "run `git lfs pull`"),
        (PAGE, "the file is an HTML page", "download the file again"),
    ],
)
@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.tar", lambda root: sources.WebDataset(f"{root}/a.tar")),
        ("a.tfrecord", lambda root: sources.TFRecord(f"{root}/a.tfrecord")),
        ("a.parquet", lambda root: sources.Parquet(f"{root}/a.parquet")),
        ("a.arrow", lambda root: sources.Arrow(f"{root}/a.arrow")),
        ("a.npz", lambda root: sources.Npz(f"{root}/a.npz")),
        ("mds/index.json", lambda root: sources.MDS(f"{root}/mds")),
        ("a.json", lambda root: sources.Coco(f"{root}/images", f"{root}/a.json")),
        ("labels/a.txt", lambda root: sources.Yolo(f"{root}/images")),
        ("images/a.json", lambda root: sources.LabelMe(f"{root}/images")),
        (
            "labels.csv",
            lambda root: sources.Folder(root / "images", f"{root}/labels.csv"),
        ),
        ("Annotations/a.xml", lambda root: sources.Voc(root)),
    ],
)
def test_a_pointer_or_a_page_in_place_of_data_is_called_what_it_is(
    path, source, content, reason, fix, tmp_path
):
    for folder in ["images", "labels", "mds", "Annotations", "ImageSets/Main"]:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "images/a.png").write_bytes(b"never read")
    (tmp_path / "ImageSets/Main/train.txt").write_text("a\n")
    (tmp_path / path).write_bytes(content)
    pipeline = infeed.Pipeline(source(tmp_path)).batch(1)

    with pytest.raises(infeed.InfeedError, match=reason) as caught:
        pipeline.open()

    message = str(caught.value)
    assert fix in message
    assert path.rsplit("/", 1)[-1] in message
