"""Images in folders."""

from dataclasses import dataclass

from infeed import _check, _code
from infeed.sources.base import Source


@dataclass(frozen=True, repr=False)
class Folder(Source):
    """Image files below a folder, with labels if there are any.

    Fields are ``image`` and, with labels, ``label``: an int64 scalar.

    Args:
        path: The folder.
        labels: ``"auto"``: the class is the folder directly below ``path``, numbered in
            sorted order as torchvision's ``ImageFolder`` does; without such folders
            there are no labels. ``"none"``: no labels. Else the path of a CSV file
            with the columns ``path,label``, whose rows are the records.

    Raises:
        ConfigError: When opened: there are no images, or a class has none.
        OpenError: When opened: the folder cannot be listed.
    """

    path: str
    labels: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _check.path(self, "path", self.path))
        object.__setattr__(self, "labels", _check.path(self, "labels", self.labels))


@dataclass(frozen=True, repr=False)
class Pairs(Source):
    """Images and masks in two folders, paired by equal name without extension.

    Fields are ``image`` and ``mask``.

    Args:
        image: The folder of images.
        mask: The folder of masks.

    Raises:
        ConfigError: When opened: a file has no partner; the message names it.
        OpenError: When opened: a folder cannot be listed.
    """

    image: str
    mask: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", _check.path(self, "image", self.image))
        object.__setattr__(self, "mask", _check.path(self, "mask", self.mask))

    def __repr__(self) -> str:
        image, mask = _code.value(self.image), _code.value(self.mask)
        return f"sources.Pairs(image={image}, mask={mask})"
