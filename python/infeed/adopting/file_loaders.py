"""Reads the functions that load the image files of datasets.

torchvision's own loaders return Pillow images. A function of the program that only
calls an image decoder of torchcodec, and transforms after it, is traced: it is called
with copies of files, while the decoders return images whose use is observed.
"""

import contextlib
import functools
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.adopting.image_observer import ImageObserver, UntracedError, observe_call
from infeed.adopting.samples import array_of
from infeed.adopting.steps import Finding, Steps, translate
from infeed.adopting.traced_functions import calls_same, example_images

# Functions of torchvision that read an image as RGB.
_LOADERS = ("default_loader", "pil_loader")
# Module with the decoders of torchcodec, and the decoders of formats that infeed reads.
_MODULE = "torchcodec.decoders"
_DECODERS = ("decode_image", "decode_jpeg", "decode_png", "decode_webp", "decode_gif")
# Decoders of other formats.
_OTHERS = ("decode_avif", "decode_heic")
_OWN = "it has its own loader for files"


@dataclass(frozen=True)
class LoadedSteps:
    """The transforms of a dataset, after its loader of files.

    Attributes:
        steps: The translated transforms.
        orient: Whether the loader applies the EXIF orientation.
    """

    steps: Steps
    orient: bool = False


def translate_loader(load: Any, paths: Sequence[str], step: Any) -> LoadedSteps | str:
    """Translates a loader of files, and the transform after it.

    A text is the reason why the loader must be called in Python.

    Args:
        load: The function that returns the image of a path.
        paths: Paths of the dataset.
        step: The transform.
    """
    library = str(getattr(load, "__module__", "")).partition(".")[0]
    if library == "torchvision" and getattr(load, "__name__", "") in _LOADERS:
        return LoadedSteps(translate(step))
    if not _is_loaded() or not paths:
        return _OWN
    name = getattr(load, "__name__", type(load).__name__)
    examples = _examples(paths)
    try:
        found = trace_loader(load, examples)
    except (OSError, UntracedError) as error:
        return f"its loader {name}: {error}"
    if found is None:
        return _OWN
    texts = [*map(repr, found.steps)]

    def check() -> bool:
        try:
            again = trace_loader(load, examples)
        except (OSError, UntracedError):
            return False
        return again is not None and calls_same(found.steps, again.steps, texts)

    steps = translate([*found.steps, step], is_tensor=True)
    steps.checks.append(check)
    code, reason = ".decode(orient=True)", "it applies the EXIF orientation"
    steps.findings.insert(0, Finding(", ".join(found.decoders), code, reason))
    return LoadedSteps(steps, orient=True)


@dataclass(frozen=True)
class TracedLoader:
    """A loader that only decodes files with torchcodec, and calls transforms.

    Attributes:
        decoders: Names of the functions of torchcodec that it calls.
        steps: The transforms, in their order.
    """

    decoders: tuple[str, ...]
    steps: tuple[Any, ...]


def trace_loader(
    load: Callable[[str], Any], paths: Sequence[str]
) -> TracedLoader | None:
    """Returns the decoders and transforms that a loader of files calls.

    None if it calls no decoder of torchcodec.

    Raises:
        OSError: A file cannot be copied.
        UntracedError: It decodes in another mode, type or device, or does more to
            images.
    """
    images = itertools.cycle(example_images(is_tensor=True))
    names: dict[str, None] = {}
    found: list[tuple[Any, ...]] = []
    bound = _find_names()
    with tempfile.TemporaryDirectory() as folder:
        for number, (path, image) in enumerate(zip(paths, images, strict=False)):
            # A loader that keeps its results keeps none for the dataset's own paths.
            copy = os.path.join(folder, f"{number}{os.path.splitext(path)[1]}")
            shutil.copyfile(path, copy)
            called = _trace_call(load, copy, image, bound)
            if called is None:
                return None
            names |= dict.fromkeys(called.decoders)
            found.append(called.steps)
    if any([*map(id, one)] != [*map(id, found[0])] for one in found):
        raise UntracedError("it makes its transforms in each call, or has several")
    return TracedLoader(tuple(names), found[0])


def _trace_call(
    load: Callable[[str], Any],
    path: str,
    image: Any,
    bound: Sequence[tuple[dict[str, Any], str, Any]],
) -> TracedLoader | None:
    """Traces one call of a loader, whose decoders return this image."""
    observer = ImageObserver()
    called: list[str] = []
    functions = {
        id(original): _observe_decoder(observer, name, path, image, called)
        for name, original in _decoders().items()
    }
    try:
        with _bind(bound, functions):
            made = observe_call(observer, _replace(load, functions), path)
    except UntracedError:
        if not called:
            return None
        raise
    if not called:
        return None
    origin = observer.origin_of(made)
    if origin is None:
        raise UntracedError("it changes values itself")
    return TracedLoader(tuple(called), origin.steps)


def _is_loaded() -> bool:
    """Whether the program has imported the decoders of torchcodec."""
    return hasattr(sys.modules.get(_MODULE), _DECODERS[0])


def _decoders() -> dict[str, Any]:
    """Returns the image decoders of torchcodec by name."""
    module = sys.modules[_MODULE]
    names = (*_DECODERS, *_OTHERS)
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _examples(paths: Sequence[str]) -> list[str]:
    """Returns a path for each ending of the files, and at least two paths."""
    found = {os.path.splitext(path)[1].lower(): path for path in reversed(paths)}
    return [*found.values(), paths[-1]]


def _observe_decoder(
    observer: ImageObserver, name: str, path: str, image: Any, called: list[str]
) -> Callable[..., Any]:
    """Returns a function that takes the place of a decoder of torchcodec.

    It returns an image whose use is observed, and notes its name in a list.
    """

    def decode(
        source: Any,
        *,
        mode: Any = "RGB",
        output_dtype: Any = "torch.uint8",
        device: Any = "cpu",
        **options: Any,
    ) -> Any:
        called.append(name)
        if name in _OTHERS:
            format_name = name.removeprefix("decode_").upper()
            raise observer.fail(f"infeed does not decode {format_name}")
        mode = getattr(mode, "name", str(mode).upper())
        if mode != "RGB":
            raise observer.fail(f'it decodes with mode="{mode}"; only RGB is replaced')
        if str(output_dtype) != "torch.uint8":
            raise observer.fail(f"it decodes with output_dtype={output_dtype}")
        if str(device) != "cpu":
            raise observer.fail(f"it decodes on the device {device}")
        if options:
            raise observer.fail(f"it decodes with {', '.join(options)}")
        if not _is_file(source, path):
            raise observer.fail("it decodes other bytes than those of the file")
        return observer.image(image)

    return decode


def _is_file(source: Any, path: str) -> bool:
    """Whether a decoder receives a file, as its path or its bytes."""
    if isinstance(source, str | os.PathLike):
        return os.path.exists(source) and os.path.samefile(source, path)
    if not isinstance(source, bytes | bytearray):
        # A tensor of the bytes.
        source = None if (array := array_of(source)) is None else array.tobytes()
    return bool(source == Path(path).read_bytes())


def _replace(load: Any, functions: Mapping[int, Any]) -> Callable[[Any], Any]:
    """Returns a loader with other decoders, if it is one itself or calls it only."""
    if isinstance(load, functools.partial):
        inner = _replace(load.func, functions)
        return functools.partial(inner, *load.args, **load.keywords)
    found: Callable[[Any], Any] = functions.get(id(load), load)
    return found


def _find_names() -> list[tuple[dict[str, Any], str, Any]]:
    """Returns the names of decoders in all modules: the module's names, name, value."""
    known = {id(decoder) for decoder in _decoders().values()}
    modules = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    return [
        (names, name, value)
        for names in modules
        for name, value in [*names.items()]
        if id(value) in known
    ]


@contextlib.contextmanager
def _bind(
    bound: Sequence[tuple[dict[str, Any], str, Any]], functions: Mapping[int, Any]
) -> Iterator[None]:
    """Binds names of decoders to other functions in its block.

    Args:
        bound: The names, as `_find_names` returns them.
        functions: The other functions, by the identity of the decoders.
    """
    try:
        for names, name, decoder in bound:
            names[name] = functions[id(decoder)]
        yield
    finally:
        for names, name, decoder in bound:
            names[name] = decoder
