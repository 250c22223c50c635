//! Declarations of the kind of data in fields that a source stores as bytes.

use serde::{Deserialize, Serialize};

/// The kind of data in a field of bytes, and how batches hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeclaredKind {
    /// A file of audio.
    Waveform(WaveformSpec),
}

/// Files of audio, WAV or FLAC, which become float32 samples from -1 to 1: `[samples]`, or
/// `[samples, channels]` with more than one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaveformSpec {
    /// Samples per second of a channel, which all files have.
    pub rate: u32,
    /// Samples of a channel in a row: longer files are cropped, shorter ones padded with zeros.
    /// Absent: lists as long as the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Channels in a row. 1 is the mean of the file's channels; otherwise files have this number.
    #[serde(default = "one")]
    pub channels: u16,
    /// Part of a longer file.
    #[serde(default)]
    pub crop: WaveformCrop,
}

/// The part of a longer file of audio that becomes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaveformCrop {
    /// The first samples.
    #[default]
    Start,
    /// The middle.
    Center,
    /// Samples from a random one on, drawn for each position of an epoch.
    Random,
}

fn one() -> u16 {
    1
}

impl WaveformSpec {
    /// Declares audio of one channel with this number of samples per second.
    pub fn new(rate: u32) -> WaveformSpec {
        WaveformSpec {
            rate,
            samples: None,
            channels: 1,
            crop: WaveformCrop::Start,
        }
    }
}
