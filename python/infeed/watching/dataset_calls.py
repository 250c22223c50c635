"""Time of a dataset's calls by class, measured in a process of its loader's kind.

The loop does not see the transforms of a DataLoader. A second DataLoader with one
worker reads a few samples of the same dataset with the profiler hook of Python. The
loop's process runs none of it, so the loop's random numbers and open files stay as they
are.
"""

import contextlib
import importlib
import logging
import sys
import sysconfig
import time
import warnings
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

from infeed.watching.adopted_code import AdoptedCode
from infeed.watching.sampler import RunQueue

# Samples that are read, and the time after which no other one is read, in seconds.
_SAMPLES = 24
_SECONDS = 2.0
# Time without a sample after which the measurement is given up, in seconds.
_TIMEOUT_S = 20
# Number in place of a sample's, for the code that `adopt` calls.
_CODE = -1
# Parts of less than this share of the time are not listed.
_LISTED = 0.02

# Methods whose time is that of their object's class.
_METHODS = frozenset({"__call__", "__getitem__", "forward"})

# Where libraries and Python's own modules are.
_INSTALLED = tuple(
    {"<frozen", *map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}
)

# Packages whose steps infeed has.
_LIBRARIES = frozenset(
    {"PIL", "albumentations", "cv2", "datasets", "timm", "torch", "torchvision"}
)

PartKind = Literal["dataset", "library", "program"]


@dataclass(frozen=True)
class CallPart:
    """Time that one class, or one function of the user, takes of a dataset's call.

    Attributes:
        name: Name of the class, or of the function with ``()``.
        kind: ``"dataset"``: it reads and decodes. ``"library"``: a step of a library
            whose steps infeed has. ``"program"``: another step, which a pipeline of
            infeed calls as well, and everything that this step calls.
        wall_s: Elapsed time per sample without that of other parts, in seconds.
        processor_s: Processor time per sample without that of other parts, in seconds.
    """

    name: str
    kind: PartKind
    wall_s: float
    processor_s: float


@dataclass(frozen=True)
class DatasetCalls:
    """Calls of a dataset, on one core.

    Attributes:
        workers: Worker processes of the loader.
        samples: Number of samples read.
        wall_s: Elapsed time per sample, in seconds.
        processor_s: Processor time per sample, in seconds.
        idle_s: Time per sample in which the call neither computed nor waited for a free
            core, in seconds: it slept, or it waited for storage or another process.
        parts: The parts of at least 2 % of the time, the longest first.
        adopted: Python code that `adopt` calls for each sample; None: no code.
    """

    workers: int
    samples: int
    wall_s: float
    processor_s: float
    idle_s: float
    parts: tuple[CallPart, ...]
    adopted: AdoptedCode | None = None


def measure_calls(loader: Any) -> DatasetCalls | None:
    """Measures the calls of a DataLoader's dataset.

    None if it is no DataLoader of PyTorch over numbered samples, or if a call fails.
    """
    watched = loader
    if type(loader).__module__.partition(".")[0] == "timm":
        loader = getattr(loader, "loader", loader)
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        return None
    dataset = loader.dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return None
    timed = data.DataLoader(
        _TimedDataset(dataset, _samples_of(watched), loader.num_workers),
        batch_size=None,
        sampler=[_CODE, *_spread(len(dataset))],
        num_workers=1,
        prefetch_factor=1,
        collate_fn=_identity,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        timeout=_TIMEOUT_S,
        # Otherwise the loop's generator draws the seed of the worker.
        generator=sys.modules["torch"].Generator(),
    )
    calls: list[_Call] = []
    adopted: AdoptedCode | None = None
    # The dataset may raise any error. If it does so in the loop, the loop reports it.
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found in timed:
            if isinstance(found, list):
                (adopted,) = found
            elif found is not None:
                calls.append(found)
    # The first call imports modules and fills caches.
    if len(calls) < 2:
        return None
    return _summary(calls[1:], loader.num_workers, adopted)


def _samples_of(loader: Any) -> Any:
    """Returns the samples of a loader, as `adopt` reads them."""
    # `adopting` uses this package, so it is imported late.
    return importlib.import_module("infeed.adopting.prefetch_loader").unwrap(loader)[1]


def _spread(count: int) -> list[int]:
    """Returns the numbers of samples that are spread over a dataset."""
    samples = min(count, _SAMPLES)
    return [number * count // samples for number in range(samples)]


def _identity(item: Any) -> Any:
    """Returns the item. A function of this module, because workers may be spawned."""
    return item


# A part, and its wall and processor seconds.
_Part = tuple[str, PartKind]
_Times = dict[_Part, list[float]]
# The times of a call, and the time that it was ready to run and had no core.
_Call = tuple[_Times, float]


def _summary(
    calls: list[_Call], workers: int, adopted: AdoptedCode | None
) -> DatasetCalls:
    count = len(calls)
    total: _Times = {}
    for times, _ in calls:
        for part, (wall_s, processor_s) in times.items():
            sums = total.setdefault(part, [0.0, 0.0])
            sums[0] += wall_s / count
            sums[1] += processor_s / count
    wall_s, processor_s = (sum(one[at] for one in total.values()) for at in (0, 1))
    queued_s = sum(queued for _, queued in calls) / count
    parts = [
        CallPart(*part, wall, processor)
        for part, (wall, processor) in total.items()
        if wall >= _LISTED * wall_s
    ]
    parts.sort(key=lambda part: -part.wall_s)
    idle_s = max(0.0, wall_s - processor_s - queued_s)
    return DatasetCalls(
        workers, count, wall_s, processor_s, idle_s, tuple(parts), adopted
    )


class _TimedDataset:
    """The times of a dataset's calls, in place of its samples.

    Args:
        dataset: The dataset.
        samples: Its samples, as `adopt` reads them.
        workers: Worker processes of the loader.
    """

    def __init__(self, dataset: Any, samples: Any, workers: int) -> None:
        self._dataset, self._samples, self._workers = dataset, samples, workers
        self._begun: float | None = None
        self._python_steps: frozenset[type] = frozenset()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> _Call | list[AdoptedCode | None] | None:
        """Returns the times of a call; None after the time for all of them.

        For `_CODE`, a list with the answer of `adopted_code`.
        """
        if number == _CODE:
            # The user opens no pipeline here, whose warnings would be of use.
            logging.disable()
            # The dataset may raise any error, also if `adopt` reads it.
            with contextlib.suppress(Exception):
                code = importlib.import_module("infeed.adopting.python_code")
                found = code.adopted_code(self._samples, self._workers)
                adopted, self._python_steps = found
                return [adopted]
            # Without an answer, infeed may be as slow as the dataset's code.
            name = f"{type(self._dataset).__name__}.__getitem__"
            return [AdoptedCode(name, False, None)]
        self._begun = self._begun or time.perf_counter()
        if time.perf_counter() - self._begun > _SECONDS:
            return None
        queue = RunQueue()
        clock = _PartClock(self._dataset, self._python_steps)
        before = sys.getprofile()
        sys.setprofile(clock.on_event)
        try:
            self._dataset[number]
        finally:
            sys.setprofile(before)
            clock.add()
            queued_s = queue.waited_s()
            queue.close()
        return clock.times, queued_s


class _PartClock:
    """Divides the time among the parts that run: a hook for `sys.setprofile`.

    The time of a function of a library belongs to the part that calls it.

    Args:
        dataset: The dataset.
        python_steps: Classes of steps of libraries that infeed does not have.
    """

    def __init__(self, dataset: Any, python_steps: frozenset[type]) -> None:
        self._python_steps = python_steps
        self._running: list[_Part] = [(type(dataset).__name__, "dataset")]
        self.times: _Times = {}
        self._last = time.perf_counter(), time.process_time()

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        """Counts the time up to a call or a return of a Python function."""
        if event == "call":
            self.add()
            self._running.append(self._part(frame) or self._running[-1])
        elif event == "return" and len(self._running) > 1:
            self.add()
            self._running.pop()

    def add(self) -> None:
        """Adds the time since the last event to the part that runs."""
        now = time.perf_counter(), time.process_time()
        sums = self.times.setdefault(self._running[-1], [0.0, 0.0])
        sums[0] += now[0] - self._last[0]
        sums[1] += now[1] - self._last[1]
        self._last = now

    def _part(self, frame: FrameType) -> _Part | None:
        """Returns the part that a call begins; None: it belongs to its caller."""
        code = frame.f_code
        if code.co_name in _METHODS and code.co_argcount:
            kind = type(frame.f_locals.get(code.co_varnames[0]))
            # The dataset, or one inside it, reads and decodes.
            if code.co_name == "__getitem__":
                return kind.__name__, "dataset"
            is_known = kind.__module__.partition(".")[0] in _LIBRARIES
            is_called = kind in self._python_steps or self._running[-1][1] == "program"
            return kind.__name__, "library" if is_known and not is_called else "program"
        # Comprehensions and the like are parts of the function around them.
        if code.co_name.startswith("<") and code.co_name != "<lambda>":
            return None
        module = frame.f_globals.get("__name__", "")
        if module != "__main__" and code.co_filename.startswith(_INSTALLED):
            return None
        # A function that a dataset calls may read and decode.
        is_step = self._running[-1][1] != "dataset"
        name = code.co_qualname.rpartition("<locals>.")[2]
        return f"{name}()", "program" if is_step else "dataset"
