//! Images and boxes of a dataset in the format of Pascal VOC.
//!
//! Source: Everingham and Winn, "The PASCAL Visual Object Classes Challenge 2012 Development Kit",
//! section 8. `ImageSets/Main/NAME.txt` lists records, `JPEGImages` has their images and
//! `Annotations` their objects. Pixels are numbered from 1 and belong to the box, so the box of
//! `xmin`, `ymin`, `xmax`, `ymax` is `xmin - 1`, `ymin - 1`, `xmax`, `ymax`.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::boxed::{self, BoxedImages};
use super::listing::Tree;
use crate::store;
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::sample::{DType, Field};

/// Field that is true for boxes of objects that are difficult to recognise.
pub const DIFFICULT: &str = "difficult";

/// Names of the classes of the challenge, in the order of their numbers.
pub const CLASSES: [&str; 20] = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];

#[derive(Deserialize)]
struct VocAnnotation {
    #[serde(default)]
    object: Vec<VocObject>,
}

#[derive(Deserialize)]
struct VocObject {
    name: String,
    #[serde(default)]
    difficult: u8,
    bndbox: VocBox,
}

#[derive(Deserialize)]
struct VocBox {
    xmin: f64,
    ymin: f64,
    xmax: f64,
    ymax: f64,
}

/// Returns the fields of every record.
pub fn fields() -> Vec<Field> {
    boxed::fields(&[(DIFFICULT, DType::Bool)])
}

/// Reads the records of an image set in the folder `root`, such as `VOCdevkit/VOC2012`. Labels are
/// indices into `classes`; without them, into [`CLASSES`].
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read. [`Error::Config`] for an empty image set, and for
/// an invalid annotation; the message names the file and the object.
pub fn open(
    root: &Path,
    image_set: &str,
    classes: Option<&[String]>,
) -> Result<BoxedImages, Error> {
    if store::is_url(root) {
        let problem = format!(
            "{} must be a local folder; copy the dataset",
            root.display()
        );
        return Err(Error::config("source", problem));
    }
    let list = root
        .join("ImageSets")
        .join("Main")
        .join(format!("{image_set}.txt"));
    let text = fs::read_to_string(&list).map_err(|error| Error::open(&list, error))?;
    // Lists of a class have a second column.
    let ids: Vec<&str> = text
        .trim_start_matches('\u{FEFF}')
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if ids.is_empty() {
        let problem = format!("{}: it lists no images", list.display());
        return Err(Error::config("source", problem));
    }
    let names: Vec<String> = ids.iter().map(|id| format!("{id}.jpg")).collect();
    let paths = Tree::named(&root.join("JPEGImages"), &names)?;
    let classes: Vec<String> = match classes {
        None => CLASSES.map(str::to_owned).into(),
        Some(classes) => classes.to_vec(),
    };
    let mut source = BoxedImages::new(paths, fields(), None, Some(classes.clone()));
    for id in ids {
        let file = root.join("Annotations").join(format!("{id}.xml"));
        let text = fs::read_to_string(&file).map_err(|error| Error::open(&file, error))?;
        let wrong =
            |problem: String| Error::config("source", format!("{}: {problem}", file.display()));
        let annotation: VocAnnotation =
            quick_xml::de::from_str(text.trim_start_matches('\u{FEFF}')).map_err(|error| {
                let text = error.to_string();
                wrong(format!(
                    "it is no annotation of Pascal VOC ({}); correct it, or download it again",
                    printable(&text)
                ))
            })?;
        for (number, object) in annotation.object.iter().enumerate() {
            let (label, corners) = checked(object, &classes)
                .map_err(|problem| wrong(format!("object {} {problem}", number + 1)))?;
            let label = label as i64;
            let difficult = u8::from(object.difficult != 0);
            source.push(corners, &[&label.to_le_bytes(), &[difficult]]);
        }
        source.end_record();
    }
    source.finished()
}

/// Returns class and corners of a valid object.
fn checked(object: &VocObject, classes: &[String]) -> Result<(usize, [f64; 4]), String> {
    let name = object.name.trim();
    let Some(label) = classes.iter().position(|class| class == name) else {
        return Err(format!(
            "has the class {}, which is not among the classes; set classes= to the names of yours",
            printable(name)
        ));
    };
    let VocBox {
        xmin,
        ymin,
        xmax,
        ymax,
    } = object.bndbox;
    let corners = [xmin - 1.0, ymin - 1.0, xmax, ymax];
    let [left, top, right, bottom] = corners;
    let is_valid =
        corners.iter().all(|x| (*x as f32).is_finite()) && left <= right && top <= bottom;
    match is_valid {
        true => Ok((label, corners)),
        false => Err(format!(
            "has the box {:?}, which is not xmin, ymin, xmax, ymax; correct it",
            [xmin, ymin, xmax, ymax]
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, read_one};

    const GOOD: &str = "<annotation><filename>a.jpg</filename><size><width>9</width></size>\
        <object><name>dog</name><difficult>1</difficult><part><name>head</name>\
        <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>\
        <bndbox><xmax>7</xmax><xmin>2</xmin><ymin>3</ymin><ymax>5.5</ymax></bndbox></object>\
        <object><name>person</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax>\
        <ymax>8</ymax></bndbox></object></annotation>";

    fn opened(
        annotation: &str,
        list: &str,
        classes: Option<&[String]>,
    ) -> Result<BoxedImages, Error> {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writes");
            fs::write(path, text).expect("writes");
        };
        write("ImageSets/Main/train.txt", list);
        write("Annotations/a.xml", annotation);
        write("Annotations/b.xml", "<annotation></annotation>");
        write("JPEGImages/a.jpg", "pixels");
        let source = open(root.path(), "train", classes)?;
        // Files are read while the folder exists.
        let record = read_one(&source, source.len() - 1).expect("a record");
        assert_eq!(&record.fields[0][..], b"pixels");
        let numbers = record.fields[1].chunks_exact(4);
        let boxes: Vec<f32> = numbers
            .map(|x| f32::from_le_bytes(x.try_into().expect("four bytes")))
            .collect();
        assert_eq!(boxes, [1.0, 2.0, 7.0, 5.5, 0.0, 0.0, 9.0, 8.0]);
        assert_eq!(&record.fields[3][..], [1, 0]);
        let labels = record.fields[2].chunks_exact(8);
        let labels: Vec<i64> = labels
            .map(|x| i64::from_le_bytes(x.try_into().expect("eight bytes")))
            .collect();
        let found = labels
            .iter()
            .map(|&label| source.classes().expect("names")[label as usize].as_str());
        assert_eq!(found.collect::<Vec<_>>(), ["dog", "person"]);
        Ok(source)
    }

    #[test]
    fn records_are_the_lines_of_the_image_set_with_their_objects() {
        let source = opened(GOOD, "b  1\na -1\n", None).expect("good files");

        assert_eq!(source.len(), 2);
        assert_eq!(source.classes().map(<[String]>::len), Some(20));
        assert_eq!(source.name(1).as_deref(), Some("a.jpg"));
        let own = ["person", "dog"].map(str::to_owned);
        let other = opened(GOOD, "b\na\n", Some(&own)).expect("good files");
        assert_ne!(source.fingerprint(), other.fingerprint());
    }

    #[test]
    fn wrong_annotations_raise_the_file_the_object_and_the_fix() {
        for (text, parts) in [
            (
                GOOD[..GOOD.len() - 40].to_owned(),
                ["a.xml", "download it again"],
            ),
            (GOOD.replace("<xmin>2</xmin>", ""), ["a.xml", "xmin"]),
            (
                GOOD.replace("<xmin>2</xmin>", "<xmin>two</xmin>"),
                ["a.xml", "correct it"],
            ),
            (
                GOOD.replace("<xmin>2</xmin>", "<xmin>9</xmin>"),
                ["a.xml: object 1", "correct it"],
            ),
            (
                GOOD.replace(">person<", ">lion<"),
                ["object 2 has the class lion", "set classes="],
            ),
            (GOOD.replace("5.5", "1e300"), ["object 1", "is not xmin"]),
        ] {
            let error = opened(&text, "a\n", None)
                .expect_err("a wrong file")
                .to_string();

            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        let empty = opened(GOOD, "\n", None).expect_err("no images").to_string();
        assert!(empty.contains("train.txt: it lists no images"), "{empty}");
        let outside = opened(GOOD, "../a\n", None)
            .expect_err("outside")
            .to_string();
        assert!(outside.contains("outside the folder"), "{outside}");
    }
}
