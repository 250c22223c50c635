"""Observes the use of images in a call of a function of the program.

The transforms of torchvision and timm and the image processors of transformers return
unique values in the call, which are known again in its result.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.adopting.samples import Array, array_of, is_picture
from infeed.seeding import next_draws, restore_generators

# Packages whose transforms are observed.
_LIBRARIES = ("torchvision", "timm")
# Arguments of an image processor that change no value.
_NO_EFFECT = ("return_tensors",)


class UntracedError(Exception):
    """A function does more than to call transforms; the text is the reason."""


@dataclass(frozen=True)
class Origin:
    """The transforms that made a value, and the row of their image.

    Attributes:
        row: Number of the row.
        mode: Mode of the image.
        steps: The transforms.
        value: The value that they really return.
    """

    row: int
    mode: str
    steps: tuple[Any, ...]
    value: Any


def observe_call(
    observer: "ImageObserver", function: Callable[[Any], Any], given: Any
) -> Any:
    """Returns the result of a function of observed images.

    Raises:
        UntracedError: It fails, does more to images, or draws random numbers.
    """
    before = next_draws()
    try:
        with observer.observe():
            returned = function(given)
    except Exception as error:
        observer.fail(f"it raises {type(error).__name__} when traced")
        raise UntracedError(str(observer.problem)) from error
    if observer.problem is not None:
        # The function has caught the error.
        raise UntracedError(observer.problem)
    if next_draws() != before:
        raise UntracedError("it draws random numbers itself")
    return returned


class ImageObserver:
    """Observes the use of images in a call."""

    def __init__(self) -> None:
        self.asks_mode = False
        self.problem: str | None = None
        self._rng = np.random.default_rng(0)
        self._images = 0
        # Substitutes by identity, which is held: the object, its values and its origin.
        self._origins: dict[int, tuple[Any, Array, Origin]] = {}
        # Results of transforms by their identity and that of the image, because the
        # function is called with many equal images.
        self._known: dict[Any, Any] = {}
        self._converted: dict[tuple[int, str], tuple[Any, Any]] = {}

    def fail(self, problem: str) -> UntracedError:
        """Notes the first reason against a function; returns the error for this one."""
        self.problem = self.problem or problem
        return UntracedError(problem)

    def image(self, image: Any) -> Any:
        """Returns a Pillow image or an RGB tensor whose use is observed."""
        row, self._images = self._images, self._images + 1
        mode = image.mode if is_picture(image) else "RGB"
        return _TracedImage(self, Origin(row, mode, (), image))

    def convert(self, origin: Origin, mode: str = "") -> Any:
        """Returns an image in another mode."""
        if mode not in ("RGB", origin.value.mode):
            raise self.fail(f"it converts images to {mode}")
        key = id(origin.value), mode
        if key not in self._converted:
            self._converted[key] = origin.value, origin.value.convert(mode)
        image = self._converted[key][1]
        return _TracedImage(self, Origin(origin.row, mode, (), image))

    def origin(self, value: Any, row: int) -> Origin:
        """Returns what made a returned value of a row."""
        array = array_of(value)
        for _, values, origin in self._origins.values():
            if origin.row == row and array is not None and _is_equal(array, values):
                return origin
        raise UntracedError("it changes values itself")

    def call(
        self,
        call: Callable[..., Any],
        step: Any,
        given: Any,
        *rest: Any,
        **options: Any,
    ) -> Any:
        """Calls a transform or an image processor with what it is given."""
        if isinstance(given, list | tuple) and given and self.origin_of(given[0]):
            if len(given) > 1 and not _is_processor(step):
                raise self.fail("it calls a transform with several values")
            return self._process(call, step, list(given), rest, options)
        origin = self.origin_of(given)
        if origin is None:
            return call(step, given, *rest, **options)
        if _is_processor(step):
            return self._process(call, step, [given], rest, options)
        if rest or options:
            raise self.fail(f"it calls {type(step).__name__} with further values")
        key = (*map(id, origin.steps), id(step), id(origin.value))
        if key not in self._known:
            with restore_generators():
                self._known[key] = origin.value, call(step, origin.value)
        return self._substitute(origin, step, self._known[key][1])

    def _process(
        self,
        call: Callable[..., Any],
        step: Any,
        images: list[Any],
        rest: Sequence[Any],
        options: Mapping[str, Any],
    ) -> Any:
        """Calls an image processor, whose results are replaced."""
        if rest or any(name not in _NO_EFFECT for name in options):
            raise self.fail(f"it calls {type(step).__name__} with further values")
        origins = [self.origin_of(image) for image in images]
        if not all(origins):
            raise self.fail(f"it calls {type(step).__name__} with other values")
        found = call(step, [one.value for one in origins if one], **options)
        if list(found) != ["pixel_values"]:
            raise self.fail(f"{type(step).__name__} returns {', '.join(found)}")
        values = found["pixel_values"]
        made = [
            self._substitute(origin, step, value)
            for origin, value in zip(origins, values, strict=True)
            if origin
        ]
        found["pixel_values"] = _stack_like(made, values)
        return found

    def origin_of(self, value: Any) -> Origin | None:
        """Returns the origin of an image or of a substitute; None for other values."""
        if isinstance(value, _TracedImage):
            origin: Origin = object.__getattribute__(value, "_origin")
            return origin
        if (found := self._origins.get(id(value))) is None:
            return None
        if not _is_equal(array_of(value), found[1]):
            raise self.fail("it changes values itself")
        return found[2]

    def _substitute(self, origin: Origin, step: Any, result: Any) -> Any:
        """Returns a unique value in place of the result of a transform."""
        steps = (*origin.steps, step)
        found = Origin(origin.row, origin.mode, steps, result)
        if is_picture(result):
            return _TracedImage(self, found)
        array = np.asarray(array_of(result))
        is_float = array.dtype.kind == "f"
        values = self._rng.random(array.shape) * (1 if is_float else 256)
        made: Any = values.astype(array.dtype)
        kept = made.copy()
        if not isinstance(result, np.ndarray):
            torch = sys.modules["torch"]
            made = torch.from_numpy(np.ascontiguousarray(made))
            made = made.as_subclass(type(result))
        # The function could change the substitute in place.
        self._origins[id(made)] = made, kept, found
        return made

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Observes the calls of transforms in its block."""
        changed: list[tuple[type, Any]] = []
        try:
            for kind in _callable_classes():
                original = vars(kind)["__call__"]
                changed.append((kind, original))
                setattr(kind, "__call__", self._caller(original))  # noqa: B010
            yield
        finally:
            for kind, original in changed:
                setattr(kind, "__call__", original)  # noqa: B010

    def _caller(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(step: Any, *given: Any, **options: Any) -> Any:
            name = type(step).__module__.partition(".")[0]
            if _is_processor(step) and "images" in options:
                given = (options.pop("images"), *given)
            if given and (name in _LIBRARIES or _is_processor(step)):
                return self.call(original, step, *given, **options)
            return original(step, *given, **options)

        return call


def _is_equal(one: Any, other: Array) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _stack_like(made: list[Any], values: Any) -> Any:
    """Returns unique values as one array, tensor or list, like the real ones."""
    if isinstance(values, list):
        return made
    if isinstance(values, np.ndarray):
        return np.stack(made)
    return sys.modules["torch"].stack(made)


def _is_processor(step: Any) -> bool:
    """Whether an object is an image processor of transformers."""
    return any(kind.__name__ == "BaseImageProcessor" for kind in type(step).__mro__)


def _callable_classes() -> list[type]:
    """Returns the classes whose method ``__call__`` transforms may have."""
    found: dict[int, type] = {}
    torch = sys.modules.get("torch")
    if torch is not None:
        found[id(torch.nn.Module)] = torch.nn.Module
    names = [name for name in sys.modules if _has_transforms(name)]
    for name in names:
        for kind in list(vars(sys.modules[name]).values()):
            is_own = isinstance(kind, type) and _has_transforms(kind.__module__)
            if is_own and "__call__" in vars(kind):
                found[id(kind)] = kind
    return list(found.values())


def _has_transforms(name: str) -> bool:
    """Whether a module may define transforms or image processors."""
    return name.startswith(
        ("torchvision.transforms", "timm.data", "transformers.image_processing")
    )


class _TracedImage:
    """An image of Pillow or a decoded tensor whose use is observed.

    Args:
        observer: Observes it.
        origin: The image, and the transforms that made it.
    """

    def __init__(self, observer: ImageObserver, origin: Origin) -> None:
        object.__setattr__(self, "_observer", observer)
        object.__setattr__(self, "_origin", origin)

    def __getattribute__(self, name: str) -> Any:
        origin = object.__getattribute__(self, "_origin")
        observer = object.__getattribute__(self, "_observer")
        if name == "__class__":
            # It counts as an image of Pillow, or as a tensor.
            return type(origin.value)
        is_file = not origin.steps and is_picture(origin.value)
        if name == "mode" and is_file:
            observer.asks_mode = True
            return origin.value.mode
        if name == "convert" and is_file:
            return functools.partial(observer.convert, origin)
        raise observer.fail(f"it uses {name} of images")
