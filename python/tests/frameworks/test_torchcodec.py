"""Datasets whose files torchcodec decodes."""

import functools
import io
from pathlib import Path

import numpy as np
import pytest
from adopted_code import run_code
from conftest import photograph
from PIL import Image
from requirements import framework_test, import_or_skip
from torch_loops import assert_same, epochs, loader_of, run_both

import infeed
from infeed import codecs
from infeed.adopting.file_loaders import translate_loader

torch = import_or_skip("torch")
datasets = import_or_skip("torchvision.datasets")
v2 = import_or_skip("torchvision.transforms.v2")
torchcodec = import_or_skip("torchcodec")
decode_image = import_or_skip("torchcodec.decoders").decode_image
from torchcodec.decoders import decode_jpeg as decode_with_alias  # noqa: E402

pytestmark = [*framework_test, pytest.mark.usefixtures("few_draws")]

ORIENTATION = 0x0112
TENSOR = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
RESIZE = v2.Resize((48, 40))
STILL = v2.Compose([RESIZE, *TENSOR])
RANDOM = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), *TENSOR])


def encode(image: Image.Image, kind: str, mode: str = "RGB", **options) -> bytes:
    file = io.BytesIO()
    if "orientation" in options:
        exif = Image.Exif()
        exif[ORIENTATION] = options.pop("orientation")
        options["exif"] = exif.tobytes()
    image.convert(mode).save(file, kind, **options)
    return file.getvalue()


# Files whose pixels are equal.
EQUAL = {
    "4:4:4": ("JPEG", {"subsampling": "4:4:4"}),
    "4:2:0": ("JPEG", {"subsampling": "4:2:0"}),
    "gray": ("JPEG", {"mode": "L"}),
    "CMYK": ("JPEG", {"mode": "CMYK"}),
    **{f"JPEG {n}": ("JPEG", {"orientation": n}) for n in range(1, 9)},
    "PNG": ("PNG", {}),
    "PNG, alpha": ("PNG", {"mode": "RGBA"}),
    "PNG, palette": ("PNG", {"mode": "P"}),
    "PNG, turned": ("PNG", {"orientation": 6}),
    "WebP": ("WEBP", {}),
    "WebP, alpha": ("WEBP", {"mode": "RGBA"}),
    "WebP, turned": ("WEBP", {"orientation": 8}),
    "GIF": ("GIF", {"mode": "P"}),
}


@pytest.mark.parametrize("name", EQUAL)
def test_pixels_are_those_of_torchcodec(name):
    kind, options = EQUAL[name]
    data = encode(Image.fromarray(photograph(5, 61, 83)), kind, **options)

    theirs = decode_image(data).permute(1, 2, 0).numpy()

    assert np.array_equal(theirs, codecs.decode(data))


def test_samples_of_16_bits_are_rounded_by_torchcodec():
    high = np.asarray(photograph(3, 40, 50)[..., 0], np.uint16)
    data = encode(Image.fromarray((high << 8) | 200), "PNG", "I;16")

    theirs = decode_image(data).permute(1, 2, 0).numpy().astype(int)

    apart = theirs - codecs.decode(data)
    assert set(np.unique(apart)) == {0, 1}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Photographs of different sizes, formats and orientations in three classes."""
    root = tmp_path_factory.mktemp("photos")
    endings = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
    kinds = [one for one in EQUAL.values() if one[0] in endings]
    for number, (kind, options) in enumerate([*kinds, *kinds]):
        path = root / f"class{number % 3}" / f"{number:03}.{endings[kind]}"
        path.parent.mkdir(exist_ok=True)
        image = Image.fromarray(photograph(number, 60 + number, 80))
        path.write_bytes(encode(image, kind, **options))
    return root


def folder_of(root, load, transform=STILL):
    return datasets.ImageFolder(str(root), transform, loader=load)


def from_bytes(path):
    with open(path, "rb") as file:
        return decode_image(file.read(), mode="rgb")


def from_tensor(path):
    data = bytearray(Path(path).read_bytes())
    return decode_image(torch.frombuffer(data, dtype=torch.uint8))


def by_module(path):
    return torchcodec.decoders.decode_image(Path(path))


def by_ending(path):
    if path.endswith(".jpg"):
        return decode_with_alias(path)
    return decode_image(source=path, output_dtype=torch.uint8)


def with_resize(path):
    return RESIZE(decode_image(path))


@torch.inference_mode()
def without_gradient(path):
    return decode_image(path)


class Load:
    def __init__(self):
        self.mode = "RGB"

    def __call__(self, path):
        return decode_image(path, mode=self.mode)

    def load(self, path):
        return self(path)


LOADERS = {
    "torchcodec's own": (decode_image, "decode_image"),
    "partial": (functools.partial(decode_image, mode="RGB"), "decode_image"),
    "lambda": (lambda path: decode_image(path), "decode_image"),
    "bytes": (from_bytes, "decode_image"),
    "tensor": (from_tensor, "decode_image"),
    "module": (by_module, "decode_image"),
    "ending": (by_ending, "decode_image, decode_jpeg"),
    "resize": (with_resize, "decode_image"),
    "decorator": (without_gradient, "decode_image"),
    "object": (Load(), "decode_image"),
    "method": (Load().load, "decode_image"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_that_only_decodes_is_replaced(photos, name):
    load, decoders = LOADERS[name]
    dataset = folder_of(photos, load)

    adopted = infeed.adopt(loader_of(dataset), seconds=None)

    run_code(adopted)
    assert all(finding.became for finding in adopted.findings), adopted.report
    assert adopted.equivalence.is_equivalent, adopted.report
    assert ".decode(orient=True)" in adopted.code
    parts = {finding.part for finding in adopted.findings}
    assert ", ".join(sorted(decoders.split(", "))) in {
        ", ".join(sorted(part.split(", "))) for part in parts
    }
    assert isinstance(load(str(dataset.samples[0][0])), torch.Tensor)
    assert decode_image is torchcodec.decoders.decode_image, "it is still observed"


def own_steps(image):
    return STILL(image)


def own_crop(image):
    return STILL(image[:, 8:, 8:])


@pytest.mark.parametrize("transform", [RANDOM, None, own_steps])
def test_transforms_of_tensors_are_replaced(photos, transform):
    dataset = folder_of(photos, decode_image, transform)

    adopted = infeed.adopt(loader_of(dataset, batch_size=1), seconds=None)

    assert all(finding.became for finding in adopted.findings), adopted.report
    assert adopted.equivalence.is_equivalent, adopted.report


def test_a_function_of_tensors_that_does_more_is_called_in_python(photos):
    dataset = folder_of(photos, decode_image, own_crop)

    adopted = infeed.adopt(loader_of(dataset), seconds=None)

    (left,) = (one for one in adopted.findings if not one.became)
    assert left.part == "function"
    assert adopted.equivalence.is_equivalent, adopted.report


def test_epochs_of_an_installed_loader_are_equal(photos, capsys):
    def call():
        dataset = folder_of(photos, from_bytes, v2.Compose([RESIZE, TENSOR[0]]))
        return epochs(loader_of(dataset, shuffle=True))

    assert_same(*run_both(capsys, call))


def test_a_dataset_that_lists_its_files_is_replaced(tmp_path):
    paths = [tmp_path / f"{number}.jpg" for number in range(12)]
    for number, path in enumerate(paths):
        image = Image.fromarray(photograph(number, 50 + number, 60))
        path.write_bytes(encode(image, "JPEG", orientation=1 + number % 8))
    dataset = datasets.Food101.__new__(datasets.Food101)
    datasets.VisionDataset.__init__(dataset, "", transform=STILL)
    dataset._image_files, dataset._labels = paths, [*range(12)]
    dataset.loader = decode_image

    adopted = infeed.adopt(loader_of(dataset), seconds=None)

    assert all(finding.became for finding in adopted.findings), adopted.report
    assert adopted.equivalence.is_equivalent, adopted.report
    assert "vision_source(dataset)" in adopted.code


RESULTS: dict[str, torch.Tensor] = {}


def keep_results(path):
    if path not in RESULTS:
        RESULTS[path] = decode_image(path)
    return RESULTS[path]


def test_a_loader_that_keeps_results_keeps_no_observed_image(photos):
    dataset = folder_of(photos, keep_results)

    adopted = infeed.adopt(loader_of(dataset), seconds=None)

    assert adopted.equivalence.is_equivalent, adopted.report
    paths = [path for path, _ in dataset.samples]
    assert all(type(keep_results(path)) is torch.Tensor for path in paths)


def to_gray(path):
    return decode_image(path, mode=torchcodec.decoders.ImageReadMode.GRAY)


def to_16_bits(path):
    return decode_image(path, output_dtype=torch.uint16)


def on_gpu(path):
    return decode_with_alias(path, device="cuda")


def of_avif(path):
    return torchcodec.decoders.decode_avif(path)


def other_file(path):
    return decode_image(str(Path(path).parent))


def by_channels(path):
    image = decode_image(path)
    return image if image.shape[0] == 3 else image.expand(3, -1, -1)


def darker(path):
    return decode_image(path) // 2


def new_steps(path):
    return v2.Resize((48, 40))(decode_image(path))


def with_pillow(path):
    return v2.functional.pil_to_tensor(Image.open(path).convert("RGB"))


OWN = {
    "gray": (to_gray, 'mode="GRAY"'),
    "16 bits": (to_16_bits, "output_dtype=torch.uint16"),
    "GPU": (on_gpu, "on the device cuda"),
    "AVIF": (of_avif, "infeed does not decode AVIF"),
    "other file": (other_file, "other bytes"),
    "channels": (by_channels, "it uses shape of images"),
    "darker": (darker, "when traced"),
    "new steps": (new_steps, "makes its transforms in each call"),
    "Pillow": (with_pillow, "it has its own loader for files"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_loader_that_does_more_stays_in_python(photos, name):
    load, reason = OWN[name]
    paths = [path for path, _ in folder_of(photos, load).samples]

    found = translate_loader(load, paths, STILL)

    assert isinstance(found, str)
    assert reason in found
    assert decode_image is torchcodec.decoders.decode_image, "it is still observed"


def test_the_report_has_the_reason(photos):
    dataset = folder_of(photos, to_gray, v2.Compose([RESIZE, TENSOR[0]]))

    adopted = infeed.adopt(loader_of(dataset), seconds=None)

    assert "its loader to_gray: it decodes" in adopted.report
    assert adopted.equivalence.is_equivalent, adopted.report


def test_a_loader_is_traced_again_before_each_epoch(photos):
    load = Load()
    paths = [path for path, _ in folder_of(photos, load).samples]
    found = translate_loader(load, paths, STILL)
    assert not isinstance(found, str)
    assert all(check() for check in found.steps.checks)

    load.mode = "GRAY"

    assert not all(check() for check in found.steps.checks)


@pytest.mark.parametrize("name", ["default_loader", "pil_loader"])
def test_loaders_of_torchvision_do_not_apply_the_orientation(photos, name):
    dataset = folder_of(photos, getattr(datasets.folder, name), v2.PILToTensor())

    adopted = infeed.adopt(loader_of(dataset, batch_size=1), seconds=None)

    assert ".decode()" in adopted.code
    assert adopted.equivalence.is_equivalent, adopted.report


def test_torchcodec_reads_no_orientation_from_xmp():
    image = Image.fromarray(photograph(2, 40, 60))
    xmp = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf='
        b'"http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
        b'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
        b"</rdf:RDF></x:xmpmeta>"
    )
    data = encode(image, "JPEG", xmp=xmp)

    assert decode_image(data).shape == (3, 40, 60)
    assert codecs.decode(data).shape == (60, 40, 3)
