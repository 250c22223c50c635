//! Symbolic links below a folder of a disk: which ones are followed, and how often.
//!
//! The path that a user names is always followed. A link below it is followed unless the user
//! excludes links, or it leads to a folder that contains it. Links can multiply: 26 folders with two
//! links each to the next one are 2^25 paths to one image. So a folder is listed through links up to
//! [`MAX_VISITS`] times.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use infeed_core::printable::printable;
use infeed_core::stop::Stop;

/// Largest number of paths through links by which one folder is listed.
const MAX_VISITS: usize = 100;

/// Folders that were reached through links.
#[derive(Debug, Default)]
pub(crate) struct LinkedFolders(HashMap<PathBuf, LinkVisits>);

#[derive(Debug)]
struct LinkVisits {
    count: usize,
    first: PathBuf,
}

impl LinkedFolders {
    /// Counts that the folder `target` is listed as `path`.
    ///
    /// # Errors
    ///
    /// A folder that is listed too often.
    pub(crate) fn visit(&mut self, target: PathBuf, path: &Path) -> io::Result<()> {
        let visits = match self.0.entry(target) {
            Entry::Vacant(entry) => {
                entry.insert(LinkVisits {
                    count: 1,
                    first: path.to_owned(),
                });
                return Ok(());
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        visits.count += 1;
        if visits.count <= MAX_VISITS {
            return Ok(());
        }
        let shown = |path: &Path| printable(&path.to_string_lossy()).into_owned();
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "links lead to one folder by more than {MAX_VISITS} paths, such as {} and {}; remove \
                 links, or set follow_links=False",
                shown(&visits.first),
                shown(path)
            ),
        ))
    }
}

/// Path to which a link leads.
pub(crate) fn target(link: &Path) -> io::Result<PathBuf> {
    link.canonicalize().map_err(|error| of_link(link, &error))
}

/// Describes a link that cannot be followed.
pub(crate) fn of_link(link: &Path, error: &io::Error) -> io::Error {
    let link = link.to_string_lossy();
    let text = format!("the link {} cannot be followed: {error}", printable(&link));
    io::Error::new(error.kind(), text)
}

/// Whether `target` is one of the folders from `root` to `folder`, by whatever path it is reached.
pub(crate) fn contains(root: &Path, folder: &Path, target: &Path) -> io::Result<bool> {
    for ancestor in folder.ancestors() {
        if root.join(ancestor).canonicalize()? == target {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that a path below `root` passes no link.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] with the link. A path that does not exist is none.
pub(crate) fn check_no_link(root: &Path, path: &Path) -> io::Result<()> {
    let mut passed = root.to_owned();
    for part in path.strip_prefix(root).unwrap_or(path) {
        passed.push(part);
        if fs::symlink_metadata(&passed).is_ok_and(|found| found.is_symlink()) {
            let link = passed.to_string_lossy();
            let problem = format!(
                "{} is a symbolic link, and follow_links is False; copy its target, or set \
                 follow_links=True",
                printable(&link)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
    }
    Ok(())
}

/// Returns a folder and all folders below it, sorted, with hidden ones, by the rules of links.
///
/// # Errors
///
/// Those of listing; [`io::ErrorKind::Interrupted`] if this thread's [`Stop`] is requested.
pub(super) fn folders(root: &Path, follow_links: bool) -> io::Result<Vec<PathBuf>> {
    let stop = Stop::here();
    let mut linked = LinkedFolders::default();
    let mut found = vec![(PathBuf::new(), false)];
    let mut next = 0;
    while next < found.len() {
        check_stop(stop.as_ref())?;
        let (folder, through_link) = found[next].clone();
        next += 1;
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let is_link = kind.is_symlink();
            if (is_link && !follow_links) || !path.is_dir() {
                continue;
            }
            let through_link = through_link || is_link;
            if through_link {
                let target = target(&path)?;
                if contains(root, &folder, &target)? {
                    continue;
                }
                linked.visit(target, &path)?;
            }
            found.push((folder.join(entry.file_name()), through_link));
        }
    }
    let mut found: Vec<PathBuf> = found.into_iter().map(|(path, _)| root.join(path)).collect();
    found.sort();
    Ok(found)
}

/// Fails if a stop is requested.
pub(crate) fn check_stop(stop: Option<&Stop>) -> io::Result<()> {
    match stop.is_some_and(Stop::is_requested) {
        true => Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "listing was stopped",
        )),
        false => Ok(()),
    }
}

/// Makes 26 folders with two links each to the next one: 33 million paths to the last folder.
#[cfg(all(test, unix))]
pub(crate) fn multiply_folders(root: &Path) {
    for level in 0..26 {
        let folder = root.join(format!("{level:02}"));
        std::fs::create_dir(&folder).expect("a folder");
        for name in ["a", "b"] {
            let next = format!("../{:02}", (level + 1).min(25));
            std::os::unix::fs::symlink(next, folder.join(name)).expect("links");
        }
    }
}
