//! Images of a folder, with the shapes of LabelMe files.
//!
//! Source: the JSON files of LabelMe 5, <https://github.com/wkentaro/labelme>. The shapes of `a/b.jpg`
//! are in `a/b.json` of the folder of labels, in pixels. A missing file means no shapes.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::boxed::{self, BoxedImages};
use super::coco::MASKS;
use super::labelled;
use infeed_codec::instances::CocoMask;
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::sample::{Field, FieldKind};

#[derive(Deserialize)]
struct LabelMeFile {
    shapes: Vec<LabelMeShape>,
}

#[derive(Deserialize)]
struct LabelMeShape {
    label: String,
    /// x and y in pixels.
    points: Vec<[f64; 2]>,
    #[serde(default = "polygon")]
    shape_type: String,
}

fn polygon() -> String {
    "polygon".to_owned()
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
    let shapes = files.iter().map(|file| read(file));
    let shapes = shapes.collect::<Result<Vec<_>, Error>>()?;
    let classes: Vec<String> = match classes {
        Some(classes) => classes.to_vec(),
        None => {
            let names = shapes.iter().flatten().map(|shape| shape.class.as_str());
            let names: BTreeSet<&str> = names.collect();
            names.into_iter().map(str::to_owned).collect()
        }
    };
    if shapes.iter().all(Vec::is_empty) {
        let problem = format!(
            "no image of {} has a shape in {}; set labels= to the folder of the JSON files",
            images.display(),
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    let mut source = BoxedImages::new(paths, fields(masks), None, Some(classes.clone()));
    for of_image in shapes {
        for shape in of_image {
            let Some(label) = classes.iter().position(|class| *class == shape.class) else {
                let problem = format!(
                    "{} has the class {}, which is not among the classes; set classes= to the names \
                     of yours",
                    shape.place,
                    printable(&shape.class)
                );
                return Err(Error::config("source", problem));
            };
            source.push(shape.corners, &[&(label as i64).to_le_bytes()]);
            source.push_text(&shape.mask);
        }
        source.end_record();
    }
    source.finished()
}

/// A checked shape.
struct LabelledShape {
    /// File and number, for messages.
    place: String,
    class: String,
    /// Left, top, right, bottom in pixels.
    corners: [f64; 4],
    /// The mask as JSON text.
    mask: String,
}

/// Reads the shapes of an image; none without a file.
fn read(path: &Path) -> Result<Vec<LabelledShape>, Error> {
    let Some(text) = labelled::read(path)? else {
        return Ok(Vec::new());
    };
    let wrong = |problem: String| Error::config("source", problem);
    let file: LabelMeFile =
        serde_json::from_slice(labelled::without_mark(&text)).map_err(|error| {
            wrong(format!(
                "{}: it is no file of LabelMe ({error}); correct it, or save it again",
                path.display()
            ))
        })?;
    let mut found = Vec::with_capacity(file.shapes.len());
    for (number, shape) in file.shapes.into_iter().enumerate() {
        let place = format!("{}: shape {}", path.display(), number + 1);
        let (corners, outline) = outline(&shape)
            .map_err(|problem| wrong(format!("{place} {problem}; correct it, or remove it")))?;
        let mask = CocoMask::Polygons(vec![outline]);
        mask.check().map_err(|error| {
            wrong(format!(
                "{place} {}; correct it, or remove it",
                error.problem
            ))
        })?;
        let mask = serde_json::to_string(&mask).map_err(|error| wrong(error.to_string()))?;
        found.push(LabelledShape {
            place,
            class: shape.label,
            corners,
            mask,
        });
    }
    Ok(found)
}

/// Returns the box of a shape, and x and y of the corners of its outline.
fn outline(shape: &LabelMeShape) -> Result<([f64; 4], Vec<f64>), String> {
    let side = |of: usize| {
        let at = || shape.points.iter().map(|point| point[of]);
        [
            at().fold(f64::INFINITY, f64::min),
            at().fold(f64::NEG_INFINITY, f64::max),
        ]
    };
    let ([left, right], [top, bottom]) = (side(0), side(1));
    let outline = match (shape.shape_type.as_str(), shape.points.len()) {
        ("rectangle", 2) => vec![left, top, right, top, right, bottom, left, bottom],
        ("polygon", 3..) => shape.points.as_flattened().to_vec(),
        ("rectangle" | "polygon", count) => {
            let kind = &shape.shape_type;
            return Err(format!("is a {kind} of {count} points"));
        }
        (other, _) => {
            let other = printable(other);
            return Err(format!(
                "has the type {other}, and only rectangles and polygons have boxes and masks"
            ));
        }
    };
    Ok(([left, top, right, bottom], outline))
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
                ["points", "save it again"],
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
