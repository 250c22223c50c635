//! Images of a folder or bucket, with the boxes of a COCO annotation file.
//!
//! Source: "Data format" of <https://cocodataset.org>, object detection. A record is an entry of
//! `images`, in the order of ids. Records without annotations have empty lists. Segmentations and
//! keypoints are not read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use infeed_raw::map::FileMap;
use serde::{Deserialize, Serialize};

use super::folder::{content, read_files};
use super::listing::{Paths, Tree};
use super::{Admission, Read, ReadError, Sink, Source, fingerprint};
use crate::store;
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::random::hash;
use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record, RecordId};

/// Fields with one value per box, next to the boxes.
pub const COLUMNS: [&str; 3] = ["labels", "area", "iscrowd"];

/// Field of the boxes: left, top, right, bottom in pixels.
pub const BOXES: &str = "boxes";

/// Numbers in the field `labels`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CocoLabels {
    /// The id of the category, as in the file.
    #[default]
    Id,
    /// The index of the category in the order of ids, from 0.
    Index,
}

/// Images and boxes of a COCO annotation file.
#[derive(Debug)]
pub struct Coco {
    fields: Vec<Field>,
    paths: Paths,
    image_ids: Vec<i64>,
    /// End of each record's boxes in the arrays below.
    ends: Vec<usize>,
    boxes: Vec<[f32; 4]>,
    labels: Vec<i64>,
    area: Vec<f32>,
    iscrowd: Vec<bool>,
    classes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct CocoFile {
    images: Vec<ImageEntry>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct ImageEntry {
    id: i64,
    file_name: String,
}

#[derive(Deserialize)]
struct Annotation {
    id: i64,
    image_id: i64,
    category_id: i64,
    /// Left, top, width, height in pixels.
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

impl Coco {
    /// Reads an annotation file. `images` is the folder or URL below which its images are.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a file that cannot be read. [`Error::Config`] for a file that is not
    /// JSON of this format, for ids that occur twice or do not exist, and for invalid boxes.
    pub fn open(images: &Path, annotations: &Path, labels: CocoLabels) -> Result<Coco, Error> {
        let text = match store::is_url(annotations) {
            true => content(annotations)?,
            false => {
                let map = FileMap::open(annotations);
                Bytes::from_owner(map.map_err(|error| Error::open(annotations, error))?)
            }
        };
        let wrong = |problem: String| {
            Error::config("source", format!("{}: {problem}", annotations.display()))
        };
        let file: CocoFile = serde_json::from_slice(&text).map_err(|error| wrong(json(&error)))?;
        drop(text);
        let (paths, image_ids) = list(images, file.images).map_err(|error| match error {
            ListError::Problem(problem) => wrong(problem),
            ListError::Other(error) => error,
        })?;
        let (numbers, classes) = categories(file.categories, labels).map_err(wrong)?;
        let records: HashMap<i64, usize> = image_ids
            .iter()
            .enumerate()
            .map(|(at, &id)| (id, at))
            .collect();
        let mut known = HashSet::with_capacity(file.annotations.len());
        let mut found = Vec::with_capacity(file.annotations.len());
        for annotation in file.annotations {
            let one = checked(annotation, &records, &numbers, &mut known);
            found.push(one.map_err(wrong)?);
        }
        // Stable: boxes of an image keep the order of the file.
        found.sort_by_key(|(record, ..)| *record);
        let mut source = Coco {
            fields: fields(),
            paths,
            ends: Vec::with_capacity(image_ids.len()),
            image_ids,
            boxes: Vec::with_capacity(found.len()),
            labels: Vec::with_capacity(found.len()),
            area: Vec::with_capacity(found.len()),
            iscrowd: Vec::with_capacity(found.len()),
            classes,
        };
        let mut rest = found.into_iter().peekable();
        for record in 0..source.image_ids.len() {
            while let Some((_, label, annotation)) = rest.next_if(|(of, ..)| *of == record) {
                let [left, top, width, height] = annotation.bbox;
                source
                    .boxes
                    .push([left, top, left + width, top + height].map(|x| x as f32));
                source.labels.push(label);
                let area = annotation.area.unwrap_or(width * height);
                source.area.push(area as f32);
                source.iscrowd.push(annotation.iscrowd != 0);
            }
            source.ends.push(source.boxes.len());
        }
        Ok(source)
    }
}

/// Returns the fields of every record.
pub fn fields() -> Vec<Field> {
    let list = |dtype| FieldKind::Ragged { dtype };
    let number = FieldKind::Tensor {
        dtype: DType::Int64,
        shape: Vec::new(),
    };
    let kinds = [
        ("image", FieldKind::Image(Pixels::Encoded)),
        (BOXES, list(DType::Float32)),
        (COLUMNS[0], list(DType::Int64)),
        (COLUMNS[1], list(DType::Float32)),
        (COLUMNS[2], list(DType::Bool)),
        ("image_id", number),
    ];
    let field = |(name, kind): (&str, FieldKind)| Field {
        name: name.to_owned(),
        kind,
    };
    kinds.map(field).into()
}

/// Describes an error of the JSON parser with a fix.
fn json(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Eof => {
            format!("the file is truncated ({error}); download or write it again")
        }
        serde_json::error::Category::Data => format!(
            "{error}; it must be annotations of COCO for object detection, with images, annotations \
             and categories"
        ),
        _ => format!("it is not JSON ({error}); NaN and Infinity are not allowed, write numbers"),
    }
}

enum ListError {
    Problem(String),
    Other(Error),
}

/// Returns paths and ids of the images, in the order of ids.
fn list(root: &Path, mut images: Vec<ImageEntry>) -> Result<(Paths, Vec<i64>), ListError> {
    images.sort_by_key(|image| image.id);
    if let Some(twins) = images.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(ListError::Problem(format!(
            "images {} and {} have the same id {}; give each its number",
            printable(&twins[0].file_name),
            printable(&twins[1].file_name),
            twins[0].id
        )));
    }
    if images.is_empty() {
        let problem = "it lists no images".to_owned();
        return Err(ListError::Problem(problem));
    }
    let (ids, names): (Vec<i64>, Vec<String>) = images
        .into_iter()
        .map(|image| (image.id, image.file_name))
        .unzip();
    let mut paths = Tree::named(root, &names).map_err(ListError::Other)?;
    paths.shrink();
    Ok((paths, ids))
}

/// Returns the label of each category, and the names of the labels from 0.
#[allow(clippy::type_complexity, reason = "used once")]
fn categories(
    mut categories: Vec<Category>,
    labels: CocoLabels,
) -> Result<(BTreeMap<i64, i64>, Option<Vec<String>>), String> {
    categories.sort_by_key(|category| category.id);
    let mut numbers = BTreeMap::new();
    for (index, category) in categories.iter().enumerate() {
        let label = match labels {
            CocoLabels::Id => category.id,
            CocoLabels::Index => index as i64,
        };
        if numbers.insert(category.id, label).is_some() {
            let (id, name) = (category.id, printable(&category.name));
            return Err(format!(
                "the category id {id} ({name}) occurs twice; remove one"
            ));
        }
    }
    let names = categories.into_iter().map(|category| category.name);
    Ok((
        numbers,
        (labels == CocoLabels::Index).then(|| names.collect()),
    ))
}

/// Returns the record, the label and the annotation.
fn checked(
    annotation: Annotation,
    records: &HashMap<i64, usize>,
    numbers: &BTreeMap<i64, i64>,
    known: &mut HashSet<i64>,
) -> Result<(usize, i64, Annotation), String> {
    let Annotation {
        id,
        image_id,
        category_id,
        bbox,
        ..
    } = annotation;
    let wrong = |problem: String| Err(format!("annotation {id} {problem}"));
    if !known.insert(id) {
        return wrong("occurs twice; remove one, or give it its number".to_owned());
    }
    let Some(&record) = records.get(&image_id) else {
        return wrong(format!(
            "belongs to image {image_id}, which is not in `images`; add the image, or remove the \
             annotation"
        ));
    };
    let Some(&label) = numbers.get(&category_id) else {
        return wrong(format!(
            "has category {category_id}, which is not in `categories`; add the category, or remove \
             the annotation"
        ));
    };
    let [_, _, width, height] = bbox;
    if !bbox.iter().all(|x| (*x as f32).is_finite()) || width < 0.0 || height < 0.0 {
        return wrong(format!(
            "of image {image_id} has the box {bbox:?}, which is not left, top, width, height; correct \
             it, or remove the annotation"
        ));
    }
    Ok((record, label, annotation))
}

impl Source for Coco {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: self.paths.path(record as usize).display().to_string(),
        }
    }

    fn fingerprint(&self) -> u64 {
        let boxes = self.boxes.as_flattened().iter().map(|x| x.to_bits().into());
        let labels: Vec<u64> = self.labels.iter().map(|&label| label as u64).collect();
        let ids: Vec<u64> = self.image_ids.iter().map(|&id| id as u64).collect();
        let pairs = self.area.iter().zip(&self.iscrowd);
        let more = pairs.map(|(area, &crowd)| u64::from(area.to_bits()) << 1 | u64::from(crowd));
        let ends: Vec<u64> = self.ends.iter().map(|&end| end as u64).collect();
        hash(&[
            fingerprint(self.len(), &self.fields),
            self.paths.fingerprint(),
            hash(&boxes.collect::<Vec<u64>>()),
            hash(&labels),
            hash(&ids),
            hash(&more.collect::<Vec<u64>>()),
            hash(&ends),
        ])
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        vec![self.paths.path(record as usize)]
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.paths.parallel_reads()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(position, record) in &read.records {
            let mut fields = read_files(record, &[&self.paths], admit)?;
            let at = record as usize;
            let own = at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at];
            let boxes = self.boxes[own.clone()].as_flattened().iter();
            fields.push(boxes.flat_map(|x| x.to_le_bytes()).collect());
            let labels = self.labels[own.clone()].iter();
            fields.push(labels.flat_map(|label| label.to_le_bytes()).collect());
            let area = self.area[own.clone()].iter();
            fields.push(area.flat_map(|area| area.to_le_bytes()).collect());
            fields.push(
                self.iscrowd[own]
                    .iter()
                    .map(|&crowd| crowd.into())
                    .collect(),
            );
            fields.push(Bytes::copy_from_slice(&self.image_ids[at].to_le_bytes()));
            let found = Record {
                index: record,
                fields,
            };
            sink(position, Ok(found));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_one;

    const GOOD: &str = r#"{"info": {"year": 2026}, "images": [
        {"id": 9, "file_name": "b.jpg", "width": 6, "height": 4},
        {"id": 3, "file_name": "sub/a.jpg", "width": 6, "height": 4}],
        "annotations": [
        {"id": 1, "image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 1.5], "area": 4.0,
         "iscrowd": 0, "segmentation": [[1, 2, 3, 4]]},
        {"id": 2, "image_id": 9, "category_id": 2, "bbox": [0, 0, 6, 4], "iscrowd": 1}],
        "categories": [{"id": 7, "name": "dog"}, {"id": 2, "name": "cat"}]}"#;

    fn opened(text: &str, labels: CocoLabels) -> Result<Coco, Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("instances.json");
        std::fs::write(&file, text).expect("writes");
        std::fs::create_dir(folder.path().join("sub")).expect("writes");
        for name in ["b.jpg", "sub/a.jpg"] {
            std::fs::write(folder.path().join(name), name).expect("writes");
        }
        let source = Coco::open(folder.path(), &file, labels)?;
        // Files are read while the folder exists.
        let records = (0..source.len()).map(|n| read_one(&source, n).expect("a record"));
        assert_eq!(records.map(|record| record.fields.len()).max(), Some(6));
        let record = read_one(&source, 1).expect("a record");
        let numbers = record.fields[1].chunks_exact(4);
        let boxes: Vec<f32> = numbers
            .map(|x| f32::from_le_bytes(x.try_into().expect("four bytes")))
            .collect();
        assert_eq!(boxes, [1.0, 2.0, 4.0, 3.5, 0.0, 0.0, 6.0, 4.0]);
        assert_eq!(&record.fields[0][..], b"b.jpg");
        assert_eq!(&record.fields[4][..], [0, 1]);
        Ok(source)
    }

    #[test]
    fn records_are_images_in_the_order_of_ids_with_their_boxes() {
        let source = opened(GOOD, CocoLabels::Id).expect("a good file");

        assert_eq!(source.image_ids, [3, 9]);
        assert_eq!(
            (&source.ends[..], &source.labels[..]),
            (&[0, 2][..], &[7, 2][..])
        );
        assert_eq!(source.area, [4.0, 24.0]);
        assert_eq!(source.classes(), None);
        let indexed = opened(GOOD, CocoLabels::Index).expect("a good file");
        assert_eq!(indexed.labels, [1, 0]);
        assert_eq!(indexed.classes().expect("names"), ["cat", "dog"]);
        assert_ne!(source.fingerprint(), indexed.fingerprint());
    }

    #[test]
    fn wrong_files_raise_the_entry_and_the_fix() {
        let cut = &GOOD[..GOOD.len() - 30];
        for (text, parts) in [
            (cut.to_owned(), ["truncated", "write it again"]),
            (
                GOOD.replace("[0, 0, 6, 4]", "[0, 0, NaN, 4]"),
                ["not JSON", "NaN"],
            ),
            (
                GOOD.replace("[0, 0, 6, 4]", "[0, 0, 6]"),
                ["line 7", "object detection"],
            ),
            (
                GOOD.replace("[0, 0, 6, 4]", "[0, 0, -6, 4]"),
                ["annotation 2 of image 9", "correct"],
            ),
            (
                GOOD.replace("[0, 0, 6, 4]", "[0, 0, 1e300, 4]"),
                ["annotation 2", "correct"],
            ),
            (
                GOOD.replace("\"id\": 2, \"image_id\"", "\"id\": 1, \"image_id\""),
                ["annotation 1 occurs twice", "remove"],
            ),
            (
                GOOD.replace("\"category_id\": 2", "\"category_id\": 5"),
                ["annotation 2 has category 5", "add the category"],
            ),
            (
                GOOD.replace("\"id\": 3", "\"id\": 4").replace(
                    "\"image_id\": 9, \"category_id\": 2",
                    "\"image_id\": 3, \"category_id\": 2",
                ),
                ["annotation 2 belongs to image 3", "add the image"],
            ),
            (
                GOOD.replace("\"id\": 3", "\"id\": 9"),
                ["sub/a.jpg", "the same id 9"],
            ),
            (
                GOOD.replace("\"id\": 7", "\"id\": 2"),
                ["category id 2", "occurs twice"],
            ),
            (
                GOOD.replace("sub/a.jpg", "../a.jpg"),
                ["../a.jpg", "outside the folder"],
            ),
            (
                "{\"images\": [], \"annotations\": [], \"categories\": []}".to_owned(),
                ["instances.json", "no images"],
            ),
        ] {
            let error = opened(&text, CocoLabels::Id)
                .expect_err("a wrong file")
                .to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
