"""Checks the first batch of a loader, after the clock has stopped."""

import numpy as np

from workloads import CROP, SIDE, Data, Workload, normalize, one_hot

# Maximum number of pairs that are all compared with a shuffled batch.
MANY = 64


class WrongBatch(Exception):
    """A loader delivered the wrong batch, however fast."""


def check(work: Workload, data: Data, x: np.ndarray, y: np.ndarray) -> dict:
    """Checks a batch against the workload's description.

    Args:
        work: The workload of the batch.
        data: The workload's data.
        x: The images of the batch.
        y: The masks or labels of the batch.

    Returns:
        The findings for the result file: shape, dtype, mean, kind of comparison.

    Raises:
        WrongBatch: Shape, dtype, range or content differ from the workload's.
    """
    compared = CHECKS[work.data](work, data, x, y)
    return {
        "shape": [list(x.shape), list(y.shape)],
        "dtype": [str(x.dtype), str(y.dtype)],
        "mean": round(float(x.mean(dtype=np.float64)), 4),
        "compared": compared,
    }


def segmentation(work: Workload, data: Data, x: np.ndarray, y: np.ndarray) -> str:
    if work.name == "whole-png":
        expect("dtype of the images", str(x.dtype), "uint8")
        expect("images in the batch", len(x), work.batch)
        return "shape and dtype"
    classes = len(data.colours())
    expect("images", (x.shape, str(x.dtype)), ((work.batch, CROP, CROP, 3), "float32"))
    expect(
        "masks", (y.shape, str(y.dtype)), ((work.batch, CROP, CROP, classes), "float32")
    )
    within("images", x, 0, 1)
    if not set(np.unique(y)) <= {0, 1}:
        raise WrongBatch("masks hold values other than 0 and 1")
    if float(y.sum(-1).max()) > 1:
        raise WrongBatch("a pixel of a mask is of two classes")
    if work.shuffled and len(data.pairs()) > MANY:
        return "shape, dtype, range, one class a pixel"
    references = [
        reference(p, data)
        for p in data.pairs()[: MANY if work.shuffled else work.batch]
    ]
    for n in range(work.batch):
        # A shuffled batch may contain any pair; the nearest image identifies it.
        candidates = references if work.shuffled else [references[n]]
        image, mask = min(candidates, key=lambda pair: distance(x[n], pair[0]))
        if (far := distance(x[n], image)) > 1e-6:
            raise WrongBatch(f"image {n} differs from Pillow's by {far:.2g}")
        if not np.array_equal(y[n], mask):
            raise WrongBatch(f"mask {n} differs from the palette's one-hot")
    return "equal to Pillow and NumPy"


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def reference(pair: tuple[str, str], data: Data) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    image, mask = (np.asarray(Image.open(p).convert("RGB"))[:CROP, :CROP] for p in pair)
    return np.float32(image) / np.float32(255), one_hot(mask, data.colours())


def classification(work: Workload, data: Data, x: np.ndarray, y: np.ndarray) -> str:
    shapes = {(work.batch, SIDE, SIDE, 3), (work.batch, 3, SIDE, SIDE)}
    dtype = "uint8" if "uint8" in work.name else "float32"
    if x.shape not in shapes or str(x.dtype) != dtype:
        raise WrongBatch(f"images are {x.dtype} {x.shape}")
    expect("labels", y.shape[0], work.batch)
    if dtype == "uint8":
        x = normalize(x)
    within("images", x, -2.2, 2.7)
    # Photographs normalized with ImageNet's constants have a mean near 0 and a
    # deviation near 1.
    if abs(float(x.mean())) > 0.6 or not 0.7 < float(x.std()) < 1.5:
        raise WrongBatch(
            f"mean {x.mean():.2f} and deviation {x.std():.2f} are no photographs'"
        )
    if float(x.std(axis=(1, 2, 3)).min()) < 0.01:
        raise WrongBatch("an image is flat")
    return "shape, dtype, range, mean, deviation"


def check_decoded(work: Workload, data: Data, x: np.ndarray, y: np.ndarray) -> str:
    floats = work.name == "decoded"
    expect(
        "images",
        (x.shape, str(x.dtype)),
        ((work.batch, SIDE, SIDE, 3), "float32" if floats else "uint8"),
    )
    pixels, _ = data.array()
    for n, row in enumerate(y.reshape(-1)[:32]):
        plain = pixels[int(row)]
        wanted = [normalize(v) if floats else v for v in (plain, plain[:, ::-1])]
        if (
            min(float(np.abs(np.float32(x[n]) - np.float32(w)).max()) for w in wanted)
            > 1e-5
        ):
            raise WrongBatch(f"image {n} is not row {row}, flipped or not")
    return "32 rows equal to NumPy, flipped or not"


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise WrongBatch(f"{what}: {found} instead of {wanted}")


def within(what: str, x: np.ndarray, low: float, high: float) -> None:
    if float(x.min()) < low or float(x.max()) > high:
        raise WrongBatch(f"{what} range over {x.min():.3g} to {x.max():.3g}")


CHECKS = {
    "segmentation": segmentation,
    "classification": classification,
    "decoded": check_decoded,
}
