"""infeed in Keras: the batches of a dataset of tf.data that `fit` receives."""

import functools
import importlib
from typing import Any

import keras
import numpy as np

from infeed.adopting.own_loops import is_own, own_loops
from infeed.adopting.recognize import RecognizedLoader, recognize
from infeed.adopting.tf_graphs import is_graph
from infeed.errors import ConfigError
from infeed.seeding import restore_generators
from infeed.trainers import Settings, settings_of
from infeed.trainers.loader import DIFFERENCE, print_line, report

NAME = "keras"
_TITLE = "Keras"
# Models inherit it from the trainer of their backend.
_ORIGINAL = keras.Model.fit


@functools.wraps(_ORIGINAL)
def fit(model: Any, x: Any = None, *arguments: Any, **options: Any) -> Any:
    """Trains a model, with the batches of infeed if it can make those of ``x``."""
    settings = settings_of(NAME)
    if settings is None or is_own() or not is_graph(x):
        return _ORIGINAL(model, x, *arguments, **options)
    with own_loops():
        found = _recognize(x, options)
        loader = found if isinstance(found, str) else _open(found, x, settings)
    if isinstance(loader, str):
        print_line(f"infeed: the batches of fit stay with {_TITLE}: {loader}")
        return _ORIGINAL(model, x, *arguments, **options)
    try:
        if epoch := int(options.get("initial_epoch") or 0):
            loader.set_epoch(epoch)
        is_tensorflow = keras.backend.backend() == "tensorflow"
        data = loader.dataset() if is_tensorflow else loader
        return _ORIGINAL(model, data, *arguments, **options)
    finally:
        loader.close()


def install() -> None:
    """Makes `keras.Model.fit` take the batches of tf.data from infeed."""
    keras.Model.fit = fit


def uninstall() -> None:
    """Gives `keras.Model.fit` back."""
    keras.Model.fit = _ORIGINAL


def _recognize(dataset: Any, options: dict[str, Any]) -> RecognizedLoader | str:
    """Returns the pipeline of a dataset, or the reason why it stays."""
    if options.get("steps_per_epoch") is not None:
        return "steps_per_epoch is set, and an epoch of infeed is a pass over the data"
    try:
        found = recognize(dataset)
    except ConfigError as error:
        return str(error).removeprefix("adopt: ")
    unknown = next((one for one in found.findings if one.became is None), None)
    return found if unknown is None else f"{unknown.part}: {unknown.reason}"


def _open(found: RecognizedLoader, dataset: Any, settings: Settings) -> Any:
    """Returns the loader that replaces a dataset, or why it stays, after comparing."""
    pipeline = found.pipeline
    if pipeline._seed is not None:
        # `keras.utils.set_random_seed` sets it.
        with restore_generators():
            pipeline = pipeline.shuffle(seed=int(np.random.randint(1 << 31)))
    scope = f"the batches of fit. Validation stays with {_TITLE}"
    compared = report(
        found.read, dataset, pipeline, settings, _TITLE, print_line, scope
    )
    if compared.proof is not None and not compared.proof.is_equivalent:
        return DIFFERENCE
    options = settings.options(settings.cache)
    if keras.backend.backend() == "tensorflow":
        adapter = importlib.import_module("infeed.tensorflow")
        return adapter.Loader(pipeline, found.batch_type, **options)
    return importlib.import_module("infeed.keras").Dataset(pipeline, **options)
