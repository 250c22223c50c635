"""Parts of `adopt` that need no framework: rates of loaders, and lists of files."""

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed.adopting import adoption, record_draws
from infeed.adopting.equivalence import Equivalence, _compare_draws
from infeed.adopting.folder_records import class_records, listed_files


@pytest.mark.parametrize("batches", [1, 2])
def test_the_rate_of_a_loader_with_few_batches_is_measured(batches):
    now = 0.0

    class Loader:
        def __iter__(self):
            nonlocal now
            for _ in range(batches):
                now += 0.5
                yield np.zeros((8, 3))

    assert adoption._rate(Loader(), 2.0, lambda: now) == 16


def test_the_rate_without_samples_is_zero():
    assert adoption._rate([object()], 1.0) == 0


def adopted_with(gain: adoption.Gain | None, limit: str | None) -> adoption.Adoption:
    pipeline = infeed.Pipeline(sources.Memory(x=np.arange(8))).batch(4)
    return adoption.Adoption(pipeline, (), None, gain, limit)


def test_a_gain_is_left_out_if_samples_cannot_be_counted():
    assert adopted_with(None, "decoding limits this run").report.startswith(
        "\ngain: not measured, because the samples in the loader's batches"
    )
    assert "gain" not in adopted_with(None, None).report


def test_a_slower_pipeline_is_reported_in_the_first_line():
    slower = adoption.Gain(theirs=(100.0, 104.0), ours=(50.0, 52.0))
    faster = adoption.Gain(theirs=(50.0, 52.0), ours=(100.0, 104.0))

    assert adopted_with(slower, "Python limits this run").report.startswith(
        "slower after adopting, 0.50x [0.48 to 0.52]: 51 samples/s instead of 102\n"
    )
    assert "slower" not in adopted_with(faster, "Python limits this run").report


def test_turns_that_differ_say_that_the_machine_is_busy():
    noisy = adoption.Gain(theirs=(100.0, 40.0), ours=(90.0, 120.0))
    steady = adoption.Gain(theirs=(100.0, 90.0), ours=(150.0, 160.0))

    assert str(noisy).endswith(
        "turns differ, so measure again when the machine is less busy"
    )
    assert "turns" not in str(steady)


@pytest.mark.parametrize(
    ("largest", "differing", "text"),
    [
        (0.0, 0.0, "2 samples: equal in every value"),
        (1e-7, 0.0, "values differ by rounding of floats only"),
        (1 / 255, 0.16, "at most 1 level of 255, 16.00% of them by more than half"),
        (1.5 / 255, 0.02, "at most 1.5 levels of 255, 2.00% of them"),
        (0.4 / 255, 0.0, "values differ by at most 0.4 levels of 255"),
    ],
)
def test_differences_of_floats_are_levels_of_8_bits(largest, differing, text):
    found = Equivalence(2, False, largest, differing, (), (), level=1 / 255)

    assert text in str(found)


def draw_samples(at, dropped):
    """Returns 20 samples of a draw; `dropped` are those without their last label."""
    rng = np.random.default_rng(at)
    image = [rng.integers(0, 256, (4, 4, 3)).astype(np.uint8) for _ in range(20)]
    return [
        {"image": pixels, "labels": np.arange(3 if at in dropped else 4)}
        for at, pixels in enumerate(image)
    ]


def compare_labels(theirs, ours):
    """Compares draws; the arguments are the samples without a label, by draw."""
    return _compare_draws(
        list(range(20)),
        lambda at: (draw_samples(at, theirs(at)), draw_samples(100 + at, ours(at))),
        None,
        is_random=True,
    )


def test_a_rare_draw_that_the_first_draws_of_the_dataset_do_not_show_is_no_difference():
    found = compare_labels(
        lambda at: {5} if at == 9 else {}, lambda at: {3} if at == 1 else {}
    )

    assert found.problems == ()
    assert found.draws == 32


def test_a_field_that_only_the_pipeline_changes_is_a_difference():
    found = compare_labels(lambda at: {}, lambda at: {at % 20})

    assert "labels is the same in all draws of the dataset" in found.problems[0]
    assert "the pipeline changes it in 32 of 640" in found.problems[0]


class CountedImages:
    """Numbers whose reads are counted."""

    def __init__(self, count):
        self.reads = [0] * count

    def __len__(self):
        return len(self.reads)

    def __getitem__(self, number):
        self.reads[number] += 1
        return {"x": np.array([number])}


def test_draws_read_no_other_records():
    numbers = CountedImages(50)
    records = infeed.Pipeline(sources.Items(numbers))

    with record_draws.RecordDraws(records, 50, [7, 3, 40]) as found:
        for epoch in (0, 1, 2, 5):
            samples = found.of(epoch)
            assert [int(sample["x"][0]) for sample in samples] == [7, 3, 40]

    # The first record is read to find the fields.
    read = {number for number, count in enumerate(numbers.reads) if count}
    assert read <= {0, 3, 7, 40}


def test_draws_of_a_selection_are_found_by_their_row():
    records = infeed.Pipeline(sources.Items(CountedImages(50))).take(20)

    with record_draws.RecordDraws(records, 20, [7, 3]) as found:
        assert [int(sample["x"][0]) for sample in found.of(1)] == [7, 3]


def test_progress_is_printed_after_five_seconds_only(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(record_draws.time, "perf_counter", lambda: now[0])
    line = record_draws.ProgressLine()

    for at, text in ((104.9, "early"), (105.1, "a"), (106.0, "soon"), (107.2, "b")):
        now[0] = at
        line.show(text)
    line.end()

    assert capsys.readouterr().err == "a\nb\n"


@pytest.fixture
def folder(tmp_path):
    """Returns a function that makes empty files and returns their paths."""

    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        return [str(tmp_path / name) for name in names]

    return make


def test_files_are_listed_in_the_order_of_the_records_of_a_folder(folder, tmp_path):
    folder("b/3.jpg", "b/.4.jpg", ".c/5.jpg", "a/6.txt", "0.jpg")
    expected = folder("a/1.jpg", "a/z.PNG", "a/sub/2.jpg", "b/3.jpg", "c/3.jpg")
    (tmp_path / "c/3.jpg").unlink()
    (tmp_path / "c").rmdir()
    (tmp_path / "c").symlink_to(tmp_path / "b", target_is_directory=True)
    (tmp_path / "a/loop").symlink_to(tmp_path, target_is_directory=True)
    root = str(tmp_path)

    assert listed_files(root) == expected
    source = sources.Folder(root, labels="none")
    with infeed.Pipeline(source).open() as loader:
        names = [name for batch in loader for _, name in batch.records]
    assert listed_files(root, is_labelled=False) == names


def test_samples_of_a_folder_are_found_in_any_order(folder, tmp_path):
    first, second, third = folder("a/1.jpg", "a/2.jpg", "b/1.jpg")

    found = class_records(str(tmp_path), [(third, 1), (first, 0), (second, 0)])
    source, order = found

    assert source == sources.Folder(str(tmp_path))
    assert order.tolist() == [2, 0, 1]
    plain = class_records(str(tmp_path), [(first, 0), (second, 0), (third, 1)])
    assert plain == (source, None)


def test_classes_without_images_and_in_another_order_keep_their_numbers(
    folder, tmp_path
):
    first, second = folder("a/1.jpg", "c/1.jpg")
    (tmp_path / "b").mkdir()

    empty = class_records(str(tmp_path), [(first, 0), (second, 2)], ["a", "b", "c"])
    other = class_records(str(tmp_path), [(first, 1), (second, 0)], ["c", "a"])

    assert empty == (sources.Folder(str(tmp_path), allow_empty=True), None)
    assert other == (sources.Folder(str(tmp_path), classes=("c", "a")), None)


def test_a_changed_list_of_samples_is_a_reason_with_a_file_or_the_numbers(
    folder, tmp_path
):
    first, second = folder("a/1.jpg", "b/1.jpg")
    (hidden,) = folder(".checkpoints/2.jpg")
    for samples, reason in [
        ([(hidden, 0), (first, 1), (second, 2)], "1 of its 3 files are no records"),
        ([(first, 0)], "it has 1, and the folder"),
        ([(first, 0), (first, 0)], "it has 2, and the folder"),
        ([(first, 1), (second, 0)], "its labels are not the numbers of its classes"),
    ]:
        assert reason in class_records(str(tmp_path), samples)
