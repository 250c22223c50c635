"""Sources: the data that a pipeline reads.

A source is a frozen dataclass of settings. It lists and reads nothing until the
pipeline is opened. `Memory`, and `Arrow` and `Items` over Python objects, hold their
data from the start.
"""

from typing import Any

from infeed._columns import MemoryColumn
from infeed._fields import Field
from infeed.sources.base import Source
from infeed.sources.boxed import Coco, LabelMe, Voc, Yolo
from infeed.sources.files import Folder, Pairs
from infeed.sources.memory import Memory
from infeed.sources.mix import Mix
from infeed.sources.objects import Arrow, Items
from infeed.sources.shards import MDS, TFRecord, WebDataset
from infeed.sources.tables import Npz, Parquet

__all__ = [
    "MDS",
    "Arrow",
    "Coco",
    "Field",
    "Folder",
    "Items",
    "LabelMe",
    "Memory",
    "Mix",
    "Npz",
    "Pairs",
    "Parquet",
    "Source",
    "TFRecord",
    "Voc",
    "WebDataset",
    "Yolo",
]

# Sources by their name in a description. Sources of objects have no name.
_FILES: dict[str, type[Source]] = {
    "folder": Folder,
    "pairs": Pairs,
    "coco": Coco,
    "yolo": Yolo,
    "voc": Voc,
    "labelme": LabelMe,
    "webdataset": WebDataset,
    "tfrecord": TFRecord,
    "mds": MDS,
    "parquet": Parquet,
    "npz": Npz,
}


def from_dict(table: dict[str, Any]) -> Source:
    """Returns the source that a description's table names."""
    settings = dict(table)
    kind = settings.pop("kind")
    if kind == "memory":
        columns = (MemoryColumn.from_dict(field) for field in settings["fields"])
        return Memory._from_columns(tuple(columns))
    if kind == "mix":
        parts = [
            (from_dict(part["source"]), part.get("weight")) for part in table["parts"]
        ]
        return Mix._from_parts(parts, settings.get("epoch"))
    if "fields" in settings:
        settings["fields"] = Field._from_tables(settings["fields"])
    if kind == "arrow":
        return Arrow(settings["files"], settings.get("fields"))
    return _FILES[kind](**settings)
