"""Reads datasets of tf.data: their steps, and their samples by number.

A dataset refers to the dataset that it reads, and a ``map`` to its graph, so the chain
of steps is known. TensorFlow does not document these attributes: where one is missing,
the dataset cannot be adopted.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding

_SHUFFLE = ".shuffle(seed=0)"
# Methods that change no sample and no order, and what replaces them.
_KEPT = {
    "cache": ("nothing", "open the pipeline with cache= to keep decoded records"),
    "prefetch": ("nothing", "batches are made ahead"),
    "repeat": ("one loop per epoch", ""),
    "options": ("nothing", ""),
    "assert_cardinality": ("nothing", ""),
}
# What to write for methods that are not translated.
_HINTS = {
    "take": "with .take(n)",
    "filter": "with .filter(...) or on_error",
    "shard": "with rank= and world_size= of .open",
    "interleave": "over sources.TFRecord or another source of the files",
    "flat_map": "over sources.Items of an object with __len__ and __getitem__",
}
_HIDDEN = (
    "this version of TensorFlow hides the steps of a dataset; write the pipeline, and "
    "compare its samples with infeed.adopting.compare_samples"
)


class UnknownGraphError(Exception):
    """A dataset has a step that cannot be read; the text says how to go on."""


@dataclass
class GraphSteps:
    """The steps of a dataset of tf.data.

    Attributes:
        samples: The dataset of single samples, after its maps.
        batch_size: Samples per batch.
        drops: Whether a last batch that is not full is dropped.
        shuffles: Whether the order is random.
        batch_maps: Maps of whole batches, in order.
        findings: What the steps became, without maps.
    """

    samples: Any = None
    batch_size: int = 0
    drops: bool = False
    shuffles: bool = False
    batch_maps: list[Any] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def is_graph(loader: Any) -> bool:
    """Whether an object is a dataset of tf.data."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    return "tensorflow" in kinds and hasattr(loader, "element_spec")


def read_steps(dataset: Any) -> GraphSteps:
    """Returns the steps of a dataset.

    Raises:
        UnknownGraphError: A step is not known, or samples come without batches.
    """
    steps = GraphSteps()
    node, later = dataset, list[Finding]()
    while steps.samples is None:
        method = method_of(node)
        if method in ("batch", "parallel_batch"):
            steps.batch_size = int(_attribute(node, "_batch_size"))
            steps.drops = bool(_attribute(node, "_drop_remainder"))
            drops = ", drop_last=True" if steps.drops else ""
            became = f".batch({steps.batch_size}{drops})"
            later.append(Finding(f"batch({steps.batch_size})", became))
            steps.samples = only_input(node)
        elif method in ("map", "parallel_map"):
            steps.batch_maps.insert(0, node)
            node = only_input(node)
        else:
            later += _pass_through(node, method, steps)
            node = only_input(node)
    later += _of_samples(steps.samples, steps)
    steps.findings = later[::-1]
    return steps


def _of_samples(node: Any, steps: GraphSteps) -> list[Finding]:
    """Returns the findings of the steps before the batches."""
    found = list[Finding]()
    while (method := method_of(node)) not in ("tensor_slice", "zip"):
        if method not in ("map", "parallel_map"):
            found += _pass_through(node, method, steps)
        node = only_input(node)
    for one in inputs_of(node):
        found += _of_samples(one, steps)
    return found


def _pass_through(node: Any, method: str, steps: GraphSteps) -> list[Finding]:
    """Returns the finding of a step that makes no new samples."""
    if method == "shuffle":
        steps.shuffles = True
        size = int(_attribute(node, "_buffer_size"))
        reason = f"over all samples, and not over {size} of them"
        return [Finding("shuffle", _SHUFFLE, reason)]
    if method in _KEPT:
        return [Finding(method, *_KEPT[method])]
    if method in ("tensor_slice", "zip", "tensor"):
        raise UnknownGraphError(
            "the dataset of tf.data has single samples and no batch size; adopt "
            "dataset.batch(n)"
        )
    if not inputs_of(node):
        raise UnknownGraphError(
            f"elements of .{method}(...) of tf.data are not known by number; write the "
            "pipeline over sources.Items of an object with __len__ and __getitem__, or "
            "name the files as another source"
        )
    hint = _HINTS.get(method, "with the same step")
    raise UnknownGraphError(
        f".{method}(...) of tf.data is not translated; adopt the dataset before that "
        f"line, and write the pipeline {hint}"
    )


def method_of(node: Any) -> str:
    """Returns the method that makes such a dataset, such as ``parallel_map``."""
    name = type(node).__name__.lstrip("_").removesuffix("Dataset").removesuffix("V2")
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def inputs_of(node: Any) -> list[Any]:
    """Returns the datasets that a dataset reads."""
    try:
        return list(node._inputs())
    except AttributeError:
        raise UnknownGraphError(_HIDDEN) from None


def only_input(node: Any) -> Any:
    """Returns the dataset that a dataset reads."""
    inputs = inputs_of(node)
    if len(inputs) != 1:
        raise UnknownGraphError(
            f"{type(node).__name__} of tf.data is not translated; name the files or "
            "arrays as a source of infeed"
        )
    return inputs[0]


def _attribute(node: Any, name: str) -> Any:
    if not hasattr(node, name):
        raise UnknownGraphError(_HIDDEN)
    return getattr(node, name)


def python_function(node: Any) -> Any:
    """Returns the Python function of a map; None if it is not known."""
    return getattr(getattr(node, "_map_func", None), "_func", None)


def graph_of(node: Any) -> Any:
    """Returns the graph of a map: a function of tensors."""
    return _attribute(_attribute(node, "_map_func"), "function")


def field_names(spec: Any) -> list[str]:
    """Returns the field of each component of an element, as `sources.Items` names them.

    Args:
        spec: The ``element_spec``.
    """
    if not all(type(one).__name__ == "TensorSpec" for one in _flat(spec)):
        raise UnknownGraphError(
            "the dataset of tf.data has elements that are no tensors of one shape"
        )
    if isinstance(spec, Mapping):
        # tf.data has the components of a dictionary in the order of its keys.
        if not any(isinstance(one, Mapping | tuple) for one in spec.values()):
            return sorted(spec)
    elif not isinstance(spec, tuple):
        return ["image"]
    elif not any(isinstance(one, Mapping | tuple) for one in spec):
        return ["image", "label", *(f"field{at}" for at in range(2, len(spec)))][
            : len(spec)
        ]
    raise UnknownGraphError(
        "the dataset of tf.data has nested elements; return a tuple of image and "
        "label, or a dictionary of tensors"
    )


def _flat(spec: Any) -> list[Any]:
    parts = spec.values() if isinstance(spec, Mapping) else spec
    if isinstance(spec, Mapping | tuple):
        return [one for part in parts for one in _flat(part)]
    return [spec]


class GraphSamples:
    """Samples of a dataset without batches by number, in the order of its files.

    Shuffling is left out. Maps run as TensorFlow traced them.

    Args:
        node: The dataset of single samples.
    """

    def __init__(self, node: Any) -> None:
        self.node = node
        self._names = field_names(node.element_spec)

    def __len__(self) -> int:
        return _length(self.node)

    def __getitem__(self, number: int) -> Any:
        """Returns a tuple or a dictionary of arrays, or one array, as the dataset."""
        values = [one.numpy() for one in self.components(self.node, number)]
        if isinstance(self.node.element_spec, Mapping):
            return dict(zip(self._names, values, strict=True))
        return tuple(values) if len(values) > 1 else values[0]

    def components(self, node: Any, number: int) -> list[Any]:
        """Returns the tensors of an element of a dataset in this chain."""
        method = method_of(node)
        if method == "tensor_slice":
            return [tensor[number] for tensor in _attribute(node, "_tensors")]
        if method == "zip":
            parts = [self.components(one, number) for one in inputs_of(node)]
            return [tensor for part in parts for tensor in part]
        components = self.components(only_input(node), number)
        if method in ("map", "parallel_map"):
            return list(graph_of(node)(*components))
        return components


def _length(node: Any) -> int:
    method = method_of(node)
    if method == "tensor_slice":
        return int(_attribute(node, "_tensors")[0].shape[0])
    if method == "zip":
        return min(_length(one) for one in inputs_of(node))
    return _length(only_input(node))


class BatchedSamples:
    """Samples after maps of whole batches, which are called with one sample.

    Args:
        samples: The samples before the maps.
        maps: The maps of batches.
    """

    def __init__(self, samples: Any, maps: Sequence["GraphFunction"]) -> None:
        self.samples, self.maps = samples, tuple(maps)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> dict[str, Array]:
        """Returns the arrays of a sample by name."""
        item = self.samples[number]
        if not isinstance(item, Mapping):
            values = item if isinstance(item, tuple) else (item,)
            item = dict(zip(self.maps[0].inputs, values, strict=True))
        batch = {name: np.asarray(value)[None] for name, value in item.items()}
        for step in self.maps:
            batch = step(batch)
        return {name: array[0] for name, array in batch.items()}


class GraphFunction:
    """Calls the graph of a map with a batch of infeed.

    Args:
        node: The dataset that the map makes.
    """

    def __init__(self, node: Any) -> None:
        given = only_input(node).element_spec
        self.graph = graph_of(node)
        self.inputs = field_names(given)
        self.outputs = field_names(node.element_spec)
        if isinstance(given, Mapping):
            given = tuple(given[name] for name in self.inputs)
        self.types = [spec.dtype for spec in _flat(given)]
        function = python_function(node)
        self.name = getattr(function, "__name__", type(function).__name__)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Array]:
        """Returns the arrays that the graph makes of the batch's."""
        tensorflow = importlib.import_module("tensorflow")
        tensors = [
            tensorflow.cast(batch[name], kind)
            for name, kind in zip(self.inputs, self.types, strict=True)
        ]
        found = [np.array(tensor) for tensor in self.graph(*tensors)]
        return dict(zip(self.outputs, found, strict=True))
