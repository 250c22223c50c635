"""Images of coloured rectangles with boxes, and helpers of tests of boxes."""

import io
import itertools

import numpy as np
from PIL import Image

from infeed import transforms as T

HEIGHT, WIDTH = 40, 60

# Colours by label, far apart in every channel combination.
COLOURS = np.array(
    [(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255)],
    np.uint8,
)


class Scenes:
    """Images of coloured rectangles that do not overlap, with boxes and labels."""

    def __init__(self, count, seed=0, encode=None, format="xyxy", normalized=False):
        self.rng = np.random.default_rng(seed)
        self.encode, self.format, self.normalized = encode, format, normalized
        self.made = [self.scene(index) for index in range(count)]

    def scene(self, index):
        image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        boxes, labels = [], []
        # Each box has a cell of this grid; some records have no box.
        cells = self.rng.permutation(6)[: index % 6]
        for label, cell in enumerate(cells, start=1):
            top, left = divmod(int(cell), 3)
            top, left = top * 20, left * 20
            y1, x1 = np.add(self.rng.integers(0, 8, 2), (top, left))
            y2, x2 = np.add(self.rng.integers(12, 20, 2), (top, left))
            image[y1:y2, x1:x2] = COLOURS[label]
            boxes.append((x1, y1, x2, y2))
            labels.append(label)
        boxes = np.array(boxes, np.float32).reshape(-1, 4)
        return image, boxes, np.array(labels, np.int64)

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        image, boxes, labels = self.made[index]
        return {
            "image": image if self.encode is None else self.encode(image, index),
            "boxes": convert_boxes(
                boxes, self.format, self.normalized, (HEIGHT, WIDTH)
            ),
            "labels": labels,
        }


def convert_boxes(boxes, format="xyxy", normalized=False, size=(1, 1)):
    """Returns boxes of left, top, right and bottom in another format."""
    x1, y1, x2, y2 = np.asarray(boxes, np.float32).reshape(-1, 4).T
    columns = {
        "xyxy": (x1, y1, x2, y2),
        "xywh": (x1, y1, x2 - x1, y2 - y1),
        "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    }[format]
    height, width = size if normalized else (1, 1)
    return np.stack(columns, 1) / np.array([width, height, width, height], np.float32)


def rows(batch, name):
    """Returns the list of each row."""
    values, offsets = batch[name]
    return [values[a:b] for a, b in itertools.pairwise(offsets)]


def extent(image, label):
    """Returns left, top, right and bottom of the pixels of a colour, or None."""
    ys, xs = np.nonzero((image == COLOURS[label]).all(axis=-1))
    if len(ys) == 0:
        return None
    return np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])


def png(image, index):
    data = io.BytesIO()
    Image.fromarray(image).save(data, "png")
    return data.getvalue()


STEPS = (T.RandomCrop(24), T.RandomHorizontalFlip())
