//! Names of files that are neither WAV nor FLAC.

use crate::decode::{DecodeError, ForeignFile, Format};

const CONVERT: &str = "convert it to WAV or FLAC";

/// First bytes of other formats of audio.
const MAGIC: [(&[u8], &str); 10] = [
    (b"ID3", "a file with an ID3 tag (MP3)"),
    (b"OggS", "an Ogg file"),
    (b"caff\0\x01", "a Core Audio file"),
    (b".snd", "an AU file"),
    (b"#!AMR", "an AMR file"),
    (b"wvpk", "a WavPack file"),
    (b"\x30\x26\xB2\x75", "a WMA file"),
    (b"RF64", "an RF64 file"),
    (b"RIFX", "a WAV file of big-endian samples"),
    (b"riff\x2E\x91", "a Wave64 file"),
];

/// Returns the error of a file that is neither WAV nor FLAC.
pub(super) fn error(bytes: &[u8]) -> DecodeError {
    let unsupported = |what: String| DecodeError::Unsupported {
        what: what.into(),
        fix: CONVERT,
    };
    if let Some(name) = other_audio(bytes) {
        return unsupported(name.to_owned());
    }
    if is_cut(bytes) {
        return DecodeError::Truncated;
    }
    if let Some(format) = Format::of(bytes) {
        return unsupported(format!("a file of an image ({})", format.name()));
    }
    match (ForeignFile::of(bytes), bytes) {
        (ForeignFile::Image(name), _) => unsupported(format!("a file of an image ({name})")),
        (ForeignFile::Other(_), [_, _, _, _, b'f', b't', b'y', b'p', ..]) => {
            unsupported("an MP4 file".to_owned())
        }
        (ForeignFile::Other(_), [0x1A, 0x45, 0xDF, 0xA3, ..]) => {
            unsupported("a Matroska file".to_owned())
        }
        (ForeignFile::Other(name), _) => DecodeError::Unsupported {
            what: format!("the file is {name}, not audio, and").into(),
            fix: "remove it from the dataset",
        },
        (ForeignFile::Unknown, _) => unsupported("a file that is neither WAV nor FLAC".to_owned()),
        (known, _) => DecodeError::UnknownFormat(known),
    }
}

/// Names another format of audio.
fn other_audio(bytes: &[u8]) -> Option<&'static str> {
    let known = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic));
    if let Some((_, name)) = known {
        return Some(name);
    }
    match bytes {
        [b'F', b'O', b'R', b'M', _, _, _, _, b'A', b'I', b'F', ..] => Some("an AIFF file"),
        // MPEG: 11 bits of ones, 2 of the version (1 is reserved), 2 of the layer (0 for AAC), and 1.
        [0xFF, second, ..] if second & 0xF6 == 0xF0 => Some("an AAC file"),
        // Not layer I, because 0xFF 0xFE starts a text in UTF-16.
        [0xFF, second, ..] if second & 0xE0 == 0xE0 && second & 0x18 != 0x08 => {
            matches!(second & 0x06, 0x02 | 0x04).then_some("an MP3 file")
        }
        _ => None,
    }
}

/// Whether a WAV or FLAC file was cut inside its first bytes.
fn is_cut(bytes: &[u8]) -> bool {
    let begin = &bytes[..bytes.len().min(4)];
    let begins = |magic: &[u8]| !begin.is_empty() && magic.starts_with(begin);
    bytes.len() < 12 && (begins(b"RIFF") || begins(b"fLaC"))
}
