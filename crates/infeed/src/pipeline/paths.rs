//! Paths in pipelines: relative to the folder of a pipeline file, so that file and data can be moved
//! together.

use std::env;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{Pipeline, SourceSpec};
use infeed_core::error::Error;
use infeed_source::class_names::ClassNames;
use infeed_source::store;

/// Changes every path of a description; URLs stay unchanged.
fn map_paths(pipeline: &mut Pipeline, mut change: impl FnMut(&Path) -> PathBuf) {
    pipeline.source.map_paths(&mut change);
    let weights = pipeline.weights.as_mut();
    let arrays = [
        weights.and_then(|weights| weights.records.as_mut()),
        pipeline.batch_groups.as_mut(),
        pipeline.batch_lengths.as_mut(),
    ];
    let arrays = arrays.into_iter().flatten();
    for path in arrays.filter_map(|array| array.path.as_mut()) {
        *path = change(path);
    }
    let transforms = pipeline.transforms.iter_mut();
    for palette in transforms.filter_map(|transform| transform.palette_mut()) {
        change_text(palette, &mut change);
    }
}

/// Resolves the relative paths of a pipeline file in `folder`.
pub(super) fn resolve(pipeline: &mut Pipeline, folder: &Path) {
    if !folder.as_os_str().is_empty() {
        map_paths(pipeline, |path| resolve_path(folder, path));
    }
}

/// Makes relative paths, which refer to the current folder, relative to the folder of a pipeline
/// file. The file must be on a disk.
///
/// # Errors
///
/// [`Error::Open`] if the folder does not exist.
pub(super) fn make_relative(pipeline: &mut Pipeline, folder: &Path) -> Result<(), Error> {
    let name = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let to_current = path_to_current(name).map_err(|error| Error::open(name, error))?;
    map_paths(pipeline, |path| match path.is_relative() {
        true => to_current.join(path),
        false => path.to_owned(),
    });
    Ok(())
}

/// Returns the path from a folder to the current folder.
fn path_to_current(folder: &Path) -> io::Result<PathBuf> {
    // `..` leads to the parent of a folder itself, not of a link to the folder.
    Ok(path_between(
        &folder.canonicalize()?,
        &env::current_dir()?.canonicalize()?,
    ))
}

/// Makes paths of the source relative to the folder of a packed dataset if they are below it. Other
/// relative paths become relative to that folder, or absolute if it is in a bucket.
pub(super) fn make_relative_to_packed(pipeline: &mut Pipeline, folder: &Path) {
    pipeline.source.make_relative_to(folder);
    let source = pipeline.source.clone();
    let to_current = match store::is_url(folder) {
        true => None,
        false => path_to_current(folder).ok(),
    };
    map_paths(pipeline, |path| match &to_current {
        Some(to_current) if path.is_relative() => to_current.join(path),
        Some(_) => path.to_owned(),
        None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    });
    pipeline.source = source;
}

/// Returns the path from one folder to another, both absolute and without links. Absolute if the
/// folders are on different drives.
fn path_between(from: &Path, to: &Path) -> PathBuf {
    if from == to {
        return PathBuf::new();
    }
    let (from, parts): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&parts).take_while(|(a, b)| a == b);
    let common: Vec<_> = common.map(|(part, _)| *part).collect();
    if common.is_empty() {
        return to.to_owned();
    }
    let up = from[common.len()..].iter().map(|_| Component::ParentDir);
    up.chain(parts[common.len()..].iter().copied()).collect()
}

/// Resolves a path of a pipeline file in `folder`. A path that leads above the folder becomes
/// relative to the current folder if it is below the current folder.
fn resolve_path(folder: &Path, path: &Path) -> PathBuf {
    let joined = folder.join(path);
    if store::is_url(folder) || !path.starts_with("..") {
        return joined;
    }
    let (Ok(mut whole), Ok(current)) = (
        folder.canonicalize(),
        env::current_dir().and_then(|current| current.canonicalize()),
    ) else {
        return joined;
    };
    let mut parts = path.components().peekable();
    while parts.next_if_eq(&Component::ParentDir).is_some() {
        whole.pop();
    }
    whole.extend(parts);
    match whole.strip_prefix(current) {
        Ok(below) if !below.as_os_str().is_empty() => below.to_owned(),
        _ => whole,
    }
}

/// Changes a path that is stored as text, unless it is a URL.
fn change_text(text: &mut String, change: &mut dyn FnMut(&Path) -> PathBuf) {
    if !store::is_url(&*text) {
        *text = change(Path::new(text.as_str()))
            .to_string_lossy()
            .into_owned();
    }
}

impl SourceSpec {
    /// Makes paths relative to a folder if they are below it.
    pub(super) fn make_relative_to(&mut self, folder: &Path) {
        if store::is_url(folder) {
            self.change_names(&mut |name| {
                let below = Path::new(name).strip_prefix(folder).ok();
                below.map_or_else(|| name.to_owned(), |below| below.to_string_lossy().into())
            });
            return;
        }
        self.map_paths(|path| match path.strip_prefix(folder) {
            Ok(below) if below.as_os_str().is_empty() => PathBuf::from("."),
            Ok(below) => below.to_owned(),
            Err(_) => path.to_owned(),
        });
    }

    /// Changes every path of the source; URLs stay unchanged.
    pub fn map_paths(&mut self, mut change: impl FnMut(&Path) -> PathBuf) {
        self.change_paths(&mut |path| match store::is_url(path) {
            true => path.to_owned(),
            false => change(path),
        });
    }

    /// Changes the names of all shards and files, including URLs.
    fn change_names(&mut self, change: &mut dyn FnMut(&str) -> String) {
        let names = self.file_names_mut().iter_mut();
        names.for_each(|name| *name = change(name));
    }

    fn change_paths(&mut self, change: &mut dyn FnMut(&Path) -> PathBuf) {
        if let SourceSpec::Mix { parts, .. } = self {
            parts
                .iter_mut()
                .for_each(|part| part.source.change_paths(change));
            return;
        }
        let mut text = |text: &mut String| change_text(text, change);
        match self {
            SourceSpec::Folder {
                path,
                labels,
                classes,
                ..
            } => {
                if !matches!(labels.as_str(), "auto" | "none") {
                    text(labels);
                }
                if let Some(ClassNames::Path(classes)) = classes {
                    *classes = change(classes);
                }
                *path = change(path);
            }
            SourceSpec::Pairs { image, mask, .. } => {
                *image = change(image);
                *mask = change(mask);
            }
            SourceSpec::Coco {
                images,
                annotations,
                panoptic,
                ..
            } => {
                for path in [images, annotations].into_iter().chain(panoptic) {
                    *path = change(path);
                }
            }
            SourceSpec::Yolo {
                images,
                labels,
                classes,
                ..
            } => {
                for path in std::iter::once(images).chain(labels).chain(classes) {
                    *path = change(path);
                }
            }
            SourceSpec::Voc { path, .. } => *path = change(path),
            SourceSpec::LabelMe { images, labels, .. } => {
                for path in std::iter::once(images).chain(labels) {
                    *path = change(path);
                }
            }
            SourceSpec::Memory { fields } => {
                for path in fields.iter_mut().filter_map(|field| field.path.as_mut()) {
                    *path = change(path);
                }
            }
            _ => self.file_names_mut().iter_mut().for_each(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_a_folder_become_relative_and_other_paths_and_urls_stay() {
        let folder = Path::new("/data/packed");
        let of = |shards: &[&str]| {
            Pipeline::new(SourceSpec::WebDataset {
                shards: shards.iter().map(|&name| name.to_owned()).collect(),
                fields: Vec::new(),
                follow_links: true,
            })
        };
        let whole = of(&["/data/packed/a.tar", "/other/b.tar", "s3://bucket/c.tar"]);

        let relative = whole.clone().within_folder(folder);

        let expected = of(&["a.tar", "/other/b.tar", "s3://bucket/c.tar"]);
        assert_eq!(relative, expected);
        assert_eq!(relative.from_folder(folder), whole);
        let moved = Pipeline::new(SourceSpec::folder(folder)).within_folder(folder);
        assert_eq!(
            moved.from_folder(Path::new("/new")).source,
            SourceSpec::folder("/new/.")
        );
    }

    #[test]
    fn shards_of_a_dataset_in_a_bucket_are_named_from_its_folder() {
        let folder = Path::new("s3://bucket/packed");
        let of = |shards: &[&str]| {
            Pipeline::new(SourceSpec::TfRecord {
                shards: shards.iter().map(|&name| name.to_owned()).collect(),
                fields: Vec::new(),
                follow_links: true,
            })
        };
        let whole = of(&["s3://bucket/packed/{0..9}.tfrecord", "s3://other/packed/x"]);

        let relative = whole.clone().within_folder(folder);

        assert_eq!(relative, of(&["{0..9}.tfrecord", "s3://other/packed/x"]));
        assert_eq!(relative.from_folder(folder), whole);
    }

    #[test]
    fn paths_lead_from_the_folder_of_the_file_to_the_current_folder() {
        for (from, to, expected) in [
            ("/w/project", "/w/project", ""),
            ("/w/project/configs/a", "/w/project", "../.."),
            ("/w/configs", "/w/project", "../project"),
            ("/w", "/w/project", "project"),
            ("/tmp/x", "/w/project", "../../w/project"),
        ] {
            let found = path_between(Path::new(from), Path::new(to));
            assert_eq!(found, Path::new(expected), "{from} to {to}");
        }
    }
}
