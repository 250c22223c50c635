"""Makes the files of audio of this folder, with soundfile (libsndfile 1.2.2).

Each `NAME.f32` has the samples of `NAME` as soundfile reads them: 32-bit floats, little
endian, interleaved. `blocks.flac` has several blocks, and samples of a formula.
"""

from pathlib import Path

import numpy as np
import soundfile

FOLDER = Path(__file__).resolve().parent

# Name, frames, channels, samples per second, encoding, variant of the format.
FILES = [
    ("mono16.flac", 700, 1, 16000, "PCM_16", None),
    ("stereo24.flac", 300, 2, 44100, "PCM_24", None),
    ("six8.flac", 100, 6, 48000, "PCM_S8", None),
    ("mono8.wav", 100, 1, 8000, "PCM_U8", None),
    ("stereo16.wav", 100, 2, 44100, "PCM_16", None),
    ("six24.wav", 40, 6, 48000, "PCM_24", "WAVEX"),
    ("mono32.wav", 100, 1, 16000, "PCM_32", None),
    ("float.wav", 100, 1, 16000, "FLOAT", None),
]


def main() -> None:
    """Writes all files."""
    random = np.random.default_rng(7)
    for name, frames, channels, rate, encoding, variant in FILES:
        times = np.arange(frames)[:, None] / 16000
        pitches = 220.0 * (1 + np.arange(channels))
        noise = 0.02 * random.standard_normal((frames, channels))
        samples = 0.6 * np.sin(2 * np.pi * pitches * times) + noise
        samples[0], samples[1] = -1, 1
        path = FOLDER / name
        soundfile.write(path, samples, rate, encoding, format=variant)
        read(path).tofile(FOLDER / f"{name}.f32")

    # Lines with jumps, which FLAC stores in about 1 bit per sample.
    blocks = (np.arange(9000) * 7 % 20001 - 10000).astype("<i2")
    path = FOLDER / "blocks.flac"
    soundfile.write(path, blocks, 16000)
    assert (read(path)[:, 0] == blocks / np.float32(32768)).all()


def read(path: Path) -> np.ndarray:
    """Returns the samples of a file."""
    return soundfile.read(path, dtype="float32", always_2d=True)[0]


if __name__ == "__main__":
    main()
