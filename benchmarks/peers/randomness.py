"""Random resized crops, as torchvision draws them, for peers without them."""

import math
import random

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


def random_window(height: int, width: int) -> tuple[int, int, int, int]:
    """Returns top, left, height and width of a crop of an image of this size, in
    pixels.
    """
    for _ in range(10):
        area = height * width * random.uniform(*AREA)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    # No window fitted: the largest centred window of an allowed shape.
    h = min(height, round(width / RATIO[0]))
    w = min(width, round(height * RATIO[1]))
    return (height - h) // 2, (width - w) // 2, h, w
