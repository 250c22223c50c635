"""A small detector in plain PyTorch: one prediction per cell of 8 pixels.

It follows FCOS (Tian et al., 2019) on one level: a cell near the middle of an object
predicts its class and the distances to the four sides of its box.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

# Boxes [n, 4] as left, top, right and bottom in pixels, and labels from 1, by image.
Targets = Sequence[tuple[torch.Tensor, torch.Tensor]]

CELL = 8
# Detections of an image that are kept, and the lowest score of one.
MOST, LOWEST = 20, 0.05
# Half the side of the region in which cells predict an object, as share of its side.
MIDDLE = 0.25


class Detector(nn.Module):
    """Six convolutions, and one that predicts classes and boxes.

    Args:
        classes: Number of classes without the background.
        convolution: Returns a convolution for inputs, outputs, stride and dilation.
    """

    def __init__(self, classes: int, convolution: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.classes = classes
        self.body = nn.Sequential(
            convolution(3, 16, 2),
            convolution(16, 32, 2),
            convolution(32, 64, 2),
            convolution(64, 64),
            convolution(64, 64, gap=2),
            convolution(64, 64, gap=2),
        )
        self.head = nn.Conv2d(64, classes + 4, 1)
        # Most cells have no object.
        nn.init.constant_(self.head.bias[:classes], -4.0)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns logits [n, cells, classes] and boxes [n, cells, 4] in pixels."""
        found = self.head(self.body(images))
        cells = middles(found.shape[-2], found.shape[-1])
        found = found.flatten(2).transpose(1, 2)
        sides = CELL * found[..., self.classes :].clamp(max=4).exp()
        boxes = torch.cat([cells - sides[..., :2], cells + sides[..., 2:]], dim=-1)
        return found[..., : self.classes], boxes


def middles(height: int, width: int) -> torch.Tensor:
    """Returns x and y of the middle of each cell, in pixels: [cells, 2]."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (torch.stack([x, y], dim=-1).reshape(-1, 2) + 0.5) * CELL


def loss(model: nn.Module, images: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Returns the focal loss of classes, and the loss of generalized IoU of boxes."""
    logits, boxes = model(images)
    cells = middles(images.shape[-2] // CELL, images.shape[-1] // CELL)
    wanted = torch.zeros_like(logits)
    expected = torch.zeros_like(boxes)
    has_object = torch.zeros(logits.shape[:2], dtype=torch.bool)
    for number, (given, labels) in enumerate(targets):
        if not len(given):
            continue
        object_of = assign_boxes(cells, given)
        has_object[number] = object_of >= 0
        at = has_object[number].nonzero().flatten()
        wanted[number, at, labels[object_of[at]] - 1] = 1.0
        expected[number, at] = given[object_of[at]].float()
    count = max(int(has_object.sum()), 1)
    right = torch.where(wanted > 0, logits.sigmoid(), 1 - logits.sigmoid())
    cross = nn.functional.binary_cross_entropy_with_logits(
        logits, wanted, reduction="none"
    )
    classes = (cross * (1 - right) ** 2).sum() / count
    sides = 1 - generalized_iou(boxes[has_object], expected[has_object])
    return classes + sides.sum() / count


def assign_boxes(cells: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Returns the smallest box whose middle each cell is in; -1: none."""
    size = boxes[:, 2:] - boxes[:, :2]
    middle = (boxes[:, 2:] + boxes[:, :2]) / 2
    # The middle of a small box contains at least one cell.
    reach = (size * MIDDLE).clamp(min=CELL / 2)
    is_near = ((cells[:, None] - middle).abs() <= reach).all(dim=-1)
    areas = size.prod(dim=-1).expand(len(cells), -1)
    area, found = torch.where(is_near, areas, float("inf")).min(dim=1)
    return torch.where(area.isfinite(), found, -1)


def generalized_iou(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns the IoU of pairs of boxes, less the share of their gap."""
    both, union = areas_of(one, other)
    low = torch.minimum(one[:, :2], other[:, :2])
    high = torch.maximum(one[:, 2:], other[:, 2:])
    hull = (high - low).prod(dim=-1).clamp(min=1e-6)
    return both / union - (hull - union) / hull


def areas_of(
    one: torch.Tensor, other: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the areas of intersection and union, for pairs or by broadcasting."""
    low = torch.maximum(one[..., :2], other[..., :2])
    high = torch.minimum(one[..., 2:], other[..., 2:])
    both = (high - low).clamp(min=0).prod(dim=-1)
    area = (one[..., 2:] - one[..., :2]).prod(dim=-1)
    area = area + (other[..., 2:] - other[..., :2]).prod(dim=-1)
    return both, (area - both).clamp(min=1e-6)


def detect(
    logits: torch.Tensor, boxes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns scores, labels and boxes of an image, best first, without doubles."""
    scores, labels = logits.sigmoid().max(dim=-1)
    order = scores.argsort(descending=True)
    kept: list[int] = []
    for at in order.tolist():
        if scores[at] < LOWEST or len(kept) == MOST:
            break
        others = [n for n in kept if labels[n] == labels[at]]
        both, union = areas_of(boxes[at], boxes[others])
        if not bool((both / union > 0.5).any()):
            kept.append(at)
    return scores[kept], labels[kept] + 1, boxes[kept]


def mean_average_precision(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, Targets]],
    classes: int,
) -> float:
    """Returns the mean over classes of the average precision at an IoU of 0.5."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(classes)]
    objects = [0] * classes
    for images, targets in batches:
        for logits, boxes, (given, labels) in zip(*model(images), targets, strict=True):
            for label in labels.tolist():
                objects[label - 1] += 1
            matched: set[int] = set()
            scores, kinds, places = detect(logits, boxes)
            for score, kind, place in zip(scores, kinds, places, strict=True):
                both, union = areas_of(place, given.float())
                fit = torch.where(labels == kind, both / union, 0.0)
                at = int(fit.argmax()) if len(fit) else -1
                is_right = at >= 0 and float(fit[at]) >= 0.5 and at not in matched
                matched |= {at} if is_right else set()
                found[int(kind) - 1].append((float(score), is_right))
    each = [average_precision(*pair) for pair in zip(found, objects, strict=True)]
    return sum(each) / classes


def average_precision(found: list[tuple[float, bool]], objects: int) -> float:
    """Returns the area below the precision as a function of the recall.

    Args:
        found: Score of each detection, and whether it is right.
        objects: Number of objects.
    """
    if not found or not objects:
        return 0.0
    ranked = sorted(found, key=lambda pair: -pair[0])
    right = torch.tensor([is_right for _, is_right in ranked]).float()
    precision = right.cumsum(0) / torch.arange(1, len(right) + 1)
    # The highest precision at this recall or a higher one.
    best = precision.flip(0).cummax(0).values.flip(0)
    return float((best * right).sum() / objects)
