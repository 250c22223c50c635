"""Batches on a device: the simulated device, which works on every machine."""

import ctypes
import gc
import re
import shutil
import threading
import time
import urllib.request

import numpy as np
import pytest
from children import result_in_fork
from photos import ROWS, equal, pipeline_of

import infeed
from infeed import sources
from infeed import transforms as T

STEPS = 8


@pytest.fixture
def photos(classification):
    return pipeline_of(classification.path)


def host(batch, name):
    """Returns the bytes of a column on the host or a device."""
    column = batch.array(name)
    if isinstance(column, infeed._core.DeviceArray):
        return np.from_dlpack(column)
    return batch[name]


def epoch(loader):
    return [{name: host(b, name) for name in ("image", "label")} for b in loader]


def ending(loader):
    """Returns the number of batches before an error, and the error."""
    steps = 0
    try:
        for _ in loader:
            steps += 1
    except infeed.InfeedError as error:
        return steps, error
    return steps, None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("placement", ["auto", "host", "device", "device-resize"])
def test_a_device_has_the_bits_of_the_host(classification, placement, dtype):
    pipeline = pipeline_of(classification.path, dtype)
    with pipeline.open() as loader:
        wanted = epoch(loader)
    with pipeline.open(device="sim", placement=placement) as loader:
        assert equal(epoch(loader), wanted)


def test_bytes_cross_the_bus_and_the_device_computes_floats(photos):
    with photos.open(device="sim") as loader:
        batches = epoch(loader)
        sent = loader.stats()["device"]
    images = sum(batch["image"].size for batch in batches)
    labels = sum(batch["label"].nbytes for batch in batches)
    assert batches[0]["image"].dtype == np.float32
    assert sent["bytes"] >= images + labels
    # Batches of the next epoch are already in flight.
    assert sent["bytes"] <= (images + labels) * (STEPS + 3) / STEPS
    assert sent["transfers"] == 2 * sent["batches"]
    with photos.open(device="sim", placement="host") as loader:
        epoch(loader)
        floats = loader.stats()["device"]
    # The number of batches in flight varies.
    assert floats["bytes"] / floats["batches"] > 3.5 * sent["bytes"] / sent["batches"]


def test_the_host_takes_over_for_a_slow_device_and_stats_report_it(photos):
    with photos.open() as loader:
        wanted = epoch(loader)
    # The kernel takes 23 ms for a batch, and the bus takes no time.
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
        tried = loader.explain().placement
    assert placement["name"] == tried["choice"] == "host"
    assert placement["text"].startswith("placement: host; steps take ")
    assert placement["others"]["device"] > 1.03
    assert placement["step_s"] > 0
    assert tried == {
        "choice": "host",
        **{name: placement[name] for name in tried if name != "choice"},
    }
    with photos.open(device="sim", placement="device") as loader:
        placement = loader.stats()["device"]["placement"]
    assert placement == {
        "name": "device",
        "settled": True,
        "text": "placement: device, as requested",
        "step_s": None,
        "others": {},
    }


def test_masks_cross_the_bus_as_class_numbers(segmentation):
    source = sources.Pairs(str(segmentation.image), str(segmentation.mask))
    made = infeed.Pipeline(source).decode()
    classes = T.OneHot("mask", palette=str(segmentation.palette), unknown="ignore")
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


def test_a_state_counts_batches_taken_and_not_batches_sent(photos):
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


def test_leaving_a_loop_ends_its_epoch(photos):
    with photos.open(device="sim") as loader:
        for batch in loader:
            assert batch.epoch == 0
            break
        gc.collect()
        assert [batch.epoch for batch in loader] == [1] * STEPS
        for batch in loader:
            assert (batch.epoch, batch.step) == (2, 0)
            break


def test_kept_batches_do_not_change(photos):
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


def test_a_bad_record_stops_the_run_at_its_position(classification, tmp_path):
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
        # The same until other tensors are passed.
        assert str(ending(loader)[1]) == str(wanted[1])
        loader.seek(1)
        assert len(list(zip(range(1), loader, strict=False))) == 1
    with photos.open(on_error="substitute", device="sim") as loader:
        assert len(epoch(loader)) == STEPS
        assert len(loader.bad_records) == 1


@pytest.fixture
def even(photos):
    """`photos` in batches of one size."""
    return photos.batch(ROWS, tail="drop")


def join_parts(parts):
    """Joins the parts of a batch on several devices."""
    names = parts[0].keys()
    return {n: np.concatenate([host(part, n) for part in parts]) for n in names}


def test_each_of_several_devices_has_its_rows_of_every_batch(even):
    with even.open() as loader:
        wanted = epoch(loader) + epoch(loader)
    with even.open(devices=["sim", "sim:latency=50000ns"]) as loader:
        found = []
        for _ in range(2):
            for first, second in loader:
                assert (first.rows, second.rows) == (ROWS // 2, ROWS // 2)
                assert (first.epoch, first.step) == (second.epoch, second.step)
                assert first.records != second.records
                found.append(join_parts([first, second]))
        assert equal(found, wanted)
        stats = loader.stats()
    assert [device["name"] for device in stats["devices"]] == [
        "sim",
        "sim:latency=50000ns",
    ]
    assert stats["device"]["name"] == "sim, sim:latency=50000ns"
    both = [device["bytes"] for device in stats["devices"]]
    assert stats["device"]["bytes"] == sum(both)
    assert all(device["batches"] >= len(wanted) for device in stats["devices"])


def test_metrics_count_the_copies_to_each_device(even):
    with even.open(devices=["sim", "sim"]) as loader:
        for _ in loader:
            pass
        address = loader.serve_metrics(name="train")
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            text = answer.read().decode()
        sent = loader.stats()["devices"]
    for at, device in enumerate(sent):
        labels = f'{{loader="train",device="{at}",name="sim"}}'
        reported = re.search(rf"^infeed_device_bytes_total{labels} (\d+)$", text, re.M)
        # Another batch may have been sent meanwhile.
        assert 0 < int(reported[1]) <= device["bytes"]
        assert f"infeed_device_late_batches_total{labels} 0\n" in text


def test_a_run_on_several_devices_continues_on_one_and_on_the_host(even):
    with even.open() as loader:
        wanted = epoch(loader)
    with even.open(devices=["sim", "sim"]) as loader:
        steps = iter(loader)
        for _ in range(3):
            next(steps)
        state = loader.state_dict()
        assert state["position"] == 3 * ROWS
    for options in ({}, {"device": "sim"}):
        with even.open(**options) as loader:
            loader.load_state_dict(state)
            assert equal(epoch(loader), wanted[3:])
    with even.open(devices=["sim", "sim"]) as loader:
        loader.load_state_dict(state)
        assert equal([join_parts(parts) for parts in loader], wanted[3:])
        loader.seek(0, 5)
        assert equal([join_parts(parts) for parts in loader], wanted[5:])


def test_batches_that_devices_cannot_divide_raise_with_valid_sizes(photos, even):
    for pipeline, options, text in [
        (even, {"devices": ["sim"] * 3}, "4 rows cannot be divided .* 3 or 6"),
        (photos.batch(7), {"devices": ["sim"] * 2}, "7 rows cannot .* 6 or 8"),
        (photos.batch(6), {"devices": ["sim"] * 2, "on_error": "skip"}, "substitute"),
        (even, {"devices": ["sim"], "device": "sim"}, "are both set"),
        (even, {"devices": "sim"}, "a list of names"),
        (even, {"devices": []}, "a list of names"),
        (even, {"devices": ["sim", "gpu"]}, "is not a device"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=text):
            pipeline.open(**options)
    # The last batch of 30 records in batches of 9 has three, which three devices
    # divide.
    with photos.batch(9).open(devices=["sim"] * 3) as loader:
        assert [part.rows for part in list(loader)[-1]] == [1, 1, 1]
    uneven = photos.batch(8)
    with pytest.raises(
        infeed.errors.ConfigError, match=r"last batch .* has 6 rows.*drop"
    ):
        uneven.open(devices=["sim"] * 4)


def test_tensors_of_several_devices_are_filled_with_their_parts(photos, even):
    with even.open() as loader:
        wanted = epoch(loader) + epoch(loader)
        steps = len(loader)
    with even.open(devices=["sim", "sim"], slots=2) as loader:
        each = [places(ROWS // 2), places(ROWS // 2)]
        for number, one in enumerate(wanted):
            filled = loader.next_into(each)
            assert filled == (*divmod(number, steps), ROWS)
            both = {name: np.concatenate([of[name] for of in each]) for name in one}
            assert equal([both], [one])
        # The memory on the devices was free immediately, every time.
        assert loader.stats()["device"]["overflow"] == 0
        assert [first.epoch for first, _ in loader] == [2] * steps
        # Neither every field, nor the same fields of each device.
        assert loader.next_into([{"label": each[0]["label"]}, {}]) == (3, 0, ROWS)
    padded = photos.batch(ROWS, tail="pad")
    with padded.open(devices=["sim", "sim"]) as loader:
        loader.seek(0, len(loader) - 1)
        assert loader.next_into([{}, {}]).samples == 30 % ROWS


def test_a_wrong_tensor_for_one_of_several_devices_raises_with_its_index(even):
    good = [places(ROWS // 2), places(ROWS // 2)]
    call = r"torch.empty\(\[2, 3, 24, 24\], dtype=torch.float32, device=\"cpu\"\)"
    long = (
        r"tensors\[1\], field `image`: the tensor has shape \[4, 3, 24, 24\], and this"
    )
    with even.open(devices=["sim", "sim"]) as loader:
        for tensors, text in [
            (good[0], "for each of the 2 devices, got dict"),
            (good[:1], "for each of the 2 devices, got a list of 1"),
            ([good[0], None], "a mapping from fields to tensors"),
            ([good[0], places(ROWS)], f"{long} part's .*; make it with {call}"),
            ([good[0], elsewhere(good[1])], "is on cuda:1, and this part .* is on cpu"),
            ([{"images": good[0]["image"]}, {}], "`images`.* has image, label"),
        ]:
            with pytest.raises(infeed.errors.ConfigError, match=text):
                loader.next_into(tensors)
        with pytest.raises(TypeError, match="no streams"):
            loader.next_into(good, stream=[7, 7])
        with pytest.raises(
            infeed.errors.ConfigError,
            match="a stream for each of the 2 devices, got int",
        ):
            loader.next_into(good, stream=7)
        assert loader.next_into(good).step == 0, "no batch was lost"
        steps = iter(loader)
        next(steps)
        with pytest.raises(infeed.errors.IteratorError, match="end that loop"):
            loader.next_into(good)


class DeviceArray:
    """An array that reports GPU `number` as its device."""

    def __init__(self, array, number):
        self._array, self._number = array, number

    def __dlpack_device__(self):
        return 2, self._number

    def __dlpack__(self, **options):
        return on_gpu(self._array.__dlpack__(), self._number)


def on_gpu(capsule, number):
    """Changes the device of a tensor in a capsule of host memory to a GPU."""
    name = b"dltensor"
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # Address of the data, followed by kind and number of the device.
    device = ctypes.c_int32.from_address(get(capsule, name) + 8)
    device.value = 2
    ctypes.c_int32.from_address(get(capsule, name) + 12).value = number
    return capsule


def elsewhere(tensors):
    """Returns the tensors, one of them on another device."""
    return tensors | {"image": DeviceArray(tensors["image"], 1)}


@pytest.mark.frameworks
def test_a_loader_of_torch_fills_tensors_of_several_devices(even):
    torch = pytest.importorskip("torch")
    from infeed.torch import Loader

    with even.open() as loader:
        wanted = epoch(loader)
    each = [
        {name: torch.from_numpy(array) for name, array in places(ROWS // 2).items()}
        for _ in range(2)
    ]
    addresses = [static["image"].data_ptr() for static in each]
    with Loader(even, devices=["sim", "sim"]) as loader:
        for one in wanted:
            assert loader.next_into(each).samples == ROWS
            both = {name: torch.cat([of[name] for of in each]) for name in one}
            assert equal([{name: t.numpy() for name, t in both.items()}], [one])
    assert [static["image"].data_ptr() for static in each] == addresses


@pytest.mark.frameworks
def test_a_step_of_torch_is_a_tuple_with_a_part_for_each_device(even):
    torch = pytest.importorskip("torch")
    from infeed.torch import Loader

    with even.open() as loader:
        wanted = epoch(loader)
    with Loader(even, devices=["sim", "sim"]) as loader:
        assert loader.device == "sim,sim"
        assert len(loader) == len(wanted)
        for parts, one in zip(loader, wanted, strict=True):
            images = torch.cat([part["image"] for part in parts])
            assert np.array_equal(images.numpy(), one["image"])
        assert loader.epoch == 1


def places(rows=ROWS):
    """Returns arrays on the CPU for the fields of `photos`."""
    image = np.zeros((rows, 3, 24, 24), np.float32)
    return {"image": image, "label": np.zeros(rows, np.int64)}


def test_tensors_at_fixed_addresses_are_filled_step_by_step_and_epoch_by_epoch(even):
    with even.open() as loader:
        wanted = epoch(loader) + epoch(loader)
        steps = len(loader)
    with even.open(device="sim", slots=2) as loader:
        tensors = places()
        for number, one in enumerate(wanted):
            filled = loader.next_into(tensors)
            assert filled == (*divmod(number, steps), ROWS)
            assert equal([tensors], [one])
        # The memory on the device was free immediately, every time.
        assert loader.stats()["device"]["overflow"] == 0
        assert [batch.epoch for batch in loader] == [2] * steps
        tensors = {"label": tensors["label"]}
        assert loader.next_into(tensors) == (3, 0, ROWS)


def test_a_state_counts_the_steps_that_filled_tensors(even):
    with even.open() as loader:
        wanted = epoch(loader)
    with even.open(device="sim") as loader:
        for _ in range(3):
            loader.next_into(places())
        state = loader.state_dict()
        assert state["position"] == 3 * ROWS
    with even.open() as loader:
        loader.load_state_dict(state)
        assert equal(epoch(loader), wanted[3:])


def test_padding_rows_are_not_counted_as_samples(photos):
    padded = photos.batch(ROWS, tail="pad")
    with padded.open(device="sim") as loader:
        loader.seek(0, len(loader) - 1)
        assert loader.next_into({"label": places()["label"]}).samples == 30 % ROWS


def test_a_tensor_of_a_wrong_shape_raises_with_the_right_call(even):
    good = places()
    call = r"torch.empty\(\[4, 3, 24, 24\], dtype=torch.float32, device=\"cpu\"\)"
    read_only = good["image"].copy()
    read_only.setflags(write=False)
    for image, part in [
        (good["image"][:2], f"has shape .2, 3, 24, 24., .*{call}"),
        (good["image"].astype(np.float64), f"is float64, and .* float32; .*{call}"),
        (
            np.zeros((4, 24, 24, 3), np.float32).transpose(0, 3, 1, 2),
            "is not contiguous",
        ),
        (read_only, "read-?only"),
        ([1.0], "list is not a tensor"),
    ]:
        with (
            even.open(device="sim") as loader,
            pytest.raises(
                infeed.errors.ConfigError, match=f"(?i)field `image`: .*{part}"
            ),
        ):
            loader.next_into({"image": image})
    with even.open(device="sim") as loader:
        for _ in range(3):
            with pytest.raises(
                infeed.errors.ConfigError, match=r"`images`.* has image, label"
            ):
                loader.next_into(good | {"images": good["image"]})
        assert loader.next_into(good).step == 0, "no batch was lost"
        with pytest.raises(infeed.errors.ConfigError, match="from fields to tensors"):
            loader.next_into([good["image"]])
        with pytest.raises(TypeError, match="no streams"):
            loader.next_into(good, stream=7)
        steps = iter(loader)
        next(steps)
        with pytest.raises(infeed.errors.IteratorError, match="end that loop"):
            loader.next_into(good)


def test_batches_of_different_sizes_cannot_fill_tensors(photos, even):
    last = 'last batch of an epoch has 2 rows, but targets have 4; .*tail="drop"'
    for pipeline, options, text in [
        (photos, {"device": "sim"}, last),
        (photos.batch(5), {"device": "sim", "on_error": "skip"}, "substitute"),
        (even, {}, 'device="cuda"'),
    ]:
        with (
            pipeline.open(**options) as loader,
            pytest.raises(infeed.errors.ConfigError, match=text),
        ):
            loader.next_into(places())


@pytest.mark.frameworks
def test_tensors_of_torch_are_filled_in_place(even):
    torch = pytest.importorskip("torch")
    from infeed.torch import Loader

    with even.open() as loader:
        loader.seek(1)
        wanted = epoch(loader)
    image = torch.zeros(ROWS, 3, 24, 24)
    static = {"image": image, "label": torch.zeros(ROWS, dtype=torch.int64)}
    address = image.data_ptr()
    with Loader(even, device="sim") as loader:
        # Leaving a loop has ended its epoch.
        next(iter(loader))
        for one in wanted:
            loader.next_into(static)
            assert equal([{n: t.numpy() for n, t in static.items()}], [one])
        with pytest.raises(infeed.errors.ConfigError, match=r"`image`.*[Gg]rad"):
            loader.next_into({"image": torch.zeros(1, requires_grad=True)})
    assert image.data_ptr() == address


def test_threads_of_a_device_end_with_the_loader(photos):
    before = threading.active_count()
    with photos.open(device="sim") as loader:
        next(iter(loader))
    assert threading.active_count() == before
    assert loader.closed


@pytest.mark.frameworks
def test_a_tensor_of_torch_shares_the_memory_of_a_batch(photos):
    torch = pytest.importorskip("torch")
    from infeed.torch import Loader

    with photos.open() as loader:
        wanted = epoch(loader)
    with Loader(photos, device="sim") as loader:
        for batch, one in zip(loader, wanted, strict=True):
            assert isinstance(batch["image"], torch.Tensor)
            assert np.array_equal(batch["image"].numpy(), one["image"])


@pytest.mark.frameworks
def test_a_loader_on_a_device_needs_no_prefetch(photos):
    pytest.importorskip("torch")
    from infeed.torch import Loader

    with pytest.raises(infeed.errors.ConfigError, match="without prefetch"):
        infeed.prefetch(Loader(photos, device="sim"))


def test_an_unknown_device_raises_and_names_valid_ones(photos):
    for name, part in [
        ("gpu", "cuda"),
        ("cuda:first", "cuda:0"),
        ("sim:bandwith=1e9", "bandwith"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=part):
            photos.open(device=name)
    with pytest.raises(infeed.errors.ConfigError, match="slots"):
        photos.open(device="sim", slots=1)
    with pytest.raises(infeed.errors.ConfigError, match="placement"):
        photos.open(device="sim", placement="gpu")


def test_a_loop_with_an_unknown_stream_does_not_count_the_bus_as_its_step(photos):
    # The bus takes 70 ms for a batch.
    slow = "sim:bandwidth=1e5,latency=5us"
    with photos.open(device=slow, placement="device", slots=2) as loader:
        for batch in loader:
            host(batch, "image")
        found = loader.explain()
        sent = loader.stats()["device"]
    assert found.limit == "copy"
    assert sent["gap_batches"] == 0
    assert sent["late_batches"] == STEPS
    # If a batch is in flight when it is requested, only the rest of its copy counts.
    reported = found.to_dict()
    assert sent["late_s"] > 0.01 * STEPS
    assert reported["run"]["step_s"] < 0.3 * reported["run"]["seconds"]
    assert any(
        "for batches it already held" in line for line in reported["transfers"]["seen"]
    )


def test_a_machine_without_a_gpu_raises_with_the_reason(photos):
    try:
        photos.open(device="cuda").close()
    except infeed.errors.DeviceError as error:
        text = str(error)
        assert "cuda:0" in text
        assert "driver" in text or "GPU" in text


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_raises_in_the_child_and_leaves_the_parent_intact(photos):
    with photos.open(device="sim") as loader:
        steps = iter(loader)
        first = next(steps)
        assert "fork" in result_in_fork(lambda: loader._core.next_parts([]))
        assert "fork" in result_in_fork(lambda: loader.seek(1))
        assert "fork" in result_in_fork(lambda: host(first, "image").sum())
        assert result_in_fork(lambda: loader.close()) == "None"
        assert next(steps).step == 1


def test_a_simulated_device_decodes_the_pixels_of_the_cpu(photos):
    with photos.open() as loader:
        wanted = epoch(loader)
    with photos.open(device="sim", decode="gpu") as loader:
        assert equal(epoch(loader), wanted)
        device = loader.stats()["device"]
        assert 0 < device["jpegs"] <= ROWS * device["batches"]
        assert device["placement"]["name"] == "device-resize"
    with photos.open(device="sim", decode=0.5) as loader:
        assert equal(epoch(loader), wanted)
        assert 0 < loader.stats()["device"]["jpegs"] < device["jpegs"]
    with photos.open(device="sim", placement="device-resize", decode="cpu") as loader:
        assert equal(epoch(loader), wanted)
        assert loader.stats()["device"]["jpegs"] == 0


def test_a_state_of_another_decoder_raises(photos, caplog):
    with photos.open(device="sim", decode="gpu") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with photos.open(device="sim", decode="gpu") as loader:
        loader.load_state_dict(state)
    with photos.open(device="sim") as loader:
        with pytest.raises(infeed.errors.ConfigError, match="decode is cpu, was gpu"):
            loader.load_state_dict(state)
        loader.load_state_dict(state, strict=False)
    assert "decode is cpu, was gpu" in caplog.text


def test_a_device_without_decoder_raises_with_reason_and_fix(photos):
    with pytest.raises(infeed.errors.DeviceError, match="remove `jpeg=none`"):
        photos.open(device="sim:jpeg=none", decode="gpu")
    with pytest.raises(infeed.errors.ConfigError, match='device="cuda"'):
        photos.open(decode="gpu")
    with pytest.raises(infeed.errors.ConfigError, match='placement="device-resize"'):
        photos.open(device="sim", placement="host", decode="gpu")
    with pytest.raises(infeed.errors.ConfigError, match='digest="ids"'):
        photos.open(device="sim", decode="gpu", digest="pixels")
    for decode in ("nvjpeg", 1.5, 0.0, True):
        with pytest.raises(
            infeed.errors.ConfigError, match='decode must be "auto", "cpu"'
        ):
            photos.open(device="sim", decode=decode)
