//! Children of structs as fields, as the tables of detection datasets on the Hub have them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{
    Array as _, ArrayRef, BinaryArray, FixedSizeListArray, Int64Array, ListArray, RecordBatch,
    StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field as ArrowField, Fields};
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_core::sample::{DType, FieldKind, Pixels};
use infeed_source::batches::Batches;
use infeed_source::{Source, read_one};
use parquet::arrow::ArrowWriter;

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\nand more";

/// Boxes and categories of two objects, none, one, and a row without objects.
fn table() -> RecordBatch {
    let lengths = [2, 0, 1, 0];
    let lists = |values: ArrayRef| -> ArrayRef {
        let item = ArrowField::new("item", values.data_type().clone(), true);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(ListArray::new(Arc::new(item), offsets, values, None))
    };
    let boxes = (0..3).map(|at| Some((0..4).map(move |side| Some((4 * at + side) as f32))));
    let boxes = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(boxes, 4);
    let crops: Vec<&[u8]> = vec![b"damaged", PICTURE, PICTURE, PICTURE];
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12, 13]));
    let inner = StructArray::from(vec![(
        Arc::new(ArrowField::new("id", DataType::Int64, true)),
        Arc::clone(&ids),
    )]);
    let children: [(&str, ArrayRef); 4] = [
        ("bbox", lists(Arc::new(boxes))),
        ("category", lists(Arc::new(Int64Array::from(vec![7, 8, 9])))),
        ("crop", Arc::new(BinaryArray::from_vec(crops))),
        ("inner", Arc::new(inner)),
    ];
    let fields = children
        .iter()
        .map(|(name, array)| ArrowField::new(*name, array.data_type().clone(), true));
    let fields: Fields = fields.collect();
    let arrays = children.into_iter().map(|(_, array)| array).collect();
    let nulls = NullBuffer::from(vec![true, true, true, false]);
    let objects: ArrayRef = Arc::new(StructArray::new(fields, arrays, Some(nulls)));
    RecordBatch::try_from_iter([("image_id", ids), ("objects", objects)]).expect("a table")
}

fn arrow(path: &Path, compression: Option<CompressionType>) {
    let batch = table();
    let options = IpcWriteOptions::default().try_with_compression(compression);
    let file = File::create(path).expect("creates");
    let schema = batch.schema();
    let writer = FileWriter::try_new_with_options(file, &schema, options.expect("options"));
    let mut writer = writer.expect("a writer");
    writer.write(&batch).expect("writes");
    writer.finish().expect("ends");
}

fn floats(values: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let values = values.into_iter();
    values
        .flat_map(|value| f32::from(value).to_le_bytes())
        .collect()
}

fn numbers(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Returns the table in memory, mapped, compressed, and as Parquet.
fn sources(root: &Path) -> Vec<Arc<dyn Source>> {
    arrow(&root.join("a.arrow"), None);
    arrow(&root.join("b.arrow"), Some(CompressionType::ZSTD));
    let batch = table();
    let file = File::create(root.join("c.parquet")).expect("creates");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");
    let files = ["a.arrow", "b.arrow", "c.parquet"].map(|name| root.join(name));
    let opened = files.iter().map(|path| {
        let spec = SourceSpec::detect(path).expect("a table");
        Pipeline::new(spec).open_source(&[]).expect("opens")
    });
    let memory =
        Batches::new("table", &batch.schema(), std::slice::from_ref(&batch), &[]).expect("a table");
    opened
        .chain([Arc::new(memory) as Arc<dyn Source>])
        .collect()
}

#[test]
fn children_of_structs_are_fields_and_lists_of_boxes_are_flat() {
    let root = tempfile::tempdir().expect("a folder");
    for source in sources(root.path()) {
        let fields: Vec<(&str, &FieldKind)> = source
            .fields()
            .iter()
            .map(|field| (field.name.as_str(), &field.kind))
            .collect();
        let ragged = |dtype| FieldKind::Ragged { dtype };
        let (boxes, categories) = (ragged(DType::Float32), ragged(DType::Int64));
        let scalar = FieldKind::Tensor {
            dtype: DType::Int64,
            shape: Vec::new(),
        };
        let expected = [
            ("image_id", &scalar),
            ("objects.bbox", &boxes),
            ("objects.category", &categories),
            ("objects.crop", &FieldKind::Image(Pixels::Encoded)),
            ("objects.inner.id", &scalar),
        ];
        assert_eq!(fields, expected, "one of the first values is an image");
        assert!(source.left_out().is_empty());

        let records: Vec<_> = (0..3)
            .map(|record| read_one(&*source, record).expect("a record").fields)
            .collect();

        assert_eq!(records[0][1], floats(0..8));
        assert_eq!(records[0][2], numbers(&[7, 8]));
        assert_eq!(records[1][1].len() + records[1][2].len(), 0);
        assert_eq!(records[2][1], floats(8..12));
        assert_eq!(records[2][3], PICTURE);
        assert_eq!(records[2][4], numbers(&[12]));
        let null = read_one(&*source, 3).expect_err("a null struct").chain();
        assert!(null.contains("`objects.bbox` is null"), "{null}");
    }
}

#[test]
fn a_child_of_a_struct_is_requested_by_its_path() {
    let root = tempfile::tempdir().expect("a folder");
    drop(sources(root.path()));
    for name in ["a.arrow", "b.arrow", "c.parquet"] {
        let path = root.path().join(name);
        let open = |from: &str| {
            let kind = if name.ends_with("parquet") {
                "parquet"
            } else {
                "arrow"
            };
            let toml = format!(
                "[source]\nkind = \"{kind}\"\nfiles = [{:?}]\nfields = [{{ name = \"x\", from = \
                 {from:?} }}]\n",
                path.display().to_string()
            );
            Pipeline::from_toml(&toml)
                .expect("a pipeline")
                .open_source(&[])
        };

        let source = open("objects.inner.id").expect("opens");

        let record = read_one(&*source, 1).expect("a record");
        assert_eq!(record.fields, [numbers(&[11])]);
        let error = open("objects.none").expect_err("no child").to_string();
        assert!(error.contains("no column `objects.none`"), "{error}");
    }
}
