"""Batches on a device: a simulated one, which every machine has."""

import gc
import shutil
import threading
import time

import numpy as np
import pytest
from children import told_by_fork

import infeed
from infeed import sources
from infeed import transforms as T

ROWS = 4
STEPS = 8


def pipeline_of(folder, dtype="float32"):
    """Images of thirty records as normalized floats, and their labels."""
    made = infeed.Pipeline(sources.Folder(str(folder))).shuffle(seed=3).decode()
    steps = [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
    ]
    return made.transform(*steps, layout="CHW", dtype=dtype).batch(ROWS)


@pytest.fixture
def photos(classification):
    return pipeline_of(classification.path)


def host(batch, name):
    """The bytes of a column, wherever it is."""
    column = batch.array(name)
    if isinstance(column, infeed._core.DeviceArray):
        return np.from_dlpack(column)
    return batch[name]


def epoch(loader):
    return [{name: host(b, name) for name in ("image", "label")} for b in loader]


def ending(loader):
    """How many batches came before an error, and the error."""
    steps = 0
    try:
        for _ in loader:
            steps += 1
    except infeed.InfeedError as error:
        return steps, error
    return steps, None


def equal(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a[name], b[name])
        for a, b in zip(one, other, strict=True)
        for name in a
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("placement", ["auto", "host", "device", "device-resize"])
def test_a_device_has_the_bits_that_the_host_has(classification, placement, dtype):
    pipeline = pipeline_of(classification.path, dtype)
    with pipeline.open() as loader:
        wanted = epoch(loader)
    with pipeline.open(device="sim", placement=placement) as loader:
        assert equal(epoch(loader), wanted)


def test_bytes_cross_the_bus_and_floats_are_made_behind_it(photos):
    with photos.open(device="sim") as loader:
        batches = epoch(loader)
        sent = loader.stats()["device"]
    images = sum(batch["image"].size for batch in batches)
    labels = sum(batch["label"].nbytes for batch in batches)
    assert batches[0]["image"].dtype == np.float32
    assert sent["bytes"] >= images + labels
    # Batches of the next epoch are on their way already.
    assert sent["bytes"] <= (images + labels) * (STEPS + 3) / STEPS
    assert sent["transfers"] == 2 * sent["batches"]
    with photos.open(device="sim", placement="host") as loader:
        epoch(loader)
        assert loader.stats()["device"]["bytes"] > 3.5 * sent["bytes"]


def test_a_device_that_is_slow_is_left_in_peace_and_stats_say_so(photos):
    with photos.open() as loader:
        wanted = epoch(loader)
    # A batch takes the kernel 23 ms, and the bus nothing.
    slow = "sim:bandwidth=1e10,kernel=1.5e6,latency=5us"
    end = time.monotonic() + 90
    with photos.open(device=slow, workers=2) as loader:
        placement = loader.stats()["device"]["placement"]
        assert (placement["name"], placement["settled"]) == ("device", False)
        epochs = 0
        while not loader.stats()["device"]["placement"]["settled"]:
            assert time.monotonic() < end
            batches = epoch(loader)
            if epochs == 0:
                assert equal(batches, wanted)
            epochs += 1
        placement = loader.stats()["device"]["placement"]
    assert placement["name"] == "host"
    assert placement["text"].startswith("placement: host; its steps take ")
    with photos.open(device="sim", placement="device") as loader:
        placement = loader.stats()["device"]["placement"]
    assert placement == {
        "name": "device",
        "settled": True,
        "text": "placement: device, as asked",
    }


def test_masks_cross_the_bus_as_class_numbers(segmentation):
    source = sources.Pairs(str(segmentation.image), str(segmentation.mask))
    made = infeed.Pipeline(source).decode()
    classes = T.OneHot("mask", palette=str(segmentation.palette))
    steps = [T.Resize([16, 20]), T.ToFloat("image"), classes]
    pipeline = made.transform(*steps).batch(2)
    with pipeline.open() as loader:
        wanted = [(b["image"].copy(), b["mask"].copy()) for b in loader]
    with pipeline.open(device="sim") as loader:
        for batch, (image, mask) in zip(loader, wanted, strict=True):
            assert np.array_equal(host(batch, "image"), image)
            assert np.array_equal(host(batch, "mask"), mask)
        sent = loader.stats()["device"]
    per_batch = 2 * 16 * 20 * (3 + 1)
    assert sent["bytes"] <= per_batch * sent["batches"]


def test_a_state_counts_what_was_taken_and_not_what_was_sent(photos):
    with photos.open(device="sim", slots=4) as loader:
        whole = epoch(loader) + epoch(loader)
    with photos.open(device="sim", slots=4) as loader:
        steps = iter(loader)
        taken = [next(steps) for _ in range(3)]
        state = loader.state_dict()
        assert taken[-1].step == 2
    assert state["position"] == 3 * ROWS
    with photos.open(workers=1) as loader:
        loader.load_state_dict(state)
        on_host = epoch(loader)
    with photos.open(device="sim", workers=1) as loader:
        loader.load_state_dict(state)
        assert equal(epoch(loader), on_host)
        assert equal(on_host, whole[3:STEPS])
        loader.seek(1, 2)
        assert equal(epoch(loader), whole[STEPS + 2 :])


def test_a_loop_that_is_left_ends_its_epoch(photos):
    with photos.open(device="sim") as loader:
        for batch in loader:
            assert batch.epoch == 0
            break
        gc.collect()
        assert [batch.epoch for batch in loader] == [1] * STEPS
        for batch in loader:
            assert (batch.epoch, batch.step) == (2, 0)
            break


def test_batches_that_are_kept_stay_as_they_are(photos):
    with photos.open() as loader:
        wanted = epoch(loader) + epoch(loader)
    with photos.open(device="sim", slots=2) as loader:
        kept = [batch for _ in range(2) for batch in loader]
        assert loader.stats()["device"]["overflow"] > 0
        found = [{n: host(b, n) for n in ("image", "label")} for b in kept]
    assert equal(found, wanted)


def test_batches_outlive_their_loader(photos):
    with photos.open() as loader:
        wanted = epoch(loader)[0]
    with photos.open(device="sim") as loader:
        steps = iter(loader)
        batch = next(steps)
    assert np.array_equal(host(batch, "image"), wanted["image"])


def test_a_bad_record_stops_the_run_at_its_place(classification, tmp_path):
    shutil.copytree(classification.path, tmp_path / "photos")
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[7]
    bad.write_bytes(bad.read_bytes()[:200])
    photos = pipeline_of(tmp_path / "photos")
    with photos.open() as loader:
        wanted = ending(loader)
    with photos.open(device="sim") as loader:
        found = ending(loader)
        assert (found[0], str(found[1])) == (wanted[0], str(wanted[1]))
        assert type(found[1]) is type(wanted[1])
        # The same until it is put elsewhere.
        assert str(ending(loader)[1]) == str(wanted[1])
        loader.seek(1)
        assert len(list(zip(range(1), loader, strict=False))) == 1
    with photos.open(on_error="substitute", device="sim") as loader:
        assert len(epoch(loader)) == STEPS
        assert len(loader.quarantine) == 1


def test_threads_of_a_device_end_with_the_loader(photos):
    before = threading.active_count()
    with photos.open(device="sim") as loader:
        next(iter(loader))
    assert threading.active_count() == before
    assert loader.closed


def test_a_tensor_of_torch_shares_what_a_device_delivered(photos):
    torch = pytest.importorskip("torch")
    from infeed.torch import Loader

    with photos.open() as loader:
        wanted = epoch(loader)
    with Loader(photos, device="sim") as loader:
        for batch, one in zip(loader, wanted, strict=True):
            assert isinstance(batch["image"], torch.Tensor)
            assert np.array_equal(batch["image"].numpy(), one["image"])


def test_a_loader_on_a_device_needs_no_prefetch(photos):
    pytest.importorskip("torch")
    from infeed.torch import Loader

    with pytest.raises(infeed.ConfigError, match="without prefetch"):
        infeed.prefetch(Loader(photos, device="sim"))


def test_what_is_no_device_is_refused_with_what_would_be_one(photos):
    for name, part in [
        ("gpu", "cuda"),
        ("cuda:first", "cuda:0"),
        ("sim:bandwith=1e9", "bandwith"),
    ]:
        with pytest.raises(infeed.ConfigError, match=part):
            photos.open(device=name)
    with pytest.raises(infeed.ConfigError, match="slots"):
        photos.open(device="sim", slots=1)
    with pytest.raises(infeed.ConfigError, match="placement"):
        photos.open(device="sim", placement="gpu")


def test_a_machine_without_a_card_says_so(photos):
    try:
        photos.open(device="cuda").close()
    except infeed.DeviceError as error:
        text = str(error)
        assert "cuda:0" in text
        assert "driver" in text or "card" in text


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_is_told_and_harms_nobody(photos):
    with photos.open(device="sim") as loader:
        steps = iter(loader)
        first = next(steps)
        assert "fork" in told_by_fork(lambda: loader._core.next())
        assert "fork" in told_by_fork(lambda: loader.seek(1))
        assert "fork" in told_by_fork(lambda: host(first, "image").sum())
        assert told_by_fork(lambda: loader.close()) == "None"
        assert next(steps).step == 1
