"""Reads datasets of torchvision: folders of classes, COCO, and others by their code."""

import copy
from typing import Any

from infeed import _code, sources
from infeed.adopting.adopted_dataset import (
    AdoptedDataset,
    library_of,
    native_dataset,
)
from infeed.adopting.annotations import written_annotations
from infeed.adopting.file_loaders import translate_loader
from infeed.adopting.folder_records import class_records
from infeed.adopting.samples import is_picture
from infeed.adopting.steps import Finding, translate

# Columns of `sources.Coco` that targets of torchvision have too.
_COLUMNS = {"boxes", "labels", "image_id", "area", "iscrowd", "masks"}


def read_image_folder(dataset: Any) -> AdoptedDataset | str:
    """Reads torchvision's `ImageFolder` and `ImageNet`."""
    name = type(dataset).__name__
    if library_of(dataset) != "torchvision" or name not in ("ImageFolder", "ImageNet"):
        return ""
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    if getattr(dataset, "extensions", ()) is None:
        return "its is_valid_file selects its files"
    root = str(getattr(dataset, "split_folder", dataset.root))
    # `ImageNet` has names of classes beyond those of its folders.
    classes = dataset.classes if name == "ImageFolder" else None
    found = class_records(root, dataset.samples, classes)
    if isinstance(found, str):
        return found
    source, order = found
    paths = [path for path, _ in dataset.samples]
    step = getattr(dataset, "transform", None)
    loaded = translate_loader(dataset.loader, paths, step)
    if isinstance(loaded, str):
        return loaded
    finding = Finding(name, repr(source))
    return native_dataset(
        dataset, source, finding, loaded.steps, order=order, orient=loaded.orient
    )


def read_coco(dataset: Any) -> AdoptedDataset | str:
    """Reads torchvision's `CocoDetection`, wrapped for its transforms v2 or not."""
    name = type(dataset).__name__.removeprefix("Wrapped")
    if library_of(dataset) != "torchvision" or name != "CocoDetection":
        return ""
    found = _plain(dataset)
    if isinstance(found, str):
        return found
    plain, step, is_joint = found
    keys = getattr(dataset, "_target_keys", None)
    if keys is not None and not set(keys) <= _COLUMNS:
        return f"sources.Coco has only {', '.join(sorted(_COLUMNS))}"
    if list(plain.ids) != sorted(plain.coco.imgs):
        return "its ids were changed; use a torch.utils.data.Subset instead"
    steps = translate(step, frozenset({"boxes"}), is_joint=is_joint)
    has_masks = "masks" in (keys or ())
    path = written_annotations(plain.coco.dataset, has_masks=has_masks)
    source = sources.Coco(str(plain.root), path, masks=has_masks)
    more = ", masks=True" if has_masks else ""
    code = f"sources.Coco({_code.value(str(plain.root))}, annotations{more})"
    return native_dataset(
        dataset,
        source,
        Finding(name, code, "targets are the columns boxes, labels, ..."),
        steps,
        batch_type="dict",
        names={repr(source): (code, "annotations: path of the file, as in annFile")},
        variables={"annotations": path},
    )


def read_vision(dataset: Any) -> AdoptedDataset | str:
    """Reads other datasets of torchvision: its code reads, and infeed transforms."""
    if library_of(dataset) != "torchvision" or not hasattr(dataset, "transform"):
        return ""
    found = _plain(dataset)
    if isinstance(found, str):
        return found
    plain, step, is_joint = found
    first = plain[0] if len(plain) else ()
    if not isinstance(first, tuple) or len(first) != 2 or not is_picture(first[0]):
        return ""
    is_mask = is_picture(first[1])
    if not is_mask and not isinstance(first[1], int):
        return ""
    modes: dict[str, Any] = {"L": {"image": "gray"}, "RGB": {}}
    if first[0].mode not in modes:
        return f"its images have the mode {first[0].mode}"
    moved = frozenset({"mask"} if is_mask else ())
    steps = translate(step, moved, is_joint=is_joint and is_mask)
    source = sources.Items(plain)
    code = "sources.Items(dataset)"
    reason = "its own code reads each sample, and infeed transforms it"
    name = type(dataset).__name__.removeprefix("Wrapped")
    names = {repr(source): (code, f"dataset: the {name}, without transforms")}
    mode = modes[first[0].mode]
    finding = Finding(name, code, reason)
    variables = {"dataset": plain}
    return native_dataset(
        dataset, source, finding, steps, names=names, variables=variables, **mode
    )


def _plain(dataset: Any) -> tuple[Any, Any, bool] | str:
    """Returns a dataset of torchvision without transforms, and its transform.

    The last value is whether the transform receives image and target. A text is the
    reason why the transform cannot be taken off.
    """
    if type(dataset).__name__.startswith("Wrapped") and hasattr(dataset, "_dataset"):
        # `wrap_dataset_for_transforms_v2` took the transforms off already.
        transforms, transform = dataset.transforms, dataset.transform
        if getattr(dataset, "target_transform", None) is not None:
            return "it has a target_transform"
        is_joint = transform is None
        return dataset._dataset, transforms if is_joint else transform, is_joint
    if getattr(dataset, "target_transform", None) is not None:
        return "it has a target_transform"
    transform = getattr(dataset, "transform", None)
    joint = getattr(dataset, "transforms", None)
    if joint is not None and type(joint).__name__ != "StandardTransform":
        return (
            "its transforms receive image and target; wrap it with "
            "wrap_dataset_for_transforms_v2"
        )
    plain = copy.copy(dataset)
    plain.transform = plain.transforms = None
    return plain, transform, False
