"""Training loops on a GPU.

`test_on_gpu.py` runs them on the fake driver, which also reports misuse and leaks;
`scripts/gpu-check` runs them on NVIDIA's.
"""

import gc
import io
import json
import os
import threading

import numpy as np
import pytest
from children import result_in_fork
from gpu import Gpu, TakenBatch, count, is_fake, report
from photos import ROWS, equal, pipeline_of
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T

STEPS = 8
FIELDS = ("image", "label")


@pytest.fixture
def gpu():
    """The first GPU, opened as a framework does."""
    opened = Gpu()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Checks that each test frees its GPU memory and causes no misuse."""
    yield
    gc.collect()
    if not is_fake():
        return
    seen = report()
    assert seen["misuse"] == []
    assert set(seen["live"].values()) == {0}, seen["live"]


@pytest.fixture
def photos(classification):
    return pipeline_of(classification.path)


def on_host(pipeline, epochs=1):
    """Returns the batches of some epochs from a loader on the host."""
    with pipeline.open() as loader:
        batches = [batch for _ in range(epochs) for batch in loader]
        return [{name: np.array(array) for name, array in b.items()} for b in batches]


def fetch(gpu, batch, stream, names=FIELDS, handle=None):
    """Copies columns in the order of a stream.

    `handle` is the driver's stream if its number in DLPack differs.
    """
    found = {}
    for name in names:
        taken = TakenBatch(batch.array(name), stream)
        found[name] = gpu.fetch(taken, handle or stream)
        taken.release()
    return found


def late(gpu, batch, stream, handle=None):
    """Copies columns to pinned memory, which is filled when the stream reaches the
    copy.
    """
    places = {}
    for name in FIELDS:
        taken = TakenBatch(batch.array(name), stream)
        places[name] = gpu.pinned_array(taken.shape, taken.dtype)
        gpu.fetch(taken, handle or stream, places[name])
        taken.release()
    return places


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("placement", ["auto", "host", "device", "device-resize"])
def test_a_gpu_has_the_bits_of_the_host(gpu, classification, placement, dtype):
    pipeline = pipeline_of(classification.path, dtype)
    wanted = on_host(pipeline)
    stream = gpu.stream()
    with pipeline.open(device="cuda:0", placement=placement) as loader:
        assert equal([fetch(gpu, batch, stream) for batch in loader], wanted)
        # The first batches of the next epoch are in flight.
        assert loader.stats()["device"]["batches"] >= STEPS
    gpu.end(stream)
    if is_fake():
        assert report()["pageable"] == 0, "every copy is from pinned memory"


@pytest.mark.parametrize("kind", ["one-hot", "int64", "uint8"])
def test_masks_are_expanded_on_the_gpu(gpu, segmentation, kind):
    palette = str(segmentation.palette)
    last = T.OneHot(palette=palette, unknown="ignore")
    if kind != "one-hot":
        last = T.ClassIndex(palette=palette, dtype=kind, unknown="ignore")
    made = infeed.Pipeline(
        sources.Pairs(str(segmentation.image), str(segmentation.mask))
    )
    steps = (T.Resize([16, 20]), T.ToFloat("image"), last)
    pipeline = made.decode().transform(*steps).batch(4)
    wanted = on_host(pipeline)
    stream = gpu.stream()
    fields = ("image", "mask")
    with pipeline.open(device="cuda:0") as loader:
        assert equal([fetch(gpu, b, stream, fields) for b in loader], wanted)
        sent = loader.stats()["device"]
    # One uint8 per channel and pixel, and labels that are already wide.
    assert sent["bytes"] <= 4 * 16 * 20 * (3 + 1) * sent["batches"]
    gpu.end(stream)


@pytest.mark.parametrize("ordered", [False, True])
def test_memory_is_not_reused_before_streams_are_done_with_it(gpu, photos, ordered):
    """Batches are read late and released before that, and are still correct."""
    wanted = on_host(photos, 3)
    streams = [gpu.stream(ordered) for _ in range(3)]
    into = []
    with photos.open(device="cuda:0", slots=2) as loader:
        for number, batch in enumerate(b for _ in range(3) for b in loader):
            into.append(late(gpu, batch, streams[number % 3]))
            del batch
        for stream in streams:
            gpu.wait(stream)
        assert equal(into, wanted)
    for stream in streams:
        gpu.end(stream)


@pytest.mark.parametrize("stream", [None, 1, 2])
def test_default_streams_wait_like_others(gpu, photos, stream):
    wanted = on_host(photos)
    # Stream 1 of DLPack is the driver's legacy stream, and so is None.
    handle = {None: 1, 1: 1, 2: 2}[stream]
    with photos.open(device="cuda:0", slots=2) as loader:
        found = [late(gpu, batch, stream, handle) for batch in loader]
        gpu.wait(handle)
        assert equal(found, wanted)


def test_a_consumer_without_synchronization_gets_complete_batches(gpu, photos):
    wanted = on_host(photos)
    with photos.open(device="cuda:0", slots=2) as loader:
        # To pageable memory; the host waits for these copies.
        found = [fetch(gpu, batch, -1, handle=1) for batch in loader]
        assert equal(found, wanted)


def test_a_second_stream_that_reads_a_batch_is_named(gpu, photos):
    wanted = on_host(photos, 2)
    first, second = gpu.stream(), gpu.stream()
    into = []
    with photos.open(device="cuda:0", slots=2) as loader:
        for batch in (b for _ in range(2) for b in loader):
            taken = TakenBatch(batch.array("image"), first)
            gpu.wait(first)
            batch.record_stream(second)
            place = gpu.pinned_array(taken.shape, taken.dtype)
            gpu.fetch(taken, second, place)
            into.append({"image": place})
            taken.release()
        # A stream that was recorded must live until its batches are dropped.
        del batch
        gpu.wait(second)
        assert equal(into, [{"image": batch["image"]} for batch in wanted])
    gpu.end(first)
    gpu.end(second)


def test_kept_batches_do_not_change_and_outlive_their_loader(gpu, photos):
    wanted = on_host(photos)
    stream = gpu.stream()
    with photos.open(device="cuda:0", slots=2) as loader:
        kept = list(loader)
        assert loader.stats()["device"]["overflow"] > 0
    assert equal([fetch(gpu, batch, stream) for batch in kept], wanted)
    del kept
    gpu.end(stream)


def test_a_stream_may_be_destroyed_before_its_batch_is_dropped(gpu, photos):
    wanted = on_host(photos, 3)
    found = []
    with photos.open(device="cuda:0", slots=2) as loader:
        for batch in (b for _ in range(3) for b in loader):
            stream = gpu.stream()
            found.append(late(gpu, batch, stream))
            gpu.end(stream)
        gpu.call("cuCtxSynchronize")
        assert equal(found, wanted)


@pytest.fixture
def two():
    """Skips a test on a machine with one GPU."""
    if count() < 2:
        pytest.skip("this machine has one GPU")


def test_several_gpus_have_their_rows_of_every_batch(two, photos):
    pipeline = photos.batch(ROWS, tail="drop")
    wanted = on_host(pipeline)
    gpus = [Gpu(0), Gpu(1)]
    streams = []
    for gpu in gpus:
        gpu.use()
        streams.append(gpu.stream())
    found = []
    with pipeline.open(devices=["cuda:0", "cuda:1"]) as loader:
        for parts in loader:
            halves = []
            for gpu, part, stream in zip(gpus, parts, streams, strict=True):
                gpu.use()
                halves.append(fetch(gpu, part, stream))
            joined = {n: np.concatenate([half[n] for half in halves]) for n in FIELDS}
            found.append(joined)
    assert equal(found, wanted)
    for gpu, stream in zip(gpus, streams, strict=True):
        gpu.use()
        gpu.end(stream)
        gpu.close()


def test_tensors_at_fixed_addresses_are_filled(gpu, photos):
    pipeline = photos.batch(ROWS, tail="drop")
    wanted = on_host(pipeline, 2)
    stream = gpu.stream()
    tensors = {
        "image": gpu.tensor((ROWS, 3, 24, 24), "float32"),
        "label": gpu.tensor((ROWS,), "int64"),
    }
    found = []
    with pipeline.open(device="cuda:0", slots=2) as loader:
        for _ in range(2 * len(loader)):
            assert loader.next_into(tensors, stream=stream).samples == ROWS
            one = {}
            for name, tensor in tensors.items():
                one[name] = gpu.pinned_array(tensor.shape, tensor.dtype)
                gpu.fetch(tensor, stream, one[name])
            found.append(one)
        gpu.wait(stream)
        assert equal(found, wanted)
        # Each batch's memory on the GPU was free immediately.
        assert loader.stats()["device"]["overflow"] == 0
    gpu.end(stream)
    for tensor in tensors.values():
        tensor.free()


def test_a_tensor_on_another_gpu_raises_with_the_right_call(two, gpu, photos):
    pipeline = photos.batch(ROWS, tail="drop")
    other = Gpu(1)
    tensor = other.tensor((ROWS, 3, 24, 24), "float32")
    reported = pytest.raises(
        infeed.errors.ConfigError, match=r"cuda:1.*cuda:0.*torch.empty"
    )
    with pipeline.open(device="cuda:0") as loader, reported:
        loader.next_into({"image": tensor})
    tensor.free()
    other.close()


def test_a_capture_of_another_thread_stays_valid(gpu, photos):
    """In the default mode of frameworks, a query on another thread breaks a capture."""
    wanted = on_host(photos)
    stream, captured = gpu.stream(), gpu.stream()
    # Drivers pin no memory during a capture.
    found = [
        {
            name: gpu.pinned_array(array.shape, array.dtype)
            for name, array in batch.items()
        }
        for batch in wanted
    ]
    with photos.open(device="cuda:0", slots=2) as loader:
        gpu.begin_capture(captured)

        def loop():
            gpu.use()
            for batch, places in zip(loader, found, strict=True):
                for name, place in places.items():
                    taken = TakenBatch(batch.array(name), stream)
                    gpu.fetch(taken, stream, place)
                    taken.release()

        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
        gpu.end_capture(captured)
        gpu.wait(stream)
        assert equal(found, wanted)
    gpu.end(stream)
    gpu.end(captured)


def test_a_batch_is_not_taken_into_a_graph(gpu, photos):
    captured = gpu.stream()
    with photos.open(device="cuda:0") as loader:
        batch = next(iter(loader))
        gpu.begin_capture(captured)
        with pytest.raises(infeed.InfeedError, match="captured into a CUDA graph"):
            TakenBatch(batch.array("image"), captured)
        gpu.end_capture(captured)
        del batch
    gpu.end(captured)


def test_the_clock_of_the_gpu_measures_the_wait_of_a_stream(gpu, photos):
    stream = gpu.stream()
    with photos.open(device="cuda:0", slots=2) as loader:
        loader._stream = lambda: stream
        for batch in loader:
            fetch(gpu, batch, stream)
        sent = loader.stats()["device"]
    assert sent["gap_batches"] > 0
    assert sent["gap_s"] >= 0
    gpu.end(stream)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_fork_has_no_gpu(gpu, photos):
    with photos.open(device="cuda:0") as loader:
        array = next(iter(loader)).array("image")
        assert "fork" in result_in_fork(lambda: loader._core.next_parts([]))
        assert "fork" in result_in_fork(lambda: TakenBatch(array, 1))
        assert "fork" in result_in_fork(lambda: photos.open(device="cuda:0"))


def test_a_state_resumes_on_the_gpu_and_on_the_host(gpu, photos):
    wanted = on_host(photos)
    stream = gpu.stream()
    with photos.open(device="cuda:0") as loader:
        steps = iter(loader)
        found = [fetch(gpu, next(steps), stream) for _ in range(3)]
        state = loader.state_dict()
    with photos.open(device="cuda:0") as loader:
        loader.load_state_dict(state)
        found += [fetch(gpu, batch, stream) for batch in loader]
    assert equal(found, wanted)
    with photos.open() as loader:
        loader.load_state_dict(state)
        rest = [{n: np.array(b[n]) for n in FIELDS} for b in loader]
    assert equal(rest, wanted[3:])
    gpu.end(stream)


@pytest.fixture
def plain(classification):
    """The photographs, resized, in uint8."""
    made = infeed.Pipeline(sources.Folder(str(classification.path))).decode()
    return made.transform(T.Resize([32, 48])).batch(ROWS)


def assert_near(found, wanted):
    """Checks that labels are equal, and images as close as two decoders' images."""
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one["label"], other["label"])
        far = np.abs(one["image"].astype(int) - other["image"].astype(int))
        # Decoders differ by a few levels at sharp edges of colour.
        assert far.mean() < 2
        assert far.max() < 48


@pytest.fixture
def decoder(plain):
    """Skips a test if the GPU has no JPEG decoder; the fake driver has one."""
    try:
        plain.open(device="cuda:0", decode="gpu").close()
    except infeed.errors.DeviceError as error:
        if is_fake():
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("decode", ["gpu", 0.5])
def test_jpegs_are_decoded_on_the_gpu(decoder, gpu, plain, decode):
    wanted = on_host(plain)
    stream = gpu.stream()
    with plain.open(device="cuda:0", decode=decode) as loader:
        found = [fetch(gpu, batch, stream) for batch in loader]
        sent = loader.stats()["device"]
    share = sent["jpegs"] / (ROWS * sent["batches"])
    # The last batch of an epoch has two rows.
    assert 0.9 < share <= 1 if decode == "gpu" else 0.2 < share < 0.8
    assert_near(found, wanted)
    gpu.end(stream)


def test_files_are_decoded_after_the_resize_of_earlier_ones(decoder, gpu, plain):
    """The engine writes immediately, and the loop reads late."""
    wanted = on_host(plain, 2)
    stream = gpu.stream()
    found = []
    with plain.open(device="cuda:0", decode="gpu", slots=2) as loader:
        for batch in (b for _ in range(2) for b in loader):
            found.append(late(gpu, batch, stream))
            del batch
        gpu.wait(stream)
    assert_near(found, wanted)
    gpu.end(stream)


def test_the_host_decodes_files_that_the_gpu_cannot(
    decoder, gpu, tmp_path, classification
):
    """A progressive file, a grey one, a PNG and a truncated one, in one batch."""
    folder = tmp_path / "mixed" / "one"
    folder.mkdir(parents=True)
    image = Image.open(classification.files[0][0])
    image.save(folder / "0.jpg", quality=90)
    image.save(folder / "1.jpg", quality=90, progressive=True)
    image.convert("L").save(folder / "2.jpg", quality=90)
    image.save(folder / "3.png")
    cut = io.BytesIO()
    image.save(cut, "jpeg", quality=90)
    (folder / "4.jpg").write_bytes(cut.getvalue()[: len(cut.getvalue()) // 2])
    made = infeed.Pipeline(sources.Folder(str(folder.parent))).decode()
    pipeline = made.transform(T.Resize([32, 48])).batch(5)
    stream = gpu.stream()
    with pipeline.open(device="cuda:0", decode="gpu", on_error="substitute") as loader:
        (batch,) = loader
        found = fetch(gpu, batch, stream)
        assert len(loader.bad_records) == 1
        assert "4.jpg" in str(loader.bad_records)
        del batch
    good = on_host(pipeline_without(folder, "4.jpg", made))
    far = np.abs(found["image"][:4].astype(int) - good[0]["image"].astype(int))
    assert far.mean() < 2
    gpu.end(stream)


def pipeline_without(folder, name, made):
    """The same over the undamaged files."""
    os.remove(folder / name)
    return made.transform(T.Resize([32, 48])).batch(4)


def test_the_selftest_passes():
    found = json.loads(infeed._core.device_selftest("cuda:0", 2.0))
    assert [check for check in found["checks"] if check["outcome"] != "passed"] == []
    # Eight checks of the device, and five of each of its two decoders.
    assert len(found["checks"]) == 18
