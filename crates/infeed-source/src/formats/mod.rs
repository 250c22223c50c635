//! The table of file formats: shards and tables, which hold many records per file.
//!
//! The file of a reader declares its format once, as a [`FileFormat`]. Pipeline descriptions and
//! commands ask the table, so that a new format is a reader and a line here.

pub mod arrow;
mod format;
pub mod mds;
// Also in tests, which check the error in every build.
#[cfg(any(test, not(feature = "tables")))]
mod no_tables;
pub mod npz;
pub mod parquet;
pub mod tar;
pub mod tfrecord;

use std::path::Path;

pub use format::{FileFormat, KnownFields, OpenFiles};

/// Calls a macro with the list of formats. Each has its documentation, its variant in descriptions,
/// its name there, the key of its files with their type, and its [`FileFormat`].
#[macro_export]
macro_rules! file_formats {
    ($define:ident) => {
        $define! {
            /// Tar shards in the format of the `webdataset` package, such as
            /// `train-{0000..0146}.tar`. A field comes from the files with the extension `from`
            /// (alternatives separated by `;`). No fields: those of the first records.
            WebDataset webdataset { shards: Vec<String> } $crate::formats::tar::FORMAT;
            /// TFRecord shards of `tf.train.Example`, plain or compressed, such as
            /// `train-{00000..01023}-of-01024`. A field comes from the feature `from` (alternatives
            /// separated by `;`). No fields: the features of the first records.
            TfRecord tfrecord { shards: Vec<String> } $crate::formats::tfrecord::FORMAT;
            /// Folder or URL of MDS shards in the format of MosaicML Streaming, with an
            /// `index.json`. No fields: all columns that can be a field.
            Mds mds { path: String } $crate::formats::mds::FORMAT;
            /// Parquet files. A row group is always read whole. No fields: all columns that can be
            /// a field.
            Parquet parquet { files: Vec<String> } $crate::formats::parquet::FORMAT;
            /// Arrow IPC files and streams. No fields: all columns that can be a field.
            Arrow arrow { files: Vec<String> } $crate::formats::arrow::FORMAT;
            /// NumPy archives. Each contains part of the records of every array. No fields: all
            /// arrays.
            Npz npz { files: Vec<String> } $crate::formats::npz::FORMAT;
        }
    };
}

macro_rules! table {
    ($($(#[$doc:meta])* $variant:ident $name:ident { $key:ident: $files:ty } $format:path;)*) => {
        /// All formats, in the order in which a file name is tried.
        pub static FORMATS: &[&FileFormat] = &[$(&$format),*];

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

file_formats!(table);

/// Returns the format that a path, pattern or URL reveals, and the name for its description.
pub fn detect(path: &Path) -> Option<(&'static FileFormat, String)> {
    let text = path.display().to_string();
    let lists_shards = |format: &&&FileFormat| {
        let index = format.index_file;
        index.is_some_and(|index| path.join(index).is_file())
    };
    if let Some(format) = FORMATS.iter().find(lists_shards) {
        return Some((format, text));
    }
    let lower = text.to_lowercase();
    let name = lower.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.split(['?', '#']).next().unwrap_or_default();
    // `train-00000-of-01024`, the naming of TensorFlow's scripts.
    let numbered = name.contains("-of-") && !name.contains('.') && !path.is_dir();
    for format in FORMATS {
        let by_ending = format.endings.iter().any(|end| name.ends_with(end));
        if by_ending || (numbered && format.numbered) {
            return Some((format, text));
        }
        if format.index_file == Some(name) {
            let folder = path.parent()?;
            return Some((format, folder.display().to_string()));
        }
    }
    None
}

/// Returns the labels of all formats for a help text: shards, then tables.
pub fn labels() -> [String; 2] {
    [false, true].map(|is_table| {
        let formats = FORMATS.iter().filter(|format| format.is_table == is_table);
        formats
            .map(|format| format.label)
            .collect::<Vec<_>>()
            .join(", ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reveals_its_format() {
        for (path, name, described) in [
            ("train-{0000..0009}.tar", "webdataset", None),
            ("s3://bucket/train-*.TAR", "webdataset", None),
            ("a/train.tar.gz", "webdataset", None),
            ("a.tfrecord", "tfrecord", None),
            ("a/*.tfrecords.gz", "tfrecord", None),
            ("train-00000-of-01024", "tfrecord", None),
            ("train/index.json", "mds", Some("train")),
            ("s3://bucket/train-*.parquet", "parquet", None),
            ("https://host/a.parquet?key=1", "parquet", None),
            ("cache.arrow", "arrow", None),
            ("a/b.NPZ", "npz", None),
        ] {
            let (format, found) = detect(Path::new(path)).expect(path);
            assert_eq!((format.name, &*found), (name, described.unwrap_or(path)));
        }
        for path in ["photos", "pipeline.toml", "x.npy", "one-of-many/photos"] {
            assert!(detect(Path::new(path)).is_none(), "{path}");
        }
    }

    #[test]
    fn a_folder_with_an_index_file_is_of_its_format() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(detect(folder.path()).is_none());

        std::fs::write(folder.path().join("index.json"), "{}").expect("writes");

        let (format, found) = detect(folder.path()).expect("a format");
        assert_eq!(format.name, "mds");
        assert_eq!(found, folder.path().display().to_string());
    }

    #[test]
    fn every_reader_declares_the_name_of_its_line() {
        let declared: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();

        assert_eq!(declared, NAMES);
    }
}
