"""Transforms of values: floats, classes of masks, and mixed samples."""

from dataclasses import dataclass
from numbers import Real
from typing import Literal

from infeed import _check
from infeed.transforms.base import Transform


@dataclass(frozen=True, repr=False)
class ToFloat(Transform):
    """Scales uint8 values to floats from 0 to 1.

    Args:
        field: Name of the field; None applies to every image.
    """

    field: str | None = None


@dataclass(frozen=True, repr=False)
class Normalize(Transform):
    """Subtracts a mean and divides by a standard deviation.

    For uint8 images this includes the division by 255. After ``ToFloat`` it does not.

    Args:
        mean: Mean by channel in units of 0 to 1; one number for a single channel.
        std: Standard deviation by channel in units of 0 to 1; as ``mean``.
        field: Name of the field; None applies to every image.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    field: str | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if isinstance(number := getattr(self, name), Real):
                object.__setattr__(self, name, (number,))
        super().__post_init__()
        if len(self.mean) != len(self.std):
            expected = f"as long as mean ({len(self.mean)})"
            raise _check.error(self, "std", expected, self.std)


@dataclass(frozen=True, repr=False)
class _MaskClasses(Transform):
    """Parameters that ``OneHot`` and ``ClassIndex`` share."""

    field: str = "mask"
    palette: str | None = None
    classes: int | None = None
    dtype: str = ""
    values: tuple[int, ...] | None = None
    unknown: Literal["error", "ignore"] = "error"
    ignore_index: int | None = None


@dataclass(frozen=True, repr=False)
class OneHot(_MaskClasses):
    """Converts the class of each mask pixel to one channel per class.

    Set exactly one of ``palette``, ``classes`` and ``values``. A mask that contains a
    pixel of no class is a bad record, unless ``unknown`` or ``ignore_index`` accepts
    the pixel. An accepted pixel is 0 in all channels, and
    ``loader.stats()["unknown_pixels"]`` counts it.

    Args:
        field: Name of the mask.
        palette: Path of a CSV file ``name,r,g,b`` with a header, for masks that store
            classes as colours.
        classes: Number of classes, for masks that store class indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the channels, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Stored value of pixels of no class. Only this value is accepted.

    Shape:
        ``[H, W, classes]``, or ``[classes, H, W]`` in layout CHW; values 0 and 1.
    """

    dtype: Literal["uint8", "float32", "float16", "bfloat16"] = "float32"


@dataclass(frozen=True, repr=False)
class ClassIndex(_MaskClasses):
    """Converts the colours or stored values of a mask to class indices.

    The result is much smaller than one-hot classes: 48 times smaller for 12 classes in
    float32.

    Set exactly one of ``palette``, ``classes`` and ``values``. A mask that contains a
    pixel of no class is a bad record, unless ``unknown`` or ``ignore_index`` accepts
    the pixel. An accepted pixel gets the index ``ignore_index``, and
    ``loader.stats()["unknown_pixels"]`` counts it.

    Args:
        field: Name of the mask.
        palette: Path of a CSV file ``name,r,g,b`` with a header, for masks that store
            classes as colours.
        classes: Number of classes, for masks that store class indices.
        dtype: Type of the result.
        values: Stored value of each class, in the order of the indices, such as
            ``(0, 255)`` for a binary mask.
        unknown: ``"ignore"`` accepts all pixels of no class.
        ignore_index: Index of accepted pixels of no class; None means 255. If set, it
            also accepts pixels that store this index. In a mask of colours, which
            stores no index, it accepts all colours that are not in the palette.

    Shape:
        ``[H, W]``.
    """

    dtype: Literal["uint8", "int64"] = "uint8"


@dataclass(frozen=True, repr=False)
class _BatchMixing(Transform):
    """Parameters that ``MixUp`` and ``CutMix`` share."""

    alpha: float = 1.0
    p: float = 1.0
    field: str | None = None
    classes: int | None = None


@dataclass(frozen=True, repr=False)
class MixUp(_BatchMixing):
    """Blends each sample with the sample of another position (Zhang et al., 2018).

    Every value becomes ``share * own + (1 - share) * partner`` in images, labels, and
    one-hot masks of a float type. The share is drawn from Beta(alpha, alpha). The
    partner's position is a function of seed, epoch and position. Each rank makes the
    partners that it needs, so a sample costs two decodes, and the batches do not depend
    on the number of ranks and workers. If shards are shuffled in windows, the partner
    is in the same window.

    MixUp must be the last transform, on samples of one size. If ``CutMix`` is there
    too, each sample gets at most one of both, each with its own ``p``. The sum of both
    probabilities may be up to 1.

    Args:
        alpha: Both parameters of the beta distribution. A smaller value gives shares
            closer to 0 or 1.
        p: Probability, 0 to 1.
        field: Name of the labels (class numbers or float32); None means ``label``, if
            that field exists.
        classes: Number of classes; None means the number of class names of the source.

    Shape:
        Labels ``[classes]``, float32, sum 1. Other fields keep their shape.
    """


@dataclass(frozen=True, repr=False)
class CutMix(_BatchMixing):
    """Copies a rectangle of another position's sample into each sample.

    The rectangle's sides are ``sqrt(1 - share)`` of the image's, with the share drawn
    from Beta(alpha, alpha). Its centre is uniform over the image, and the image's edges
    cut it off. Labels are mixed by the area of the rectangle inside the image. Masks
    are cut together with their image, and so are class numbers. See Yun et al., 2019.

    The partner, the order of transforms and ``p`` are as in ``MixUp``.

    Args:
        alpha: Both parameters of the beta distribution; 1 is uniform.
        p: Probability, 0 to 1.
        field: Name of the labels (class numbers or float32); None means ``label``, if
            that field exists.
        classes: Number of classes; None means the number of class names of the source.

    Shape:
        Labels ``[classes]``, float32, sum 1. Other fields keep their shape.
    """
