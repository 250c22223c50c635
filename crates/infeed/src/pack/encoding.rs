//! What is written and how, with the words by which people and manifests name it.

use std::fmt;
use std::str::FromStr;

/// What a dataset is rewritten to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Image files, in the layout of the source: class folders, a list of labels, or pairs.
    Folder,
    /// One `.npy` a field, all decoded; every record needs one size.
    Arrays,
    /// Tar shards in the form of WebDataset.
    WebDataset,
    /// TFRecord shards of `tf.train.Example`.
    TfRecord,
    /// Arrow IPC files.
    Arrow,
    /// Parquet files as Hugging Face writes them.
    Parquet,
    /// Compressed NumPy files of one batch each, all decoded; every record needs one size.
    Npz,
}

/// How pixels are encoded in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Without transforms, the bytes as they are. With them, the format the record has: PNG stays
    /// PNG (adaptive filters, balanced), JPEG stays JPEG (quality 95, chroma 4:2:0), any other
    /// becomes PNG. A mask always becomes PNG.
    Keep,
    /// Baseline JPEG, chroma 4:2:0.
    Jpeg {
        /// 1 to 100.
        quality: u8,
    },
    /// PNG without interlacing.
    Png {
        /// How rows are prepared.
        filter: PngFilter,
        /// How hard rows are compressed.
        level: PngLevel,
    },
    /// WebP without loss: colours, with or without alpha, of 8 bits. Smaller than PNG, and slower to
    /// read than any of them.
    WebpLossless,
    /// Pixels, not encoded, for formats that tell their shape; every record needs one size.
    Raw,
}

/// How a row of a PNG is prepared before it is compressed. Undoing `Up` and `None` is cheapest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PngFilter {
    None,
    Sub,
    Up,
    Avg,
    Paeth,
    /// The one of the five that promises most, row by row.
    #[default]
    Adaptive,
}

/// How hard a PNG is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PngLevel {
    /// Not at all; rows are not filtered either.
    Stored,
    /// A light code made for PNGs.
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

impl Target {
    /// All of them.
    pub const ALL: [Target; 7] = [
        Target::WebDataset,
        Target::TfRecord,
        Target::Arrow,
        Target::Parquet,
        Target::Npz,
        Target::Folder,
        Target::Arrays,
    ];

    /// The word for it, such as `webdataset`.
    pub fn name(self) -> &'static str {
        match self {
            Target::Folder => "folder",
            Target::Arrays => "arrays",
            Target::WebDataset => "webdataset",
            Target::TfRecord => "tfrecord",
            Target::Arrow => "arrow",
            Target::Parquet => "parquet",
            Target::Npz => "npz",
        }
    }

    /// Whether many records lie in one file, which is written front to back.
    pub fn is_shards(self) -> bool {
        !matches!(self, Target::Folder | Target::Arrays)
    }

    /// Whether pixels cannot be encoded there.
    pub(super) fn is_decoded(self) -> bool {
        matches!(self, Target::Arrays | Target::Npz)
    }
}

impl FromStr for Target {
    type Err = String;

    /// Reads what [`Target::name`] gives.
    ///
    /// # Errors
    ///
    /// A sentence that says what may be written.
    fn from_str(text: &str) -> Result<Target, String> {
        let found = Target::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("write one of {}", Target::ALL.map(Target::name).join(", ")))
    }
}

/// The word for one of a list.
fn word<T: PartialEq + Copy>(all: &[(T, &'static str)], wanted: T) -> &'static str {
    let found = all.iter().find(|(one, _)| *one == wanted);
    found.map_or("", |(_, word)| word)
}

/// The one of a list that a word names.
fn one<T: Copy>(all: &[(T, &'static str)], wanted: &str) -> Option<T> {
    let found = all.iter().find(|(_, word)| *word == wanted);
    found.map(|(one, _)| *one)
}

impl fmt::Display for Encoding {
    /// A word that [`Encoding::from_str`] reads: `keep`, `jpeg:90`, `png:up:fast`, `webp-lossless`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Encoding::Keep => f.write_str("keep"),
            Encoding::Raw => f.write_str("raw"),
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

    /// Reads `keep`, `raw`, `jpeg:1` to `jpeg:100`, `png`, `png:FILTER`, `png:FILTER:LEVEL`,
    /// `webp-lossless`, and the short words `png-fast` for `png:up:fast` and `png-stored` for
    /// `png:none:stored`.
    ///
    /// # Errors
    ///
    /// A sentence that says what may be written.
    fn from_str(text: &str) -> Result<Encoding, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let found = match parts[..] {
            ["keep"] => Some(Encoding::Keep),
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
            "write keep, raw, jpeg:QUALITY (1 to 100), png, png-fast, png-stored, webp-lossless, or \
             png:FILTER:LEVEL with a filter of none, sub, up, avg, paeth, adaptive and a level of \
             stored, fast, balanced, high"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_survives_being_written_and_read() {
        let mut all = vec![
            Encoding::Keep,
            Encoding::Raw,
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
    fn what_is_left_out_has_a_default_and_nonsense_is_refused() {
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
