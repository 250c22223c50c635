"""Transforms of geometry for detection. Boxes and masks move with their image."""

from dataclasses import dataclass

from infeed.transforms.base import Fill, Interpolation, Transform


@dataclass(frozen=True, repr=False)
class LongestMaxSize(Transform):
    """Resizes images so that the longer side has a given length, as albumentations.

    Pixels are those of ``Resize``.

    Args:
        max_size: Length of the longer side in pixels.
        interpolation: Filter for images.
        antialias: False: a pixel is made of the few source pixels next to its centre,
            as in ``Resize`` and OpenCV. Smaller images show aliasing.
        round_up: Whether the shorter side is rounded up, as in Ultralytics. False: to
            the nearest integer.
    """

    max_size: int
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    round_up: bool = False


@dataclass(frozen=True, repr=False)
class RandomShortestSize(Transform):
    """Resizes images so that the shorter side has a length drawn from a list.

    Args:
        min_size: Length of the shorter side in pixels, or a list of lengths.
        max_size: Limit of the longer side in pixels; the shorter side becomes shorter
            if needed.
        interpolation: Filter for images, antialiased.
    """

    min_size: int | tuple[int, ...]
    max_size: int | None = None
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class ScaleJitter(Transform):
    """Resizes images to a random multiple of the size at which they fit a target.

    Args:
        target_size: Width and height of the target in pixels. torchvision uses its
            numbers in this order.
        scale_range: Factor as (low, high).
        interpolation: Filter for images, antialiased.
    """

    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class RandomZoomOut(Transform):
    """Places images at a random position of a larger canvas.

    Args:
        fill: Value of the canvas for images: one number, or one per channel.
        side_range: Ratio of the canvas's sides to those of the image, as (low, high),
            at least 1.
        p: Probability, 0 to 1.
        mask_fill: Value of the canvas for masks.
    """

    fill: Fill = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5
    mask_fill: Fill = 0


@dataclass(frozen=True, repr=False)
class RandomIoUCrop(Transform):
    """Crops a random region around boxes, as for the training of SSD detectors.

    A box must overlap the region by a random minimum (intersection over union). Boxes
    whose centre is outside are dropped. Images without boxes stay as they are. Needs
    boxes that `Pipeline.boxes` or the source declares.

    Args:
        min_scale: Minimum share of the image's sides.
        max_scale: Maximum share of the image's sides.
        min_aspect_ratio: Minimum of width / height.
        max_aspect_ratio: Maximum of width / height.
        sampler_options: Minimum overlaps, of which one is drawn; from 1 on, the image
            stays as it is. None means (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1).
        trials: Number of regions that are tried before another minimum is drawn. After
            100 minimums the image stays as it is.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: tuple[float, ...] | None = None
    trials: int = 40


@dataclass(frozen=True, repr=False)
class CopyPaste(Transform):
    """Pastes objects of another image on the image, as torchvision's reference does.

    The other image is that of another position of the epoch, after the transforms
    before this one, and resized to the size of the image. Its objects are a random
    choice of the boxes that are left of it; their masks say which pixels are pasted.
    Boxes, masks and columns of these objects are added. Pasted pixels are removed from
    the masks below; a box whose object lost pixels becomes the box around the rest, and
    one without pixels is dropped. Other fields keep the values of the sample's own
    record. The position is a function of seed, epoch and position, as in `MixUp`.

    Needs one field of boxes with masks: `Pipeline.boxes` with ``masks``, or
    ``sources.Coco(..., masks=True)``.

    Args:
        p: Probability of pasting.
        blending: Whether the pixels up to two pixels around the objects are pasted too,
            as by torchvision's blur of the binary mask. The masks stay as they are.
        interpolation: Filter for the other image, antialiased.
    """

    p: float = 1.0
    blending: bool = True
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class ImageMixUp(Transform):
    """Blends the image with that of another position, as Ultralytics and YOLOX do.

    The sample has the boxes, points, masks and outlines of both images, those of its
    own image first. Other fields keep the values of the sample's own record. `MixUp`
    instead mixes finished samples and their class labels.

    The transforms before it apply to each image, as at its own position, also a
    `Mosaic`; those after it apply to the result. The other position is a function of
    seed, epoch and position, as in `MixUp`; after a `Mosaic`, it is in the window of
    that.

    Args:
        alpha: The share of the sample's own image in each pixel is from Beta(alpha,
            alpha), so 1/2 on average; from 0.001 to 1000. The default is that of
            YOLOv5 and Ultralytics: mostly between 0.4 and 0.6.
        p: Probability of two images. Otherwise the sample stays as it is.

    Shape:
        Both images need the same size: put a transform that gives one size before it.
    """

    alpha: float = 32.0
    p: float = 1.0


@dataclass(frozen=True, repr=False)
class MirroredPaste(Transform):
    """Pastes mirrored copies of objects on their own image, as Ultralytics does.

    A copy is at the mirrored place of its object, with the pixels of the mirrored image
    inside the outline of the object. Copies that cover little of any object are chosen;
    nothing is random. Boxes, outlines and columns of the copies are added after those
    of the objects of the same record. An image with more than 4096 objects gets no
    copies.

    Needs one field of boxes with outlines: `Pipeline.boxes` with ``outlines``. It comes
    after a `Mosaic` and before an `ImageMixUp`, if there are any.

    Args:
        share: Share of the fitting copies that are pasted, from 0 to 1, rounded to a
            whole number: those that cover least first.
        max_overlap: A copy fits if its box covers less than this share of the box of
            each object, above 0.
    """

    share: float = 0.5
    max_overlap: float = 0.3


@dataclass(frozen=True, repr=False)
class Mosaic(Transform):
    """Places four images around a random centre, as Ultralytics and YOLOX do.

    The image is above the centre and to the left of it; the others are the images of
    three of the positions before it. Each is resized to fit half of the result,
    touches the centre with a corner, and is cut off at the edges. Boxes of all four
    move with their images and are clipped; columns stay aligned. Other fields keep the
    values of the sample's own record. The positions are a function of seed, epoch and
    position, as in `MixUp`.

    The transforms before it apply to each image, as at its own position; those after
    it apply to the result. For training with images of 640, use ``Mosaic(1280)``, then
    `RandomAffine` and ``CenterCrop(640)``.

    Args:
        size: Height and width of the result in pixels; an integer means a square.
        center_range: Range of the centre, in shares of width and height.
        p: Probability of four images. Otherwise the image is alone in the middle, in
            the same size.
        interpolation: Filter for images.
        fill: Value of uncovered pixels of images: one number, or one per channel.
        mask_fill: Value of uncovered pixels of masks.
        window: Number of positions before that of the sample from which the other
            images are drawn, at least 1. The first samples of an epoch use the first
            positions instead. An image is decoded and resized once for all mosaics
            that show it, if memory allows. A larger window mixes more images, and its
            resized images need more memory. As many positions as the epoch has, or
            more: all positions before it.
        antialias: False: a pixel is made of the few source pixels next to its centre,
            as in ``Resize`` and OpenCV. Smaller images show aliasing.

    Shape:
        Images and masks have this size.
    """

    size: int | tuple[int, int]
    center_range: tuple[float, float] = (0.25, 0.75)
    p: float = 1.0
    interpolation: Interpolation = "bilinear"
    fill: Fill = 114
    mask_fill: Fill = 0
    window: int = 128
    antialias: bool = True
