"""`certify`: a record of what any loader delivers, to compare runs by.

The engine writes, reads and compares the records; this module finds the fields of a
batch.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from infeed import _check, _core
from infeed.batch import Batch
from infeed.errors import ConfigError

__all__ = ["CertifiedLoop", "RunDifference", "certify", "compare_runs"]

_T = TypeVar("_T")
_Ids = str | int | Callable[[Any], Iterable[object]]
_Field = tuple[str, int, npt.NDArray[np.uint8]] | tuple[str, list[bytes]]


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
        self._is_begun = start > 0

    def __iter__(self) -> Iterator[_T]:
        writer = _core.RunWriter(self._path, self._is_begun)
        self._is_begun = True
        for batch in self.loader:
            writer.write(self.step, _keys_of(batch, self._ids))
            self.step += 1
            yield batch

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def certify(
    loader: Iterable[_T],
    file: str | os.PathLike[str],
    *,
    ids: _Ids | None = None,
    start: int = 0,
) -> CertifiedLoop[_T]:
    """Wraps a loader, and records what it delivers.

        for batch in infeed.runs.certify(loader, "run.jsonl"):
            train(batch)

    Works with any iterable of batches: arrays, tensors, tuples, lists and dictionaries
    of them. A line of the record has about 30 bytes, and 12 for each row. At most 4 KiB
    of each row are hashed, in 8 pieces; texts and ragged rows wholly. Tensors on a GPU
    are copied to the host. ``infeed verify`` writes and reads the same records.

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
        ConfigError: ``ids`` or ``start`` is not valid. Raised by the loop: a batch has
            no rows to hash or no ids, or the file is not a record.
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
        row: Row in that step; None if only the digests of the step differ. Records of
            ``infeed verify`` have them.
        expected: Sample in that place in the expected run: its id, or its hash; None if
            the found run has more rows.
        found: Sample in that place in the other run; None if that run has fewer rows.
        lost: Samples that the other run never delivered.
        doubled: Samples that the other run delivered once more than expected.
        moved: Samples that the other run delivered in another place.
        text: All of this as sentences.
    """

    step: int
    row: int | None
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
    """Compares a run record with another one, or with a loader.

        difference = infeed.runs.compare_runs("whole.jsonl", "resumed.jsonl")
        print(difference or "the runs are equal")

    A step that only one of the runs has is a difference. A sample that is delivered
    several times, once in each epoch, is expected as often. If a run continues at an
    earlier step than its last one, the lines from that step on are replaced.

    Args:
        expected: A record of `certify` or ``infeed verify``.
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
    first = _core.RunRecord.read(_check.path("compare_runs", "expected", expected))
    if isinstance(found, (str, os.PathLike)):
        second = _core.RunRecord.read(_check.path("compare_runs", "found", found))
        difference = first.compare(second, common, goes_on=False)
    else:
        second = _record_of(found, ids, first.last_step)
        difference = first.compare(second, common, goes_on=True)
    if difference is None:
        return None
    step, row, samples, counts, text = difference
    return RunDifference(step, row, *samples, *counts, text)


def _record_of(
    loader: Iterable[Any], ids: _Ids | None, last: int | None
) -> _core.RunRecord:
    """Returns the record of an iterable, up to one step after the last expected one.

    The additional step shows whether samples at the end are lost or only later.
    """
    run = _core.RunRecord()
    end = 0 if last is None else last + 1
    for step, batch in enumerate(loader):
        if step > end:
            break
        run.add(step, _keys_of(batch, ids))
    return run


def _keys_of(batch: Any, ids: _Ids | None) -> _core.RowKeys:
    """Returns the key of each row.

    Raises:
        ConfigError: The batch has no ids; or it has no field with rows, or fields with
            different numbers of rows.
    """
    if ids is not None:
        return _core.RowKeys.of_ids([str(one) for one in _ids_of(batch, ids)])
    keys = _core.RowKeys.of_batch(batch._core) if isinstance(batch, Batch) else None
    if keys is None:
        fields = [_bytes_of(name, field) for name, field in _fields("", batch)]
        keys = _core.RowKeys.of_fields(fields)
    return keys


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


def _bytes_of(name: str, field: Any) -> _Field:
    """Returns a field as the engine hashes it: rows of equal length, or values."""
    if isinstance(field, (tuple, list)):
        return name, [_value_bytes(value) for value in field]
    array = _on_host(field)
    if array.dtype == object:
        return name, [_value_bytes(value) for value in array]
    return name, len(array), np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _value_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else _content(value)


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
