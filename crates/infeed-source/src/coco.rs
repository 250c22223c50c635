//! Images of a folder or bucket, with the boxes of a COCO annotation file.
//!
//! Source: "Data format" of <https://cocodataset.org>, object detection. A record is an entry of
//! `images`, in the order of ids. Records without annotations have empty lists. Masks stay outlines or
//! run lengths, as in the file, until a sample needs their pixels.

pub(crate) mod entries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::entries::CocoLabels;
use self::entries::{annotation_text, area, categories, crowd, list, parse_id, valid_box};
use super::annotations::AnnotationRoom;
use super::boxed_images::{self, BoxedImages};
use super::json;
use infeed_codec::instances::CocoMask;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind};

/// Fields with one value per box, next to the boxes (left, top, right, bottom in pixels).
pub const COLUMNS: [&str; 3] = [boxed_images::LABELS, "area", "iscrowd"];

/// Field of the keypoints: x, y and visibility of each, in pixels.
pub const KEYPOINTS: &str = "keypoints";

/// Field of the masks: a JSON list with the segmentation of each box.
pub const MASKS: &str = "masks";

/// Most keypoints of an object. COCO has 17, its whole bodies have 133.
const MAX_KEYPOINTS: usize = 1000;

/// Values are JSON text: see [`json`].
#[derive(Deserialize)]
struct CocoFile<'a> {
    /// A list of [`ImageEntry`](entries::ImageEntry).
    #[serde(borrow)]
    images: Option<&'a RawValue>,
    /// A list of [`Annotation`]. Absent in the files of test sets.
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    /// A list of [`Category`](entries::Category).
    #[serde(borrow)]
    categories: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotation<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    image_id: Option<&'a RawValue>,
    #[serde(borrow)]
    category_id: Option<&'a RawValue>,
    /// Left, top, width, height in pixels.
    #[serde(borrow)]
    bbox: Option<&'a RawValue>,
    #[serde(borrow)]
    area: Option<&'a RawValue>,
    #[serde(borrow)]
    iscrowd: Option<&'a RawValue>,
    /// x, y and visibility of each keypoint.
    #[serde(borrow)]
    keypoints: Option<&'a RawValue>,
    #[serde(borrow)]
    segmentation: Option<&'a RawValue>,
}

/// An object with its checked values.
struct CocoObject<'a> {
    /// Number of its record.
    record: usize,
    label: i64,
    /// Left, top, width, height in pixels.
    bbox: [f64; 4],
    area: f32,
    iscrowd: bool,
    keypoints: Option<&'a RawValue>,
    segmentation: Option<&'a RawValue>,
    name: ObjectName,
}

/// Names an object in messages.
#[derive(Clone, Copy)]
struct ObjectName {
    /// Position in the list, from 0.
    at: usize,
    id: Option<i64>,
    image_id: Option<i64>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "annotation {id}"),
            None => write!(f, "annotation {} of the list", self.at + 1),
        }?;
        match self.image_id {
            Some(image_id) => write!(f, " of image {image_id}"),
            None => Ok(()),
        }
    }
}

/// Reads an annotation file. `images` is the folder or URL below which its images are. With
/// `keypoints`, also reads this number of keypoints of each object; objects without them have
/// invisible ones. With `masks`, also reads the mask of each object.
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read. [`Error::Config`] for a file that is not JSON of
/// this format, for ids that occur twice or do not exist, and for invalid boxes, keypoints or masks.
pub fn open(
    images: &Path,
    annotations: &Path,
    labels: CocoLabels,
    keypoints: Option<usize>,
    masks: bool,
    follow_links: bool,
) -> Result<BoxedImages, Error> {
    if keypoints.is_some_and(|count| !(1..=MAX_KEYPOINTS).contains(&count)) {
        let problem = format!("keypoints must be 1 to {MAX_KEYPOINTS}, the number per object");
        return Err(Error::config("source", problem));
    }
    let room = AnnotationRoom::new();
    let text = annotation_text(annotations, &room)?;
    let wrong =
        |problem: String| Error::config("source", format!("{}: {problem}", annotations.display()));
    let expected = "a file of COCO for object detection, with the lists images, annotations and \
                    categories";
    let file: CocoFile<'_> = serde_json::from_slice(&text)
        .map_err(|error| wrong(json::problem(&error, &text, expected)))?;
    let images = list(images, file.images, &room, expected, follow_links)
        .map_err(|error| error.with(wrong))?;
    let (numbers, classes) = categories(file.categories, labels, &room, expected).map_err(wrong)?;
    let records: HashMap<i64, usize> = images
        .ids
        .iter()
        .enumerate()
        .map(|(at, &id)| (id, at))
        .collect();
    let mut known = HashSet::new();
    let mut found = match file.annotations {
        Some(annotations) => json::list(annotations, &room, expected, |annotation, at| {
            check_object(&annotation, at, &records, &numbers, &mut known)
        })
        .map_err(wrong)?,
        None => Vec::new(),
    };
    drop(known);
    // Stable: boxes of an image keep the order of the file.
    found.sort_by_key(|object| object.record);
    let count = images.ids.len();
    let fields = fields(keypoints.is_some(), masks);
    let source = BoxedImages::new(images.paths, fields, Some(images.ids), classes, room);
    let mut source = source.with_sizes(images.sizes);
    let too_many = |problem| wrong(format!("it {problem}"));
    let mut rest = found.into_iter().peekable();
    for record in 0..count {
        while let Some(object) = rest.next_if(|object| object.record == record) {
            let [left, top, width, height] = object.bbox;
            let points = match keypoints {
                Some(count) => points(&object, count).map_err(wrong)?,
                None => Vec::new(),
            };
            let pushed = source.push(
                [left, top, left + width, top + height],
                &[
                    &object.label.to_le_bytes(),
                    &object.area.to_le_bytes(),
                    &[u8::from(object.iscrowd)],
                    &points,
                ],
            );
            pushed.map_err(too_many)?;
            if masks {
                let mask = mask(&object).map_err(wrong)?;
                source.push_text(&mask).map_err(too_many)?;
            }
        }
        source.end_record();
    }
    source.finish()
}

/// Returns the mask of an object as JSON text.
fn mask(object: &CocoObject<'_>) -> Result<String, String> {
    let name = object.name;
    let Some(text) = object.segmentation else {
        return Err(format!(
            "{name} has no segmentation; add it, or open the source without masks"
        ));
    };
    let Some(mask) = json::parse::<CocoMask>(text) else {
        return Err(format!(
            "{name} has the segmentation {}, which is neither a list of polygons, such as \
             [[x, y, x, y, x, y]], nor run lengths; correct it, or remove the annotation",
            json::show_value(text)
        ));
    };
    mask.check()
        .map_err(|error| format!("the segmentation of {name} {error}"))?;
    serde_json::to_string(&mask).map_err(|error| format!("the segmentation of {name}: {error}"))
}

/// Returns the bytes of the keypoints of an object: zeros if it has none.
fn points(object: &CocoObject<'_>, count: usize) -> Result<Vec<u8>, String> {
    let Some(text) = object.keypoints else {
        return Ok(vec![0; 12 * count]);
    };
    let name = object.name;
    let Some(points) = json::parse::<Vec<f64>>(text) else {
        return Err(format!(
            "{name} has the keypoints {}, which are not a list of numbers; correct them",
            json::show_value(text)
        ));
    };
    let is_valid = |x: &f64| (*x as f32).is_finite();
    if points.len() != 3 * count || !points.iter().all(is_valid) {
        let found = points.len();
        return Err(format!(
            "{name} has {found} numbers of keypoints, which are not x, y and visibility of {count}; \
             set keypoints to the number per object, or correct it"
        ));
    }
    let numbers = points.iter().flat_map(|x| (*x as f32).to_le_bytes());
    Ok(numbers.collect())
}

/// Returns the fields of every record.
pub fn fields(keypoints: bool, masks: bool) -> Vec<Field> {
    let more = [
        (COLUMNS[1], DType::Float32),
        (COLUMNS[2], DType::Bool),
        (KEYPOINTS, DType::Float32),
    ];
    let count = if keypoints { 3 } else { 2 };
    let mut fields = boxed_images::fields(&more[..count]);
    fields.extend(masks.then(|| Field {
        name: MASKS.to_owned(),
        kind: FieldKind::Text,
    }));
    fields.push(Field {
        name: "image_id".to_owned(),
        kind: FieldKind::Tensor {
            dtype: DType::Int64,
            shape: Vec::new(),
        },
    });
    fields
}

/// Returns the object of an annotation, the number `at` of the list.
fn check_object<'a>(
    annotation: &Annotation<'a>,
    at: usize,
    records: &HashMap<i64, usize>,
    numbers: &BTreeMap<i64, i64>,
    known: &mut HashSet<i64>,
) -> Result<CocoObject<'a>, String> {
    let Annotation {
        keypoints,
        segmentation,
        ..
    } = *annotation;
    let mut name = ObjectName {
        at,
        id: None,
        image_id: None,
    };
    // Only messages need the ids of annotations.
    if annotation.id.is_some() {
        let id = parse_id(annotation.id, "id", || name.to_string())?;
        name.id = Some(id);
        if !known.insert(id) {
            return Err(format!(
                "{name} occurs twice; remove one, or give it its number"
            ));
        }
    }
    let image_id = parse_id(annotation.image_id, "image_id", || name.to_string())?;
    let category_id = parse_id(annotation.category_id, "category_id", || name.to_string())?;
    let Some(&record) = records.get(&image_id) else {
        return Err(format!(
            "{name} belongs to image {image_id}, which is not in `images`; add the image, or remove \
             the annotation"
        ));
    };
    let Some(&label) = numbers.get(&category_id) else {
        return Err(format!(
            "{name} has category {category_id}, which is not in `categories`; add the category, or \
             remove the annotation"
        ));
    };
    name.image_id = Some(image_id);
    let wrong = |problem: String| format!("{name} {problem}; correct it, or remove the annotation");
    let text = annotation.bbox;
    let text = text.ok_or_else(|| wrong("has no bbox".to_owned()))?;
    let bbox = valid_box(text).ok_or_else(|| {
        wrong(format!(
            "has the bbox {}, which is not [left, top, width, height] in numbers",
            json::show_value(text)
        ))
    })?;
    let shown = |value: Option<&RawValue>| value.map(json::show_value).unwrap_or_default();
    let area = area(annotation.area, bbox).ok_or_else(|| {
        wrong(format!(
            "has the area {}, which is too large or no number",
            shown(annotation.area)
        ))
    })?;
    let iscrowd = crowd(annotation.iscrowd).ok_or_else(|| {
        wrong(format!(
            "has iscrowd {}, which is neither 0 nor 1",
            shown(annotation.iscrowd)
        ))
    })?;
    Ok(CocoObject {
        record,
        label,
        bbox,
        area,
        iscrowd,
        keypoints,
        segmentation,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, read_one};
    use bytes::Bytes;

    const GOOD: &str = r#"{"info": {"year": 2026}, "images": [
        {"id": 9, "file_name": "b.jpg", "width": 6, "height": 4},
        {"id": 3, "file_name": "sub/a.jpg", "width": 6, "height": 4}],
        "annotations": [
        {"id": 1, "image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 1.5], "area": 4.0,
         "iscrowd": 0, "segmentation": [[1, 2, 3, 4]]},
        {"id": 2, "image_id": 9, "category_id": 2, "bbox": [0, 0, 6, 4], "iscrowd": 1}],
        "categories": [{"id": 7, "name": "dog"}, {"id": 2, "name": "cat"}]}"#;

    /// Opens the file and returns the source, and the bytes of the fields of its two records.
    fn open_text(text: &str, labels: CocoLabels) -> Result<(BoxedImages, [Vec<Bytes>; 2]), Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("instances.json");
        std::fs::write(&file, text).expect("writes");
        std::fs::create_dir(folder.path().join("sub")).expect("writes");
        for name in ["b.jpg", "sub/a.jpg"] {
            std::fs::write(folder.path().join(name), name).expect("writes");
        }
        let source = open(folder.path(), &file, labels, None, false, true)?;
        // Files are read while the folder exists.
        let records = [0, 1].map(|n| read_one(&source, n).expect("a record").fields);
        Ok((source, records))
    }

    fn bytes<const N: usize>(values: &[[u8; N]]) -> &[u8] {
        values.as_flattened()
    }

    #[test]
    fn records_are_images_in_the_order_of_ids_with_their_boxes() {
        let (source, [first, second]) = open_text(GOOD, CocoLabels::Id).expect("a good file");

        assert_eq!(first[0], &b"sub/a.jpg"[..]);
        assert!(first[1..5].iter().all(Bytes::is_empty), "no boxes");
        assert_eq!(first[5], 3_i64.to_le_bytes()[..]);
        let boxes = [1.0_f32, 2.0, 4.0, 3.5, 0.0, 0.0, 6.0, 4.0].map(f32::to_le_bytes);
        assert_eq!(second[0], &b"b.jpg"[..]);
        assert_eq!(second[1], bytes(&boxes));
        assert_eq!(second[2], bytes(&[7_i64, 2].map(i64::to_le_bytes)));
        assert_eq!(second[3], bytes(&[4.0_f32, 24.0].map(f32::to_le_bytes)));
        assert_eq!(second[4], [0, 1][..]);
        assert_eq!(second[5], 9_i64.to_le_bytes()[..]);
        assert_eq!(source.classes(), None);
        let marked = format!("\u{FEFF}{GOOD}");
        let (indexed, [_, second]) = open_text(&marked, CocoLabels::Index).expect("a good file");
        assert_eq!(second[2], bytes(&[1_i64, 0].map(i64::to_le_bytes)));
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
                ["annotation 2 of image 9 has the bbox [0, 0, 6]", "width"],
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
                GOOD.replace("[0, 0, 6, 4]", "[3e38, 0, 3e38, 4]"),
                ["annotation 2 of image 9 has the bbox [3e38", "correct"],
            ),
            (
                GOOD.replace("4.0", "1e300"),
                ["annotation 1 of image 9", "the area 1e300"],
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
            let error = open_text(&text, CocoLabels::Id)
                .expect_err("a wrong file")
                .to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn values_are_read_as_tools_write_them() {
        let expected = open_text(GOOD, CocoLabels::Id).expect("a good file").1;
        for (from, to) in [
            ("\"iscrowd\": 0, ", ""),
            ("\"iscrowd\": 0", "\"iscrowd\": false"),
            ("\"iscrowd\": 0", "\"iscrowd\": null"),
            ("\"iscrowd\": 1", "\"iscrowd\": true"),
            ("\"iscrowd\": 1", "\"iscrowd\": 1.0"),
            ("\"image_id\": 9", "\"image_id\": 9.0"),
            ("\"category_id\": 7", "\"category_id\": 7e0"),
            ("{\"id\": 1, ", "{"),
            ("{\"id\": 1, ", "{\"id\": 1.0, "),
            ("{\"id\": 9, ", "{\"id\": 9.0, "),
            ("\"area\": 4.0", "\"area\": 4"),
            ("\"width\": 6", "\"width\": null"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let found = open_text(&text, CocoLabels::Id).expect(to).1;
            assert_eq!(found, expected, "{to}");
        }
    }

    #[test]
    fn a_file_without_annotations_has_images_without_boxes() {
        let begin = GOOD.find("\"annotations\"").expect("annotations");
        let images = GOOD[..begin].trim_end().trim_end_matches(',');

        let (_, records) = open_text(&format!("{images}}}"), CocoLabels::Id).expect("images");

        for record in records {
            assert!(record[1..5].iter().all(Bytes::is_empty));
        }
    }

    #[test]
    fn values_of_another_type_raise_the_annotation_and_the_value() {
        let bbox = "[0, 0, 6, 4]";
        for (from, to, parts) in [
            (
                bbox,
                "[]",
                ["annotation 2 of image 9 has the bbox []", "width"],
            ),
            (
                bbox,
                "[\"1\", 0, 6, 4]",
                ["annotation 2", "[\"1\", 0, 6, 4]"],
            ),
            (
                bbox,
                "null",
                ["annotation 2 of image 9 has no bbox", "correct"],
            ),
            (
                "\"image_id\": 9",
                "\"image_id\": \"9\"",
                ["annotation 1 has", "integers"],
            ),
            (
                "\"image_id\": 9",
                "\"image_id\": 9.5",
                ["image_id 9.5", "integers"],
            ),
            (
                "\"image_id\": 9, ",
                "",
                ["annotation 1 has no image_id", "add it"],
            ),
            (
                "{\"id\": 1, ",
                "{\"id\": \"a\", ",
                ["annotation 1 of the list", "\"a\""],
            ),
            (
                "{\"id\": 9",
                "{\"id\": \"b\"",
                ["image b.jpg has the id \"b\"", "integers"],
            ),
            (
                "{\"id\": 7",
                "{\"id\": \"dog\"",
                ["the category dog", "integers"],
            ),
            (
                "\"iscrowd\": 1",
                "\"iscrowd\": \"no\"",
                ["annotation 2", "iscrowd \"no\""],
            ),
            (
                "\"area\": 4.0",
                "\"area\": \"x\"",
                ["annotation 1 of", "area \"x\""],
            ),
            (
                "\"file_name\": \"b.jpg\", ",
                "",
                ["image 1 of the list", "file_name"],
            ),
            (
                "\"images\":",
                "\"pictures\":",
                ["no list `images`", "results"],
            ),
            (
                "\"images\": [",
                "\"images\": [5, ",
                ["COCO for object detection", "[5`"],
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let error = open_text(&text, CocoLabels::Id).expect_err(to).to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(
                !error.contains("column") && !error.contains("expected"),
                "{error}"
            );
        }
    }

    #[test]
    fn keypoints_are_lists_of_each_object_or_invisible() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keypoints.json");
        std::fs::write(folder.path().join("b.jpg"), "b").expect("writes");
        let points = GOOD.replace(
            "\"iscrowd\": 1",
            "\"iscrowd\": 0, \"keypoints\": [1, 2, 2, 3.5, 4, 1]",
        );
        let opened = |text: &str, count| {
            std::fs::write(&file, text).expect("writes");
            open(
                folder.path(),
                &file,
                CocoLabels::Id,
                Some(count),
                false,
                true,
            )
        };

        let source = opened(&points, 2).expect("a good file");
        let record = read_one(&source, 1).expect("a record");
        let expected = [
            0.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 3.5, 4.0, 1.0,
        ];
        assert_eq!(record.fields[5], bytes(&expected.map(f32::to_le_bytes)));
        assert_eq!(source.fields()[5].name, KEYPOINTS);

        for (text, count, part) in [
            (
                points.clone(),
                3,
                "annotation 2 of image 9 has 6 numbers of keypoints",
            ),
            (
                points.replace("3.5", "1e99"),
                2,
                "set keypoints to the number per object",
            ),
            (points.clone(), 0, "must be 1 to 1000"),
            (points.clone(), 1 << 40, "must be 1 to 1000"),
        ] {
            let error = opened(&text, count).expect_err("wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn masks_are_a_json_list_of_each_record_and_invalid_ones_name_the_annotation() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("instances.json");
        for name in ["b.jpg", "sub/a.jpg"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("writes");
            std::fs::write(path, name).expect("writes");
        }
        let opened = |first: &str, second: &str| {
            let text = GOOD.replace("[[1, 2, 3, 4]]", first);
            let text = text.replace(
                "\"iscrowd\": 1",
                &format!("\"iscrowd\": 1, \"segmentation\": {second}"),
            );
            std::fs::write(&file, text).expect("writes");
            open(folder.path(), &file, CocoLabels::Id, None, true, true)
        };
        let (outline, runs) = (
            "[[1, 2, 3, 4.5, 0, 4]]",
            r#"{"counts": [3, 21], "size": [4, 6]}"#,
        );
        let source = opened(outline, runs).expect("a good file");
        let [none, both] = [0, 1].map(|at| read_one(&source, at).expect("a record").fields);
        assert_eq!(none[5], &b"[]"[..]);
        let expected = r#"[[[1.0,2.0,3.0,4.5,0.0,4.0]],{"size":[4,6],"counts":[3,21]}]"#;
        assert_eq!(both[5], expected.as_bytes());
        assert_eq!(source.fields()[5].name, MASKS);
        let flat = opened("[1, 2, 3, 4.5, 0, 4]", runs).expect("one polygon without its brackets");
        assert_eq!(flat.fingerprint(), source.fingerprint());
        let other = opened(outline, r#"{"counts": [4, 20], "size": [4, 6]}"#).expect("good");
        assert_ne!(source.fingerprint(), other.fingerprint());

        let of_two = "annotation 2 of image 9";
        for (first, second, parts) in [
            (
                "[[1, 2, 3, 4]]",
                runs,
                ["annotation 1 of image 9 has 4 numbers", "3 corners"],
            ),
            (
                "[[1, 2, 3, 4, 5, 6, 7]]",
                runs,
                ["annotation 1", "has 7 numbers in polygon 0"],
            ),
            ("[]", runs, ["annotation 1", "has no polygon"]),
            ("null", runs, ["annotation 1", "has no segmentation"]),
            (
                "[[1e9, 2, 3, 4, 5, 6]]",
                runs,
                ["annotation 1", "far outside"],
            ),
            (
                "\"x\"",
                runs,
                [
                    "annotation 1 of image 9 has the segmentation \"x\"",
                    "[[x, y,",
                ],
            ),
            (
                outline,
                r#"{"counts": [3], "size": [4, 6]}"#,
                [of_two, "runs of 3 pixels"],
            ),
            (
                outline,
                r#"{"counts": [3, 22], "size": [4, 6]}"#,
                [of_two, "more than the 24"],
            ),
            (
                outline,
                r#"{"counts": [], "size": [0, 6]}"#,
                [of_two, "6x0 px"],
            ),
            (
                outline,
                r#"{"counts": [0], "size": [4294967295, 9]}"#,
                [of_two, "not possible"],
            ),
            (
                outline,
                r#"{"counts": "P", "size": [4, 6]}"#,
                [of_two, "is truncated"],
            ),
            (
                outline,
                r#"{"counts": "\u007f", "size": [4, 6]}"#,
                [of_two, "no compressed"],
            ),
            (
                outline,
                r#"{"counts": "ooooooooo", "size": [4, 6]}"#,
                [of_two, "no compressed"],
            ),
            (
                outline,
                r#"{"counts": "O", "size": [4, 6]}"#,
                [of_two, "run of -1 pixels"],
            ),
        ] {
            let error = opened(first, second).expect_err("a wrong mask").to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
