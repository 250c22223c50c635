//! Images and boxes of a dataset in the format of Pascal VOC.
//!
//! Source: Everingham and Winn, "The PASCAL Visual Object Classes Challenge 2012 Development Kit",
//! section 8. `ImageSets/Main/NAME.txt` lists records, `JPEGImages` has their images and
//! `Annotations` their objects. Pixels are numbered from 1 and belong to the box, so the box of
//! `xmin`, `ymin`, `xmax`, `ymax` is `xmin - 1`, `ymin - 1`, `xmax`, `ymax`.

use std::io;
use std::path::Path;

use quick_xml::DeError;
use serde::Deserialize;

use super::annotations::{AnnotationRoom, LabelFile, LongLabelFile};
use super::boxed_images::{self, BoxedImages};
use super::extensions::IMAGE_EXTENSIONS;
use super::labelled_images;
use super::paths::{Paths, check_inside};
use crate::store;
use crate::store::links::check_no_link;
use infeed_core::error::Error;
use infeed_core::printable::excerpt;
use infeed_core::sample::{DType, Field, Size};

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

/// Bytes of memory for a byte of a list: a name of one character.
const LIST_FACTOR: u64 = 32;

/// Bytes of memory for a byte of an annotation: an empty object has 9 characters.
const FILE_FACTOR: u64 = 40;

/// Bytes of memory for a record, in lists that grow: the name of its image, its size and the list of
/// its objects.
const RECORD_BYTES: usize =
    2 * (size_of::<String>() + size_of::<Size>() + size_of::<RecordObjects>());

/// Objects of a record, or the reason why it is bad.
type RecordObjects = Result<Vec<CheckedObject>, LongLabelFile>;

/// The parser ignores the name of an outermost element that is not one of several.
#[derive(Deserialize)]
enum VocFile {
    #[serde(rename = "annotation")]
    Annotation(VocAnnotation),
}

/// Values are texts until they are used, so that an error can name the object and show them.
#[derive(Deserialize)]
struct VocAnnotation {
    filename: Option<String>,
    size: Option<VocSize>,
    #[serde(default)]
    object: Vec<VocObject>,
}

#[derive(Deserialize)]
struct VocSize {
    width: Option<String>,
    height: Option<String>,
}

#[derive(Deserialize)]
struct VocObject {
    name: Option<String>,
    difficult: Option<String>,
    bndbox: Option<VocBox>,
}

#[derive(Deserialize)]
struct VocBox {
    xmin: Option<String>,
    ymin: Option<String>,
    xmax: Option<String>,
    ymax: Option<String>,
}

/// Values of a checked object.
struct CheckedObject {
    label: i64,
    /// Left, top, right, bottom in pixels from 0.
    corners: [f64; 4],
    is_difficult: bool,
}

/// Returns the fields of every record.
pub fn fields() -> Vec<Field> {
    boxed_images::fields(&[(DIFFICULT, DType::Bool)])
}

/// Reads the records of an image set in the folder `root`, such as `VOCdevkit/VOC2012`. Labels are
/// indices into `classes`; without them, into [`CLASSES`]. `follow_links` is that of
/// [`FolderOptions`](super::folder::FolderOptions).
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read. [`Error::Config`] for an empty image set, and for
/// an invalid annotation; the message names the file and the object.
pub fn open(
    root: &Path,
    image_set: &str,
    classes: Option<&[String]>,
    follow_links: bool,
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
    if !follow_links {
        check_no_link(root, &list).map_err(|error| Error::open(&list, error))?;
    }
    let room = AnnotationRoom::new();
    let text = room.read(&list, LIST_FACTOR)?;
    let text = labelled_images::text(&list, &text)?;
    // Lists of a class have a second column.
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if ids.is_empty() {
        let problem = format!("{}: it lists no images", list.display());
        return Err(Error::config("source", problem));
    }
    let classes: Vec<String> = match classes {
        None => CLASSES.map(str::to_owned).into(),
        Some(classes) => classes.to_vec(),
    };
    let folder = root.join("JPEGImages");
    check_inside(&folder, ids.iter().copied())?;
    let (mut names, mut sizes) = (Vec::new(), Vec::new());
    let mut objects: Vec<RecordObjects> = Vec::new();
    let mut held = 0;
    let too_large = |problem| {
        let root = root.display();
        Error::config("source", format!("{}: {root} {problem}", list.display()))
    };
    for id in ids {
        held += (RECORD_BYTES + id.len()) as u64;
        room.check(held).map_err(too_large)?;
        let file = root.join("Annotations").join(format!("{id}.xml"));
        let text = match room.label_file((root, &file), FILE_FACTOR, follow_links)? {
            LabelFile::Text(text) => text,
            LabelFile::Missing => {
                let problem = io::Error::from(io::ErrorKind::NotFound);
                return Err(Error::open(file, problem));
            }
            LabelFile::Long(reason) => {
                objects.push(Err(reason));
                sizes.push(stated_size(None));
                names.push(image_name(&folder, id, None));
                continue;
            }
        };
        let text = labelled_images::text(&file, &text)?;
        let wrong =
            |problem: String| Error::config("source", format!("{}: {problem}", file.display()));
        let VocFile::Annotation(annotation) = quick_xml::de::from_str(&text).map_err(|error| {
            let reason = match error {
                DeError::InvalidXml(error) => format!(": {}", excerpt(&error.to_string())),
                // Other errors are about Rust types.
                _ => String::new(),
            };
            wrong(format!(
                "it is no annotation of Pascal VOC{reason}; correct it, or download it again"
            ))
        })?;
        let checked = annotation.object.iter().enumerate().map(|(at, object)| {
            let object = check_object(object, &classes);
            object.map_err(|problem| wrong(format!("object {} {problem}", at + 1)))
        });
        let checked = checked.collect::<Result<Vec<_>, Error>>()?;
        held += size_of_val(&checked[..]) as u64;
        room.check(held).map_err(too_large)?;
        objects.push(Ok(checked));
        sizes.push(stated_size(annotation.size.as_ref()));
        names.push(image_name(&folder, id, annotation.filename.as_deref()));
    }
    let paths = Paths::of_names(&folder, &names, follow_links)?;
    let source = BoxedImages::new(paths, fields(), None, Some(classes), room);
    let mut source = source.with_sizes(sizes);
    for of_image in objects {
        let of_image = match of_image {
            Ok(of_image) => of_image,
            Err(reason) => {
                source.end_bad_record(reason);
                continue;
            }
        };
        for object in of_image {
            let difficult = u8::from(object.is_difficult);
            let pushed = source.push(object.corners, &[&object.label.to_le_bytes(), &[difficult]]);
            pushed.map_err(|problem| {
                Error::config("source", format!("{} {problem}", root.display()))
            })?;
        }
        source.end_record();
    }
    source.finish()
}

/// Returns the name of the image of a record: a JPEG as in the challenge; without that file, an image
/// with the extension of `filename`, or with any other.
fn image_name(folder: &Path, id: &str, filename: Option<&str>) -> String {
    let jpeg = format!("{id}.jpg");
    let stated = filename.and_then(|name| name.trim().rsplit_once('.'));
    let stated = stated.map(|(_, extension)| extension.to_owned());
    let stated = stated.filter(|name| IMAGE_EXTENSIONS.contains(&&*name.to_ascii_lowercase()));
    let others = IMAGE_EXTENSIONS
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
    let names = stated.into_iter().chain(others);
    let names = names.map(|extension| format!("{id}.{extension}"));
    let mut names = std::iter::once(jpeg.clone()).chain(names);
    let found = names.find(|name| folder.join(name).exists());
    found.unwrap_or(jpeg)
}

/// Returns a number of an element. None for an absent element and for other texts.
fn number(text: Option<&String>) -> Option<f64> {
    let number: Option<f64> = text?.trim().parse().ok();
    number.filter(|x| (*x as f32).is_finite())
}

/// Returns the stated size of an image, 0x0 if there is none.
fn stated_size(size: Option<&VocSize>) -> Size {
    let side = |text: Option<&String>| {
        let side = number(text).filter(|x| x.fract() == 0.0 && *x >= 0.0 && *x <= 1e9);
        side.map_or(0, |side| side as u32)
    };
    Size {
        height: side(size.and_then(|size| size.height.as_ref())),
        width: side(size.and_then(|size| size.width.as_ref())),
    }
}

/// Returns the values of a valid object.
fn check_object(object: &VocObject, classes: &[String]) -> Result<CheckedObject, String> {
    let Some(name) = object.name.as_deref().map(str::trim) else {
        return Err("has no name; correct it".to_owned());
    };
    let Some(label) = classes.iter().position(|class| class == name) else {
        return Err(format!(
            "has the class {}, which is not among the classes; set classes= to the names of yours",
            excerpt(name)
        ));
    };
    let is_difficult = match object.difficult.as_deref().map(str::trim) {
        None | Some("" | "Unspecified") => false,
        Some(text) => match text.to_ascii_lowercase().parse() {
            Ok(flag) => flag,
            Err(_) => number(object.difficult.as_ref())
                .map(|x| x != 0.0)
                .ok_or_else(|| {
                    format!(
                        "has difficult {}, which is neither 0 nor 1; correct it",
                        excerpt(text)
                    )
                })?,
        },
    };
    let Some(bounds) = &object.bndbox else {
        return Err("has no bndbox; correct it, or remove it".to_owned());
    };
    let sides = [&bounds.xmin, &bounds.ymin, &bounds.xmax, &bounds.ymax];
    let [Some(xmin), Some(ymin), Some(xmax), Some(ymax)] = sides.map(|side| number(side.as_ref()))
    else {
        let sides = sides.map(|side| side.as_deref().unwrap_or("nothing").trim().to_owned());
        return Err(format!(
            "has the box {}, which is not xmin, ymin, xmax, ymax in numbers; correct it",
            excerpt(&sides.join(", "))
        ));
    };
    let corners = [xmin - 1.0, ymin - 1.0, xmax, ymax];
    let [left, top, right, bottom] = corners;
    match left <= right && top <= bottom {
        true => Ok(CheckedObject {
            label: label as i64,
            corners,
            is_difficult,
        }),
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
    use std::fs;

    const GOOD: &str = "<annotation><filename>a.jpg</filename><size><width>9</width></size>\
        <object><name>dog</name><difficult>1</difficult><part><name>head</name>\
        <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>\
        <bndbox><xmax>7</xmax><xmin>2</xmin><ymin>3</ymin><ymax>5.5</ymax></bndbox></object>\
        <object><name>person</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax>\
        <ymax>8</ymax></bndbox></object></annotation>";

    fn open_annotation(
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
        let source = open(root.path(), "train", classes, true)?;
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
        let source = open_annotation(GOOD, "b  1\na -1\n", None).expect("good files");

        assert_eq!(source.len(), 2);
        assert_eq!(source.classes().map(<[String]>::len), Some(20));
        assert_eq!(source.name(1).as_deref(), Some("a.jpg"));
        let own = ["person", "dog"].map(str::to_owned);
        let other = open_annotation(GOOD, "b\na\n", Some(&own)).expect("good files");
        assert_ne!(source.fingerprint(), other.fingerprint());
    }

    #[test]
    fn images_of_other_formats_are_found_by_the_file_name_or_any_extension() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("JPEGImages");
        fs::create_dir(&folder).expect("writes");
        for name in ["a.png", "b.PNG", "b.bmp", "c.jpg", "c.png"] {
            fs::write(folder.join(name), name).expect("writes");
        }
        for (id, filename, expected) in [
            ("a", None, "a.png"),
            ("a", Some("old name.jpg"), "a.png"),
            ("b", Some("b.PNG"), "b.PNG"),
            ("b", Some("notes.bmp"), "b.bmp"),
            ("b", Some("notes.txt"), "b.PNG"),
            ("c", Some("c.png"), "c.jpg"),
            ("gone", Some("gone.png"), "gone.jpg"),
        ] {
            assert_eq!(image_name(&folder, id, filename), expected);
        }
    }

    #[test]
    fn a_stated_size_is_known_if_both_sides_are() {
        let size = |width: &str, height: &str| {
            let (width, height) = (Some(width.to_owned()), Some(height.to_owned()));
            stated_size(Some(&VocSize { width, height }))
        };
        let found = size(" 500 ", "375.0");
        assert_eq!((found.width, found.height), (500, 375));
        for (width, height) in [
            ("0", "0"),
            ("", "5"),
            ("-5", "5"),
            ("1e99", "5"),
            ("x", "5"),
        ] {
            assert_eq!(size(width, height).pixels(), 0, "{width} {height}");
        }
        assert_eq!(stated_size(None).pixels(), 0);
    }

    #[test]
    fn wrong_annotations_raise_the_file_the_object_and_the_fix() {
        for (text, parts) in [
            (
                GOOD[..GOOD.len() - 40].to_owned(),
                ["a.xml", "download it again"],
            ),
            (
                "<svg><object/></svg>".to_owned(),
                ["a.xml", "no annotation of Pascal VOC"],
            ),
            (
                GOOD.replace("<xmin>2</xmin>", ""),
                ["object 1 has the box nothing, 3,", "xmin"],
            ),
            (
                GOOD.replace("<name>dog</name>", ""),
                ["object 1 has no name", "correct it"],
            ),
            (
                GOOD.replace("cult>1<", "cult>perhaps<"),
                ["object 1 has difficult perhaps", "neither 0 nor 1"],
            ),
            (
                GOOD.replace("<xmin>2</xmin>", "<xmin>two</xmin>"),
                ["object 1 has the box two, 3, 7, 5.5", "correct it"],
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
            let error = open_annotation(&text, "a\n", None)
                .expect_err("a wrong file")
                .to_string();

            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        let empty = open_annotation(GOOD, "\n", None)
            .expect_err("no images")
            .to_string();
        assert!(empty.contains("train.txt: it lists no images"), "{empty}");
        let outside = open_annotation(GOOD, "../a\n", None)
            .expect_err("outside")
            .to_string();
        assert!(outside.contains("outside the folder"), "{outside}");
    }
}
