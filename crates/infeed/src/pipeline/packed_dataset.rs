//! A packed dataset as a location of pipelines: its file names, and the check that it is complete.

use std::io;
use std::path::{Path, PathBuf};

use infeed_core::error::Error;
use infeed_raw::file;
use infeed_source::store;

/// File that marks a packed dataset as complete and records how it was made.
pub const MANIFEST: &str = "infeed-pack.json";

/// File that marks a folder as incomplete. `infeed pack` locks it while it runs.
pub const BEGUN: &str = "infeed-pack.begun";

/// Pipeline file in the folder of a packed dataset.
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
            let bytes = match blob.len() {
                length @ ..=file::MAX_TEXT_BYTES => blob.read(0..length),
                length => Err(file::too_large(length, file::MAX_TEXT_BYTES)),
            };
            bytes.map_err(|error| Error::open(file, error))
        }
        false => file::read_argument(file, file::MAX_TEXT_BYTES)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;

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
