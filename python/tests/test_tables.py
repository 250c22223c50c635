"""Items of Python objects and NumPy archives as sources, without other libraries."""

import gc
import logging
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.errors import ConfigError


def drain(pipeline: infeed.Pipeline, **options) -> list[infeed.Batch]:
    with pipeline.open(**options) as loader:
        return list(loader)


class Squares:
    """A map-style dataset of dictionaries."""

    def __init__(self, length: int, broken: int | None = None):
        self.length, self.broken = length, broken

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        if index == self.broken:
            raise ValueError(f"no square {index}")
        pixels = np.full((4, 5, 3), index, np.uint8)
        return {"image": pixels, "label": index % 3, "name": f"square {index}"}


def test_items_are_batched_in_the_order_of_the_seed():
    pipeline = infeed.Pipeline(sources.Items(Squares(20))).shuffle(seed=1).batch(5)

    batches = drain(pipeline)

    order = [index for batch in batches for index, _ in batch.records]
    assert sorted(order) == list(range(20))
    assert order != list(range(20))
    images = np.concatenate([batch["image"] for batch in batches])
    assert images.shape == (20, 4, 5, 3)
    assert images[:, 0, 0, 0].tolist() == order
    labels = np.concatenate([batch["label"] for batch in batches])
    assert labels.dtype == np.int64
    assert labels.tolist() == [index % 3 for index in order]
    names = [name for batch in batches for name in batch["name"]]
    assert names == [f"square {index}" for index in order]


def test_a_list_of_tuples_has_images_and_labels():
    items = [(np.zeros((2, 2, 3), np.uint8) + n, n) for n in range(4)]

    (batch,) = drain(infeed.Pipeline(sources.Items(items)).batch(4))

    assert tuple(batch.keys()) == ("image", "label")
    assert batch["label"].tolist() == [0, 1, 2, 3]


def test_an_exception_in_an_item_is_a_bad_record_with_its_line():
    pipeline = infeed.Pipeline(sources.Items(Squares(6, broken=4))).batch(2)

    with pytest.raises(infeed.errors.DamagedError) as caught:
        drain(pipeline)
    message = str(caught.value)
    assert "item 4 of the Squares" in message
    assert "ValueError: no square 4" in message
    assert "test_tables.py" in message

    with pipeline.open(on_error="skip") as loader:
        rows = sum(batch.rows for batch in loader)
        assert [bad.index for bad in loader.bad_records] == [4]
    assert rows == 5


def test_an_item_unlike_the_first_is_a_bad_record_with_the_difference():
    items = [{"x": np.zeros(3)}, {"x": np.zeros(4)}]

    with pytest.raises(
        infeed.errors.DamagedError, match=r"float64 \[4\] where item 0 has"
    ):
        drain(infeed.Pipeline(sources.Items(items)).batch(2))


def test_images_of_pillow_may_differ_in_size_and_are_decoded():
    modes = {"RGB": 3, "L": 1, "RGBA": 4}
    rng = np.random.default_rng(0)
    for mode, channels in modes.items():
        arrays = []
        for side in (5, 8, 11):
            shape = (side, side + 1, channels) if channels > 1 else (side, side + 1)
            arrays.append(rng.integers(0, 256, shape, dtype=np.uint8))
        items = [{"image": Image.fromarray(array, mode)} for array in arrays]
        pipeline = infeed.Pipeline(sources.Items(items)).decode(image="rgb")
        pipeline = pipeline.batch(1, pad=True)

        batches = drain(pipeline)

        for batch, item in zip(batches, items, strict=True):
            assert batch["image"].shape[0] == 1
            want = np.asarray(item["image"].convert("RGB"))
            np.testing.assert_array_equal(batch["image"][0], want)


def test_masks_of_pillow_keep_their_numbers():
    array = np.arange(20, dtype=np.uint8).reshape(4, 5)
    palette = Image.fromarray(array)
    palette.putpalette(list(range(256)) * 3)
    items = [(Image.new("RGB", (5, 4)), palette)]

    (batch,) = drain(infeed.Pipeline(sources.Items(items)).decode().batch(1, pad=True))

    assert tuple(batch.keys()) == ("image", "mask")
    np.testing.assert_array_equal(batch["mask"][0].reshape(4, 5), array)


def with_palette(alpha: bool) -> Image.Image:
    colours = [value for n in range(256) for value in (n, 255 - n, n // 2)]
    image = Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5))
    image.putpalette(colours)
    if alpha:
        image.info["transparency"] = 3
    return image


@pytest.mark.parametrize(
    "image",
    [
        with_palette(alpha=False),
        with_palette(alpha=True),
        Image.new("LA", (5, 4), (70, 9)),
        Image.new("CMYK", (5, 4), (70, 9, 200, 3)),
        Image.new("1", (5, 4), 1),
    ],
    ids=lambda image: f"{image.mode}{len(image.info)}",
)
def test_images_of_pillow_have_the_colours_that_pillow_shows(image):
    items = [{"image": Image.new("RGB", (5, 4))}, {"image": image}]
    pipeline = infeed.Pipeline(sources.Items(items)).decode(image="rgb")

    _, batch = drain(pipeline.transform(T.Crop(4, 5)).batch(1))

    want = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(batch["image"][0], want)


@pytest.mark.parametrize("mode", ["I", "F"])
@pytest.mark.parametrize("name", ["image", "mask"])
def test_values_that_pixels_cannot_hold_raise_and_are_not_clipped(mode, name):
    items = [{name: Image.new(mode, (5, 4), 300)}]

    with pytest.raises(ConfigError, match=f"a {name} cannot have Pillow's mode {mode}"):
        drain(infeed.Pipeline(sources.Items(items)).decode().batch(1))


def test_transforms_apply_to_items():
    pipeline = (
        infeed.Pipeline(sources.Items(Squares(4)))
        .transform(T.CenterCrop(2), T.ToFloat(), layout="CHW")
        .batch(4)
    )

    (batch,) = drain(pipeline)

    assert batch["image"].shape == (4, 3, 2, 2)
    np.testing.assert_allclose(batch["image"][:, 0, 0, 0], np.arange(4) / 255)


def test_bytes_lists_and_scalars_have_their_kinds():
    items = [
        {
            "blob": b"ab" * n,
            "boxes": [1, 2, 3][:n],
            "x": 0.5,
            "ok": True,
            "v": [[1], [2]],
        }
        for n in (1, 2, 3)
    ]

    shapes = infeed.Pipeline(sources.Items(items)).batch(3).shapes

    kinds = {name: (column.kind, column.dtype) for name, column in shapes.items()}
    assert kinds == {
        "blob": ("bytes", None),
        "boxes": ("ragged", "int64"),
        "x": ("array", "float64"),
        "ok": ("array", "bool"),
        "v": ("array", "int64"),
    }


def test_only_the_named_fields_are_read():
    source = sources.Items(Squares(3), fields={"class": sources.Field("label")})

    (batch,) = drain(infeed.Pipeline(source).batch(3))

    assert tuple(batch.keys()) == ("class",)
    assert batch["class"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["mask", "Annotation", "segmentation_map"])
def test_a_field_named_mask_is_a_mask_as_in_a_table(name):
    array = np.arange(20, dtype=np.uint8).reshape(4, 5)
    items = [{"image": Image.new("RGB", (5, 4)), name: Image.fromarray(array)}]

    (batch,) = drain(infeed.Pipeline(sources.Items(items)).decode().batch(1, pad=True))

    assert batch["image"].shape == (1, 4, 5, 3)
    np.testing.assert_array_equal(batch[name].reshape(4, 5), array)


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        (sources.Field(kind="tensor"), (4,)),
        (sources.Field(shape=(4,)), (4,)),
        (sources.Field(kind="tensor", dtype="int64", shape=(2, 2)), (2, 2)),
    ],
)
def test_lists_become_tensors_if_the_field_declares_it(field, shape):
    items = [{"box": [n, n + 1, n + 2, n + 3]} for n in range(3)]
    source = sources.Items(items, fields={"box": field})

    (batch,) = drain(infeed.Pipeline(source).batch(3))

    expected = np.array([item["box"] for item in items]).reshape(3, *shape)
    np.testing.assert_array_equal(batch["box"], expected)
    uneven = sources.Items([{"box": [1, 2]}, {"box": [1]}], fields={"box": field})
    with pytest.raises(infeed.InfeedError, match=r"\[1\] where item 0|shape \[2\]"):
        drain(infeed.Pipeline(uneven).batch(1))


def test_lists_of_another_type_than_declared_raise():
    field = sources.Field(kind="ragged", dtype="float32")
    source = sources.Items([{"boxes": [1, 2]}], fields={"boxes": field})

    with pytest.raises(ConfigError, match="a list of int64, not of float32; return"):
        infeed.Pipeline(source).open()


class Failing:
    """Raises an exception for every call."""

    def __init__(self, error: BaseException):
        self.error = error

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int):
        raise self.error

    def __arrow_c_stream__(self, requested_schema=None):
        raise self.error


def test_an_error_of_an_object_at_open_has_its_name():
    error = KeyError("x")
    with pytest.raises(ConfigError, match="item 0 of the Failing: KeyError: 'x'") as c:
        infeed.Pipeline(sources.Items(Failing(error))).open()
    assert c.value.__cause__ is error
    assert "test_tables.py" in str(c.value)

    with pytest.raises(ConfigError, match="the Failing is not a table: KeyError") as c:
        infeed.Pipeline(sources.Arrow(Failing(error))).open()
    assert c.value.__cause__ is error

    with pytest.raises(
        ConfigError, match=r"item 0 of the list: .* its key 3 is not a string"
    ):
        infeed.Pipeline(sources.Items([{3: 4}])).open()


def test_an_interrupt_at_open_stays_an_interrupt():
    for kind in (sources.Items, sources.Arrow):
        with pytest.raises(KeyboardInterrupt):
            infeed.Pipeline(kind(Failing(KeyboardInterrupt()))).open()


def test_the_time_in_python_is_counted_and_explained():
    pipeline = infeed.Pipeline(sources.Items(Squares(64))).batch(8)
    with pipeline.open() as loader:
        list(loader)
        spent = loader.stats()["python"]
        explanation = loader.explain().to_dict()

    assert spent["items"] >= 64
    assert spent["inside_s"] > 0
    limits = [resource["limit"] for resource in explanation["resources"]]
    assert "python" in limits

    with infeed.Pipeline(sources.Memory(x=np.zeros(4))).open() as loader:
        assert loader.stats()["python"] is None


class OneFile:
    """Items that fail when several threads make them at a time."""

    def __init__(self):
        self.inside = self.most = 0

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.001)
        self.inside -= 1
        return {"x": index}


def test_items_are_made_one_at_a_time_unless_threads_are_set():
    for threads, expected in ((1, {1}), (3, {2, 3})):
        dataset = OneFile()
        source = sources.Items(dataset, threads=threads)
        with infeed.Pipeline(source).batch(8).open(io_threads=4) as loader:
            assert sum(len(batch["x"]) for batch in loader) == 64
        assert dataset.most in expected

    with pytest.raises(ConfigError, match="threads"):
        sources.Items([1], threads=0)


def test_a_run_over_items_continues_from_its_state():
    pipeline = infeed.Pipeline(sources.Items(Squares(24))).shuffle(seed=3).batch(4)
    whole = [batch["label"].tolist() for batch in drain(pipeline)]
    with pipeline.open() as loader:
        steps = iter(loader)
        first = [next(steps)["label"].tolist() for _ in range(2)]
        state = loader.state_dict()

    with pipeline.open() as loader:
        loader.load_state_dict(state)
        rest = [batch["label"].tolist() for batch in loader]

    assert first + rest == whole


# Closes while items wait for an event, without the interpreter's lock. If the closing
# thread held the lock, the main thread would wait for it forever.
STUCK = """
import threading
import infeed
from infeed import sources

entered, go = threading.Event(), threading.Event()

class Stuck:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index > 0:
            entered.set()
            go.wait()
        return index

loader = infeed.Pipeline(sources.Items(Stuck())).batch(1).open()
assert entered.wait(30)
closer = threading.Thread(target=loader.close)
closer.start()
closer.join(0.3)
print("waits" if closer.is_alive() else "left the item behind")
go.set()
closer.join(30)
print("waits" if closer.is_alive() else "closed")
"""


def test_close_waits_for_an_item_in_flight_without_the_lock():
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=90
    )

    assert (done.stdout.split("\n"), done.stderr) == (["waits", "closed", ""], "")


def test_the_interpreter_ends_while_items_are_being_fetched():
    code = """
        import infeed
        from infeed import sources

        class Endless:
            def __len__(self):
                return 1_000_000

            def __getitem__(self, index):
                return {"x": sum(range(200))}

        loader = infeed.Pipeline(sources.Items(Endless())).batch(4).open()
        next(iter(loader))
        print("bye")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")


def test_an_object_is_freed_with_its_pipeline():
    import weakref

    dataset = Squares(4)
    alive = weakref.ref(dataset)
    pipeline = infeed.Pipeline(sources.Items(dataset)).batch(2)
    drain(pipeline)
    del dataset, pipeline
    gc.collect()
    # Objects that threads without the lock dropped are freed by the next call.
    drain(infeed.Pipeline(sources.Memory(x=np.zeros(2))))
    gc.collect()

    assert alive() is None


def test_data_in_memory_cannot_be_saved(tmp_path):
    pipeline = infeed.Pipeline(sources.Items(Squares(4))).batch(2)

    with pytest.raises(ConfigError, match="write the data to files"):
        pipeline.save(tmp_path / "pipeline.toml")


def test_items_need_a_length():
    with pytest.raises(ConfigError, match="__len__"):
        sources.Items(iter([1]))
    with pytest.raises(ConfigError, match="no items"):
        infeed.Pipeline(sources.Items([])).open()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpy_archives_are_read_as_batches(tmp_path, save):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (10, 4, 6, 3), dtype=np.uint8)
    labels = np.arange(10, dtype=np.int32)
    for at, rows in enumerate([slice(0, 4), slice(4, 10)]):
        save(tmp_path / f"{at}.npz", image=images[rows], label=labels[rows])
    pipeline = infeed.Pipeline(sources.Npz(tmp_path / "*.npz")).batch(10)

    (batch,) = drain(pipeline)

    np.testing.assert_array_equal(batch["image"], images)
    assert batch["label"].tolist() == list(range(10))
    assert batch["label"].dtype == np.int64
    (mixed,) = drain(pipeline.shuffle(seed=1))
    assert sorted(mixed["label"].tolist()) == list(range(10))


def test_sources_of_files_are_settings_that_are_saved(tmp_path):
    fields = {"image": "image", "y": sources.Field("label", dtype="int64")}
    for source in (
        sources.Parquet("a-*.parquet"),
        sources.Arrow(["a.arrow", "b.arrow"], fields),
        sources.Npz("x.npz", fields=["image"]),
    ):
        assert eval(repr(source), {"sources": sources}) == source
        infeed.Pipeline(source).batch(2).save(tmp_path / "p.toml")
        assert infeed.Pipeline.load(tmp_path / "p.toml").source == source


def test_an_object_that_is_not_a_table_raises():
    with pytest.raises(ConfigError, match="__arrow_c_stream__"):
        sources.Arrow(object())


def test_archives_warn_about_members_and_arrays_that_are_not_read(tmp_path, caplog):
    for at, arrays in enumerate([{"x": np.arange(2)}, dict.fromkeys("xy", np.ones(2))]):
        arrays = {name: values.astype(np.int64) for name, values in arrays.items()}
        np.savez(tmp_path / f"{at}.npz", **arrays)
        with zipfile.ZipFile(tmp_path / f"{at}.npz", "a") as archive:
            archive.writestr("note.txt", "text")
    pipeline = infeed.Pipeline(sources.Npz(str(tmp_path / "*.npz")))

    with caplog.at_level(logging.WARNING, "infeed"):
        drain(pipeline)
        drain(pipeline)

    messages = [record.getMessage() for record in caplog.records]
    assert [message.replace(f"{tmp_path}/", "") for message in messages] == [
        "0.npz and 1 more file: 2 members without the extension .npy are left out: "
        "note.txt, note.txt",
        "1.npz: 1 array that the first archive does not have is left out: y",
    ]
