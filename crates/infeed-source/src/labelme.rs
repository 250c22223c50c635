//! Images of a folder, with the shapes of LabelMe files.
//!
//! Source: the JSON files of LabelMe 5, <https://github.com/wkentaro/labelme>. The shapes of `a/b.jpg`
//! are in `a/b.json` of the folder of labels, in pixels. A missing file means no shapes. Shapes of one
//! label and `group_id` are one object, as in LabelMe's own conversion to COCO. X-AnyLabeling writes
//! the same files, with rectangles of four points.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::annotations::{AnnotationRoom, LabelFile};
use super::boxed_images::{self, BoxedImages};
use super::coco::MASKS;
use super::{json, labelled_images};
use infeed_codec::instances::CocoMask;
use infeed_core::error::Error;
use infeed_core::printable::excerpt;
use infeed_core::sample::{Field, FieldKind, Size};

/// Values are JSON text: see [`json`].
#[derive(Deserialize)]
struct LabelMeFile<'a> {
    /// A list of [`LabelMeShape`].
    #[serde(borrow)]
    shapes: Option<&'a RawValue>,
    #[serde(borrow, rename = "imageHeight")]
    height: Option<&'a RawValue>,
    #[serde(borrow, rename = "imageWidth")]
    width: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LabelMeShape<'a> {
    #[serde(borrow)]
    label: Option<&'a RawValue>,
    /// x and y in pixels.
    #[serde(borrow)]
    points: Option<&'a RawValue>,
    #[serde(borrow)]
    shape_type: Option<&'a RawValue>,
    #[serde(borrow)]
    group_id: Option<&'a RawValue>,
}

/// Bytes of memory for a byte of a file: a point of 6 characters is in up to four lists.
const FILE_FACTOR: u64 = 16;

/// Returns the fields of every record.
pub fn fields(masks: bool) -> Vec<Field> {
    let mut fields = boxed_images::fields(&[]);
    fields.extend(masks.then(|| Field {
        name: MASKS.to_owned(),
        kind: FieldKind::Text,
    }));
    fields
}

/// Lists a folder of images or its URL, and reads the shapes of each from a folder of a disk. Without
/// `labels`, files are next to their images. Labels are indices into `classes`; without them, into the
/// sorted names of all shapes. With `masks`, also reads the outline of each shape. `follow_links` is
/// that of [`FolderOptions`](super::folder::FolderOptions).
///
/// # Errors
///
/// [`Error::Open`] for a folder or file that cannot be read. [`Error::Config`] for a folder without
/// images or shapes, and for an invalid shape; the message names it.
pub fn open(
    images: &Path,
    labels: Option<&Path>,
    classes: Option<&[String]>,
    masks: bool,
    follow_links: bool,
) -> Result<BoxedImages, Error> {
    let labels = labels.unwrap_or(images);
    let (paths, files) = labelled_images::list(images, labels, "json", follow_links)?;
    let room = AnnotationRoom::new();
    // The numbers of the classes, in the order in which they occur.
    let mut numbers: HashMap<String, i64> = HashMap::new();
    let mut source = BoxedImages::new(paths, fields(masks), None, None, room);
    let (mut sizes, mut found) = (Vec::with_capacity(files.len()), false);
    for path in &files {
        let file = match room.label_file((labels, path), FILE_FACTOR, follow_links)? {
            LabelFile::Text(text) => read(path, &text, masks, &room)?,
            LabelFile::Missing => LabelledImage::EMPTY,
            LabelFile::Long(reason) => {
                sizes.push(LabelledImage::EMPTY.size);
                source.end_bad_record(reason);
                found = true;
                continue;
            }
        };
        sizes.push(file.size);
        for object in file.objects {
            let wrong = |problem: String| {
                let name = shape_name(path, object.number);
                Error::config("source", format!("{name} {problem}"))
            };
            let known = classes.is_none_or(|classes| classes.contains(&object.class));
            if !known {
                return Err(wrong(format!(
                    "has the class {}, which is not among the classes; set classes= to the names \
                     of yours",
                    excerpt(&object.class)
                )));
            }
            let next = numbers.len() as i64;
            let label = *numbers.entry(object.class).or_insert(next);
            let pushed = source.push(object.corners, &[&label.to_le_bytes()]);
            let pushed = pushed.and_then(|()| source.push_text(&object.mask));
            pushed.map_err(|problem| {
                let images = images.display();
                Error::config("source", format!("{}: {images} {problem}", path.display()))
            })?;
            found = true;
        }
        source.end_record();
    }
    if !found {
        let problem = format!(
            "no image of {} has a shape in {}; set labels= to the folder of the JSON files",
            images.display(),
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    let classes: Vec<String> = match classes {
        Some(classes) => classes.to_vec(),
        None => {
            let mut names: Vec<String> = numbers.keys().cloned().collect();
            names.sort();
            names
        }
    };
    let mut labels: HashMap<i64, i64> = HashMap::new();
    for (class, label) in classes.iter().zip(0..) {
        if let Some(&number) = numbers.get(class) {
            // Of equal names, the first is the label.
            labels.entry(number).or_insert(label);
        }
    }
    source.relabel(|number| labels.get(&number).copied().unwrap_or(number));
    source.with_sizes(sizes).with_classes(classes).finish()
}

/// Names a shape in messages.
fn shape_name(path: &Path, number: usize) -> String {
    format!("{}: shape {}", path.display(), number + 1)
}

/// Objects of an image.
struct LabelledImage {
    /// Stated size, 0x0 if there is none.
    size: Size,
    objects: Vec<LabelledObject>,
}

impl LabelledImage {
    const EMPTY: LabelledImage = LabelledImage {
        size: Size {
            height: 0,
            width: 0,
        },
        objects: Vec::new(),
    };
}

/// A checked shape, or the shapes of a group with one label.
struct LabelledObject {
    /// Position of the first shape in the file.
    number: usize,
    class: String,
    /// Left, top, right, bottom in pixels.
    corners: [f64; 4],
    /// The mask as JSON text; empty without masks.
    mask: String,
}

/// A shape with its checked values.
struct CheckedShape<'a> {
    class: String,
    /// The JSON value.
    group: Option<&'a str>,
    corners: [f64; 4],
    /// x and y of the corners of its outline.
    outline: Vec<f64>,
}

/// Reads the objects in the text of a file.
fn read(
    path: &Path,
    text: &[u8],
    masks: bool,
    room: &AnnotationRoom,
) -> Result<LabelledImage, Error> {
    let text = labelled_images::without_mark(text);
    let wrong = |problem: String| Error::config("source", format!("{}: {problem}", path.display()));
    let expected = "a file of LabelMe with a list of shapes";
    let file: LabelMeFile<'_> = serde_json::from_slice(text)
        .map_err(|error| wrong(json::problem(&error, text, expected)))?;
    let Some(shapes) = file.shapes else {
        let problem = "it has no list `shapes`, which files of LabelMe have; save it again";
        return Err(wrong(problem.to_owned()));
    };
    let shapes = json::list(shapes, room, expected, |shape: LabelMeShape<'_>, number| {
        let checked = check_shape(&shape);
        checked.map_err(|problem| shape_problem(number, &problem))
    });
    let mut objects: Vec<(LabelledObject, Vec<Vec<f64>>)> = Vec::new();
    // Positions of the objects of groups.
    let mut groups: HashMap<(String, &str), usize> = HashMap::new();
    for (number, shape) in shapes.map_err(wrong)?.into_iter().enumerate() {
        let CheckedShape { class, group, .. } = &shape;
        if let Some(group) = group {
            let own = objects.len();
            let at = *groups.entry((class.clone(), group)).or_insert(own);
            if let Some((object, outlines)) = objects.get_mut(at) {
                object.corners = enclosing(&[object.corners, shape.corners]);
                outlines.push(shape.outline);
                continue;
            }
        }
        let object = LabelledObject {
            number,
            class: shape.class,
            corners: shape.corners,
            mask: String::new(),
        };
        objects.push((object, vec![shape.outline]));
    }
    let mut found = Vec::with_capacity(objects.len());
    for (mut object, outlines) in objects {
        let wrong = |problem: String| wrong(shape_problem(object.number, &problem));
        let mask = CocoMask::Polygons(outlines);
        mask.check().map_err(|error| wrong(error.problem))?;
        if masks {
            let text = serde_json::to_string(&mask);
            object.mask = text.map_err(|error| wrong(error.to_string()))?;
        }
        found.push(object);
    }
    Ok(LabelledImage {
        size: json::size(file.height, file.width),
        objects: found,
    })
}

/// Describes a shape that cannot be used.
fn shape_problem(number: usize, problem: &str) -> String {
    format!("shape {} {problem}; correct it, or remove it", number + 1)
}

/// Returns the values of a valid shape.
fn check_shape<'a>(shape: &LabelMeShape<'a>) -> Result<CheckedShape<'a>, String> {
    let class = shape.label.and_then(json::parse::<String>);
    let class = class.ok_or("has no label that is a text")?;
    let (corners, outline) = outline(shape)?;
    Ok(CheckedShape {
        class,
        group: shape.group_id.map(RawValue::get),
        corners,
        outline,
    })
}

/// Returns the box around boxes.
fn enclosing(boxes: &[[f64; 4]]) -> [f64; 4] {
    let side = |of: usize| boxes.iter().map(move |corners| corners[of]);
    let least = |of| side(of).fold(f64::INFINITY, f64::min);
    let most = |of| side(of).fold(f64::NEG_INFINITY, f64::max);
    [least(0), least(1), most(2), most(3)]
}

/// Returns the box of a shape, and x and y of the corners of its outline.
fn outline(shape: &LabelMeShape<'_>) -> Result<([f64; 4], Vec<f64>), String> {
    let points = shape.points.and_then(json::parse::<Vec<[f64; 2]>>);
    let Some(points) = points else {
        let shown = shape.points.map_or("absent".to_owned(), json::show_value);
        return Err(format!("has no list of points [x, y]; `points` is {shown}"));
    };
    let kind = match shape.shape_type {
        None => Some("polygon".to_owned()),
        Some(kind) => json::parse::<String>(kind),
    };
    let kind = kind.unwrap_or_default();
    let corners: Vec<_> = points.iter().map(|&[x, y]| [x, y, x, y]).collect();
    let corners = enclosing(&corners);
    let [left, top, right, bottom] = corners;
    let outline = match (kind.as_str(), points.len()) {
        // LabelMe writes two opposite corners, X-AnyLabeling all four.
        ("rectangle", 2 | 4) => vec![left, top, right, top, right, bottom, left, bottom],
        ("polygon", 3..) | ("rotation", 4) => points.as_flattened().to_vec(),
        ("rectangle" | "polygon" | "rotation", count) => {
            return Err(format!("is a {kind} of {count} points"));
        }
        (other, _) => {
            let other = excerpt(other);
            return Err(format!(
                "has the type {other}, and only rectangles and polygons have boxes and masks"
            ));
        }
    };
    Ok((corners, outline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, read_one};
    use std::fs;

    const GOOD: &str = r#"{"version": "5.5.0", "flags": {}, "imagePath": "b.jpg", "imageData": null,
        "shapes": [
        {"label": "dog", "points": [[7, 2], [1.5, 6]], "shape_type": "rectangle", "flags": {}},
        {"label": "cat", "points": [[1, 1], [4, 1], [1, 5.5]], "group_id": null}]}"#;

    fn open_text(
        text: &str,
        classes: Option<&[String]>,
        masks: bool,
    ) -> Result<BoxedImages, Error> {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in [("a.jpg", "a"), ("b.jpg", "b"), ("b.json", text)] {
            fs::write(root.path().join(name), text).expect("writes");
        }
        let source = open(root.path(), None, classes, masks, true)?;
        // Files are read while the folder exists.
        let [none, both] = [0, 1].map(|at| read_one(&source, at).expect("a record").fields);
        assert!(none[1].is_empty() && both[0] == b"b"[..]);
        let boxes = both[1].chunks_exact(4);
        let boxes: Vec<f32> = boxes
            .map(|x| f32::from_le_bytes(x.try_into().expect("four bytes")))
            .collect();
        assert_eq!(boxes, [1.5, 2.0, 7.0, 6.0, 1.0, 1.0, 4.0, 5.5]);
        if masks {
            let text = "[[[1.5,2.0,7.0,2.0,7.0,6.0,1.5,6.0]],[[1.0,1.0,4.0,1.0,1.0,5.5]]]";
            assert_eq!((&none[3][..], &both[3][..]), (&b"[]"[..], text.as_bytes()));
        }
        Ok(source)
    }

    #[test]
    fn records_are_images_with_the_boxes_and_outlines_of_their_shapes() {
        let source = open_text(GOOD, None, true).expect("a good file");
        assert_eq!(source.fields().len(), 4);
        assert_eq!(
            source.classes(),
            Some(&["cat", "dog"].map(str::to_owned)[..])
        );
        let own = ["dog", "cat"].map(str::to_owned);
        let other = open_text(GOOD, Some(&own), false).expect("a good file");
        assert_eq!(other.fields().len(), 3);
        assert_ne!(source.fingerprint(), other.fingerprint());
    }

    #[test]
    fn shapes_of_x_anylabeling_are_read() {
        let dog = "[[7, 2], [1.5, 6]], \"shape_type\": \"rectangle\"";
        for (points, kind) in [
            ("[[1.5, 2], [7, 2], [7, 6], [1.5, 6]]", "rectangle"),
            ("[[7, 2], [7, 6], [1.5, 6], [1.5, 2]]", "rotation"),
        ] {
            let other = format!("{points}, \"shape_type\": \"{kind}\", \"group_id\": 4");
            assert!(GOOD.contains(dog), "{dog}");
            open_text(&GOOD.replace(dog, &other), None, false).expect("the same boxes");
        }
    }

    #[test]
    fn shapes_of_one_label_and_group_are_one_object() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("a.jpg"), "a").expect("writes");
        let shape = |label: &str, group: &str, left: u32| {
            format!(
                r#"{{"label": "{label}", "group_id": {group},
                    "points": [[{left}, 0], [{left}, 2], [9, 2]]}}"#
            )
        };
        let shapes = [
            shape("dog", "1", 4),
            shape("cat", "1", 3),
            shape("dog", "1", 2),
            shape("dog", "null", 1),
            shape("dog", "null", 0),
        ];
        let text = format!("{{\"shapes\": [{}]}}", shapes.join(","));
        fs::write(root.path().join("a.json"), text).expect("writes");

        let source = open(root.path(), None, None, true, true).expect("a good file");
        let fields = read_one(&source, 0).expect("a record").fields;

        let boxes = fields[1].chunks_exact(16);
        let lefts: Vec<f32> = boxes
            .map(|bytes| f32::from_le_bytes(bytes[..4].try_into().expect("four bytes")))
            .collect();
        assert_eq!(lefts, [2.0, 3.0, 1.0, 0.0]);
        let masks: Vec<Vec<Vec<f64>>> = serde_json::from_slice(&fields[3]).expect("polygons");
        assert_eq!(masks[0].len(), 2);
        assert_eq!(masks[0][1], [2.0, 0.0, 2.0, 2.0, 9.0, 2.0]);
    }

    #[test]
    fn wrong_shapes_raise_the_file_the_shape_and_the_fix() {
        let dog = ["dog".to_owned()];
        for (from, to, classes, parts) in [
            (
                "[4, 1], ",
                "",
                None,
                ["b.json: shape 2", "is a polygon of 2 points"],
            ),
            (
                "[1.5, 6]",
                "[1.5, 6], [3, 3]",
                None,
                ["shape 1", "rectangle of 3 points"],
            ),
            (
                "\"rectangle\"",
                "\"circle\"",
                None,
                ["shape 1 has the type circle", "remove it"],
            ),
            ("[7, 2]", "[7e9, 2]", None, ["shape 1", "far outside"]),
            (
                "\"points\": [[1",
                "\"dots\": [[1",
                None,
                ["shape 2 has no list of points", "is absent"],
            ),
            (
                "dog",
                "dog",
                Some(&dog[..]),
                ["shape 2 has the class cat", "set classes="],
            ),
            (
                "\"shapes\": [",
                "\"shapes\": [], \"old\": [",
                None,
                ["has a shape in", "labels="],
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let error = open_text(&text, classes, true)
                .expect_err("a wrong file")
                .to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
