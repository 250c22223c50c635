"""Parts of `adopt` that need no framework: rates of loaders, and lists of files."""

import numpy as np
import pytest

from infeed.adopting import adopted, keras_folders


@pytest.mark.parametrize("batches", [1, 2])
def test_the_rate_of_a_loader_with_few_batches_is_measured(batches):
    now = 0.0

    class Loader:
        def __iter__(self):
            nonlocal now
            for _ in range(batches):
                now += 0.5
                yield np.zeros((8, 3))

    assert adopted._rate(Loader(), 2.0, lambda: now) == 16


def test_the_rate_without_samples_is_zero():
    assert adopted._rate([object()], 1.0) == 0


def test_files_of_keras_are_those_of_a_folder_source(tmp_path):
    names = ["a/1.jpg", "a/2.PNG", "b/3.jpg", "b/.4.jpg", ".c/5.jpg", "a/6.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "a/loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "c").symlink_to(tmp_path / "b", target_is_directory=True)

    listed = keras_folders._listed(str(tmp_path))

    expected = ["a/1.jpg", "a/2.PNG", "b/3.jpg", "c/3.jpg"]
    assert listed == [str(tmp_path / name) for name in expected]
