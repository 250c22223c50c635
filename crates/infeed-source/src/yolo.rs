//! Images of a folder, with the boxes of YOLO text files.
//!
//! Source: "Ultralytics YOLO format" of <https://docs.ultralytics.com/datasets/detect>. The labels of
//! `a/b.jpg` are in `a/b.txt` of the folder of labels, one line per box: class, centre, width and
//! height, in shares of the image's sides. A missing file means no boxes. A line of more numbers is
//! the outline of an object, whose enclosing box counts. The outline of a rotated box has four corners.

use std::path::{Component, Path, PathBuf, absolute};

use super::annotations::{AnnotationRoom, LabelFile};
use super::boxed_images::{self, BoxedImages};
use super::yolo_poses::PoseEvidence;
use super::{class_names, labelled_images};
use crate::store;
use infeed_core::error::Error;
use infeed_core::printable::excerpt;
use infeed_core::sample::{DType, Field};

/// Field of the corners of each box: x and y of four points, in shares of the image's sides.
pub const CORNERS: &str = "corners";

/// Returns the fields of every record.
pub fn fields(corners: bool) -> Vec<Field> {
    let more = [(CORNERS, DType::Float32)];
    boxed_images::fields(if corners { &more } else { &[] })
}

/// Lists a folder of images or its URL, and reads the labels of each from a folder of a disk.
/// Without `labels`, that is the path of the images with the last folder `images` replaced by
/// `labels`. `classes` is a text file with the name of a class in each line, or a `data.yaml` with
/// the names. With `corners`, also reads the corners of rotated boxes. `follow_links` is that of
/// [`FolderOptions`](super::folder::FolderOptions).
///
/// # Errors
///
/// [`Error::Open`] for a folder or file that cannot be read. [`Error::Config`] for a folder without
/// images or labels, for an invalid line of a file, and for labels for poses; the message names the
/// line.
pub fn open(
    images: &Path,
    labels: Option<&Path>,
    classes: Option<&Path>,
    corners: bool,
    follow_links: bool,
) -> Result<BoxedImages, Error> {
    let labels = match labels {
        Some(labels) => labels.to_owned(),
        None => beside(images).ok_or_else(|| {
            let problem = format!(
                "{} has no folder `images` that `labels` could be next to; set labels=",
                images.display()
            );
            Error::config("source", problem)
        })?,
    };
    let names = classes.map(read_names).transpose()?;
    let (paths, files) = labelled_images::list(images, &labels, "txt", follow_links)?;
    let count = names.as_ref().map(Vec::len);
    let room = AnnotationRoom::new();
    let mut source = BoxedImages::new(paths, fields(corners), None, names, room);
    let mut found = false;
    let mut poses = PoseEvidence::default();
    for path in &files {
        let bytes = match room.label_file((&labels, path), FILE_FACTOR, follow_links)? {
            LabelFile::Text(bytes) => bytes,
            LabelFile::Missing => Vec::new(),
            LabelFile::Long(reason) => {
                source.end_bad_record(reason);
                found = true;
                continue;
            }
        };
        let text = labelled_images::text(path, &bytes)?;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let place = || format!("{}, line {}", path.display(), number + 1);
            let wrong =
                |problem: String| Error::config("source", format!("{}: {problem}", place()));
            let too_many = |problem: String| {
                let images = images.display();
                Error::config("source", format!("{}: {images} {problem}", path.display()))
            };
            if line.len() > LINE_BYTES {
                let problem = format!("it has {} bytes, which are no box; correct it", line.len());
                return Err(wrong(problem));
            }
            let (label, found_box, outline) = parse_line(line, count).map_err(wrong)?;
            let label = (label as i64).to_le_bytes();
            match corners {
                true => {
                    let points = corners_of(found_box, &outline).map_err(wrong)?;
                    let points = points.map(|x| (x as f32).to_le_bytes());
                    let pushed = source.push(found_box, &[&label, points.as_flattened()]);
                    pushed.map_err(too_many)?;
                }
                false => {
                    poses.add(&outline, place);
                    source.push(found_box, &[&label]).map_err(too_many)?;
                }
            }
            found = true;
        }
        source.end_record();
    }
    if !found {
        let problem = format!(
            "no image of {} has a label in {}; set labels= to the folder of the text files",
            images.display(),
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    if let Some(problem) = poses.problem() {
        return Err(Error::config("source", problem));
    }
    source.finish()
}

/// Returns the path with its last folder `images` replaced by `labels`.
fn beside(images: &Path) -> Option<PathBuf> {
    let replaced = |images: &Path| {
        let parts: Vec<_> = images.iter().collect();
        let at = parts.iter().rposition(|part| *part == "images")?;
        let mut labels: PathBuf = parts[..at].iter().collect();
        labels.push("labels");
        labels.extend(&parts[at + 1..]);
        Some(labels)
    };
    let leads_up = images.components().any(|part| part == Component::ParentDir);
    match store::is_url(images) {
        true => replaced(images),
        false if leads_up => replaced(&images.canonicalize().ok()?),
        // The working directory may be the folder, or below it.
        false => replaced(images).or_else(|| replaced(&absolute(images).ok()?)),
    }
}

/// Reads the names of classes.
fn read_names(path: &Path) -> Result<Vec<String>, Error> {
    let names = class_names::in_file(path)?;
    if names.is_empty() || names.iter().any(String::is_empty) {
        let problem = format!(
            "{}: each line must have the name of a class; remove empty lines",
            path.display()
        );
        return Err(Error::config("source", problem));
    }
    Ok(names)
}

/// Returns the four corners of a box, which may be an outline.
fn corners_of([x, y, width, height]: [f64; 4], outline: &[f64]) -> Result<[f64; 8], String> {
    if outline.len() == 4 {
        let (left, right) = (x - width / 2.0, x + width / 2.0);
        let (top, bottom) = (y - height / 2.0, y + height / 2.0);
        return Ok([left, top, right, top, right, bottom, left, bottom]);
    }
    outline.try_into().map_err(|_| {
        format!(
            "the outline has {} points, and a rotated box has 4 corners; correct it, or open the \
             source without corners",
            outline.len() / 2
        )
    })
}

/// Class of a line; centre, width and height of its box; all its numbers.
type YoloLine = (usize, [f64; 4], Vec<f64>);

/// Bytes of memory for a byte of a file: its text, and the values of lines of 10 bytes.
const FILE_FACTOR: u64 = 12;

/// Bytes that a line may have: an outline of 50 000 points.
const LINE_BYTES: usize = 1 << 20;

/// Returns the number of a class, which NumPy writes as `2.0`.
fn class(word: &str) -> Option<u32> {
    let is_class = |x: &f64| x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(x);
    let float = || word.parse().ok().filter(is_class).map(|x| x as u32);
    word.parse().ok().or_else(float)
}

/// Reads a line.
fn parse_line(line: &str, count: Option<usize>) -> Result<YoloLine, String> {
    let mut words = line.split_whitespace();
    let shown = || excerpt(line.trim());
    let Some(label) = class(words.next().unwrap_or_default()) else {
        return Err(format!(
            "`{}` does not begin with the number of a class; write class, centre x, centre y, \
             width, height",
            shown()
        ));
    };
    if let Some(count) = count.filter(|count| label as usize >= *count) {
        return Err(format!(
            "class {label} is not among the {count} names of classes, numbered from 0; add its \
             name, or correct the line"
        ));
    }
    let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
    let numbers = numbers.filter(|all| all.iter().all(|x| (*x as f32).is_finite()));
    let corners = match numbers.as_deref() {
        Some(&[x, y, width, height]) if width >= 0.0 && height >= 0.0 => [x, y, width, height],
        Some(outline) if outline.len() >= 6 && outline.len().is_multiple_of(2) => {
            // Visibilities of keypoints are up to 2.
            if outline.iter().any(|x| !(-0.01..=1.01).contains(x)) {
                return Err(format!(
                    "`{}` is not an outline in shares of the image's sides; divide x by the \
                     image's width, y by its height; labels for poses are not read: of these, keep \
                     the first five values of each line",
                    shown()
                ));
            }
            enclosing(outline)
        }
        // A box, and at least one point with its visibility.
        Some(pose) if pose.len() > 4 && (pose.len() - 4).is_multiple_of(3) => {
            return Err(format!(
                "`{}` has a box and points, and labels for poses are not read; keep the first five \
                 values of each line",
                shown()
            ));
        }
        _ => {
            return Err(format!(
                "`{}` is no box; write class, centre x, centre y, width, height",
                shown()
            ));
        }
    };
    // The same limit as for declared boxes: larger numbers are pixels.
    if corners.iter().any(|x| x.abs() > 4.0) {
        return Err(format!(
            "`{}` is not in shares of the image's sides; divide x and width by the image's width, \
             y and height by its height",
            shown()
        ));
    }
    Ok((label as usize, corners, numbers.unwrap_or_default()))
}

/// Returns centre, width and height of the box around x and y of the points of an outline.
fn enclosing(outline: &[f64]) -> [f64; 4] {
    let side = |first: usize| {
        let at = || outline.iter().skip(first).step_by(2).copied();
        let (low, high) = (at().fold(f64::MAX, f64::min), at().fold(f64::MIN, f64::max));
        [(low + high) / 2.0, high - low]
    };
    let ([x, width], [y, height]) = (side(0), side(1));
    [x, y, width, height]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, read_one};
    use std::fs;

    /// Makes images `b.jpg`, `sub/a.png` and `c.jpg`, and their labels.
    fn open_texts(texts: [Option<&str>; 3], names: Option<&str>) -> Result<Vec<Vec<f32>>, Error> {
        let root = tempfile::tempdir().expect("a folder");
        let (images, labels) = (root.path().join("images"), root.path().join("labels"));
        for folder in [&images, &labels] {
            fs::create_dir_all(folder.join("sub")).expect("writes");
        }
        for (name, text) in ["b.jpg", "sub/a.png", "c.jpg"].iter().zip(texts) {
            fs::write(images.join(name), name).expect("writes");
            if let Some(text) = text {
                fs::write(labels.join(name).with_extension("txt"), text).expect("writes");
            }
        }
        let file = root.path().join("classes.txt");
        let classes = names.map(|names| {
            fs::write(&file, names).expect("writes");
            file.as_path()
        });
        let source = open(&images, None, classes, false, true)?;
        let expected: Option<Vec<String>> =
            names.map(|names| names.lines().map(str::to_owned).collect());
        assert_eq!(source.classes().map(<[String]>::to_vec), expected);
        let mut found = Vec::new();
        for number in 0..source.len() {
            let record = read_one(&source, number).expect("a record");
            let name = source.name(number).expect("a name");
            assert_eq!(record.fields[0], name.as_bytes());
            let labels = record.fields[2].chunks_exact(8);
            let labels = labels.map(|x| i64::from_le_bytes(x.try_into().expect("eight")) as f32);
            let numbers = record.fields[1].chunks_exact(4);
            let numbers = numbers.map(|x| f32::from_le_bytes(x.try_into().expect("four")));
            found.push(labels.chain(numbers).collect());
        }
        Ok(found)
    }

    #[test]
    fn boxes_are_read_from_the_text_file_of_each_image() {
        let texts = [
            Some("\u{FEFF}1 0.5 0.5 0.2 0.4\n\n0 0.25 0.5 0.5 1\n"),
            Some("0 0.1 0.2 0.5 0.2 0.5 0.8 0.1 0.4"),
            None,
        ];

        let found = open_texts(texts, Some("cat\ndog\n")).expect("good files");

        assert_eq!(found.len(), 3);
        assert!(found.contains(&vec![1.0, 0.0, 0.5, 0.5, 0.2, 0.4, 0.25, 0.5, 0.5, 1.0]));
        assert!(found.contains(&vec![0.0, 0.3, 0.5, 0.4, 0.6]), "{found:?}");
        assert!(found.contains(&Vec::new()));
    }

    #[test]
    fn wrong_lines_raise_the_file_the_line_and_the_fix() {
        let good = "0 0.5 0.5 0.2 0.4";
        for (line, part) in [
            ("cat 0.5 0.5 0.2 0.4", "the number of a class"),
            ("0 0.5 0.5 0.2", "is no box; write class"),
            ("0 0.5 0.5 0.2 -0.4", "is no box"),
            ("0 0.5 0.5 0.2 nan", "is no box"),
            ("0 0.5 0.5 0.2 0.4 0.9", "is no box"),
            ("1.5 0.5 0.5 0.2 0.4", "the number of a class"),
            (
                "0 0.5 0.5 0.2 0.4 0.5 0.5 1",
                "labels for poses are not read",
            ),
            ("0 120 80 40 30", "divide x and width"),
            (
                "0 0.5 0.5 0.2 0.4 0.5 0.5 2 0.4 0.4 2",
                "labels for poses are not read",
            ),
            ("2 0.5 0.5 0.2 0.4", "class 2 is not among the 2 names"),
            ("-1 0.5 0.5 0.2 0.4", "the number of a class"),
        ] {
            let text = format!("{good}\n{line}\n");
            let error = open_texts([Some(&text), None, None], Some("cat\ndog"));

            let error = error.expect_err(line).to_string();

            assert!(error.contains("b.txt, line 2: "), "{error}");
            assert!(error.contains(part), "{error}");
        }
        let none = open_texts([None; 3], None)
            .expect_err("no labels")
            .to_string();
        assert!(none.contains("set labels="), "{none}");
        let empty = open_texts([Some(good), None, None], Some("cat\n\ndog"));
        let empty = empty.expect_err("an empty line").to_string();
        assert!(empty.contains("remove empty lines"), "{empty}");
    }

    #[test]
    fn labels_are_next_to_the_last_folder_of_images() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().canonicalize().expect("it exists");
        fs::create_dir_all(folder.join("images/train")).expect("writes");
        let up = folder.join("images/train/../train");
        assert_eq!(beside(&up), Some(folder.join("labels/train")));
        for (images, labels) in [
            ("d/images/train", Some("d/labels/train")),
            ("images/images", Some("images/labels")),
            ("/d/photos", None),
        ] {
            assert_eq!(beside(Path::new(images)), labels.map(PathBuf::from));
        }
    }

    #[test]
    fn numbers_and_line_ends_are_read_as_tools_write_them() {
        let expected = vec![1.0, 0.0, 0.5, 0.5, 0.25, 0.5, 0.25, 0.5, 0.5, 1.0];
        for text in [
            "1 0.5 0.5 0.25 0.5\r\n0 0.25 0.5 0.5 1\r\n",
            "1 0.5 0.5 0.25 0.5\r0 0.25 0.5 0.5 1\r",
            "1.0 0.5 0.5 0.25 0.5\n0.000000 0.25 0.5 0.5 1",
            "1.000000e+00 5e-1 5e-1 2.5e-1 5e-1\n\n0e0\t0.25 0.5 0.5 1",
        ] {
            let found = open_texts([Some(text), None, None], None).expect(text);
            assert!(found.contains(&expected), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn names_of_classes_are_read_from_a_data_yaml() {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            ("data.yaml", "path: d\nnc: 2\nnames: ['cat', 'dog']\n"),
            ("other.yml", "names:\n  0: cat\n  1: dog\n"),
            ("classes.txt", "\u{FEFF}cat\rdog\r"),
        ] {
            let path = root.path().join(name);
            fs::write(&path, text).expect("writes");
            assert_eq!(read_names(&path).expect(name), ["cat", "dog"]);
        }
        let path = root.path().join("empty.yaml");
        fs::write(&path, "nc: 2\n").expect("writes");
        let error = read_names(&path).expect_err("no names").to_string();
        assert!(
            error.contains("empty.yaml: it has no key `names`"),
            "{error}"
        );
    }

    #[test]
    fn labels_for_poses_are_an_error_and_outlines_are_not() {
        let pose = "0 0.5 0.5 0.2 0.4 0.45 0.42 0.55 0.42 0.5 0.52 0.46 0.61 0.55 0.6\n";
        let outline = "0 0.1 0.2 0.5 0.2 0.5 0.8 0.1 0.4\n";
        let plain = "0 0.5 0.5 0.2 0.4\n";

        let error = open_texts([Some(&format!("{plain}{pose}")), None, None], None);
        let error = error.expect_err("a pose").to_string();
        assert!(error.contains("b.txt, line 2: the 15 values"), "{error}");
        assert!(error.contains("keep the first five values"), "{error}");

        for text in [outline.to_owned(), format!("{plain}{outline}{pose}")] {
            open_texts([Some(&text), None, None], None).expect("outlines of any number of corners");
        }
    }

    #[test]
    fn rotated_boxes_have_four_corners() {
        let root = tempfile::tempdir().expect("a folder");
        let images = root.path().join("images");
        fs::create_dir_all(&images).expect("writes");
        fs::create_dir_all(root.path().join("labels")).expect("writes");
        fs::write(images.join("a.jpg"), "a").expect("writes");
        let opened = |text: &str| {
            fs::write(root.path().join("labels/a.txt"), text).expect("writes");
            open(&images, None, None, true, true)
        };

        let text = "1 0.5 0.1 0.9 0.5 0.5 0.9 0.1 0.5\n0 0.5 0.5 0.5 0.25\n";
        let source = opened(text).expect("a good file");
        let record = read_one(&source, 0).expect("a record");
        let numbers = |field: usize| -> Vec<f32> {
            let numbers = record.fields[field].chunks_exact(4);
            let numbers = numbers.map(|x| f32::from_le_bytes(x.try_into().expect("four")));
            numbers.collect()
        };
        let first = [0.5, 0.1, 0.9, 0.5, 0.5, 0.9, 0.1, 0.5];
        let second = [0.25, 0.375, 0.75, 0.375, 0.75, 0.625, 0.25, 0.625];
        assert_eq!(numbers(3), [first, second].concat());
        assert_eq!(numbers(1), [0.5, 0.5, 0.8, 0.8, 0.5, 0.5, 0.5, 0.25]);
        assert_eq!(source.fields()[3].name, CORNERS);

        let error = opened("0 0.1 0.1 0.2 0.2 0.1 0.3\n").expect_err("a triangle");
        assert!(
            error
                .to_string()
                .contains("line 1: the outline has 3 points"),
            "{error}"
        );
    }

    #[test]
    fn a_label_file_that_is_too_long_makes_its_record_bad() {
        let root = tempfile::tempdir().expect("a folder");
        let (images, labels) = (root.path().join("images"), root.path().join("labels"));
        for folder in [&images, &labels] {
            fs::create_dir(folder).expect("a folder");
        }
        for name in ["a", "b"] {
            fs::write(images.join(name).with_extension("jpg"), name).expect("writes");
        }
        let long = fs::File::create(labels.join("a.txt")).expect("creates");
        long.set_len(200_000_000_000).expect("a sparse file");
        fs::write(labels.join("b.txt"), "0 0.5 0.5 0.2 0.2").expect("writes");

        let source = open(&images, None, None, false, true).expect("opens");

        let error = read_one(&source, 0).expect_err("too long");
        assert!(error.is_bad_record());
        assert!(
            error.chain().contains("a.txt has 200000000000 bytes"),
            "{}",
            error.chain()
        );
        assert_eq!(read_one(&source, 1).expect("a record").fields[1].len(), 16);
    }

    #[test]
    fn a_line_of_a_megabyte_is_an_error() {
        let line = format!("0{}", " 0.5".repeat(300_000));

        let error = open_texts([Some(&line), None, None], None).expect_err("a long line");

        assert!(
            error.to_string().contains("line 1: it has 1200001 bytes"),
            "{error}"
        );
    }
}
