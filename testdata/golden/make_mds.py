"""Writes data/mds: the photographs of data/photos as two MDS shards.

    python make_mds.py

The layout is that of MosaicML Streaming (streaming/base/format/mds); only the standard
library is needed.
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "data"
SHARD_RECORDS = 8
COLUMNS = {
    "column_names": ["image", "label"],
    "column_encodings": ["jpeg", "int"],
    "column_sizes": [None, 8],
}


def shard_bytes(records):
    header = json.dumps({"version": 2, "format": "mds", **COLUMNS}).encode()
    begin = 4 * (len(records) + 2) + len(header)
    offsets = [begin]
    for record in records:
        offsets.append(offsets[-1] + len(record))
    return (
        struct.pack(f"<{len(offsets) + 1}I", len(records), *offsets)
        + header
        + b"".join(records)
    )


def main():
    classes = sorted(path for path in (HERE / "photos").iterdir() if path.is_dir())
    records = []
    for label, folder in enumerate(classes):
        for file in sorted(folder.iterdir()):
            image = file.read_bytes()
            records.append(
                struct.pack("<I", len(image)) + image + struct.pack("<q", label)
            )
    out = HERE / "mds"
    out.mkdir(exist_ok=True)
    shards = []
    for first in range(0, len(records), SHARD_RECORDS):
        part = records[first : first + SHARD_RECORDS]
        name = f"shard.{len(shards):05}.mds"
        content = shard_bytes(part)
        (out / name).write_bytes(content)
        shards.append(
            {
                "version": 2,
                "format": "mds",
                "samples": len(part),
                "hashes": [],
                "compression": None,
                "size_limit": 1 << 26,
                "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
                "zip_data": None,
                **COLUMNS,
            }
        )
    (out / "index.json").write_text(
        json.dumps({"version": 2, "shards": shards}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
