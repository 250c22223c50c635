"""A watch around a PyTorch DataLoader."""

import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from requirements import framework_test, import_or_skip

import infeed
from infeed.adopting.annotations import unwritten, written_annotations
from infeed.adopting.prefetch_loader import unwrap
from infeed.adopting.python_code import adopted_code

torch = import_or_skip("torch")
pytestmark = framework_test


class Numbers(torch.utils.data.Dataset):
    """Rows with their number, each after a pause; one of them may be broken."""

    def __init__(self, count=48, pause_s=0.0, broken=None):
        self.count, self.pause_s, self.broken = count, pause_s, broken

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        if n == self.broken:
            raise ValueError(f"record {n} is broken")
        time.sleep(self.pause_s)
        return np.full((3,), n, np.float32), n


def loader(workers=0, **settings):
    numbers = Numbers(**settings)
    return torch.utils.data.DataLoader(numbers, batch_size=4, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_loader(workers):
    plain = [labels.tolist() for _, labels in loader(workers)]
    watch = infeed.watch(loader(workers))

    watched = [[labels.tolist() for _, labels in watch] for _ in range(2)]

    assert watched == [plain, plain]
    assert len(watch) == 12
    assert watch.report().figures.samples == 96
    assert watch.report().figures.loader.startswith("torch.utils.data")


def test_slow_worker_processes_limit_the_loop():
    watch = infeed.watch(loader(workers=2, pause_s=0.02))

    for _ in watch:
        pass

    report = watch.report()
    assert report.verdict.limit == "loader"
    assert report.figures.waiting > 0.5
    # The pipeline of `infeed adopt` calls the same code.
    assert "infeed adopt train.py" not in str(report)
    assert report.verdict.not_worth[0].startswith("infeed.adopt: it calls Numbers.")
    # In as many processes it is as fast as in the workers of the loader.
    assert report.figures.calls.adopted.in_processes
    assert ", 0 % faster, " in report.verdict.not_worth[0]


def test_a_slow_step_limits_while_workers_are_ahead(monkeypatch):
    rows = loader(workers=2, count=24)
    ready = list(rows)
    iterate = torch.utils.data.DataLoader.__iter__
    # On some machines, receiving a batch that is ready takes a tenth of the time that
    # the process slept.
    monkeypatch.setattr(
        torch.utils.data.DataLoader,
        "__iter__",
        lambda self: iter(ready) if self is rows else iterate(self),
    )
    watch = infeed.watch(rows, ceiling=5)

    for _ in watch:
        time.sleep(0.1)

    report = watch.report()
    assert report.verdict.limit == "step"
    assert report.figures.alone.step.count == 5
    assert "infeed adopt" not in str(report)
    assert report.figures.alone.at_rest


def test_an_error_in_a_worker_passes_through():
    watch = infeed.watch(loader(workers=2, broken=9))

    with pytest.raises(ValueError, match="record 9 is broken"):
        list(iter(watch))

    assert watch.report().figures.batches == 2


def test_leaving_the_loop_ends_the_workers():
    # The error of another test may still hold its workers.
    before = set(multiprocessing.active_children())
    watch = infeed.watch(loader(workers=2))

    for _ in watch:
        assert len(set(multiprocessing.active_children()) - before) == 2
        break

    assert set(multiprocessing.active_children()) <= before


def test_processor_time_of_worker_processes_is_counted():
    class Spinning(Numbers):
        def __getitem__(self, n):
            until = time.process_time() + 0.03
            while time.process_time() < until:
                pass
            return n

    watch = infeed.watch(
        torch.utils.data.DataLoader(Spinning(), batch_size=4, num_workers=2)
    )
    for _ in watch:
        pass

    processor = watch.report().figures.processor
    assert processor.children > 0.3
    assert processor.loop < 0.3


class Pausing:
    """A step of the program that uses no core."""

    def __call__(self, row):
        time.sleep(0.03)
        return row


class Computing:
    """A step of the program that holds a core."""

    def __call__(self, row):
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        return row


class Steps(Numbers):
    """Rows that go through a step."""

    def __init__(self, step, **settings):
        super().__init__(**settings)
        self.step = step

    def __getitem__(self, n):
        row, label = super().__getitem__(n)
        return self.step(row), label


def watch_epoch(step, workers):
    """Returns a watch after an epoch of eight samples."""
    rows = torch.utils.data.DataLoader(
        Steps(step, count=8), batch_size=2, num_workers=workers
    )
    watch = infeed.watch(rows)
    for _ in watch:
        pass
    return watch


@pytest.mark.parametrize("workers", [0, 2])
def test_the_step_that_computes_is_named(workers):
    watch = watch_epoch(Computing(), workers)

    report = watch.report()

    calls = report.figures.calls
    assert (calls.workers, calls.samples) == (workers, 7)
    slowest = calls.parts[0]
    assert (slowest.name, slowest.kind) == ("Computing", "program")
    assert slowest.processor_s >= 0.03
    assert calls.idle_s < 0.5 * calls.wall_s
    assert any("a faster Computing: it takes" in line for line in report.verdict.advice)
    # One report measures it, and others repeat it.
    assert watch.report().figures.calls is calls


def test_a_dataset_that_sleeps_gets_more_workers():
    report = watch_epoch(Pausing(), workers=2).report()

    calls = report.figures.calls
    assert calls.parts[0].name == "Pausing"
    assert calls.idle_s >= 0.03
    assert report.verdict.advice[0].startswith("num_workers=")
    assert "instead of 2" in report.verdict.advice[0]


def test_functions_are_named_and_those_of_the_dataset_are_reading():
    def brighten(row):
        return Computing()(row) + 1

    class Reading(Numbers):
        def __getitem__(self, n):
            return read(n)

    def read(n):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return n

    calls = watch_epoch(lambda row: brighten(row), 0).report().figures.calls
    assert [part.kind for part in calls.parts][:1] == ["program"]
    assert calls.parts[0].name == "Computing"

    rows = torch.utils.data.DataLoader(Reading(count=8), batch_size=2)
    watch = infeed.watch(rows)
    list(iter(watch))
    (part, *_) = watch.report().figures.calls.parts
    assert (part.name, part.kind) == ("read()", "dataset")


@pytest.mark.parametrize("workers", [0, 1])
def test_measuring_the_calls_changes_nothing_in_the_process_of_the_loop(workers):
    class Counting(Numbers):
        read = 0

        def __getitem__(self, n):
            Counting.read += 1
            time.sleep(0.005)
            return n + torch.rand(1)

    watch = infeed.watch(
        torch.utils.data.DataLoader(Counting(count=8), 2, num_workers=workers)
    )
    list(iter(watch))
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    before = Counting.read

    assert watch.report().figures.calls is not None

    assert Counting.read == before
    assert (torch.rand(1), np.random.rand()) == expected


def test_a_dataset_that_fails_has_no_calls_and_no_error():
    watch = infeed.watch(loader(workers=0, count=8, pause_s=0.01))
    list(iter(watch))
    watch._loader.dataset.broken = 0

    report = watch.report()

    assert report.figures.calls is None
    assert report.verdict.limit == "loader"


def write_photographs(folder):
    """Writes 24 images in two classes."""
    image = import_or_skip("PIL.Image")
    for n in range(24):
        path = folder / "ab"[n % 2] / f"{n:02}.png"
        path.parent.mkdir(exist_ok=True)
        image.new("RGB", (24, 24), (n, n, n)).save(path)


def to_slow_array(image):
    """Converts an image, in Python and without the interpreter's lock."""
    time.sleep(0.01)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def report_loop(dataset, files, **settings):
    """Returns the report of a loop with two workers, next to infeed over the files."""
    settings = {"num_workers": 2, **settings}
    rows = torch.utils.data.DataLoader(dataset, batch_size=4, **settings)
    watch = infeed.watch(rows, files=files, lock=False)
    for _ in range(2):
        list(iter(watch))
    return watch.report(seconds=0.1)


def own_folder(folder):
    datasets = import_or_skip("torchvision.datasets")

    class OwnFolder(datasets.ImageFolder):
        def __getitem__(self, n):
            return super().__getitem__(n)

    return OwnFolder(folder, to_slow_array), "OwnFolder.__getitem__"


def own_dataset(folder):
    class Photographs(torch.utils.data.Dataset):
        def __init__(self):
            self.paths = sorted(folder.rglob("*.png"))

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, n):
            return to_slow_array(import_or_skip("PIL.Image").open(self.paths[n])), n

    return Photographs(), "Photographs.__getitem__"


def subset(folder):
    dataset, name = own_dataset(folder)
    return torch.utils.data.Subset(dataset, range(20)), name


def own_loader(folder):
    """Returns a dataset of torchvision with a function that reads the files."""
    datasets = import_or_skip("torchvision.datasets")

    def open_image(path):
        return import_or_skip("PIL.Image").open(path)

    dataset = datasets.ImageFolder(folder, to_slow_array, loader=open_image)
    return dataset, "ImageFolder.__getitem__"


def with_transform(folder):
    library = import_or_skip("datasets")

    def brighten_rows(rows):
        return {"image": [to_slow_array(image) for image in rows["image"]]}

    paths = [str(path) for path in sorted(folder.rglob("*.png"))]
    table = library.Dataset.from_dict({"image": paths})
    table = table.cast_column("image", library.Image())
    return table.with_transform(brighten_rows), "brighten_rows"


@pytest.mark.parametrize(
    "make", [own_dataset, own_folder, own_loader, subset, with_transform]
)
def test_a_rate_over_files_is_conditional_if_adopt_calls_the_dataset(
    tmp_path, make, monkeypatch
):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    write_photographs(tmp_path)
    dataset, name = make(tmp_path)

    report = report_loop(dataset, tmp_path)

    assert report.figures.calls.adopted.dataset == name
    assert report.to_dict()["calls"]["adopted"]["in_processes"] is False
    lines = [*report.verdict.advice, *report.verdict.not_worth]
    (conditional,) = [line for line in lines if line.startswith("infeed, if ")]
    assert f"reads the files itself instead of {name}: min(" in conditional
    assert report.verdict.advice[0] != conditional
    assert not [line for line in lines if line.startswith("infeed: ")]
    # One call at a time is slower than two workers.
    (adopt,) = [line for line in lines if line.startswith("infeed.adopt: ")]
    assert adopt in report.verdict.not_worth
    assert "one call at a time runs, because " in adopt
    assert adopt.endswith("move it to a module, or install cloudpickle")
    assert "infeed adopt train.py" not in str(report)


def test_a_rate_over_files_is_certain_if_a_source_replaces_the_dataset(tmp_path):
    write_photographs(tmp_path)
    datasets = import_or_skip("torchvision.datasets")
    dataset = datasets.ImageFolder(tmp_path, to_slow_array)

    report = report_loop(dataset, tmp_path)

    adopted = report.figures.calls.adopted
    assert (adopted.dataset, adopted.in_processes) == (None, True)
    lines = [*report.verdict.advice, *report.verdict.not_worth]
    assert [line for line in lines if line.startswith("infeed: min(")]
    assert not [line for line in lines if line.startswith("infeed, if")]
    last = str(report).splitlines()[-1]
    assert last.startswith("  adopt      `infeed adopt train.py:make_loader`")
    assert len(last) <= 100


def test_a_step_of_a_library_that_infeed_does_not_have_counts_as_python(tmp_path):
    write_photographs(tmp_path)
    datasets = import_or_skip("torchvision.datasets")
    vision = import_or_skip("torchvision.transforms.v2")
    augment = import_or_skip("timm.data.auto_augment").rand_augment_transform(
        "rand-m5", {}
    )
    steps = [vision.Resize((32, 32)), augment, vision.ToImage()]

    report = report_loop(
        datasets.ImageFolder(tmp_path, vision.Compose(steps)), tmp_path
    )

    kinds = {part.name: part.kind for part in report.figures.calls.parts}
    assert kinds["AugmentOp"] == "program"
    lines = [*report.verdict.advice, *report.verdict.not_worth]
    (line,) = (line for line in lines if line.startswith("infeed: min("))
    assert "with processes= for" in line
    assert "RandAugment, ToImage" in line


def test_the_measured_call_contains_the_steps_of_the_loader(tmp_path):
    write_photographs(tmp_path)
    data = import_or_skip("timm.data")
    loader = data.create_loader(
        data.create_dataset("", root=str(tmp_path), split="train", is_training=True),
        input_size=(3, 32, 32),
        batch_size=4,
        is_training=True,
        auto_augment="rand-m5",
        re_prob=0.25,
        device=torch.device("cpu"),
    )

    adopted, _ = adopted_code(unwrap(loader)[1], 2)

    names = "RandAugment, MaybePILToTensor, BatchNormalize, RandomErasing"
    assert adopted.steps.names == names
    assert adopted.steps.processor_s > 0
    watch = infeed.watch(loader, files=tmp_path, lock=False)
    list(iter(watch))
    report = watch.report(seconds=0.1)
    assert report.to_dict()["calls"]["adopted"]["steps"]["names"] == names
    assert any(f"infeed with {names} in" in line for line in report.verdict.capacity)


class Sleep:
    def __call__(self, image):
        time.sleep(0.01)
        return image


class Fail:
    def __call__(self, image):
        raise ValueError("no image")


def test_the_measured_call_of_a_step_that_sleeps_is_mostly_idle(tmp_path):
    write_photographs(tmp_path)
    datasets = import_or_skip("torchvision.datasets")
    vision = import_or_skip("torchvision.transforms.v2")

    def adopt_step(step):
        steps = vision.Compose([vision.Resize((32, 32)), step, vision.ToImage()])
        return adopted_code(datasets.ImageFolder(tmp_path, steps), 2)[0]

    asleep = adopt_step(Sleep()).steps

    assert asleep.names == "Sleep, ToImage"
    assert asleep.wall_s - asleep.processor_s > 0.005
    assert adopt_step(Fail()).steps is None


def test_steps_that_no_process_can_load_have_the_fix_as_condition(
    tmp_path, monkeypatch
):
    write_photographs(tmp_path)
    datasets = import_or_skip("torchvision.datasets")
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    dataset = datasets.ImageFolder(tmp_path, lambda image: to_slow_array(image))

    report = report_loop(dataset, tmp_path)

    adopted = report.figures.calls.adopted
    assert (adopted.dataset, adopted.in_processes) == (None, False)
    assert adopted.problem.endswith("move it to a module, or install cloudpickle")
    (line,) = [
        line
        for line in [*report.verdict.advice, *report.verdict.not_worth]
        if line.startswith("infeed, if ")
    ]
    assert adopted.problem in line


def test_a_dataset_that_infeed_reads_calls_no_code_and_writes_no_file(
    tmp_path, monkeypatch
):
    write_photographs(tmp_path)
    datasets = import_or_skip("torchvision.datasets")
    vision = import_or_skip("torchvision.transforms.v2")
    steps = vision.Compose([vision.ToImage(), vision.ToDtype(torch.float32, True)])

    found = adopted_code(datasets.ImageFolder(tmp_path, steps), 2)

    assert found == (None, frozenset())

    with unwritten():
        assert written_annotations({"images": []}) == "annotations.json"
    path = written_annotations({"images": []})
    assert Path(path).is_file()


def test_a_report_after_closing_predicts_the_rate_of_infeed(tmp_path):
    image = import_or_skip("PIL.Image")
    for n in range(8):
        image.new("RGB", (24, 24), (n, n, n)).save(tmp_path / f"{n}.png")

    class Images(Numbers):
        def __getitem__(self, n):
            time.sleep(0.01)
            return torch.zeros(3, 16, 16)

    rows = torch.utils.data.DataLoader(Images(count=8), batch_size=2)
    watch = infeed.watch(rows, files=tmp_path)
    list(iter(watch))
    watch.close()

    report = watch.report(seconds=0.1)

    assert report.figures.throughput.samples_per_s > 0
    assert "Resize((16, 16))" in report.figures.throughput.pipeline
