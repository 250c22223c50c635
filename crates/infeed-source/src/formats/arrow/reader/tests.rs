//! Files from Arrow's own writer, valid and damaged.

use std::fs;
use std::path::Path;

use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

use super::*;
use crate::columns::table::tests::{expected_fields, holds_table, read_run, table};
use crate::read_one;
use crate::store::find;

#[derive(Clone, Copy, Debug, PartialEq)]
enum IpcFormat {
    File,
    Stream,
}

/// Bytes of a file with batches of `sizes` rows.
fn ipc_bytes(format: IpcFormat, compression: Option<CompressionType>, sizes: &[usize]) -> Vec<u8> {
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .expect("options");
    let mut ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some((*end - size, *end))
    });
    let schema = table(0, 0).schema();
    let mut bytes = Vec::new();
    match format {
        IpcFormat::File => {
            let mut writer =
                FileWriter::try_new_with_options(&mut bytes, &schema, options).expect("a writer");
            ends.try_for_each(|(from, to)| writer.write(&table(from, to)))
                .expect("writes");
            writer.finish().expect("ends");
        }
        IpcFormat::Stream => {
            let mut writer =
                StreamWriter::try_new_with_options(&mut bytes, &schema, options).expect("a writer");
            ends.try_for_each(|(from, to)| writer.write(&table(from, to)))
                .expect("writes");
            writer.finish().expect("ends");
        }
    }
    bytes
}

fn open(path: &Path) -> Result<Arrow, Error> {
    Arrow::open(find(&[path.display().to_string()])?, &[])
}

#[test]
fn files_and_streams_plain_and_compressed_give_their_rows() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    let codecs = [
        None,
        Some(CompressionType::LZ4_FRAME),
        Some(CompressionType::ZSTD),
    ];
    for format in [IpcFormat::File, IpcFormat::Stream] {
        for codec in codecs {
            fs::write(&path, ipc_bytes(format, codec, &[5, 0, 3, 9])).expect("writes");

            let source = open(&path).expect("a table");

            holds_table(&source, 17);
            assert_eq!(source.mapped, codec.is_none(), "{format:?} {codec:?}");
            assert_eq!(source.groups().is_some(), codec.is_some());
        }
    }
}

#[test]
fn several_files_are_one_dataset_and_ids_name_file_batch_and_row() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let rows: Vec<_> = [(0, 4), (4, 10)].into_iter().collect();
    for (at, (from, to)) in rows.iter().enumerate() {
        let mut writer = StreamWriter::try_new(
            fs::File::create(root.path().join(format!("{at}.arrow"))).expect("creates"),
            &table(0, 0).schema(),
        )
        .expect("a writer");
        writer.write(&table(*from, *to)).expect("writes");
        writer.finish().expect("ends");
    }

    let source = open(&root.path().join("*.arrow")).expect("two files");

    holds_table(&source, 10);
    let name = source.id(6, None).name;
    assert!(
        name.contains("row 2 of batch 0") && name.contains("1.arrow"),
        "{name}"
    );
}

#[test]
fn records_of_a_mapped_file_are_slices_of_the_map() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    fs::write(&path, ipc_bytes(IpcFormat::Stream, None, &[5])).expect("writes");
    let source = open(&path).expect("a table");
    let map = source.files[0].map.clone().expect("mapped");

    let record = read_one(&source, 3).expect("a record");

    let range = map.as_ptr_range();
    assert!(range.contains(&record.fields[0].as_ptr()));
    assert!(range.contains(&record.fields[4].as_ptr()));
}

#[test]
fn a_cut_file_is_an_error_or_gives_only_records_that_are_whole() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    for format in [IpcFormat::File, IpcFormat::Stream] {
        let whole = ipc_bytes(format, None, &[3, 2]);
        for length in (0..whole.len()).step_by(37) {
            fs::write(&path, &whole[..length]).expect("writes");
            match open(&path) {
                Err(error) => {
                    let text = error.chain();
                    assert!(
                        text.contains("table.arrow") || text.contains("source"),
                        "{text}"
                    );
                }
                // A stream may end between two batches.
                Ok(source) => {
                    assert_eq!(format, IpcFormat::Stream);
                    let run: Vec<u64> = (0..source.len()).collect();
                    for (found, record) in read_run(&source, &run).into_iter().zip(run) {
                        assert_eq!(found.expect("whole"), expected_fields(record as usize));
                    }
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_panics_nor_points_outside() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    for (format, codec) in [
        (IpcFormat::File, None),
        (IpcFormat::Stream, None),
        (IpcFormat::Stream, Some(CompressionType::LZ4_FRAME)),
        (IpcFormat::File, Some(CompressionType::ZSTD)),
    ] {
        let whole = ipc_bytes(format, codec, &[3, 2]);
        for at in (0..whole.len()).step_by(5) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).expect("writes");
            let Ok(source) = open(&path) else {
                continue;
            };
            // The memory budget of a loader rejects large allocations.
            if source.groups.bytes.iter().any(|&bytes| bytes > 64 << 20) {
                continue;
            }
            let run: Vec<u64> = (0..source.len().min(8)).collect();
            let _ = read_run(&source, &run);
        }
    }
}

#[test]
fn a_file_with_other_columns_is_rejected_by_name() {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::write(
        root.path().join("0.arrow"),
        ipc_bytes(IpcFormat::File, None, &[3]),
    )
    .expect("writes");
    let other = table(0, 2).project(&[0, 1]).expect("two columns");
    let mut writer = FileWriter::try_new(
        fs::File::create(root.path().join("1.arrow")).expect("creates"),
        &other.schema(),
    )
    .expect("a writer");
    writer.write(&other).expect("writes");
    writer.finish().expect("ends");

    let error = open(&root.path().join("*.arrow"))
        .expect_err("differs")
        .chain();

    assert!(
        error.contains("1.arrow") && error.contains("`caption`"),
        "{error}"
    );
}

#[test]
fn a_batch_that_claims_too_many_bytes_is_rejected_before_allocation() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    let whole = ipc_bytes(IpcFormat::Stream, Some(CompressionType::ZSTD), &[40]);
    fs::write(&path, &whole).expect("writes");
    let source = open(&path).expect("a table");
    let place = source.files[0].index.batches[0].clone();
    let honest = source.groups.bytes[0];
    // The first compressed buffer claims an exabyte.
    let mut bytes = whole.clone();
    let body = place.body.start as usize;
    let first = (body..bytes.len() - 8)
        .find(|&at| {
            let length = i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            (1..100_000).contains(&length)
        })
        .expect("a length");
    bytes[first..first + 8].copy_from_slice(&(1_i64 << 60).to_le_bytes());
    fs::write(&path, &bytes).expect("writes");

    match open(&path) {
        Err(_) => {}
        Ok(source) => assert!(source.groups.bytes[0] > 1 << 59, "claimed, not allocated"),
    }
    assert!(honest < 1 << 20);
}

/// Compares each number of rows in a batch's metadata, 0 included, with the columns.
#[test]
fn a_batch_that_claims_another_number_of_rows_is_an_error() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.arrow");
    for format in [IpcFormat::Stream, IpcFormat::File] {
        let whole = ipc_bytes(format, None, &[8, 16]);
        fs::write(&path, &whole).expect("writes");
        let source = open(&path).expect("a table");
        assert_eq!(source.len(), 24);
        let metadata = source.files[0].index.batches[1].message.clone();
        let metadata = metadata.start as usize..metadata.end as usize;
        let mut found = 0;
        for at in metadata.start..metadata.end - 8 {
            if whole[at..at + 8] != 16_i64.to_le_bytes() {
                continue;
            }
            for rows in [0_i64, 8, 15] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&rows.to_le_bytes());
                fs::write(&path, &bytes).expect("writes");
                // A number that is not a row count may cause an error later.
                if let Ok(source) = open(&path) {
                    assert_eq!(source.len(), 24, "{format:?}, byte {at}, {rows} rows");
                } else {
                    found += 1;
                }
            }
        }
        assert!(found >= 6, "{format:?}: the batch and its columns: {found}");
    }
}

#[test]
fn other_batches_or_names_change_the_fingerprint() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str, sizes: &[usize]| {
        let path = root.path().join(name);
        fs::write(&path, ipc_bytes(IpcFormat::File, None, sizes)).expect("writes");
        open(&path).expect("a table").fingerprint()
    };

    let first = of("a.arrow", &[3, 4]);

    assert_eq!(first, of("a.arrow", &[3, 4]));
    assert_ne!(
        first,
        of("a.arrow", &[4, 3]),
        "other batches form other windows"
    );
    assert_ne!(
        first,
        of("b.arrow", &[3, 4]),
        "names are part of the fingerprint"
    );
}
