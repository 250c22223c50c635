"""Reads the datasets of torchvision that hold their images, or list their files."""

from typing import Any

import numpy as np

from infeed import sources
from infeed.adopting.adopted_dataset import AdoptedDataset, library_of, native_dataset
from infeed.adopting.file_loaders import translate_loader
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding, translate
from infeed.errors import ConfigError

# Attributes with the pixels and the labels.
_ARRAYS = {
    **dict.fromkeys(("CIFAR10", "CIFAR100"), ("data", "targets")),
    **dict.fromkeys(("MNIST", "FashionMNIST", "KMNIST", "EMNIST"), ("data", "targets")),
    **dict.fromkeys(("SVHN", "STL10"), ("data", "labels")),
}
# Classes whose pixels are [n, channels, height, width].
_CHANNELS_FIRST = ("SVHN", "STL10")
# Attributes with the paths of the images, and with labels or paths of masks.
_FILES = {
    **dict.fromkeys(("Food101", "Flowers102", "DTD"), ("_image_files", "_labels")),
    **dict.fromkeys(("SUN397", "FGVCAircraft"), ("_image_files", "_labels")),
    "OxfordIIITPet": ("_images", "_labels"),
    "VOCSegmentation": ("images", "masks"),
}
# Classes with a list of paths and labels.
_PAIRS = ("GTSRB", "Imagenette", "RenderedSST2", "StanfordCars")


def vision_source(dataset: Any) -> sources.Memory:
    """Returns the images of a dataset of torchvision with their labels or masks.

    Args:
        dataset: A dataset that holds its pixels or lists its files, such as `CIFAR10`,
            `MNIST`, `Food101` or `VOCSegmentation`.

    Raises:
        ConfigError: Its pixels have no 8 bits, or its labels are no whole numbers.
    """
    name = type(dataset).__name__
    if name in _ARRAYS:
        pixels, labels = (getattr(dataset, key) for key in _ARRAYS[name])
        pixels = np.asarray(pixels)
        if name in _CHANNELS_FIRST:
            pixels = pixels.transpose(0, 2, 3, 1)
        if pixels.ndim == 3:
            pixels = pixels[..., None]
        if pixels.dtype != np.uint8:
            raise ConfigError(f"{name}: its pixels are {pixels.dtype}, not uint8")
        pixels = np.ascontiguousarray(pixels)
        return sources.Memory(image=pixels, label=_whole_numbers(name, labels))
    files, found = _files(dataset)
    if name == "VOCSegmentation":
        masks = [str(path) for path in found]
        kinds: dict[str, Any] = {"image": "image", "mask": "mask"}
        return sources.Memory(image=files, mask=masks, kinds=kinds)
    labels = _whole_numbers(name, found)
    return sources.Memory(image=files, label=labels, kinds={"image": "image"})


def _files(dataset: Any) -> tuple[list[str], Any]:
    """Returns the paths of the images, and their labels or paths of masks."""
    name = type(dataset).__name__
    if name in _PAIRS:
        paths, found = zip(*dataset._samples, strict=True)
    else:
        paths, found = (getattr(dataset, key) for key in _FILES[name])
    return [str(path) for path in paths], found


def _whole_numbers(name: str, labels: Any) -> Array:
    """Returns labels as int64, if no label loses a part."""
    try:
        found = np.asarray(labels)
    except ValueError:
        found = np.zeros((0, 0))
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigError(f"{name}: its labels are no whole numbers")
    return found.astype(np.int64)


def read_vision_list(dataset: Any) -> AdoptedDataset | str:
    """Reads the datasets that `vision_source` reads."""
    plain = getattr(dataset, "_dataset", dataset)
    name = type(plain).__name__
    known = {*_ARRAYS, *_FILES, *_PAIRS}
    if library_of(plain) != "torchvision" or name not in known:
        return ""
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    targets = getattr(plain, "_target_types", ["category"])
    if list(targets) != ["category"] or not len(plain):
        return ""
    # `wrap_dataset_for_transforms_v2` moves the transforms to itself.
    step, is_joint = dataset.transform, False
    joint = getattr(dataset, "transforms", None)
    if step is None and joint is not None and dataset is not plain:
        step, is_joint = joint, True
    elif joint is not None and type(joint).__name__ != "StandardTransform":
        return (
            "its transforms receive image and target; wrap it with "
            "wrap_dataset_for_transforms_v2"
        )
    is_mask = name == "VOCSegmentation"
    moved = frozenset({"mask"} if is_mask else ())
    if is_mask and not is_joint and step is not None:
        return "its transform does not receive the mask"
    decode: dict[str, Any] = {"mask": "stored"} if is_mask else {}
    if (load := getattr(plain, "loader", None)) is None:
        steps = translate(step, moved, is_joint=is_joint)
    else:
        loaded = translate_loader(load, _files(plain)[0], step)
        if isinstance(loaded, str):
            return loaded
        steps, decode = loaded.steps, {"orient": loaded.orient}
    try:
        source = vision_source(plain)
    except ConfigError as error:
        return str(error)
    code = "vision_source(dataset)"
    return native_dataset(
        dataset,
        source,
        Finding(name, code, "" if name in _ARRAYS else "its list of files"),
        steps,
        names={repr(source): (code, f"dataset: the {name} of the adopted loader")},
        variables={"dataset": plain},
        **decode,
    )
