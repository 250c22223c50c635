//! Images of a folder, each with a file of labels in another one.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::extensions::without_images;
use super::listing::{Paths, Tree};
use crate::store;
use infeed_core::error::Error;

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
) -> Result<(Paths, Vec<PathBuf>), Error> {
    if store::is_url(labels) {
        let problem = format!(
            "the labels {} must be files of a disk; copy them, and set labels=",
            labels.display()
        );
        return Err(Error::config("source", problem));
    }
    let Tree { folders, mut paths } = Tree::list(images, true, Some(extension))?;
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
    Ok((paths, files))
}

/// Returns text without the byte order mark that some editors write at its beginning.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// Returns the text of a file, without a byte order mark. All line ends become line feeds.
///
/// # Errors
///
/// [`Error::Config`] for bytes that are not UTF-8.
pub(super) fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<Cow<'a, str>, Error> {
    let text = std::str::from_utf8(without_mark(bytes)).map_err(|_| {
        let problem = format!("{} is not UTF-8 text; save it as UTF-8", path.display());
        Error::config("source", problem)
    })?;
    Ok(match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "\n").into(),
        false => text.into(),
    })
}

/// Reads a file of labels. None if there is none.
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::open(path, error)),
    }
}
