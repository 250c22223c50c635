//! Tables through the suite.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{BinaryArray, Int64Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use infeed::pipeline::{Handle, SourceSpec};
use infeed_source::batches::Batches;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::conformance::{SIDE, TestDataset, holds, holds_arrays, write_selection};
use super::write;

/// Records per batch or row group.
const PER_BATCH: usize = 13;

/// Returns the images with their numbers as labels; those of damaged records are truncated.
fn batches(images: &[Vec<u8>], damaged: &[u64]) -> Vec<RecordBatch> {
    let numbered: Vec<(i64, &Vec<u8>)> = (0..).zip(images).collect();
    let batch = |rows: &[(i64, &Vec<u8>)]| {
        let image = |(number, image): &(i64, &Vec<u8>)| match damaged.contains(&(*number as u64)) {
            true => image[..image.len() / 2].to_vec(),
            false => image.to_vec(),
        };
        let bytes = BinaryArray::from_iter_values(rows.iter().map(image));
        let labels = Int64Array::from_iter_values(rows.iter().map(|(number, _)| *number));
        let columns = [
            ("image", Arc::new(bytes) as _),
            ("label", Arc::new(labels) as _),
        ];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    };
    numbered.chunks(PER_BATCH).map(batch).collect()
}

fn dataset(spec: SourceSpec) -> TestDataset {
    TestDataset {
        spec,
        handles: Vec::new(),
    }
}

fn stream(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    let path = root.join("table.arrow");
    let batches = batches(images, damaged);
    let file = File::create(&path).expect("creates");
    let mut writer = StreamWriter::try_new(file, &batches[0].schema()).expect("a writer");
    for batch in &batches {
        writer.write(batch).expect("writes");
    }
    writer.finish().expect("ends");
    dataset(SourceSpec::Arrow {
        files: vec![path.display().to_string()],
        fields: Vec::new(),
        follow_links: true,
    })
}

/// Two files with compressed batches.
fn write_compressed(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    let batches = batches(images, damaged);
    for (at, batches) in batches.chunks(3).enumerate() {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .expect("options");
        let file = File::create(root.join(format!("{at}.arrow"))).expect("creates");
        let schema = batches[0].schema();
        let writer = FileWriter::try_new_with_options(file, &schema, options);
        let mut writer = writer.expect("a writer");
        for batch in batches {
            writer.write(batch).expect("writes");
        }
        writer.finish().expect("ends");
    }
    dataset(SourceSpec::Arrow {
        files: vec![root.join("*.arrow").display().to_string()],
        fields: Vec::new(),
        follow_links: true,
    })
}

fn parquet(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    let batches = batches(images, damaged);
    for (at, batches) in batches.chunks(3).enumerate() {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(PER_BATCH))
            .set_compression(Compression::SNAPPY)
            .build();
        let file = File::create(root.join(format!("{at}.parquet"))).expect("creates");
        let writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties));
        let mut writer = writer.expect("a writer");
        for batch in batches {
            writer.write(batch).expect("writes");
        }
        writer.close().expect("ends");
    }
    dataset(SourceSpec::Parquet {
        files: vec![root.join("*.parquet").display().to_string()],
        fields: Vec::new(),
        follow_links: true,
    })
}

fn in_memory(_: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    let batches = batches(images, damaged);
    let schema = batches[0].schema();
    let source = Batches::new("the table", &schema, &batches, &[]).expect("a table");
    TestDataset {
        spec: SourceSpec::Object {
            handle: 0,
            name: "the table".to_owned(),
        },
        handles: vec![Handle::Source(Arc::new(source))],
    }
}

/// Archives with one batch each; archives with damaged records have a flipped bit.
fn npz(root: &Path, images: &[Vec<u8>], damaged: &[u64], deflate: bool) -> TestDataset {
    for (at, images) in images.chunks(PER_BATCH).enumerate() {
        let first = at * PER_BATCH;
        let own = first as u64..(first + images.len()) as u64;
        let is_damaged = damaged.iter().any(|record| own.contains(record));
        let bytes = write::npz(images, SIDE, first as i64, deflate, is_damaged);
        std::fs::write(root.join(format!("{at}.npz")), bytes).expect("writes");
    }
    dataset(SourceSpec::Npz {
        files: vec![root.join("*.npz").display().to_string()],
        fields: Vec::new(),
        follow_links: true,
    })
}

#[test]
fn mapped_npz_archives_meet_the_source_contract() {
    let make = |root: &Path, images: &[Vec<u8>], damaged: &[u64]| npz(root, images, damaged, false);
    // Their checksums are not read, so damage is not detected.
    holds_arrays(make, None);
}

#[test]
fn compressed_npz_archives_meet_the_source_contract() {
    let make = |root: &Path, images: &[Vec<u8>], damaged: &[u64]| npz(root, images, damaged, true);
    holds_arrays(make, Some(PER_BATCH as u64));
}

#[test]
fn mapped_arrow_streams_meet_the_source_contract() {
    holds(stream);
}

#[test]
fn compressed_arrow_files_meet_the_source_contract() {
    holds(write_compressed);
}

#[test]
fn parquet_files_meet_the_source_contract() {
    holds(parquet);
}

#[test]
fn tables_in_memory_meet_the_source_contract() {
    holds(in_memory);
}

#[test]
fn selections_of_tables_meet_the_source_contract() {
    holds(|root, images, damaged| write_selection(parquet, root, images, damaged));
    holds(|root, images, damaged| write_selection(write_compressed, root, images, damaged));
    holds(|root, images, damaged| write_selection(in_memory, root, images, damaged));
}
