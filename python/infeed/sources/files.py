"""Images in folders."""

from dataclasses import dataclass, fields
from os import PathLike

from infeed import _check, _code
from infeed.sources.base import Source


@dataclass(frozen=True, repr=False)
class Folder(Source):
    """Image files below a folder, with labels if there are any.

    The fields are ``image`` and, with labels, ``label``: an int64 scalar.

    Args:
        path: Path of the folder.
        labels: ``"auto"``: the class of an image is the folder directly below ``path``,
            numbered in sorted order as in torchvision's ``ImageFolder``; without such
            folders there are no labels. ``"none"``: no labels. Other values: path of a
            CSV file with the columns ``path,label``, whose rows are the records. Its
            paths are relative to ``path`` and must stay below it, unless ``path`` is
            ``"/"``.
        classes: Names of the classes in the order of their numbers: a tuple, the path
            of a text file with a name in each line, or a folder whose folders are the
            classes. With the training folder, a validation folder that lacks a class
            keeps the numbers. None means the sorted names.
        allow_empty: Whether a class folder may have no images, as in torchvision.
            Always allowed with ``classes``.
        follow_links: Whether to follow symbolic links below ``path``. If not, linked
            files and folders are left out, and a linked file in the CSV file is a bad
            record. A link to a folder that contains the link is never followed.

    Raises:
        ConfigError: Raised when the pipeline is opened: there are no images, a class
            has no images, a label is not in ``classes``, or the CSV file names a file
            outside ``path``.
        OpenError: Raised when the pipeline is opened: the folder cannot be listed.
    """

    path: str
    labels: str = "auto"
    classes: str | tuple[str, ...] | None = None
    allow_empty: bool = False
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _check.path(self, "path", self.path))
        object.__setattr__(self, "labels", _check.path(self, "labels", self.labels))
        if isinstance(self.classes, str | PathLike):
            classes = _check.path(self, "classes", self.classes)
            object.__setattr__(self, "classes", classes)
        elif self.classes is not None:
            names = _check.convert(self, "classes", self.classes, tuple[str, ...])
            object.__setattr__(self, "classes", names)
        _check.flag(self, "allow_empty", self.allow_empty)
        _check.flag(self, "follow_links", self.follow_links)


@dataclass(frozen=True, repr=False)
class Pairs(Source):
    """Images and masks in two folders, paired by equal name without extension.

    The fields are ``image`` and ``mask``.

    Args:
        image: Folder of the images.
        mask: Folder of the masks.
        image_suffix: End of the names of images that is not part of the name of a pair,
            such as ``"_leftImg8bit"``. Images without the end are excluded.
        mask_suffix: The same for masks, such as ``"_mask"``.
        follow_links: As in `Folder`.

    Raises:
        ConfigError: Raised when the pipeline is opened: a file has no partner; the
            message names it, and the suffixes with which all files pair.
        OpenError: Raised when the pipeline is opened: a folder cannot be listed.
    """

    image: str
    mask: str
    image_suffix: str = ""
    mask_suffix: str = ""
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", _check.path(self, "image", self.image))
        object.__setattr__(self, "mask", _check.path(self, "mask", self.mask))
        for name in ("image_suffix", "mask_suffix"):
            if not isinstance(suffix := getattr(self, name), str):
                raise _check.error(self, name, "a text", suffix)
        _check.flag(self, "follow_links", self.follow_links)

    def __repr__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)}
        values = {name: getattr(self, name) for name in defaults}
        parts = [
            f"{name}={_code.value(value)}"
            for name, value in values.items()
            if value != defaults[name]
        ]
        return f"sources.Pairs({', '.join(parts)})"
