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
# Parameters of `fit` that have data: the batches, and the number of their steps.
_BATCHES = {"x": "the batches of fit", "validation_data": "the batches of validation"}
_STEPS = {"x": "steps_per_epoch", "validation_data": "validation_steps"}
# Models inherit it from the trainer of their backend.
_ORIGINAL = keras.Model.fit


@functools.wraps(_ORIGINAL)
def fit(model: Any, x: Any = None, *arguments: Any, **options: Any) -> Any:
    """Trains a model, with the batches of infeed if it can make those of its data."""
    settings = settings_of(NAME)
    if settings is None or is_own():
        return _ORIGINAL(model, x, *arguments, **options)
    data = {"x": x, "validation_data": options.get("validation_data")}
    steps = {name: options.get(argument) for name, argument in _STEPS.items()}
    loaders = {}
    try:
        for name, dataset in data.items():
            if is_graph(dataset):
                loader = _loader_of(name, dataset, steps[name], settings)
                if loader is not None:
                    loaders[name] = loader
        if "x" in loaders and (epoch := int(options.get("initial_epoch") or 0)):
            loaders["x"].set_epoch(epoch)
        is_tensorflow = keras.backend.backend() == "tensorflow"
        made = {
            name: loader.dataset() if is_tensorflow else loader
            for name, loader in loaders.items()
        }
        return _ORIGINAL(model, made.pop("x", x), *arguments, **options | made)
    finally:
        for loader in loaders.values():
            loader.close()


def _loader_of(name: str, dataset: Any, steps: int | None, settings: Settings) -> Any:
    """Returns the loader that replaces a dataset; None if it stays.

    Args:
        name: The parameter of `fit` that has it.
        dataset: The dataset of tf.data.
        steps: Steps of an epoch; None: all of the data.
        settings: Settings of `infeed.install`.
    """
    with own_loops():
        found = _recognize(dataset, name, steps)
        loader = (
            found if isinstance(found, str) else _open(found, dataset, settings, name)
        )
    if isinstance(loader, str):
        print_line(f"infeed: {_BATCHES[name]} stay with {_TITLE}: {loader}")
        return None
    return loader


def install() -> None:
    """Makes `keras.Model.fit` take the batches of tf.data from infeed."""
    keras.Model.fit = fit


def uninstall() -> None:
    """Gives `keras.Model.fit` back."""
    keras.Model.fit = _ORIGINAL


def _recognize(dataset: Any, name: str, steps: int | None) -> RecognizedLoader | str:
    """Returns the pipeline of a dataset, or the reason why it stays."""
    if steps is not None:
        return f"{_STEPS[name]} is set, and an epoch of infeed is a pass over the data"
    try:
        found = recognize(dataset)
    except ConfigError as error:
        return str(error).removeprefix("adopt: ")
    unknown = next((one for one in found.findings if one.became is None), None)
    return found if unknown is None else f"{unknown.part}: {unknown.reason}"


def _open(found: RecognizedLoader, dataset: Any, settings: Settings, name: str) -> Any:
    """Returns the loader that replaces a dataset, or why it stays, after comparing."""
    pipeline = found.pipeline
    if pipeline._seed is not None:
        # `keras.utils.set_random_seed` sets it.
        with restore_generators():
            pipeline = pipeline.shuffle(seed=int(np.random.randint(1 << 31)))
    theirs = dataset if name == "x" else None
    compared = report(
        found.read, theirs, pipeline, settings, print_line, _BATCHES[name]
    )
    if compared.proof is not None and not compared.proof.is_equivalent:
        return DIFFERENCE
    options = settings.options(settings.cache)
    if keras.backend.backend() == "tensorflow":
        adapter = importlib.import_module("infeed.tensorflow")
        return adapter.Loader(pipeline, found.batch_type, **options)
    return importlib.import_module("infeed.keras").Dataset(pipeline, **options)
