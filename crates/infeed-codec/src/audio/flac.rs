//! FLAC through the `claxon` crate. This module walks over the metadata, because the crate copies
//! the text of comments, up to 10 MiB, and rejects a file for it.
//!
//! Source: RFC 9639, 8 (metadata) and 9 (frames, here blocks).

use std::ops::Range;

use claxon::frame::FrameReader;
use claxon::input::BufferedReader;
use claxon::metadata::{MetadataBlock, StreamInfo, read_metadata_block};

use super::header::{AudioFormat, AudioHeader};
use crate::decode::DecodeError;

const ENCODE_AGAIN: &str = "re-encode it, for example with ffmpeg -c:a flac -sample_fmt s16";

/// Type of the metadata block with the facts of the stream.
const STREAMINFO: u8 = 0;

/// Reads the header.
pub(super) fn header(bytes: &[u8]) -> Result<AudioHeader, DecodeError> {
    let (info, blocks) = parse(bytes)?;
    if info.bits_per_sample > 24 {
        return Err(DecodeError::Unsupported {
            what: format!("{}-bit FLAC", info.bits_per_sample).into(),
            fix: "re-encode it with 24 bits, for example with ffmpeg -c:a flac -sample_fmt s32 \
                  -bits_per_raw_sample 24",
        });
    }
    let Some(frames) = info.samples else {
        return Err(DecodeError::Unsupported {
            what: "a FLAC file without a length".into(),
            fix: "re-encode it with a length: write it to a file, not to a pipe",
        });
    };
    let header = AudioHeader {
        format: AudioFormat::Flac,
        rate: info.sample_rate,
        // At most 8.
        channels: info.channels as u16,
        frames,
    }
    .check()?;
    // A block is at least a header of 6 bytes, a CRC of 2 bytes, and one sample of each channel after
    // a byte. So the length of the file limits the memory that its header can request.
    let bits = u64::from(info.channels) * (8 + u64::from(info.bits_per_sample));
    let most = (blocks.len() as u64 / (8 + bits / 8) + 1) * u64::from(info.max_block_size);
    if frames > most {
        return Err(DecodeError::Truncated);
    }
    Ok(header)
}

/// Appends the samples of `range`, which is inside the file. `out` has the capacity.
///
/// Decodes the blocks up to the end of the range, and checks their CRCs.
pub(super) fn decode(
    bytes: &[u8],
    range: Range<usize>,
    out: &mut Vec<f32>,
) -> Result<(), DecodeError> {
    let (info, blocks) = parse(bytes)?;
    let mut reader = FrameReader::new(BufferedReader::new(blocks));
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < range.end {
        let block = reader.read_next_or_eof(buffer).map_err(error)?;
        let block = block.ok_or(DecodeError::Truncated)?;
        if block.channels() != info.channels {
            return Err(DecodeError::from_damage(
                "a block has another number of channels",
            ));
        }
        // A block has its position or its number. `claxon` computes the position from the number,
        // which is right for blocks of full length only.
        let full = info.min_block_size == info.max_block_size
            && block.duration() == u32::from(info.max_block_size);
        if full && block.time() != at as u64 {
            return Err(DecodeError::from_damage(
                "a block of samples is missing or repeated",
            ));
        }
        let end = at + block.duration() as usize;
        if end > range.start {
            let part = range.start.max(at) - at..range.end.min(end) - at;
            let samples: Vec<&[i32]> = (0..info.channels)
                .map(|channel| &block.channel(channel)[part.clone()])
                .collect();
            append(&samples, info.bits_per_sample, out)?;
        }
        at = end;
        buffer = block.into_buffer();
    }
    Ok(())
}

/// Interleaves the samples of channels, as fractions of 2^(bits - 1).
fn append(channels: &[&[i32]], bits: u32, out: &mut Vec<f32>) -> Result<(), DecodeError> {
    // Bits that differ from the sign, of all samples.
    let used = |samples: &&[i32]| samples.iter().fold(0, |all, v| all | (v ^ (v >> 31)));
    let used = channels.iter().map(used).fold(0, |all, one| all | one);
    if used >> (bits - 1) != 0 {
        return Err(DecodeError::from_damage("a sample has too many bits"));
    }
    // A power of two, so the product is exact.
    let factor = 1.0 / (1u32 << (bits - 1)) as f32;
    match channels {
        [mono] => out.extend(mono.iter().map(|&v| v as f32 * factor)),
        [left, right] => {
            let pairs = left.iter().zip(*right);
            out.extend(pairs.flat_map(|(&l, &r)| [l as f32 * factor, r as f32 * factor]));
        }
        _ => {
            let frames = channels.first().map_or(0, |channel| channel.len());
            for frame in 0..frames {
                out.extend(
                    channels
                        .iter()
                        .map(|channel| channel[frame] as f32 * factor),
                );
            }
        }
    }
    Ok(())
}

/// Walks over the metadata. Returns the facts of the stream, and the bytes of its blocks.
fn parse(bytes: &[u8]) -> Result<(StreamInfo, &[u8]), DecodeError> {
    let mut rest = bytes.get(4..).ok_or(DecodeError::Truncated)?;
    let mut info = None;
    loop {
        let (head, content) = rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let [kind, length @ ..]: [u8; 4] = *head;
        let [a, b, c] = length;
        let length = u32::from_be_bytes([0, a, b, c]);
        let (content, after) = content
            .split_at_checked(length as usize)
            .ok_or(DecodeError::Truncated)?;
        if info.is_none() {
            if kind & 0x7F != STREAMINFO {
                return Err(DecodeError::from_damage(
                    "the FLAC file does not begin with STREAMINFO",
                ));
            }
            let mut content = BufferedReader::new(content);
            info = match read_metadata_block(&mut content, STREAMINFO, length).map_err(error)? {
                MetadataBlock::StreamInfo(info) => Some(info),
                _ => None,
            };
        }
        rest = after;
        // The highest bit marks the last block.
        if let (Some(info), true) = (info, kind & 0x80 != 0) {
            return Ok((info, rest));
        }
    }
}

fn error(error: claxon::Error) -> DecodeError {
    match error {
        claxon::Error::IoError(error) => DecodeError::from_io(&error),
        claxon::Error::FormatError(what) => DecodeError::from_damage(what),
        claxon::Error::Unsupported(what) => DecodeError::Unsupported {
            what: format!("FLAC with an unusual feature ({what})").into(),
            fix: ENCODE_AGAIN,
        },
    }
}
