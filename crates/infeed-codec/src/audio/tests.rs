//! Samples equal those of soundfile and of the writer; damaged files give errors.

use std::io::Cursor;
use std::path::PathBuf;

use super::*;

/// Files that `testdata/audio/make.py` makes with soundfile, and their header.
const FILES: [(&str, AudioFormat, u32, u16, u64); 8] = [
    ("mono16.flac", AudioFormat::Flac, 16000, 1, 700),
    ("stereo24.flac", AudioFormat::Flac, 44100, 2, 300),
    ("six8.flac", AudioFormat::Flac, 48000, 6, 100),
    ("mono8.wav", AudioFormat::Wav, 8000, 1, 100),
    ("stereo16.wav", AudioFormat::Wav, 44100, 2, 100),
    ("six24.wav", AudioFormat::Wav, 48000, 6, 40),
    ("mono32.wav", AudioFormat::Wav, 16000, 1, 100),
    ("float.wav", AudioFormat::Wav, 16000, 1, 100),
];

fn read(file: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/audio");
    std::fs::read(folder.join(file)).unwrap()
}

/// Returns the bytes of each file, and of `blocks.flac`.
fn files() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let names = FILES.iter().map(|file| file.0).chain(["blocks.flac"]);
    names.map(|name| (name, read(name)))
}

fn decode_samples(bytes: &[u8], range: Range<u64>) -> Result<Vec<f32>, DecodeError> {
    let mut out = vec![7.0];
    decode(bytes, &header(bytes)?, range, &mut out)?;
    Ok(out)
}

fn whole(bytes: &[u8]) -> Vec<f32> {
    decode_samples(bytes, 0..u64::MAX).unwrap()
}

/// Compares bits, so that numbers that are not finite count.
fn assert_same(found: &[f32], expected: &[f32], context: &str) {
    let bits = |samples: &[f32]| samples.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(
        bits(found) == bits(expected),
        "{context}: {found:?} instead of {expected:?}"
    );
}

/// Compares ranges with parts of the whole file.
fn assert_ranges_are_slices(bytes: &[u8], context: &str) {
    let AudioHeader {
        frames, channels, ..
    } = header(bytes).unwrap();
    let all = whole(bytes);
    let channels = usize::from(channels);
    for start in [
        0,
        1,
        frames / 3,
        4095,
        4096,
        4097,
        frames - 1,
        frames,
        frames + 9,
    ] {
        for length in [0, 1, 5, 4096, frames, u64::MAX] {
            let range = start..start.saturating_add(length);
            let first = start.min(frames) as usize * channels;
            let end = range.end.min(frames) as usize * channels;
            let found = decode_samples(bytes, range.clone()).unwrap();
            assert_same(&found, &all[first..end], &format!("{context} {range:?}"));
        }
    }
}

#[test]
fn samples_equal_those_of_soundfile() {
    for (name, format, rate, channels, frames) in FILES {
        let bytes = read(name);
        let expected = AudioHeader {
            format,
            rate,
            channels,
            frames,
        };
        assert_eq!(header(&bytes), Ok(expected), "{name}");
        let expected = read(&format!("{name}.f32"));
        let (expected, _) = expected.as_chunks::<4>();
        let expected: Vec<f32> = expected.iter().map(|v| f32::from_le_bytes(*v)).collect();
        assert_eq!(expected.len() as u64, frames * u64::from(channels));
        assert_same(&whole(&bytes), &expected, name);
        assert_ranges_are_slices(&bytes, name);
    }
}

#[test]
fn a_flac_of_several_blocks_has_the_samples_of_its_formula() {
    let bytes = read("blocks.flac");
    let expected: Vec<f32> = (0..9000)
        .map(|at| (at * 7 % 20001 - 10000) as f32 / 32768.0)
        .collect();

    assert_same(&whole(&bytes), &expected, "blocks.flac");
    assert_ranges_are_slices(&bytes, "blocks.flac");
}

/// Writes a file with the `hound` crate.
fn wav<S: hound::Sample + Copy>(
    bits: u16,
    sample_format: hound::SampleFormat,
    channels: u16,
    samples: &[S],
) -> Vec<u8> {
    let spec = hound::WavSpec {
        channels,
        sample_rate: 22050,
        bits_per_sample: bits,
        sample_format,
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
    for sample in samples {
        writer.write_sample(*sample).unwrap();
    }
    writer.finalize().unwrap();
    file.into_inner()
}

/// A file of 16 bits with one channel.
fn short() -> Vec<u8> {
    wav(16, hound::SampleFormat::Int, 1, &[0i16, 1, -2, 3])
}

#[test]
fn integers_of_a_wav_are_divided_by_their_range() {
    for bits in [8, 16, 24, 32] {
        let limit = 1i64 << (bits - 1);
        for channels in [1, 2, 6] {
            let edges = [0, 1, -1, limit - 1, -limit, limit / 3];
            let samples: Vec<i32> = edges.repeat(7).iter().map(|v| *v as i32).collect();
            let bytes = wav(bits, hound::SampleFormat::Int, channels, &samples);
            let expected: Vec<f32> = samples
                .iter()
                .map(|v| (f64::from(*v) / limit as f64) as f32)
                .collect();
            let context = format!("{bits} bits, {channels} channels");

            assert_eq!(header(&bytes).unwrap().channels, channels, "{context}");
            assert_same(&whole(&bytes), &expected, &context);
            assert_ranges_are_slices(&bytes, &context);
        }
    }
}

#[test]
fn floats_of_a_wav_are_copied() {
    let samples = [0.5, -1.0, 3.5, f32::NAN, f32::INFINITY, -0.0];
    let bytes = wav(32, hound::SampleFormat::Float, 2, &samples);

    assert_same(&whole(&bytes), &samples, "floats");
    assert_eq!(header(&bytes).unwrap().frames, 3);
}

#[test]
fn a_chunk_of_odd_length_before_the_data_is_skipped_with_its_padding() {
    let bytes = short();
    let chunk = b"LIST\x03\0\0\0abc\0";
    let odd = [&bytes[..36], chunk, &bytes[36..], chunk].concat();

    assert_eq!(&bytes[36..40], b"data");
    assert_same(&whole(&odd), &whole(&bytes), "odd chunk");
}

#[test]
fn encodings_that_are_not_supported_are_named() {
    for (tag, bits, expected) in [
        (3, 64, "64-bit floats in a WAV file"),
        (6, 8, "A-law samples"),
        (7, 8, "mu-law samples"),
        (2, 4, "ADPCM samples"),
        (0x55, 0, "MP3 samples"),
        (0x1234, 16, "encoding 0x1234"),
        (1, 64, "64-bit integers"),
        (1, 0, "0-bit integers"),
        (1, 24, "24-bit WAV samples in frames of 2 bytes"),
        (0xFFFE, 16, "too short"),
    ] {
        let mut bytes = short();
        bytes[20..22].copy_from_slice(&u16::to_le_bytes(tag));
        bytes[34..36].copy_from_slice(&u16::to_le_bytes(bits));
        let text = header(&bytes).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(
            tag == 0xFFFE || text.contains("; convert the file to"),
            "{text}"
        );
    }
}

#[test]
fn encodings_of_an_extensible_wav_are_those_of_its_guid() {
    let six = read("six24.wav");
    for (at, byte, expected) in [
        (44, 6, "A-law"),
        (46, 1, "an unknown encoding"),
        (16, 38, "too short"),
    ] {
        let mut bytes = six.clone();
        bytes[at] = byte;
        let text = header(&bytes).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn contradictions_of_a_header_are_damage() {
    for (at, bytes, expected) in [
        (22, &[0, 0][..], "0 channels"),
        (24, &[0, 0, 0, 0], "a rate of 0 Hz"),
        (40, &[7, 0, 0, 0], "ends inside a sample"),
        (12, b"what", "no fmt chunk"),
        (36, b"what", "no data chunk"),
    ] {
        let mut wav = short();
        wav[at..at + bytes.len()].copy_from_slice(bytes);
        let text = header(&wav).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_wav_whose_length_was_not_written_is_an_error_that_says_so() {
    for (riff, data) in [
        (u32::MAX, u32::MAX),
        (0x7FFF_F024, 0x7FFF_F000),
        (0, 0),
        (36, 0),
    ] {
        let mut wav = short();
        wav[4..8].copy_from_slice(&riff.to_le_bytes());
        wav[40..44].copy_from_slice(&data.to_le_bytes());
        let text = header(&wav).unwrap_err().to_string();
        assert!(text.contains("a WAV file without a length"), "{text}");
        assert!(text.contains("; re-encode it with a length"), "{text}");
    }
    let empty = wav::<i16>(16, hound::SampleFormat::Int, 1, &[]);
    assert_eq!(header(&empty).unwrap().frames, 0);
    assert!(whole(&empty).is_empty());
}

/// A FLAC file whose header claims this number of frames.
fn claiming(frames: u64) -> Vec<u8> {
    let mut bytes = read("mono16.flac");
    let [.., a, b, c, d, e] = frames.to_be_bytes();
    bytes[21] = bytes[21] & 0xF0 | a;
    bytes[22..26].copy_from_slice(&[b, c, d, e]);
    bytes
}

#[test]
fn the_length_that_a_flac_claims_is_checked() {
    let text = |frames| header(&claiming(frames)).unwrap_err().to_string();

    assert_eq!(header(&claiming(700)), header(&read("mono16.flac")));
    assert!(text(0).contains("a FLAC file without a length cannot be decoded; re-encode it"));
    assert!(text((1 << 31) + 1).contains("over the limit of 2147483648 in total"));
    // More than the bytes can have, which nothing is allocated for.
    assert_eq!(header(&claiming(1 << 31)), Err(DecodeError::Truncated));
    let mut out = Vec::new();
    let claimed = claiming(4000);
    let header = header(&claimed).unwrap();
    let done = decode(&claimed, &header, 0..4000, &mut out);
    assert_eq!(done, Err(DecodeError::Truncated));
    assert_eq!(decode(&claimed, &header, 0..700, &mut out), Ok(()));
}

#[test]
fn a_flac_of_32_bits_is_named() {
    let mut bytes = read("mono16.flac");
    // 5 bits of the number of bits minus one.
    bytes[20] |= 1;
    bytes[21] |= 0xF0;
    let text = header(&bytes).unwrap_err().to_string();

    assert!(text.contains("32-bit FLAC cannot be decoded; re-encode it with 24 bits"));
}

/// Returns the offsets of the blocks of `blocks.flac`, found by their first bytes.
fn block_offsets(bytes: &[u8]) -> Vec<usize> {
    let starts = bytes.windows(2).enumerate();
    let starts = starts.filter(|(_, pair)| pair == &[0xFF, 0xF8]);
    starts.map(|(at, _)| at).collect()
}

#[test]
fn a_missing_block_of_a_flac_is_an_error_only_behind_it() {
    let bytes = read("blocks.flac");
    let offsets = block_offsets(&bytes);
    assert_eq!(offsets.len(), 3, "4096, 4096 and 808 samples");
    let missing = [&bytes[..offsets[0]], &bytes[offsets[1]..]].concat();
    let last = [&bytes[..offsets[1]], &bytes[offsets[2]..]].concat();

    let damage = DecodeError::from_damage("a block of samples is missing or repeated");
    assert_eq!(decode_samples(&missing, 0..1), Err(damage));
    assert_eq!(decode_samples(&last, 0..9000), Err(DecodeError::Truncated));
    assert_same(
        &decode_samples(&last, 0..4096).unwrap(),
        &whole(&bytes)[..4096],
        "before the missing block",
    );
}

#[test]
fn a_flipped_bit_in_a_block_of_a_flac_is_an_error_of_ranges_that_need_it() {
    let bytes = read("blocks.flac");
    let offsets = block_offsets(&bytes);
    let all = whole(&bytes);
    for at in offsets[1]..offsets[2] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);

        assert!(decode_samples(&flipped, 4096..4097).is_err(), "byte {at}");
        assert!(
            decode_samples(&flipped, 9000 - 1..9000).is_err(),
            "byte {at}"
        );
        assert_same(
            &decode_samples(&flipped, 0..4096).unwrap(),
            &all[..4096],
            "before",
        );
    }
}

#[test]
fn a_file_cut_short_anywhere_is_truncated() {
    for (name, bytes) in files() {
        for length in 1..bytes.len() {
            let found = decode_samples(&bytes[..length], 0..u64::MAX);
            assert_eq!(
                found,
                Err(DecodeError::Truncated),
                "{name} cut to {length} of {} bytes",
                bytes.len()
            );
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    // xorshift64*
    let mut state = 5u64;
    let mut below = |n: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize % n
    };
    for (name, bytes) in files() {
        let mut errors = 0;
        for round in 0..2000 {
            let mut changed = bytes.clone();
            for _ in 0..=below(3) {
                // Half of the changes are in the header.
                let most = [changed.len(), 60][below(2)];
                changed[below(most)] = below(256) as u8;
            }
            let start = below(100) as u64;
            match decode_samples(&changed, start..start + 5000) {
                Ok(samples) => {
                    let channels = usize::from(header(&changed).unwrap().channels);
                    assert!(samples.len().is_multiple_of(channels), "{name}, {round}");
                    assert!(samples.len() <= 5000 * channels, "{name}, {round}");
                }
                Err(error @ DecodeError::Panicked { .. }) => panic!("{name}, {round}: {error}"),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 100, "{name}: {errors}");
    }
}

#[test]
fn files_of_other_formats_are_named_with_a_fix() {
    for (bytes, expected) in [
        (&b"ID3\x04\0\0"[..], "a file with an ID3 tag (MP3) cannot"),
        (b"\xFF\xFB\x90\x64\0\0", "an MP3 file cannot"),
        (b"\xFF\xF3\x84\xC4\0\0", "an MP3 file cannot"),
        (b"\xFF\xF1\x50\x80\0\0", "an AAC file cannot"),
        (b"OggS\0\x02", "an Ogg file cannot"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "an MP4 file cannot"),
        (b"\x1A\x45\xDF\xA3\x01", "a Matroska file cannot"),
        (b"FORM\0\0\0\x20AIFFCOMM", "an AIFF file cannot"),
        (b"RF64\xFF\xFF\xFF\xFFWAVE", "an RF64 file cannot"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avif", "an image (AVIF)"),
        (b"\x89PNG\r\n\x1A\n\0\0", "an image (PNG)"),
        (b"\x01\x02\x03\x04\x05", "neither WAV nor FLAC"),
        (b"\xFF\xFEa\0b\0c\0", "neither WAV nor FLAC"),
    ] {
        let text = header(bytes).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("; convert it to WAV or FLAC"), "{text}");
    }
    for (bytes, expected) in [
        (&b""[..], "the file is empty; copy it again"),
        (&[0; 99], "only zeros"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "git lfs pull",
        ),
        (b"<!DOCTYPE html>", "an HTML page"),
        (b"FORMAT of the files", "the file is a text, not audio, and"),
        (b"RIFF\0\0\0\0WAV", "truncated"),
    ] {
        let text = header(bytes).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_header_of_another_file_is_an_error() {
    let other = header(&read("mono16.flac")).unwrap();
    let done = decode(&read("mono8.wav"), &other, 0..1, &mut Vec::new());

    assert!(matches!(done, Err(DecodeError::Damaged { .. })), "{done:?}");
}

#[test]
fn a_panic_is_an_error_of_the_record() {
    let bytes = [&short(), PANIC].concat();
    let error = decode_samples(&bytes, 0..1).unwrap_err();

    let text = error.to_string();
    assert!(
        text.contains("the WAV decoder failed internally (injected)"),
        "{text}"
    );
}
