"""The command ``infeed check``: fails if a training waits for its batches too long."""

import argparse
import contextlib
import functools
import importlib.abc
import importlib.machinery
import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from infeed.errors import InfeedError
from infeed.watching.loop import Watch, watch

# Exit status of shells for a program that Ctrl-C ended.
INTERRUPTED = 130
# Modules with loaders, and the names of their classes.
_CLASSES = {
    "infeed.jax": "Loader",
    "infeed.loader": "Loader",
    "infeed.tensorflow": "Loader",
    "infeed.torch": "Loader",
    "torch.utils.data.dataloader": "DataLoader",
}
# Steps below which no share of waiting is reported.
_LEAST = 10


def main(arguments: Sequence[str]) -> int:
    """Runs a script until a loop has taken some steps, and prints what it waited for.

    Returns:
        The exit status: 0; 1 if the loop waited longer than allowed, or the script
        failed; 2 for invalid arguments, or a script without such a loop.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    path = Path(options.script)
    if not path.is_file():
        print(f"error: check: there is no file {path}", file=sys.stderr)
        return 2
    checked = WatchedLoops(options.steps)
    try:
        with checked.of_all_loaders():
            _run(path, options.arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except EnoughSteps:
        pass
    except SystemExit as ended:
        if ended.code not in (None, 0):
            print(f"error: check: {path} ended with {ended.code}", file=sys.stderr)
            return 1
    found = checked.longest()
    if found is None:
        print(
            f"error: check: no loop in {path} took {_LEAST} batches of a loader of "
            "infeed or a DataLoader of PyTorch",
            file=sys.stderr,
        )
        return 2
    try:
        report = found.report()
    except InfeedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report)
    figures = report.figures
    is_over = figures.waiting > options.max_waiting
    print(
        f"  check      {'failed' if is_over else 'passed'}: the loop waited "
        f"{figures.waiting:.1%} of its time in {figures.step.count} steps; at most "
        f"{options.max_waiting:.1%} is allowed"
    )
    return int(is_over)


class EnoughSteps(SystemExit):
    """Ends a script whose loop has taken enough steps."""


class WatchedLoops:
    """The loops of a script over loaders, each with its waiting time.

    Args:
        steps: Number of batches of one loader after which the script ends.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        # By identity of the loader, which is held so that no other one gets it.
        self._watches: dict[int, tuple[Any, Watch]] = {}
        self._is_inside = False
        # Changed methods: class, name, and the class's own method if it has one.
        self._originals: list[tuple[Any, str, Any]] = []
        self._watched_classes: set[type[Any]] = set()

    def longest(self) -> Watch | None:
        """Returns the watch with the most batches; None if they are too few."""
        watches = [watch for _, watch in self._watches.values()]
        found = max(watches, key=_count, default=None)
        return found if found is not None and _count(found) >= _LEAST else None

    @contextlib.contextmanager
    def of_all_loaders(self) -> Iterator[None]:
        """Watches the loops over all loaders that begin in its block."""
        finder = _ClassFinder(self._change)
        for module, name in _CLASSES.items():
            if module in sys.modules:
                self._change(sys.modules[module], name)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for kind, name, own in reversed(self._originals):
                if own is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, own)
            for _, watch in self._watches.values():
                watch.close()

    def _change(self, module: ModuleType, name: str) -> None:
        """Makes loops over the loaders of a class watched, and over its subclasses."""
        kind: Any = getattr(module, name)
        original = kind.__init__

        @functools.wraps(original)
        def make(loader: Any, *arguments: Any, **options: Any) -> None:
            original(loader, *arguments, **options)
            self._watch_class(type(loader))

        self._replace(kind, "__init__", make)

    def _watch_class(self, kind: Any) -> None:
        if kind in self._watched_classes:
            return
        self._watched_classes.add(kind)
        original = kind.__iter__
        self._replace(kind, "__iter__", lambda loader: self._begin(loader, original))

    def _replace(self, kind: Any, name: str, made: Callable[..., Any]) -> None:
        self._originals.append((kind, name, vars(kind).get(name)))
        setattr(kind, name, made)

    def _begin(
        self, loader: Any, original: Callable[[Any], Iterator[Any]]
    ) -> Iterator[Any]:
        is_main = threading.current_thread() is threading.main_thread()
        if self._is_inside or not is_main:
            # The watch itself, or a loader in another loader.
            return original(loader)
        if id(loader) not in self._watches:
            self._watches[id(loader)] = loader, watch(loader, sync=_synchronize)
        watched = self._watches[id(loader)][1]
        with self.inside():
            epoch = iter(watched)
        return _CheckedEpoch(self, watched, epoch)

    def next_batch(self, watched: Watch, epoch: Iterator[Any]) -> Any:
        """Returns the next batch of an epoch.

        Raises:
            EnoughSteps: The loop has taken enough of them.
            StopIteration: The epoch has ended.
        """
        with self.inside():
            batch = next(epoch)
        if _count(watched) > self._steps:
            raise EnoughSteps(0)
        return batch

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Leaves the loops that begin in its block alone."""
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False


class _CheckedEpoch:
    """An epoch of a watched loader, with the attributes of the loader's iterator."""

    def __init__(self, loops: WatchedLoops, watched: Watch, epoch: Any) -> None:
        self._loops, self._watched, self._epoch = loops, watched, epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._loops.next_batch(self._watched, self._epoch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoch._iterator, name)


class _ClassFinder(importlib.abc.MetaPathFinder):
    """Changes classes as soon as their modules are imported.

    Args:
        change: Changes the class of a module.
    """

    def __init__(self, change: Callable[[ModuleType, str], None]) -> None:
        self._change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the module's own specification with a change after its code."""
        if name not in _CLASSES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run(module)
            self._change(module, _CLASSES[name])

        spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


def _count(watched: Watch) -> int:
    return watched._batches


def _synchronize() -> None:
    """Waits for the steps that a GPU computes."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def _run(path: Path, arguments: Sequence[str]) -> None:
    """Runs a script as Python does."""
    given, folders = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = given, folders


def _share(text: str) -> float:
    """Returns a share of 0 to 1 from a percentage, such as ``5 %``."""
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage of 0 to 100")
    return found


def _count_of_steps(text: str) -> int:
    if not text.isdecimal() or int(text) < _LEAST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {_LEAST} or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="infeed check",
        description="Run a training script until a loop has taken some batches, print "
        "what it waited for, and fail if that is too long. Loops over loaders of "
        "infeed and over DataLoaders of PyTorch are watched.",
        epilog="example: infeed check --max-waiting 5 train.py --epochs 1",
    )
    parser.add_argument(
        "--max-waiting",
        type=_share,
        default=0.05,
        metavar="PERCENT",
        help="share of its time that the loop may wait for batches [default: 5]",
    )
    parser.add_argument(
        "--steps",
        type=_count_of_steps,
        default=200,
        metavar="N",
        help="batches after which the script ends [default: 200]",
    )
    parser.add_argument("script", help="the training script")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments of the script"
    )
    return parser
