"""Functions of `with_transform` of datasets, which only call transforms."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from requirements import framework_test, import_or_skip

import infeed

torch = import_or_skip("torch")
v2 = import_or_skip("torchvision.transforms.v2")
hub = import_or_skip("datasets")
transformers = import_or_skip("transformers")
training_arguments = import_or_skip("hugging_face").training_arguments
pytestmark = [*framework_test, pytest.mark.usefixtures("few_draws")]

TENSOR = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
CHAIN = v2.Compose([v2.Resize((48, 40)), TENSOR, v2.Normalize([0.5] * 3, [0.2] * 3)])
CROP, FLIP = v2.RandomResizedCrop(32), v2.RandomHorizontalFlip()
SQUARE = {"height": 40, "width": 40}
VIT = transformers.ViTImageProcessor(size=SQUARE)
CLIP = transformers.CLIPImageProcessor(
    size={"shortest_edge": 45}, crop_size={"height": 40, "width": 40}
)
NAMES = ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def table_of(classification):
    """Returns a function that makes a table of images, in it or in files."""

    def make(holds_images=True, mode="RGB"):
        images, labels = [], []
        for path, label in classification.files:
            image, file = Image.open(path).convert(mode), io.BytesIO()
            image.save(file, "PNG")
            images.append({"bytes": file.getvalue(), "path": None})
            labels.append(label)
        if not holds_images:
            images = [str(path) for path, _ in classification.files]
        features = {"image": hub.Image(), "label": hub.ClassLabel(names=NAMES)}
        features |= {"number": hub.Value("int32"), "text": hub.Value("string")}
        columns = {"image": images, "label": labels, "number": [*range(len(labels))]}
        columns["text"] = [f"image {number}" for number in columns["number"]]
        return hub.Dataset.from_dict(columns, features=hub.Features(features))

    return make


def adopt(table, function) -> infeed.adopting.Adoption:
    loader = torch.utils.data.DataLoader(table.with_transform(function), 4)
    return infeed.adopt(loader, seconds=None)


def in_compose(rows):
    rows["pixel_values"] = [CHAIN(image.convert("RGB")) for image in rows["image"]]
    return rows


def one_by_one(rows):
    images = [image.convert("RGB") for image in rows.pop("image")]
    images = [TENSOR(FLIP(CROP(image))) for image in images]
    return {"pixels": torch.stack(images), "labels": torch.tensor(rows["label"])}


def in_other_modes_only(rows):
    images = []
    for image in rows["image"]:
        if image.mode != "RGB":
            image = image.convert("RGB")
        images.append(CHAIN(image))
    return {"x": images, "number": rows["number"], "text": rows["text"]}


def with_vit(rows):
    found = VIT([image.convert("RGB") for image in rows["image"]], return_tensors="pt")
    found["labels"] = rows["label"]
    return found


def with_clip(rows):
    values = CLIP(images=rows["image"], return_tensors="np")["pixel_values"]
    return {"pixel_values": list(values), "label": rows["label"]}


class Preprocess:
    def __init__(self):
        self.chain = CHAIN

    def __call__(self, rows):
        return {"image": [self.chain(image) for image in rows["image"]]}


TRACED = {
    "in_compose": (in_compose, "T.Resize((48, 40))"),
    "one_by_one": (one_by_one, "T.RandomHorizontalFlip()"),
    "in_other_modes_only": (in_other_modes_only, '"number": "number"'),
    "with_vit": (with_vit, "T.Resize((40, 40))"),
    "with_clip": (with_clip, "T.CropOrPad(40, 40)"),
    "object": (Preprocess(), '{"image": "image"}'),
}


@pytest.mark.parametrize("holds_images", [True, False])
@pytest.mark.parametrize("name", TRACED)
def test_a_function_that_only_calls_transforms_is_replaced(
    table_of, name, holds_images
):
    function, code = TRACED[name]
    torch.manual_seed(2)
    adopted = adopt(table_of(holds_images), function)

    assert adopted.equivalence.is_equivalent, adopted.report
    assert not [one for one in adopted.findings if one.became is None], adopted.report
    assert code in adopted.code
    names = {"dataset": table_of(holds_images).with_transform(function)}
    exec(compile(adopted.code, "code", "exec"), names)
    theirs, ours = next(iter(adopted.loader())), next(iter(names["loader"]))
    assert theirs.keys() == ours.keys()
    random.seed(7)
    assert random.random() == random.Random(7).random(), "nothing is still observed"
    assert type(CHAIN(Image.new("RGB", (8, 8)))).__name__ == "Image"


def test_gray_images_are_decoded_as_gray(table_of):
    def function(rows):
        return {"image": [TENSOR(SMALL(image)) for image in rows["image"]]}

    adopted = adopt(table_of(mode="L"), function)

    assert adopted.equivalence.is_equivalent, adopted.report
    assert next(iter(adopted.loader()))["image"].shape == (4, 1, 48, 40)


SMALL = v2.Resize((48, 40))
OWN = {
    "other values": (
        lambda rows: {"x": [2 * CHAIN(image) for image in rows["image"]]},
        "changes values itself",
    ),
    "other labels": (
        lambda rows: {
            "x": [CHAIN(image) for image in rows["image"]],
            "label": [label if label < 2 else 0 for label in rows["label"]],
        },
        "changes values itself",
    ),
    "random": (
        lambda rows: {
            "x": [
                CHAIN(image) if random.random() < 2 else CROP(image)
                for image in rows["image"]
            ]
        },
        "draws random numbers itself",
    ),
    "new transforms": (
        lambda rows: {
            "x": [v2.Compose([CROP, v2.ToImage()])(image) for image in rows["image"]]
        },
        "makes its transforms in each call",
    ),
    "by label": (
        lambda rows: {
            "x": [
                CHAIN(image) if label < 2 else TENSOR(CROP(image))
                for image, label in zip(rows["image"], rows["label"], strict=True)
            ]
        },
        "or has several",
    ),
    "by mode": (
        lambda rows: {
            "x": [
                CHAIN(image) if image.mode == "RGB" else TENSOR(SMALL(image))
                for image in rows["image"]
            ]
        },
        "treats rows differently",
    ),
    "size": (
        lambda rows: {"x": [CHAIN(image) for image in rows["image"] if image.size[0]]},
        "uses size of images",
    ),
    "array": (
        lambda rows: {"x": [np.asarray(image)[:8, :8] for image in rows["image"]]},
        "uses __array_",
    ),
    "kernel": (
        lambda rows: {
            "x": [v2.functional.hflip(CHAIN(image)) for image in rows["image"]]
        },
        "changes values itself",
    ),
    "two chains": (
        lambda rows: {
            "x": [CHAIN(image) for image in rows["image"]],
            "y": [TENSOR(SMALL(image)) for image in rows["image"]],
        },
        "transforms 2 columns",
    ),
    "rows": (
        lambda rows: {"x": [CHAIN(rows["image"][0])]},
        "x has another number of rows",
    ),
    "equal columns": (
        lambda rows: {
            "x": [CHAIN(image) for image in rows["image"]],
            "copy": rows["text"],
        },
        "copy is any of text, twin",
    ),
    "arguments": (
        lambda rows: VIT(rows["image"], return_tensors="pt", do_resize=False),
        "ViTImageProcessor with further values",
    ),
}


def catch_errors(rows):
    images = []
    for image in rows["image"]:
        try:
            image = image.rotate(10)
        except Exception:
            image = image.convert("RGB")
        images.append(CHAIN(image))
    return {"x": images}


OWN["caught"] = (catch_errors, "uses rotate of images")


@pytest.mark.parametrize("name", OWN)
def test_other_functions_are_called_in_python_with_the_reason(table_of, name):
    function, reason = OWN[name]
    rows = table_of().select([0, 10, 20, 29])
    rows = rows.add_column("twin", rows["text"][:])
    adopted = adopt(rows, function)

    (part,) = [one for one in adopted.findings if one.became is None]
    assert reason in part.reason


def test_some_columns_of_a_table_are_not_traced(table_of):
    table = table_of()
    table.set_transform(Preprocess(), columns=["image"])
    loader = torch.utils.data.DataLoader(table, 4)

    found = infeed.adopt(loader, samples=0, seconds=None).findings[0]

    assert found.became is None
    assert "some of the columns only" in found.reason


def test_processors_that_do_more_are_named(table_of):
    padding = transformers.ViTImageProcessor(size=SQUARE, do_pad=True, pad_size=SQUARE)
    cases = [
        (padding, "of ViTImageProcessor: it pads images"),
        (transformers.ConvNextImageProcessor(), "has its own"),
        (transformers.ViTImageProcessor(do_rescale=False), "values from 0 to 255"),
        (transformers.ViTImageProcessor(rescale_factor=0.5), "by 0.5"),
        (
            transformers.ViTImageProcessor(
                size={"shortest_edge": 40, "longest_edge": 80}
            ),
            "it resizes to longest_edge, shortest_edge",
        ),
    ]
    for processor, reason in cases:

        def function(rows, processor=processor):
            return processor(rows["image"], return_tensors="pt")

        table = table_of().select([0])
        loader = torch.utils.data.DataLoader(table.with_transform(function), 1)
        found = infeed.adopt(loader, samples=0, seconds=None)
        (part,) = [one for one in found.findings if one.became is None]
        assert reason in part.reason


@pytest.mark.parametrize("is_uneven", [True, False])
def test_image_processors_crop_as_infeed(tmp_path, is_uneven):
    """Sizes at which torchvision and transformers round a crop differently."""
    rng = np.random.default_rng(3)
    images = []
    for width in range(41, 49) if is_uneven else range(30, 38):
        pixels = rng.integers(0, 255, (44, width, 3), np.uint8)
        images.append(Image.fromarray(pixels))
    table = hub.Dataset.from_dict(
        {"image": images}, features=hub.Features({"image": hub.Image()})
    )
    processor = transformers.CLIPImageProcessor(do_resize=False, crop_size=SQUARE)

    def function(rows):
        return processor(rows["image"], return_tensors="pt")

    adopted = adopt(table, function)

    assert "rounding of floats only" in str(adopted.equivalence), adopted.report


def test_a_table_in_hugging_faces_trainer_is_traced(table_of, tmp_path, capsys):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def forward(self, pixel_values, labels):
            self.seen.append((pixel_values, labels.tolist()))
            return {"loss": self.layer(pixel_values.mean()[None]).square().mean()}

    def collate(samples):
        images = torch.stack([sample["pixel_values"] for sample in samples])
        # This column is an image of Pillow.
        widths = {sample["image"].width for sample in samples}
        assert len(widths) > 1
        return {
            "pixel_values": images,
            "labels": torch.tensor([sample["label"] for sample in samples]),
        }

    def train():
        arguments = training_arguments(
            tmp_path,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            remove_unused_columns=False,
        )
        table = table_of().with_transform(in_compose)
        trainer = transformers.Trainer(Model(), arguments, collate, table)
        trainer.train()
        return trainer.model.seen

    theirs = train()
    infeed.install("torch", proof_seconds=0)
    try:
        ours = train()
    finally:
        infeed.uninstall()

    assert "table_source(dataset, " in capsys.readouterr().err
    assert [labels for _, labels in theirs] == [labels for _, labels in ours]
    for (one, _), (other, _) in zip(theirs, ours, strict=True):
        assert (one - other).abs().max() < 1.5 / 255 / 0.2


@pytest.mark.parametrize("kind", ["table", "folder"])
def test_a_function_that_changes_counts_from_the_next_epoch_on(
    table_of, classification, kind
):
    folders = import_or_skip("torchvision.datasets")
    state = {"chain": CHAIN}

    def transform_rows(rows):
        images = [state["chain"](image) for image in rows["image"]]
        return {"x": images, "label": rows["label"]}

    def sizes():
        state["chain"] = CHAIN
        if kind == "table":
            dataset = table_of().with_transform(transform_rows)
        else:
            dataset = folders.ImageFolder(
                str(classification.path), lambda image: state["chain"](image)
            )
        loader = torch.utils.data.DataLoader(dataset, 4)
        found = []
        for chain in (CHAIN, CHAIN, OTHER):
            state["chain"] = chain
            batch = next(iter(loader))
            image = batch["x"] if kind == "table" else batch[0]
            found.append((tuple(image.shape), image.mean().item()))
        return found

    theirs = sizes()
    infeed.install("torch", proof_seconds=0)
    try:
        ours = sizes()
    finally:
        infeed.uninstall()

    assert [shape for shape, _ in ours] == [shape for shape, _ in theirs]
    assert ours[0] == ours[1] != ours[2]
    assert ours[2][1] == pytest.approx(theirs[2][1], abs=1e-2)


OTHER = v2.Compose([v2.Resize((24, 24)), TENSOR])


def test_files_of_a_table_may_be_gone(table_of, tmp_path):
    path = Path(tmp_path) / "x.png"
    Image.new("RGB", (50, 50)).save(path)
    table = hub.Dataset.from_dict({"image": [str(path)] * 4})
    table = table.cast_column("image", hub.Image()).with_transform(Preprocess())
    adopted = adopt(table, Preprocess())
    path.unlink()

    with pytest.raises(infeed.errors.InfeedError, match=r"x\.png"):
        next(iter(adopted.loader()))


class Preset:
    """The transform of a preset of torchvision's references."""

    def __init__(self, *steps):
        self.transforms = v2.Compose([*steps, TENSOR])

    def __call__(self, image):
        return self.transforms(image)


def in_function(image):
    return TENSOR(FLIP(CROP(image.convert("RGB"))))


IMAGE_FUNCTIONS = {
    "preset": (Preset(CROP, FLIP), "T.RandomResizedCrop(32)"),
    "function": (in_function, "T.RandomHorizontalFlip()"),
    "lambda": (
        v2.Compose([v2.Lambda(lambda image: image.convert("RGB")), CHAIN]),
        "T.Resize((48, 40))",
    ),
}


@pytest.mark.parametrize("name", IMAGE_FUNCTIONS)
def test_a_function_of_an_image_that_only_calls_transforms_is_replaced(
    classification, name
):
    folders = import_or_skip("torchvision.datasets")
    function, code = IMAGE_FUNCTIONS[name]
    dataset = folders.ImageFolder(str(classification.path), function)

    adopted = infeed.adopt(torch.utils.data.DataLoader(dataset, 4), seconds=None)

    assert adopted.equivalence.is_equivalent, adopted.report
    assert not [one for one in adopted.findings if one.became is None]
    assert code in adopted.code


@pytest.mark.parametrize(
    "function",
    [
        lambda image: CHAIN(image.rotate(3)),
        lambda image: 1 - CHAIN(image),
        lambda image: CHAIN(image) if random.random() < 2 else image,
        lambda image: v2.Compose([CROP, TENSOR])(image),
        lambda image: CHAIN(image.convert("L").convert("RGB")),
        lambda image: image,
    ],
)
def test_other_functions_of_an_image_are_called_in_python(classification, function):
    folders = import_or_skip("torchvision.datasets")
    dataset = folders.ImageFolder(str(classification.path), function)
    loader = torch.utils.data.DataLoader(dataset, 1)

    found = infeed.adopt(loader, samples=0, seconds=None).findings

    (part,) = [one for one in found if one.became is None]
    assert part.part == "function"
