//! Images of a folder, each with a file of labels in another one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::extensions::{has_extension, without_images};
use super::left_out::LeftOut;
use super::listing::Tree;
use super::paths::Paths;
use crate::store;
use crate::store::links::check_stop;
use infeed_codec::decode::ForeignFile;
use infeed_core::error::Error;
use infeed_core::stop::Stop;

/// List of classes that tools write next to files of labels.
const CLASSES: &str = "classes.txt";

/// Lists a folder of images or its URL. Returns the path of each image, and that of its file in a
/// folder of a disk: `a/b.jpg` has `a/b.txt` for the extension `txt`.
///
/// # Errors
///
/// [`Error::Open`] for a folder that cannot be read. [`Error::Config`] for a folder without images,
/// and for labels that are not on a disk.
pub(super) fn list(
    images: &Path,
    labels: &Path,
    extension: &str,
    follow_links: bool,
) -> Result<(Paths, Vec<PathBuf>), Error> {
    if store::is_url(labels) {
        let problem = format!(
            "the labels {} must be files of a disk; copy them, and set labels=",
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    let Tree { folders, mut paths } = Tree::list(images, follow_links, Some(extension))?;
    let mut files = Vec::new();
    for folder in folders {
        let beside = labels.join(&folder.path);
        paths.begin_folder(folder.path);
        for (name, object) in folder.names.iter() {
            files.push(beside.join(Path::new(name).with_extension(extension)));
            paths.push(name, object);
        }
    }
    if files.is_empty() {
        return Err(without_images(images, paths.left_out()));
    }
    let extra = without_image(labels, extension, &files);
    let extra = extra.map_err(|error| Error::open(labels, error))?;
    if extra.count > 0 {
        paths.leave_out(extra);
    }
    Ok((paths, files))
}

/// Counts the files of labels that have no image, without hidden ones and lists of classes. Does not
/// follow links to folders.
fn without_image(labels: &Path, extension: &str, files: &[PathBuf]) -> io::Result<LeftOut> {
    let known: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut extra = LeftOut::new(labels.display().to_string(), "label file without an image");
    let mut folders = vec![labels.to_owned()];
    let stop = Stop::here();
    while let Some(folder) = folders.pop() {
        check_stop(stop.as_ref())?;
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == CLASSES {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if has_extension(&name, [extension]) && !known.contains(&*path) {
                let below = path.strip_prefix(labels).unwrap_or(&path);
                extra.add(&below.to_string_lossy());
            }
        }
    }
    Ok(extra)
}

/// Returns text without the byte order mark that some editors write at its beginning.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// Returns the text of a file, without a byte order mark. All line ends become line feeds.
///
/// # Errors
///
/// [`Error::Config`] for bytes that are not UTF-8, and for a pointer or a web page.
pub(super) fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<Cow<'a, str>, Error> {
    check_is_data(path, bytes)?;
    let text = std::str::from_utf8(without_mark(bytes)).map_err(|_| {
        let problem = format!("{} is not UTF-8 text; save it as UTF-8", path.display());
        Error::config("source", problem)
    })?;
    Ok(match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "\n").into(),
        false => text.into(),
    })
}

/// Checks that a file is no pointer and no web page. It may be empty.
///
/// # Errors
///
/// [`Error::Config`] that names the file and the fix.
pub(super) fn check_is_data(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    match ForeignFile::in_place_of_data(bytes).filter(|_| !bytes.is_empty()) {
        Some(found) => {
            let problem = format!("{}: {found}", path.display());
            Err(Error::config("source", problem))
        }
        None => Ok(()),
    }
}
