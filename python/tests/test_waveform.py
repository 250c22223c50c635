"""Files of audio become rows of samples."""

import io
import tarfile
import wave

import numpy as np
import pytest

import infeed
from infeed import sources
from infeed.kinds import Waveform

RATE = 8000


def wav(samples, rate=RATE):
    """A WAV file of 16-bit samples ``[frames]`` or ``[frames, channels]``."""
    samples = np.asarray(samples, np.int16)
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return data.getvalue()


class Clips:
    """Clips of 10, 20, 30 ... samples, which count up from the number of the clip."""

    def __init__(self, count=6, channels=None, rates=()):
        shape = () if channels is None else (channels,)
        self.rates = dict(rates)
        self.samples = [
            (np.arange(10 * (n + 1) * int(np.prod(shape, dtype=int))) + 500 * n)
            .reshape(-1, *shape)
            .astype(np.int16)
            for n in range(count)
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        rate = self.rates.get(index, RATE)
        return {"wav": wav(self.samples[index], rate), "label": index}


def pipeline_of(clips, **settings):
    fields = {"wav": sources.Field(kind="bytes"), "label": sources.Field()}
    source = sources.Items(clips, fields=fields)
    return infeed.Pipeline(source).declare(wav=Waveform(RATE, **settings))


def only_batch(pipeline, **options):
    with pipeline.open(workers=2, **options) as loader:
        batches = [dict(batch.items()) for batch in loader]
    assert len(batches) == 1
    return batches[0]


def as_floats(samples):
    return (np.asarray(samples, np.float64) / 2**15).astype(np.float32)


def test_lists_have_all_samples_of_their_files():
    clips = Clips()

    values, offsets = only_batch(pipeline_of(clips).batch(6))["wav"]

    assert values.dtype == np.float32
    for index, samples in enumerate(clips.samples):
        found = values[offsets[index] : offsets[index + 1]]
        np.testing.assert_array_equal(found, as_floats(samples))


def test_longer_files_are_cropped_and_shorter_ones_padded_with_zeros():
    clips = Clips()
    for crop, begin in [("start", lambda rest: 0), ("center", lambda rest: rest // 2)]:
        rows = only_batch(pipeline_of(clips, samples=25, crop=crop).batch(6))["wav"]

        assert rows.shape == (6, 25)
        for row, samples in zip(rows, clips.samples, strict=True):
            first = begin(max(0, len(samples) - 25))
            part = as_floats(samples[first : first + 25])
            np.testing.assert_array_equal(row[: len(part)], part)
            assert not row[len(part) :].any()


def test_random_crops_depend_on_seed_epoch_and_position_alone():
    clips = Clips(40)
    pipeline = pipeline_of(clips, samples=8, crop="random").shuffle(seed=3).batch(40)

    def epochs(workers, count=2):
        with pipeline.open(workers=workers) as loader:
            found = []
            for _ in range(count):
                for batch in loader:
                    found.append(np.asarray(batch["wav"]).copy())
                    labels = np.asarray(batch["label"])
                    for row, label in zip(found[-1], labels, strict=True):
                        begin = round(float(row[0]) * 2**15) - 500 * label
                        whole = as_floats(clips.samples[label])
                        np.testing.assert_array_equal(row, whole[begin : begin + 8])
            return found

    one, two = epochs(1), epochs(2)

    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0], one[1])


def test_channels_are_averaged_or_kept():
    clips = Clips(channels=2)

    mean = only_batch(pipeline_of(clips, samples=10).batch(6))["wav"]
    kept = only_batch(pipeline_of(clips, samples=10, channels=2).batch(6))["wav"]
    values, offsets = only_batch(pipeline_of(clips, channels=2).batch(6))["wav"]

    assert kept.shape == (6, 10, 2)
    assert values.shape == (sum(map(len, clips.samples)), 2)
    for index, samples in enumerate(clips.samples):
        np.testing.assert_array_equal(kept[index], as_floats(samples[:10]))
        np.testing.assert_allclose(mean[index], as_floats(samples[:10]).mean(1))
        found = values[offsets[index] : offsets[index + 1]]
        np.testing.assert_array_equal(found, as_floats(samples))


def test_a_file_that_differs_is_a_bad_record_that_names_the_fix():
    other_rate = pipeline_of(Clips(rates={2: 16_000})).batch(6)
    wrong_rate = r"16000 samples per second.*resample"
    with pytest.raises(infeed.InfeedError, match=wrong_rate):
        only_batch(other_rate)
    mono = pipeline_of(Clips(), channels=2).batch(6)
    wrong_number = r"number of channels of 1.*channels=1"
    with pytest.raises(infeed.InfeedError, match=wrong_number):
        only_batch(mono)

    class DamagedClips(Clips):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            if index == 4:
                item["wav"] = item["wav"][:-7]
            return item

    with pytest.raises(infeed.errors.DecodeError, match="4"):
        only_batch(pipeline_of(DamagedClips()).batch(6))
    kept = only_batch(pipeline_of(DamagedClips(), samples=4).batch(6), on_error="skip")
    assert list(kept["label"]) == [0, 1, 2, 3, 5]


def test_wrong_declarations_name_the_fix():
    clips = Clips()
    source = sources.Items(clips)
    for declared, message in [
        ({"wave": Waveform(RATE)}, "no field `wave`"),
        ({"label": Waveform(RATE)}, "no field of bytes"),
        ({"wav": Waveform(0)}, "rate is 0"),
        ({"wav": Waveform(RATE, channels=0)}, "channels is 0"),
        ({"wav": Waveform(RATE, samples=0)}, "samples is 0"),
    ]:
        with pytest.raises(infeed.errors.ConfigError, match=message):
            infeed.Pipeline(source).declare(**declared).batch(2).open()
    with pytest.raises(infeed.errors.ConfigError, match=r"one of infeed\.kinds"):
        infeed.Pipeline(source).declare(wav="waveform")
    with pytest.raises(infeed.errors.ConfigError, match="crop"):
        Waveform(RATE, crop="end")


def write_shard(path, clips):
    with tarfile.open(path, "w") as shard:
        for index in range(len(clips)):
            data = clips[index]["wav"]
            entry = tarfile.TarInfo(f"{index}.wav")
            entry.size = len(data)
            shard.addfile(entry, io.BytesIO(data))


def test_a_saved_pipeline_and_its_code_keep_the_declaration(tmp_path):
    write_shard(tmp_path / "0.tar", Clips())
    pipeline = (
        infeed.Pipeline(sources.WebDataset(str(tmp_path / "0.tar")))
        .declare(wav=Waveform(RATE, samples=12, crop="center"))
        .batch(3)
    )
    pipeline.save(tmp_path / "p.toml")

    loaded = infeed.Pipeline.load(tmp_path / "p.toml")

    assert "infeed.kinds.Waveform(8000, samples=12" in repr(loaded)
    with pipeline.open() as one, loaded.open() as two:
        assert one.state_dict() == two.state_dict()
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a["wav"], b["wav"])
    other = pipeline.declare(wav=Waveform(RATE, samples=13, crop="center"))
    with pipeline.open() as one:
        state = one.state_dict()
    different = pytest.raises(
        infeed.errors.ConfigError, match="description's fingerprint"
    )
    with other.open() as two, different:
        two.load_state_dict(state)
    assert pipeline.preview(1).stages


def test_functions_receive_waveforms():
    def double(sample):
        return {"wav": sample["wav"] * 2}

    pipeline = pipeline_of(Clips(), samples=10).python(double, fields=("wav",))
    plain = only_batch(pipeline_of(Clips(), samples=10).batch(6))["wav"]

    doubled = only_batch(pipeline.batch(6))["wav"]

    np.testing.assert_array_equal(doubled, np.asarray(plain) * 2)
