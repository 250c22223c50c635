//! Sources of records: one trait, and one module for each kind of source.
//!
//! # Cargo features
//!
//! | feature | includes | without it |
//! |---|---|---|
//! | `remote` (default) | buckets and web servers, with `object_store` | opening a URL is an error |
//! | `tables` (default) | Parquet and Arrow, with `parquet` and `arrow` | opening such a file is an error, and `batches` does not exist |
#![forbid(unsafe_code)]

pub mod store;

mod annotations;
#[cfg(feature = "tables")]
pub mod batches;
pub mod boxed_images;
pub mod class_names;
pub mod coco;
pub mod columns;
mod data_yaml;
mod extensions;
pub mod field_spec;
pub mod file_list;
mod fingerprints;
pub mod folder;
pub mod formats;
mod json;
mod label;
mod labelled_images;
pub mod labelme;
pub mod left_out;
mod listing;
pub mod memory;
pub mod mix;
pub mod npy;
mod open_file;
mod pages;
pub mod pairs;
pub mod panoptic;
mod paths;
mod reads;
pub mod repeated_records;
mod resident_reads;
mod resident_rows;
pub mod selected_records;
pub mod shards;
mod source;
pub mod subset;
pub mod throttle;
pub mod voc;
pub mod walk;
pub mod yolo;
mod yolo_poses;

pub use extensions::IMAGE_EXTENSIONS;
pub use formats::{arrow, npz, parquet};
pub use listing::image_files;
pub use reads::{Read, draw_key, handle_bytes, single_reads};
pub use resident_reads::load_pages;
pub use resident_rows::ResidentRows;
pub use source::{
    Admission, PythonTime, ReadError, RecordResult, Sink, Source, damage_error, read_one,
};

pub(crate) use fingerprints::{files_fingerprint, fingerprint};
pub(crate) use reads::group_reads;
pub(crate) use source::admit_read;
