"""Training loops on a GPU.

`test_on_card.py` runs them on the fake driver, which also reports misuse and leaks;
`scripts/gpu-check` runs them on NVIDIA's.
"""

import gc
import io
import json
import os
import threading

import numpy as np
import pytest
from card import Card, Taken, count, is_fake, report
from children import told_by_fork
from photos import ROWS, equal, pipeline_of
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T

STEPS = 8
FIELDS = ("image", "label")


@pytest.fixture
def card():
    """The first card, as a framework opens it."""
    opened = Card()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Whatever a test does, nothing of it stays on a GPU, and nothing is misused."""
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
    """The batches of some epochs, as the host makes them."""
    with pipeline.open() as loader:
        batches = [batch for _ in range(epochs) for batch in loader]
        return [{name: np.array(array) for name, array in b.items()} for b in batches]


def fetched(card, batch, stream, names=FIELDS, handle=None):
    """Copies of the columns, made in the order of a stream.

    `handle` is what the driver calls a stream of which DLPack has another number.
    """
    found = {}
    for name in names:
        taken = Taken(batch.array(name), stream)
        found[name] = card.fetch(taken, handle or stream)
        taken.release()
    return found


def late(card, batch, stream, handle=None):
    """The same into pinned memory, which has them once the stream gets there."""
    places = {}
    for name in FIELDS:
        taken = Taken(batch.array(name), stream)
        places[name] = card.pinned(taken.shape, taken.dtype)
        card.fetch(taken, handle or stream, places[name])
        taken.release()
    return places


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("placement", ["auto", "host", "device", "device-resize"])
def test_a_card_has_the_bits_that_the_host_has(card, classification, placement, dtype):
    pipeline = pipeline_of(classification.path, dtype)
    wanted = on_host(pipeline)
    stream = card.stream()
    with pipeline.open(device="cuda:0", placement=placement) as loader:
        assert equal([fetched(card, batch, stream) for batch in loader], wanted)
        # The next epoch's first are on their way.
        assert loader.stats()["device"]["batches"] >= STEPS
    card.end(stream)
    if is_fake():
        assert report()["pageable"] == 0, "every copy is from pinned memory"


@pytest.mark.parametrize("kind", ["one-hot", "int64", "uint8"])
def test_masks_are_made_larger_on_the_card(card, segmentation, kind):
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
    stream = card.stream()
    fields = ("image", "mask")
    with pipeline.open(device="cuda:0") as loader:
        assert equal([fetched(card, b, stream, fields) for b in loader], wanted)
        sent = loader.stats()["device"]
    # A byte a channel and a pixel of each, but labels that are wider already.
    assert sent["bytes"] <= 4 * 16 * 20 * (3 + 1) * sent["batches"]
    card.end(stream)


@pytest.mark.parametrize("ordered", [False, True])
def test_memory_is_not_used_again_before_streams_are_done_with_it(
    card, photos, ordered
):
    """Batches are read late, given back before they are, and still what they were."""
    wanted = on_host(photos, 3)
    streams = [card.stream(ordered) for _ in range(3)]
    into = []
    with photos.open(device="cuda:0", slots=2) as loader:
        for number, batch in enumerate(b for _ in range(3) for b in loader):
            into.append(late(card, batch, streams[number % 3]))
            del batch
        for stream in streams:
            card.wait(stream)
        assert equal(into, wanted)
    for stream in streams:
        card.end(stream)


@pytest.mark.parametrize("stream", [None, 1, 2])
def test_default_streams_wait_as_others_do(card, photos, stream):
    wanted = on_host(photos)
    # What DLPack calls 1 is the driver's legacy stream, and so is None.
    handle = {None: 1, 1: 1, 2: 2}[stream]
    with photos.open(device="cuda:0", slots=2) as loader:
        found = [late(card, batch, stream, handle) for batch in loader]
        card.wait(handle)
        assert equal(found, wanted)


def test_who_waits_for_nothing_gets_what_is_there(card, photos):
    wanted = on_host(photos)
    with photos.open(device="cuda:0", slots=2) as loader:
        # Into memory that is not pinned, for which the host waits.
        found = [fetched(card, batch, -1, handle=1) for batch in loader]
        assert equal(found, wanted)


def test_a_second_stream_that_reads_a_batch_is_named(card, photos):
    wanted = on_host(photos, 2)
    first, second = card.stream(), card.stream()
    into = []
    with photos.open(device="cuda:0", slots=2) as loader:
        for batch in (b for _ in range(2) for b in loader):
            taken = Taken(batch.array("image"), first)
            card.wait(first)
            batch.record_stream(second)
            place = card.pinned(taken.shape, taken.dtype)
            card.fetch(taken, second, place)
            into.append({"image": place})
            taken.release()
        card.wait(second)
        assert equal(into, [{"image": batch["image"]} for batch in wanted])
    card.end(first)
    card.end(second)


def test_batches_that_are_kept_stay_and_outlive_their_loader(card, photos):
    wanted = on_host(photos)
    stream = card.stream()
    with photos.open(device="cuda:0", slots=2) as loader:
        kept = list(loader)
        assert loader.stats()["device"]["overflow"] > 0
    assert equal([fetched(card, batch, stream) for batch in kept], wanted)
    del kept
    card.end(stream)


def test_a_stream_that_is_gone_costs_a_wait_and_no_batch(card, photos):
    wanted = on_host(photos)
    with photos.open(device="cuda:0", slots=2) as loader:
        found = []
        for batch in loader:
            stream = card.stream()
            found.append(fetched(card, batch, stream))
            card.end(stream)
        assert equal(found, wanted)


@pytest.fixture
def two():
    """Skips a test where there is one GPU."""
    if count() < 2:
        pytest.skip("there is one GPU here")


def test_several_cards_have_their_rows_of_every_batch(two, photos):
    pipeline = photos.batch(ROWS, tail="drop")
    wanted = on_host(pipeline)
    cards = [Card(0), Card(1)]
    streams = []
    for card in cards:
        card.use()
        streams.append(card.stream())
    found = []
    with pipeline.open(devices=["cuda:0", "cuda:1"]) as loader:
        for parts in loader:
            halves = []
            for card, part, stream in zip(cards, parts, streams, strict=True):
                card.use()
                halves.append(fetched(card, part, stream))
            joined = {n: np.concatenate([half[n] for half in halves]) for n in FIELDS}
            found.append(joined)
    assert equal(found, wanted)
    for card, stream in zip(cards, streams, strict=True):
        card.use()
        card.end(stream)
        card.close()


def test_tensors_at_fixed_addresses_are_filled(card, photos):
    pipeline = photos.batch(ROWS, tail="drop")
    wanted = on_host(pipeline, 2)
    stream = card.stream()
    tensors = {
        "image": card.tensor((ROWS, 3, 24, 24), "float32"),
        "label": card.tensor((ROWS,), "int64"),
    }
    found = []
    with pipeline.open(device="cuda:0", slots=2) as loader:
        for _ in range(2 * len(loader)):
            assert loader.next_into(tensors, stream=stream).samples == ROWS
            one = {}
            for name, tensor in tensors.items():
                one[name] = card.pinned(tensor.shape, tensor.dtype)
                card.fetch(tensor, stream, one[name])
            found.append(one)
        card.wait(stream)
        assert equal(found, wanted)
        # The memory on the card was free at once, every time.
        assert loader.stats()["device"]["overflow"] == 0
    card.end(stream)
    for tensor in tensors.values():
        tensor.free()


def test_a_tensor_on_another_card_is_told_with_the_call_that_mends_it(
    two, card, photos
):
    pipeline = photos.batch(ROWS, tail="drop")
    other = Card(1)
    tensor = other.tensor((ROWS, 3, 24, 24), "float32")
    told = pytest.raises(infeed.ConfigError, match=r"cuda:1.*cuda:0.*torch.empty")
    with pipeline.open(device="cuda:0") as loader, told:
        loader.next_into({"image": tensor})
    tensor.free()
    other.close()


def test_a_capture_of_another_thread_is_left_whole(card, photos):
    """Frameworks capture in the mode in which a query elsewhere breaks the graph."""
    wanted = on_host(photos)
    stream, captured = card.stream(), card.stream()
    with photos.open(device="cuda:0", slots=2) as loader:
        card.begin_capture(captured)
        found = []

        def loop():
            card.use()
            found.extend(late(card, batch, stream) for batch in loader)

        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
        card.end_capture(captured)
        card.wait(stream)
        assert equal(found, wanted)
    card.end(stream)
    card.end(captured)


def test_a_batch_is_not_taken_into_a_graph(card, photos):
    captured = card.stream()
    with photos.open(device="cuda:0") as loader:
        batch = next(iter(loader))
        card.begin_capture(captured)
        with pytest.raises(infeed.InfeedError, match="captured into a CUDA graph"):
            Taken(batch.array("image"), captured)
        card.end_capture(captured)
        del batch
    card.end(captured)


def test_the_clock_of_the_card_sees_what_a_stream_waited_for(card, photos):
    stream = card.stream()
    with photos.open(device="cuda:0", slots=2) as loader:
        loader._stream = lambda: stream
        for batch in loader:
            fetched(card, batch, stream)
        sent = loader.stats()["device"]
    assert sent["gap_batches"] > 0
    assert sent["gap_s"] >= 0
    card.end(stream)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_fork_has_no_card(card, photos):
    with photos.open(device="cuda:0") as loader:
        array = next(iter(loader)).array("image")
        assert "fork" in told_by_fork(lambda: loader._core.next())
        assert "fork" in told_by_fork(lambda: Taken(array, 1))
        assert "fork" in told_by_fork(lambda: photos.open(device="cuda:0"))


def test_a_state_goes_on_on_the_card_and_on_the_host(card, photos):
    wanted = on_host(photos)
    stream = card.stream()
    with photos.open(device="cuda:0") as loader:
        steps = iter(loader)
        found = [fetched(card, next(steps), stream) for _ in range(3)]
        state = loader.state_dict()
    with photos.open(device="cuda:0") as loader:
        loader.load_state_dict(state)
        found += [fetched(card, batch, stream) for batch in loader]
    assert equal(found, wanted)
    with photos.open() as loader:
        loader.load_state_dict(state)
        rest = [{n: np.array(b[n]) for n in FIELDS} for b in loader]
    assert equal(rest, wanted[3:])
    card.end(stream)


@pytest.fixture
def plain(classification):
    """The photographs, resized and left as bytes."""
    made = infeed.Pipeline(sources.Folder(str(classification.path))).decode()
    return made.transform(T.Resize([32, 48])).batch(ROWS)


def assert_near(found, wanted):
    """Checks that images differ by no more than two decoders do, and labels not."""
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one["label"], other["label"])
        far = np.abs(one["image"].astype(int) - other["image"].astype(int))
        # A few levels at sharp edges of colour.
        assert far.mean() < 2
        assert far.max() < 48


@pytest.fixture
def decoder(plain):
    """Skips a test where the GPU has no decoder of JPEGs; the fake driver has one."""
    try:
        plain.open(device="cuda:0", decode="gpu").close()
    except infeed.DeviceError as error:
        if is_fake():
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("decode", ["gpu", 0.5])
def test_jpegs_are_decoded_on_the_card(decoder, card, plain, decode):
    wanted = on_host(plain)
    stream = card.stream()
    with plain.open(device="cuda:0", decode=decode) as loader:
        found = [fetched(card, batch, stream) for batch in loader]
        sent = loader.stats()["device"]
    share = sent["jpegs"] / (ROWS * sent["batches"])
    # The last batch of an epoch has two rows.
    assert 0.9 < share <= 1 if decode == "gpu" else 0.2 < share < 0.8
    assert_near(found, wanted)
    card.end(stream)


def test_files_are_decoded_after_the_resize_of_those_before(decoder, card, plain):
    """The engine writes as soon as it is called, and the loop is late."""
    wanted = on_host(plain, 2)
    stream = card.stream()
    found = []
    with plain.open(device="cuda:0", decode="gpu", slots=2) as loader:
        for batch in (b for _ in range(2) for b in loader):
            found.append(late(card, batch, stream))
            del batch
        card.wait(stream)
    assert_near(found, wanted)
    card.end(stream)


def test_what_the_card_does_not_decode_the_host_does(
    decoder, card, tmp_path, classification
):
    """A progressive file, a grey one, a PNG and one that ends early, in one batch."""
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
    stream = card.stream()
    with pipeline.open(device="cuda:0", decode="gpu", on_error="substitute") as loader:
        (batch,) = loader
        found = fetched(card, batch, stream)
        assert len(loader.quarantine) == 1
        assert "4.jpg" in str(loader.quarantine)
        del batch
    good = on_host(pipeline_without(folder, "4.jpg", made))
    far = np.abs(found["image"][:4].astype(int) - good[0]["image"].astype(int))
    assert far.mean() < 2
    card.end(stream)


def pipeline_without(folder, name, made):
    """The same over the files that are whole."""
    os.remove(folder / name)
    return made.transform(T.Resize([32, 48])).batch(4)


def test_the_selftest_passes():
    found = json.loads(infeed._core.device_selftest("cuda:0", 2.0))
    failed = [check for check in found["checks"] if check["outcome"] != "passed"]
    # Times of threads, which share the cores with whatever else runs.
    timed = ["the measured gap is as long as an injected delay"]
    assert [check for check in failed if check["name"] not in timed] == []
    # Eight of the device, and five of each of its two decoders.
    assert len(found["checks"]) == 18
