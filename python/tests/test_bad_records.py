"""Treatment of bad records, by policy."""

import contextlib
import io
import logging
import re
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

import infeed
from infeed import sources
from infeed import transforms as T


@pytest.fixture
def damaged_images(segmentation, tmp_path):
    """The images of `segmentation` without labels; two are truncated."""
    shutil.copytree(segmentation.image, tmp_path / "images")
    for name in ("003.png", "007.png"):
        path = tmp_path / "images" / name
        path.write_bytes(path.read_bytes()[:-300])
    return (
        infeed.Pipeline(sources.Folder(tmp_path / "images"))
        .decode()
        .transform(T.CenterCrop(32))
        .batch(4)
    )


def records(batches) -> list[list[int]]:
    return [[record for record, _ in batch.records] for batch in batches]


def test_stop_raises_at_the_bad_record_with_file_and_reason(damaged_images):
    with damaged_images.open() as loader:
        with pytest.raises(infeed.errors.DecodeError, match=r"003\.png") as caught:
            next(iter(loader))

        assert isinstance(caught.value, ValueError)
        assert "image" in str(caught.value)
        assert str(caught.value).endswith(
            'set on_error="substitute" to replace bad records'
        )


def test_batches_before_a_bad_record_are_delivered(damaged_images):
    with damaged_images.batch(3).open() as loader:
        batches = iter(loader)
        assert records([next(batches)]) == [[0, 1, 2]]
        with pytest.raises(infeed.errors.DecodeError):
            next(batches)


def test_skip_fills_the_rows_with_the_next_records(damaged_images, segmentation):
    with damaged_images.open(on_error="skip") as loader:
        batches = [(b.records, b["image"].copy()) for b in loader]
        bad = loader.bad_records

    assert [[record for record, _ in names] for names, _ in batches] == [
        [0, 1, 2],
        [4, 5, 6],
        [8, 9],
    ]
    for names, images in batches:
        for (record, _), image in zip(names, images, strict=True):
            expected = segmentation.images[record][8:40, 16:48]
            np.testing.assert_array_equal(image, expected)
    assert [(entry.index, entry.name.endswith(".png")) for entry in bad] == [
        (3, True),
        (7, True),
    ]
    assert all(entry.reason for entry in bad)


def test_substitute_keeps_batches_full_and_is_the_same_on_every_run(damaged_images):
    runs = []
    for workers in (1, 5):
        with damaged_images.open(on_error="substitute", workers=workers) as loader:
            runs.append(records(loader))
            assert {entry.index for entry in loader.bad_records} == {3, 7}

    assert runs[0] == runs[1]
    assert [len(batch) for batch in runs[0]] == [4, 4, 2]
    assert not {3, 7} & {record for batch in runs[0] for record in batch}


def test_max_bad_stops_a_run_with_mostly_bad_records(damaged_images):
    with (
        damaged_images.open(on_error="skip", max_bad=1) as loader,
        pytest.raises(infeed.errors.TooManyBadRecordsError, match="max_bad=1"),
    ):
        records(loader)


def test_a_bad_record_is_listed_once_if_it_is_read_again(damaged_images):
    with damaged_images.open(on_error="substitute", max_bad=2) as loader:
        first = records(loader)
        records(loader)
        listed = [entry.index for entry in loader.bad_records]
        loader.seek(0)

        assert listed == [3, 7]
        assert [entry.index for entry in loader.bad_records] == listed
        assert loader.state_dict()["bad"] == []
        assert records(loader) == first
        assert loader.stats()["bad"] == 2
        assert [record for _, _, record in loader.state_dict()["bad"]] == listed


def test_a_state_without_bad_records_has_the_same_keys(damaged_images):
    with damaged_images.open(on_error="substitute") as loader:
        before = loader.state_dict()
        records(loader)

        assert before["bad"] == []
        assert loader.state_dict()["bad"] == [[0, 3, 3], [0, 7, 7]]
        assert before.keys() == loader.state_dict().keys()
        # A state of a version without this key.
        del before["bad"]
        loader.load_state_dict(before)
        assert loader.bad_records == []


def test_a_missing_partner_is_named(segmentation, tmp_path):
    shutil.copytree(segmentation.mask, tmp_path / "mask")
    (tmp_path / "mask" / "004.png").unlink()
    pipeline = infeed.Pipeline(
        sources.Pairs(image=segmentation.image, mask=tmp_path / "mask")
    )

    with pytest.raises(infeed.errors.ConfigError, match=r"004\.png"):
        pipeline.decode().transform(T.CenterCrop(8)).batch(2).open()


def test_a_missing_folder_is_an_os_error(tmp_path):
    pipeline = infeed.Pipeline(sources.Folder(tmp_path / "nothing"))

    with pytest.raises(infeed.errors.OpenError, match="nothing") as caught:
        pipeline.decode().transform(T.CenterCrop(8)).batch(2).open()
    assert isinstance(caught.value, OSError)


class Interrupting(logging.Handler):
    """Raises as Ctrl-C does that arrives while a warning is handled."""

    count = 0

    def emit(self, record):
        self.count += 1
        raise KeyboardInterrupt


def test_an_exception_while_a_warning_is_logged_loses_no_batch(damaged_images):
    handler = Interrupting(logging.WARNING)
    with damaged_images.open(workers=1, on_error="substitute") as loader:
        expected = records(loader)
    with damaged_images.open(workers=1, on_error="substitute") as loader:
        batches, found = iter(loader), []
        logging.getLogger("infeed").addHandler(handler)
        try:
            while len(found) < len(expected):
                with contextlib.suppress(KeyboardInterrupt):
                    found += records([next(batches)])
        finally:
            logging.getLogger("infeed").removeHandler(handler)

    assert found == expected
    assert handler.count > 0


def test_an_incomplete_record_of_a_shard_is_not_called_damaged(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        for number in range(40):
            members = {"txt": b"text", "cls": b"3"}
            if number == 33:
                del members["cls"]
            for extension, content in members.items():
                member = tarfile.TarInfo(f"{number:03}.{extension}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    pipeline = infeed.Pipeline(sources.WebDataset(str(tmp_path / "a.tar"))).batch(40)

    with (
        pipeline.open() as loader,
        pytest.raises(
            infeed.errors.DamagedError, match="cannot use record 33"
        ) as caught,
    ):
        next(iter(loader))

    message = str(caught.value)
    assert "it has no `cls`; it has `txt`; complete the record" in message
    assert message.endswith('leave it out with on_error="substitute" or "skip"')


def test_a_record_over_the_budget_advises_the_budget_and_no_substitute(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), np.uint8)
    for number in range(2):
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    pipeline = infeed.Pipeline(sources.Folder(tmp_path))
    pipeline = pipeline.decode().transform(T.CenterCrop(32)).batch(2)

    with (
        pipeline.open(workers=1, memory="10MiB") as loader,
        pytest.raises(infeed.errors.RecordTooLargeError) as caught,
    ):
        next(iter(loader))

    message = str(caught.value)
    budget = re.search(r'all 2 records; set memory="(\d+MiB)" or more$', message)
    assert budget, message
    with pipeline.open(workers=1, memory=budget[1]) as loader:
        assert len(list(loader)) == 1
