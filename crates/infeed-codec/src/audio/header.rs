//! Facts of a file of audio, and the limit of its size.

use crate::decode::DecodeError;

/// Maximum number of samples of all channels of a file: 8 GiB as numbers of 32 bits.
const MAX_SAMPLES: u64 = 1 << 31;

/// Supported formats of files of audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AudioFormat {
    Wav,
    Flac,
}

impl AudioFormat {
    /// Detects the format from the first bytes of a file. `None` for any other format.
    pub fn of(bytes: &[u8]) -> Option<AudioFormat> {
        match bytes {
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'A',
                b'V',
                b'E',
                ..,
            ] => Some(AudioFormat::Wav),
            [b'f', b'L', b'a', b'C', ..] => Some(AudioFormat::Flac),
            _ => None,
        }
    }

    /// Returns the common name, such as `FLAC`.
    pub fn name(self) -> &'static str {
        match self {
            AudioFormat::Wav => "WAV",
            AudioFormat::Flac => "FLAC",
        }
    }
}

/// Facts of a file of audio, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioHeader {
    /// File format.
    pub format: AudioFormat,
    /// Samples per second of a channel; at least 1.
    pub rate: u32,
    /// Number of channels; at least 1.
    pub channels: u16,
    /// Number of samples of a channel.
    pub frames: u64,
}

impl AudioHeader {
    /// Checks what all formats require.
    pub(super) fn check(self) -> Result<AudioHeader, DecodeError> {
        if self.rate == 0 {
            return Err(DecodeError::from_damage("the header claims a rate of 0 Hz"));
        }
        if self.channels == 0 {
            return Err(DecodeError::from_damage("the header claims 0 channels"));
        }
        let samples = self.frames.checked_mul(u64::from(self.channels));
        if samples.is_none_or(|samples| samples > MAX_SAMPLES) {
            let AudioHeader {
                frames, channels, ..
            } = self;
            let what = format!(
                "audio of {frames} x {channels} samples, over the limit of {MAX_SAMPLES} in total,"
            );
            return Err(DecodeError::Unsupported {
                what: what.into(),
                fix: "split the file into shorter ones",
            });
        }
        Ok(self)
    }
}
