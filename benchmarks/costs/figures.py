"""Parts that the measurements share: arguments, figures, folders of many files."""

import argparse
import json
import os
from pathlib import Path

from workloads import files_below

# ext4 allows 65 000 links to a file.
LINKS = 60_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--classification", type=Path, required=True)
    parser.add_argument("--segmentation", type=Path, required=True)
    parser.add_argument(
        "--started", type=float, required=True, help="when the process began"
    )
    return parser.parse_args()


def figure(what: str, measured: float, limit: float, unit: str) -> dict:
    return {"what": what, "measured": measured, "limit": limit, "unit": unit}


def report(*figures: dict) -> None:
    print(json.dumps(figures))


def many_files(root: Path, count: int, originals: Path) -> Path:
    """Makes a tree of images in folders of a thousand, once: links to a few files."""
    if root.exists():
        return root
    sources = files_below(originals)[: max(64, -(-count // LINKS))]
    unfinished = root.with_suffix(".unfinished")
    # Copies, so that no other files gain links.
    copies = unfinished.with_suffix(".originals")
    copies.mkdir(parents=True, exist_ok=True)
    for n, source in enumerate(sources):
        (copies / f"{n}.jpg").write_bytes(source.read_bytes())
    for folder in range(-(-count // 1000)):
        path = unfinished / f"class_{folder:04}"
        path.mkdir(parents=True, exist_ok=True)
        for n in range(min(1000, count - folder * 1000)):
            link = path / f"{n:04}.jpg"
            if not link.exists():
                os.link(copies / f"{n % len(sources)}.jpg", link)
    unfinished.rename(root)
    return root


def memory_bytes(key: str) -> int:
    """Returns a line of /proc/self/status: VmRSS is the size now, VmHWM the peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {key}")


def forget_peak() -> None:
    """Resets VmHWM to the current resident size."""
    Path("/proc/self/clear_refs").write_text("5")
