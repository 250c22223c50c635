"""Reads datasets of tf.data, best those of Keras's `image_dataset_from_directory`."""

import importlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from infeed import _core, sources, transforms
from infeed.adopting.adopted_dataset import AdoptedDataset, native_dataset
from infeed.adopting.folder_records import listed_files
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding, Steps
from infeed.adopting.tf_graphs import (
    BatchedSamples,
    GraphFunction,
    GraphSamples,
    GraphSteps,
    method_of,
    only_input,
    python_function,
)
from infeed.pipeline import Pipeline

_MODES: dict[int, Any] = {1: {"image": "gray"}, 3: {}, 4: {"image": "rgba"}}
_JPEG = b"\xff\xd8"
# Files whose pixels show how much the decoders differ.
_DECODED = 16
_CALLED = "its graph is called for each sample"
_RANDOM = "random numbers in it are TensorFlow's"

LabelMode = Literal["none", "int", "binary", "categorical"]


@dataclass(frozen=True)
class KerasFolder:
    """Arguments of `image_dataset_from_directory`, and the files of its dataset.

    Attributes:
        node: The dataset that reads and resizes the files.
        files: Paths of the files.
        labels: Number of each file's class; empty without labels.
        label_mode: Form of the labels.
        classes: Number of classes in one-hot labels.
        size: Height and width of its images.
        channels: Channels of its images.
        interpolation: Its filter.
        layout: ``"channels_last"`` or ``"channels_first"``.
        keeps_aspect: Whether images are cropped or padded to the aspect of the size.
    """

    node: Any
    files: Sequence[str]
    labels: Sequence[int]
    label_mode: LabelMode
    classes: int
    size: tuple[int, int]
    channels: int
    interpolation: str
    layout: str
    keeps_aspect: bool


class LabelConverter:
    """Converts numbers of classes to the labels of Keras.

    Args:
        label_mode: ``"binary"`` or ``"categorical"``.
        classes: Number of classes.
    """

    def __init__(self, label_mode: LabelMode, classes: int) -> None:
        self.label_mode, self.classes = label_mode, classes

    def __call__(self, fields: dict[str, Any]) -> dict[str, Array]:
        """Returns the labels of a sample or batch, as floats."""
        label = np.asarray(fields["label"])
        if self.label_mode == "binary":
            return {"label": label.astype(np.float32)[..., None]}
        return {"label": np.eye(self.classes, dtype=np.float32)[label]}

    @property
    def code(self) -> str:
        """The function as lines of a program."""
        if self.label_mode == "binary":
            label = 'fields["label"].astype("float32")[..., None]'
        else:
            label = f'np.eye({self.classes}, dtype="float32")[fields["label"]]'
        return f'def convert_label(fields):\n    return {{"label": {label}}}'


def read_graph(steps: GraphSteps) -> AdoptedDataset:
    """Returns the pipeline of the samples of a dataset of tf.data.

    Raises:
        UnknownGraphError: A step is not known.
    """
    batch_maps = [GraphFunction(node) for node in steps.batch_maps]
    folder = _keras_folder(steps.samples)
    maps = list[GraphFunction]()
    reason = "it is no image_dataset_from_directory of Keras"
    read: AdoptedDataset | str = reason
    if folder is not None:
        maps = _maps_above(steps.samples, folder.node)
        read = _native(folder, steps.samples, maps)
    if isinstance(read, str):
        read = _in_python(steps.samples, folder is not None, read)
    records, findings = read.records, list(read.findings)
    for step in batch_maps:
        records = records.python_batch(step)
        reason = f"its graph is called with batches; {_RANDOM}"
        findings.append(Finding(f"map({step.name})", None, reason))
    dataset = BatchedSamples(read.dataset, batch_maps) if batch_maps else read.dataset
    is_dict = isinstance((steps.batch_maps or [steps.samples])[-1].element_spec, dict)
    names, variables = dict(read.names), dict(read.variables)
    if batch_maps or (maps and not read.is_python):
        meaning = "map_function: calls the graph of .map(...), as in adopted.pipeline"
        names["GraphFunction"] = ("map_function", meaning)
        variables["map_function"] = (batch_maps or maps)[0]
    return replace(
        read,
        dataset=dataset,
        records=records,
        names=names,
        variables=variables,
        findings=tuple(findings),
        batch_type="dict" if is_dict else "tuple",
        adapter="tensorflow",
    )


def _in_python(node: Any, is_folder: bool, reason: str) -> AdoptedDataset:
    samples = GraphSamples(node)
    source = sources.Items(samples)
    name = "image_dataset_from_directory" if is_folder else "tf.data"
    finding = Finding(name, None, f"{reason}; {_CALLED}")
    meaning = "samples: adopted.pipeline.source.dataset, the samples by number"
    variable = ("sources.Items(samples)", meaning)
    names = {repr(source): variable}
    return AdoptedDataset(
        samples,
        Pipeline(source),
        (finding,),
        names=names,
        variables={"samples": samples},
        is_python=True,
    )


def _keras_folder(node: Any) -> KerasFolder | None:
    """Returns the arguments of the folder that Keras reads; None if it is no such."""
    while method_of(node) not in ("tensor_slice", "zip"):
        function = python_function(node)
        module = getattr(function, "__module__", "") or ""
        if module.startswith("keras.") and "image_dataset" in module:
            return _arguments(node, function)
        node = only_input(node)
    return None


def _arguments(node: Any, function: Any) -> KerasFolder | None:
    """Returns the arguments that Keras's function keeps for its `map`."""
    code, cells = function.__code__, function.__closure__ or ()
    kept = dict(zip(code.co_freevars, cells, strict=True))
    given: Sequence[Any] = kept["args"].cell_contents if "args" in kept else ()
    if len(given) < 4:
        return None
    size, channels, interpolation, layout, *aspect = given
    branches = _branches(node)
    files = [path.decode() for path in _sliced_array(branches[0]).tolist()]
    spec = node.element_spec
    mode: LabelMode = "none"
    labels, classes = [], 0
    if isinstance(spec, tuple):
        labels = _sliced_array(branches[1]).tolist()
        mode, shape = "int", spec[1].shape.as_list()
        if shape:
            classes = int(shape[0])
            mode = "binary" if classes == 1 else "categorical"
    return KerasFolder(
        node,
        files,
        labels,
        mode,
        classes,
        (int(size[0]), int(size[1])),
        int(channels),
        str(interpolation),
        str(layout),
        any(aspect),
    )


def _branches(node: Any) -> list[Any]:
    """Returns the datasets of files and labels that Keras's `map` receives."""
    node = only_input(node)
    while method_of(node) not in ("tensor_slice", "zip"):
        node = only_input(node)
    return [node] if method_of(node) == "tensor_slice" else list(node._inputs())


def _sliced_array(node: Any) -> Array:
    """Returns the array whose slices a dataset has, without its maps."""
    while method_of(node) != "tensor_slice":
        node = only_input(node)
    return np.asarray(node._tensors[0])


def _maps_above(node: Any, below: Any) -> list[GraphFunction]:
    """Returns the maps of single samples after another dataset."""
    found: list[GraphFunction] = []
    while node is not below:
        if method_of(node) in ("map", "parallel_map"):
            found.insert(0, GraphFunction(node))
        node = only_input(node)
    return found


def _native(
    folder: KerasFolder, node: Any, maps: Sequence[GraphFunction]
) -> AdoptedDataset | str:
    """Returns the pipeline of a folder, or the reason why its graph is called.

    Args:
        folder: The folder.
        node: The dataset of its samples after the maps.
        maps: Maps of its samples.
    """
    if folder.keeps_aspect:
        return "no transform crops or pads to an aspect ratio"
    if folder.interpolation == "nearest":
        return "it chooses another pixel than infeed where two are equally near"
    if folder.interpolation != "bilinear":
        return f'its values with interpolation="{folder.interpolation}" are not clipped'
    root = _root(folder)
    if root is None:
        return "its labels are not the numbers of the folders in sorted order"
    listed = listed_files(root, is_labelled=folder.label_mode != "none")
    ranks = {path: rank for rank, path in enumerate(listed)}
    if not all(path in ranks for path in folder.files):
        return f"its files are not below {root}"
    chosen = np.array([ranks[path] for path in folder.files], np.int64)
    resize = transforms.Resize(folder.size, antialias=False)
    # Keras returns floats from 0 to 255.
    zeros, units = (0.0,) * folder.channels, (1 / 255,) * folder.channels
    scale = transforms.Normalize(zeros, units)
    is_first = folder.layout == "channels_first"
    steps = Steps([resize, scale], layout="CHW" if is_first else "HWC")
    part = f'image_size={folder.size}, interpolation="bilinear"'
    steps.findings = [
        *_decoding(folder),
        Finding(part, repr(resize), "pixels become whole numbers"),
        Finding("values from 0 to 255", repr(scale)),
    ]
    labels = "auto" if folder.label_mode != "none" else "none"
    source = sources.Folder(root, labels=labels)
    finding = Finding("image_dataset_from_directory", repr(source))
    dataset = DecodedExactly(node, folder.channels, len(listed), chosen)
    mode = _MODES[folder.channels]
    read = native_dataset(dataset, source, finding, steps, **mode)
    read = _with_labels(read, folder, bool(maps))
    records, findings = read.records, list(read.findings)
    for step in maps:
        records = records.python(step)
        reason = f"its graph is called with samples; {_RANDOM}"
        findings.append(Finding(f"map({step.name})", None, reason))
    is_part = len(set(chosen.tolist())) < len(listed)
    return replace(
        read,
        records=records,
        findings=tuple(findings),
        chosen=chosen if is_part else None,
    )


def _decoding(folder: KerasFolder) -> list[Finding]:
    """Returns how much TensorFlow's decoder differs from an exact one."""
    apart = _decoders_apart(folder)
    if apart is None:
        return []
    mean, most = apart
    reason = (
        "TensorFlow decodes JPEGs with an approximate cosine transform: its pixels "
        f"differ by {mean:.1f} levels on average, and by up to {most:.0f}; the proof "
        "leaves this out"
    )
    return [Finding("decode_image", ".decode()", reason)]


def _with_labels(
    read: AdoptedDataset, folder: KerasFolder, has_maps: bool
) -> AdoptedDataset:
    """Returns the pipeline with labels in the form of Keras."""
    part = f'label_mode="{folder.label_mode}"'
    if folder.label_mode == "none":
        return read
    if folder.label_mode == "int":
        finding = Finding(part, "labels", "int64 instead of int32")
        return replace(read, findings=(*read.findings, finding))
    converter = LabelConverter(folder.label_mode, folder.classes)
    records = read.records
    if has_maps:
        records = records.python(converter, fields=["label"])
    else:
        records = records.python_batch(converter, fields=["label"])
    finding = Finding(part, None, "one call for the labels of each batch")
    names = {**read.names, "LabelConverter": ("convert_label", converter.code)}
    return replace(
        read, records=records, findings=(*read.findings, finding), names=names
    )


def _root(folder: KerasFolder) -> str | None:
    """Returns the folder of the folders of classes; None if there is no such."""
    root = os.path.commonpath([os.path.dirname(path) for path in folder.files])
    if folder.label_mode == "none":
        return root
    while True:
        with os.scandir(root) as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
        names = sorted(name for name in folders if not name.startswith("."))
        numbers = {name: number for number, name in enumerate(names)}
        start = len(os.path.join(root, ""))
        found = [numbers.get(path[start:].split(os.sep)[0]) for path in folder.files]
        if found == list(folder.labels):
            return root
        if (above := os.path.dirname(root)) == root:
            return None
        root = above


class DecodedExactly(GraphSamples):
    """Samples of a folder of Keras, whose JPEGs an exact decoder has decoded.

    The dataset's own graph makes them. It receives the exact pixels of a JPEG as a PNG.

    Args:
        node: The dataset of single samples.
        channels: Channels that TensorFlow decodes.
        records: Number of records of the folder's source.
        rows: The record of each file.
    """

    def __init__(self, node: Any, channels: int, records: int, rows: Array) -> None:
        super().__init__(node)
        self._channels, self._records = channels, records
        self._numbers = {int(row): number for number, row in enumerate(rows)}
        self._files = tempfile.TemporaryDirectory(prefix="infeed-adopt-")

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, number: int) -> Any:
        """Returns the sample of a record of the source."""
        return super().__getitem__(self._numbers[number])

    def components(self, node: Any, number: int) -> list[Any]:
        """As in `GraphSamples`, with another file for a JPEG."""
        found = super().components(node, number)
        if method_of(node) != "tensor_slice" or found[0].dtype.name != "string":
            return found
        data = _core.read_file(found[0].numpy().decode())
        if not data.startswith(_JPEG):
            return found
        tensorflow = importlib.import_module("tensorflow")
        path = Path(self._files.name) / f"{number}.png"
        if not path.exists():
            pixels = _exact(data, self._channels)
            path.write_bytes(tensorflow.io.encode_png(pixels).numpy())
        return [tensorflow.constant(str(path))]


def _exact(data: bytes, channels: int) -> Any:
    """Returns the pixels of a JPEG, decoded with the exact cosine transform."""
    tensorflow = importlib.import_module("tensorflow")
    method = "INTEGER_ACCURATE"
    return tensorflow.io.decode_jpeg(data, channels=channels, dct_method=method)


def _decoders_apart(folder: KerasFolder) -> tuple[float, float] | None:
    """Returns the mean and largest difference of TensorFlow's pixels of some JPEGs."""
    tensorflow = importlib.import_module("tensorflow")
    means, most = [], 0.0
    step = max(len(folder.files) // _DECODED, 1)
    for path in folder.files[::step][:_DECODED]:
        data = _core.read_file(path)
        if data.startswith(_JPEG):
            exact = np.asarray(_exact(data, folder.channels), np.int16)
            own = tensorflow.io.decode_jpeg(data, channels=folder.channels)
            apart = np.abs(np.asarray(own, np.int16) - exact)
            means.append(float(apart.mean()))
            most = max(most, float(apart.max()))
    return (float(np.mean(means)), most) if means else None
