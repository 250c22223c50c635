"""The samples of torchvision's detectors: an image of any size, and a dictionary."""

import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from infeed.adopting.adopted_dataset import AdoptedDataset
from infeed.adopting.record_draws import RecordDraws
from infeed.pipeline import Pipeline
from infeed.trainers.loader import FirstEpoch, UnknownSamplesError, print_line
from infeed.trainers.torch_samples import TITLE, DatasetSamples, record_rows

# Entries of a target that infeed makes.
_ENTRIES = ("boxes", "image_id", "labels", "masks")


@dataclass
class DetectionSamples(DatasetSamples):
    """The samples of a wrapped `CocoDetection`.

    Attributes:
        has_boxes: Whether each sample's image has annotations. A target without has
            only the number of the image.
    """

    has_boxes: npt.NDArray[np.bool_] | None = None

    def pipeline(self, size: int) -> Pipeline:
        """Returns the pipeline for single images, which are not padded."""
        return self.records.batch(1, pad=True)

    def group(
        self, batches: Iterable[Mapping[str, Any]], size: int
    ) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yields the images of each batch of this size."""
        images = iter(batches)
        while found := [*itertools.islice(images, size)]:
            yield found

    def convert(
        self,
        batches: Sequence[Mapping[str, Any]],
        numbers: npt.NDArray[np.int64],
        collate: Any,
    ) -> Any:
        """Returns a batch of samples as the loader's ``collate_fn`` makes it."""
        return collate([*map(self.sample, batches, numbers.tolist())])

    def sample(self, batch: Mapping[str, Any], number: int) -> tuple[Any, Any]:
        """Returns the only row of a batch as the dataset's sample with this number."""
        image, target = self.example
        pixels = batch["image"][0].as_subclass(type(image))
        numbered = {"image_id": int(batch["image_id"][0])}
        if self.has_boxes is not None and not self.has_boxes[number]:
            return pixels, numbered
        boxes = torch.as_tensor(batch["boxes"][0]).reshape(-1, 4)
        if type(target["boxes"]) is not torch.Tensor:
            kind, box_format = type(target["boxes"]), target["boxes"].format
            boxes = kind(boxes, format=box_format, canvas_size=tuple(pixels.shape[-2:]))
        labels = torch.as_tensor(batch["labels"][0])
        found = {"boxes": boxes, "labels": labels, **numbered}
        if "masks" in target:
            masks = torch.as_tensor(batch["masks"][0])
            found["masks"] = masks.as_subclass(type(target["masks"]))
        return pixels, {name: found[name] for name in target}


def is_detection(dataset: Any, read: AdoptedDataset) -> bool:
    """Whether samples are an image and a target, which is a dictionary."""
    return read.batch_type == "dict" and hasattr(_inner(dataset), "_target_keys")


def describe_detection(dataset: Any, read: AdoptedDataset) -> DetectionSamples:
    """Returns the samples of a wrapped `CocoDetection`, after a comparison of types.

    Args:
        dataset: The dataset, or a `Subset` of it.
        read: Its pipeline.

    Raises:
        UnknownSamplesError: infeed does not make all entries of a target.
    """
    rows = record_rows(read)
    coco = read.dataset
    annotated = [bool(coco.coco.imgToAnns.get(number)) for number in coco.ids]
    has_boxes = np.array(annotated, bool)[rows]
    if not has_boxes.any():
        raise UnknownSamplesError("its images have no boxes")
    first = int(np.argmax(has_boxes))
    image, target = dataset[first]
    if not isinstance(image, torch.Tensor):
        raise UnknownSamplesError("its images are no tensors")
    if unknown := [name for name in target if name not in _ENTRIES]:
        raise UnknownSamplesError(f"its targets have {', '.join(unknown)}")
    samples = DetectionSamples(
        weakref.ref(dataset),
        # The draws of transforms belong to a seed, and to the number of the epoch.
        read.records.shuffle(seed=0),
        rows,
        (image, target),
        has_pictures=False,
        columns=(),
        checks=read.checks,
        first_epoch=FirstEpoch(TITLE, None, print_line),
        has_boxes=has_boxes,
    )
    with RecordDraws(read.records, len(coco), [int(rows[first])]) as draws:
        (found,) = draws.of(0)
    names = ("boxes", "labels")
    lists = {name: (torch.as_tensor(found[name]),) for name in names}
    whole = {"image", "image_id", "masks"} & found.keys()
    row = {name: torch.as_tensor(found[name])[None] for name in whole}
    ours = samples.sample(row | lists, first)
    if (theirs := _types((image, target))) != _types(ours):
        raise UnknownSamplesError(
            f"a sample is {theirs}, and from infeed {_types(ours)}"
        )
    return samples


def _types(sample: tuple[Any, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the types of an image and of the entries of its target."""
    image, target = sample
    return {
        name: f"{type(part).__name__} {getattr(part, 'dtype', '')}".strip()
        for name, part in {"image": image, **target}.items()
    }


def _inner(dataset: Any) -> Any:
    """Returns the dataset of which others select samples."""
    while type(dataset).__name__ == "Subset":
        dataset = dataset.dataset
    return dataset
