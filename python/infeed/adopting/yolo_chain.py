"""The augmentation of Ultralytics as transforms of infeed."""

from collections.abc import Callable, Sequence
from typing import Any

from infeed import transforms as T
from infeed.adopting.image_processors import UnknownStepError
from infeed.adopting.steps import Finding
from infeed.transforms import Transform

# Value of the pixels that no image covers.
_FILL = 114
# Positions from which the other images of a mosaic come, at least. Ultralytics keeps
# eight batches of images.
_WINDOW = 128


def read_chain(dataset: Any) -> tuple[list[Transform], list[Finding]]:
    """Returns the transforms of a `YOLODataset`, and what each step became.

    Raises:
        UnknownStepError: A step is not known, or comes at another place.
    """
    steps = flat_steps(dataset.transforms)
    chain = [step for step in steps if not _is_off(step, dataset)]
    native, findings = list[Transform](), list[Finding]()
    for step in _parts(chain, dataset):
        name, became = step(dataset)
        native += became
        made = ", ".join(map(repr, became)) or "arrays of images and objects"
        findings.append(Finding(name, made))
    return native, findings


def flip_pairs(dataset: Any) -> tuple[tuple[int, int], ...]:
    """Returns the keypoints that a flip exchanges.

    Raises:
        UnknownStepError: Its flips do more than exchange pairs.
    """
    indices = list(dataset.data.get("flip_idx") or ())
    if any(
        not 0 <= at < len(indices) or indices[at] != n for n, at in enumerate(indices)
    ):
        raise UnknownStepError(f"flip_idx={indices}: it is no exchange of pairs")
    return tuple((n, at) for n, at in enumerate(indices) if n < at)


def map_stride(dataset: Any) -> int | None:
    """Returns the pixels per pixel of a mask; None without masks.

    Raises:
        UnknownStepError: A batch has a mask for each object, or masks whose pixels
            are no whole number of pixels.
    """
    if not dataset.use_segments:
        return None
    formats = [
        step
        for step in flat_steps(dataset.transforms)
        if type(step).__name__ == "Format"
    ]
    if not _value(formats[-1], "mask_overlap"):
        raise UnknownStepError("overlap_mask=False: a mask for each object")
    stride = int(_value(formats[-1], "mask_ratio"))
    shapes = dataset.batch_shapes if dataset.rect else [[dataset.imgsz] * 2]
    for height, width in shapes:
        if stride < 1 or height % stride or width % stride:
            raise UnknownStepError(
                f"mask_ratio={stride}: it does not divide images of {height} x {width}"
            )
    return stride


def flat_steps(step: Any) -> list[Any]:
    """Returns the steps of a chain, also of nested ones."""
    if type(step).__name__ == "Compose":
        return [part for one in step.transforms for part in flat_steps(one)]
    return [step]


def _is_off(step: Any, dataset: Any) -> bool:
    """Whether a step never changes a sample."""
    name = type(step).__name__
    if name == "Albumentations":
        return getattr(step, "transform", None) is None
    if name == "CopyPaste" and not any(
        len(label.get("segments", ())) for label in dataset.labels
    ):
        return True
    if name in ("MixUp", "CutMix", "CopyPaste", "RandomFlip", "Mosaic"):
        return not _value(step, "p")
    if name == "RandomHSV":
        return not any(_value(step, gain) for gain in ("hgain", "sgain", "vgain"))
    return False


def _value(step: Any, name: str) -> Any:
    """Returns a parameter of a step."""
    if not hasattr(step, name):
        kind = type(step).__name__
        raise UnknownStepError(
            f"{kind} of this version of Ultralytics has no {name}; install a version "
            "that infeed knows"
        )
    return getattr(step, name)


# A part of the chain: its name, and the transforms for it.
_Part = Callable[[Any], tuple[str, list[Transform]]]


def _parts(chain: Sequence[Any], dataset: Any) -> list[_Part]:
    """Returns the parts of a chain in their order, each as a function of the dataset.

    Raises:
        UnknownStepError: A step is not known, or comes at another place.
    """
    names = [type(step).__name__ for step in chain]
    translators = {
        "LetterBox": _letterbox,
        "Mosaic": _mosaic,
        "CopyPaste": _copy_paste,
        "RandomPerspective": _perspective,
        "MixUp": _mixup,
        "RandomHSV": _hsv,
        "RandomFlip": _flip,
        "Format": _format,
    }
    expected = list(translators)
    for name, step in zip(names, chain, strict=True):
        if name not in expected:
            raise UnknownStepError(f"{name}: {_setting(step)}")
    order = [expected.index(name) for name in names]
    is_known = "RandomPerspective" in names or names == ["LetterBox", "Format"]
    if order != sorted(order) or not is_known:
        raise UnknownStepError(f"its steps have another order: {', '.join(names)}")
    parts: list[_Part] = []
    if names[0] not in ("Mosaic", "LetterBox"):
        parts.append(_fit)
    for name, step in zip(names, chain, strict=True):
        parts.append(_bind(translators[name], step))
    return parts


def _bind(
    translator: Callable[[Any, Any], tuple[str, list[Transform]]], step: Any
) -> _Part:
    return lambda dataset: translator(step, dataset)


def _setting(step: Any) -> str:
    """Returns the argument of the trainer that turns a step on."""
    arguments = {
        "CutMix": "cutmix",
    }
    name = type(step).__name__
    if name in arguments:
        return f"{arguments[name]}={step.p}"
    if name == "Albumentations":
        return "the package albumentations is installed, or augmentations= is set"
    return "infeed does not have it"


def _fit(dataset: Any) -> tuple[str, list[Transform]]:
    """The image in the middle of a square, or of the shape of its batch."""
    size = dataset.imgsz
    fit = T.LongestMaxSize(size, antialias=False, round_up=True)
    if dataset.rect:
        return "imgsz, rect", [fit, T.CropOrPadTo("canvas", fill=_FILL)]
    return "imgsz", [fit, T.CropOrPad(size, size, fill=_FILL)]


def _letterbox(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    settings: dict[str, Any] = {"auto": False, "scale_fill": False, "center": True}
    settings |= {"padding_value": _FILL, "new_shape": dataset.imgsz}
    for name, expected in settings.items():
        if _value(step, name) != expected:
            raise UnknownStepError(f"LetterBox: {name}={_value(step, name)}")
    return "LetterBox", _fit(dataset)[1]


def _mosaic(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    if _value(step, "n") != 4:
        raise UnknownStepError(f"Mosaic: {step.n} images")
    window = max(_WINDOW, int(getattr(dataset, "max_buffer_length", 0)))
    if getattr(dataset, "cache", None) == "ram":
        window = len(dataset)
    mosaic = T.Mosaic(
        2 * _value(step, "imgsz"),
        p=float(_value(step, "p")),
        window=window,
        antialias=False,
    )
    return "Mosaic", [mosaic]


def _has_mosaic(dataset: Any) -> bool:
    """Whether some images of a dataset are mosaics."""
    return any(
        type(step).__name__ == "Mosaic" and _value(step, "p")
        for step in flat_steps(dataset.transforms)
    )


def _copy_paste(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    if _value(step, "mode") != "flip":
        raise UnknownStepError(f"CopyPaste: copy_paste_mode={step.mode}")
    return "CopyPaste", [T.MirroredPaste(float(_value(step, "p")))]


def _perspective(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    size = dataset.imgsz
    if _value(step, "size") != (size, size):
        raise UnknownStepError(f"RandomPerspective: size={step.size}")
    is_mosaic = _has_mosaic(dataset)
    scale = _value(step, "scale")
    if not isinstance(scale, tuple | list):
        # A factor of zero leaves no pixel.
        scale = max(1 - scale, 1e-3), 1 + scale
    # A share of the size of the result; a mosaic has twice its sides.
    share = float(_value(step, "translate")) / (2 if is_mosaic else 1)
    shear = float(_value(step, "shear"))
    affine = T.RandomAffine(
        float(_value(step, "degrees")),
        translate=(share, share),
        scale=(float(scale[0]), float(scale[1])),
        shear=(-shear, shear, -shear, shear) if shear else None,
        interpolation="bilinear",
        fill=_FILL,
        perspective=float(_value(step, "perspective")) or None,
    )
    return "RandomPerspective", [affine, *([T.CenterCrop(size)] if is_mosaic else [])]


def _mixup(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    # The share is from Beta(32, 32), without an argument.
    return "MixUp", [T.ImageMixUp(p=float(_value(step, "p")))]


def _hsv(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    gains = [float(_value(step, name)) for name in ("hgain", "sgain", "vgain")]
    return "RandomHSV", [T.RandomHSV(*gains)]


def _flip(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    direction, p = _value(step, "direction"), float(_value(step, "p"))
    kind = {"horizontal": T.RandomHorizontalFlip, "vertical": T.RandomVerticalFlip}
    if direction not in kind:
        raise UnknownStepError(f"RandomFlip: direction={direction}")
    return "RandomFlip", [kind[direction](p)]


def _format(step: Any, dataset: Any) -> tuple[str, list[Transform]]:
    if _value(step, "bgr"):
        raise UnknownStepError(f"Format: bgr={step.bgr}")
    if (_value(step, "bbox_format"), _value(step, "normalize")) != ("xywh", True):
        raise UnknownStepError("Format: boxes are not shares of the image")
    return "Format", []
