//! Local files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use infeed_raw::file;

use super::Blob;
use super::buffers::{BufferPool, held_bytes, read_at, retry};
use super::links;
use infeed_core::error::Error;

/// Maximum number of files that the process keeps open between reads; many systems allow 1024 per
/// process. Further files are opened for each read.
const KEPT_OPEN: usize = 512;

/// Wildcard characters.
const WILD: [char; 3] = ['*', '?', '['];

/// Characters of patterns.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A local file, opened on its first read.
#[derive(Debug)]
pub struct LocalFile {
    name: String,
    path: PathBuf,
    length: u64,
    modified_ns: u128,
    file: Mutex<Option<Arc<File>>>,
    buffers: Arc<BufferPool>,
}

impl LocalFile {
    /// Opens the metadata of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] if it does not exist or is not a file.
    pub fn new(path: &Path) -> Result<LocalFile, Error> {
        LocalFile::with(path, &Arc::default())
    }

    fn with(path: &Path, buffers: &Arc<BufferPool>) -> Result<LocalFile, Error> {
        let data = file::metadata(path).map_err(|error| Error::open(path, error))?;
        let modified = data.modified().ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(LocalFile {
            name: path.display().to_string(),
            path: path.to_owned(),
            length: data.len(),
            modified_ns: since.map_or(0, |time| time.as_nanos()),
            file: Mutex::new(None),
            buffers: Arc::clone(buffers),
        })
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*kept {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(file::open(&self.path)?.0);
        if OPEN.fetch_add(1, Ordering::Relaxed) < KEPT_OPEN {
            *kept = Some(Arc::clone(&file));
        } else {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(file)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        let kept = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        if kept.take().is_some() {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Blob for LocalFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn stamp(&self) -> String {
        format!("{}-{}", self.modified_ns, self.length)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn held_bytes(&self, length: u64) -> u64 {
        held_bytes(length)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        if range.end > self.length {
            return Err(cut(&self.name, range.end, self.length));
        }
        let bytes = retry(|| read_at(&*self.file()?, range.start, length, &self.buffers))?;
        if (bytes.len() as u64) < length {
            let end = range.start + bytes.len() as u64;
            return Err(cut(&self.name, range.end, end));
        }
        Ok(bytes)
    }
}

fn cut(name: &str, wanted: u64, end: u64) -> io::Error {
    let problem = format!("{name} ends at byte {end}, before {wanted}: it may be truncated");
    io::Error::new(io::ErrorKind::UnexpectedEof, problem)
}

/// Divides a path into the longest leading part that exists or has no special character, and the
/// rest. The rest is empty if the whole path exists. A folder named `run[1]` or `{v1}` is thus no
/// pattern.
pub(super) fn split_existing(path: &str) -> (&str, &str) {
    let is_plain = |part: &str| !part.contains(SPECIAL);
    if is_plain(path) || Path::new(path).exists() {
        return (path, "");
    }
    let ends = path.char_indices().rev();
    let ends = ends.filter(|(_, c)| std::path::is_separator(*c));
    for (end, separator) in ends {
        let (head, rest) = path.split_at(end + separator.len_utf8());
        if is_plain(head) || Path::new(head).is_dir() {
            return (head, rest);
        }
    }
    ("", path)
}

/// Opens the files that match a path with `*`, `?` or `[…]`, sorted; or the one file with this
/// name.
pub(super) fn matches(name: &str, follow_links: bool) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let buffers = Arc::default();
    let open = |path: &Path| -> Result<Arc<dyn Blob>, Error> {
        Ok(Arc::new(LocalFile::with(path, &buffers)?))
    };
    let (existing, rest) = split_existing(name);
    if !rest.contains(WILD) {
        return Ok(vec![open(Path::new(name))?]);
    }
    let wrong = |problem: String| Error::config("source", format!("{name}: {problem}"));
    let root = match existing {
        "" => Path::new("."),
        existing => Path::new(existing),
    };
    let rest = rest.trim_start_matches(std::path::is_separator);
    let mut paths = Vec::new();
    add_matches(root, rest, follow_links, &mut paths)?;
    paths.sort();
    // `a/**/**` finds a file several times.
    paths.dedup();
    let mut blobs = Vec::new();
    for path in paths {
        let is_excluded = !follow_links && links::check_no_link(root, &path).is_err();
        if !is_excluded && !path.is_dir() {
            blobs.push(open(path.strip_prefix("./").unwrap_or(&path))?);
        }
    }
    if blobs.is_empty() {
        return Err(wrong("no file matches".to_owned()));
    }
    Ok(blobs)
}

/// Adds the paths below a folder that match a pattern. `**` matches a folder and those below it.
fn add_matches(
    folder: &Path,
    pattern: &str,
    follow_links: bool,
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let parts: Vec<&str> = pattern.split(std::path::is_separator).collect();
    let Some(at) = parts.iter().position(|part| *part == "**") else {
        let pattern = format!(
            "{}/{pattern}",
            glob::Pattern::escape(&folder.to_string_lossy())
        );
        let paths = glob::glob(&pattern)
            .map_err(|error| Error::config("source", format!("{pattern}: {error}")))?;
        for path in paths {
            found.push(path.map_err(|error| Error::open(error.path().to_owned(), error))?);
        }
        return Ok(());
    };
    let mut bases = vec![folder.to_owned()];
    if at > 0 {
        bases.clear();
        add_matches(folder, &parts[..at].join("/"), follow_links, &mut bases)?;
    }
    for base in bases.iter().filter(|base| base.is_dir()) {
        // `glob` would follow links without a limit.
        let below = links::folders(base, follow_links);
        for folder in below.map_err(|error| Error::open(base, error))? {
            add_matches(&folder, &parts[at + 1..].join("/"), follow_links, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_range_is_returned_whole_or_is_an_error() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("shard");
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        fs::write(&path, &bytes).expect("writes");
        let file = LocalFile::new(&path).expect("it is there");

        assert_eq!(file.read(10..150_010).expect("inside"), bytes[10..150_010]);
        assert_eq!(file.read(7..7).expect("nothing"), b""[..]);
        let error = file.read(199_999..200_001).expect_err("beyond");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);

        fs::write(&path, b"short").expect("writes");
        let error = file.read(0..100).expect_err("it was cut").to_string();
        assert!(error.contains("ends at byte 5"), "{error}");
    }

    #[test]
    fn two_stars_match_folders_at_any_depth() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for name in ["a.tar", "x/b.tar", "x/.y/z/c.tar", "x/n.idx", "w/d.tar"] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, name).expect("writes");
        }
        for (pattern, expected) in [
            (
                "**/*.tar",
                &["a.tar", "w/d.tar", "x/.y/z/c.tar", "x/b.tar"][..],
            ),
            ("x/**/*.tar", &["x/.y/z/c.tar", "x/b.tar"]),
            ("**/z/**/**/*.tar", &["x/.y/z/c.tar"]),
            ("?/**/[bd].tar", &["w/d.tar", "x/b.tar"]),
        ] {
            let whole = root.path().join(pattern).display().to_string();
            let blobs = matches(&whole, true).expect(pattern);
            let names = blobs.iter().map(|blob| {
                let path = blob.path().expect("a file").strip_prefix(root.path());
                path.expect("below the root").display().to_string()
            });
            assert_eq!(names.collect::<Vec<_>>(), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_names_files_in_sorted_order() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for name in ["b.tar", "a.tar", "c.idx"] {
            fs::write(root.path().join(name), name).expect("writes");
        }
        let pattern = root.path().join("*.tar").display().to_string();

        let blobs = matches(&pattern, true).expect("two");

        let names: Vec<_> = blobs.iter().filter_map(|blob| blob.path()).collect();
        assert_eq!(
            names,
            [root.path().join("a.tar"), root.path().join("b.tar")]
        );
        assert!(matches(&root.path().join("*.zip").display().to_string(), true).is_err());
    }

    #[test]
    fn a_folder_or_file_whose_name_is_a_pattern_is_read_as_it_is() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let names = |pattern: &str| -> Vec<String> {
            let pattern = root.path().join(pattern).display().to_string();
            let blobs = crate::store::find(&[&pattern]).expect(&pattern);
            let path = |blob: &Arc<dyn Blob>| {
                let path = blob.path().expect("a file").strip_prefix(root.path());
                path.expect("below the root").display().to_string()
            };
            blobs.iter().map(path).collect()
        };
        for file in [
            "run[1]/a.tar",
            "run1/a.tar",
            "{a,b}/c.tar",
            "a/c.tar",
            "b/c.tar",
            "{v1}/x-0.tar",
            "{v1}/x-[0].tar",
            "w/*.tar",
            "w/1.tar",
            "w/2.tar",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, file).expect("writes");
        }

        for (pattern, expected) in [
            ("run[1]/*.tar", &["run[1]/a.tar"][..]),
            ("run[1]/a.tar", &["run[1]/a.tar"]),
            ("run[12]/a.tar", &["run1/a.tar"]),
            ("{a,b}/*.tar", &["{a,b}/c.tar"]),
            ("{a,b}/c.tar", &["{a,b}/c.tar"]),
            ("{b,a}/c.tar", &["b/c.tar", "a/c.tar"]),
            ("{v1}/x-{0,[0]}.tar", &["{v1}/x-0.tar", "{v1}/x-[0].tar"]),
            ("{v1}/x-*.tar", &["{v1}/x-0.tar", "{v1}/x-[0].tar"]),
            ("w/*.tar", &["w/*.tar"]),
            ("w/?.tar", &["w/*.tar", "w/1.tar", "w/2.tar"]),
        ] {
            assert_eq!(names(pattern), expected, "{pattern}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn patterns_match_through_links_unless_links_are_excluded() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("real/sub")).expect("folders");
        fs::create_dir(path("x")).expect("a folder");
        fs::write(path("real/sub/b.tar"), "b").expect("writes");
        fs::write(path("x/a.tar"), "a").expect("writes");
        let link = |target: &str, at: &str| {
            std::os::unix::fs::symlink(target, path(at)).expect("links");
        };
        link("../real/sub", "x/linked");
        link("a.tar", "x/c.tar");
        link("..", "x/linked/up");
        let names = |pattern: &str, follow: bool| -> Vec<String> {
            let pattern = path(pattern).display().to_string();
            let blobs = matches(&pattern, follow).expect("matches");
            let name = |blob: &Arc<dyn Blob>| {
                let below = Path::new(blob.name()).strip_prefix(root.path());
                below.expect("below the root").display().to_string()
            };
            blobs.iter().map(name).collect()
        };

        assert_eq!(names("x/*.tar", true), ["x/a.tar", "x/c.tar"]);
        assert_eq!(names("x/*.tar", false), ["x/a.tar"]);
        // `x/linked/up/sub` is `x/linked` again.
        assert_eq!(names("x/**/b.tar", true), ["x/linked/b.tar"]);
        assert_eq!(names("x/**/*.tar", false), ["x/a.tar"]);
        // The names of the user are followed.
        assert_eq!(names("x/linked/b.tar", false), ["x/linked/b.tar"]);
        assert_eq!(names("x/linked/*.tar", false), ["x/linked/b.tar"]);
    }

    #[cfg(unix)]
    #[test]
    fn two_stars_end_with_an_error_where_links_multiply_folders() {
        let root = tempfile::tempdir().expect("a temporary folder");
        crate::store::links::multiply_folders(root.path());
        let pattern = root.path().join("**/*.tar").display().to_string();

        let error = matches(&pattern, true).expect_err("2^25 paths").chain();

        assert!(error.contains("more than 100 paths"), "{error}");
    }
}
