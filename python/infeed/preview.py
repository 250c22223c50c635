"""The preview of one sample: its fields after each stage."""

import base64
import html
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed import _core
from infeed.batch import numpy_from

__all__ = ["Preview", "Stage"]

# Boxes, points and objects of a stage, as the engine returns them.
Shapes = tuple[list[list[float]], list[list[float]], Any]


@dataclass(frozen=True)
class Stage:
    """A sample after one stage.

    Attributes:
        name: ``"decode"``, the name of a transform, or ``"output"``.
        draws: Random parameters of the stage as text; empty if it has none.
        fields: Arrays, bytes or text by field name. Images are ``[H, W, C]``, except
            after the last stage, where they have the batch's layout.
        boxes: Left, top, right and bottom of the declared boxes that stay, in pixels of
            the images of the stage, float64 ``[n, 4]``.
        points: Column and row of the declared points that are visible, float64
            ``[n, 2]``.
        objects: Object of each pixel, from the masks of the boxes that stay, uint8
            ``[H, W]``: 0 for none, else a number from 1. None without masks.
    """

    name: str
    draws: str
    fields: dict[str, Any]
    boxes: np.ndarray
    points: np.ndarray
    objects: np.ndarray | None

    def __repr__(self) -> str:
        parts = [
            f"{name} {item.dtype} {list(item.shape)}"
            for name, item in self.fields.items()
            if isinstance(item, np.ndarray)
        ]
        return f"{self.name} {self.draws}: {', '.join(parts)}".replace(" :", ":")


class Preview:
    """The stages of one sample. Notebooks draw boxes, points and masks on the images.

    Attributes:
        position: Position in the order of the epoch, from 0.
        epoch: Number of the epoch, from 0.
        record: Number and name of the record.
        stages: One entry per stage, in order.
    """

    def __init__(
        self,
        position: int,
        epoch: int,
        record: tuple[int, str],
        stages: list[tuple[str, str, list[tuple[str, Any]], Shapes]],
    ):
        self.position = position
        self.epoch = epoch
        self.record = record
        self.stages = [
            Stage(
                name,
                draws,
                {field: _value(field, item) for field, item in columns},
                np.array(boxes, np.float64).reshape(-1, 4),
                np.array(points, np.float64).reshape(-1, 2),
                None if objects is None else numpy_from("objects", objects),
            )
            for name, draws, columns, (boxes, points, objects) in stages
        ]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, stage: int | str) -> Stage:
        """Returns a stage by number, or the last stage with a name.

        Raises:
            KeyError: No stage has this name.
            IndexError: The number is out of range.
        """
        if isinstance(stage, int):
            return self.stages[stage]
        for candidate in reversed(self.stages):
            if candidate.name == stage:
                return candidate
        raise KeyError(stage)

    def __repr__(self) -> str:
        index, name = self.record
        head = (
            f"position {self.position} of epoch {self.epoch}: {name} (record {index})"
        )
        return "\n".join([head, *(f"  {stage!r}" for stage in self.stages)])

    def _repr_html_(self) -> str:
        rows = []
        for stage in self.stages:
            cells = "".join(
                f"<td>{_cell(name, item, stage)}</td>"
                for name, item in stage.fields.items()
            )
            head = f"<b>{html.escape(stage.name)}</b><br>{html.escape(stage.draws)}"
            rows.append(f"<tr><td>{head}</td>{cells}</tr>")
        caption = html.escape(repr(self).splitlines()[0])
        return f"<table><caption>{caption}</caption>{''.join(rows)}</table>"


def _value(name: str, item: Any) -> Any:
    if isinstance(item, _core.Array):
        return numpy_from(name, item)
    (only,) = item
    return only


def _cell(name: str, item: Any, stage: Stage) -> str:
    """Formats a field as HTML, as an image if it can be one."""
    if not isinstance(item, np.ndarray):
        return html.escape(repr(item)[:100])
    caption = f"{html.escape(name)} {item.dtype} {list(item.shape)}"
    pixels = None if _is_masks(item, stage) else _pixels(item)
    if pixels is None:
        return f"{caption}<br>{html.escape(repr(item.tolist())[:100])}"
    if stage.objects is not None:
        pixels = _tint(pixels, stage.objects)
    for box in stage.boxes:
        _outline(pixels, box)
    for point in stage.points:
        _mark(pixels, point)
    encoded = base64.b64encode(png(pixels)).decode()
    return f'{caption}<br><img src="data:image/png;base64,{encoded}">'


def _is_masks(item: np.ndarray, stage: Stage) -> bool:
    """Returns whether an array is the masks of the objects, which tint the images."""
    if stage.objects is None or item.ndim != 3:
        return False
    is_stack = item.shape[1:] == stage.objects.shape and item.dtype == np.uint8
    return is_stack and not np.any(item > 1)


def _pixels(item: np.ndarray) -> np.ndarray | None:
    """Returns an array as uint8 ``[H, W, 1 or 3]``, stretched to the full range."""
    pixels = rgb_or_gray(item)
    if pixels is None:
        return None
    if pixels.dtype != np.uint8 or pixels.shape[2] == 1:
        pixels = pixels.astype(np.float32)
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    # A copy, because boxes and points are drawn on it.
    return pixels.copy()


def rgb_or_gray(item: np.ndarray) -> np.ndarray | None:
    """Returns an array as ``[H, W, 1 or 3]`` with its values; None if it is no image.

    Of other numbers of channels, such as one-hot classes, the index of the largest is
    shown.
    """
    if item.ndim == 2:
        item = item[:, :, None]
    if item.ndim != 3:
        return None
    if item.shape[2] not in (1, 3, 4) and item.shape[0] in (1, 3, 4):
        item = item.transpose(1, 2, 0)
    if item.shape[2] not in (1, 3, 4):
        item = item.argmax(axis=2)[:, :, None]
    return item[:, :, :3]


def _tint(pixels: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Returns pixels with a colour laid over each object."""
    if pixels.shape[:2] != objects.shape:
        return pixels
    # Hues a golden ratio apart: neighbouring numbers have distinct colours.
    hue = (np.arange(256)[:, None] * 0.618 + (0, 1 / 3, 2 / 3)) % 1.0
    colours = 255 * np.clip(np.abs(hue * 6 - 3) - 1, 0, 1)
    tinted = pixels * 0.5 + colours[objects] * 0.5
    return np.where(objects[:, :, None] > 0, tinted, pixels).astype(np.uint8)


def _mark(pixels: np.ndarray, point: np.ndarray) -> None:
    """Draws a square of three pixels around a point: red, or white."""
    x, y = (int(side) for side in np.rint(point))
    ink = (255, 0, 0) if pixels.shape[2] == 3 else (255,)
    pixels[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] = ink


def _outline(pixels: np.ndarray, box: np.ndarray) -> None:
    """Draws a line of one pixel along the inner edge of a box: yellow, or white."""
    height, width, channels = pixels.shape
    low, high = np.rint(box[:2]), np.rint(box[2:]) - 1
    left, top = (int(edge) for edge in np.clip(low, 0, (width - 1, height - 1)))
    right, bottom = (int(edge) for edge in np.clip(high, 0, (width - 1, height - 1)))
    ink = (255, 255, 0)[:channels]
    pixels[[top, bottom], left : right + 1] = ink
    pixels[top : bottom + 1, [left, right]] = ink


def png(pixels: np.ndarray) -> bytes:
    """Encodes uint8 pixels as PNG. Source: PNG specification, third edition."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
