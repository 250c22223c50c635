//! Files from Parquet's own writer, valid and damaged.

use std::fs;
use std::path::Path;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

use super::*;
use crate::columns::table::tests::{
    RemoteBlob, expected_fields, holds_table, picture, read_run, table,
};
use crate::store::find;
use infeed_core::order::Order;

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_max_row_group_row_count(Some(6))
}

fn parquet_bytes(properties: WriterProperties, rows: usize) -> Vec<u8> {
    let batch = table(0, rows);
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");
    bytes
}

fn open(path: &Path) -> Result<Parquet, Error> {
    Parquet::open(find(&[path.display().to_string()])?, &[])
}

#[test]
fn every_codec_version_and_encoding_gives_its_rows() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    let variants = [
        properties(),
        properties().set_compression(Compression::SNAPPY),
        properties().set_compression(Compression::LZ4_RAW),
        properties().set_compression(Compression::ZSTD(ZstdLevel::default())),
        properties().set_compression(Compression::GZIP(Default::default())),
        properties().set_compression(Compression::BROTLI(Default::default())),
        properties().set_dictionary_enabled(false),
        properties()
            .set_dictionary_enabled(false)
            .set_writer_version(WriterVersion::PARQUET_2_0),
        properties()
            .set_dictionary_enabled(false)
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_column_encoding("caption".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_compression(Compression::SNAPPY),
        properties().set_data_page_row_count_limit(2),
    ];
    for settings in variants {
        let settings = settings.build();
        let text = format!("{settings:?}");
        fs::write(&path, parquet_bytes(settings, 17)).expect("writes");

        let source = open(&path).unwrap_or_else(|error| panic!("{}: {text}", error.chain()));

        holds_table(&source, 17);
        let groups = source.groups().expect("row groups");
        assert_eq!(groups.ends, [6, 12, 17]);
    }
}

/// Found by fuzzing: a list of billions of booleans in 88 bytes, which the decoder walked for 14
/// seconds, and a group of a billion columns, for which it allocated 8 GB.
#[test]
fn a_footer_that_claims_more_than_its_bytes_is_rejected() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("endless.parquet");
    let list = include_bytes!("../../../../../../fuzz/regressions/endless_list.parquet");
    let children = include_bytes!("../../../../../../fuzz/regressions/endless_children.parquet");
    for bytes in [&list[..], children] {
        fs::write(&path, bytes).expect("writes");

        let error = open(&path).expect_err("it is not a table").chain();

        assert!(error.contains("more than its bytes can hold"), "{error}");
    }
}

#[test]
fn a_row_group_is_one_read_and_shuffled_windows_give_each_record_once() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    fs::write(&path, parquet_bytes(properties().build(), 40)).expect("writes");
    let source = open(&path).expect("a table");
    let groups = source.groups().expect("row groups");
    let window = groups.bytes[0] + groups.bytes[1] + 10;
    let epoch = Order::from_windows(groups, window, Some(3)).epoch(1);
    let order: Vec<u64> = (0..40).map(|position| epoch.get(position)).collect();

    let end = epoch.window_end(0);
    let reads = source.plan(&order[..end as usize], u64::MAX);
    let found = read_run(&source, &order);

    assert!(reads.len() <= 2, "a read for each group of the window");
    let mut seen = order.clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<u64>>());
    for (found, record) in found.into_iter().zip(order) {
        assert_eq!(found.expect("a record"), expected_fields(record as usize));
    }
}

#[test]
fn only_the_requested_columns_are_read() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    fs::write(&path, parquet_bytes(properties().build(), 6)).expect("writes");
    let all = open(&path).expect("a table");
    let wanted = [columns::ColumnRequest {
        name: "class".to_owned(),
        column: "label".to_owned(),
        kind: None,
        dtype: None,
        shape: Vec::new(),
    }];

    let blobs = find(&[path.display().to_string()]).expect("a file");
    let source = Parquet::open(blobs, &wanted).expect("a table");

    assert_eq!(source.fields()[0].name, "class");
    assert_eq!(source.files[0].wanted.leaves.len(), 1);
    let values = |source: &Parquet| {
        source.groups.bytes[0] - handle_bytes(source.groups.ends[0], source.fields().len())
    };
    assert!(values(&source) < values(&all) / 2);
    let found = read_run(&source, &[4]).remove(0).expect("a record");
    assert_eq!(found, [expected_fields(4)[1].clone()]);
    // No field uses the paths next to the bytes of the images.
    let names = all.files[0].wanted.leaves.iter().map(|&leaf| {
        let schema = all.files[0].metadata.file_metadata().schema_descr();
        schema.column(leaf).path().string()
    });
    assert!(names.into_iter().all(|name| name != "image.path"));
}

#[test]
fn repeated_words_of_a_dictionary_share_memory() {
    use arrow_array::{RecordBatch, StringArray};
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    let word = "w".repeat(50_000);
    let words = StringArray::from_iter_values((0..20_000).map(|_| &word));
    let batch = RecordBatch::try_from_iter([("text", Arc::new(words) as _)]).expect("a batch");
    let mut writer = ArrowWriter::try_new(
        fs::File::create(&path).expect("creates"),
        batch.schema(),
        None,
    )
    .expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");

    let source = open(&path).expect("a table");

    let bytes = source.groups.bytes[0] - handle_bytes(20_000, 1);
    assert!(bytes < 2 << 20, "{bytes}");
    let found = read_run(&source, &[19_999]).remove(0).expect("a record");
    assert_eq!(found[0].len(), 50_000);
}

/// A column of bytes with images after `nulls` nulls.
fn behind_nulls(nulls: usize, rows_a_group: usize) -> Vec<u8> {
    use arrow_array::{BinaryArray, RecordBatch};
    let picture = crate::columns::table::tests::picture(0);
    let rows = (0..nulls + 20).map(|row| (row >= nulls).then_some(&picture));
    let scans = BinaryArray::from_iter(rows);
    let batch = RecordBatch::try_from_iter([("scan", Arc::new(scans) as _)]).expect("a batch");
    let mut bytes = Vec::new();
    let settings = WriterProperties::builder().set_max_row_group_row_count(Some(rows_a_group));
    let writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(settings.build()));
    let mut writer = writer.expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");
    bytes
}

#[test]
fn an_image_column_is_recognized_after_nulls_of_a_page_and_of_row_groups() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    for (nulls, rows_a_group) in [(0, 5), (17, 100), (100, 1000), (90, 30)] {
        fs::write(&path, behind_nulls(nulls, rows_a_group)).expect("writes");

        let source = open(&path).expect("a table");

        let image = infeed_core::sample::FieldKind::Image(infeed_core::sample::Pixels::Encoded);
        assert_eq!(source.fields()[0].kind, image, "{nulls} nulls");
    }
}

#[test]
fn a_bucket_that_fails_while_opening_is_an_error() {
    // Without the hints of Hugging Face, the first value decides.
    let scans = arrow_array::BinaryArray::from_iter_values((0..4000).map(picture));
    let batch = arrow_array::RecordBatch::try_from_iter([("scan", Arc::new(scans) as _)]);
    let batch = batch.expect("a batch");
    let settings = WriterProperties::builder().set_dictionary_enabled(false);
    let mut bytes = Vec::new();
    let writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(settings.build()));
    let mut writer = writer.expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");
    let bytes = Bytes::from(bytes);
    let far = |missing| -> Vec<Arc<dyn Blob>> {
        vec![Arc::new(RemoteBlob {
            name: "s3://bucket/table.parquet",
            bytes: bytes.clone(),
            missing,
        })]
    };
    assert!(Parquet::open(far(0..0), &[]).is_ok());
    assert!(
        bytes.len() as u64 > 2 * TAIL_BYTES,
        "the footer is read without the pages"
    );

    let error = Parquet::open(far(4..5), &[]).expect_err("silent").chain();

    assert!(error.contains("s3://bucket/table.parquet"), "{error}");
    assert!(error.contains("the bucket is silent"), "{error}");
}

#[test]
fn other_row_groups_or_names_change_the_fingerprint() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str, rows_a_group: usize| {
        let path = root.path().join(name);
        fs::write(&path, behind_nulls(0, rows_a_group)).expect("writes");
        open(&path).expect("a table").fingerprint()
    };

    let first = of("a.parquet", 5);

    assert_eq!(first, of("a.parquet", 5));
    assert_ne!(
        first,
        of("a.parquet", 10),
        "other groups form other windows"
    );
    assert_ne!(
        first,
        of("b.parquet", 5),
        "names are part of the fingerprint"
    );
}

#[test]
fn a_page_that_is_damaged_by_a_length_makes_bad_records_of_its_group() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    let mut bytes = parquet_bytes(
        properties().set_write_page_header_statistics(false).build(),
        12,
    );
    // The writer adds no checksums; the damage is a length within the first group's images.
    let first = bytes
        .windows(8)
        .position(|window| window == b"\x89PNG\r\n\x1a\n")
        .expect("an image");
    bytes[first - 2] = 0xFF;
    fs::write(&path, &bytes).expect("writes");
    let source = open(&path).expect("a table");

    let found = read_run(&source, &[0, 5, 6]);

    assert!(found[0].is_err() && found[1].is_err());
    assert_eq!(
        found[2].as_ref().expect("the other group"),
        &expected_fields(6)
    );
    let error = crate::read_one(&source, 0).expect_err("damaged").chain();
    assert!(
        error.contains("row group 0") && error.contains("table.parquet"),
        "{error}"
    );
}

#[test]
fn a_cut_file_is_rejected_by_name() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    let whole = parquet_bytes(properties().build(), 12);
    for length in (0..whole.len()).step_by(61) {
        fs::write(&path, &whole[..length]).expect("writes");
        let error = open(&path).expect_err("cut").chain();
        assert!(error.contains("table.parquet"), "{error}");
    }
}

#[test]
fn a_flipped_bit_never_panics() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("table.parquet");
    for settings in [
        properties().build(),
        properties()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(false)
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .build(),
    ] {
        let whole = parquet_bytes(settings, 8);
        for at in (0..whole.len()).step_by(7) {
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
