"""Transforms as settings: valid values, printing, comparison."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed import _core, sources
from infeed import transforms as T
from infeed.errors import ConfigError

EXAMPLES = [
    T.Crop(512, 256, at="top_left"),
    T.Crop(5, 6, at=(1, 2)),
    T.CenterCrop(224),
    T.RandomCrop((20, 30), padding=4, padding_mode="reflect", fill=(1, 2, 3)),
    T.RandomResizedCrop(224, scale=(0.5, 1.0), interpolation="bicubic"),
    T.RandomSizedCrop((48, 40), sides=(20, 60)),
    T.Resize(256, max_size=400),
    T.Pad((1, 2, 3, 4), fill=7, mask_fill=255),
    T.CropOrPad(10, 20),
    T.CropOrPadTo("canvas", fill=114),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(p=0.25),
    T.ColorJitter(brightness=0.4, hue=(-0.1, 0.2)),
    T.Grayscale(num_output_channels=3),
    T.RandomAffine(10, translate=(0.1, 0.2), scale=(0.5, 2), shear=(-1, 1, 0, 3)),
    T.RandomAffine((-10, 30), shear=5, fill=(1, 2, 3), center=(4, 5.5)),
    T.RandomAffine(0, perspective=0.001),
    T.RandomRotation(90, interpolation="bilinear", expand=True, mask_fill=255),
    T.RandomPerspective(0.3, p=1),
    T.ElasticTransform((30, 60), sigma=4, fill=(1, 2, 3)),
    T.LongestMaxSize(640, antialias=False),
    T.LongestMaxSize(640, round_up=True),
    T.RandomShortestSize((480, 512, 544), max_size=800),
    T.ScaleJitter((640, 480), scale_range=(0.8, 1.2)),
    T.RandomZoomOut(fill=(123, 117, 104), side_range=(1, 2)),
    T.RandomIoUCrop(sampler_options=(0.5, 1)),
    T.CopyPaste(),
    T.CopyPaste(p=0.5, blending=False),
    T.ImageMixUp(1.5, p=0.3),
    T.MirroredPaste(0.1, max_overlap=0.2),
    T.Mosaic(1280, antialias=False),
    T.Mosaic((480, 640), center_range=(0.4, 0.6), p=0.5, fill=(1, 2, 3)),
    T.RandomPhotometricDistort(hue=(-0.1, 0.1), p=0.3),
    T.RandomHSV(hue=0.02, value=0),
    T.RandomInvert(),
    T.RandomPosterize(3, p=0.1),
    T.RandomSolarize(128.5),
    T.RandomGrayscale(),
    T.RandomAutocontrast(p=1),
    T.RandomEqualize(),
    T.RandomAdjustSharpness(2),
    T.GaussianBlur((5, 9), sigma=(0.5, 1)),
    T.GaussianBlur(3, sigma=1.5),
    T.GaussianNoise(sigma=0.05, clip=False),
    T.JPEG(40),
    T.JPEG((30, 80)),
    T.AutoAugment("svhn", fill=128),
    T.AugMix(5, chain_depth=2, alpha=0.5, all_ops=False),
    T.RandAugment(magnitude=5, fill=128),
    T.TrivialAugmentWide(),
    T.RandomApply([T.ColorJitter(0.4), T.RandomGrayscale()], p=0.8),
    T.RandomChoice([T.RandomInvert(p=1), T.RandomRotation(9)], p=(1, 3)),
    T.RandomOrder([T.RandomApply([T.GaussianBlur(3)]), T.RandomHorizontalFlip()]),
    T.RandomErasing(value=(0.1, 0.2, 0.3)),
    T.ToFloat("image"),
    T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
    T.OneHot("mask", palette="class_dict.csv"),
    T.OneHot(classes=12, dtype="uint8"),
    T.OneHot(values=(0, 255), ignore_index=7),
    T.ClassIndex(palette="class_dict.csv", dtype="int64"),
    T.ClassIndex(classes=21, unknown="ignore", ignore_index=-1, dtype="int64"),
    T.MixUp(0.2, classes=1000),
    T.CutMix(p=0.5, field="breed"),
]


KINDS = [
    kind
    for kind in map(vars(T).get, T.__all__)
    if dataclasses.is_dataclass(kind) and kind is not T.Transform
]

# Values of the parameters without a default, by name.
REQUIRED = {
    "bits": 3,
    "classes": 3,
    "degrees": 5,
    "height": 5,
    "kernel_size": 3,
    "max_size": 9,
    "mean": (0.5,),
    "min_size": (8, 9),
    "padding": 4,
    "quality": 40,
    "sharpness_factor": 2,
    "sides": (8, 9),
    "size": 7,
    "size_field": "canvas",
    "std": (1,),
    "target_size": (9, 8),
    "threshold": 9,
    "transforms": (T.RandomEqualize(),),
    "width": 6,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_keys_that_a_file_omits_have_the_defaults_of_python(kind, tmp_path):
    fields = dataclasses.fields(kind)
    needed = [f.name for f in fields if f.default is dataclasses.MISSING]
    if kind in (T.OneHot, T.ClassIndex):
        # They need one of several parameters.
        needed = ["classes"]
    transform = kind(**{name: REQUIRED[name] for name in needed})
    described = transform._to_dict()
    full = {"source": {"kind": "folder", "path": "photos"}, "transforms": [described]}
    short = {**full, "transforms": [{k: described[k] for k in ("kind", *needed)}]}

    assert reread(short, tmp_path) == reread(full, tmp_path)


def reread(description: dict, folder: Path) -> dict:
    """Returns a description after the engine has written and read it."""
    _core.save(json.dumps(description), str(folder / "pipeline.toml"))
    return json.loads(_core.load(str(folder / "pipeline.toml")))


@pytest.mark.parametrize("transform", EXAMPLES, ids=repr)
def test_the_repr_of_a_transform_is_its_code(transform):
    assert eval(repr(transform), {"T": T}) == transform


@pytest.mark.parametrize("transform", EXAMPLES, ids=repr)
def test_a_transform_survives_its_description(transform):
    assert T.from_dict(transform._to_dict()) == transform


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: T.Crop(0, 5), r"Crop: height and width is \[0, 5\], it must be"),
        (lambda: T.Crop(5, 5.0), "width must be an integer"),
        (lambda: T.Crop(5, 5, at="left"), "at must be a position"),
        (lambda: T.Crop(5, 5, at=(-1, 0)), "at must be a position"),
        (lambda: T.CenterCrop((1, 2, 3)), r"size must be .*\(height, width\)"),
        (lambda: T.CenterCrop(True), "size"),
        (lambda: T.RandomCrop(4, padding=(1, 2, 3)), "padding must be"),
        (lambda: T.RandomCrop(4, padding_mode="wrap"), "padding_mode must be one of"),
        (
            lambda: T.RandomResizedCrop(4, scale=(1, 0.5)),
            r"scale is \[1.0, 0.5\], it must be",
        ),
        (lambda: T.RandomResizedCrop(4, ratio=(0, 1)), "ratio"),
        (lambda: T.Resize(4, interpolation="cubic"), "interpolation must be one of"),
        (lambda: T.RandomHorizontalFlip(p=1.5), "p is 1.5, it must be between 0 and 1"),
        (lambda: T.RandomHorizontalFlip(p=float("nan")), "p must be"),
        (lambda: T.ColorJitter(hue=0.6), "hue is"),
        (lambda: T.RandomAffine(-1), r"degrees is -1.0, it must be"),
        (lambda: T.RandomAffine(5, scale=(0, 1)), "scale is"),
        (lambda: T.RandomAffine(5, shear=90), "shear is"),
        (lambda: T.RandomAffine(5, translate=(0.1, 2)), "translate is"),
        (lambda: T.RandomAffine(5, interpolation="bicubic"), "nearest or bilinear"),
        (lambda: T.RandomRotation(5, expand=True, center=(1, 2)), "center is"),
        (lambda: T.RandomPerspective(1.5), "distortion_scale is 1.5"),
        (lambda: T.LongestMaxSize(0), "max_size is"),
        (lambda: T.RandomShortestSize(()), "min_size is"),
        (lambda: T.ScaleJitter(640), "target_size must be a list of 2"),
        (lambda: T.RandomZoomOut(side_range=(0.5, 2)), "side_range is"),
        (lambda: T.RandomIoUCrop(min_scale=0), "min_scale and max_scale is"),
        (lambda: T.Mosaic(1), r"size is \[1, 1\], it must be at least 2 x 2"),
        (lambda: T.Mosaic(8, center_range=(0, 1)), "center_range is"),
        (lambda: T.Mosaic(8, window=0), "window is 0, it must be at least 1"),
        (lambda: T.RandomHSV(hue=-0.1), "hue is -0.1, it must be between 0 and 1"),
        (lambda: T.RandomHSV(saturation=1.5), "saturation is 1.5"),
        (lambda: T.RandomPosterize(9), "bits is 9, it must be from 0 to 8"),
        (lambda: T.RandomSolarize(256), "threshold is 256"),
        (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor is"),
        (lambda: T.GaussianBlur(4), r"kernel_size is \[4, 4\], it must be odd"),
        (lambda: T.GaussianBlur(3, sigma=0), "sigma is"),
        (lambda: T.GaussianNoise(sigma=-1), "sigma is"),
        (lambda: T.ElasticTransform(sigma=(0, 3)), "sigma is"),
        (lambda: T.JPEG(101), r"quality is \[101, 101\], it must be from 1 to 100"),
        (lambda: T.AugMix(severity=11), "severity is 11"),
        (lambda: T.RandAugment(magnitude=31), "magnitude is 31"),
        (lambda: T.RandomApply([]), "transforms is"),
        (lambda: T.RandomApply(["flip"]), "transforms must be a list of transforms"),
        (lambda: T.RandomOrder([T.Pad(8)]), "transforms is .*Pad"),
        (lambda: T.RandomSizedCrop(8, (9, 8)), r"sides is \[9, 8\]"),
        (lambda: T.RandomChoice([T.RandomInvert()], p=(1, 2)), "one weight"),
        (lambda: T.Grayscale(2), "num_output_channels is 2, it must be 1 or 3"),
        (lambda: T.Normalize((0.5,), (0,)), r"std is \[0.0\], it must be .* positive"),
        (lambda: T.Normalize((0.5,), (1, 2)), "std must be as long as mean"),
        (lambda: T.OneHot(), "palette, classes and values"),
        (lambda: T.OneHot(palette="a.csv", classes=3), "palette, classes and values"),
        (lambda: T.OneHot(values=(0, 255, 0)), "values is .* different stored values"),
        (lambda: T.OneHot(values=(0, 2**16)), "65536"),
        (lambda: T.OneHot(classes=2, unknown="skip"), 'unknown must be "error" or'),
        (lambda: T.ClassIndex(), "palette, classes and values"),
        (
            lambda: T.ClassIndex(palette="a.csv", unknown=7),
            "ignore_index=N sets the index",
        ),
        (lambda: T.ClassIndex(palette="a.csv", dtype="int32"), "dtype must be one of"),
        (lambda: T.MixUp(alpha=0), "MixUp: alpha is 0.0, it must be between 0.001"),
        (lambda: T.CutMix(p=2), "CutMix: p is 2.0, it must be between 0 and 1"),
        (lambda: T.CutMix(classes=0), "classes is"),
    ],
)
def test_a_wrong_parameter_raises_with_its_valid_values(make, named):
    with pytest.raises(ConfigError, match=named) as caught:
        make()
    assert isinstance(caught.value, ValueError)


def test_numpy_numbers_and_lists_are_the_same_settings():
    assert T.CenterCrop(np.int64(5)) == T.CenterCrop(5)
    assert T.CenterCrop([5, 6]) == T.CenterCrop((5, 6))
    mean = np.array([0.5, 0.25, 1.0])
    assert T.Normalize(mean, mean) == T.Normalize((0.5, 0.25, 1.0), (0.5, 0.25, 1.0))


def test_a_transform_cannot_be_changed():
    with pytest.raises(AttributeError):
        T.CenterCrop(5).size = 6


def test_normalization_to_numbers_that_are_not_finite_raises(classification):
    for mean, std, name in [
        (0.5, 0.0, "std"),
        (0.5, 1e-39, "std"),
        (0.5, 1e-310, "std"),
        (0.5, float("nan"), "std"),
        (0.5, float("inf"), "std"),
        (float("nan"), 0.5, "mean"),
        (float("-inf"), 0.5, "mean"),
        (1e39, 0.5, "mean"),
        (10**400, 0.5, "mean"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=f"Normalize: {name} "):
            T.Normalize(mean=(mean,), std=(std,))

    def open_transforms(*transforms: T.Transform, **output: str) -> infeed.Loader:
        pipeline = infeed.Pipeline(sources.Folder(str(classification.path))).decode()
        pipeline = pipeline.transform(T.Resize([8, 8]), *transforms, **output)
        return pipeline.batch(2).open(workers=1)

    small = T.Normalize(mean=(0.5,), std=(1e-30,))
    with open_transforms(small) as loader:
        assert all(np.isfinite(batch["image"]).all() for batch in loader)
    with pytest.raises(infeed.errors.ConfigError, match="Normalize"):
        open_transforms(small, small)
    with pytest.raises(
        infeed.errors.ConfigError, match=r"float16.*holds numbers up to 65504"
    ):
        open_transforms(T.Normalize(mean=(0.5,), std=(1e-6,)), dtype="float16")
    with open_transforms(
        T.Normalize(mean=(0.5,), std=(1e-4,)), dtype="float16"
    ) as loader:
        assert all(np.isfinite(batch["image"]).all() for batch in loader)
