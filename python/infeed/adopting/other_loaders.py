"""Errors for loaders that `adopt` does not read, with the code to write instead."""

from typing import Any

from infeed.errors import ConfigError


def loader_error(loader: Any) -> ConfigError:
    """Returns the error for an object that `adopt` does not read."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    name = type(loader).__name__
    if "keras" in kinds:
        return ConfigError(
            f"adopt: {name}.__getitem__ makes whole batches, so its samples are "
            "unknown; write the code for one sample in a class with __len__ and "
            "__getitem__, use infeed.Pipeline(sources.Items(samples)).batch(n), and "
            "compare its samples with infeed.adopting.compare_samples; or name the "
            "files as a source, or watch this loader with infeed.watch"
        )
    return ConfigError(
        "adopt: a torch.utils.data.DataLoader or a dataset of tf.data is expected, got "
        f"{name}"
    )
