//! Images of a folder or bucket, with the boxes of a COCO annotation file.
//!
//! Source: "Data format" of <https://cocodataset.org>, object detection. A record is an entry of
//! `images`, in the order of ids. Records without annotations have empty lists. Masks stay outlines or
//! run lengths, as in the file, until a sample needs their pixels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use infeed_raw::map::FileMap;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use super::boxed::{self, BoxedImages};
use super::folder::content;
use super::labelled::without_mark;
use super::listing::{Paths, Tree};
use crate::store;
use infeed_codec::instances::{CocoMask, CocoMaskError};
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::sample::{DType, Field, FieldKind};

/// Fields with one value per box, next to the boxes (left, top, right, bottom in pixels).
pub const COLUMNS: [&str; 3] = [boxed::LABELS, "area", "iscrowd"];

/// Field of the keypoints: x, y and visibility of each, in pixels.
pub const KEYPOINTS: &str = "keypoints";

/// Field of the masks: a JSON list with the segmentation of each box.
pub const MASKS: &str = "masks";

/// Most keypoints of an object. COCO has 17, its whole bodies have 133.
const MAX_KEYPOINTS: usize = 1000;

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

#[derive(Deserialize)]
struct CocoFile<M> {
    images: Vec<ImageEntry>,
    annotations: Vec<Annotation<M>>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
pub(super) struct ImageEntry {
    pub(super) id: i64,
    file_name: String,
    pub(super) height: Option<u32>,
    pub(super) width: Option<u32>,
}

/// An annotation, with its mask as an `M`.
#[derive(Deserialize)]
struct Annotation<M> {
    id: i64,
    image_id: i64,
    category_id: i64,
    /// Left, top, width, height in pixels.
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
    /// x, y and visibility of each keypoint.
    keypoints: Option<Vec<f64>>,
    segmentation: Option<M>,
}

/// A mask in an annotation file: read as JSON text, or ignored.
trait MaskEntry: DeserializeOwned {
    /// Whether masks are read.
    const IS_READ: bool;

    /// Returns the JSON text.
    fn text(&self) -> Result<&str, &CocoMaskError>;
}

impl MaskEntry for IgnoredAny {
    const IS_READ: bool = false;

    fn text(&self) -> Result<&str, &CocoMaskError> {
        Ok("")
    }
}

/// A checked mask as JSON text. The error gets the annotation later.
struct MaskText(Result<String, CocoMaskError>);

impl MaskEntry for MaskText {
    const IS_READ: bool = true;

    fn text(&self) -> Result<&str, &CocoMaskError> {
        self.0.as_deref()
    }
}

impl<'de> Deserialize<'de> for MaskText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MaskText, D::Error> {
        let found = CocoMask::deserialize(deserializer)?;
        let text = || serde_json::to_string(&found).map_err(serde::de::Error::custom);
        Ok(MaskText(match found.check() {
            Ok(()) => Ok(text()?),
            Err(error) => Err(error),
        }))
    }
}

#[derive(Deserialize)]
pub(super) struct Category {
    id: i64,
    name: String,
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
) -> Result<BoxedImages, Error> {
    match masks {
        true => open_as::<MaskText>(images, annotations, labels, keypoints),
        false => open_as::<IgnoredAny>(images, annotations, labels, keypoints),
    }
}

fn open_as<M: MaskEntry>(
    images: &Path,
    annotations: &Path,
    labels: CocoLabels,
    keypoints: Option<usize>,
) -> Result<BoxedImages, Error> {
    if keypoints.is_some_and(|count| !(1..=MAX_KEYPOINTS).contains(&count)) {
        let problem = format!("keypoints must be 1 to {MAX_KEYPOINTS}, the number per object");
        return Err(Error::config("source", problem));
    }
    let text = annotation_text(annotations)?;
    let wrong =
        |problem: String| Error::config("source", format!("{}: {problem}", annotations.display()));
    let file: CocoFile<M> = serde_json::from_slice(&text).map_err(|error| wrong(json(&error)))?;
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
    let count = image_ids.len();
    let fields = fields(keypoints.is_some(), M::IS_READ);
    let mut source = BoxedImages::new(paths, fields, Some(image_ids), classes);
    let mut rest = found.into_iter().peekable();
    for record in 0..count {
        while let Some((_, label, annotation)) = rest.next_if(|(of, ..)| *of == record) {
            let [left, top, width, height] = annotation.bbox;
            let area = annotation.area.unwrap_or(width * height) as f32;
            let iscrowd = u8::from(annotation.iscrowd != 0);
            let points = match keypoints {
                Some(count) => points(&annotation, count).map_err(wrong)?,
                None => Vec::new(),
            };
            source.push(
                [left, top, left + width, top + height],
                &[
                    &label.to_le_bytes(),
                    &area.to_le_bytes(),
                    &[iscrowd],
                    &points,
                ],
            );
            if M::IS_READ {
                source.push_text(mask(&annotation).map_err(wrong)?);
            }
        }
        source.end_record();
    }
    source.finished()
}

/// Returns the content of an annotation file, without a byte order mark.
pub(super) fn annotation_text(path: &Path) -> Result<Bytes, Error> {
    let text = if store::is_url(path) {
        content(path)?
    } else {
        let map = FileMap::open(path).map_err(|error| Error::open(path, error))?;
        Bytes::from_owner(map)
    };
    let begin = text.len() - without_mark(&text).len();
    Ok(text.slice(begin..))
}

/// Returns the mask of an object as JSON text.
fn mask<M: MaskEntry>(annotation: &Annotation<M>) -> Result<&str, String> {
    let Annotation { id, image_id, .. } = annotation;
    let Some(mask) = &annotation.segmentation else {
        return Err(format!(
            "annotation {id} of image {image_id} has no segmentation; add it, or open the source \
             without masks"
        ));
    };
    mask.text()
        .map_err(|error| format!("the segmentation of annotation {id} of image {image_id} {error}"))
}

/// Returns the bytes of the keypoints of an object: zeros if it has none.
fn points<M>(annotation: &Annotation<M>, count: usize) -> Result<Vec<u8>, String> {
    let Some(points) = &annotation.keypoints else {
        return Ok(vec![0; 12 * count]);
    };
    let Annotation { id, image_id, .. } = annotation;
    let is_valid = |x: &f64| (*x as f32).is_finite();
    if points.len() != 3 * count || !points.iter().all(is_valid) {
        let found = points.len();
        return Err(format!(
            "annotation {id} of image {image_id} has {found} numbers of keypoints, which are not x, y \
             and visibility of {count}; set keypoints to the number per object, or correct it"
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
    let mut fields = boxed::fields(&more[..count]);
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

/// Describes an error of the JSON parser with a fix.
pub(super) fn json(error: &serde_json::Error) -> String {
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

pub(super) enum ListError {
    Problem(String),
    Other(Error),
}

/// Returns paths and ids of the images, in the order of ids.
pub(super) fn list(
    root: &Path,
    mut images: Vec<ImageEntry>,
) -> Result<(Paths, Vec<i64>), ListError> {
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
#[allow(clippy::type_complexity, reason = "used twice")]
pub(super) fn categories(
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
fn checked<M>(
    annotation: Annotation<M>,
    records: &HashMap<i64, usize>,
    numbers: &BTreeMap<i64, i64>,
    known: &mut HashSet<i64>,
) -> Result<(usize, i64, Annotation<M>), String> {
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
    let area = annotation.area.unwrap_or(width * height);
    if !(area as f32).is_finite() {
        return wrong(format!(
            "of image {image_id} has an area that is too large; correct it, or remove the annotation"
        ));
    }
    Ok((record, label, annotation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, read_one};

    const GOOD: &str = r#"{"info": {"year": 2026}, "images": [
        {"id": 9, "file_name": "b.jpg", "width": 6, "height": 4},
        {"id": 3, "file_name": "sub/a.jpg", "width": 6, "height": 4}],
        "annotations": [
        {"id": 1, "image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 1.5], "area": 4.0,
         "iscrowd": 0, "segmentation": [[1, 2, 3, 4]]},
        {"id": 2, "image_id": 9, "category_id": 2, "bbox": [0, 0, 6, 4], "iscrowd": 1}],
        "categories": [{"id": 7, "name": "dog"}, {"id": 2, "name": "cat"}]}"#;

    /// Opens the file and returns the source, and the bytes of the fields of its two records.
    fn opened(text: &str, labels: CocoLabels) -> Result<(BoxedImages, [Vec<Bytes>; 2]), Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("instances.json");
        std::fs::write(&file, text).expect("writes");
        std::fs::create_dir(folder.path().join("sub")).expect("writes");
        for name in ["b.jpg", "sub/a.jpg"] {
            std::fs::write(folder.path().join(name), name).expect("writes");
        }
        let source = open(folder.path(), &file, labels, None, false)?;
        // Files are read while the folder exists.
        let records = [0, 1].map(|n| read_one(&source, n).expect("a record").fields);
        Ok((source, records))
    }

    fn bytes<const N: usize>(values: &[[u8; N]]) -> &[u8] {
        values.as_flattened()
    }

    #[test]
    fn records_are_images_in_the_order_of_ids_with_their_boxes() {
        let (source, [first, second]) = opened(GOOD, CocoLabels::Id).expect("a good file");

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
        let (indexed, [_, second]) = opened(&marked, CocoLabels::Index).expect("a good file");
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
                GOOD.replace("4.0", "1e300"),
                ["annotation 1 of image 9", "an area that is too large"],
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
            open(folder.path(), &file, CocoLabels::Id, Some(count), false)
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
            open(folder.path(), &file, CocoLabels::Id, None, true)
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
                ["expected a list of polygons, or run lengths", "line 6"],
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
