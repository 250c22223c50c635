//! Finds image files and detects the layout of a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use infeed_codec::decode::{Decoder, Header, Limits};
use infeed_raw::file;
use infeed_source::left_out::LeftOut;
use infeed_source::{IMAGE_EXTENSIONS, image_files, store};

use crate::error::CliError;

/// Folder names of masks. `{}` is the name of the image folder next to them.
const MASK_FOLDERS: [&str; 6] = [
    "{}_labels",
    "{}_masks",
    "{}_mask",
    "{}_index",
    "{}_annotations",
    "{}_segmentation",
];

/// The same for folders with a generic name.
const IMAGE_FOLDERS: [&str; 5] = ["images", "image", "imgs", "img", "JPEGImages"];
const LABEL_FOLDERS: [&str; 6] = [
    "masks",
    "mask",
    "labels",
    "annotations",
    "targets",
    "SegmentationClass",
];

/// Contents of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FolderContents {
    /// Image files, with or without class folders.
    Images(PathBuf),
    /// Images and masks that pair by name.
    Pairs {
        image: PathBuf,
        mask: PathBuf,
        palette: Option<PathBuf>,
    },
    /// NumPy arrays, one per field.
    Arrays(Vec<PathBuf>),
}

/// Detects the layout from the names in a folder.
///
/// # Errors
///
/// If the folder cannot be listed or has no known contents.
pub(crate) fn layout(dir: &Path) -> Result<FolderContents, CliError> {
    let listed = entries(dir)?;
    let folders: Vec<&Path> = listed
        .iter()
        .filter(|entry| entry.is_folder)
        .map(|entry| entry.path.as_path())
        .collect();

    if let Some((image, mask)) = pairs_among(&folders) {
        let palette = [Some(dir), dir.parent()].into_iter().flatten();
        let palette = palette
            .map(|at| at.join("class_dict.csv"))
            .find(|path| path.is_file());
        return Ok(FolderContents::Pairs {
            image,
            mask,
            palette,
        });
    }
    let arrays: Vec<PathBuf> = listed
        .iter()
        // Arrays are memory-mapped, which a bucket does not allow.
        .filter(|entry| !entry.is_folder && !store::is_url(dir))
        .filter(|entry| extension(&entry.path).as_deref() == Some("npy"))
        .map(|entry| entry.path.clone())
        .collect();
    if !arrays.is_empty() {
        return Ok(FolderContents::Arrays(arrays));
    }
    // ImageNet's own layout: one folder per split, with a folder per class in it.
    let split = ["train", "training", "val", "valid", "test"]
        .iter()
        .find_map(|name| folders.iter().find(|path| path.ends_with(name)));
    let has_images = listed.iter().any(|entry| is_image(&entry.path));
    match split {
        Some(split) if !has_images => Ok(FolderContents::Images(split.to_path_buf())),
        _ if has_images || !folders.is_empty() => Ok(FolderContents::Images(dir.to_owned())),
        _ => Err(CliError::Failed(format!(
            "{} contains no images, no folders of images and no .npy arrays; pass a folder that \
             does, or a pipeline file",
            dir.display()
        ))),
    }
}

/// Returns a folder of images and the folder of their masks. Prefers `train`.
fn pairs_among(folders: &[&Path]) -> Option<(PathBuf, PathBuf)> {
    let named = |name: &str| folders.iter().find(|path| path.ends_with(name));
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for image in folders {
        let name = image.file_name().unwrap_or_default().to_string_lossy();
        let siblings = MASK_FOLDERS
            .iter()
            .map(|pattern| pattern.replace("{}", &name));
        let whole = IMAGE_FOLDERS.contains(&&*name);
        let general = LABEL_FOLDERS
            .iter()
            .filter(|_| whole)
            .map(|label| (*label).to_owned());
        let mask = siblings.chain(general).find_map(|mask| named(&mask));
        found.extend(mask.map(|mask| (image.to_path_buf(), mask.to_path_buf())));
    }
    let train = found.iter().position(|(image, _)| image.ends_with("train"));
    (!found.is_empty()).then(|| found.swap_remove(train.unwrap_or(0)))
}

/// Returns all image files below a folder, sorted, and the other files. Ignores hidden files and
/// folders.
///
/// # Errors
///
/// If a folder cannot be listed, or Ctrl-C ends the listing.
pub(crate) fn images_below(
    dir: &Path,
    follow_links: bool,
) -> Result<(Vec<PathBuf>, Vec<LeftOut>), CliError> {
    let listed = image_files(dir, follow_links);
    listed.map_err(|error| CliError::from_error(&error))
}

/// An entry of a folder, on a disk or in a bucket.
struct ListedEntry {
    path: PathBuf,
    is_folder: bool,
}

fn entries(dir: &Path) -> Result<Vec<ListedEntry>, CliError> {
    if !store::is_url(dir) {
        return local_entries(dir).map_err(|error| cannot_list(dir, &error));
    }
    let listed =
        store::entries(&dir.to_string_lossy()).map_err(|error| CliError::from_error(&error))?;
    let entry = |entry: store::FolderEntry| ListedEntry {
        path: dir.join(entry.name),
        is_folder: entry.is_folder,
    };
    Ok(listed.into_iter().map(entry).collect())
}

fn local_entries(dir: &Path) -> io::Result<Vec<ListedEntry>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let entry = |path: PathBuf| ListedEntry {
        is_folder: path.is_dir(),
        path,
    };
    Ok(paths.into_iter().map(entry).collect())
}

/// Bytes that the file of an image may have, so that reading some at a time fits into memory.
const IMAGE_BYTES: u64 = 1 << 30;

/// Reads the whole file or object of an image.
///
/// # Errors
///
/// The error of the storage, which may not name the path.
pub(crate) fn read(path: &Path) -> Result<Bytes, CliError> {
    if !store::is_url(path) {
        let bytes =
            file::read(path, IMAGE_BYTES).map_err(|error| CliError::Failed(error.to_string()))?;
        return Ok(Bytes::from(bytes));
    }
    let blob =
        store::open(&path.to_string_lossy()).map_err(|error| CliError::from_error(&error))?;
    let bytes = match blob.len() {
        length @ ..=IMAGE_BYTES => blob.read(0..length),
        length => Err(file::too_large(length, IMAGE_BYTES)),
    };
    bytes.map_err(|error| CliError::Failed(error.to_string()))
}

fn cannot_list(dir: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot list {}: {error}", dir.display()))
}

fn extension(path: &Path) -> Option<String> {
    path.extension()
        .map(|extension| extension.to_string_lossy().to_ascii_lowercase())
}

/// Returns whether a file has the extension of an image.
pub(crate) fn is_image(path: &Path) -> bool {
    extension(path).is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.as_str()))
}

/// Returns at most `limit` items, spread over the whole list.
pub(crate) fn spread<T>(all: &[T], limit: usize) -> impl Iterator<Item = &T> {
    let count = all.len().min(limit);
    (0..count).map(move |i| &all[i * all.len() / count])
}

/// Returns the headers of a few files spread over a folder. Skips files without a valid header.
pub(crate) fn peek(images: &[PathBuf], limit: usize) -> Vec<Header> {
    let mut decoder = Decoder::new();
    spread(images, limit)
        .filter_map(|path| read(path).ok())
        .filter_map(|bytes| decoder.header(&bytes, false, &Limits::default()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(below: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in below {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        dir
    }

    #[test]
    fn pairs_are_detected_by_folder_names() {
        for (image, mask) in [
            ("images", "masks"),
            ("train", "train_labels"),
            ("val", "val_index"),
            ("shop", "shop_labels"),
        ] {
            let dir = folder(&[&format!("{image}/a.png"), &format!("{mask}/a.png")]);

            let expected = FolderContents::Pairs {
                image: dir.path().join(image),
                mask: dir.path().join(mask),
                palette: None,
            };
            assert_eq!(layout(dir.path()).unwrap(), expected);
        }
    }

    #[test]
    fn training_pairs_precede_others_and_have_their_palette() {
        let dir = folder(&[
            "test/a.png",
            "test_labels/a.png",
            "train/a.png",
            "train_labels/a.png",
            "class_dict.csv",
        ]);

        let FolderContents::Pairs { image, palette, .. } = layout(dir.path()).unwrap() else {
            panic!("pairs expected");
        };

        assert_eq!(image, dir.path().join("train"));
        assert_eq!(palette, Some(dir.path().join("class_dict.csv")));
    }

    #[test]
    fn class_folders_are_images_and_splits_are_entered() {
        let classes = folder(&["cat/a.jpg", "dog/b.jpg"]);
        let splits = folder(&["train/cat/a.jpg", "val/cat/b.jpg"]);

        let found = layout(classes.path()).unwrap();
        assert_eq!(found, FolderContents::Images(classes.path().to_owned()));
        let found = layout(splits.path()).unwrap();
        assert_eq!(found, FolderContents::Images(splits.path().join("train")));
    }

    #[test]
    fn a_folder_without_data_is_an_error_that_names_it() {
        let dir = folder(&["notes.txt"]);

        let error = layout(dir.path()).unwrap_err().to_string();

        assert!(error.contains(&dir.path().display().to_string()), "{error}");
    }
}
