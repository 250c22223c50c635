//! Images of a folder, with the shapes of LabelMe files.
//!
//! Source: the JSON files of LabelMe 5, <https://github.com/wkentaro/labelme>. The shapes of `a/b.jpg`
//! are in `a/b.json` of the folder of labels, in pixels. A missing file means no shapes. Shapes of one
//! label and `group_id` are one object, as in LabelMe's own conversion to COCO. X-AnyLabeling writes
//! the same files, with rectangles of four points.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::boxed::{self, BoxedImages};
use super::coco::MASKS;
use super::{json, labelled};
use infeed_codec::instances::CocoMask;
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::sample::{Field, FieldKind, Size};

/// Values are JSON text: see [`json`].
#[derive(Deserialize)]
struct LabelMeFile<'a> {
    #[serde(borrow)]
    shapes: Option<Vec<LabelMeShape<'a>>>,
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

/// Returns the fields of every record.
pub fn fields(masks: bool) -> Vec<Field> {
    let mut fields = boxed::fields(&[]);
    fields.extend(masks.then(|| Field {
        name: MASKS.to_owned(),
        kind: FieldKind::Text,
    }));
    fields
}

/// Lists a folder of images or its URL, and reads the shapes of each from a folder of a disk. Without
/// `labels`, files are next to their images. Labels are indices into `classes`; without them, into the
/// sorted names of all shapes. With `masks`, also reads the outline of each shape.
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
) -> Result<BoxedImages, Error> {
    let labels = labels.unwrap_or(images);
    let (paths, files) = labelled::list(images, labels, "json")?;
    let files = files.iter().map(|file| read(file, masks));
    let files = files.collect::<Result<Vec<_>, Error>>()?;
    let classes: Vec<String> = match classes {
        Some(classes) => classes.to_vec(),
        None => {
            let objects = files.iter().flat_map(|file| &file.objects);
            let names: BTreeSet<&str> = objects.map(|object| object.class.as_str()).collect();
            names.into_iter().map(str::to_owned).collect()
        }
    };
    if files.iter().all(|file| file.objects.is_empty()) {
        let problem = format!(
            "no image of {} has a shape in {}; set labels= to the folder of the JSON files",
            images.display(),
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    let sizes = files.iter().map(|file| file.size).collect();
    let source = BoxedImages::new(paths, fields(masks), None, Some(classes.clone()));
    let mut source = source.with_sizes(sizes);
    for file in files {
        for object in file.objects {
            let Some(label) = classes.iter().position(|class| *class == object.class) else {
                let problem = format!(
                    "{} has the class {}, which is not among the classes; set classes= to the names \
                     of yours",
                    object.place,
                    printable(&object.class)
                );
                return Err(Error::config("source", problem));
            };
            source.push(object.corners, &[&(label as i64).to_le_bytes()]);
            source.push_text(&object.mask);
        }
        source.end_record();
    }
    source.finished()
}

/// Objects of an image.
struct LabelledImage {
    /// Stated size, 0x0 if there is none.
    size: Size,
    objects: Vec<LabelledObject>,
}

/// A checked shape, or the shapes of a group with one label.
struct LabelledObject {
    /// File and number of the first shape, for messages.
    place: String,
    class: String,
    /// Left, top, right, bottom in pixels.
    corners: [f64; 4],
    /// The mask as JSON text; empty without masks.
    mask: String,
}

/// Reads the objects of an image; none without a file.
fn read(path: &Path, masks: bool) -> Result<LabelledImage, Error> {
    let nothing = LabelledImage {
        size: Size {
            height: 0,
            width: 0,
        },
        objects: Vec::new(),
    };
    let Some(text) = labelled::read(path)? else {
        return Ok(nothing);
    };
    let text = labelled::without_mark(&text);
    let wrong = |problem: String| Error::config("source", format!("{}: {problem}", path.display()));
    let file: LabelMeFile<'_> = serde_json::from_slice(text).map_err(|error| {
        let expected = "a file of LabelMe with a list of shapes";
        wrong(json::problem(&error, text, expected))
    })?;
    let Some(shapes) = &file.shapes else {
        let problem = "it has no list `shapes`, which files of LabelMe have; save it again";
        return Err(wrong(problem.to_owned()));
    };
    let mut objects: Vec<(LabelledObject, Vec<Vec<f64>>)> = Vec::with_capacity(shapes.len());
    // Positions of the objects of groups.
    let mut groups: HashMap<(String, &str), usize> = HashMap::new();
    for (number, shape) in shapes.iter().enumerate() {
        let wrong = |problem: String| {
            wrong(format!(
                "shape {} {problem}; correct it, or remove it",
                number + 1
            ))
        };
        let class = shape.label.and_then(json::parsed::<String>);
        let class = class.ok_or_else(|| wrong("has no label that is a text".to_owned()))?;
        let (corners, outline) = outline(shape).map_err(wrong)?;
        if let Some(group) = shape.group_id {
            let own = objects.len();
            let at = *groups.entry((class.clone(), group.get())).or_insert(own);
            if let Some((object, outlines)) = objects.get_mut(at) {
                object.corners = enclosing(&[object.corners, corners]);
                outlines.push(outline);
                continue;
            }
        }
        let place = format!("{}: shape {}", path.display(), number + 1);
        let object = LabelledObject {
            place,
            class,
            corners,
            mask: String::new(),
        };
        objects.push((object, vec![outline]));
    }
    let mut found = Vec::with_capacity(objects.len());
    for (mut object, outlines) in objects {
        let wrong = |problem: String| {
            let place = &object.place;
            Error::config(
                "source",
                format!("{place} {problem}; correct it, or remove it"),
            )
        };
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

/// Returns the box around boxes.
fn enclosing(boxes: &[[f64; 4]]) -> [f64; 4] {
    let side = |of: usize| boxes.iter().map(move |corners| corners[of]);
    let least = |of| side(of).fold(f64::INFINITY, f64::min);
    let most = |of| side(of).fold(f64::NEG_INFINITY, f64::max);
    [least(0), least(1), most(2), most(3)]
}

/// Returns the box of a shape, and x and y of the corners of its outline.
fn outline(shape: &LabelMeShape<'_>) -> Result<([f64; 4], Vec<f64>), String> {
    let points = shape.points.and_then(json::parsed::<Vec<[f64; 2]>>);
    let Some(points) = points else {
        let shown = shape.points.map_or("absent".to_owned(), json::shown);
        return Err(format!("has no list of points [x, y]; `points` is {shown}"));
    };
    let kind = match shape.shape_type {
        None => Some("polygon".to_owned()),
        Some(kind) => json::parsed::<String>(kind),
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
            let other = printable(other);
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

    fn opened(text: &str, classes: Option<&[String]>, masks: bool) -> Result<BoxedImages, Error> {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in [("a.jpg", "a"), ("b.jpg", "b"), ("b.json", text)] {
            fs::write(root.path().join(name), text).expect("writes");
        }
        let source = open(root.path(), None, classes, masks)?;
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
        let source = opened(GOOD, None, true).expect("a good file");
        assert_eq!(source.fields().len(), 4);
        assert_eq!(
            source.classes(),
            Some(&["cat", "dog"].map(str::to_owned)[..])
        );
        let own = ["dog", "cat"].map(str::to_owned);
        let other = opened(GOOD, Some(&own), false).expect("a good file");
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
            opened(&GOOD.replace(dog, &other), None, false).expect("the same boxes");
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

        let source = open(root.path(), None, None, true).expect("a good file");
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
            let error = opened(&text, classes, true)
                .expect_err("a wrong file")
                .to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
