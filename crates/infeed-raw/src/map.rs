//! Read-only file mappings, for data that is read in place.
//!
//! The hazard: Rust requires that bytes behind a shared reference do not change, but an operating
//! system usually lets other processes write to or truncate a mapped file. Readers see changed
//! bytes, which the decoders tolerate because they trust no byte. A file that is made *shorter*
//! while it is mapped ends the process with SIGBUS at the first read beyond its new end (Windows
//! rejects the truncation). No check can prevent that, so [`FileMap::open`] is safe only if no
//! process edits training data during a run. A caller that cannot promise this should read the file
//! instead.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

use crate::file;

/// The smallest page in use. Where pages are larger, the system rejects the advice for starts inside
/// of one.
#[cfg(unix)]
const PAGE: usize = 4096;

/// A file's bytes, read-only, for as long as the map lives. An empty file has no bytes.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
}

impl FileMap {
    /// Maps the whole file at `path`, with its current length.
    ///
    /// No process may change or truncate the file meanwhile; the module documentation describes the
    /// consequences.
    ///
    /// # Errors
    ///
    /// Those of [`file::open`], and of mapping a file: no address space.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileMap> {
        FileMap::of(&file::open(path)?.0)
    }

    /// Maps the whole of an open file; otherwise as [`open`](FileMap::open). The map stays valid
    /// after the file is closed.
    ///
    /// # Errors
    ///
    /// As for `open`, without the opening.
    pub fn of(file: &File) -> io::Result<FileMap> {
        // SAFETY: the mapping belongs to this value, is read-only and is unmapped on drop. The user
        // ensures that no process changes the file meanwhile, as the documentation requires; this
        // cannot be checked.
        let map = unsafe { Mmap::map(file)? };
        Ok(FileMap { map })
    }
}

/// Starts to read the pages of mapped bytes from storage, in large requests. Page faults alone read
/// about 128 KiB at a time and wait for each.
///
/// The bytes stay as they are: this only makes their first use faster. Does nothing on systems
/// without such advice.
pub fn will_need(bytes: &[u8]) {
    #[cfg(unix)]
    {
        let start = bytes.as_ptr() as usize / PAGE * PAGE;
        let length = bytes.as_ptr() as usize + bytes.len() - start;
        // SAFETY: the range covers `bytes` and the rest of their first page, which is part of the
        // same mapping or allocation. The advice changes no content and no access, so other bytes on
        // these pages are not affected. A failure only leaves the pages to page faults.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_WILLNEED) };
    }
    #[cfg(not(unix))]
    let _ = bytes;
}

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A file for one test, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn with(name: &str, bytes: &[u8]) -> Scratch {
            let file = format!("infeed-map-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(file);
            fs::write(&path, bytes).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn a_map_holds_the_bytes_of_the_file() {
        let bytes: Vec<u8> = (0..10_000).map(|n| n as u8).collect();
        let file = Scratch::with("bytes", &bytes);

        let map = FileMap::open(&file.0).unwrap();

        assert_eq!(map.as_ref(), bytes);
    }

    #[test]
    fn an_empty_file_maps_to_no_bytes() {
        let file = Scratch::with("empty", &[]);

        assert!(FileMap::open(&file.0).unwrap().as_ref().is_empty());
    }

    #[test]
    fn advice_about_any_part_leaves_the_bytes_as_they_are() {
        let file = Scratch::with("advice", &[1; 9000]);
        let map = FileMap::open(&file.0).unwrap();

        for range in [0..9000, 1..2, 4095..4097, 8999..9000, 5..5] {
            will_need(&map.as_ref()[range]);
        }
        will_need(&[]);
        will_need(&vec![7; 100_000]);

        assert_eq!(map.as_ref(), [1; 9000]);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = FileMap::open("/nonexistent/infeed").unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
