//! A packed dataset as a location of pipelines: its file names, the check that it is complete, and
//! paths relative to its folder, so that the folder can be moved.

use std::io;
use std::path::{Path, PathBuf};

use super::SourceSpec;
use infeed_core::error::Error;
use infeed_source::class_names::ClassNames;
use infeed_source::store;

/// File that marks a packed dataset as complete and records how it was made.
pub const MANIFEST: &str = "infeed-pack.json";

/// File that marks a folder as incomplete. `infeed pack` locks it while it runs.
pub const BEGUN: &str = "infeed-pack.begun";

/// Pipeline file in the folder of a packed dataset. Relative paths of its source refer to that
/// folder; in any other pipeline file they refer to the current directory.
pub const PIPELINE: &str = "pipeline.toml";

/// Whether a folder or URL is a packed dataset, complete or not.
pub fn is_packed(folder: &Path) -> bool {
    match is_there(&folder.join(MANIFEST)) {
        Ok(false) => is_there(&folder.join(BEGUN)).unwrap_or(false),
        // Opening the folder reports the cause of this error.
        found => found.unwrap_or(false),
    }
}

/// Path of the pipeline file of a packed dataset.
///
/// # Errors
///
/// [`Error::Config`] if the dataset is incomplete or the folder is not a packed dataset;
/// [`Error::Open`] if a bucket cannot be read.
pub(super) fn pipeline_of(folder: &Path) -> Result<PathBuf, Error> {
    let problem = if is_there(&folder.join(BEGUN))? {
        "the packing is not finished; run the same `infeed pack` again to continue"
    } else if !is_there(&folder.join(MANIFEST))? {
        "the folder has no infeed-pack.json, so it is not a complete packed dataset; pass a \
         pipeline file, or the output folder of `infeed pack`"
    } else {
        return Ok(folder.join(PIPELINE));
    };
    Err(Error::config(folder.display().to_string(), problem))
}

/// Whether a pipeline file belongs to the packed dataset in its folder.
pub(super) fn belongs(file: &Path) -> bool {
    let folder = file.parent().unwrap_or(Path::new(""));
    file.file_name().is_some_and(|name| name == PIPELINE) && is_packed(folder)
}

/// Whether a path or URL names a folder rather than a pipeline file.
pub(super) fn is_folder(path: &Path) -> bool {
    match store::is_url(path) {
        true => path.extension().is_none_or(|extension| extension != "toml"),
        false => path.is_dir(),
    }
}

/// Reads the text of a pipeline file or URL.
pub(super) fn text_of(file: &Path) -> Result<String, Error> {
    let read = || match store::is_url(file) {
        true => {
            let blob = store::open(&file.to_string_lossy())?;
            let bytes = blob.read(0..blob.len());
            bytes.map_err(|error| Error::open(file, error))
        }
        false => std::fs::read(file)
            .map(bytes::Bytes::from)
            .map_err(|error| Error::open(file, error)),
    };
    String::from_utf8(read()?.into()).map_err(|error| Error::open(file, error))
}

fn is_there(file: &Path) -> Result<bool, Error> {
    if !store::is_url(file) {
        return Ok(file.is_file());
    }
    match store::open(&file.to_string_lossy()) {
        Ok(_) => Ok(true),
        Err(Error::Open { source, .. }) if is_missing(&*source) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
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
        self.change_paths(&mut change);
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
        let mut text = |text: &mut String| {
            if !text.contains("://") {
                *text = change(Path::new(text.as_str()))
                    .to_string_lossy()
                    .into_owned();
            }
        };
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
    use crate::pipeline::Pipeline;

    #[test]
    fn paths_below_a_folder_become_relative_and_other_paths_and_urls_stay() {
        let folder = Path::new("/data/packed");
        let of = |shards: &[&str]| {
            Pipeline::new(SourceSpec::WebDataset {
                shards: shards.iter().map(|&name| name.to_owned()).collect(),
                fields: Vec::new(),
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
            })
        };
        let whole = of(&["s3://bucket/packed/{0..9}.tfrecord", "s3://other/packed/x"]);

        let relative = whole.clone().within_folder(folder);

        assert_eq!(relative, of(&["{0..9}.tfrecord", "s3://other/packed/x"]));
        assert_eq!(relative.from_folder(folder), whole);
    }

    #[test]
    fn an_incomplete_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = |folder: &Path| Pipeline::load(folder).expect_err("incomplete").to_string();
        assert!(error(folder.path()).contains("has no infeed-pack.json"));

        std::fs::write(folder.path().join(BEGUN), "{}").expect("writes");

        let text = error(folder.path());
        assert!(text.contains("run the same `infeed pack` again"), "{text}");
        let file = folder.path().join(PIPELINE);
        std::fs::write(&file, "[source]\nkind = \"folder\"\npath = \"x\"\n").expect("writes");
        assert!(error(&file).contains("not finished"));
    }
}
