//! Tests of columns, and helpers for the tests of all table formats.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringDictionaryBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array,
    Int8Array, Int16Array, Int64Array, RecordBatch, StringArray, StructArray, UInt8Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field as ArrowField, Fields, Schema};
use bytes::Bytes;

use super::*;
use crate::batches::Batches;
use crate::columns::FieldChoice;
use crate::store::Blob;
use crate::{ReadError, Source, read_one};
use infeed_core::sample::DType;

/// Bytes that begin like a PNG, with a different length for each record.
pub(crate) fn picture(record: usize) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.extend((0..50 + record % 7).map(|at| (at * 31 + record) as u8));
    bytes
}

/// Rows `from..to` of a table in the layout of Hugging Face: images, labels, names, boxes, pixels.
pub(crate) fn table(from: usize, to: usize) -> RecordBatch {
    let rows = from..to;
    let pictures: Vec<Vec<u8>> = rows.clone().map(picture).collect();
    let bytes = BinaryArray::from_iter_values(pictures.iter());
    let names: Vec<String> = rows.clone().map(|row| format!("{row}.png")).collect();
    let paths = StringArray::from_iter_values(&names);
    let children = Fields::from(vec![
        ArrowField::new("bytes", DataType::Binary, true),
        ArrowField::new("path", DataType::Utf8, true),
    ]);
    let image = StructArray::new(children, vec![Arc::new(bytes), Arc::new(paths)], None);
    let labels = Int64Array::from_iter_values(rows.clone().map(|row| row as i64 % 3));
    let texts = StringArray::from_iter_values(rows.clone().map(|row| format!("a photo, {row}")));
    let mut boxes = ListBuilder::new(Int32Builder::new());
    for row in rows.clone() {
        boxes.append_value((0..row % 4).map(|at| Some((row * 10 + at) as i32)));
    }
    let values = UInt8Array::from_iter_values(
        rows.clone()
            .flat_map(|row| (0..6).map(move |at| (row + at) as u8)),
    );
    let item = Arc::new(ArrowField::new("item", DataType::UInt8, false));
    let pixels = FixedSizeListArray::new(item, 6, Arc::new(values), None);
    let flags = BooleanArray::from_iter(rows.clone().map(|row| Some(row % 2 == 0)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("image", Arc::new(image)),
        ("label", Arc::new(labels)),
        ("caption", Arc::new(texts)),
        ("boxes", Arc::new(boxes.finish())),
        ("pixels", Arc::new(pixels)),
        ("flag", Arc::new(flags)),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let features = r#"{"info": {"features": {"image": {"_type": "Image"},
        "label": {"names": ["cat", "dog", "cow"], "_type": "ClassLabel"}}}}"#;
    let metadata = HashMap::from([("huggingface".to_owned(), features.to_owned())]);
    let schema = Schema::new_with_metadata(batch.schema().fields().clone(), metadata);
    batch
        .with_schema(Arc::new(schema))
        .expect("the same fields")
}

/// Expected fields of a record of [`table`].
pub(crate) fn expected_fields(record: usize) -> Vec<Bytes> {
    let boxes = (0..record % 4).flat_map(|at| ((record * 10 + at) as i32).to_le_bytes());
    vec![
        picture(record).into(),
        Bytes::copy_from_slice(&(record as i64 % 3).to_le_bytes()),
        format!("a photo, {record}").into(),
        boxes.collect::<Vec<u8>>().into(),
        (0..6)
            .map(|at| (record + at) as u8)
            .collect::<Vec<u8>>()
            .into(),
        vec![u8::from(record.is_multiple_of(2))].into(),
    ]
}

/// Reads a run like the engine, and returns the fields in its order.
pub(crate) fn read_run(source: &dyn Source, run: &[u64]) -> Vec<Result<Vec<Bytes>, String>> {
    let mut found: Vec<Option<Result<Vec<Bytes>, String>>> = vec![None; run.len()];
    for read in source.plan(run, 1 << 30) {
        let mut requests = 0;
        let done = source.read(
            &read,
            &mut |bytes| {
                requests += 1;
                assert_eq!(Some(bytes), read.bytes, "as planned");
                Ok(())
            },
            &mut |place, one| {
                let one = one.map(|record| {
                    assert_eq!(record.index, run[place]);
                    record.fields
                });
                let one = one.map_err(|cause| cause.to_string());
                assert!(found[place].replace(one).is_none(), "each position once");
            },
        );
        if let Err(ReadError::Io { error, .. }) = done {
            for &(place, _) in &read.records {
                found[place] = Some(Err(error.to_string()));
            }
        }
        assert!(requests <= 1, "admission is requested once");
    }
    found
        .into_iter()
        .map(|one| one.expect("every place"))
        .collect()
}

/// Checks that a source holds the first `count` rows of [`table`].
pub(crate) fn holds_table(source: &dyn Source, count: usize) {
    assert_eq!(source.len(), count as u64);
    let names: Vec<&str> = source
        .fields()
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["image", "label", "caption", "boxes", "pixels", "flag"]
    );
    assert_eq!(source.fields()[0].kind, FieldKind::Image(Pixels::Encoded));
    assert_eq!(source.classes().expect("names"), ["cat", "dog", "cow"]);
    // Every record twice, far apart, so that groups are used across a run.
    let run: Vec<u64> = (0..2 * count as u64)
        .map(|at| at * 7 % count as u64)
        .collect();
    for (found, record) in read_run(source, &run).into_iter().zip(&run) {
        assert_eq!(
            found.expect("a record"),
            expected_fields(*record as usize),
            "record {record}"
        );
    }
}

/// A remote blob, some of whose bytes are unavailable.
#[derive(Debug)]
pub(crate) struct RemoteBlob {
    pub(crate) name: &'static str,
    pub(crate) bytes: Bytes,
    pub(crate) missing: std::ops::Range<u64>,
}

impl Blob for RemoteBlob {
    fn name(&self) -> &str {
        self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn stamp(&self) -> String {
        String::new()
    }

    fn held_bytes(&self, length: u64) -> u64 {
        length + (1 << 20)
    }

    fn read(&self, range: std::ops::Range<u64>) -> io::Result<Bytes> {
        if range.start < self.missing.end && self.missing.start < range.end {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the bucket is silent",
            ));
        }
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }
}

fn of(columns: Vec<(&str, ArrayRef)>, wanted: &[ColumnRequest]) -> Result<Batches, Error> {
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    Batches::new(
        "table",
        &batch.schema(),
        std::slice::from_ref(&batch),
        wanted,
    )
}

fn request(column: &str, kind: Option<FieldChoice>) -> ColumnRequest {
    ColumnRequest {
        name: column.to_owned(),
        column: column.to_owned(),
        kind,
        dtype: None,
        shape: Vec::new(),
    }
}

#[test]
fn a_table_in_memory_gives_its_rows_over_all_batches() {
    let batches = [table(0, 4), table(4, 4), table(4, 11)];

    let source = Batches::new("table", &batches[0].schema(), &batches, &[]).expect("a table");

    holds_table(&source, 11);
    assert!(source.id(7, None).to_string().contains("row 7 of table"));
}

#[test]
fn a_slice_of_a_table_gives_the_rows_of_the_slice() {
    let slice = table(0, 20).slice(5, 3);
    let source =
        Batches::new("table", &slice.schema(), std::slice::from_ref(&slice), &[]).expect("a table");

    for row in 0..3 {
        let record = read_one(&source, row).expect("a record");
        assert_eq!(record.fields, expected_fields(5 + row as usize));
    }
}

#[test]
fn encoded_images_are_slices_of_the_tables_own_memory() {
    let batch = table(0, 3);
    let image = batch.column(0).as_any().downcast_ref::<StructArray>();
    let bytes = image.expect("a struct").column(0);
    let bytes = bytes
        .as_any()
        .downcast_ref::<BinaryArray>()
        .expect("binary");
    let place = bytes.value(1).as_ptr();
    let source =
        Batches::new("table", &batch.schema(), std::slice::from_ref(&batch), &[]).expect("a table");

    let record = read_one(&source, 1).expect("a record");

    assert_eq!(record.fields[0].as_ptr(), place);
}

#[test]
fn a_null_is_a_bad_record_that_names_its_column() {
    let bytes = BinaryArray::from_opt_vec(vec![Some(b"x"), None]);
    let source = of(vec![("scan", Arc::new(bytes))], &[]).expect("a table");

    assert!(read_one(&source, 0).is_ok());
    let error = read_one(&source, 1).expect_err("null").chain();
    assert!(
        error.contains("`scan` is null") && error.contains("row 1"),
        "{error}"
    );
}

#[test]
fn an_image_that_is_only_a_path_is_rejected() {
    let children = Fields::from(vec![
        ArrowField::new("bytes", DataType::Binary, true),
        ArrowField::new("path", DataType::Utf8, true),
    ]);
    let bytes = BinaryArray::from_opt_vec(vec![None, Some(b"\xff\xd8\xff")]);
    let paths = StringArray::from(vec!["a.jpg", "b.jpg"]);
    let image = StructArray::new(children, vec![Arc::new(bytes), Arc::new(paths)], None);
    let source = of(vec![("image", Arc::new(image))], &[]).expect("a table");

    assert_eq!(source.fields()[0].kind, FieldKind::Image(Pixels::Encoded));
    let error = read_one(&source, 0).expect_err("no bytes").chain();
    assert!(error.contains("names a file"), "{error}");
}

#[test]
fn words_of_a_dictionary_are_text_or_the_numbers_of_classes() {
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    for word in ["dog", "cat", "dog", "cow"] {
        words.append_value(word);
    }
    let column: ArrayRef = Arc::new(words.finish());

    let text = of(vec![("breed", Arc::clone(&column))], &[]).expect("a table");
    assert_eq!(text.fields()[0].kind, FieldKind::Text);
    assert_eq!(read_one(&text, 2).expect("a word").fields, ["dog"]);

    let classes = [request("breed", Some(FieldChoice::Tensor))];
    let numbers = of(vec![("breed", column)], &classes).expect("a table");
    assert_eq!(numbers.classes().expect("words"), ["dog", "cat", "cow"]);
    let third = read_one(&numbers, 3).expect("a number");
    assert_eq!(third.fields, [Bytes::copy_from_slice(&2_i64.to_le_bytes())]);
}

#[test]
fn a_null_among_the_words_of_a_dictionary_is_no_word_and_no_class() {
    let words = StringArray::from(vec![Some("dog"), None, Some("cat")]);
    let keys = Int8Array::from(vec![0, 1, 2]);
    let column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(words)));
    let classes = [request("breed", Some(FieldChoice::Tensor))];

    for requests in [&[][..], &classes] {
        let source = of(vec![("breed", Arc::clone(&column))], requests).expect("a table");

        let error = read_one(&source, 1).expect_err("null").chain();
        assert!(error.contains("`breed` is null"), "{error}");
        if !requests.is_empty() {
            assert_eq!(source.classes().expect("words"), ["dog", "cat"]);
            let third = read_one(&source, 2).expect("a number");
            assert_eq!(third.fields[0], 1_i64.to_le_bytes()[..]);
        }
    }
}

#[test]
fn partial_elements_and_invalid_utf8_are_bad_records() {
    let bytes = || -> ArrayRef {
        let rows: Vec<&[u8]> = vec![b"abcd", b"\xff\xfe\xfd\xfc\xfb", b""];
        Arc::new(BinaryArray::from_iter_values(rows))
    };
    let ragged = ColumnRequest {
        dtype: Some(DType::Float32),
        ..request("tokens", Some(FieldChoice::Ragged))
    };
    let text = request("tokens", Some(FieldChoice::Text));

    for (request, reason) in [
        (
            ragged,
            "5 bytes, which is not a multiple of the size of float32",
        ),
        (text, "UTF-8"),
    ] {
        let source = of(vec![("tokens", bytes())], &[request]).expect("a table");

        assert_eq!(read_one(&source, 0).expect("good").fields, ["abcd"]);
        assert_eq!(read_one(&source, 2).expect("empty").fields, [""]);
        let error = read_one(&source, 1).expect_err("neither").chain();
        assert!(
            error.contains("`tokens`") && error.contains(reason),
            "{error}"
        );
    }
}

#[test]
fn an_image_column_is_recognized_after_rows_and_batches_without_an_image() {
    let nulls = || -> ArrayRef { Arc::new(BinaryArray::from_opt_vec(vec![None; 30])) };
    let image: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![None, Some(&picture(0))]));
    let batch = |column| RecordBatch::try_from_iter([("scan", column)]).expect("one column");
    let batches = [batch(nulls()), batch(image)];

    let source = Batches::new("table", &batches[0].schema(), &batches, &[]).expect("a table");

    assert_eq!(source.fields()[0].kind, FieldKind::Image(Pixels::Encoded));
}

/// Columns whose values cannot be read.
struct Silent(io::ErrorKind);

impl FirstValues for Silent {
    fn name(&self) -> String {
        "a.parquet".to_owned()
    }

    fn scan(&mut self, _: usize, _: &[String], _: &mut FirstBytes) -> io::Result<()> {
        Err(io::Error::new(self.0, "why"))
    }

    fn words(&mut self, _: usize) -> io::Result<Option<Vec<String>>> {
        Ok(None)
    }
}

#[test]
fn a_column_whose_first_values_cannot_be_read_is_an_error() {
    let schema = Schema::new(vec![ArrowField::new("scan", DataType::Binary, true)]);
    for (kind, has_fix) in [
        (io::ErrorKind::TimedOut, false),
        (io::ErrorKind::InvalidData, true),
    ] {
        for requests in [vec![], vec![request("scan", None)]] {
            let error = Columns::choose(&schema, &requests, &mut Silent(kind));
            let error = error.expect_err("the kind is unknown").chain();
            assert!(
                error.contains("a.parquet") && error.contains("`scan`"),
                "{error}"
            );
            assert!(error.contains("why"), "{error}");
            assert_eq!(error.contains("with their kinds"), has_fix, "{error}");
        }

        let named = [request("scan", Some(FieldChoice::Image))];
        assert!(Columns::choose(&schema, &named, &mut Silent(kind)).is_ok());
    }
}

#[test]
fn a_file_with_other_class_names_or_shapes_is_rejected_with_the_column() {
    let tensors = |metadata: &str| {
        let own = [
            ("ARROW:extension:name", "arrow.fixed_shape_tensor"),
            ("ARROW:extension:metadata", metadata),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let item = Arc::new(ArrowField::new("item", DataType::UInt8, false));
        ArrowField::new("pixels", DataType::FixedSizeList(item, 12), false)
            .with_metadata(HashMap::from(own))
    };
    let schema = |classes: &str, tensor: &str| {
        let features = format!(
            r#"{{"info": {{"features": {{"label": {{"names": {classes}, "_type": "ClassLabel"}}}}}}}}"#
        );
        let metadata = HashMap::from([("huggingface".to_owned(), features)]);
        let label = ArrowField::new("label", DataType::Int64, false);
        Schema::new_with_metadata(vec![label, tensors(tensor)], metadata)
    };
    let (classes, shape) = (r#"["cat", "dog"]"#, r#"{"shape": [3, 4]}"#);
    let first = schema(classes, shape);
    let silent = &mut Silent(io::ErrorKind::Other);
    let columns = Columns::choose(&first, &[], silent).expect("numbers");

    assert_eq!(columns.locate(&first), Ok(vec![0, 1]));
    let bare = Schema::new(first.fields().clone());
    assert!(
        columns.locate(&bare).is_ok(),
        "nothing said is nothing else"
    );
    for (other, reasons) in [
        (
            schema(r#"["dog", "cat"]"#, shape),
            ["`label`", "0 is `dog` here and `cat` there"],
        ),
        (
            schema(r#"["cat"]"#, shape),
            ["`label`", "1 is none here and `dog` there"],
        ),
        (
            schema(classes, r#"{"shape": [4, 3]}"#),
            ["`pixels`", "[4, 3], but [3, 4] in the first file"],
        ),
        (
            schema(classes, r#"{"shape": [3, 4], "permutation": [1, 0]}"#),
            ["`pixels`", "C order"],
        ),
    ] {
        let problem = columns.locate(&other).expect_err("differs");
        assert!(
            reasons.iter().all(|reason| problem.contains(reason)),
            "{problem}"
        );
    }
}

#[test]
fn labels_are_widened_to_int64_and_other_integers_keep_their_type() {
    let small = || -> ArrayRef { Arc::new(Int16Array::from(vec![-3, 4])) };
    let source = of(vec![("label", small()), ("age", small())], &[]).expect("a table");

    let kind = |dtype| FieldKind::Tensor {
        dtype,
        shape: Vec::new(),
    };
    let kinds: Vec<FieldKind> = source.fields().iter().map(|f| f.kind.clone()).collect();
    assert_eq!(kinds, [kind(DType::Int64), kind(DType::Int16)]);
    let record = read_one(&source, 0).expect("a record");
    assert_eq!(record.fields[0][..], (-3_i64).to_le_bytes());
    assert_eq!(record.fields[1][..], (-3_i16).to_le_bytes());
}

fn nested_lists(inner: &[usize]) -> ArrayRef {
    let total: usize = inner.iter().sum();
    let values = Float32Array::from_iter_values((0..total).map(|at| at as f32));
    let item = Arc::new(ArrowField::new("item", DataType::Float32, true));
    let lengths = OffsetBuffer::from_lengths(inner.iter().copied());
    let lists = arrow_array::ListArray::new(item, lengths, Arc::new(values), None);
    let item = Arc::new(ArrowField::new("item", lists.data_type().clone(), true));
    let rows = OffsetBuffer::from_lengths([2, 2]);
    Arc::new(arrow_array::ListArray::new(
        item,
        rows,
        Arc::new(lists),
        None,
    ))
}

use arrow_array::Array as _;

#[test]
fn nested_lists_are_tensors_where_a_shape_is_given_and_fits() {
    let requests = [ColumnRequest {
        shape: vec![2, 3],
        ..request("grid", Some(FieldChoice::Tensor))
    }];
    let source = of(vec![("grid", nested_lists(&[3, 3, 3, 3]))], &requests).expect("a table");
    let second: Vec<u8> = (6..12).flat_map(|at| (at as f32).to_le_bytes()).collect();
    assert_eq!(read_one(&source, 1).expect("a tensor").fields, [second]);

    let uneven = of(vec![("grid", nested_lists(&[3, 3, 2, 4]))], &requests).expect("a table");
    assert!(read_one(&uneven, 0).is_ok());
    let error = read_one(&uneven, 1).expect_err("uneven").chain();
    assert!(error.contains("list of 2, but its shape has 3"), "{error}");

    let error = of(
        vec![("grid", nested_lists(&[3; 4]))],
        &[request("grid", Some(FieldChoice::Tensor))],
    );
    let error = error.expect_err("no shape").to_string();
    assert!(error.contains("give the shape"), "{error}");
}

#[test]
fn fixed_shape_tensors_have_the_shape_of_their_metadata() {
    let values = UInt8Array::from_iter_values(0..24);
    let item = Arc::new(ArrowField::new("item", DataType::UInt8, false));
    let list = FixedSizeListArray::new(item, 12, Arc::new(values), None);
    let field = |metadata: &str| {
        let own = [
            ("ARROW:extension:name", "arrow.fixed_shape_tensor"),
            ("ARROW:extension:metadata", metadata),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let field = ArrowField::new("image", list.data_type().clone(), false);
        field.with_metadata(HashMap::from(own))
    };
    let made = |metadata: &str| {
        let schema = Arc::new(Schema::new(vec![field(metadata)]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(list.clone())]);
        Batches::new("table", &schema, &[batch.expect("a batch")], &[])
    };

    let source = made(r#"{"shape": [2, 2, 3]}"#).expect("a table");
    let raw = Pixels::raw(DType::UInt8, &[2, 2, 3]).expect("pixels");
    assert_eq!(source.fields()[0].kind, FieldKind::Image(raw));
    let pixels: Vec<u8> = (12..24).collect();
    assert_eq!(read_one(&source, 1).expect("pixels").fields, [pixels]);

    for wrong in [
        r#"{"shape": [2, 2, 4]}"#,
        r#"{"shape": [2, 2, 3], "permutation": [2, 0, 1]}"#,
        "{",
    ] {
        assert!(made(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn nulls_within_a_tensor_make_a_bad_record() {
    let nulls = NullBuffer::from(vec![true, true, true, false]);
    let values = UInt8Array::new(vec![1, 2, 3, 4].into(), Some(nulls));
    let item = Arc::new(ArrowField::new("item", DataType::UInt8, true));
    let pairs = FixedSizeListArray::new(item, 2, Arc::new(values), None);
    let source = of(vec![("pair", Arc::new(pairs))], &[]).expect("a table");

    assert_eq!(read_one(&source, 0).expect("a pair").fields, [vec![1, 2]]);
    assert!(read_one(&source, 1).is_err());
}

#[test]
fn an_impossible_request_names_the_column_and_the_reason() {
    let columns =
        || -> Vec<(&str, ArrayRef)> { vec![("age", Arc::new(Int64Array::from(vec![1, 2])))] };
    let refused = |wanted: ColumnRequest, words: &str| {
        let error = of(columns(), &[wanted]).expect_err("cannot be").to_string();
        assert!(error.contains(words), "{error}");
    };

    refused(
        request("height", None),
        "no column `height`; there are [\"age\"]",
    );
    refused(
        request("age", Some(FieldChoice::Text)),
        "its kind is tensor",
    );
    refused(request("age", Some(FieldChoice::Image)), "uint8 or uint16");
    let narrow = ColumnRequest {
        dtype: Some(DType::Int8),
        ..request("age", Some(FieldChoice::Tensor))
    };
    refused(narrow, "int64, not int8");
}
