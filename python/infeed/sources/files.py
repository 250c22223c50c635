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
            with the columns ``path,label``, whose rows are the records. Its paths are
            relative to ``path`` and may not leave it, unless ``path`` is ``"/"``.
        follow_links: Whether symbolic links that lead outside ``path`` are followed.
            A link to a folder that contains it is never entered.

    Raises:
        ConfigError: When opened: there are no images, or a class has none, or the CSV
            names a file outside ``path``.
        OpenError: When opened: the folder cannot be listed.
    """

    path: str
    labels: str = "auto"
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _check.path(self, "path", self.path))
        object.__setattr__(self, "labels", _check.path(self, "labels", self.labels))
        _check.flag(self, "follow_links", self.follow_links)


@dataclass(frozen=True, repr=False)
class Pairs(Source):
    """Images and masks in two folders, paired by equal name without extension.

    Fields are ``image`` and ``mask``.

    Args:
        image: The folder of images.
        mask: The folder of masks.
        follow_links: As for `Folder`.

    Raises:
        ConfigError: When opened: a file has no partner; the message names it.
        OpenError: When opened: a folder cannot be listed.
    """

    image: str
    mask: str
    follow_links: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", _check.path(self, "image", self.image))
        object.__setattr__(self, "mask", _check.path(self, "mask", self.mask))
        _check.flag(self, "follow_links", self.follow_links)

    def __repr__(self) -> str:
        image, mask = _code.value(self.image), _code.value(self.mask)
        links = "" if self.follow_links else ", follow_links=False"
        return f"sources.Pairs(image={image}, mask={mask}{links})"
