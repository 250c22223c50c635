//! The table of output formats.
//!
//! The file of a shard format declares it once, as an [`OutputFormat`]. Everything else asks for
//! its properties, so that a new format is a writer and a line here.

mod arrow;
pub(super) mod format;
mod npz;
mod parquet;
mod tfrecord;
mod webdataset;

use std::str::FromStr;

use format::{FormatWriter, OutputFormat, PixelStorage};

/// Defines [`Target`] with one variant for each format.
macro_rules! targets {
    ($($(#[$doc:meta])* $target:ident => $format:path,)*) => {
        /// Format of the packed dataset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Target {
            $($(#[$doc])* $target,)*
        }

        impl Target {
            /// All formats.
            pub const ALL: [Target; [$(stringify!($target)),*].len()] = [$(Target::$target),*];

            pub(super) fn format(self) -> &'static OutputFormat {
                match self {
                    $(Target::$target => &$format,)*
                }
            }
        }
    };
}

targets! {
    /// WebDataset tar shards.
    WebDataset => webdataset::FORMAT,
    /// TFRecord shards of `tf.train.Example`.
    TfRecord => tfrecord::FORMAT,
    /// Arrow IPC files.
    Arrow => arrow::FORMAT,
    /// Parquet files as Hugging Face writes them.
    Parquet => parquet::FORMAT,
    /// Compressed NumPy files of one batch each, decoded. All records must have one size.
    Npz => npz::FORMAT,
    /// Image files, in the layout of the source: class folders, a list of labels, or pairs.
    Folder => FOLDER,
    /// One `.npy` file per field, decoded. All records must have one size.
    Arrays => ARRAYS,
}

/// Image files.
static FOLDER: OutputFormat = OutputFormat {
    name: "folder",
    summary: "image files: by class, with a list of labels, or in pairs, as in the source",
    pixels: PixelStorage::Encoded,
    writer: FormatWriter::ImageFiles,
    batch_file: None,
};

/// One array per field.
static ARRAYS: OutputFormat = OutputFormat {
    name: "arrays",
    summary: "one .npy per field, all images decoded to one size",
    pixels: PixelStorage::Decoded,
    writer: FormatWriter::FieldArrays,
    batch_file: None,
};

impl Target {
    /// The format that holds any files unchanged and that most tools read.
    pub const COMMON_SHARDS: Target = Target::WebDataset;

    /// Returns the name, such as `webdataset`.
    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// Returns a description in one line.
    pub fn summary(self) -> &'static str {
        self.format().summary
    }

    /// Returns whether a file holds many records and is written sequentially.
    pub fn is_shards(self) -> bool {
        matches!(self.format().writer, FormatWriter::Shards(_))
    }

    /// Returns the name of a file in messages, if a file is one batch.
    pub fn batch_file(self) -> Option<&'static str> {
        self.format().batch_file
    }

    /// Returns whether the format stores either encoded files or raw pixels.
    pub fn has_choice_of_pixels(self) -> bool {
        self.format().pixels == PixelStorage::Any
    }

    /// Returns whether the format stores decoded pixels only.
    pub(super) fn is_decoded(self) -> bool {
        self.format().pixels == PixelStorage::Decoded
    }

    /// Returns whether the format can store raw pixels.
    pub(super) fn holds_raw_pixels(self) -> bool {
        self.format().pixels != PixelStorage::Encoded
    }

    /// Returns whether a field may have a different length in each record.
    pub(super) fn holds_any_length(self) -> bool {
        self.is_shards() && self.batch_file().is_none()
    }

    /// Returns the names of all formats with a property.
    pub(super) fn names_of(has: impl Fn(Target) -> bool) -> Vec<&'static str> {
        let formats = Target::ALL.into_iter().filter(|&target| has(target));
        formats.map(Target::name).collect()
    }
}

impl FromStr for Target {
    type Err = String;

    /// Parses a name as [`Target::name`] returns it.
    ///
    /// # Errors
    ///
    /// A sentence that lists the valid names.
    fn from_str(text: &str) -> Result<Target, String> {
        let found = Target::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("write one of {}", Target::ALL.map(Target::name).join(", ")))
    }
}

/// Joins names to a list for a sentence: `a, b or c`.
pub(super) fn either(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_parsed_from_its_own_name() {
        for target in Target::ALL {
            assert_eq!(target.name().parse(), Ok(target));
        }
    }

    #[test]
    fn a_list_ends_with_or() {
        assert_eq!(either(&["a"]), "a");
        assert_eq!(either(&["a", "b"]), "a or b");
        assert_eq!(either(&["a", "b", "c"]), "a, b or c");
    }
}
