//! Names of files that are no image, or an image of a format that the decoder does not read.

use std::fmt;

/// Extensions of images that the decoder does not read.
const EXTENSIONS: [&str; 36] = [
    "3fr", "arw", "avif", "cr2", "cr3", "dcm", "dds", "dib", "dng", "exr", "fits", "hdr", "heic",
    "heif", "hif", "ico", "j2c", "j2k", "jp2", "jpc", "jpx", "jxl", "jxr", "nef", "orf", "pam",
    "pcx", "pfm", "psd", "qoi", "raf", "rw2", "svg", "svs", "tga", "xcf",
];

/// Whether files with this extension, in any case, are images that [`super::Decoder`] does not read.
pub fn is_undecoded_image(extension: &str) -> bool {
    let known = EXTENSIONS.iter();
    known
        .into_iter()
        .any(|known| known.eq_ignore_ascii_case(extension))
}

/// Content of a file that [`super::Decoder`] does not read, judged by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignFile {
    /// No bytes.
    Empty,
    /// Only zeros.
    Zeros,
    /// A pointer of Git LFS to the content.
    LfsPointer,
    /// An HTML page.
    Html,
    /// An image of this format.
    Image(&'static str),
    /// A file of this kind, which is no image.
    Other(&'static str),
    /// Unknown bytes.
    Unknown,
}

impl ForeignFile {
    /// Recognizes what stands in place of any data: nothing, a pointer, or a web page. None for other
    /// bytes, also for valid files.
    pub fn in_place_of_data(bytes: &[u8]) -> Option<ForeignFile> {
        use ForeignFile::{Empty, Html, LfsPointer};
        let found = ForeignFile::of(bytes);
        matches!(found, Empty | LfsPointer | Html).then_some(found)
    }

    /// Judges bytes that have no known image format. Allocates nothing.
    pub fn of(bytes: &[u8]) -> ForeignFile {
        if bytes.is_empty() {
            return ForeignFile::Empty;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return ForeignFile::Zeros;
        }
        if let Some(found) = by_magic(bytes) {
            return found;
        }
        of_text(bytes).unwrap_or(ForeignFile::Unknown)
    }
}

/// Judges the first bytes of binary files.
fn by_magic(bytes: &[u8]) -> Option<ForeignFile> {
    use ForeignFile::{Image, Other};
    if let Some(brand) = bytes.get(4..).and_then(|rest| rest.strip_prefix(b"ftyp")) {
        return Some(of_brands(brand));
    }
    let known: [(&[u8], ForeignFile); 26] = [
        (b"\xFF\x0A", Image("JPEG XL")),
        (b"\0\0\0\x0CJXL ", Image("JPEG XL")),
        (b"\0\0\0\x0CjP  ", Image("JPEG 2000")),
        (b"\xFF\x4F\xFF\x51", Image("JPEG 2000")),
        (b"II\xBC", Image("JPEG XR")),
        (b"8BPS", Image("Photoshop")),
        (b"\0\0\x01\0", Image("ICO")),
        (b"\x28\0\0\0", Image("DIB")),
        (b"qoif", Image("QOI")),
        (b"DDS ", Image("DDS")),
        (b"#?RADIANCE", Image("Radiance HDR")),
        (b"\x76\x2F\x31\x01", Image("OpenEXR")),
        (b"SIMPLE  =", Image("FITS")),
        (b"P7\n", Image("PAM")),
        (b"%PDF-", Other("a PDF")),
        (b"\x1F\x8B", Other("compressed with gzip")),
        (b"\x28\xB5\x2F\xFD", Other("compressed with Zstandard")),
        (b"BZh", Other("compressed with bzip2")),
        (b"\xFD7zXZ\0", Other("compressed with xz")),
        (b"PK\x03\x04", Other("a zip archive")),
        (b"7z\xBC\xAF", Other("a 7z archive")),
        (b"Rar!", Other("a RAR archive")),
        (b"\x93NUMPY", Other("a NumPy array")),
        (b"\x89HDF", Other("an HDF5 file")),
        (b"PAR1", Other("a table")),
        (b"\x1A\x45\xDF\xA3", Other("a video")),
    ];
    if let Some((_, found)) = known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(*found);
    }
    match bytes.get(128..132) {
        Some(b"DICM") => Some(Image("DICOM")),
        _ => None,
    }
}

/// Judges the brands of an ISO media file: the major one, a version, and the compatible ones.
fn of_brands(brands: &[u8]) -> ForeignFile {
    let has = |names: [&[u8; 4]; 2]| {
        let brands = brands.chunks_exact(4).take(16);
        brands
            .into_iter()
            .any(|brand| names.iter().any(|name| brand == *name))
    };
    if has([b"avif", b"avis"]) {
        ForeignFile::Image("AVIF")
    } else if has([b"heic", b"heix"]) || has([b"hevc", b"hevx"]) || has([b"mif1", b"msf1"]) {
        ForeignFile::Image("HEIC")
    } else {
        ForeignFile::Other("a video")
    }
}

/// Judges the beginning of a text. None for other bytes.
fn of_text(bytes: &[u8]) -> Option<ForeignFile> {
    use ForeignFile::{Html, Image, LfsPointer, Other};
    if bytes.starts_with(b"version https://git-lfs") {
        return Some(LfsPointer);
    }
    let head = &bytes[..bytes.len().min(512)];
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let text = head.trim_ascii_start();
    let begins = |tag: &[u8]| {
        let begin = text.get(..tag.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(tag))
    };
    let has = |tag: &[u8]| {
        text.windows(tag.len())
            .any(|part| part.eq_ignore_ascii_case(tag))
    };
    if begins(b"<!doctype html") || begins(b"<html") || begins(b"<head") || begins(b"<body") {
        return Some(Html);
    }
    if begins(b"<svg") || begins(b"<?xml") || begins(b"<!") {
        return Some(match (has(b"<svg"), has(b"<html")) {
            (true, _) => Image("SVG"),
            (_, true) => Html,
            _ => Other("an XML text"),
        });
    }
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7E | 0x80..);
    // The end of `head` may cut a character.
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    if !is_utf8 || !head.iter().all(is_text) || text.is_empty() {
        return None;
    }
    Some(match text[0] {
        b'{' | b'[' => Other("a JSON text"),
        _ => Other("a text"),
    })
}

impl fmt::Display for ForeignFile {
    /// Writes what the file is, and the fix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForeignFile::Empty => f.write_str("the file is empty; copy it again"),
            ForeignFile::Zeros => {
                f.write_str("the file has only zeros, as after an interrupted copy; copy it again")
            }
            ForeignFile::LfsPointer => f.write_str(
                "the file is a Git LFS pointer, not the data; run `git lfs pull` in its repository",
            ),
            ForeignFile::Html => f.write_str(
                "the file is an HTML page, probably of a failed download; download the file again",
            ),
            ForeignFile::Image(name) => write!(
                f,
                "the file is {name}, which infeed does not decode; convert it to PNG or WebP"
            ),
            ForeignFile::Other(name) => {
                write!(f, "the file is {name}, not an image; remove it from the dataset")
            }
            ForeignFile::Unknown => f.write_str(
                "not a JPEG, PNG, WebP, BMP, GIF, TIFF or PNM file; if the bytes are raw pixels, \
                 declare the field as kind=\"tensor\" with dtype=\"uint8\" and shape=(height, width, \
                 channels)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Format;

    #[test]
    fn files_that_are_no_image_are_called_what_they_are() {
        for (bytes, expected) in [
            (&b""[..], "the file is empty; copy it again"),
            (&[0; 4096], "only zeros"),
            (
                b"version https://git-lfs.github.com/spec/v1\noid",
                "Git LFS pointer",
            ),
            (b"\n <!DOCTYPE html><html>404</html>", "an HTML page"),
            (b"<?xml version='1.0'?><svg/>", "the file is SVG"),
            (b"<?xml version='1.0'?><Error/>", "an XML text"),
            (b"{\"error\": 404}", "a JSON text"),
            (b"404: Not Found", "a text, not an image"),
            ("für später".as_bytes(), "a text, not an image"),
            (
                b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf",
                "the file is AVIF",
            ),
            (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif", "the file is AVIF"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "the file is HEIC"),
            (b"\0\0\0\x18ftypisom\0\0\0\0mp42", "a video"),
            (b"\xff\x0a\x01", "the file is JPEG XL"),
            (b"\0\0\0\x0cJXL \r\n", "the file is JPEG XL"),
            (b"\0\0\0\x0cjP  \r\n", "the file is JPEG 2000"),
            (b"%PDF-1.7\n", "a PDF"),
            (b"\x1f\x8b\x08\0\0\0", "compressed with gzip"),
            (b"PK\x03\x04", "a zip archive"),
            (b"\x93NUMPY\x01\0", "a NumPy array"),
            (b"\x01\x02\x03\x04\x05\x06", "kind=\"tensor\""),
            (b"\0\0\0\0\0\x01", "kind=\"tensor\""),
        ] {
            assert_eq!(Format::of(bytes), None, "{expected}");
            let text = ForeignFile::of(bytes).to_string();
            assert!(text.contains(expected), "{bytes:?}: {text}");
            assert!(text.contains("; "), "no fix: {text}");
        }
    }

    #[test]
    fn extensions_of_images_that_are_not_decoded_are_known() {
        for extension in ["avif", "JP2", "tga"] {
            assert!(is_undecoded_image(extension), "{extension}");
        }
        for extension in ["", "txt", "jpg", "ppm"] {
            assert!(!is_undecoded_image(extension), "{extension}");
        }
    }
}
