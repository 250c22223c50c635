//! Encodings of pixels, with their names in options and manifests.

use std::fmt;
use std::str::FromStr;

/// Encoding of pixels in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Without transforms, copies the bytes. With transforms, keeps the format of the record: PNG
    /// stays PNG (adaptive filters, balanced), JPEG stays JPEG (quality 95, chroma 4:2:0), any
    /// other becomes PNG. A mask always becomes PNG.
    Keep,
    /// Baseline JPEG, chroma 4:2:0.
    Jpeg {
        /// Quality, 1 to 100.
        quality: u8,
    },
    /// PNG without interlacing.
    Png {
        /// Filter of the rows.
        filter: PngFilter,
        /// Compression level.
        level: PngLevel,
    },
    /// Lossless WebP: colour images of 8 bits, with or without alpha. Smaller than PNG, and slower
    /// to read than the other formats.
    WebpLossless,
    /// Lossless records ([`infeed_codec::lossless`]), smaller than JPEG and PNG and several times
    /// faster to decode. Files that would not become smaller are copied.
    Lossless,
    /// Restores the files of lossless records, and copies all others.
    Restore,
    /// Raw pixels, for formats that store a shape. All records must have one size.
    Raw,
}

/// Filter of a PNG's rows before compression. `Up` and `None` are the cheapest to undo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PngFilter {
    None,
    Sub,
    Up,
    Avg,
    Paeth,
    /// Per row, the most promising of the five filters.
    #[default]
    Adaptive,
}

/// Compression level of a PNG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PngLevel {
    /// No compression and no filter.
    Stored,
    /// A fast code made for PNG.
    Fast,
    /// Deflate, level 6.
    #[default]
    Balanced,
    /// Deflate, level 9.
    High,
}

impl PngFilter {
    const ALL: [(PngFilter, &'static str); 6] = [
        (PngFilter::None, "none"),
        (PngFilter::Sub, "sub"),
        (PngFilter::Up, "up"),
        (PngFilter::Avg, "avg"),
        (PngFilter::Paeth, "paeth"),
        (PngFilter::Adaptive, "adaptive"),
    ];
}

impl PngLevel {
    const ALL: [(PngLevel, &'static str); 4] = [
        (PngLevel::Stored, "stored"),
        (PngLevel::Fast, "fast"),
        (PngLevel::Balanced, "balanced"),
        (PngLevel::High, "high"),
    ];
}

/// Returns the name of a value in a list.
fn word<T: PartialEq + Copy>(all: &[(T, &'static str)], wanted: T) -> &'static str {
    let found = all.iter().find(|(one, _)| *one == wanted);
    found.map_or("", |(_, word)| word)
}

/// Returns the value with a name in a list.
fn one<T: Copy>(all: &[(T, &'static str)], wanted: &str) -> Option<T> {
    let found = all.iter().find(|(_, word)| *word == wanted);
    found.map(|(one, _)| *one)
}

impl fmt::Display for Encoding {
    /// Writes a name that [`Encoding::from_str`] parses: `keep`, `jpeg:90`, `png:up:fast`,
    /// `webp-lossless`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Encoding::Keep => f.write_str("keep"),
            Encoding::Raw => f.write_str("raw"),
            Encoding::Lossless => f.write_str("lossless"),
            Encoding::Restore => f.write_str("restore"),
            Encoding::Jpeg { quality } => write!(f, "jpeg:{quality}"),
            Encoding::WebpLossless => f.write_str("webp-lossless"),
            Encoding::Png { filter, level } => {
                let filter = word(&PngFilter::ALL, filter);
                write!(f, "png:{filter}:{}", word(&PngLevel::ALL, level))
            }
        }
    }
}

impl FromStr for Encoding {
    type Err = String;

    /// Parses `keep`, `lossless`, `restore`, `raw`, `jpeg:1` to `jpeg:100`, `png`, `png:FILTER`,
    /// `png:FILTER:LEVEL`, `webp-lossless`, and the short names `png-fast` for `png:up:fast` and `png-stored` for
    /// `png:none:stored`.
    ///
    /// # Errors
    ///
    /// A sentence that lists the valid names.
    fn from_str(text: &str) -> Result<Encoding, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let found = match parts[..] {
            ["keep"] => Some(Encoding::Keep),
            ["lossless"] => Some(Encoding::Lossless),
            ["restore"] => Some(Encoding::Restore),
            ["webp-lossless"] => Some(Encoding::WebpLossless),
            ["png-fast"] => Some(Encoding::Png {
                filter: PngFilter::Up,
                level: PngLevel::Fast,
            }),
            ["png-stored"] => Some(Encoding::Png {
                filter: PngFilter::None,
                level: PngLevel::Stored,
            }),
            ["raw"] => Some(Encoding::Raw),
            ["jpeg", quality] => match quality.parse() {
                Ok(quality @ 1..=100) => Some(Encoding::Jpeg { quality }),
                _ => None,
            },
            ["png", ref rest @ ..] if rest.len() <= 2 => {
                let filter = rest.first().map(|text| one(&PngFilter::ALL, text));
                let level = rest.get(1).map(|text| one(&PngLevel::ALL, text));
                let filter = filter.unwrap_or(Some(PngFilter::default()));
                let level = level.unwrap_or(Some(PngLevel::default()));
                let both = filter.zip(level);
                both.map(|(filter, level)| Encoding::Png { filter, level })
            }
            _ => None,
        };
        found.ok_or_else(|| {
            "write keep, lossless, restore, raw, jpeg:QUALITY (1 to 100), png, png-fast, png-stored, \
             webp-lossless, or png:FILTER:LEVEL with a filter of none, sub, up, avg, paeth, adaptive and a level of \
             stored, fast, balanced, high"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_parsed_from_its_own_name() {
        let mut all = vec![
            Encoding::Keep,
            Encoding::Raw,
            Encoding::Lossless,
            Encoding::Restore,
            Encoding::Jpeg { quality: 90 },
            Encoding::WebpLossless,
        ];
        for (filter, _) in PngFilter::ALL {
            all.extend(PngLevel::ALL.map(|(level, _)| Encoding::Png { filter, level }));
        }

        for encoding in all {
            assert_eq!(encoding.to_string().parse(), Ok(encoding));
        }
    }

    #[test]
    fn missing_parts_have_defaults_and_invalid_names_are_rejected() {
        let png = |filter, level| Ok(Encoding::Png { filter, level });

        assert_eq!("png".parse(), png(PngFilter::Adaptive, PngLevel::Balanced));
        assert_eq!("png:up".parse(), png(PngFilter::Up, PngLevel::Balanced));
        assert_eq!("png-fast".parse(), png(PngFilter::Up, PngLevel::Fast));
        assert_eq!("png-stored".parse(), png(PngFilter::None, PngLevel::Stored));
        for wrong in [
            "",
            "jpg:90",
            "jpeg",
            "jpeg:0",
            "jpeg:101",
            "png:up:fast:x",
            "png:best",
            "png-fast:up",
            "webp",
        ] {
            assert!(wrong.parse::<Encoding>().is_err(), "{wrong}");
        }
    }
}
