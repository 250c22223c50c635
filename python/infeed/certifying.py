"""`certify`: a record of what any loader delivers, to compare runs by.

A record has a line for each step: a hash of the step and a short hash of each row, or
the row's id. Hashes are universal (Carter and Wegman, "Universal Classes of Hash
Functions", 1979), with a finalizer from MurmurHash3. They detect accidental
differences, not deliberate ones.
"""

import base64
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from infeed import _check
from infeed.errors import ConfigError

__all__ = ["CertifiedLoop", "RunDifference", "certify", "compare_runs"]

_T = TypeVar("_T")
_Ids = str | int | Callable[[Any], Iterable[object]]
_Hashes = npt.NDArray[np.uint64]

_VERSION = 1
# Bytes of a row that are hashed: all, or this many in evenly spaced pieces.
_HASHED = 4 << 10
_PIECES = 8
# Bytes that are read at once from the end of a record.
_BLOCK = 64 << 10
# Bytes of a row's hash in a record.
_KEPT = 6


class CertifiedLoop(Generic[_T]):
    """An iterable whose steps are recorded. Other attributes are the loader's."""

    def __init__(
        self, loader: Iterable[_T], file: Path, ids: _Ids | None, start: int
    ) -> None:
        self.loader = loader
        self.step = start
        """Number of the next step."""
        self._ids = ids
        self._path = file
        self._is_begun = start > 0 and file.exists()

    def __iter__(self) -> Iterator[_T]:
        # Unbuffered, so that a killed process leaves the lines of its steps.
        with open(self._path, "r+b" if self._is_begun else "wb", buffering=0) as file:
            if not self._is_begun or _cut_torn_line(file) == 0:
                _write(file, {"infeed_certificate": _VERSION})
                self._is_begun = True
            for batch in self.loader:
                _write(file, self._line(batch))
                self.step += 1
                yield batch

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _line(self, batch: _T) -> dict[str, Any]:
        row_hashes = _row_hashes(batch)
        line: dict[str, Any] = {
            "step": self.step,
            "hash": f"{_combine(row_hashes):016x}",
        }
        if self._ids is None:
            kept = row_hashes.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :_KEPT]
            line["rows"] = base64.b64encode(kept.tobytes()).decode()
        else:
            line["ids"] = [str(one) for one in _ids_of(batch, self._ids)]
        return line


def _write(file: FileIO, line: Mapping[str, Any]) -> None:
    rest = memoryview((json.dumps(line, separators=(",", ":")) + "\n").encode())
    while rest:
        # An unbuffered file may accept a part.
        rest = rest[file.write(rest) or 0 :]


def _cut_torn_line(file: FileIO) -> int:
    """Removes a last line without its end, and returns the size of the file.

    The process or the machine stopped while the line was written.
    """
    size = file.seek(0, os.SEEK_END)
    while size:
        begin = max(size - _BLOCK, 0)
        file.seek(begin)
        at = file.read(size - begin).rfind(b"\n")
        if at >= 0:
            size = begin + at + 1
            break
        size = begin
    file.truncate(size)
    return file.seek(size)


def certify(
    loader: Iterable[_T],
    file: str | os.PathLike[str],
    *,
    ids: _Ids | None = None,
    start: int = 0,
) -> CertifiedLoop[_T]:
    """Wraps a loader, and records what it delivers.

        for batch in infeed.certify(loader, "run.jsonl"):
            train(batch)

    Works with any iterable of batches: arrays, tensors, tuples, lists and dictionaries
    of them. A line of the record has about 60 bytes, and 8 for each row. At most 4 KiB
    of each row are hashed, in 8 pieces; texts and ragged rows wholly. Tensors on a GPU
    are copied to the host.

    Args:
        loader: The loader. Each iteration continues the count of steps.
        file: The record, a text file with one line for each step.
        ids: Where a batch has the ids of its samples: a key of a dictionary, an index
            of a tuple, or a function of the batch. Records then compare ids, and name
            them. None: records compare the contents of samples, so that random
            transforms must give the same values in both runs.
        start: Number of the first step. With a number above 0, lines are added to a
            record that exists: those of a run that continues at this step.

    Raises:
        ConfigError: ``ids`` or ``start`` is not valid.
        OSError: Raised by the loop: the file cannot be written.
    """
    if ids is not None and not isinstance(ids, (str, int)) and not callable(ids):
        raise _check.error("certify", "ids", "a key, an index or a function", ids)
    start = _check.integer("certify", "start", start)
    return CertifiedLoop(loader, Path(_check.path("certify", "file", file)), ids, start)


@dataclass(frozen=True)
class RunDifference:
    """The first difference of two runs, and the number of differences.

    Attributes:
        step: Step of the first difference.
        row: Row in that step.
        expected: Sample in that place in the expected run: its id, or its hash; None if
            the found run has more rows.
        found: Sample in that place in the other run; None if that run has fewer rows.
        lost: Samples that the other run never delivered.
        doubled: Samples that the other run delivered once more than expected.
        moved: Samples that the other run delivered in another place.
        text: All of this as sentences.
    """

    step: int
    row: int
    expected: str | None
    found: str | None
    lost: int
    doubled: int
    moved: int
    text: str

    def __str__(self) -> str:
        return self.text


def compare_runs(
    expected: str | os.PathLike[str],
    found: str | os.PathLike[str] | Iterable[Any],
    *,
    ids: _Ids | None = None,
    common: bool = False,
) -> RunDifference | None:
    """Compares a record of `certify` with another one, or with a loader.

        difference = infeed.compare_runs("whole.jsonl", "resumed.jsonl")
        print(difference or "the runs are equal")

    A step that only one of the runs has is a difference. A sample that is delivered
    several times, once in each epoch, is expected as often. If a run continues at an
    earlier step than its last one, the lines from that step on are replaced.

    Args:
        expected: A record.
        found: A record, or an iterable of batches, which is read for as many steps as
            the expected record has, and one more. The iterable may go on after that.
        ids: For an iterable, as in `certify`.
        common: Compares only the steps that both have: a short run with a long one, or
            a separate record of a run that continues.

    Returns:
        The first difference; None if the runs are equal.

    Raises:
        ConfigError: A file is not a record, one record has ids and the other hashes, or
            they have no step in common.
        OSError: A file cannot be read.
    """
    common = _check.flag("compare_runs", "common", common)
    first = _read(Path(_check.path("compare_runs", "expected", expected)))
    second_is_iterable = not isinstance(found, (str, os.PathLike))
    if isinstance(found, (str, os.PathLike)):
        second = _read(Path(_check.path("compare_runs", "found", found)))
    else:
        second = _steps_of(found, ids, first)
    kinds = {isinstance(key, str) for run in (first, second) for key in _first_row(run)}
    if len(kinds) > 1:
        raise ConfigError(
            "compare_runs: one run has ids and the other has hashes of contents; "
            "record both with ids, or both without"
        )
    steps = first.keys() & second.keys()
    if not steps:
        raise ConfigError(
            f"compare_runs: no step is in both runs: {_range(first)} are expected, "
            f"{_range(second)} are found"
        )
    if not common:
        # An iterable was read one step further than its record.
        last = max(first) if second_is_iterable else max(*first, *second)
        steps = {step for step in first.keys() | second.keys() if step <= last}
    return _difference(first, second, sorted(steps))


_Rows = Sequence[str | int]
_Run = dict[int, _Rows]


def _difference(first: _Run, second: _Run, steps: list[int]) -> RunDifference | None:
    at = next((step for step in steps if first.get(step) != second.get(step)), None)
    if at is None:
        return None
    places = _places(first), _places(second)
    wanted, got = first.get(at, ()), second.get(at, ())
    longest = max(len(wanted), len(got))
    rows = (row for row in range(longest) if _at(wanted, row) != _at(got, row))
    row = next(rows, 0)
    expected, found = _at(wanted, row), _at(got, row)
    if at not in second:
        sentences = [_missing("found", second, "expected", first, at)]
    elif at not in first:
        sentences = [_missing("expected", first, "found", second, at)]
    else:
        sentences = [f"The runs differ first in step {at}, row {row}."]
        if expected is not None:
            sentences.append(_fate(expected, (at, row), *places))
        if found is not None:
            sentences.append(_origin(found, (at, row), *places))
    lost, doubled, moved = _count(*places, steps)
    sentences.append(
        f"In {len(steps)} steps, {lost} samples are lost, {doubled} are delivered "
        f"once more than expected, and {moved} are in another place."
    )
    return RunDifference(
        at,
        row,
        _name(expected),
        _name(found),
        lost,
        doubled,
        moved,
        " ".join(sentences),
    )


def _missing(name: str, run: _Run, other_name: str, other: _Run, at: int) -> str:
    """Says which steps a run does not have, from the first one on."""
    if at > max(run):
        return (
            f"The {name} run ends at step {max(run)}, and the {other_name} run goes on "
            f"to step {max(other)}."
        )
    last = min(step for step in run if step > at) - 1
    steps = f"step {at}" if last == at else f"steps {at} to {last}"
    return f"The {name} run does not have {steps}, which the {other_name} run has."


_Place = tuple[int, int]
_Places = Mapping[str | int, list[_Place]]


def _places(run: _Run) -> _Places:
    """Returns the places of each sample, in order."""
    places: dict[str | int, list[_Place]] = defaultdict(list)
    for step in sorted(run):
        for row, key in enumerate(run[step]):
            places[key].append((step, row))
    return places


def _fate(key: str | int, at: _Place, expected: _Places, found: _Places) -> str:
    """Says what the other run did with a sample that is expected in a place."""
    number = expected[key].index(at)
    others = found.get(key, [])
    if number >= len(others):
        return f"Sample {_name(key)}, which is expected there, is lost."
    step, row = others[number]
    return (
        f"Sample {_name(key)}, which is expected there, is in step {step}, row {row}."
    )


def _origin(key: str | int, at: _Place, expected: _Places, found: _Places) -> str:
    """Says where a sample that is found in a place was expected."""
    number = found[key].index(at)
    others = expected.get(key, [])
    if number < len(others):
        step, row = others[number]
        return (
            f"Sample {_name(key)} is there; it is expected in step {step}, row {row}."
        )
    if number == 0:
        return f"Sample {_name(key)} is there, which the expected run does not have."
    step, row = found[key][number - 1]
    return (
        f"Sample {_name(key)} is there a second time: it was already delivered in step "
        f"{step}, row {row}."
    )


def _count(expected: _Places, found: _Places, compared: list[int]) -> tuple[int, ...]:
    """Returns the numbers of lost, doubled and moved samples in compared steps."""
    steps = set(compared)
    lost = doubled = moved = 0
    for key in expected.keys() | found.keys():
        ours, theirs = expected.get(key, []), found.get(key, [])
        lost += sum(place[0] in steps for place in ours[len(theirs) :])
        doubled += sum(place[0] in steps for place in theirs[len(ours) :])
        pairs = zip(ours, theirs, strict=False)
        moved += sum(one != other and one[0] in steps for one, other in pairs)
    return lost, doubled, moved


def _at(rows: _Rows, row: int) -> str | int | None:
    return rows[row] if row < len(rows) else None


def _name(key: str | int | None) -> str | None:
    return f"{key:012x}" if isinstance(key, int) else key


def _first_row(run: _Run) -> _Rows:
    return next((rows[:1] for rows in run.values() if rows), [])


def _range(run: _Run) -> str:
    return f"steps {min(run)} to {max(run)}" if run else "no steps"


def _steps_of(loader: Iterable[Any], ids: _Ids | None, like: _Run) -> _Run:
    """Returns the rows of an iterable, up to one step after those of another run.

    The last one shows whether samples at the end are lost or only later.
    """
    run: _Run = {}
    last = max(like, default=-1) + 1
    for step, batch in enumerate(loader):
        if step > last:
            break
        if ids is None:
            run[step] = _short(_row_hashes(batch))
        else:
            run[step] = [str(one) for one in _ids_of(batch, ids)]
    return run


def _read(path: Path) -> _Run:
    """Reads a record. A step that is not after the last one replaces all from it on."""
    run: _Run = {}
    last = -1
    if path.exists() and not path.is_file():
        # Opening a named pipe would wait for its writer.
        raise ConfigError(f"compare_runs: {path} is not a regular file; pass a record")
    with open(path, "rb") as file:
        lines = iter(file)
        header = _line(next(lines, b""), path, 1)
        if header.get("infeed_certificate") != _VERSION:
            raise ConfigError(f"compare_runs: {path} is not a record of infeed.certify")
        for number, text in enumerate(lines, 2):
            if not text.endswith(b"\n"):
                # The process was killed while it wrote the line.
                break
            line = _line(text, path, number)
            try:
                step = int(line["step"])
                if step <= last:
                    # The run continues here, before the end of its previous part.
                    run = {one: rows for one, rows in run.items() if one < step}
                last = step
                if "ids" in line:
                    run[step] = [str(one) for one in line["ids"]]
                else:
                    kept = base64.b64decode(line["rows"], validate=True)
                    run[step] = [
                        int.from_bytes(kept[at : at + _KEPT], "little")
                        for at in range(0, len(kept), _KEPT)
                    ]
            except (KeyError, TypeError, ValueError) as error:
                raise _damage_error(path, number) from error
    return run


def _line(text: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise _damage_error(path, number) from error
    if not isinstance(line, dict):
        raise _damage_error(path, number)
    return line


def _damage_error(path: Path, number: int) -> ConfigError:
    return ConfigError(
        f"compare_runs: line {number} of {path} is not a line of a record of "
        "infeed.certify"
    )


def _ids_of(batch: Any, ids: _Ids) -> Iterable[object]:
    """Returns the ids of a batch.

    Raises:
        ConfigError: The batch has none.
    """
    if callable(ids):
        return ids(batch)
    try:
        found = batch[ids]
    except (KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"certify: a batch has no {ids!r} for ids") from error
    return [_plain(one) for one in found]


def _plain(value: Any) -> object:
    """Returns a number for a tensor or an array with one element."""
    return value.item() if hasattr(value, "item") else value


def _row_hashes(batch: Any) -> _Hashes:
    """Returns the hash of each row of a batch, over all of its fields.

    Raises:
        ConfigError: There is no field with rows, or fields have different numbers of
            rows.
    """
    total: _Hashes | None = None
    for name, field in _fields("", batch):
        hashes = _field_hashes(field)
        if total is None:
            total = hashes
        elif len(total) != len(hashes):
            raise ConfigError(
                f"certify: field {name} of a batch has {len(hashes)} rows and the "
                f"fields before it have {len(total)}; pass ids="
            )
        else:
            total = _mix(total * np.uint64(31) + hashes)
    if total is None:
        raise ConfigError("certify: a batch has no arrays; pass a loader of batches")
    return total


def _fields(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the arrays, and lists of other values, of a batch with their names."""
    if _is_mapping(value):
        for key in value.keys():  # noqa: SIM118 - iterating a `Batch` gives its columns
            yield from _fields(f"{name}.{key}" if name else str(key), value[key])
    elif isinstance(value, (tuple, list)) and any(
        _is_mapping(part) or isinstance(part, (tuple, list)) or _is_array(part)
        for part in value
    ):
        for at, part in enumerate(value):
            yield from _fields(f"{name}[{at}]", part)
    elif isinstance(value, list) or _is_array(value):
        yield name or "the batch", value
    elif isinstance(value, tuple) and name:
        # PyTorch collates texts to a tuple.
        yield name, value
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from _fields(f"{name}.{key}" if name else key, getattr(value, key))


def _is_mapping(value: Any) -> bool:
    return hasattr(value, "keys") and hasattr(value, "__getitem__")


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def _field_hashes(field: Any) -> _Hashes:
    if isinstance(field, (tuple, list)):
        contents = [_content(value) for value in field]
        return np.array([_hash_bytes(content) for content in contents], np.uint64)
    array = _on_host(field)
    if array.dtype == object:
        return _field_hashes(list(array))
    rows = len(array)
    if array.size == 0:
        return np.zeros(rows, np.uint64)
    flat = np.ascontiguousarray(array).reshape(rows, -1).view(np.uint8)
    return _hash_rows(_pieces(flat))


def _on_host(field: Any) -> npt.NDArray[Any]:
    """Returns an array, or a tensor of any device, as an array of NumPy."""
    if hasattr(field, "detach"):
        # A tensor of PyTorch, possibly on a GPU.
        field = field.detach().cpu()
        if str(field.dtype) == "torch.bfloat16":
            # NumPy has no such type; the conversion is exact.
            field = field.float()
    return np.asarray(field)


def _content(value: Any) -> bytes:
    """Returns the bytes to hash of a value in a list or an array of objects.

    NumPy shortens the `repr` of arrays, also of those in other values.
    """
    if isinstance(value, np.generic):
        return repr(value).encode()
    if hasattr(value, "__array__"):
        array = _on_host(value)
        head = f"{array.dtype} {array.shape} ".encode()
        if array.dtype == object:
            return head + _join(array.ravel().tolist())
        return head + array.tobytes()
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} ".encode() + _join(value)
    if isinstance(value, Mapping):
        return b"mapping " + _join([part for item in value.items() for part in item])
    return repr(value).encode()


def _join(values: Iterable[Any]) -> bytes:
    contents = [_content(value) for value in values]
    return b"".join(b"%d:%b" % (len(one), one) for one in contents)


def _pieces(flat: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Returns the hashed bytes of each row."""
    length = flat.shape[1]
    if length <= _HASHED:
        return flat
    piece = _HASHED // _PIECES
    starts = np.linspace(0, length - piece, _PIECES).astype(int)
    return np.concatenate([flat[:, at : at + piece] for at in starts], axis=1)


def _hash_rows(flat: npt.NDArray[np.uint8]) -> _Hashes:
    rows, length = flat.shape
    words = -(-length // 8)
    if length % 8:
        padded = np.zeros((rows, 8 * words), np.uint8)
        padded[:, :length] = flat
        flat = padded
    values = np.ascontiguousarray(flat).view("<u8")
    factors = _factors(words)
    with np.errstate(over="ignore"):
        mixed = (values ^ (values >> np.uint64(29))) * factors
        sums = mixed.sum(axis=1, dtype=np.uint64) + np.uint64(length)
    return _mix(sums)


def _factors(count: int) -> _Hashes:
    """Returns odd numbers that look random: a Weyl sequence through `_mix`."""
    steps = np.arange(1, count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return _mix(steps * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


def _mix(values: _Hashes) -> _Hashes:
    """The finalizer of MurmurHash3."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        return values ^ (values >> np.uint64(33))


def _hash_bytes(text: bytes) -> int:
    return int(_hash_rows(np.frombuffer(text or b"\0", np.uint8)[None])[0])


def _short(hashes: _Hashes) -> list[int]:
    return [int(one) & ((1 << 8 * _KEPT) - 1) for one in hashes]


def _combine(hashes: _Hashes) -> int:
    """Returns a hash of rows in their order."""
    with np.errstate(over="ignore"):
        ordered = hashes * _factors(len(hashes))
        return int(_mix(ordered.sum(dtype=np.uint64, keepdims=True))[0])
