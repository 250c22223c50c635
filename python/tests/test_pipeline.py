"""The builder: immutable, printable, comparable, saved and loaded."""

import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T
from infeed.errors import ConfigError

NAMES = {"infeed": infeed, "sources": sources, "T": T}


def train(segmentation) -> infeed.Pipeline:
    return (
        infeed.Pipeline(sources.Pairs(image=segmentation.image, mask=segmentation.mask))
        .shuffle(seed=0)
        .decode(orient=True, mask="rgb")
        .transform(
            T.Crop(32, 32, at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=segmentation.palette, unknown="ignore"),
            layout="CHW",
        )
        .batch(3, drop_last=True)
    )


def test_the_repr_of_a_pipeline_is_its_code(segmentation):
    pipeline = train(segmentation)

    assert eval(repr(pipeline), NAMES) == pipeline


def test_a_short_pipeline_prints_on_few_lines():
    pipeline = infeed.Pipeline(sources.Folder("imagenet/train")).shuffle(seed=7)

    assert repr(pipeline).splitlines() == [
        "(",
        '    infeed.Pipeline(sources.Folder("imagenet/train"))',
        "    .shuffle(seed=7)",
        ")",
    ]


def test_a_pipeline_survives_a_file(segmentation, tmp_path):
    pipeline = train(segmentation)

    pipeline.save(tmp_path / "pipeline.toml")

    assert infeed.Pipeline.load(tmp_path / "pipeline.toml") == pipeline


def test_a_mapped_array_survives_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6 * 48, dtype=np.uint8).reshape(6, 4, 4, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    pipeline = infeed.Pipeline(sources.Memory(image=mapped)).batch(2)

    pipeline.save(tmp_path / "pipeline.toml")
    loaded = infeed.Pipeline.load(tmp_path / "pipeline.toml")

    assert loaded == pipeline
    (first, *_) = [batch["image"].copy() for batch in loaded]
    assert (first == mapped[:2]).all()


def test_arrays_in_memory_cannot_be_saved(tmp_path):
    pipeline = infeed.Pipeline(sources.Memory(label=[1, 2, 3]))

    with pytest.raises(ConfigError, match="mmap_mode"):
        pipeline.save(tmp_path / "pipeline.toml")


def test_a_typo_in_a_file_raises_with_its_name(segmentation, tmp_path):
    file = tmp_path / "pipeline.toml"
    train(segmentation).save(file)
    file.write_text(file.read_text().replace("[shuffle]", "[shufle]"))

    with pytest.raises(ConfigError, match="shufle"):
        infeed.Pipeline.load(file)


def test_a_memory_field_in_a_file_must_name_its_array(tmp_path):
    file = tmp_path / "pipeline.toml"
    field = 'name = "x"\nkind = "tensor"\nhandle = 0\n'
    file.write_text(f'[source]\nkind = "memory"\n[[source.fields]]\n{field}')

    with pytest.raises(ConfigError, match="x must have"):
        infeed.Pipeline.load(file)


def test_methods_do_not_change_their_pipeline():
    pipeline = infeed.Pipeline(sources.Folder("x"))
    before = repr(pipeline)

    pipeline.shuffle().decode().transform(T.CenterCrop(4))

    assert repr(pipeline) == before


def test_equal_settings_are_equal_pipelines(segmentation):
    assert train(segmentation) == train(segmentation)
    assert hash(train(segmentation)) == hash(train(segmentation))
    assert train(segmentation) != train(segmentation).shuffle(seed=1)


def test_pickling_omits_the_loader(segmentation):
    pipeline = train(segmentation)
    next(iter(pipeline))

    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_shapes_of_a_pipeline_equal_those_of_its_batches(segmentation):
    pipeline = train(segmentation)

    shapes = pipeline.shapes

    assert pipeline.fields == ("image", "mask")
    for batch in pipeline:
        for name, column in shapes.items():
            assert batch[name].shape == column.shape
            assert batch[name].dtype == column.dtype


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda p: p.shuffle(-1), "shuffle: seed"),
        (lambda p: p.shuffle(2**64), "shuffle: seed must be below"),
        (lambda p: p.decode(orient=1), "decode: orient"),
        (lambda p: p.decode(image="bgr"), "decode: image must be one of"),
        (
            lambda p: p.transform("flip"),
            "transform: steps must be transforms",
        ),
        (lambda p: p.transform(layout="NCHW"), "transform: layout must be one of"),
        (lambda p: p.batch(), "batch: size must be set"),
        (lambda p: p.batch(0), "batch: size must be an integer of at least 1"),
        (lambda p: p.batch(4, per_rank=2), "and not both"),
    ],
)
def test_a_wrong_argument_raises_with_its_name_at_the_call(build, named):
    with pytest.raises(ConfigError, match=named):
        build(infeed.Pipeline(sources.Folder("x")))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": "many"}, 'workers must be "auto", an integer'),
        ({"memory": "lots"}, "memory must be a size such as"),
        ({"memory": -5}, "memory"),
        ({"rank": 2, "world_size": 2}, "rank must be below world_size=2"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"max_bad": -1}, "max_bad"),
        ({"memory": 10}, "memory=10 bytes is too small for two batches"),
        ({"world_size": 2}, "3"),
        ({"on_error": "skip"}, "drop_last"),
    ],
)
def test_open_raises_for_invalid_options(segmentation, arguments, named):
    with pytest.raises(ConfigError, match=named):
        train(segmentation).open(**arguments)


def test_without_batch_each_batch_is_one_sample():
    pipeline = infeed.Pipeline(sources.Memory(x=[1, 2]))

    assert [batch["x"].tolist() for batch in pipeline] == [[1], [2]]
    assert pipeline == pipeline.batch(1)


def test_rows_of_unknown_shape_raise_when_the_pipeline_is_built(classification):
    decoded = infeed.Pipeline(sources.Folder(classification.path)).decode()

    with pytest.raises(ConfigError, match=r"pad=True"):
        decoded.batch(4)


def test_paths_of_a_pipeline_file_are_relative_to_the_file(tmp_path, monkeypatch):
    data = tmp_path / "project" / "data"
    for n in range(2):
        for name in ("image", "mask"):
            (data / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(data / name / f"{n}.png")
    (data / "palette.csv").write_text("name,r,g,b\nsky,0,0,0\n")
    project = data.parent
    (project / "configs").mkdir()
    monkeypatch.chdir(project)
    pipeline = (
        infeed.Pipeline(sources.Pairs(image="data/image", mask="data/mask"))
        .decode(mask="rgb")
        .transform(T.ClassIndex("mask", palette="data/palette.csv"))
    )

    pipeline.save("configs/train.toml")
    pipeline.save("here.toml")

    assert infeed.Pipeline.load("configs/train.toml") == pipeline
    assert infeed.Pipeline.load("here.toml") == pipeline
    assert 'image = "../data/image"' in (project / "configs/train.toml").read_text()
    moved = tmp_path / "moved"
    project.rename(moved)
    monkeypatch.chdir(tmp_path)
    shutil.copy(moved / "here.toml", moved / "copy.toml")
    for name in ("configs/train.toml", "here.toml", "copy.toml"):
        with infeed.Pipeline.load(moved / name).open() as loader:
            assert sum(batch.rows for batch in loader) == 2
