//! WAV: chunks, and samples of integers or 32-bit floats.
//!
//! Source: Multimedia Programming Interface and Data Specifications 1.0 (RIFF), and
//! `WAVEFORMATEXTENSIBLE` of Windows. Own code, because the samples are the bytes of the file: the
//! crate `hound` reads them one by one, fails after a chunk of odd length, and does not return the
//! encodings that it does not support.

use std::ops::Range;

use super::header::{AudioFormat, AudioHeader};
use crate::decode::DecodeError;

/// Format tags of the `fmt ` chunk.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xFFFE;

/// End of a GUID of `WAVEFORMATEXTENSIBLE` that begins with a format tag.
const GUID: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71];

/// Smallest length that programs write into a pipe, because they do not know the length: this one
/// (SoX), or the largest (FFmpeg).
const UNKNOWN_LENGTH: u32 = 0x7FFF_F000;

const CONVERT: &str = "convert the file to 16-bit PCM, for example with ffmpeg -c:a pcm_s16le";

/// SampleEncoding of a sample. Integers of fewer bits are in the high bits of their bytes.
#[derive(Clone, Copy)]
enum SampleEncoding {
    U8,
    I16,
    I24,
    I32,
    F32,
}

impl SampleEncoding {
    fn bytes(self) -> usize {
        match self {
            SampleEncoding::U8 => 1,
            SampleEncoding::I16 => 2,
            SampleEncoding::I24 => 3,
            SampleEncoding::I32 | SampleEncoding::F32 => 4,
        }
    }
}

/// A checked file.
struct WavFile<'a> {
    header: AudioHeader,
    encoding: SampleEncoding,
    /// The samples of `header.frames` frames.
    samples: &'a [u8],
}

/// Reads the header, and checks that the data chunk is complete.
pub(super) fn header(bytes: &[u8]) -> Result<AudioHeader, DecodeError> {
    Ok(parse(bytes)?.header)
}

/// Appends the samples of `range`, which is inside the file. `out` has the capacity.
pub(super) fn decode(
    bytes: &[u8],
    range: Range<usize>,
    out: &mut Vec<f32>,
) -> Result<(), DecodeError> {
    let file = parse(bytes)?;
    let frame = file.encoding.bytes() * usize::from(file.header.channels);
    let samples = file.samples.get(range.start * frame..range.end * frame);
    let samples = samples.ok_or(DecodeError::Truncated)?;
    match file.encoding {
        SampleEncoding::U8 => out.extend(samples.iter().map(|&v| (f32::from(v) - 128.0) / 128.0)),
        SampleEncoding::I16 => out.extend(
            arrays(samples)
                .map(|v| f32::from(i16::from_le_bytes(v)) * (1.0 / f32::from(1u16 << 15))),
        ),
        // As the high bytes of 32 bits, so that the sign is in its position.
        SampleEncoding::I24 => out.extend(arrays(samples).map(|[a, b, c]| fraction([0, a, b, c]))),
        SampleEncoding::I32 => out.extend(arrays(samples).map(fraction)),
        SampleEncoding::F32 => out.extend(arrays(samples).map(f32::from_le_bytes)),
    }
    Ok(())
}

fn arrays<const N: usize>(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Divides an integer of 32 bits by 2^31. The factor is a power of two, so the division is exact.
fn fraction(bytes: [u8; 4]) -> f32 {
    i32::from_le_bytes(bytes) as f32 * (1.0 / (1u32 << 31) as f32)
}

/// Walks over the chunks up to the data.
fn parse(bytes: &[u8]) -> Result<WavFile<'_>, DecodeError> {
    let (riff, mut rest) = bytes
        .split_first_chunk::<12>()
        .ok_or(DecodeError::Truncated)?;
    let end = u32::from_le_bytes([riff[4], riff[5], riff[6], riff[7]]) as usize;
    let end = end.saturating_add(8);
    let mut format = None;
    while let Some((head, content)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, length @ ..] = *head;
        let stored = u32::from_le_bytes(length);
        let length = stored as usize;
        match &[a, b, c, d] {
            b"fmt " => {
                let fields = content.get(..length).ok_or(DecodeError::Truncated)?;
                format = Some(read_format(fields)?);
            }
            b"data" => {
                let (encoding, rate, channels) = format.ok_or(DecodeError::from_damage(
                    "no fmt chunk before the data chunk",
                ))?;
                // A program that ends early leaves a length of 0.
                let at = bytes.len() - content.len();
                let is_open = length == 0 && !content.is_empty() && end <= at;
                if is_open || length > content.len() && stored >= UNKNOWN_LENGTH {
                    return Err(DecodeError::Unsupported {
                        what: "a WAV file without a length".into(),
                        fix: "re-encode it with a length: write it to a file, not to a pipe",
                    });
                }
                let samples = content.get(..length).ok_or(DecodeError::Truncated)?;
                let frame = encoding.bytes() * usize::from(channels);
                if !length.is_multiple_of(frame) {
                    return Err(DecodeError::from_damage(
                        "the data chunk ends inside a sample",
                    ));
                }
                let header = AudioHeader {
                    format: AudioFormat::Wav,
                    rate,
                    channels,
                    frames: (length / frame) as u64,
                };
                return Ok(WavFile {
                    header: header.check()?,
                    encoding,
                    samples,
                });
            }
            _ => {}
        }
        // Chunks begin at even offsets.
        let next = length.saturating_add(length % 2);
        rest = content.get(next..).ok_or(DecodeError::Truncated)?;
    }
    if bytes.len() >= end {
        return Err(DecodeError::from_damage("the file has no data chunk"));
    }
    Err(DecodeError::Truncated)
}

/// Reads a `fmt ` chunk: encoding, rate and channels.
fn read_format(fields: &[u8]) -> Result<(SampleEncoding, u32, u16), DecodeError> {
    let short = || DecodeError::from_damage("the fmt chunk is too short");
    let (fixed, further) = fields.split_first_chunk::<16>().ok_or_else(short)?;
    let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let (mut tag, channels, frame, bits) = (half(0), half(2), half(12), half(14));
    let rate = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    if tag == EXTENSIBLE {
        // Before the GUID: the length of these fields, valid bits, positions of the speakers.
        let guid = further.get(8..24).ok_or_else(short)?;
        let (number, end) = guid.split_at(2);
        if end != GUID {
            return Err(unsupported_error(
                "WAV samples of an unknown encoding".into(),
            ));
        }
        tag = u16::from_le_bytes([number[0], number[1]]);
    }
    if channels == 0 {
        return Err(DecodeError::from_damage("the header claims 0 channels"));
    }
    let encoding = match (tag, bits) {
        (PCM, 1..=8) => SampleEncoding::U8,
        (PCM, 9..=16) => SampleEncoding::I16,
        (PCM, 17..=24) => SampleEncoding::I24,
        (PCM, 25..=32) => SampleEncoding::I32,
        (FLOAT, 32) => SampleEncoding::F32,
        _ => return Err(unsupported_error(encoding_name(tag, bits))),
    };
    let bytes = frame / channels;
    if frame % channels != 0 || usize::from(bytes) != encoding.bytes() {
        let what = format!("{bits}-bit WAV samples in frames of {frame} bytes");
        return Err(unsupported_error(what));
    }
    Ok((encoding, rate, channels))
}

fn unsupported_error(what: String) -> DecodeError {
    DecodeError::Unsupported {
        what: what.into(),
        fix: CONVERT,
    }
}

/// Names an encoding that is not supported.
fn encoding_name(tag: u16, bits: u16) -> String {
    let name = match tag {
        PCM => return format!("{bits}-bit integers in a WAV file"),
        FLOAT => return format!("{bits}-bit floats in a WAV file"),
        0x02 | 0x11 => "ADPCM",
        0x06 => "A-law",
        0x07 => "mu-law",
        0x31 => "GSM 6.10",
        0x50 | 0x55 => "MP3",
        0xFF | 0x1600 | 0x1610 => "AAC",
        _ => return format!("WAV samples of encoding 0x{tag:04X}"),
    };
    format!("{name} samples in a WAV file")
}
