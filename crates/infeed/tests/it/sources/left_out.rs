//! Parts of datasets that no record contains.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field as ArrowField};
use infeed::pipeline::{Handle, MixPart, Pipeline, SourceSpec};
use infeed_source::batches::Batches;
use parquet::arrow::ArrowWriter;

/// Returns the messages about the parts that a source leaves out, with paths relative to `root`.
fn messages(root: &Path, spec: SourceSpec, handles: &[Handle]) -> Vec<String> {
    let source = Pipeline::new(spec).open_source(handles).expect("opens");
    let root = format!("{}/", root.display());
    let texts = source.left_out().into_iter();
    texts
        .map(|parts| parts.to_string().replace(&root, ""))
        .collect()
}

fn files(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, "x").expect("writes");
    }
}

/// A table with a column of numbers, a column of lists of structs, and more columns of numbers.
fn table(more: &[&str]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let child = |name: &str| {
        let field = ArrowField::new(name, DataType::Int64, true);
        (Arc::new(field), Arc::clone(&numbers))
    };
    let structs = StructArray::from(vec![child("id"), child("area")]);
    let item = ArrowField::new("item", structs.data_type().clone(), true);
    let offsets = OffsetBuffer::from_lengths([1, 1]);
    let lists = ListArray::new(Arc::new(item), offsets, Arc::new(structs), None);
    let columns = [
        ("x", Arc::clone(&numbers)),
        ("objects", Arc::new(lists) as ArrayRef),
    ];
    let more = more.iter().map(|name| (*name, Arc::clone(&numbers)));
    RecordBatch::try_from_iter(columns.into_iter().chain(more)).expect("a table")
}

fn parquet(path: &Path, more: &[&str]) {
    let batch = table(more);
    let file = File::create(path).expect("creates");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("writes");
    writer.close().expect("ends");
}

fn arrow(path: &Path, more: &[&str]) {
    let batch = table(more);
    let file = File::create(path).expect("creates");
    let mut writer = FileWriter::try_new(file, &batch.schema()).expect("a writer");
    writer.write(&batch).expect("writes");
    writer.finish().expect("ends");
}

const STRUCTS: &str = "left out: objects; it holds lists of structs of `id`, `area`, and fields are bytes, text, \
                       numbers or lists of numbers";

#[test]
fn a_folder_reports_files_without_an_image_extension_and_images_without_a_class() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let names = [
        "cat/1.jpg",
        "cat/notes.txt",
        "cat/.hidden",
        "2.jpg",
        "list.csv",
    ];
    files(&root.join("data"), &names);
    let other = "data: 2 files without an image extension are left out: cat/notes.txt, list.csv";
    let outside = "data: 1 image outside the class folders is left out: 2.jpg; move such images into \
                   a class folder, or set labels=\"none\"";

    let folder = SourceSpec::folder(root.join("data"));
    assert_eq!(messages(root, folder, &[]), [other, outside]);
    let unlabelled = SourceSpec::Folder {
        path: root.join("data"),
        labels: "none".to_owned(),
        classes: None,
        allow_empty: false,
        follow_links: true,
    };
    assert_eq!(messages(root, unlabelled, &[]), [other]);
}

#[cfg(unix)]
#[test]
fn a_pipe_with_the_name_of_an_image_is_not_opened() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    files(root, &["1.jpg"]);
    let pipe = root.join("2.jpg");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("runs").success());

    let source = Pipeline::new(SourceSpec::folder(root)).open_source(&[]);

    let source = source.expect("opens");
    assert_eq!(source.len(), 1);
    assert_eq!(
        source.left_out()[0].count_text(),
        "1 pipe, socket or device"
    );
}

#[test]
fn pairs_report_the_files_of_both_folders() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    files(
        root,
        &["image/1.jpg", "image/a.txt", "mask/1.png", "mask/b.txt"],
    );

    let found = messages(
        root,
        SourceSpec::pairs(root.join("image"), root.join("mask")),
        &[],
    );

    let message =
        |folder, name| format!("{folder}: 1 file without an image extension is left out: {name}");
    assert_eq!(found, [message("image", "a.txt"), message("mask", "b.txt")]);
}

#[test]
fn labels_without_an_image_are_left_out_and_labels_next_to_their_image_are_not() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let names = ["1.jpg", "1.txt", "a.md", "b/2.txt", "classes.txt", ".3.txt"];
    files(&root.join("images"), &names);
    fs::write(root.join("images/1.txt"), "0 0.5 0.5 0.1 0.1\n").expect("writes");
    let yolo = SourceSpec::Yolo {
        images: root.join("images"),
        labels: Some(root.join("images")),
        classes: None,
        corners: false,
        follow_links: true,
    };

    let found = messages(root, yolo, &[]);

    assert_eq!(
        found,
        [
            "images: 1 file without an image extension is left out: a.md",
            "images: 1 label file without an image is left out: b/2.txt",
        ]
    );
}

#[test]
fn tables_report_columns_that_cannot_be_fields_and_those_of_later_files() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    for (at, more) in [&[][..], &["y"], &["y", "z"]].iter().enumerate() {
        parquet(&root.join(format!("{at}.parquet")), more);
        arrow(&root.join(format!("{at}.arrow")), more);
    }
    for extension in ["parquet", "arrow"] {
        let pattern = root.join(format!("*.{extension}")).display().to_string();
        let spec = SourceSpec::detect(Path::new(&pattern)).expect("a table");

        let found = messages(root, spec, &[]);

        assert_eq!(
            found,
            [
                format!("0.{extension}: 1 column is {STRUCTS}"),
                format!(
                    "1.{extension} and 1 more file: 2 columns that the first file does not have are \
                     left out: y, z"
                ),
            ]
        );
    }
}

#[test]
fn a_table_in_memory_and_the_parts_of_a_mix_report_their_columns() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let batch = table(&[]);
    let source = Batches::new("the table", &batch.schema(), &[batch], &[]).expect("a table");
    let handles = [Handle::Source(Arc::new(source))];
    let object = || SourceSpec::Object {
        handle: 0,
        name: "the table".to_owned(),
    };
    let expected = format!("the table: 1 column is {STRUCTS}");

    assert_eq!(messages(root, object(), &handles), [expected.as_str()]);
    parquet(&root.join("0.parquet"), &[]);
    let files = root.join("0.parquet").display().to_string();
    let parts = [object(), SourceSpec::parquet(files)].map(|source| MixPart {
        weight: None,
        source,
    });
    let mix = SourceSpec::Mix {
        parts: parts.into(),
        epoch: None,
    };
    let found = messages(root, mix, &handles);
    assert_eq!(
        found,
        [expected, format!("0.parquet: 1 column is {STRUCTS}")]
    );
}

#[test]
fn parts_that_the_user_excludes_are_not_reported() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    parquet(&root.join("0.parquet"), &[]);
    let files = root.join("0.parquet").display().to_string();
    let toml = format!(
        "[source]\nkind = \"parquet\"\nfiles = [{files:?}]\nfields = [{{ name = \"x\" }}]\n"
    );

    let pipeline = Pipeline::from_toml(&toml).expect("a pipeline");

    assert!(messages(root, pipeline.source, &[]).is_empty());
}

#[test]
fn images_of_formats_that_are_not_decoded_are_named_with_the_fix() {
    let root = tempfile::tempdir().expect("a folder");
    let names = [
        "data/a.jpg",
        "data/b.ppm",
        "data/c.AVIF",
        "data/d.jp2",
        "data/e.txt",
    ];
    files(root.path(), &names);

    let found = messages(
        root.path(),
        SourceSpec::folder(root.path().join("data")),
        &[],
    );

    assert_eq!(
        found,
        [
            "data: 2 files of a format that infeed does not decode are left out: c.AVIF, d.jp2; \
             convert them to PNG or WebP",
            "data: 1 file without an image extension is left out: e.txt"
        ]
    );
}

#[test]
fn a_folder_with_only_images_that_are_not_decoded_is_an_error_that_names_them() {
    let root = tempfile::tempdir().expect("a folder");
    files(root.path(), &["images/a.heic", "masks/a.heic"]);
    let [images, masks] = ["images", "masks"].map(|name| root.path().join(name));
    let sources = [
        SourceSpec::folder(&images),
        SourceSpec::pairs(&images, &masks),
    ];

    for spec in sources {
        let opened = Pipeline::new(spec).open_source(&[]);
        let error = opened.expect_err("no images").to_string();
        assert!(
            error.contains(
                "images holds no images but 1 file of a format that infeed does not decode: a.heic; \
                 convert them to PNG or WebP"
            ),
            "{error}"
        );
    }
}
