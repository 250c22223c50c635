//! Files that a caller lists, one for each record.

use std::path::{Component, Path, PathBuf, absolute};
use std::sync::Arc;

use super::paths::Paths;
use super::store;
use infeed_core::error::Error;

/// Files of a disk or objects of a bucket, in the order of the records.
#[derive(Clone, Debug)]
pub struct FileList(Arc<Paths>);

impl FileList {
    /// Creates a list from paths or URLs. Relative paths begin at the working directory.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for an object that does not exist. A missing file is a bad record when it is
    /// read.
    pub fn new(names: &[String]) -> Result<FileList, Error> {
        let is_remote = names
            .first()
            .is_some_and(|name| store::is_url(Path::new(name)));
        let paths = match is_remote {
            true => Paths::of_names(Path::new(url_folder(names)), &below_url(names), true)?,
            false => {
                let files: Vec<PathBuf> = names
                    .iter()
                    .map(|name| absolute(name).map_err(|error| Error::open(name, error)))
                    .collect::<Result<_, _>>()?;
                let root = common_folder(&files);
                let text = |file: &PathBuf| {
                    let below = file.strip_prefix(&root).unwrap_or(file);
                    below.to_string_lossy().into_owned()
                };
                let below: Vec<String> = files.iter().map(text).collect();
                Paths::of_names(&root, &below, true)?
            }
        };
        Ok(FileList(Arc::new(paths)))
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.0
    }
}

/// Returns the innermost folder that contains all files. It is `/` if a path leads upwards, because
/// links may then lead anywhere.
fn common_folder(files: &[PathBuf]) -> PathBuf {
    let leads_up = |file: &PathBuf| file.components().any(|part| part == Component::ParentDir);
    let Some(first) = files.first().filter(|_| !files.iter().any(leads_up)) else {
        return PathBuf::from("/");
    };
    let mut folder = first.parent().unwrap_or(first);
    for file in files {
        while !file.starts_with(folder) {
            folder = folder.parent().unwrap_or(Path::new(""));
        }
    }
    folder.to_owned()
}

/// Returns the innermost folder that contains all URLs, without its last slash.
fn url_folder(urls: &[String]) -> &str {
    let parent = |url: &str| url.rfind('/').unwrap_or(0);
    let first = urls.first().map_or("", String::as_str);
    let mut folder = &first[..parent(first)];
    for url in urls {
        let contains = |folder: &str| {
            let rest = url.strip_prefix(folder);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        while !folder.is_empty() && !contains(folder) {
            folder = &folder[..parent(folder)];
        }
    }
    folder
}

/// Returns the parts of URLs below their common folder.
fn below_url(urls: &[String]) -> Vec<String> {
    let folder = url_folder(urls);
    let below = |url: &String| url[folder.len()..].trim_start_matches('/').to_owned();
    urls.iter().map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_list_is_the_innermost_one_that_contains_all_files() {
        let folder = |names: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            common_folder(&files)
        };

        assert_eq!(folder(&["/a/b/1.jpg"]), Path::new("/a/b"));
        assert_eq!(folder(&["/a/b/1.jpg", "/a/bc/2.jpg"]), Path::new("/a"));
        assert_eq!(folder(&["/a/1.jpg", "/b/2.jpg"]), Path::new("/"));
        assert_eq!(folder(&["/a/b/../1.jpg", "/a/2.jpg"]), Path::new("/"));
    }

    #[test]
    fn urls_are_divided_at_their_common_folder() {
        let urls =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };

        let same = urls(&["s3://photos/cat/1.jpg", "s3://photos/cats/2.jpg"]);
        assert_eq!(url_folder(&same), "s3://photos");
        assert_eq!(below_url(&same), ["cat/1.jpg", "cats/2.jpg"]);
        let one = urls(&["s3://photos/cat/1.jpg"]);
        assert_eq!(url_folder(&one), "s3://photos/cat");
        assert_eq!(below_url(&one), ["1.jpg"]);
    }
}
