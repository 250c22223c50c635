//! Decodes files of audio to samples: WAV and FLAC to 32-bit floats.
//!
//! The format is detected from the bytes. `header` reads rate, channels and length, and allocates
//! nothing; `decode` returns a range of samples. The header of a WAV file shows whether the file is
//! complete. The blocks of a FLAC file have CRCs: damage up to the end of the range is an error, and
//! later damage is not noticed. The MD5 of the whole stream is not checked.

mod flac;
mod foreign;
mod header;
#[cfg(test)]
mod tests;
mod wav;

use std::ops::Range;

pub use self::header::{AudioFormat, AudioHeader};
#[cfg(any(test, feature = "panicking"))]
use crate::decode::PANIC;
use crate::decode::{DecodeError, guard};

/// Reads the header of a file.
///
/// # Errors
///
/// `UnknownFormat`, `Truncated`, `Damaged`, `Unsupported` or `Panicked`. `Unsupported` also for
/// files of another format, and for more than 2^31 samples.
pub fn header(bytes: &[u8]) -> Result<AudioHeader, DecodeError> {
    let format = AudioFormat::of(bytes).ok_or_else(|| foreign::error(bytes))?;
    guard(format.name(), || match format {
        AudioFormat::Wav => wav::header(bytes),
        AudioFormat::Flac => flac::header(bytes),
    })
}

/// Decodes the frames of a range, clipped to the file's, into `out`, which is cleared first. A frame
/// is one sample of each channel.
///
/// Integers are divided by 2^(bits - 1), so that samples are from -1 to 1. Floats are copied, also
/// those outside this range and those that are not finite.
///
/// # Shape
///
/// `[frames, channels]`
///
/// # Errors
///
/// As [`header`], and `NoMemory`. `out` is then unspecified.
///
/// # Cost
///
/// WAV: the range. FLAC: all blocks from the first to the end of the range.
pub fn decode(
    bytes: &[u8],
    header: &AudioHeader,
    range: Range<u64>,
    out: &mut Vec<f32>,
) -> Result<(), DecodeError> {
    out.clear();
    // The frames and samples of checked headers fit.
    if *header != self::header(bytes)? {
        return Err(DecodeError::from_damage(
            "the header is that of another file",
        ));
    }
    let end = range.end.min(header.frames);
    let range = range.start.min(end) as usize..end as usize;
    let samples = range.len() * usize::from(header.channels);
    out.try_reserve_exact(samples)
        .map_err(|_| DecodeError::NoMemory)?;
    guard(header.format.name(), || {
        #[cfg(any(test, feature = "panicking"))]
        assert!(!bytes.ends_with(PANIC), "injected");
        match header.format {
            AudioFormat::Wav => wav::decode(bytes, range, out),
            AudioFormat::Flac => flac::decode(bytes, range, out),
        }
    })
}
