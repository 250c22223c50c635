"""Errors for loaders that are not those of PyTorch, with the code to write instead."""

import os
from collections.abc import Sequence
from typing import Any

from infeed.errors import ConfigError


def loader_error(loader: Any) -> ConfigError:
    """Returns the error for an object that is no DataLoader."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    name = type(loader).__name__
    if "tensorflow" in kinds:
        return ConfigError(_of_tf_data(loader))
    if "keras" in kinds:
        return ConfigError(
            f"adopt: the code of {name} makes whole batches, so its samples and "
            "transforms are unknown; write a pipeline over its files and compare its "
            "samples with infeed.compare_samples, or watch it with infeed.watch"
        )
    return ConfigError(f"adopt: a torch.utils.data.DataLoader is expected, got {name}")


def _of_tf_data(dataset: Any) -> str:
    """Returns the message for a tf.data dataset.

    Keras adds the files and class names to a dataset of a folder of images.
    """
    files = getattr(dataset, "file_paths", None)
    if not files:
        return (
            "adopt: a tf.data dataset hides its files and transforms in a graph; write "
            "infeed.Pipeline(sources.Folder(...)) or another source with the same "
            "steps, and compare its samples with infeed.compare_samples"
        )
    return (
        "adopt: a tf.data dataset hides its transforms in a graph; write the pipeline "
        "with the arguments of image_dataset_from_directory, and compare its samples "
        f"with infeed.compare_samples: {_folder_code(dataset, files)}"
    )


def _folder_code(dataset: Any, files: Sequence[str]) -> str:
    """Returns the pipeline for `image_dataset_from_directory`."""
    images = dataset.element_spec
    if isinstance(images, tuple):
        images = images[0]
    height, width = images.shape[-3:-1]
    classes = getattr(dataset, "class_names", None)
    root = os.path.commonpath([os.path.dirname(path) for path in files])
    if classes and os.path.basename(root) in classes:
        # All files have one class.
        root = os.path.dirname(root)
    channels = images.shape[-1]
    mode = 'image="gray"' if channels == 1 else ""
    # Keras returns floats from 0 to 255.
    values = f"T.Normalize((0.0,) * {channels}, (1 / 255,) * {channels})"
    batch = ".batch(batch_size)" if len(images.shape) == 4 else ""
    return (
        f'infeed.Pipeline(sources.Folder("{root}")).shuffle(seed=0).decode({mode})'
        f".transform(T.Resize(({height}, {width})), {values}){batch}"
    )
