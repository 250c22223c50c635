"""Kinds of data in fields that a source stores as bytes, for `Pipeline.declare`."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from infeed import _check, _code
from infeed.errors import ConfigError

__all__ = ["Kind", "Waveform"]


@dataclass(frozen=True)
class Kind:
    """Base class of the kinds. Descriptions name each by its class in lower case."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            item = _check.convert(self, name, getattr(self, name), kind)
            object.__setattr__(self, name, item)

    def __repr__(self) -> str:
        return f"infeed.kinds.{_code.call(type(self).__name__, self)}"

    def _to_dict(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: item for name, item in settings.items() if item is not None}
        return {"kind": type(self).__name__.lower(), **given}

    @staticmethod
    def _from_dict(description: dict[str, Any]) -> "Kind":
        settings = dict(description)
        name = settings.pop("kind")
        for kind in Kind.__subclasses__():
            if kind.__name__.lower() == name:
                return kind(**settings)
        raise ConfigError(
            f"declare: the kind {name!r} is unknown; install a newer infeed"
        )


@dataclass(frozen=True, repr=False)
class Waveform(Kind):
    """Files of audio, WAV or FLAC, as float32 samples from -1 to 1.

    Integers are divided by 2^(bits - 1), as by soundfile and torchaudio. A row is
    ``[samples]``, or ``[samples, channels]`` with more than one channel. A sample
    decodes only the part of its file that the row holds; FLAC is also decoded before
    that part.

    A file of another rate or number of channels is a bad record: nothing is resampled.

    Args:
        rate: Samples per second of a channel, which all files have.
        samples: Samples of a channel in a row. Longer files are cropped, and shorter
            ones are padded with zeros. None: lists as long as the files.
        channels: Channels in a row. 1 is the mean of the file's channels. Otherwise
            all files have this number.
        crop: Part of a longer file: its ``"start"``, its ``"center"``, or
            ``"random"``, drawn for each position of an epoch.

    Raises:
        ConfigError: An argument is invalid.
    """

    rate: int
    samples: int | None = None
    channels: int = 1
    crop: Literal["start", "center", "random"] = "start"
